//! How far this process has come with the rows of deleted tables.

use std::sync::{Mutex, PoisonError};

use crate::SetAside;

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
pub(crate) struct PurgeProgress {
    last: Mutex<Option<(PurgePass, PurgePosition)>>,
    /// The tables whose step failed.
    set_aside: Mutex<SetAside>,
}

/// One of the two passes over a table, which differ in when they are due. The second starts from the
/// beginning, because late writes may be anywhere.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct PurgePass {
    pub table_no: i64,
    pub due: i64,
}

impl PurgeProgress {
    pub(crate) fn position(&self, of: PurgePass) -> Option<PurgePosition> {
        let last = self.last.lock().unwrap_or_else(PoisonError::into_inner);
        last.as_ref().filter(|(pass, _)| *pass == of).map(|(_, position)| position.clone())
    }

    pub(crate) fn set(&self, last: Option<(PurgePass, PurgePosition)>) {
        *self.last.lock().unwrap_or_else(PoisonError::into_inner) = last;
    }

    /// Leaves a table alone for a minute, so that it delays no other; `false` if there is no room.
    pub(crate) fn set_aside(&self, table_no: i64) -> bool {
        self.set_aside.lock().unwrap_or_else(PoisonError::into_inner).add(table_no)
    }

    /// The tables that are left alone now.
    pub(crate) fn tables_set_aside(&self) -> Vec<i64> {
        self.set_aside.lock().unwrap_or_else(PoisonError::into_inner).current()
    }
}
