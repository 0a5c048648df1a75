//! Prints JSON strings.

use wide::u8x16;

/// Appends a JSON string that is known to need no escapes.
pub(crate) fn push_plain(out: &mut String, text: &str) {
    out.push('"');
    out.push_str(text);
    out.push('"');
}

/// Appends a JSON string.
pub(crate) fn push_string(out: &mut String, text: &str) {
    out.push('"');
    push_escaped(out, text);
    out.push('"');
}

/// Appends the content of a JSON string.
pub(crate) fn push_escaped(out: &mut String, text: &str) {
    let mut rest = text;
    loop {
        let clean = clean_length(rest.as_bytes());
        out.push_str(&rest[..clean]);
        let Some(byte) = rest.as_bytes().get(clean) else { return };
        push_escape(out, *byte);
        rest = &rest[clean + 1..];
    }
}

/// Returns the number of bytes before the first that must be escaped in JSON: a quote, a backslash
/// or a control character.
pub(crate) fn clean_length(bytes: &[u8]) -> usize {
    let (blocks, rest) = bytes.as_chunks();
    for (block, n) in blocks.iter().zip(0..) {
        if let Some(at) = first_mark(block) {
            return n * BLOCK + at;
        }
    }
    // The tail is padded with bytes that need no escape.
    let mut block = [b' '; BLOCK];
    block[..rest.len()].copy_from_slice(rest);
    bytes.len() - rest.len() + first_mark(&block).unwrap_or(rest.len())
}

/// Bytes that are compared together.
pub(crate) const BLOCK: usize = 16;

/// Returns the position of the first byte that must be escaped.
fn first_mark(block: &[u8; BLOCK]) -> Option<usize> {
    const LAST_CONTROL: u8 = 0x1f;
    let text = u8x16::new(*block);
    let controls = text.min(u8x16::splat(LAST_CONTROL)).simd_eq(text);
    first(controls | quotes_and_escapes(text))
}

/// Returns the position of the first quote or backslash.
pub(crate) fn first_quote_or_escape(block: &[u8; BLOCK]) -> Option<usize> {
    first(quotes_and_escapes(u8x16::new(*block)))
}

fn quotes_and_escapes(text: u8x16) -> u8x16 {
    text.simd_eq(u8x16::splat(b'"')) | text.simd_eq(u8x16::splat(b'\\'))
}

fn first(marks: u8x16) -> Option<usize> {
    match marks.to_bitmask() {
        0 => None,
        marks => Some(marks.trailing_zeros() as usize),
    }
}

fn push_escape(out: &mut String, byte: u8) {
    match byte {
        b'"' => out.push_str("\\\""),
        b'\\' => out.push_str("\\\\"),
        b'\n' => out.push_str("\\n"),
        b'\r' => out.push_str("\\r"),
        b'\t' => out.push_str("\\t"),
        0x08 => out.push_str("\\b"),
        0x0c => out.push_str("\\f"),
        control => {
            const HEX: &[u8; 16] = b"0123456789abcdef";
            out.push_str("\\u00");
            out.push(char::from(HEX[usize::from(control >> 4)]));
            out.push(char::from(HEX[usize::from(control & 15)]));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn strings_print_as_any_json_printer_would(
            clean in "[ -!#-\\[\\]-~\u{7f}é😀]{0,70}",
            text in "[\u{0}-\u{21}\"\\\\aé]{0,70}",
        ) {
            for text in [text.clone(), clean.clone() + &text, text + &clean] {
                let mut out = String::new();
                push_string(&mut out, &text);
                prop_assert_eq!(out, serde_json::to_string(&text).unwrap());
            }
        }
    }
}
