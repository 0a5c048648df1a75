//! Entities that a copy stores, and the record of how far it has come.

use crate::model::{Key, Stored};

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
    /// The last key that is done.
    pub reached: Key,
    /// What became of the entities of the last page: written, left as they were, and rejected.
    pub counts: [u64; 3],
}

impl LoadMark {
    /// Returns the counts as the databases have them.
    pub(super) fn stored_counts(&self) -> [i64; 3] {
        self.counts.map(|count| i64::try_from(count).unwrap_or(i64::MAX))
    }
}
