//! How far this process has come with the rows of a deleted table.

use std::sync::{Mutex, PoisonError};

/// Where the next call resumes: at the last key that was removed from this bucket. Without it, each
/// call would scan the dead index entries of all rows that were removed before.
#[derive(Debug, Clone)]
pub(crate) struct PurgePosition {
    pub bucket: i64,
    pub pk: String,
    pub rk: String,
}

impl PurgePosition {
    /// Before the first row of a bucket; keys may be empty.
    pub(crate) const fn first(bucket: i64) -> Self {
        Self { bucket, pk: String::new(), rk: String::new() }
    }
}

/// The progress of this process with the table that it purges. Each server has its own.
#[derive(Debug, Default)]
pub(crate) struct PurgeProgress(Mutex<Option<(PurgePass, PurgePosition)>>);

/// One of the two passes over a table, which differ in when they are due. The second starts from the
/// beginning, because late writes may be anywhere.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct PurgePass {
    pub table_no: i64,
    pub due: i64,
}

impl PurgeProgress {
    pub(crate) fn position(&self, of: PurgePass) -> Option<PurgePosition> {
        let last = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        last.as_ref().filter(|(pass, _)| *pass == of).map(|(_, position)| position.clone())
    }

    pub(crate) fn set(&self, last: Option<(PurgePass, PurgePosition)>) {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner) = last;
    }
}
