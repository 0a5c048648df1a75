//! Transactions of a connection.

use std::ops::{Deref, DerefMut};

use rusqlite::Connection;

/// A transaction that is rolled back unless it is committed. Unlike rusqlite's own, it prepares BEGIN and
/// COMMIT once for each connection: parsing them takes nearly as long as a point read.
pub(crate) struct Transaction<'c>(&'c mut Connection);

impl<'c> Transaction<'c> {
    /// Begins a transaction for reads, which all see one snapshot.
    pub(crate) fn of_reads(db: &'c mut Connection) -> rusqlite::Result<Self> {
        Self::begin(db, "BEGIN")
    }

    /// Begins a transaction for writes, with the only write lock.
    pub(crate) fn of_writes(db: &'c mut Connection) -> rusqlite::Result<Self> {
        Self::begin(db, "BEGIN IMMEDIATE")
    }

    fn begin(db: &'c mut Connection, statement: &str) -> rusqlite::Result<Self> {
        db.prepare_cached(statement)?.execute([])?;
        Ok(Self(db))
    }

    pub(crate) fn commit(self) -> rusqlite::Result<()> {
        self.0.prepare_cached("COMMIT")?.execute([]).map(|_| ())
    }
}

impl Deref for Transaction<'_> {
    type Target = Connection;

    fn deref(&self) -> &Connection {
        self.0
    }
}

impl DerefMut for Transaction<'_> {
    fn deref_mut(&mut self) -> &mut Connection {
        self.0
    }
}

impl Drop for Transaction<'_> {
    fn drop(&mut self) {
        // It was ended by a commit or by SQLite itself, as when the disk is full.
        if self.0.is_autocommit() {
            return;
        }
        let ended = self.0.prepare_cached("ROLLBACK").and_then(|mut end| end.execute([]));
        if let Err(error) = ended {
            tracing::error!(%error, "a transaction could not be rolled back");
        }
    }
}
