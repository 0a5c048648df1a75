//! Continuation tokens (protocol §7.3, §7.4). A token names the next row, so a client neither sees a row
//! twice nor misses a row if the data changes between pages.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;

use super::index::{IndexPosition, IndexValue};
use crate::error::{Code, Result};
use crate::model::{Key, PageOrder, TableName, Ticks};

/// The prefix of the PartitionKey token of a descending page. Tokens of ascending pages never contain U+0000,
/// because no bound does.
const DESCENDING_PREFIX: char = '\0';
/// The prefix of the PartitionKey token of a page in the order of an index.
const INDEX_PREFIX: &str = "\0\0";

/// The prefix of every token, as issued and as escaped twice by a client. A text with one of these prefixes is
/// refused unless it is a valid token, so that no damaged token is mistaken for a key.
const TOKEN_PREFIXES: [&str; 2] = ["1!", "1%21"];

/// Maximum bytes of a token. A key of 1024 UTF-16 units is at most 3 KiB of UTF-8, or 4 KiB of base64.
const MAX_TOKEN_BYTES: usize = 8 * 1024;

/// Encodes a token as `1!{length}!{base64}`. Characters that need no escapes in a URL replace `=`, `+` and `/`
/// (UNVERIFIED 24).
pub fn encode_token(text: &str) -> String {
    let encoded: String = STANDARD.encode(text).chars().map(to_url_safe).collect();
    format!("1!{}!{encoded}", encoded.len())
}

/// Decodes a token.
///
/// # Errors
/// [`Code::InvalidInput`] for any text that [`encode_token`] did not make.
pub fn decode_token(given: &str) -> Result<String> {
    // No name or key contains U+0000.
    decode_own(given).filter(|text| !text.contains('\0')).ok_or_else(|| Code::InvalidInput.into())
}

/// Returns the text that [`encode_token`] encoded, or `None` for a text that it did not make.
fn decode_own(given: &str) -> Option<String> {
    let (_, encoded) = given.strip_prefix("1!")?.split_once('!')?;
    if given.len() > MAX_TOKEN_BYTES {
        return None;
    }
    let standard: String = encoded.chars().map(from_url_safe).collect();
    let text = String::from_utf8(STANDARD.decode(standard).ok()?).ok()?;
    // Refuse variants that the decoding above accepts: a length with a sign or leading zeros, and `=` for `-`.
    (encode_token(&text) == given).then_some(text)
}

/// Returns the tokens for the start of the next page of entities: NextPartitionKey and NextRowKey.
pub fn entity_tokens(order: PageOrder, next: &Key) -> (String, String) {
    let partition = match order {
        PageOrder::Ascending => encode_token(&next.partition),
        PageOrder::Descending => encode_token(&format!("{DESCENDING_PREFIX}{}", next.partition)),
    };
    (partition, encode_token(&next.row))
}

/// Returns whether a text can only be a token, not a key.
fn is_token(given: &str) -> bool {
    TOKEN_PREFIXES.iter().any(|prefix| given.starts_with(prefix))
}

/// Checks the keys at which, or after which, an ascending page starts.
///
/// # Errors
/// [`Code::InvalidInput`] for a token, for U+0000, and for text that is longer than any token.
fn read_keys(partition: &str, row: &str) -> Result<Key> {
    let is_key = |text: &str| !is_token(text) && !text.contains('\0') && text.len() <= MAX_TOKEN_BYTES;
    if is_key(partition) && is_key(row) {
        Ok(Key::new(partition, row))
    } else {
        Err(Code::InvalidInput.into())
    }
}

/// Returns the start of a page of entities. `partition` and `row` are both tokens or, for an ascending page, both
/// keys. `row` may be missing, and a key may be empty.
///
/// # Errors
/// [`Code::InvalidInput`] for a token that [`entity_tokens`] did not make for the same order, and for a token
/// combined with a key.
pub fn read_entity_tokens(order: PageOrder, partition: &str, row: Option<&str>) -> Result<Key> {
    if order == PageOrder::Ascending && !is_token(partition) {
        return read_keys(partition, row.unwrap_or_default());
    }
    let row = row.map(decode_token).transpose()?.unwrap_or_default();
    let partition = match order {
        PageOrder::Ascending => decode_token(partition)?,
        PageOrder::Descending => {
            let unmarked = decode_own(partition)
                .and_then(|text| text.strip_prefix(DESCENDING_PREFIX).map(str::to_owned));
            unmarked.filter(|text| !text.contains('\0')).ok_or(Code::InvalidInput)?
        }
    };
    Ok(Key { partition, row })
}

/// Returns the tokens for the start of the next page in the order of an index.
pub fn index_tokens(order: PageOrder, next: &IndexPosition) -> (String, String) {
    let IndexPosition { index_no, entry, key } = next;
    let direction = direction(order);
    let entry = entry.as_ref().map_or_else(String::new, encode_entry);
    let partition = format!("{INDEX_PREFIX}{index_no}\0{direction}\0{entry}\0{}", key.partition);
    (encode_token(&partition), encode_token(&key.row))
}

/// Returns the start of a page in the order of an index.
///
/// # Errors
/// [`Code::InvalidInput`] for any text that [`index_tokens`] did not make for the same direction.
pub(crate) fn read_index_tokens(
    order: PageOrder,
    partition: &str,
    row: Option<&str>,
) -> Result<IndexPosition> {
    let row = decode_token(row.unwrap_or_default())?;
    let text = decode_own(partition).ok_or(Code::InvalidInput)?;
    let parts: Vec<&str> = text.strip_prefix(INDEX_PREFIX).ok_or(Code::InvalidInput)?.split('\0').collect();
    let [index_no, given, entry, partition] = parts[..] else { return Err(Code::InvalidInput.into()) };
    if given != direction(order) {
        return Err(Code::InvalidInput.into());
    }
    let index_no = index_no.parse().map_err(|_| Code::InvalidInput)?;
    let entry = match entry {
        "" => None,
        text => Some(decode_entry(text).ok_or(Code::InvalidInput)?),
    };
    Ok(IndexPosition { index_no, entry, key: Key { partition: partition.to_owned(), row } })
}

const fn direction(order: PageOrder) -> &'static str {
    match order {
        PageOrder::Ascending => "a",
        PageOrder::Descending => "d",
    }
}

/// Encodes an entry as a letter for its type, followed by its value. No entry contains U+0000.
fn encode_entry(entry: &IndexValue) -> String {
    match entry {
        IndexValue::Text(text) => format!("t{text}"),
        IndexValue::Number(number) => format!("n{:016x}", number.to_bits()),
        IndexValue::Boolean(value) => format!("b{}", u8::from(*value)),
        IndexValue::Timestamp(at) => format!("w{}", at.raw()),
    }
}

fn decode_entry(text: &str) -> Option<IndexValue> {
    let mut characters = text.chars();
    let kind = characters.next()?;
    let value = characters.as_str();
    Some(match kind {
        't' => IndexValue::Text(value.to_owned()),
        'n' => IndexValue::Number(f64::from_bits(u64::from_str_radix(value, 16).ok()?)),
        'b' => IndexValue::Boolean(match value {
            "0" => false,
            "1" => true,
            _ => return None,
        }),
        'w' => IndexValue::Timestamp(Ticks::from_raw(value.parse().ok()?)?),
        _ => return None,
    })
}

const fn to_url_safe(c: char) -> char {
    match c {
        '=' => '-',
        '+' => '*',
        '/' => '_',
        other => other,
    }
}

const fn from_url_safe(c: char) -> char {
    match c {
        '-' => '=',
        '*' => '+',
        '_' => '/',
        other => other,
    }
}

/// Returns the token of the next table: its lower-case name and, as in Azure, its creation time.
pub fn table_token(name: &str, created: Ticks) -> String {
    encode_token(&format!("{}\u{1}{:016x}", name.to_ascii_lowercase(), created.file_time()))
}

/// Returns the lower-case name in a table token. As seen in Azure, a bare name in any case is also a token.
///
/// # Errors
/// [`Code::InvalidInput`] for any text that [`table_token`] did not make.
pub fn read_table_token(token: &str) -> Result<String> {
    if let Ok(name) = TableName::parse(token) {
        return Ok(name.lower().to_owned());
    }
    let text = decode_token(token)?;
    // A page may end before a range. Its token then names the lower bound of the range, which may end with U+0001.
    match text.rsplit_once('\u{1}') {
        Some((name, time)) if time.len() == 16 && time.bytes().all(|digit| digit.is_ascii_hexdigit()) => {
            Ok(name.to_owned())
        }
        _ => Err(Code::InvalidInput.into()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn tokens_look_as_recorded() {
        assert_eq!(encode_token("pk801016e8"), "1!16!cGs4MDEwMTZlOA--");
        assert_eq!(encode_token("rk801016e8123"), "1!20!cms4MDEwMTZlODEyMw--");
        assert_eq!(decode_token("1!4!cGs-").as_deref(), Ok("pk"));
        assert_eq!(
            read_table_token("1!48!bGlzdHRhYmxlMjNmNTYxMDA3ATAxZDY4YzczODMxOTlkYjA-").as_deref(),
            Ok("listtable23f561007")
        );
        assert_eq!(read_table_token("testYable").as_deref(), Ok("testyable"));
        let created = Ticks::parse("2020-09-16T21:51:32.5437272Z").unwrap();
        assert_eq!(read_table_token(&table_token("MyTable", created)).as_deref(), Ok("mytable"));
        assert_eq!(read_table_token(&table_token("my\u{1}", Ticks::MIN)).as_deref(), Ok("my\u{1}"));
    }

    #[test]
    fn anything_else_is_refused() {
        for bad in [
            "",
            "x",
            "1!",
            "1!4!cGs",
            "1!5!cGs-",
            "2!4!cGs-",
            "1!4!cG s",
            "1!4!____",
            "1!-4!cGs-",
            "1!4!c-s-",
            "1!+4!cGs-",
            "1!04!cGs-",
            "1!4!cGs=",
            "1!4!Pj4+",
        ] {
            assert_eq!(decode_token(bad).unwrap_err().code, Code::InvalidInput, "{bad}");
        }
        assert!(read_table_token(&encode_token("no separator")).is_err());
        assert!(read_table_token(&encode_token("a\0b\u{1}01d32192bfeef623")).is_err());
        assert!(read_table_token(&encode_token("a\u{1}01d32192bfeef62!")).is_err());
        assert!(decode_token(&encode_token("a\0")).is_err());
        assert!(decode_token(&encode_token(&"x".repeat(9000))).is_err());
    }

    #[test]
    fn tokens_of_one_order_are_refused_in_the_other() {
        let (ascending, descending) = (PageOrder::Ascending, PageOrder::Descending);
        for (partition, row) in [("", ""), ("p", "r"), ("p\u{1}", ""), ("\u{1}", "r\u{1}")] {
            let key = Key::new(partition, row);
            for (order, other) in [(ascending, descending), (descending, ascending)] {
                let (p, r) = entity_tokens(order, &key);
                assert_eq!(read_entity_tokens(order, &p, Some(&r)), Ok(key.clone()));
                assert_eq!(read_entity_tokens(order, &p, None), Ok(Key::new(partition, "")));
                let refused = read_entity_tokens(other, &p, Some(&r)).unwrap_err();
                assert_eq!(refused.code, Code::InvalidInput, "{key:?} {order:?}");
            }
        }
        assert_eq!(entity_tokens(ascending, &Key::new("p", "r")), (encode_token("p"), encode_token("r")));
        assert!(read_entity_tokens(descending, &encode_token("\0a\0"), None).is_err());
        assert!(read_entity_tokens(descending, &encode_token("\0a"), Some(&encode_token("\0r"))).is_err());
    }

    #[test]
    fn keys_and_tokens_are_told_apart_and_do_not_mix() {
        let (ascending, descending) = (PageOrder::Ascending, PageOrder::Descending);
        let read = |order, partition: &str, row| read_entity_tokens(order, partition, row);
        let (p, r) = (encode_token("p"), encode_token("r"));
        for (partition, row, key) in [
            ("p", Some("r"), Key::new("p", "r")),
            ("p", Some(""), Key::new("p", "")),
            ("p", None, Key::new("p", "")),
            ("", Some("r"), Key::new("", "r")),
            ("1", Some("!1!4!cGs-"), Key::new("1", "!1!4!cGs-")),
            ("2!4!cGs-", None, Key::new("2!4!cGs-", "")),
        ] {
            assert_eq!(read(ascending, partition, row), Ok(key), "{partition} {row:?}");
            assert!(read(descending, partition, row).is_err(), "{partition} {row:?}");
            assert!(read_index_tokens(ascending, partition, row).is_err(), "{partition} {row:?}");
        }
        assert_eq!(read(ascending, &p, None), Ok(Key::new("p", "")));
        let long = "x".repeat(MAX_TOKEN_BYTES + 1);
        for (partition, row) in [
            (p.as_str(), Some("")),
            (p.as_str(), Some("r")),
            ("p", Some(r.as_str())),
            ("", Some(r.as_str())),
            ("1!", None),
            ("1!4!cGs", None),
            ("1%214%21cGs-", None),
            ("p", Some("1!x")),
            ("p\0", None),
            ("p", Some("\0")),
            (long.as_str(), None),
        ] {
            assert!(read(ascending, partition, row).is_err(), "{partition} {row:?}");
        }
    }

    #[test]
    fn tokens_of_an_index_are_read_as_they_were_made() {
        let (ascending, descending) = (PageOrder::Ascending, PageOrder::Descending);
        for entry in [
            None,
            Some(IndexValue::Text(String::new())),
            Some(IndexValue::Text("é\u{1}".into())),
            Some(IndexValue::Number(-0.5)),
            Some(IndexValue::Number(f64::NEG_INFINITY)),
            Some(IndexValue::Boolean(true)),
            Some(IndexValue::Timestamp(Ticks::MAX)),
        ] {
            let position = IndexPosition { index_no: 7, entry, key: Key::new("p", "r") };
            for (order, other) in [(ascending, descending), (descending, ascending)] {
                let (p, r) = index_tokens(order, &position);
                assert_eq!(read_index_tokens(order, &p, Some(&r)), Ok(position.clone()));
                assert!(read_index_tokens(other, &p, Some(&r)).is_err());
                assert!(read_index_tokens(order, &p, None).is_err());
                assert!(read_entity_tokens(ascending, &p, Some(&r)).is_err());
                assert!(read_entity_tokens(descending, &p, Some(&r)).is_err());
            }
        }
        let row = encode_token("r");
        for wrong in
            ["p", "\0p", "\0\x007\0a\0\0p\0", "\0\0x\0a\0\0p", "\0\x007\0a\0b2\0p", "\0\x007\0a\0q\0p"]
        {
            assert!(read_index_tokens(ascending, &encode_token(wrong), Some(&row)).is_err(), "{wrong:?}");
        }
        assert!(read_index_tokens(ascending, &encode_token("\0\x007\0a\0\0p"), Some(&row)).is_ok());
    }

    proptest! {
        #[test]
        fn every_key_survives(key in "\\PC{0,60}") {
            let token = encode_token(&key);
            prop_assert!(token.bytes().all(|b| b.is_ascii_alphanumeric() || b"!-*_".contains(&b)));
            prop_assert_eq!(decode_token(&token), Ok(key));
        }

        #[test]
        fn no_text_makes_the_reader_panic(text in "\\PC{0,40}") {
            let _ = decode_token(&text);
            let _ = read_table_token(&text);
            let _ = read_entity_tokens(PageOrder::Ascending, &text, Some(&text));
            let _ = read_index_tokens(PageOrder::Ascending, &encode_token(&format!("{INDEX_PREFIX}{text}")), Some(""));
        }
    }
}
