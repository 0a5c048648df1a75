//! Addresses of entities as text (protocol §2.2, Location encoding).

use std::borrow::Cow;

use percent_encoding::{AsciiSet, NON_ALPHANUMERIC, percent_decode_str, utf8_percent_encode};

use crate::model::Key;

/// Everything but the unreserved characters of RFC 3986 is escaped, as
/// recorded; quotes stay raw and doubled.
const ESCAPED: &AsciiSet =
    &NON_ALPHANUMERIC.remove(b'-').remove(b'_').remove(b'.').remove(b'~').remove(b'\'');

/// `T(PartitionKey='p',RowKey='r')`, keys escaped.
pub fn entity_address(table: &str, key: &Key) -> String {
    format!("{table}(PartitionKey='{}',RowKey='{}')", literal(&key.partition), literal(&key.row))
}

fn literal(key: &str) -> String {
    utf8_percent_encode(&key.replace('\'', "''"), ESCAPED).to_string()
}

/// A value of a query string.
pub fn escape(text: &str) -> String {
    const VALUE: &AsciiSet = &ESCAPED.add(b'\'');
    utf8_percent_encode(text, VALUE).to_string()
}

/// Decodes percent escapes exactly once; `None` for a broken escape and for
/// bytes that are not UTF-8.
pub fn percent_decode(text: &str) -> Option<Cow<'_, str>> {
    let bytes = text.as_bytes();
    let hex = |b: Option<&u8>| b.is_some_and(u8::is_ascii_hexdigit);
    let broken =
        memchr::memchr_iter(b'%', bytes).any(|at| !hex(bytes.get(at + 1)) || !hex(bytes.get(at + 2)));
    if broken {
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
            ("", ""),
        ] {
            assert_eq!(literal(key), text);
            assert_eq!(percent_decode(&literal(key)).unwrap(), key.replace('\'', "''"));
        }
    }

    #[test]
    fn decoding_happens_once_and_refuses_nonsense() {
        assert_eq!(percent_decode("%2520+a").as_deref(), Some("%20+a"));
        for bad in ["%", "%2", "%zz", "%ff", "%C3", "a%é"] {
            assert_eq!(percent_decode(bad), None, "{bad}");
        }
    }
}
