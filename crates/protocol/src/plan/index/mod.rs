//! Property indexes: their contents, and the index entries to read for a predicate.
//!
//! An index only narrows a query: the rows that it names are compared with the exact predicate afterwards. An index
//! may therefore name rows that do not match, but it must name every row that matches.

mod bounds;
mod choose;

use std::fmt;
use std::str::FromStr;
use std::sync::Arc;

pub use bounds::{IndexRange, IndexValue, MAX_TEXT};
pub use choose::{IndexChoice, choices, indexable};

use crate::model::{Key, PageOrder};

/// The name of the only system property that can have an index.
pub const TIMESTAMP: &str = "Timestamp";

named_enum! {
    /// The type of the values in an index, which determines the predicates that the index can narrow. Commands and the
    /// database use the names.
    IndexKind, name {
        /// Strings, by their first [`MAX_TEXT`] characters.
        Text => "text",
        /// Int32, Int64 and Double.
        Number => "number",
        /// DateTime.
        Time => "time",
        Guid => "guid",
        Boolean => "boolean",
        /// Timestamp, which every entity has.
        Timestamp => "timestamp",
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

impl FromStr for IndexKind {
    type Err = &'static str;

    fn from_str(text: &str) -> Result<Self, &'static str> {
        let kind = Self::ALL.into_iter().find(|kind| kind.name() == text);
        kind.ok_or("the kind of an index is text, number, time, guid, boolean or timestamp")
    }
}

/// An index on one property of one table, or on Timestamp.
///
/// The index has one entry for every entity with the property. The entry is the value. A value of a different type
/// has an entry below all values, because other types sort below (protocol §6.4). NaN has no entry, because
/// only `ne` matches it.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct PropertyIndex {
    /// The number of the index, which is part of its name in the database.
    pub index_no: i64,
    /// The number of its table. A table that was deleted and created again has a new number.
    pub table_no: i64,
    pub property: String,
    pub kind: IndexKind,
}

/// The order of a page by the values of a property.
#[derive(Debug, Clone, PartialEq)]
pub struct ValueOrder {
    /// The name of the property, or Timestamp.
    pub property: String,
    /// Where the page starts. `None` is the first entity.
    pub from: Option<IndexPosition>,
    /// The index with this order, which the server looks up. The order is refused without an index.
    pub index: Option<Arc<PropertyIndex>>,
    /// The index entries that contain every match. `None` means all entries, and the entities without an entry.
    pub range: Option<IndexRange>,
}

/// An entity in the order of an index.
#[derive(Debug, Clone, PartialEq)]
pub struct IndexPosition {
    pub index_no: i64,
    /// The entity's entry, or `None` if it has none.
    pub entry: Option<IndexValue>,
    pub key: Key,
}

/// A part of a page in the order of an index: either entities with entries, or entities without.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct OrderPart<'a> {
    pub has_entries: bool,
    /// The first entity of the part, or `None` for the start of the order.
    pub from: Option<&'a IndexPosition>,
}

impl ValueOrder {
    /// Returns the order by a property whose index is not known yet.
    pub fn by(property: &str) -> Self {
        Self { property: property.to_owned(), from: None, index: None, range: None }
    }

    /// Returns the parts of the page that remain to be read, in the order of the page.
    pub fn parts(&self, order: PageOrder) -> Vec<OrderPart<'_>> {
        let from = self.from.as_ref();
        let part = |has_entries: bool| {
            let from = from.filter(|from| from.entry.is_some() == has_entries);
            OrderPart { has_entries, from }
        };
        let mut parts = order.arrange(vec![part(false), part(true)]);
        let is_finished = |part: &OrderPart<'_>| from.is_some() && part.from.is_none();
        if parts.first().is_some_and(is_finished) {
            parts.remove(0);
        }
        parts.retain(|part| part.has_entries || self.range.is_none());
        parts
    }
}

#[cfg(test)]
mod tests {
    mod order {
        use super::super::*;

        #[test]
        fn a_page_goes_on_in_the_part_of_its_position() {
            let (ascending, descending) = (PageOrder::Ascending, PageOrder::Descending);
            let at = |entry: Option<f64>| IndexPosition {
                index_no: 1,
                entry: entry.map(IndexValue::Number),
                key: Key::new("p", "r"),
            };
            let parts = |from: Option<IndexPosition>, order| {
                let by = ValueOrder { from, ..ValueOrder::by("N") };
                let parts: Vec<_> =
                    by.parts(order).iter().map(|part| (part.has_entries, part.from.is_some())).collect();
                parts
            };
            assert_eq!(parts(None, ascending), [(false, false), (true, false)]);
            assert_eq!(parts(None, descending), [(true, false), (false, false)]);
            assert_eq!(parts(Some(at(None)), ascending), [(false, true), (true, false)]);
            assert_eq!(parts(Some(at(Some(1.0))), ascending), [(true, true)]);
            assert_eq!(parts(Some(at(Some(1.0))), descending), [(true, true), (false, false)]);
            assert_eq!(parts(Some(at(None)), descending), [(false, true)]);
        }
    }
}
