//! The members of a JSON object as slices of its text, for text that a JSON printer wrote: nothing
//! is decoded, copied or checked.

use std::borrow::Cow;
use std::ops::Range;

use memchr::memmem::Finder;

/// One member: its name and its value, both as JSON text.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Member<'a> {
    /// With its quotes.
    pub name: &'a str,
    /// Whether the name contains a backslash.
    pub is_escaped: bool,
    pub value: &'a str,
}

impl<'a> Member<'a> {
    /// Returns the decoded name. `None` if it is not a string.
    pub(crate) fn decoded_name(&self) -> Option<Cow<'a, str>> {
        if self.is_escaped {
            string(self.name)
        } else {
            self.name.get(1..self.name.len() - 1).map(Cow::Borrowed)
        }
    }
}

/// Passes the members of an object to `see` one by one; their values are not objects or arrays.
/// `None` for other text, or as soon as `see` returns it.
pub(crate) fn each_member<'a>(text: &'a str, mut see: impl FnMut(Member<'a>) -> Option<()>) -> Option<()> {
    let mut scanner = Scanner { bytes: text.as_bytes(), at: 0 };
    scanner.expect(b'{')?;
    if scanner.next_is(b'}') {
        return scanner.is_done().then_some(());
    }
    loop {
        let (name, is_escaped) = scanner.string()?;
        scanner.expect(b':')?;
        let value = scanner.value()?;
        see(Member { name: text.get(name)?, is_escaped, value: text.get(value)? })?;
        if scanner.next_is(b',') {
            continue;
        }
        scanner.expect(b'}')?;
        return scanner.is_done().then_some(());
    }
}

/// Returns the value after the first occurrence of `member`, a name with its quotes and its colon.
/// In the text of a flat object this occurs only before a value: inside a string each quote follows
/// a backslash, and no colon follows the end of a string that is a value. `None` without an
/// occurrence, `Some(None)` if no value follows. Only the value need be UTF-8: nothing else is
/// decoded.
pub(crate) fn value_after<'a>(text: &'a [u8], member: &Finder<'_>) -> Option<Option<&'a str>> {
    let at = member.find(text)? + member.needle().len();
    let value = Scanner { bytes: text, at }.value();
    Some(value.and_then(|range| std::str::from_utf8(text.get(range)?).ok()))
}

/// Returns the value that begins at a position, as JSON text. `None` if there is none.
pub(crate) fn value_at(text: &str, at: usize) -> Option<&str> {
    text.get(Scanner { bytes: text.as_bytes(), at }.value()?)
}

/// Returns the content of a JSON string, borrowed if it has no escapes. `None` for anything else.
pub(crate) fn string(json: &str) -> Option<Cow<'_, str>> {
    let inner = json.strip_prefix('"')?.strip_suffix('"')?;
    if memchr::memchr(b'\\', inner.as_bytes()).is_none() {
        return Some(Cow::Borrowed(inner));
    }
    serde_json::from_str::<String>(json).ok().map(Cow::Owned)
}

/// Removes a suffix.
pub(crate) fn without_suffix<'a>(text: &Cow<'a, str>, suffix: &str) -> Option<Cow<'a, str>> {
    match text {
        Cow::Borrowed(text) => text.strip_suffix(suffix).map(Cow::Borrowed),
        Cow::Owned(text) => text.strip_suffix(suffix).map(|rest| Cow::Owned(rest.to_owned())),
    }
}

struct Scanner<'a> {
    bytes: &'a [u8],
    at: usize,
}

impl Scanner<'_> {
    fn peek(&mut self) -> Option<u8> {
        while matches!(self.bytes.get(self.at), Some(b' ' | b'\t' | b'\r' | b'\n')) {
            self.at += 1;
        }
        self.bytes.get(self.at).copied()
    }

    fn next_is(&mut self, byte: u8) -> bool {
        let is = self.peek() == Some(byte);
        self.at += usize::from(is);
        is
    }

    fn expect(&mut self, byte: u8) -> Option<()> {
        self.next_is(byte).then_some(())
    }

    fn is_done(&mut self) -> bool {
        self.peek().is_none()
    }

    /// Returns the end of a string, and whether it contains a backslash.
    fn string(&mut self) -> Option<(Range<usize>, bool)> {
        self.expect(b'"')?;
        let (bytes, start) = (self.bytes, self.at - 1);
        let mut is_escaped = false;
        loop {
            let found = self.at + memchr::memchr2(b'"', b'\\', bytes.get(self.at..)?)?;
            self.at = found + 1;
            if bytes[found] == b'"' {
                return Some((start..self.at, is_escaped));
            }
            // An escaped character does not end the string.
            is_escaped = true;
            self.at += 1;
        }
    }

    fn value(&mut self) -> Option<Range<usize>> {
        match self.peek()? {
            b'"' => self.string().map(|(range, _)| range),
            b'{' | b'[' => None,
            _ => {
                let start = self.at;
                let rest = self.bytes.get(start..)?;
                let length =
                    rest.iter().position(|b| matches!(b, b',' | b'}' | b' ' | b'\n' | b'\r' | b'\t'))?;
                self.at += length;
                if length == 0 { None } else { Some(start..self.at) }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn pairs(text: &str) -> Option<Vec<(&str, &str)>> {
        let mut found = Vec::new();
        each_member(text, |m| {
            found.push((m.name, m.value));
            Some(())
        })?;
        Some(found)
    }

    #[test]
    fn members_are_slices_of_the_text() {
        assert_eq!(pairs("{}"), Some(vec![]));
        assert_eq!(pairs(" { } "), Some(vec![]));
        assert_eq!(
            pairs("{\"a\": 1, \"b\":\"x\\\"}, \",\"\\\\\":true}"),
            Some(vec![("\"a\"", "1"), ("\"b\"", "\"x\\\"}, \""), ("\"\\\\\"", "true")])
        );
    }

    #[test]
    fn what_is_no_flat_object_is_told() {
        for text in [
            "",
            "{",
            "}",
            "[]",
            "{\"a\"}",
            "{\"a\":}",
            "{\"a\":1",
            "{\"a\":1,}",
            "{\"a\":[1]}",
            "{\"a\":{}}",
            "{\"a\":\"x}",
            "{\"a\":\"x\\",
            "{\"a\":1}x",
            "{a:1}",
            "{\"a\":1 2}",
            "{,}",
        ] {
            assert_eq!(pairs(text), None, "{text}");
        }
    }

    #[test]
    fn strings_are_decoded_where_they_have_to_be() {
        assert_eq!(string("\"ab\""), Some(Cow::Borrowed("ab")));
        assert_eq!(string("\"a\\u0041\\n\""), Some(Cow::Owned("aA\n".into())));
        for text in ["", "\"", "ab", "\"\\x\"", "\"\\ud800\""] {
            assert_eq!(string(text), None, "{text}");
        }
    }

    proptest! {
        #[test]
        fn objects_of_any_printer_split_as_they_were_printed(
            object in prop::collection::btree_map(any::<String>(), any::<Option<String>>(), 0..6),
        ) {
            let value = serde_json::to_value(&object).unwrap();
            for text in [serde_json::to_string(&value).unwrap(), serde_json::to_string_pretty(&value).unwrap()] {
                let mut found = Vec::new();
                each_member(&text, |m| {
                    found.push(m);
                    Some(())
                })
                .unwrap();
                prop_assert_eq!(found.len(), object.len());
                for (member, (name, value)) in found.iter().zip(&object) {
                    prop_assert_eq!(&string(member.name).unwrap(), name);
                    prop_assert_eq!(string(member.value).map(Cow::into_owned), value.clone());
                }
            }
        }

        #[test]
        fn no_text_makes_it_panic(text in "[{}\\[\\]\",:\\\\a1é ]{0,24}") {
            let _ = each_member(&text, |_| Some(()));
        }
    }
}
