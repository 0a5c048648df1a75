//! Entities that a copy stores, and the record of how far it has come.

use std::sync::Arc;

use uuid::Uuid;

use super::StoreResult;
use crate::protocol::model::{Key, Stored, TableRef, Ticks};

/// Seconds after which a copy that has left marks is not resumed any more.
const STALE_COPY: i64 = 90 * 24 * 3600;

/// Entities of one table that are stored in one transaction, with the versions that they have.
#[derive(Debug, Clone)]
pub struct Load {
    /// In the order of their keys, none twice. They have passed the checks of `codec::validated`.
    pub rows: Vec<Stored>,
    /// Whether entities that exist are replaced. Their versions never go back.
    pub replaces: bool,
    /// What is recorded in the same transaction.
    pub mark: Option<LoadMark>,
}

/// How far a copy has come in one of its ranges.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LoadMark {
    /// The copy, by a name that no other has.
    pub copy: String,
    /// The number of the range.
    pub range: i64,
    /// The last key that is done or, of a source without an order, the number of the last page.
    pub reached: Key,
    /// What became of the entities of the last page: written, left as they were, and rejected.
    pub counts: [u64; 3],
}

/// Returns a name for a copy that no other has. It begins with the time, in milliseconds since 1970.
pub fn new_copy() -> String {
    Uuid::now_v7().simple().to_string()
}

/// Returns the text below which the names of stale copies are, and their version, which is the 13th
/// character. Names of another kind have no time.
pub fn stale_copies(now: Ticks) -> (String, &'static str) {
    let milliseconds = now.unix_seconds().saturating_sub(STALE_COPY).max(0).saturating_mul(1000);
    (format!("{milliseconds:012x}"), "7")
}

impl LoadMark {
    /// Returns the counts as the databases have them.
    pub(crate) fn stored_counts(&self) -> [i64; 3] {
        self.counts.map(|count| i64::try_from(count).unwrap_or(i64::MAX))
    }
}

store_trait! {
/// Entities that copies store, and how far each copy has come.
pub trait Loads {
    /// Stores entities with the versions that they have, and the mark of the copy that they are part
    /// of, all in one transaction. `false` if some exist that may not be replaced: then nothing was
    /// done.
    ///
    /// # Errors
    /// `TableNotFound`.
    async fn load(&self, table: TableRef<'_>, load: &Arc<Load>) -> StoreResult<bool>;

    /// Reads the marks of a copy.
    async fn marks(&self, copy: &str) -> StoreResult<Vec<LoadMark>>;

    /// Removes the marks of a copy that is complete.
    async fn forget_marks(&self, copy: &str) -> StoreResult<()>;
}}
