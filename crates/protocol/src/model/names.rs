//! Names, keys and their limits (protocol §5.5, §5.6, §5.8).

use std::cmp::Ordering;

use super::edm::is_within;
use crate::error::{Code, Error, Result};

/// Maximum custom properties of an entity.
pub const MAX_PROPERTIES: usize = 252;
/// Maximum UTF-16 units of a property name.
pub const MAX_PROPERTY_NAME: usize = 255;
/// Maximum UTF-16 units of PartitionKey and of RowKey (UNVERIFIED 6).
pub const MAX_KEY: usize = 1024;
/// Maximum UTF-16 units of a string value.
pub const MAX_STRING: usize = 32 * 1024;
/// Maximum bytes of a binary value.
pub const MAX_BINARY: usize = 64 * 1024;
/// Maximum size of an entity in bytes, see [`super::Entity::counted_size`].
pub const MAX_ENTITY: usize = 1024 * 1024;

/// A valid table name: 3 to 63 ASCII letters and digits, beginning with a letter, and not reserved.
/// Comparisons ignore case; the spelling is preserved.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct TableName {
    given: String,
    lower: String,
}

impl TableName {
    /// Parses a table name.
    ///
    /// # Errors
    /// [`Code::NameLengthOutOfRange`], then [`Code::InvalidResourceName`], then
    /// [`Code::InvalidInput`] for the reserved name `tables` (protocol §3.3).
    pub fn parse(text: &str) -> Result<Self> {
        if !(3..=63).contains(&text.chars().count()) {
            return Err(Code::NameLengthOutOfRange.into());
        }
        let starts_with_letter = text.starts_with(|c: char| c.is_ascii_alphabetic());
        if !starts_with_letter || !text.bytes().all(|b| b.is_ascii_alphanumeric()) {
            return Err(Code::InvalidResourceName.into());
        }
        let lower = text.to_ascii_lowercase();
        if lower == "tables" {
            return Err(Code::InvalidInput.into());
        }
        Ok(Self { given: text.into(), lower })
    }

    /// Returns the name as the client spelled it.
    pub fn as_given(&self) -> &str {
        &self.given
    }

    /// Returns the lower-case name, which identifies the table.
    pub fn lower(&self) -> &str {
        &self.lower
    }

    pub const fn in_account<'a>(&'a self, account: &'a str) -> TableRef<'a> {
        TableRef { account, name: self }
    }
}

/// A table of an account.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct TableRef<'a> {
    pub account: &'a str,
    pub name: &'a TableName,
}

impl TableRef<'_> {
    /// Returns an owned copy, which outlives the request.
    pub fn into_owned(self) -> OwnedTable {
        OwnedTable { account: self.account.to_owned(), name: self.name.clone() }
    }
}

/// The owned form of [`TableRef`], for work on another thread.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct OwnedTable {
    pub account: String,
    pub name: TableName,
}

impl OwnedTable {
    pub const fn as_ref(&self) -> TableRef<'_> {
        TableRef { account: self.account.as_str(), name: &self.name }
    }
}

/// Compares names by UTF-16 units, like .NET's `StringComparer.Ordinal`. The order of bytes differs for characters
/// beyond U+FFFF, with a first byte from 0xF0 on. They come before U+E000 to U+FFFF, with a first byte 0xEE or 0xEF.
pub fn ordinal(a: &str, b: &str) -> Ordering {
    const fn rank(byte: u8) -> (u8, u8) {
        if byte >= 0xF0 { (0xED, byte) } else { (byte, 0) }
    }
    let first_difference = a.bytes().zip(b.bytes()).find(|(a, b)| a != b);
    first_difference.map_or_else(|| a.len().cmp(&b.len()), |(a, b)| rank(a).cmp(&rank(b)))
}

fn is_forbidden_in_key(c: char) -> bool {
    matches!(c, '/' | '\\' | '#' | '?' | '\u{0}'..='\u{1f}' | '\u{7f}'..='\u{9f}')
}

/// Checks a key from a request body (protocol §5.6).
///
/// # Errors
/// [`Code::OutOfRangeInput`] with the name of the key and its value, or
/// [`Code::PropertyValueTooLarge`] past [`MAX_KEY`].
pub fn check_body_key(name: &str, value: &str) -> Result<()> {
    if value.contains(is_forbidden_in_key) {
        let shown: String = value.chars().take(256).filter(|c| !c.is_control()).collect();
        return Err(Error::with_message(
            Code::OutOfRangeInput,
            format!("The '{name}' parameter of value '{shown}' is out of range."),
        ));
    }
    check_key_length(value)
}

/// Checks a key in the URL of a read (protocol §5.6). A read with other forbidden characters is allowed, and finds no
/// entity.
///
/// # Errors
/// [`Code::QuerySyntax`] for slashes, [`Code::OutOfRangeInput`] for ASCII control characters.
pub(crate) fn check_read_key(value: &str) -> Result<()> {
    if value.contains(['/', '\\']) {
        return Err(Code::QuerySyntax.into());
    }
    if value.contains(|c: char| c.is_ascii_control()) {
        return Err(Code::OutOfRangeInput.into());
    }
    Ok(())
}

/// Checks a key in the URL of a write (protocol §5.6).
///
/// # Errors
/// Those of [`check_read_key`], then [`Code::UrlKeyOutOfRange`].
pub(crate) fn check_written_key(value: &str) -> Result<()> {
    check_read_key(value)?;
    if value.contains(is_forbidden_in_key) { Err(Code::UrlKeyOutOfRange.into()) } else { Ok(()) }
}

/// Checks the length of a key in a write. Reads and deletes do not need this check, because they find no entity.
///
/// # Errors
/// [`Code::PropertyValueTooLarge`] past [`MAX_KEY`].
pub(crate) fn check_key_length(value: &str) -> Result<()> {
    if is_within(value, MAX_KEY) {
        return Ok(());
    }
    let reason = format!("a key is longer than {MAX_KEY} UTF-16 units");
    Err(Error::from(Code::PropertyValueTooLarge).with_reason(reason))
}

/// Checks the name of a custom property: an identifier of at most [`MAX_PROPERTY_NAME`] units.
///
/// # Errors
/// [`Code::PropertyNameTooLong`] or [`Code::PropertyNameInvalid`].
pub fn check_property_name(name: &str) -> Result<()> {
    if !is_within(name, MAX_PROPERTY_NAME) {
        return Err(Code::PropertyNameTooLong.into());
    }
    if is_identifier(name) { Ok(()) } else { Err(Code::PropertyNameInvalid.into()) }
}

/// Returns whether a name is a valid property name: a letter or `_`, followed by letters, digits, marks and
/// connectors of any script that XML names may contain.
pub(crate) fn is_identifier(name: &str) -> bool {
    if name.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'_') {
        return name.bytes().next().is_some_and(|first| !first.is_ascii_digit());
    }
    let mut chars = name.chars();
    chars.next().is_some_and(is_identifier_start)
        && chars.all(unicode_ident::is_xid_continue)
        && !name.contains(NOT_IN_XML)
}

/// Characters that are valid in identifiers, but not in XML names.
const NOT_IN_XML: [char; 4] = ['ª', 'µ', 'º', '\u{2054}'];

/// Returns whether a character is valid at the start of an identifier.
pub(crate) fn is_identifier_start(c: char) -> bool {
    c == '_' || unicode_ident::is_xid_start(c)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn code<T: std::fmt::Debug>(result: Result<T>) -> Option<Code> {
        result.err().map(|e| e.code)
    }

    #[test]
    fn table_names_follow_the_rules_of_the_service() {
        for good in ["abc", "A1b", &"a".repeat(63)] {
            assert!(TableName::parse(good).is_ok(), "{good}");
        }
        for (bad, expected) in [
            ("", Code::NameLengthOutOfRange),
            ("t", Code::NameLengthOutOfRange),
            ("tt", Code::NameLengthOutOfRange),
            (&"a".repeat(64), Code::NameLengthOutOfRange),
            ("1abc", Code::InvalidResourceName),
            ("my_table", Code::InvalidResourceName),
            ("my-table", Code::InvalidResourceName),
            ("téble", Code::InvalidResourceName),
            ("a'; DROP TABLE entities; --", Code::InvalidResourceName),
            ("tables", Code::InvalidInput),
            ("TABLES", Code::InvalidInput),
        ] {
            assert_eq!(code(TableName::parse(bad)), Some(expected), "{bad}");
        }
        let name = TableName::parse("MyTable").unwrap();
        assert_eq!((name.as_given(), name.lower()), ("MyTable", "mytable"));
    }

    #[test]
    fn keys_fail_differently_in_bodies_and_urls() {
        for c in ['/', '\\', '#', '?', '\u{0}', '\t', '\n', '\u{1f}', '\u{7f}', '\u{81}', '\u{9f}'] {
            let key = format!("a{c}b");
            let error = check_body_key("RowKey", &key).unwrap_err();
            assert_eq!(error.code, Code::OutOfRangeInput);
            assert!(error.text().starts_with("The 'RowKey' parameter of value 'a"), "{}", error.text());
            let (read, written) = match c {
                '/' | '\\' => (Some(Code::QuerySyntax), Code::QuerySyntax),
                c if c.is_ascii_control() => (Some(Code::OutOfRangeInput), Code::OutOfRangeInput),
                _ => (None, Code::UrlKeyOutOfRange),
            };
            assert_eq!(code(check_read_key(&key)), read, "{c:?}");
            assert_eq!(code(check_written_key(&key)), Some(written), "{c:?}");
        }
        for good in ["", "%", "+", "'", "\"", " ", "a,b", "@&=:", "漢字", "😀", "\u{a0}"] {
            assert_eq!(check_body_key("PartitionKey", good), Ok(()), "{good}");
            assert_eq!(check_written_key(good), Ok(()), "{good}");
        }
    }

    #[test]
    fn key_length_is_counted_in_utf16_units() {
        assert_eq!(check_key_length(&"a".repeat(1024)), Ok(()));
        assert_eq!(check_key_length(&"😀".repeat(512)), Ok(()));
        assert_eq!(code(check_key_length(&"a".repeat(1025))), Some(Code::PropertyValueTooLarge));
        assert_eq!(code(check_key_length(&"😀".repeat(513))), Some(Code::PropertyValueTooLarge));
    }

    #[test]
    fn property_names_are_identifiers() {
        for good in ["a", "_a", "Größe", "数", "a1", "e\u{301}", &"n".repeat(255)] {
            assert_eq!(check_property_name(good), Ok(()), "{good}");
        }
        for bad in ["", "1a", "a b", "a-b", "a.b", "a'b", "$a", "a\"b", "a@b", "a\u{0}"] {
            assert_eq!(code(check_property_name(bad)), Some(Code::PropertyNameInvalid), "{bad}");
        }
        assert_eq!(code(check_property_name(&"n".repeat(256))), Some(Code::PropertyNameTooLong));
    }

    proptest! {
        #[test]
        fn names_are_in_the_order_of_their_utf16_units(
            a in "[A-Za-z_é\u{D7FF}\u{E000}\u{FFFD}\u{10000}\u{10FFFF}]{0,4}",
            b in "[A-Za-z_é\u{D7FF}\u{E000}\u{FFFD}\u{10000}\u{10FFFF}]{0,4}",
        ) {
            prop_assert_eq!(ordinal(&a, &b), a.encode_utf16().cmp(b.encode_utf16()));
        }
    }
}
