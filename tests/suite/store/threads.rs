//! Runtimes of several threads over one store. Each hears only of what comes over
//! connections that were opened in it.

use std::sync::Arc;
use std::thread;

use rowhouse_store::postgres::{PgOptions, PgStore};
use sqlx::{Connection, PgConnection};

use super::contract::{TestTable, insert, table};
use crate::support::postgres::fresh_database;

type Table = TestTable<Arc<PgStore>>;

/// A table of one entity in a new database, which has been read, so that a connection of this runtime rests.
async fn used(max_connections: u32) -> (Table, PgConnection) {
    let url = fresh_database();
    let mut options = PgOptions::new(&url);
    options.max_connections = max_connections;
    let table = table(Arc::new(PgStore::connect(options).await.unwrap())).await;
    table.transact(&[insert("p", "r")]).await.unwrap();
    assert_eq!(table.all().await.len(), 1);
    (table, PgConnection::connect(&url).await.unwrap())
}

/// Reads on a thread with a runtime of its own.
fn read_elsewhere(table: &Table) -> thread::JoinHandle<()> {
    let table = table.clone();
    thread::spawn(move || {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        runtime.block_on(async {
            for _ in 0..3 {
                assert_eq!(table.all().await.len(), 1);
            }
        });
    })
}

async fn sessions(admin: &mut PgConnection) -> i64 {
    let others = "SELECT count(*) FROM pg_stat_activity \
                  WHERE datname = current_database() AND pid <> pg_backend_pid() \
                  AND backend_type = 'client backend'";
    sqlx::query_scalar(others).fetch_one(admin).await.unwrap()
}

#[tokio::test]
async fn a_thread_needs_no_other_while_it_may_have_connections_of_its_own() {
    let (table, mut admin) = used(4).await;
    let before = sessions(&mut admin).await;
    // This thread waits, and with it the runtime of the resting connection.
    read_elsewhere(&table).join().unwrap();
    assert_eq!(sessions(&mut admin).await, before + 1);
    assert_eq!(table.all().await.len(), 1);
    assert_eq!(sessions(&mut admin).await, before + 1);
}

#[tokio::test]
async fn a_thread_uses_connections_of_others_where_it_may_not_open_its_own() {
    let (table, mut admin) = used(1).await;
    let before = sessions(&mut admin).await;
    let elsewhere = read_elsewhere(&table);
    tokio::task::spawn_blocking(|| elsewhere.join().unwrap()).await.unwrap();
    assert_eq!(sessions(&mut admin).await, before);
}
