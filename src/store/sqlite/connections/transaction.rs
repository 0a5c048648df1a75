//! Transactions of a connection.

use rusqlite::Connection;

/// A transaction that is rolled back unless it is committed. Unlike rusqlite's own, it
/// prepares its statements once for each connection: a point read takes little longer
/// than parsing them.
pub(crate) struct Transaction<'c>(&'c Connection);

impl<'c> Transaction<'c> {
    /// One that only reads: it sees one state of the database from its first read to
    /// its end.
    pub(crate) fn of_reads(db: &'c Connection) -> rusqlite::Result<Self> {
        Self::begin(db, "BEGIN")
    }

    /// One that writes, and keeps all others from writing.
    pub(crate) fn of_writes(db: &'c Connection) -> rusqlite::Result<Self> {
        Self::begin(db, "BEGIN IMMEDIATE")
    }

    fn begin(db: &'c Connection, statement: &str) -> rusqlite::Result<Self> {
        db.prepare_cached(statement)?.execute([])?;
        Ok(Self(db))
    }

    pub(crate) fn commit(self) -> rusqlite::Result<()> {
        self.0.prepare_cached("COMMIT")?.execute([]).map(|_| ())
    }
}

impl Drop for Transaction<'_> {
    fn drop(&mut self) {
        // Ended by the commit, or by SQLite itself, as it does where the disk is full.
        if self.0.is_autocommit() {
            return;
        }
        let ended = self.0.prepare_cached("ROLLBACK").and_then(|mut end| end.execute([]));
        if let Err(error) = ended {
            tracing::error!(%error, "a transaction could not be rolled back");
        }
    }
}
