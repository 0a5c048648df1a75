//! The purge progress of this process.

use parking_lot::Mutex;

use crate::SetAside;

/// Where the next call resumes: at the last key that was removed from this bucket. Otherwise each call would scan
/// the dead index entries of all removed rows.
#[derive(Debug, Clone)]
pub(crate) struct PurgePosition {
    pub bucket: i64,
    pub pk: String,
    pub rk: String,
}

impl PurgePosition {
    /// The position before the first row of a bucket. Keys may be empty.
    pub(crate) const fn first(bucket: i64) -> Self {
        Self { bucket, pk: String::new(), rk: String::new() }
    }
}

/// The progress of this process with the table that it purges. Each server has its own.
#[derive(Debug, Default)]
pub(crate) struct PurgeProgress {
    last: Mutex<Option<(PurgePass, PurgePosition)>>,
    set_aside: Mutex<SetAside>,
}

/// One of the two passes over a table, which have different due times. The second pass starts from the beginning,
/// because late writes may be anywhere.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct PurgePass {
    pub table_no: i64,
    pub due: i64,
}

impl PurgeProgress {
    pub(crate) fn position(&self, of: PurgePass) -> Option<PurgePosition> {
        let last = self.last.lock();
        last.as_ref().filter(|(pass, _)| *pass == of).map(|(_, position)| position.clone())
    }

    pub(crate) fn set(&self, last: Option<(PurgePass, PurgePosition)>) {
        *self.last.lock() = last;
    }

    /// Skips a table for a minute, so that it delays no other table; `false` if there is no room.
    pub(crate) fn set_aside(&self, table_no: i64) -> bool {
        self.set_aside.lock().add(table_no)
    }

    /// The tables that are currently skipped.
    pub(crate) fn tables_set_aside(&self) -> Vec<i64> {
        self.set_aside.lock().current()
    }
}
