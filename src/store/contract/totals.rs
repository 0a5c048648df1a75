//! How many entities tables have.

use super::StoreResult;
use super::unrecorded::Unrecorded;
use crate::protocol::model::{Key, TableRef, Ticks};

/// Where counting goes on: tables are counted bucket by bucket.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CountPosition {
    /// The number that the table's buckets are made of; `None` for those that it has now.
    pub layout: Option<i64>,
    /// The number of the bucket among those of the table.
    pub share: u16,
    pub key: Key,
}

impl CountPosition {
    /// Before the first entity.
    pub fn start() -> Self {
        Self { layout: None, share: 0, key: Key::new("", "") }
    }
}

/// Entities counted in one step.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CountedPart {
    pub entities: u64,
    /// Where the next step begins; `None` at the end.
    pub next: Option<CountPosition>,
}

/// A stored count.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct StoredTotal {
    pub entities: u64,
    /// Writes between these times may be included or not.
    pub started: Ticks,
    pub ended: Ticks,
}

/// A count that is under way.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TotalPass {
    pub table_no: i64,
    pub account: String,
    pub table: String,
    pub began: Ticks,
    pub position: CountPosition,
    /// Entities counted so far.
    pub so_far: u64,
}

/// Counts that could not be recorded, since they began: where they go on, and how many so far.
pub(crate) type UnrecordedCounts = Unrecorded<(CountPosition, u64)>;

store_trait! {
/// Counts of entities: of a part, exactly, and stored ones of whole tables, for a first answer
/// without a scan.
pub trait Totals {
    /// Counts the entities from a position on, `rows` at most. `None` if the table has got other buckets since
    /// then: what was counted says nothing of what is left, and the count has to begin anew.
    ///
    /// # Errors
    /// `TableNotFound`.
    async fn count_part(
        &self,
        table: TableRef<'_>,
        from: &CountPosition,
        rows: u32,
    ) -> StoreResult<Option<CountedPart>>;

    /// Returns what the statistics of the database say about the size of a table; `None` if it has
    /// none.
    ///
    /// # Errors
    /// `TableNotFound`.
    async fn estimate(&self, table: TableRef<'_>) -> StoreResult<Option<u64>>;

    /// Returns the last stored count.
    async fn stored_total(&self, table: TableRef<'_>) -> StoreResult<Option<StoredTotal>>;

    /// Asks for a new count, unless one is under way.
    async fn want_total(&self, table: TableRef<'_>, now: Ticks) -> StoreResult<()>;

    /// Returns the count that has been under way for the longest, but of none of these tables.
    async fn due_total(&self, left_out: &[i64]) -> StoreResult<Option<TotalPass>>;

    /// Stores a step of a count, and at the end its result.
    async fn record_total(
        &self,
        pass: &TotalPass,
        part: &CountedPart,
        now: Ticks,
    ) -> StoreResult<()>;
}}
