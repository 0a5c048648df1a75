//! The connection pool for reads, and the transactions of a connection.

use std::ops::{Deref, DerefMut};
use std::sync::Arc;

use parking_lot::Mutex;
use rusqlite::Connection;

use crate::sqlite::connections::open;
use crate::sqlite::connections::options::{Location, SqliteOptions};
use crate::sqlite::fault::fault;
use crate::{Fault, StoreResult};

const MAX_IDLE: usize = 16;

/// Lends read connections. Cheap to clone.
#[derive(Clone)]
pub(crate) struct Readers(Arc<Connections>);

enum Connections {
    /// Connections to one file. In WAL mode, readers and the writer do not wait for each other.
    File { options: SqliteOptions, idle: Mutex<Vec<Connection>> },
    /// The only connection of a database in memory, shared by readers and the writer.
    Memory(SharedConnection),
}

/// A connection that the writer may share with readers. After a holder's panic, the connection is not in a
/// transaction, because [`Transaction`] rolls back on drop.
pub(crate) type SharedConnection = Arc<Mutex<Connection>>;

impl Readers {
    /// Creates the pool from the first connection, and returns the connection for the writer.
    pub(crate) fn new(options: &SqliteOptions, first: Connection) -> (Self, SharedConnection) {
        let writing = Arc::new(Mutex::new(first));
        let source = match options.location {
            Location::Memory => Connections::Memory(Arc::clone(&writing)),
            Location::File(_) => Connections::File { options: options.clone(), idle: Mutex::default() },
        };
        (Self(Arc::new(source)), writing)
    }

    pub(crate) fn are_read_only(&self) -> bool {
        matches!(&*self.0, Connections::File { options, .. } if options.reads_only)
    }

    /// Runs a read inside one snapshot.
    pub(crate) fn with<T>(
        &self,
        read: impl FnOnce(&mut Connection) -> rusqlite::Result<StoreResult<T>>,
    ) -> StoreResult<T> {
        self.with_statement(|connection| {
            let mut snapshot = Transaction::of_reads(connection)?;
            read(&mut snapshot)
        })
    }

    /// Runs a read of a single statement, which is its own snapshot.
    pub(crate) fn with_statement<T>(
        &self,
        read: impl FnOnce(&mut Connection) -> rusqlite::Result<StoreResult<T>>,
    ) -> StoreResult<T> {
        match &*self.0 {
            Connections::Memory(shared) => answered(read(&mut shared.lock())),
            Connections::File { options, idle } => {
                let mut connection = match idle.lock().pop() {
                    Some(connection) => connection,
                    None => open::connect(options).map_err(|error| {
                        tracing::error!(%error, "cannot open another connection");
                        Fault::Unavailable
                    })?,
                };
                let outcome = answered(read(&mut connection));
                let mut idle = idle.lock();
                if idle.len() < MAX_IDLE {
                    idle.push(connection);
                }
                outcome
            }
        }
    }
}

fn answered<T>(outcome: rusqlite::Result<StoreResult<T>>) -> StoreResult<T> {
    outcome.unwrap_or_else(|error| Err(fault(&error)))
}

/// A transaction that rolls back on drop unless it is committed. Unlike rusqlite's own, it prepares BEGIN and COMMIT
/// once for each connection, because parsing them takes nearly as long as a point read.
pub(crate) struct Transaction<'c>(&'c mut Connection);

impl<'c> Transaction<'c> {
    /// Begins a read transaction on one snapshot.
    pub(crate) fn of_reads(db: &'c mut Connection) -> rusqlite::Result<Self> {
        Self::begin(db, "BEGIN")
    }

    /// Begins a write transaction with the exclusive write lock.
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
        // A commit has ended the transaction, or SQLite has rolled it back, for example because the disk is full.
        if self.0.is_autocommit() {
            return;
        }
        let ended = self.0.prepare_cached("ROLLBACK").and_then(|mut end| end.execute([]));
        if let Err(error) = ended {
            tracing::error!(%error, "a transaction could not be rolled back");
        }
    }
}
