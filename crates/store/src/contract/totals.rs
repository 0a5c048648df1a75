//! How many entities tables have.

use super::StoreResult;
use crate::protocol::model::{Key, TableRef};

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

store_trait! {
/// Counts of entities: of a part, exactly, and estimates of whole tables, which read no entities.
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

    /// Returns the entities of a table that the planner of the database expects by its statistics; `None` if it
    /// keeps none of single buckets.
    ///
    /// # Errors
    /// `TableNotFound`.
    async fn estimate(&self, table: TableRef<'_>) -> StoreResult<Option<u64>>;
}}
