//! The contract on SQLite, in a file and in memory.

use std::sync::LazyLock;

use rowhouse_protocol::model::{EdmValue, IfMatch};
use rowhouse_protocol::plan::WriteKind;
use rowhouse_store::sqlite::{Location, SqliteOptions, SqliteStore};
use tempfile::TempDir;

use super::contract::{contract, table, write};

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

#[tokio::test]
async fn only_what_was_inserted_keeps_the_order_that_it_was_sent_in() {
    let store = memory().await;
    let table = table(&store).await;
    let numbers = |names: &[&str]| names.iter().map(|n| ((*n).to_owned(), EdmValue::Int32(1))).collect();
    for (kind, names, stored) in [
        (WriteKind::Insert, ["b", "a", "B"], r#"{"b":1,"a":1,"B":1}"#),
        (WriteKind::Merge(IfMatch::Any), ["c", "C", "a"], r#"{"B":1,"C":1,"a":1,"b":1,"c":1}"#),
    ] {
        let write = write(kind, "p", "r", numbers(&names));
        table.write(&write).await.unwrap();
        let found = table.get(&write.key).await.unwrap().unwrap();
        assert_eq!(found.properties.as_str(), stored, "{kind:?}");
    }
}

contract!(entities of in_a_file, super::file);
contract!(in_memory, super::memory);
