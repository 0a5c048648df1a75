//! The embedded store: one SQLite file, or memory for tests.
//!
//! Reads have separate connections, and point reads run on the calling thread. One thread executes all writes, and
//! its group commit includes all waiting writes.

/// Data besides entities: tables, accounts, policies and service properties.
mod catalog {
    pub(crate) mod entries;
    pub(crate) mod tables;
    pub(crate) mod views;
}
mod checkpoint;
mod connections;
mod entities;
mod fault;
/// Reads pages of entities.
mod reads {
    pub(crate) mod narrow;
    pub(crate) mod pages;
    mod ranges;
}
mod store;
mod upkeep;
mod writer;
mod writes;

use crate::protocol::model::Ticks;

pub use connections::{Location, OpenError, SqliteOptions};
pub use connections::{MAX_MAP_MIB, ServerLock, obstacle};
pub use store::SqliteStore;
pub(crate) use upkeep::inspect;
pub use upkeep::{Backup, Copied};

pub(crate) type Sqlite<T> = rusqlite::Result<T>;

/// Reads a stored number of ticks. Rowhouse never writes a value out of range.
pub(crate) fn ticks(row: &rusqlite::Row<'_>, column: usize) -> Sqlite<Ticks> {
    let raw: i64 = row.get(column)?;
    Ticks::stored(raw).ok_or(rusqlite::Error::IntegralValueOutOfRange(column, raw))
}
