//! Entities as clients send them and as the database stores them (protocol §5).

use super::edm::{EdmValue, is_within, utf16_len};
use super::names::{self, MAX_BINARY, MAX_ENTITY, MAX_PROPERTIES, MAX_STRING};
use super::ticks::Ticks;
use crate::error::{Code, Result};

/// Custom properties in the order in which they were given, with unique names.
pub type Properties = Vec<(String, EdmValue)>;

/// The key of an entity in its table. Keys compare in the order in which pages list entities: by PartitionKey, then
/// RowKey, each by code point (UNVERIFIED 15).
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Key {
    pub partition: String,
    pub row: String,
}

impl Key {
    pub fn new(partition: impl Into<String>, row: impl Into<String>) -> Self {
        Self { partition: partition.into(), row: row.into() }
    }

    /// Returns the size of an entity without properties, see [`Entity::counted_size`].
    pub fn counted_size(&self) -> usize {
        counted_keys(&self.partition, &self.row)
    }
}

/// Returns the size of an entity with these keys and no properties, see [`Entity::counted_size`].
pub(crate) fn counted_keys(partition: &str, row: &str) -> usize {
    4 + 2 * (utf16_len(partition) + utf16_len(row))
}

/// The direction of a page.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum PageOrder {
    #[default]
    Ascending,
    Descending,
}

/// An entity as a client sends it. The server adds the Timestamp.
#[derive(Debug, Clone, PartialEq)]
pub struct Entity {
    pub key: Key,
    pub properties: Properties,
}

impl Entity {
    /// Returns the size that counts against [`MAX_ENTITY`] (protocol §5.7): 4 bytes, 2 bytes for each UTF-16
    /// unit of the keys, and for each property 8 bytes, 2 bytes for each UTF-16 unit of its name, and the size of its
    /// value.
    pub fn counted_size(&self) -> usize {
        self.key.counted_size() + counted_by(&self.properties, utf16_len)
    }
}

/// A borrowed value, as checks and printers need it.
#[derive(Debug, Clone, Copy)]
pub enum BorrowedValue<'a> {
    /// A string.
    Text {
        text: &'a str,
        /// Whether the string is known to need no escapes in JSON.
        is_plain: bool,
    },
    /// A value of any type other than String.
    Other(&'a EdmValue),
}

/// A representation of a property value.
pub trait Value {
    fn view(&self) -> BorrowedValue<'_>;
}

impl Value for EdmValue {
    fn view(&self) -> BorrowedValue<'_> {
        match self {
            EdmValue::String(text) => BorrowedValue::Text { text, is_plain: false },
            other => BorrowedValue::Other(other),
        }
    }
}

/// Checks the number and names of properties.
///
/// # Errors
/// [`Code::TooManyProperties`], [`Code::PropertyNameTooLong`],
/// [`Code::PropertyNameInvalid`].
pub(crate) fn check_names<N: AsRef<str>, V>(properties: &[(N, V)]) -> Result<()> {
    if properties.len() > MAX_PROPERTIES {
        return Err(Code::TooManyProperties.into());
    }
    properties.iter().try_for_each(|(name, _)| names::check_property_name(name.as_ref()))
}

/// Checks the sizes of values.
///
/// # Errors
/// [`Code::PropertyValueTooLarge`].
pub(crate) fn check_values<N, V: Value>(properties: &[(N, V)]) -> Result<()> {
    let fits = |value: BorrowedValue<'_>| match value {
        BorrowedValue::Text { text, .. } => is_within(text, MAX_STRING),
        BorrowedValue::Other(EdmValue::Binary(b)) => b.len() <= MAX_BINARY,
        BorrowedValue::Other(_) => true,
    };
    if properties.iter().all(|(_, value)| fits(value.view())) {
        Ok(())
    } else {
        Err(Code::PropertyValueTooLarge.into())
    }
}

/// Checks the size of an entity, given the sizes of its keys and properties.
///
/// # Errors
/// [`Code::EntityTooLarge`].
pub(crate) fn check_size(keys: usize, properties: usize) -> Result<()> {
    if keys + properties <= MAX_ENTITY { Ok(()) } else { Err(Code::EntityTooLarge.into()) }
}

/// Returns the size of properties, see [`Entity::counted_size`]. To save time, UTF-16 units are counted only if the
/// size counted in bytes exceeds a quarter of [`MAX_ENTITY`]. A result up to a quarter may thus be too large; a larger
/// one is exact.
pub(crate) fn counted<N: AsRef<str>, V: Value>(properties: &[(N, V)]) -> usize {
    match counted_by(properties, str::len) {
        few if few <= MAX_ENTITY / 4 => few,
        _ => counted_by(properties, utf16_len),
    }
}

fn counted_by<N: AsRef<str>, V: Value>(properties: &[(N, V)], length: impl Fn(&str) -> usize) -> usize {
    let value = |value: BorrowedValue<'_>| match value {
        BorrowedValue::Text { text, .. } => 2 * length(text) + 4,
        BorrowedValue::Other(other) => other.counted_size(),
    };
    properties.iter().fold(0, |sum, (name, v)| sum + 8 + 2 * length(name.as_ref()) + value(v.view()))
}

/// An entity as the database stores it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Stored {
    pub key: Key,
    /// The Timestamp, which also determines the ETag.
    pub modified: Ticks,
    /// Custom properties in stored form.
    pub properties: StoredProperties,
}

/// A borrowed view of a stored entity.
#[derive(Debug, Clone, Copy)]
pub struct BorrowedEntity<'a> {
    pub partition: &'a str,
    pub row: &'a str,
    pub modified: Ticks,
    /// The custom properties in stored form.
    pub properties: &'a str,
    pub order: PropertyOrder,
}

impl<'a> From<&'a Stored> for BorrowedEntity<'a> {
    fn from(entity: &'a Stored) -> Self {
        let Stored { key, modified, properties } = entity;
        Self {
            partition: &key.partition,
            row: &key.row,
            modified: *modified,
            properties: properties.as_str(),
            order: properties.order,
        }
    }
}

impl BorrowedEntity<'_> {
    /// Returns the number of bytes that count against the limit of a page.
    pub const fn weight(self) -> usize {
        self.partition.len() + self.row.len() + self.properties.len()
    }

    pub fn to_stored(self) -> Stored {
        Stored {
            key: Key::new(self.partition, self.row),
            modified: self.modified,
            properties: StoredProperties { text: self.properties.to_owned(), order: self.order },
        }
    }
}

/// The order in which properties are printed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum PropertyOrder {
    /// The order of the stored text.
    AsStored,
    /// The order of [`names::ordinal`], for text that the database has reordered.
    Ordinal,
}

/// Custom properties as the text of one JSON object, in the stored form that `codec::stored` defines. Pages are printed
/// from this text without building a tree.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct StoredProperties {
    text: String,
    order: PropertyOrder,
}

impl Default for StoredProperties {
    fn default() -> Self {
        Self::from_stored_text("{}".to_owned())
    }
}

impl StoredProperties {
    /// Wraps text in stored form that `codec::stored` printed, or that comes from a database that keeps it
    /// unchanged.
    pub const fn from_stored_text(text: String) -> Self {
        Self { text, order: PropertyOrder::AsStored }
    }

    /// Wraps text from a database that does not preserve the order of members.
    pub const fn from_jsonb(text: String) -> Self {
        Self { text, order: PropertyOrder::Ordinal }
    }

    pub fn as_str(&self) -> &str {
        &self.text
    }

    pub const fn order(&self) -> PropertyOrder {
        self.order
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn size_follows_the_published_formula() {
        let entity = Entity {
            key: Key::new("pk", "é"),
            properties: vec![
                ("S".into(), EdmValue::String("ab".into())),
                ("B".into(), EdmValue::Binary(vec![0; 5])),
                ("T".into(), EdmValue::Boolean(true)),
            ],
        };
        assert_eq!(entity.counted_size(), 4 + 6 + (10 + 8) + (10 + 9) + (10 + 1));
    }

    #[test]
    fn limits_sit_exactly_on_their_edges() {
        let with = |value| check_values(&[("P", value)]).map_err(|e| e.code);
        assert_eq!(with(EdmValue::String("x".repeat(MAX_STRING))), Ok(()));
        let long = EdmValue::String("x".repeat(MAX_STRING + 1));
        assert_eq!(with(long), Err(Code::PropertyValueTooLarge));
        assert_eq!(with(EdmValue::Binary(vec![0; MAX_BINARY])), Ok(()));
        let long = EdmValue::Binary(vec![0; MAX_BINARY + 1]);
        assert_eq!(with(long), Err(Code::PropertyValueTooLarge));
        let many =
            |n: usize| -> Properties { (0..n).map(|i| (format!("P{i}"), EdmValue::Int32(1))).collect() };
        assert_eq!(check_names(&many(252)), Ok(()));
        assert_eq!(check_names(&many(253)).map_err(|e| e.code), Err(Code::TooManyProperties));
        assert_eq!(check_size(1, MAX_ENTITY - 1), Ok(()));
        assert_eq!(check_size(1, MAX_ENTITY).map_err(|e| e.code), Err(Code::EntityTooLarge));
    }
}
