//! The statements that read a page in the order of an index: a position is up to three of them, because
//! SQLite finds no place in an index for a row value that begins with an expression.

use rusqlite::types::Value as SqlValue;
use rusqlite::{Rows, Statement};

use crate::protocol::model::PageOrder;
use crate::protocol::plan::index::{IndexPosition, OrderPart, PropertyIndex, ValueOrder};
use crate::sqlite::Sqlite;
use crate::sqlite::catalog::entries::{self, EntryBound, KeyBound};
use crate::sqlite::reads::narrow::{exactly, lower, upper};

/// The rows of one statement.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct OrderedRange<'a> {
    entries: EntryBound,
    keys: KeyBound,
    from: Option<&'a IndexPosition>,
    lower: Option<SqlValue>,
    upper: Option<SqlValue>,
}

impl<'a> OrderedRange<'a> {
    /// Returns the ranges of a page, in its order.
    pub(crate) fn all(by: &'a ValueOrder, order: PageOrder) -> Vec<Self> {
        let parts = by.parts(order);
        parts.iter().flat_map(|part| Self::of_part(by, part)).collect()
    }

    fn of_part(by: &'a ValueOrder, part: &OrderPart<'a>) -> Vec<Self> {
        let range = by.range.as_ref();
        let bound = |entries, keys| Self {
            entries,
            keys,
            from: part.from,
            lower: range.and_then(|range| range.lower.as_ref()).map(lower),
            upper: range.and_then(|range| range.upper.as_ref()).map(upper),
        };
        match (part.has_entries, part.from.is_some()) {
            (false, false) => vec![bound(EntryBound::Missing, KeyBound::Any)],
            (false, true) => {
                vec![
                    bound(EntryBound::Missing, KeyBound::RowsFrom),
                    bound(EntryBound::Missing, KeyBound::PartitionsBehind),
                ]
            }
            (true, false) => vec![bound(EntryBound::Any, KeyBound::Any)],
            (true, true) => vec![
                bound(EntryBound::Equal, KeyBound::RowsFrom),
                bound(EntryBound::Equal, KeyBound::PartitionsBehind),
                bound(EntryBound::Behind, KeyBound::Any),
            ],
        }
    }

    /// Returns its statement.
    pub(crate) fn statement(&self, index: &PropertyIndex, order: PageOrder) -> String {
        let bounds = (self.lower.is_some(), self.upper.is_some());
        entries::ordered(index, order, (self.entries, self.keys), bounds)
    }

    /// Runs the prepared statement.
    pub(crate) fn walk<'s>(&self, statement: &'s mut Statement<'_>) -> Sqlite<Rows<'s>> {
        let entry = self.from.and_then(|from| from.entry.as_ref()).map(exactly);
        let text = |text: &String| SqlValue::Text(text.clone());
        for (name, value) in [
            (":entry", entry),
            (":pk", self.from.map(|from| text(&from.key.partition))),
            (":rk", self.from.map(|from| text(&from.key.row))),
            (":lower", self.lower.clone()),
            (":upper", self.upper.clone()),
        ] {
            // A statement has only the parameters that it uses.
            if let (Some(parameter), Some(value)) = (statement.parameter_index(name)?, value) {
                statement.raw_bind_parameter(parameter, value)?;
            }
        }
        Ok(statement.raw_query())
    }
}
