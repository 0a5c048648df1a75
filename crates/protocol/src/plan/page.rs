//! Continuation tokens (protocol §7.3, §7.4). They name the next row, so paging neither repeats nor skips a
//! row, however the data changes between pages.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;

use super::index::{IndexPosition, IndexValue};
use crate::error::{Code, Result};
use crate::model::{Key, PageOrder, TableName, Ticks};

/// The prefix of the PartitionKey token of a descending page. Tokens of ascending pages never contain U+0000,
/// because no bound does.
const DESCENDING: char = '\0';
/// The prefix of the PartitionKey token of a page in the order of an index.
const BY_INDEX: &str = "\0\0";

/// The prefixes of every token: as issued, and as a client escapes it twice. A text with one of these
/// prefixes is either a valid token or refused, so that no damaged token is mistaken for a key.
const PREFIXES: [&str; 2] = ["1!", "1%21"];

/// Maximum length of a token: a key of 1024 UTF-16 units is at most 3 KiB of UTF-8, or 4 KiB of base64.
const MAX_TOKEN: usize = 8 * 1024;

/// Encodes a token: `1!{length}!{base64}`, in which characters that URLs need not escape replace `=`, `+` and
/// `/` (UNVERIFIED 24).
pub fn token(text: &str) -> String {
    let encoded: String = STANDARD.encode(text).chars().map(url_safe).collect();
    format!("1!{}!{encoded}", encoded.len())
}

/// Decodes a token.
///
/// # Errors
/// [`Code::InvalidInput`] for any text that [`token`] did not make.
pub fn read_token(given: &str) -> Result<String> {
    // No name or key contains U+0000.
    decoded(given).filter(|text| !text.contains('\0')).ok_or_else(|| Code::InvalidInput.into())
}

/// Returns the text that [`token`] encoded.
fn decoded(given: &str) -> Option<String> {
    let (_, encoded) = given.strip_prefix("1!")?.split_once('!')?;
    if given.len() > MAX_TOKEN {
        return None;
    }
    let standard: String = encoded.chars().map(from_url_safe).collect();
    let text = String::from_utf8(STANDARD.decode(standard).ok()?).ok()?;
    // Lengths with a sign or leading zeros, and `=` for `-`, are not in our tokens.
    (token(&text) == given).then_some(text)
}

/// Returns the tokens for the start of the next page of entities: NextPartitionKey and NextRowKey.
pub fn entity_tokens(order: PageOrder, next: &Key) -> (String, String) {
    let partition = match order {
        PageOrder::Ascending => token(&next.partition),
        PageOrder::Descending => token(&format!("{DESCENDING}{}", next.partition)),
    };
    (partition, token(&next.row))
}

/// Returns whether a text can only be a token, not a key.
fn is_token(given: &str) -> bool {
    PREFIXES.iter().any(|prefix| given.starts_with(prefix))
}

/// Parses the keys at or after which an ascending page starts.
///
/// # Errors
/// [`Code::InvalidInput`] for a token, for U+0000, and for text that is longer than any token.
fn read_keys(partition: &str, row: &str) -> Result<Key> {
    let is_key = |text: &str| !is_token(text) && !text.contains('\0') && text.len() <= MAX_TOKEN;
    if is_key(partition) && is_key(row) {
        Ok(Key::new(partition, row))
    } else {
        Err(Code::InvalidInput.into())
    }
}

/// Returns the start of a page of entities. It is given by two tokens, of which the second may be missing, or
/// for an ascending page by two keys, of which the second may also be empty.
///
/// # Errors
/// [`Code::InvalidInput`] for a token that [`entity_tokens`] did not make for the same order, and for a token
/// combined with a key.
pub fn read_entity_tokens(order: PageOrder, partition: &str, row: Option<&str>) -> Result<Key> {
    if order == PageOrder::Ascending && !is_token(partition) {
        return read_keys(partition, row.unwrap_or_default());
    }
    let row = row.map(read_token).transpose()?.unwrap_or_default();
    let partition = match order {
        PageOrder::Ascending => read_token(partition)?,
        PageOrder::Descending => {
            let unmarked =
                decoded(partition).and_then(|text| text.strip_prefix(DESCENDING).map(str::to_owned));
            unmarked.filter(|text| !text.contains('\0')).ok_or(Code::InvalidInput)?
        }
    };
    Ok(Key { partition, row })
}

/// Returns the tokens for the start of the next page in the order of an index.
pub fn index_tokens(order: PageOrder, next: &IndexPosition) -> (String, String) {
    let IndexPosition { index_no, entry, key } = next;
    let direction = direction(order);
    let entry = entry.as_ref().map_or_else(String::new, entry_text);
    let partition = format!("{BY_INDEX}{index_no}\0{direction}\0{entry}\0{}", key.partition);
    (token(&partition), token(&key.row))
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
    let row = read_token(row.unwrap_or_default())?;
    let text = decoded(partition).ok_or(Code::InvalidInput)?;
    let parts: Vec<&str> = text.strip_prefix(BY_INDEX).ok_or(Code::InvalidInput)?.split('\0').collect();
    let [index_no, given, entry, partition] = parts[..] else { return Err(Code::InvalidInput.into()) };
    if given != direction(order) {
        return Err(Code::InvalidInput.into());
    }
    let index_no = index_no.parse().map_err(|_| Code::InvalidInput)?;
    let entry = match entry {
        "" => None,
        text => Some(read_entry(text).ok_or(Code::InvalidInput)?),
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
fn entry_text(entry: &IndexValue) -> String {
    match entry {
        IndexValue::Text(text) => format!("t{text}"),
        IndexValue::Number(number) => format!("n{:016x}", number.to_bits()),
        IndexValue::Boolean(value) => format!("b{}", u8::from(*value)),
        IndexValue::Timestamp(at) => format!("w{}", at.raw()),
    }
}

fn read_entry(text: &str) -> Option<IndexValue> {
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

const fn url_safe(c: char) -> char {
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
    token(&format!("{}\u{1}{:016x}", name.to_ascii_lowercase(), created.file_time()))
}

/// Returns the lower-case name in a table token. As seen in Azure, a bare name in any case is also a token.
///
/// # Errors
/// [`Code::InvalidInput`] for any text that [`table_token`] did not make.
pub fn read_table_token(token: &str) -> Result<String> {
    if let Ok(name) = TableName::parse(token) {
        return Ok(name.lower().to_owned());
    }
    let text = read_token(token)?;
    // If a page ended before a range, its token names the lower bound of the range, which may end with U+0001.
    match text.rsplit_once('\u{1}') {
        Some((name, time)) if time.len() == 16 => Ok(name.to_owned()),
        _ => Err(Code::InvalidInput.into()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn tokens_look_as_recorded() {
        assert_eq!(token("pk801016e8"), "1!16!cGs4MDEwMTZlOA--");
        assert_eq!(token("rk801016e8123"), "1!20!cms4MDEwMTZlODEyMw--");
        assert_eq!(read_token("1!4!cGs-").as_deref(), Ok("pk"));
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
            assert_eq!(read_token(bad).unwrap_err().code, Code::InvalidInput, "{bad}");
        }
        assert!(read_table_token(&token("no separator")).is_err());
        assert!(read_table_token(&token("a\0b\u{1}01d32192bfeef623")).is_err());
        assert!(read_token(&token("a\0")).is_err());
        assert!(read_token(&token(&"x".repeat(9000))).is_err());
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
        assert_eq!(entity_tokens(ascending, &Key::new("p", "r")), (token("p"), token("r")));
        assert!(read_entity_tokens(descending, &token("\0a\0"), None).is_err());
        assert!(read_entity_tokens(descending, &token("\0a"), Some(&token("\0r"))).is_err());
    }

    #[test]
    fn keys_and_tokens_are_told_apart_and_do_not_mix() {
        let (ascending, descending) = (PageOrder::Ascending, PageOrder::Descending);
        let read = |order, partition: &str, row| read_entity_tokens(order, partition, row);
        let (p, r) = (token("p"), token("r"));
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
        let long = "x".repeat(MAX_TOKEN + 1);
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
        let row = token("r");
        for wrong in
            ["p", "\0p", "\0\x007\0a\0\0p\0", "\0\0x\0a\0\0p", "\0\x007\0a\0b2\0p", "\0\x007\0a\0q\0p"]
        {
            assert!(read_index_tokens(ascending, &token(wrong), Some(&row)).is_err(), "{wrong:?}");
        }
        assert!(read_index_tokens(ascending, &token("\0\x007\0a\0\0p"), Some(&row)).is_ok());
    }

    proptest! {
        #[test]
        fn every_key_survives(key in "\\PC{0,60}") {
            let token = token(&key);
            prop_assert!(token.bytes().all(|b| b.is_ascii_alphanumeric() || b"!-*_".contains(&b)));
            prop_assert_eq!(read_token(&token), Ok(key));
        }

        #[test]
        fn no_text_makes_the_reader_panic(text in "\\PC{0,40}") {
            let _ = read_token(&text);
            let _ = read_table_token(&text);
            let _ = read_entity_tokens(PageOrder::Ascending, &text, Some(&text));
            let _ = read_index_tokens(PageOrder::Ascending, &token(&format!("{BY_INDEX}{text}")), Some(""));
        }
    }
}
