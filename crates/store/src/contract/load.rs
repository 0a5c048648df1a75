//! Entities that a copy stores, and the record of the copy's progress.

use std::sync::Arc;

use uuid::Uuid;

use super::StoreResult;
use crate::protocol::model::{Key, Stored, TableRef, Ticks};

/// Seconds after which a copy that has left marks is no longer resumed.
const STALE_COPY: i64 = 90 * 24 * 3600;

/// Entities of one table that are stored in one transaction with their existing versions.
#[derive(Debug, Clone)]
pub struct Load {
    /// Sorted by key, without duplicates, and checked by `codec::validated`.
    pub rows: Vec<Stored>,
    /// Whether existing entities are replaced. Their versions never go back.
    pub replaces: bool,
    /// The progress recorded in the same transaction.
    pub mark: Option<LoadMark>,
}

/// Progress of a copy in one of its ranges.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LoadMark {
    /// Unique name of the copy.
    pub copy: String,
    /// The number of the range.
    pub range: i64,
    /// The last completed key or, for an unordered source, the number of the last page.
    pub reached: Key,
    /// Numbers of written, unchanged and rejected entities of the last page.
    pub counts: [u64; 3],
}

/// Returns a unique name for a copy. It begins with the time, in milliseconds since 1970.
pub fn new_copy() -> String {
    Uuid::now_v7().simple().to_string()
}

/// Returns the upper bound of stale copy names, and their version, which is the 13th character. Names of another
/// version contain no time.
pub fn stale_copies(now: Ticks) -> (String, &'static str) {
    let milliseconds = now.unix_seconds().saturating_sub(STALE_COPY).max(0).saturating_mul(1000);
    (format!("{milliseconds:012x}"), "7")
}

impl LoadMark {
    /// Converts the counts to the integers of the databases.
    pub(crate) fn stored_counts(&self) -> [i64; 3] {
        self.counts.map(|count| i64::try_from(count).unwrap_or(i64::MAX))
    }
}

store_trait! {
/// Entities that copies store, and the progress of each copy.
pub trait Loads {
    /// Stores entities with their existing versions and the copy's mark, in one transaction. `false` if some exist and
    /// may not be replaced; nothing is stored then.
    ///
    /// # Errors
    /// `TableNotFound`.
    async fn load(&self, table: TableRef<'_>, load: &Arc<Load>) -> StoreResult<bool>;

    async fn marks(&self, copy: &str) -> StoreResult<Vec<LoadMark>>;

    /// Removes the marks of a completed copy.
    async fn forget_marks(&self, copy: &str) -> StoreResult<()>;
}}
