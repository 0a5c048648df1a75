//! Requests that share a statement keep their outcomes apart.

use std::pin::pin;
use std::sync::Arc;
use std::task::Poll;
use std::time::Duration;

use futures_util::future::join_all;
use rowhouse_protocol::error::Code;
use rowhouse_protocol::model::{IfMatch, Key};
use rowhouse_protocol::plan::{WriteKind, Written};
use rowhouse_store::postgres::PgStore;
use rowhouse_store::{Failure, Fault, StoreResult};
use sqlx::{Connection, Executor, PgConnection};

use super::contract::{TestTable, insert, number, table, write};
use super::postgres::{open, patient};
use crate::support::pace_async;
use crate::support::postgres::{count, execute, fresh_database};

/// Requests that are asked for at once; on one thread they meet in one lane.
const MANY: usize = 40;

type Table = TestTable<Arc<PgStore>>;

/// A table in a database of its own.
async fn fixture() -> (String, Table) {
    let url = fresh_database();
    let store = open(&url, 1).await;
    (url, table(Arc::new(store)).await)
}

fn code<T>(outcome: &StoreResult<T>) -> Option<Code> {
    match outcome {
        Err(Failure::Refused(error)) => Some(error.code),
        _ => None,
    }
}

fn key(row: usize) -> Key {
    Key::new("p", format!("r{row}"))
}

async fn insert_all(table: &Table, rows: impl Iterator<Item = usize>) -> Vec<StoreResult<Written>> {
    let writes: Vec<_> = rows.map(|row| insert("p", &key(row).row)).collect();
    join_all(writes.iter().map(|write| table.write(write))).await
}

/// How many statements of the lanes a server has seen, told by their text.
fn statements_seen(url: &str, form: &str) -> i64 {
    let query = format!(
        "SELECT count(*) FROM pg_stat_activity \
         WHERE datname = current_database() AND query LIKE '{form}' AND pid <> pg_backend_pid()"
    );
    count(url, &query)
}

#[tokio::test]
async fn requests_of_one_moment_share_a_statement() {
    let (url, table) = fixture().await;
    let inserted = insert_all(&table, 0..MANY).await;
    assert!(inserted.iter().all(Result::is_ok), "{inserted:?}");
    assert_eq!(statements_seen(&url, "INSERT INTO entities%unnest%"), 1);
    let keys: Vec<Key> = (0..MANY).map(key).collect();
    let found = join_all(keys.iter().map(|key| table.get(key))).await;
    for (found, (written, key)) in found.into_iter().zip(inserted.into_iter().zip(keys)) {
        let found = found.unwrap().unwrap();
        assert_eq!((found.key, Some(found.modified)), (key, written.unwrap().modified));
    }
    assert_eq!(statements_seen(&url, "SELECT u.n%unnest%"), 1);
}

#[tokio::test]
async fn tables_do_not_mix() {
    let (_, table) = fixture().await;
    let (other, gone) = (table.named("Other"), table.named("Gone"));
    other.create().await.unwrap();
    gone.create().await.unwrap();
    // Remembered by this store, removed by another.
    gone.get(&key(0)).await.unwrap();
    gone.delete().await.unwrap();
    let write = insert("p", "r");
    let tables = [table.named("People"), other, gone, table.named("Never")];
    let written = join_all(tables.iter().map(|table| table.write(&write))).await;
    let found = join_all(tables.iter().map(|table| table.get(&write.key))).await;
    for at in 0..2 {
        let version = written[at].as_ref().unwrap().modified;
        assert_eq!(found[at].as_ref().unwrap().as_ref().map(|f| f.modified), version);
    }
    assert_ne!(written[0].as_ref().unwrap().modified, written[1].as_ref().unwrap().modified);
    for at in 2..4 {
        assert_eq!(code(&written[at]), Some(Code::TableNotFound), "{at}");
        assert_eq!(found[at], Err(Code::TableNotFound.into()), "{at}");
    }
}

#[tokio::test]
async fn one_bad_row_fails_only_its_own_request() {
    let (url, table) = fixture().await;
    execute(&url, "ALTER TABLE entities ADD CHECK (rk <> 'r7')");
    for (row, outcome) in insert_all(&table, 0..MANY).await.into_iter().enumerate() {
        if row == 7 {
            assert_eq!(outcome, Err(Failure::Fault(Fault::Other)));
        } else {
            assert!(outcome.is_ok(), "{row}: {outcome:?}");
        }
    }
}

#[tokio::test]
async fn a_row_that_somebody_holds_keeps_nobody_else_waiting() {
    let url = fresh_database();
    // A writer that gives up would end before the others if they had waited for it.
    let mut options = patient(&url);
    options.max_connections = 6;
    let table = table(Arc::new(PgStore::connect(options).await.unwrap())).await;
    insert_all(&table, 0..MANY).await;
    let mut holder = PgConnection::connect(&url).await.unwrap();
    holder.execute("BEGIN; SELECT 1 FROM entities WHERE rk = 'r3' FOR UPDATE").await.unwrap();
    let upsert = |n: usize| write(WriteKind::Replace(IfMatch::Absent), "p", &key(n).row, number("N", 1));
    let held = upsert(3);
    let others: Vec<_> = (0..MANY).filter(|n| *n != 3).map(upsert).collect();
    let mut waiting = pin!(table.write(&held));
    let others = others.iter().map(|write| table.write(write));
    tokio::select! {
        biased;
        outcome = &mut waiting => panic!("the row is held, but {outcome:?}"),
        outcomes = join_all(others) => assert!(outcomes.iter().all(Result::is_ok), "{outcomes:?}"),
    }
    holder.execute("ROLLBACK").await.unwrap();
    waiting.await.unwrap();
}

#[tokio::test]
async fn a_cancelled_request_harms_nobody() {
    let (_, table) = fixture().await;
    for round in 0..20_usize {
        let writes: Vec<_> = (0..MANY).map(|n| insert("p", &key(round * MANY + n).row)).collect();
        let mut asked: Vec<_> = writes.iter().map(|write| Box::pin(table.write(write))).collect();
        // All are in the queue; then every other one gives up, at another moment
        // of the statement's life in each round.
        std::future::poll_fn(|context| {
            asked.iter_mut().for_each(|one| assert!(one.as_mut().poll(context).is_pending()));
            Poll::Ready(())
        })
        .await;
        pace_async(Duration::from_micros(150 * round as u64)).await;
        let mut is_kept = false;
        asked.retain(|_| {
            is_kept = !is_kept;
            is_kept
        });
        let outcomes = join_all(asked).await;
        assert!(outcomes.iter().all(Result::is_ok), "{outcomes:?}");
    }
}

#[tokio::test]
async fn a_lost_connection_is_never_reported_as_success_or_as_nothing_done() {
    let (url, table) = fixture().await;
    let mut admin = PgConnection::connect(&url).await.unwrap();
    let kill = "SELECT pg_terminate_backend(pid) FROM pg_stat_activity \
                WHERE datname = current_database() AND pid <> pg_backend_pid()";
    let mut unknown = 0;
    for round in 0..12_usize {
        let rows = round * MANY..(round + 1) * MANY;
        let writing = insert_all(&table, rows.clone());
        let killing = async {
            pace_async(Duration::from_micros(300 * round as u64)).await;
            admin.execute(kill).await.unwrap();
        };
        let (outcomes, ()) = futures_util::future::join(writing, killing).await;
        for (row, outcome) in rows.zip(outcomes) {
            let found = table.get(&key(row)).await.unwrap();
            match outcome {
                Ok(written) => assert_eq!(found.map(|f| f.modified), written.modified, "{row}"),
                Err(Failure::Fault(Fault::Timeout)) => unknown += 1,
                Err(Failure::Fault(Fault::Unavailable)) => assert_eq!(found, None, "{row}"),
                other => panic!("{row}: {other:?}"),
            }
        }
    }
    println!("{unknown} outcomes unknown");
}

#[test]
fn a_lane_that_went_with_its_runtime_is_made_again() {
    let runtime = || tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    let (_, table) = runtime().block_on(fixture());
    for row in 0..3 {
        let outcome = runtime().block_on(insert_all(&table, row..row + 1));
        assert!(outcome[0].is_ok(), "{outcome:?}");
        runtime().block_on(table.get(&key(row))).unwrap().unwrap();
    }
}
