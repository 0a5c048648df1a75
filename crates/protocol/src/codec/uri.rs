//! Percent-encodes the addresses of entities (protocol §2.2, Location encoding) and other text, and decodes text.

use std::borrow::Cow;

use percent_encoding::{AsciiSet, CONTROLS, NON_ALPHANUMERIC, percent_decode_str, utf8_percent_encode};

/// Escapes everything but quotes and the unreserved characters of RFC 3986, as recorded answers of Azure do.
const ESCAPED: &AsciiSet =
    &NON_ALPHANUMERIC.remove(b'-').remove(b'_').remove(b'.').remove(b'~').remove(b'\'');

/// Also escapes quotes, which [`push_literal`] doubles instead.
const ESCAPED_WITH_QUOTES: &AsciiSet = &ESCAPED.add(b'\'');

/// Characters that are invalid in an address.
const NOT_IN_ADDRESSES: &AsciiSet = &CONTROLS
    .add(b' ')
    .add(b'"')
    .add(b'%')
    .add(b'<')
    .add(b'>')
    .add(b'\\')
    .add(b'^')
    .add(b'`')
    .add(b'{')
    .add(b'|')
    .add(b'}');

/// Returns `T(PartitionKey='p',RowKey='r')` with percent-encoded keys.
pub fn entity_address(table: &str, partition: &str, row: &str) -> String {
    let mut out = String::with_capacity(table.len() + key_room(partition, row));
    out.push_str(table);
    push_key(&mut out, partition, row);
    out
}

/// Estimates the number of bytes that [`push_key`] appends. Many escapes can exceed the estimate.
pub(crate) const fn key_room(partition: &str, row: &str) -> usize {
    32 + partition.len() + row.len()
}

/// Appends `(PartitionKey='p',RowKey='r')` with percent-encoded keys. The result needs no escapes in JSON.
pub(crate) fn push_key(out: &mut String, partition: &str, row: &str) {
    out.push_str("(PartitionKey='");
    push_literal(out, partition);
    out.push_str("',RowKey='");
    push_literal(out, row);
    out.push_str("')");
}

fn push_literal(out: &mut String, key: &str) {
    for piece in utf8_percent_encode(key, ESCAPED_WITH_QUOTES) {
        // Only a quote is encoded as `%27`.
        out.push_str(if piece == "%27" { "''" } else { piece });
    }
}

/// Percent-encodes a value for a query string.
pub fn escape(text: &str) -> String {
    utf8_percent_encode(text, ESCAPED_WITH_QUOTES).to_string()
}

/// Percent-encodes only characters that are invalid in an address, so that the text stays readable.
pub(crate) fn escape_lightly(text: &str) -> String {
    utf8_percent_encode(text, NOT_IN_ADDRESSES).to_string()
}

/// Percent-decodes a text exactly once. Returns `None` for an invalid escape and for bytes that are not
/// UTF-8.
pub fn percent_decode(text: &str) -> Option<Cow<'_, str>> {
    let bytes = text.as_bytes();
    let hex = |b: Option<&u8>| b.is_some_and(u8::is_ascii_hexdigit);
    let mut escapes = memchr::memchr_iter(b'%', bytes).peekable();
    if escapes.peek().is_none() {
        return Some(Cow::Borrowed(text));
    }
    if escapes.any(|at| !hex(bytes.get(at + 1)) || !hex(bytes.get(at + 2))) {
        return None;
    }
    percent_decode_str(text).decode_utf8().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_are_escaped_as_recorded() {
        for (key, text) in [
            ("A'aaa\"_bbbb2", "A''aaa%22_bbbb2"),
            (":@", "%3A%40"),
            ("+,$", "%2B%2C%24"),
            ("=& ", "%3D%26%20"),
            ("table@storage.com0", "table%40storage.com0"),
            ("%20", "%2520"),
            ("ô", "%C3%B4"),
            ("'%27'", "''%2527''"),
            ("", ""),
        ] {
            let mut literal = String::new();
            push_literal(&mut literal, key);
            assert_eq!(literal, text);
            assert_eq!(percent_decode(&literal).unwrap(), key.replace('\'', "''"));
        }
    }

    #[test]
    fn what_can_stand_in_an_address_stays_there() {
        assert_eq!(escape_lightly("age, é\"%\n*_'()"), "age,%20%C3%A9%22%25%0A*_'()");
    }

    #[test]
    fn decoding_happens_once_and_refuses_nonsense() {
        assert_eq!(percent_decode("%2520+a").as_deref(), Some("%20+a"));
        for bad in ["%", "%2", "%zz", "%ff", "%C3", "a%é"] {
            assert_eq!(percent_decode(bad), None, "{bad}");
        }
    }
}
