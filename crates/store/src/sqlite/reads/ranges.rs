//! Ranges of keys or index entries for the statements of a page.
//!
//! Spans become ranges of one column. For a bound on a pair of columns, SQLite finds the position in the index, but
//! still compares the pair with every row.

use rusqlite::types::Value as SqlValue;
use rusqlite::{Rows, Statement};

use crate::protocol::model::PageOrder;
use crate::protocol::plan::Span;
use crate::protocol::plan::index::{IndexPosition, OrderPart, PropertyIndex, ValueOrder};
use crate::protocol::plan::span::first_whole_partition;
use crate::sqlite::Sqlite;
use crate::sqlite::catalog::entries::{self, EntryBound, KeyBound};
use crate::sqlite::reads::narrow::{exactly, lower, upper};

/// A key range for one statement.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Range<'a> {
    /// Rows of one partition, from a row key on, below another row key.
    Rows { partition: &'a str, from: &'a str, below: Option<&'a str> },
    /// Whole partitions, from a partition key on, below another partition key.
    Partitions { from: String, below: Option<&'a str> },
}

/// Statements that read the entities of a bucket (?1) within further bounds, in either order.
macro_rules! entities_where {
    (@text $bounds:literal, $order:literal) => {
        concat!(
            "SELECT pk, rk, modified, properties FROM entities WHERE bucket = ?1 AND ",
            $bounds,
            " ORDER BY ",
            $order
        )
    };
    ($order:expr, $bounds:literal) => {
        match $order {
            PageOrder::Ascending => entities_where!(@text $bounds, "pk, rk"),
            PageOrder::Descending => entities_where!(@text $bounds, "pk DESC, rk DESC"),
        }
    };
}

impl Range<'_> {
    /// Returns the statement that reads the range in this order.
    pub(crate) const fn statement(&self, order: PageOrder) -> &'static str {
        match self {
            Range::Rows { below: None, .. } => entities_where!(order, "pk = ?2 AND rk >= ?3"),
            Range::Rows { below: Some(_), .. } => entities_where!(order, "pk = ?2 AND rk >= ?3 AND rk < ?4"),
            Range::Partitions { below: None, .. } => entities_where!(order, "pk >= ?2"),
            Range::Partitions { below: Some(_), .. } => entities_where!(order, "pk >= ?2 AND pk < ?3"),
        }
    }

    pub(crate) fn walk<'s>(
        &self,
        statement: &'s mut Statement<'_>,
        bucket: i64,
    ) -> rusqlite::Result<Rows<'s>> {
        statement.raw_bind_parameter(1, bucket)?;
        for (parameter, bound) in (2..).zip(self.bounds()) {
            statement.raw_bind_parameter(parameter, bound)?;
        }
        Ok(statement.raw_query())
    }

    /// Returns the parameters after the bucket.
    fn bounds(&self) -> impl Iterator<Item = &str> {
        let bounds = match self {
            Range::Rows { partition, from, below } => [Some(*partition), Some(*from), *below],
            Range::Partitions { from, below } => [Some(from.as_str()), *below, None],
        };
        bounds.into_iter().flatten()
    }
}

/// Splits a span into ranges, in this order.
pub(crate) fn ranges(span: &Span, order: PageOrder) -> Vec<Range<'_>> {
    order.arrange(ascending(span))
}

fn ascending(span: &Span) -> Vec<Range<'_>> {
    if span.is_empty() {
        return Vec::new();
    }
    let Span { lower, upper } = span;
    let upper = upper.as_ref();
    if let Some(partition) = span.partition() {
        let below = upper.filter(|upper| upper.partition == partition).map(|upper| upper.row.as_str());
        return vec![Range::Rows { partition, from: &lower.row, below }];
    }
    let mut ranges = Vec::with_capacity(3);
    if !lower.row.is_empty() {
        ranges.push(Range::Rows { partition: &lower.partition, from: &lower.row, below: None });
    }
    let below = upper.map(|upper| upper.partition.as_str());
    ranges.push(Range::Partitions { from: first_whole_partition(lower), below });
    if let Some(upper) = upper.filter(|upper| !upper.row.is_empty()) {
        ranges.push(Range::Rows { partition: &upper.partition, from: "", below: Some(&upper.row) });
    }
    ranges
}

/// The rows of one statement that reads a page in the order of an index. A position becomes up to three of them,
/// because SQLite cannot seek to a row value that begins with an expression.
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

    pub(crate) fn statement(&self, index: &PropertyIndex, order: PageOrder) -> String {
        let bounds = (self.lower.is_some(), self.upper.is_some());
        entries::ordered(index, order, (self.entries, self.keys), bounds)
    }

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

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use rusqlite::Connection;

    use super::*;
    use crate::protocol::model::Key;
    use crate::sqlite::connections::open::open;
    use crate::sqlite::connections::options::{Location, SqliteOptions};

    const ORDERS: [PageOrder; 2] = [PageOrder::Ascending, PageOrder::Descending];

    fn database() -> Connection {
        open(&SqliteOptions::new(Location::Memory)).unwrap()
    }

    fn key() -> impl Strategy<Value = Key> {
        // The end of a bound may be U+0001, see `plan::span`.
        ("[ab]{0,2}\u{1}?", "[ab]{0,2}\u{1}?").prop_map(|(p, r)| Key::new(p, r))
    }

    #[test]
    fn every_statement_walks_the_key_index_and_looks_at_bounds_there_alone() {
        let db = database();
        let (partition, from, below) = ("p", "r", Some("s"));
        for (range, bounds, order) in [
            (Range::Rows { partition, from, below: None }, "pk=? AND rk>?"),
            (Range::Rows { partition, from, below }, "pk=? AND rk>? AND rk<?"),
            (Range::Partitions { from: from.into(), below: None }, "pk>?"),
            (Range::Partitions { from: from.into(), below }, "pk>? AND pk<?"),
        ]
        .into_iter()
        .flat_map(|(range, bounds)| ORDERS.map(|order| (range.clone(), bounds, order)))
        {
            let explain = |how: &str, column| {
                let statement = range.statement(order);
                let mut explain = db.prepare(&format!("EXPLAIN {how} {statement}")).unwrap();
                assert_eq!(explain.parameter_count(), 1 + range.bounds().count());
                let mut rows = range.walk(&mut explain, 1).unwrap();
                let mut found = Vec::new();
                while let Some(row) = rows.next().unwrap() {
                    found.push(row.get::<_, String>(column).unwrap());
                }
                found
            };
            let plan = explain("QUERY PLAN", 3);
            assert_eq!(plan.len(), 1, "no sort: {plan:?}");
            assert!(plan[0].contains("USING INDEX") && plan[0].contains(bounds), "{plan:?}");
            let program = explain("", 1);
            let compares = |op: &&String| matches!(op.as_str(), "Lt" | "Le" | "Gt" | "Ge" | "Eq" | "Ne");
            assert_eq!(program.iter().find(compares), None, "{range:?} {order:?}");
        }
    }

    proptest! {
        #[test]
        fn ranges_hold_the_keys_of_their_span_in_order(
            lower in key(),
            upper in prop::option::of(key()),
            keys in prop::collection::btree_set(("[ab]{0,2}", "[ab]{0,2}"), 0..30),
        ) {
            let span = Span { lower, upper };
            let db = database();
            for (p, r) in &keys {
                db.execute("INSERT INTO entities VALUES (1, ?1, ?2, 0, '{}')", (p, r)).unwrap();
            }
            let walked = |order| {
                let mut walked: Vec<(String, String)> = Vec::new();
                for range in ranges(&span, order) {
                    let mut statement = db.prepare(range.statement(order)).unwrap();
                    let mut rows = range.walk(&mut statement, 1).unwrap();
                    while let Some(row) = rows.next().unwrap() {
                        walked.push((row.get(0).unwrap(), row.get(1).unwrap()));
                    }
                }
                walked
            };
            let within = |(p, r): &(String, String)| {
                let key = Key::new(p, r);
                span.lower <= key && span.upper.as_ref().is_none_or(|upper| key < *upper)
            };
            let mut expected: Vec<(String, String)> = keys.into_iter().filter(within).collect();
            prop_assert_eq!(&walked(PageOrder::Ascending), &expected);
            expected.reverse();
            prop_assert_eq!(&walked(PageOrder::Descending), &expected);
        }
    }
}
