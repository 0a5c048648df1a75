//! A page of a query, as the stores understand it (protocol §7).

use std::time::Duration;

use super::index::{IndexChoice, IndexPosition, ValueOrder};
use super::predicate::Predicate;
use super::span::Span;
use crate::model::{Key, PageOrder, Ticks};

/// Rows of a page unless `$top` asks for fewer.
pub(crate) const MAX_ROWS: usize = 1000;
/// Bytes of stored text after which a page ends.
pub(crate) const MAX_BYTES: usize = 4 * 1024 * 1024;
/// Time after which a page ends with the rows that it has.
pub const MAX_TIME: Duration = Duration::from_secs(5);

/// One page of entities: reads the spans in order, keeps rows for which the residual filter holds,
/// and stops at the first limit.
#[derive(Debug, Clone)]
pub struct Scan {
    /// The ranges of keys to read: disjoint, in the order of the page, and cut at the continuation token.
    pub spans: Vec<Span>,
    /// The direction of the page.
    pub order: PageOrder,
    /// The order by values that it has; `None`: the order of keys. Then the spans are ascending and not cut
    /// at the continuation token, and the residual filter is the whole filter.
    pub by: Option<Box<ValueOrder>>,
    /// The part of the filter that the spans do not decide.
    pub residual: Option<Predicate>,
    /// Maximum rows; 1 to `MAX_ROWS`.
    pub rows: usize,
    /// Maximum bytes of stored text; a page holds at least one row.
    pub bytes: usize,
    /// Maximum time; a page that exceeds it names the key it reached.
    pub time: Duration,
    /// What each row contains.
    pub projection: Projection,
    /// The ways in which indexes can find the matches, the most promising first.
    pub indexed: Vec<IndexChoice>,
}

impl Scan {
    /// Returns the scan of the same rows in the order of keys.
    pub fn by_keys(&self) -> Self {
        Self { by: None, order: PageOrder::Ascending, ..self.clone() }
    }

    /// Returns the largest page of whole entities in these ranges, which are ascending.
    pub fn over(spans: Vec<Span>) -> Self {
        Self {
            spans,
            order: PageOrder::Ascending,
            by: None,
            residual: None,
            rows: MAX_ROWS,
            bytes: MAX_BYTES,
            time: MAX_TIME,
            projection: Projection::Full,
            indexed: Vec::new(),
        }
    }
}

/// The part of each row that the page needs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Projection {
    /// Everything.
    Full,
    /// Keys and Timestamp only: rows have empty properties.
    SystemOnly,
}

/// The end of a page whose entities were passed on.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct PageEnd {
    /// The number of entities.
    pub entities: usize,
    /// About how many rows and index entries were examined.
    pub examined: u64,
    /// The number in [`Scan::indexed`] of the choice that has named the rows; `None` if they were read in
    /// the order of keys.
    pub narrowed_by: Option<usize>,
    /// Where the next page starts; `None` at the end. An ascending page starts with this key, a descending
    /// one below it.
    pub next: Option<Key>,
    /// Where the next page of an order by values starts; `None` at the end.
    pub next_in_index: Option<IndexPosition>,
}

/// One page of an account's tables. Spans and residual filter use lower-case names in the place of
/// the PartitionKey, with an empty RowKey.
#[derive(Debug, Clone)]
pub struct TableScan {
    pub spans: Vec<Span>,
    pub residual: Option<Predicate>,
    /// Maximum tables; 1 to `MAX_ROWS`.
    pub rows: usize,
    /// Maximum time; a page that exceeds it names the table it reached.
    pub time: Duration,
}

/// A table in the list.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TableEntry {
    /// The name as created.
    pub name: String,
    /// Its creation time; part of the continuation token.
    pub created: Ticks,
}

/// One page of tables, in order of their lower-case names.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct TablePage {
    pub tables: Vec<TableEntry>,
    /// Where the next page starts, inclusive.
    pub next: Option<TableEntry>,
}
