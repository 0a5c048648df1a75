//! The embedded store: one SQLite file, or memory for tests.
//!
//! Reads have connections of their own, and point reads run on the calling thread. All writes go through
//! one thread, whose group commit takes everything that waits.

mod catalog;
mod checkpoint;
mod connections;
mod entities;
mod fault;
mod reads;
mod rows;
mod store;
mod upkeep;
mod writer;
mod writes;

pub use connections::{Location, OpenError, SqliteOptions};
pub use connections::{MAX_MAP_MIB, ServerLock, obstacle};
pub use store::SqliteStore;
pub use upkeep::{Backup, Copied};
