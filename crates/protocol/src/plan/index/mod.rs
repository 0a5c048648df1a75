//! Property indexes: their contents, and the entries to which they narrow a predicate.
//!
//! An index only narrows a query: the rows that it names are compared with the exact predicate afterwards.
//! Index entries may therefore be imprecise, but every matching row must be among them.

mod bounds;
mod choose;
mod order;

use std::fmt;
use std::str::FromStr;

pub use bounds::{IndexRange, IndexValue, MAX_TEXT};
pub use choose::{IndexChoice, choices, indexable};
pub use order::OrderPart;
pub use order::{IndexPosition, ValueOrder};

/// The name of the only system property that can have an index.
pub const TIMESTAMP: &str = "Timestamp";

/// The type of the values in an index, which determines the predicates that the index can narrow.
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
    pub const ALL: [IndexKind; 6] = [
        IndexKind::Text,
        IndexKind::Number,
        IndexKind::Time,
        IndexKind::Guid,
        IndexKind::Boolean,
        IndexKind::Timestamp,
    ];

    /// Returns the name that commands and the database use.
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
    /// Returns whether an index of this kind can contain this entry.
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

/// The error for a name that is not that of an [`IndexKind`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("the kind of an index is text, number, time, guid, boolean or timestamp")]
pub struct UnknownIndexKind;

impl FromStr for IndexKind {
    type Err = UnknownIndexKind;

    fn from_str(text: &str) -> Result<Self, UnknownIndexKind> {
        Self::ALL.into_iter().find(|kind| kind.name() == text).ok_or(UnknownIndexKind)
    }
}

/// An index on one property of one table, or on Timestamp.
///
/// The index has one entry for every entity with the property: the value, or an entry below all values if the
/// value has a different type, because other types sort below (protocol §6.4). NaN has no entry, because only
/// `ne` matches it.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct PropertyIndex {
    /// The number of the index, which is part of its name in the database.
    pub index_no: i64,
    /// The number of its table. A table that was deleted and created again has a new number.
    pub table_no: i64,
    pub property: String,
    pub kind: IndexKind,
}
