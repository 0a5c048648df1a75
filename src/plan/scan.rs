//! A page of a query, as the stores understand it (protocol §7).

use std::time::Duration;

use super::predicate::Predicate;
use super::span::Span;
use crate::model::{Key, Stored, Ticks};

/// Rows of a page unless `$top` asks for fewer.
pub(crate) const MAX_ROWS: usize = 1000;
/// Bytes of stored text after which a page ends.
pub(crate) const MAX_BYTES: usize = 4 * 1024 * 1024;
/// Time after which a page ends with what it has.
pub const MAX_TIME: Duration = Duration::from_secs(5);

/// One page of entities: walk the spans in order, keep rows for which the
/// residual holds, stop at whichever limit comes first.
#[derive(Debug, Clone)]
pub struct Scan {
    /// Where matching keys can lie: disjoint, ascending, already cut at the
    /// continuation token.
    pub spans: Vec<Span>,
    /// What the spans do not decide.
    pub residual: Option<Predicate>,
    /// Rows at most; 1 to `MAX_ROWS`.
    pub rows: usize,
    /// Bytes of stored text at most; a page holds at least one row.
    pub bytes: usize,
    /// Time at most; a page that runs out of it names the key it reached.
    pub time: Duration,
    /// What each row must carry.
    pub projection: Projection,
}

/// Which part of each row the page needs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Projection {
    /// Everything.
    Full,
    /// Keys and Timestamp only: rows come with empty properties.
    SystemOnly,
}

/// One snapshot's worth of entities, in key order.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct EntityPage {
    pub entities: Vec<Stored>,
    /// Where the next page starts, inclusive; `None` at the end.
    pub next: Option<Key>,
}

/// How a page ended whose entities have been handed over.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct PageEnd {
    /// How many there were.
    pub entities: usize,
    /// Where the next page starts, inclusive; `None` at the end.
    pub next: Option<Key>,
}

/// One page of an account's tables. Spans and residual speak of lower-case
/// names in the place of the PartitionKey, with an empty RowKey.
#[derive(Debug, Clone)]
pub struct TableScan {
    pub spans: Vec<Span>,
    pub residual: Option<Predicate>,
    /// Tables at most; 1 to `MAX_ROWS`.
    pub rows: usize,
    /// Time at most; a page that runs out of it names the table it reached.
    pub time: Duration,
}

/// A table as the list shows it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TableEntry {
    /// The name as created.
    pub name: String,
    /// When it was created; part of the continuation token.
    pub created: Ticks,
}

/// One page of tables, in order of their lower-case names.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct TablePage {
    pub tables: Vec<TableEntry>,
    /// Where the next page starts, inclusive.
    pub next: Option<TableEntry>,
}
