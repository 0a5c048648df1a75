//! W3C Trace Context: the trace that a request is part of.

/// The caller's place in a trace.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Parent {
    pub trace: [u8; 16],
    pub span: [u8; 8],
    /// Whether the caller records its own span.
    pub is_sampled: bool,
}

impl Parent {
    /// Parses a `traceparent` header; `None` if it is invalid and must be ignored.
    pub(crate) fn parse(text: &str) -> Option<Self> {
        let mut parts = text.trim().split('-');
        let version: [u8; 1] = bytes(parts.next()?)?;
        let (trace, span) = (bytes(parts.next()?)?, bytes(parts.next()?)?);
        let flags: [u8; 1] = bytes(parts.next()?)?;
        // Version 0 has exactly these parts; later versions may add some.
        let fits = version != [0xff] && (version != [0] || parts.next().is_none());
        (fits && trace != [0; 16] && span != [0; 8]).then_some(Self {
            trace,
            span,
            is_sampled: flags[0] & 1 == 1,
        })
    }
}

/// Parses lower-case hexadecimal digits of exactly this many bytes.
fn bytes<const N: usize>(text: &str) -> Option<[u8; N]> {
    let digits = text.as_bytes();
    let value = |digit: u8| match digit {
        b'0'..=b'9' => Some(digit - b'0'),
        b'a'..=b'f' => Some(digit - b'a' + 10),
        _ => None,
    };
    if digits.len() != 2 * N {
        return None;
    }
    let mut found = [0; N];
    for (byte, pair) in found.iter_mut().zip(digits.chunks_exact(2)) {
        *byte = value(pair[0])? << 4 | value(pair[1])?;
    }
    Some(found)
}

/// Prints bytes as lower-case hexadecimal digits.
pub(crate) fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    const TRACE: &str = "0af7651916cd43dd8448eb211c80319c";
    const SPAN: &str = "b7ad6b7169203331";

    #[test]
    fn a_parent_is_read_and_anything_else_ignored() {
        let parse = |text: &str| Parent::parse(text).map(|p| (hex(&p.trace), hex(&p.span), p.is_sampled));
        let expected = |sampled| Some((TRACE.to_owned(), SPAN.to_owned(), sampled));
        assert_eq!(parse(&format!("00-{TRACE}-{SPAN}-01")), expected(true));
        assert_eq!(parse(&format!("00-{TRACE}-{SPAN}-00")), expected(false));
        assert_eq!(parse(&format!("cc-{TRACE}-{SPAN}-03-more")), expected(true));
        for text in [
            String::new(),
            format!("ff-{TRACE}-{SPAN}-01"),
            format!("00-{TRACE}-{SPAN}-01-more"),
            format!("00-{TRACE}-{SPAN}"),
            format!("00-{}-{SPAN}-01", TRACE.to_uppercase()),
            format!("00-{}-{SPAN}-01", "0".repeat(32)),
            format!("00-{TRACE}-{}-01", "0".repeat(16)),
            format!("00-{TRACE}-é7ad6b716920333-01"),
        ] {
            assert_eq!(parse(&text), None, "{text}");
        }
    }
}
