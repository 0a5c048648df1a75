//! The contract on SQLite, in a file and in memory.

use std::sync::LazyLock;

use rowhouse::store::sqlite::{Location, SqliteOptions, SqliteStore};
use tempfile::TempDir;

use super::contract::contract;

static FOLDER: LazyLock<TempDir> = LazyLock::new(|| TempDir::new().expect("a temporary folder"));

fn open(location: Location) -> SqliteStore {
    SqliteStore::open(&SqliteOptions::new(location)).expect("the database opens")
}

/// One file for all cases: every case has an account of its own.
async fn file() -> SqliteStore {
    open(Location::File(FOLDER.path().join("contract.db")))
}

async fn memory() -> SqliteStore {
    open(Location::Memory)
}

contract!(in_a_file, super::file);
contract!(in_memory, super::memory);
