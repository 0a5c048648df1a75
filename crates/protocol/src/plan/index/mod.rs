//! Property indexes: what they hold, and which of their entries a predicate can be narrowed to.
//!
//! An index only narrows: the rows that it names are compared with the exact predicate afterwards.
//! So its entries may be imprecise, but every row that matches must be among them.

mod bounds;
mod choose;
mod order;

use std::fmt;
use std::str::FromStr;

pub use bounds::{IndexRange, IndexValue, MAX_TEXT};
pub use choose::{IndexChoice, choices, indexable};
pub use order::OrderPart;
pub use order::{IndexPosition, ValueOrder};

/// The name of the one system property that can have an index.
pub const TIMESTAMP: &str = "Timestamp";

/// The type of the values of an index, which decides what it can narrow.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum IndexKind {
    /// Strings, by their first [`MAX_TEXT`] characters.
    Text,
    /// Int32, Int64 and Double.
    Number,
    /// DateTime.
    Time,
    Guid,
    Boolean,
    /// Timestamp, which every entity has.
    Timestamp,
}

impl IndexKind {
    /// All kinds.
    pub const ALL: [IndexKind; 6] = [
        IndexKind::Text,
        IndexKind::Number,
        IndexKind::Time,
        IndexKind::Guid,
        IndexKind::Boolean,
        IndexKind::Timestamp,
    ];

    /// The name that commands and the database use.
    pub const fn name(self) -> &'static str {
        match self {
            IndexKind::Text => "text",
            IndexKind::Number => "number",
            IndexKind::Time => "time",
            IndexKind::Guid => "guid",
            IndexKind::Boolean => "boolean",
            IndexKind::Timestamp => "timestamp",
        }
    }
}

impl IndexKind {
    /// Whether an index of this kind can have such an entry.
    pub const fn can_hold(self, entry: &IndexValue) -> bool {
        match entry {
            IndexValue::Text(_) => matches!(self, IndexKind::Text | IndexKind::Time | IndexKind::Guid),
            IndexValue::Number(number) => matches!(self, IndexKind::Number) && !number.is_nan(),
            IndexValue::Boolean(_) => matches!(self, IndexKind::Boolean),
            IndexValue::Timestamp(_) => matches!(self, IndexKind::Timestamp),
        }
    }
}

impl fmt::Display for IndexKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// A name that is not that of an [`IndexKind`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("the kind of an index is text, number, time, guid, boolean or timestamp")]
pub struct UnknownIndexKind;

impl FromStr for IndexKind {
    type Err = UnknownIndexKind;

    fn from_str(text: &str) -> Result<Self, UnknownIndexKind> {
        Self::ALL.into_iter().find(|kind| kind.name() == text).ok_or(UnknownIndexKind)
    }
}

/// An index over one property of one table, or over Timestamp.
///
/// It has an entry for every entity with the property: the value, or below all values if the type
/// is another one, because other types sort below (protocol §6.4). NaN, which nothing but `ne`
/// matches, has none.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct PropertyIndex {
    /// The number of the index, which is part of its name in the database.
    pub index_no: i64,
    /// The number of its table. A table that was made anew has another one.
    pub table_no: i64,
    pub property: String,
    pub kind: IndexKind,
}
