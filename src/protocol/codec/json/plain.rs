//! A fast path for the members of a simple JSON object, as most bodies are. All other texts go to
//! the parser.

use crate::protocol::codec::strings::clean_length;

/// Passes names, without their quotes, and values, as JSON text, of an object whose strings have no
/// escapes and whose values are no objects, arrays or numbers with exponents. `None` for every
/// other text, valid or not: then what was passed is void.
pub(crate) fn each_member<'a>(text: &'a str, mut see: impl FnMut(&'a str, &'a str)) -> Option<()> {
    let mut reader = Reader { text, at: 0 };
    reader.expect(b'{')?;
    if !reader.next_is(b'}') {
        loop {
            reader.expect(b'"')?;
            let name = reader.string()?;
            reader.expect(b':')?;
            see(name, reader.value()?);
            if !reader.next_is(b',') {
                break;
            }
        }
        reader.expect(b'}')?;
    }
    reader.peek().is_none().then_some(())
}

struct Reader<'a> {
    text: &'a str,
    at: usize,
}

impl<'a> Reader<'a> {
    fn rest(&self) -> &'a [u8] {
        self.text.as_bytes().get(self.at..).unwrap_or_default()
    }

    /// Returns the next byte that is not white space.
    fn peek(&mut self) -> Option<u8> {
        loop {
            match self.text.as_bytes().get(self.at) {
                Some(b' ' | b'\t' | b'\r' | b'\n') => self.at += 1,
                other => return other.copied(),
            }
        }
    }

    fn next_is(&mut self, byte: u8) -> bool {
        let is = self.peek() == Some(byte);
        self.at += usize::from(is);
        is
    }

    fn expect(&mut self, byte: u8) -> Option<()> {
        self.next_is(byte).then_some(())
    }

    /// Returns the text up to the closing quote, after the opening one.
    fn string(&mut self) -> Option<&'a str> {
        let start = self.at;
        let end = start + clean_length(self.rest());
        self.at = end + 1;
        if self.text.as_bytes().get(end) == Some(&b'"') { self.text.get(start..end) } else { None }
    }

    fn value(&mut self) -> Option<&'a str> {
        let first = self.peek()?;
        let start = self.at;
        match first {
            b'"' => {
                self.at += 1;
                self.string()?;
            }
            b'-' | b'0'..=b'9' => self.at += number_length(self.rest())?,
            _ => {
                let word = ["true", "false", "null"].into_iter();
                self.at += word.map(str::as_bytes).find(|word| self.rest().starts_with(word))?.len();
            }
        }
        self.text.get(start..self.at)
    }
}

/// Whether a byte belongs to a number without an exponent. Callers check what follows, so no number
/// continues after its end.
fn number_length(bytes: &[u8]) -> Option<usize> {
    let digits = |from: usize| bytes.iter().skip(from).take_while(|b| b.is_ascii_digit()).count();
    let sign = usize::from(bytes.first() == Some(&b'-'));
    let whole = digits(sign);
    let has_leading_zero = whole > 1 && bytes.get(sign) == Some(&b'0');
    if whole == 0 || has_leading_zero {
        return None;
    }
    let length = sign + whole;
    if bytes.get(length) != Some(&b'.') {
        return Some(length);
    }
    match digits(length + 1) {
        0 => None,
        fraction => Some(length + 1 + fraction),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use serde_json::value::RawValue;
    use std::collections::BTreeMap;

    fn shown(text: &str) -> Option<Vec<(&str, &str)>> {
        let mut members = Vec::new();
        each_member(text, |name, value| members.push((name, value)))?;
        Some(members)
    }

    #[test]
    fn plain_objects_are_read() {
        assert_eq!(shown(" { } "), Some(vec![]));
        let text = "{\"a\":\"é{,\",\r\n\t\"\" : -0.50 ,\"a\":0,\"t\":true,\"f\":false,\"n\":null}\n";
        let members =
            [("a", "\"é{,\""), ("", "-0.50"), ("a", "0"), ("t", "true"), ("f", "false"), ("n", "null")];
        assert_eq!(shown(text), Some(members.to_vec()));
    }

    #[test]
    fn everything_else_is_left_to_the_parser() {
        for value in [
            "",
            "{}",
            "[1]",
            "\"\\n\"",
            "\"\t\"",
            "\"a",
            "1e5",
            "1E-5",
            "1.",
            "-",
            "+1",
            "01",
            "-01",
            ".5",
            "1.5.5",
            "1 2",
            "tru",
            "truee",
            "True",
            "nul",
            "NaN",
            "'a'",
            "\"a\"\"b\"",
            "1,",
            "1,}",
            "1}",
        ] {
            let text = format!("{{\"a\":{value}}}");
            assert_eq!(shown(&text), None, "{text}");
        }
        for text in
            ["", "{", "}", "[]", "{\"a\"}", "{a:1}", "{,}", "{\"a\":1", "{\"a\":1}x", "{\"\\u0061\":1}"]
        {
            assert_eq!(shown(text), None, "{text}");
        }
    }

    proptest! {
        #[test]
        fn what_is_read_is_what_the_parser_reads(
            pieces in prop::collection::vec(prop::sample::select(vec![
                "{", "}", "\"", "\"a\"", "\"bc\"", ":", ",", " ", "\n", "\\", "\u{1}", "0", "12", "-", ".", "e",
                "true", "null", "[", "]", "é", "\"a\":1", "\"b\":\"x\",", "\"c\" : -1.5",
            ]), 0..12),
            wrapped: bool,
        ) {
            let text = if wrapped { format!("{{{}}}", pieces.concat()) } else { pieces.concat() };
            if let Some(members) = shown(&text) {
                let parsed: BTreeMap<String, &RawValue> = serde_json::from_str(&text).unwrap();
                // Of members that occur twice, the map has the last.
                let last: BTreeMap<&str, &str> = members.into_iter().collect();
                let parsed: BTreeMap<&str, &str> =
                    parsed.iter().map(|(name, raw)| (name.as_str(), raw.get())).collect();
                prop_assert_eq!(last, parsed);
            }
        }
    }
}
