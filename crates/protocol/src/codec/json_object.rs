//! The members of a JSON object, as slices of its text. There are three readers:
//!
//! - [`each_stored_member`], for text from a JSON printer, does not decode or check values.
//! - [`each_plain_member`], for any text, is fast and gives up on escapes, nesting and exponents.
//! - [`each_member`], for any text, uses the JSON parser.
//!
//! [`push_sorted`] sorts members into the order of jsonb. Otherwise PostgreSQL sorts them, which takes a twentieth of
//! the cost of a change set of inserts. Sorting here costs less, because the names are compared in place.

use std::borrow::Cow;
use std::fmt;
use std::ops::Range;

use memchr::memmem::Finder;
use serde::Deserialize;
use serde::de::{Deserializer as _, Error as _, MapAccess, Visitor};
use serde_json::value::RawValue;

/// One member, with its name and its value as JSON text.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Member<'a> {
    /// The name with its quotes.
    pub name: &'a str,
    /// Whether the name contains a backslash.
    pub is_escaped: bool,
    pub value: &'a str,
}

impl<'a> Member<'a> {
    /// Returns the decoded name, or `None` if it is not a string.
    pub(crate) fn decoded_name(&self) -> Option<Cow<'a, str>> {
        if self.is_escaped {
            string(self.name)
        } else {
            self.name.get(1..self.name.len() - 1).map(Cow::Borrowed)
        }
    }
}

/// Passes the members of an object to `f` one by one. The values must not be objects or arrays. Returns `None` for any
/// other text, and as soon as `f` returns `None`.
pub(crate) fn each_stored_member<'a>(text: &'a str, f: impl FnMut(Member<'a>) -> Option<()>) -> Option<()> {
    scan::<false>(text, f)
}

/// Passes the members of an object to `f` like [`each_stored_member`]. No string may have an escape, and no value may
/// be an object, an array or a number with an exponent; most bodies satisfy this. Returns `None` for all other text,
/// valid or not. The caller must then discard the members that it has received.
pub(crate) fn each_plain_member<'a>(
    text: &'a str,
    mut f: impl FnMut(Member<'a>) -> Option<()>,
) -> Option<()> {
    if !has_control(text) {
        return scan::<true>(text, f);
    }
    // A line break is valid between members, but not in a string.
    scan::<true>(
        text,
        |member| {
            if has_control(member.name) || has_control(member.value) { None } else { f(member) }
        },
    )
}

fn has_control(text: &str) -> bool {
    text.bytes().fold(false, |found, byte| found | (byte < b' '))
}

/// Passes the members of any object, with decoded names and the JSON text of values.
pub fn each_member<'a>(
    text: &'a str,
    f: impl FnMut(Cow<'a, str>, &'a str) -> Result<(), String>,
) -> serde_json::Result<()> {
    let mut parser = serde_json::Deserializer::from_str(text);
    parser.deserialize_map(MembersVisitor(f))?;
    parser.end()
}

/// Returns the value after the first occurrence of `member`, a name with its quotes and its colon. In a flat
/// object, this text occurs only before a value: inside a string a backslash precedes each quote, and no
/// colon follows the end of a string value. Returns `None` without an occurrence, and `Some(None)` if no
/// value follows. Only the value has to be UTF-8; nothing else is decoded.
pub(crate) fn value_after<'a>(text: &'a [u8], member: &Finder<'_>) -> Option<Option<&'a str>> {
    let at = member.find(text)? + member.needle().len();
    let value = Scanner::<false> { bytes: text, at }.value();
    Some(value.and_then(|range| std::str::from_utf8(text.get(range)?).ok()))
}

/// Returns the value that begins at a position as JSON text, or `None` if there is no value.
pub(crate) fn value_at(text: &str, at: usize) -> Option<&str> {
    text.get(Scanner::<false> { bytes: text.as_bytes(), at }.value()?)
}

/// Returns the content of a JSON string, borrowed if it has no escapes. Returns `None` for anything else.
pub fn string(json: &str) -> Option<Cow<'_, str>> {
    let inner = json.strip_prefix('"')?.strip_suffix('"')?;
    if memchr::memchr(b'\\', inner.as_bytes()).is_none() {
        return Some(Cow::Borrowed(inner));
    }
    serde_json::from_str::<String>(json).ok().map(Cow::Owned)
}

pub(crate) fn without_suffix<'a>(text: &Cow<'a, str>, suffix: &str) -> Option<Cow<'a, str>> {
    match text {
        Cow::Borrowed(text) => text.strip_suffix(suffix).map(Cow::Borrowed),
        Cow::Owned(text) => text.strip_suffix(suffix).map(|rest| Cow::Owned(rest.to_owned())),
    }
}

fn scan<'a, const CHECKED: bool>(text: &'a str, mut f: impl FnMut(Member<'a>) -> Option<()>) -> Option<()> {
    let mut scanner = Scanner::<CHECKED> { bytes: text.as_bytes(), at: 0 };
    scanner.expect(b'{')?;
    if scanner.next_is(b'}') {
        return scanner.is_done().then_some(());
    }
    loop {
        let (name, is_escaped) = scanner.string()?;
        scanner.expect(b':')?;
        let value = scanner.value()?;
        f(Member { name: text.get(name)?, is_escaped, value: text.get(value)? })?;
        if scanner.next_is(b',') {
            continue;
        }
        scanner.expect(b'}')?;
        return scanner.is_done().then_some(());
    }
}

/// A position in the text of a flat object. If `CHECKED`, the scanner refuses escapes and values that are not plain;
/// otherwise the text must come from a JSON printer.
struct Scanner<'a, const CHECKED: bool> {
    bytes: &'a [u8],
    at: usize,
}

impl<const CHECKED: bool> Scanner<'_, CHECKED> {
    /// Returns the next byte that is not white space.
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

    /// Returns the range of a string, and whether the string contains a backslash. A checked string has none.
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
            if CHECKED {
                return None;
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
            first => {
                let start = self.at;
                let tail = self.bytes.get(start..)?;
                self.at += if CHECKED { plain_length(first, tail)? } else { printed_length(tail)? };
                Some(start..self.at)
            }
        }
    }
}

/// Returns the length of a number or word, up to the next delimiter.
fn printed_length(bytes: &[u8]) -> Option<usize> {
    let length = bytes.iter().position(|b| matches!(b, b',' | b'}' | b' ' | b'\n' | b'\r' | b'\t'))?;
    (length > 0).then_some(length)
}

/// Returns the length of a number without an exponent, or of a JSON word. The caller refuses a value that continues
/// after this length.
fn plain_length(first: u8, bytes: &[u8]) -> Option<usize> {
    if matches!(first, b'-' | b'0'..=b'9') {
        return number_length(bytes);
    }
    let mut words = ["true", "false", "null"].into_iter().map(str::as_bytes);
    words.find(|word| bytes.starts_with(word)).map(<[u8]>::len)
}

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

struct MembersVisitor<F>(F);

impl<'de, F: FnMut(Cow<'de, str>, &'de str) -> Result<(), String>> Visitor<'de> for MembersVisitor<F> {
    type Value = ();

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a JSON object")
    }

    fn visit_map<A: MapAccess<'de>>(mut self, mut map: A) -> Result<(), A::Error> {
        while let Some(MemberName(name)) = map.next_key()? {
            let raw: &RawValue = map.next_value()?;
            (self.0)(name, raw.get()).map_err(A::Error::custom)?;
        }
        Ok(())
    }
}

/// A member name that borrows from the input if it has no escapes. Without `serde(borrow)`, a `Cow` never borrows.
#[derive(Deserialize)]
#[serde(transparent)]
struct MemberName<'a>(#[serde(borrow)] Cow<'a, str>);

const INITIAL_MEMBERS: usize = 32;

/// Appends the text of an object with shorter names first, and names of equal length ordered by their bytes. Any other
/// text, and an object that contains objects, is appended unchanged. Names with escapes may be out of order, because
/// PostgreSQL accepts any order.
pub fn push_sorted(out: &mut Vec<u8>, text: &str) {
    match members(text) {
        Some(mut members) if !members.is_sorted_by_key(sort_key) => {
            // The sort is stable, because the last of several members with one name counts.
            members.sort_by_key(sort_key);
            push_members(out, &members);
        }
        _ => out.extend_from_slice(text.as_bytes()),
    }
}

fn members(text: &str) -> Option<Vec<Member<'_>>> {
    let mut members = Vec::with_capacity(INITIAL_MEMBERS);
    each_stored_member(text, |member| {
        members.push(member);
        Some(())
    })?;
    Some(members)
}

fn push_members(out: &mut Vec<u8>, members: &[Member<'_>]) {
    let mut before = b'{';
    for member in members {
        out.push(before);
        out.extend_from_slice(member.name.as_bytes());
        out.push(b':');
        out.extend_from_slice(member.value.as_bytes());
        before = b',';
    }
    out.push(b'}');
}

const fn sort_key<'a>(member: &Member<'a>) -> (usize, &'a str) {
    (member.name.len(), member.name)
}

/// Appends a JSON string that needs no escapes.
pub(crate) fn push_plain(out: &mut String, text: &str) {
    out.push('"');
    out.push_str(text);
    out.push('"');
}

pub fn push_string(out: &mut String, text: &str) {
    out.push('"');
    push_escaped(out, text);
    out.push('"');
}

/// Appends the content of a JSON string.
pub(crate) fn push_escaped(out: &mut String, text: &str) {
    let mut rest = text;
    while let Some(at) = rest.bytes().position(|byte| byte < b' ' || byte == b'"' || byte == b'\\') {
        out.push_str(&rest[..at]);
        push_escape(out, rest.as_bytes()[at]);
        rest = &rest[at + 1..];
    }
    out.push_str(rest);
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
    use std::collections::BTreeMap;

    use proptest::prelude::*;

    fn pairs(text: &str) -> Option<Vec<(&str, &str)>> {
        let mut found = Vec::new();
        each_stored_member(text, |m| {
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
                each_stored_member(&text, |m| {
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
            let _ = each_stored_member(&text, |_| Some(()));
        }
    }

    fn plain(text: &str) -> Option<Vec<(&str, &str)>> {
        let mut members = Vec::new();
        each_plain_member(text, |member| {
            members.push((member.name.trim_matches('"'), member.value));
            Some(())
        })?;
        Some(members)
    }

    #[test]
    fn plain_objects_are_read() {
        assert_eq!(plain(" { } "), Some(vec![]));
        let text = "{\"a\":\"é{,\",\r\n\t\"\" : -0.50 ,\"a\":0,\"t\":true,\"f\":false,\"n\":null}\n";
        let members =
            [("a", "\"é{,\""), ("", "-0.50"), ("a", "0"), ("t", "true"), ("f", "false"), ("n", "null")];
        assert_eq!(plain(text), Some(members.to_vec()));
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
            assert_eq!(plain(&text), None, "{text}");
        }
        for text in
            ["", "{", "}", "[]", "{\"a\"}", "{a:1}", "{,}", "{\"a\":1", "{\"a\":1}x", "{\"\\u0061\":1}"]
        {
            assert_eq!(plain(text), None, "{text}");
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
            if let Some(members) = plain(&text) {
                let parsed: BTreeMap<String, &RawValue> = serde_json::from_str(&text).unwrap();
                // The map keeps the last of two members with the same name.
                let last: BTreeMap<&str, &str> = members.into_iter().collect();
                let parsed: BTreeMap<&str, &str> =
                    parsed.iter().map(|(name, raw)| (name.as_str(), raw.get())).collect();
                prop_assert_eq!(last, parsed);
            }
        }
    }

    mod sorting {
        use super::super::*;
        use proptest::prelude::*;
        use serde_json::Value;

        fn sorted(text: &str) -> String {
            let mut out = Vec::new();
            push_sorted(&mut out, text);
            String::from_utf8(out).unwrap()
        }

        #[test]
        fn shorter_names_come_first() {
            assert_eq!(sorted(r#"{"bb":1,"a":"x","ab":true}"#), r#"{"a":"x","ab":true,"bb":1}"#);
            assert_eq!(
                sorted(r#"{"N@odata.type":"Edm.Int64","N":"5","é":1,"ab":2}"#),
                r#"{"N":"5","ab":2,"é":1,"N@odata.type":"Edm.Int64"}"#
            );
        }

        #[test]
        fn the_last_of_members_with_one_name_stays_the_last() {
            assert_eq!(sorted(r#"{"b":1,"a":2,"b":3}"#), r#"{"a":2,"b":1,"b":3}"#);
        }

        #[test]
        fn what_is_sorted_or_no_flat_object_stays_as_it_is() {
            for text in
                ["{}", "{\"a\": 1, \"b\":2}", "{\"b\":{\"c\":1},\"a\":2}", "[2,1]", "", "{\"b\":1,\"a\""]
            {
                assert_eq!(sorted(text), text);
            }
        }

        proptest! {
            #[test]
            fn an_object_says_what_it_said(
                members in prop::collection::hash_map("[a-c\"é\\\\]{0,3}", any::<Option<String>>(), 0..8),
            ) {
                let text = serde_json::to_string(&members).unwrap();
                let sorted = sorted(&text);
                let value = |text: &str| serde_json::from_str::<Value>(text).unwrap();
                prop_assert_eq!(value(&sorted), value(&text));
                let mut names: Vec<(usize, String)> = Vec::new();
                each_stored_member(&sorted, |m| {
                    names.push((m.name.len(), m.name.to_owned()));
                    Some(())
                }).unwrap();
                prop_assert!(names.is_sorted());
            }
        }
    }

    mod strings {
        use super::super::*;
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
}
