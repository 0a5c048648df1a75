//! Requests that share a statement keep their outcomes apart.

use std::future::Future;
use std::pin::pin;
use std::task::Poll;
use std::time::Duration;

use futures_util::future::join_all;
use rowhouse::error::Code;
use rowhouse::protocol::model::{IfMatch, Key, TableName, Ticks};
use rowhouse::protocol::plan::{WriteKind, Written};
use rowhouse::store::postgres::PgStore;
use rowhouse::store::{Entities, Failure, Fault, StoreResult, Tables};
use sqlx::{AssertSqlSafe, Connection, Executor, PgConnection};

use super::contract::{insert, name, now, number, table, write};
use super::postgres::{open, patient};
use crate::support::pace_async;
use crate::support::postgres::fresh_database;

/// Requests that are asked for at once; on one thread they meet in one lane.
const MANY: usize = 40;

async fn run(connection: &mut PgConnection, text: &str) {
    connection.execute(sqlx::raw_sql(AssertSqlSafe(text.to_owned()))).await.unwrap();
}

async fn fixture() -> (String, PgStore, String, TableName) {
    let url = fresh_database();
    let store = open(&url, 1).await;
    let (account, table) = table(&store).await;
    (url, store, account, table)
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

async fn insert_all(
    store: &PgStore,
    account: &str,
    table: &TableName,
    rows: impl Iterator<Item = usize>,
) -> Vec<StoreResult<Written>> {
    let writes: Vec<_> = rows.map(|row| insert("p", &key(row).row)).collect();
    join_all(writes.iter().map(|write| store.write(table.in_account(account), write, now()))).await
}

/// How many statements of the lanes a server has seen, told by their text.
async fn statements_seen(url: &str, form: &str) -> i64 {
    let mut connection = PgConnection::connect(url).await.unwrap();
    let query = "SELECT count(*) FROM pg_stat_activity \
                 WHERE datname = current_database() AND query LIKE $1 AND pid <> pg_backend_pid()";
    sqlx::query_scalar(query).bind(form).fetch_one(&mut connection).await.unwrap()
}

#[tokio::test]
async fn requests_of_one_moment_share_a_statement() {
    let (url, store, account, table) = fixture().await;
    let inserted = insert_all(&store, &account, &table, 0..MANY).await;
    assert!(inserted.iter().all(Result::is_ok), "{inserted:?}");
    assert_eq!(statements_seen(&url, "INSERT INTO entities%unnest%").await, 1);
    let keys: Vec<Key> = (0..MANY).map(key).collect();
    let found = join_all(keys.iter().map(|key| store.get(table.in_account(&account), key))).await;
    for (found, (written, key)) in found.into_iter().zip(inserted.into_iter().zip(keys)) {
        let found = found.unwrap().unwrap();
        assert_eq!((found.key, Some(found.modified)), (key, written.unwrap().modified));
    }
    assert_eq!(statements_seen(&url, "SELECT u.n%unnest%").await, 1);
}

#[tokio::test]
async fn one_conflict_fails_only_its_own_request() {
    let (_, store, account, table) = fixture().await;
    insert_all(&store, &account, &table, (0..MANY).step_by(4)).await;
    for (row, outcome) in insert_all(&store, &account, &table, 0..MANY).await.iter().enumerate() {
        if row % 4 == 0 {
            assert_eq!(code(outcome), Some(Code::EntityAlreadyExists), "{row}");
        } else {
            assert!(outcome.is_ok(), "{row}: {outcome:?}");
        }
    }
}

#[tokio::test]
async fn of_equal_inserts_in_one_round_one_wins() {
    let (_, store, account, table) = fixture().await;
    let outcomes = insert_all(&store, &account, &table, (0..MANY).map(|n| n % 5)).await;
    let won = outcomes.iter().filter(|outcome| outcome.is_ok()).count();
    let refused = outcomes.iter().filter(|o| code(o) == Some(Code::EntityAlreadyExists)).count();
    assert_eq!((won, refused), (5, MANY - 5));
}

#[tokio::test]
async fn each_guard_is_its_own() {
    let (_, store, account, table) = fixture().await;
    let stored = insert_all(&store, &account, &table, 0..MANY).await;
    let versions: Vec<Ticks> = stored.into_iter().map(|s| s.unwrap().modified.unwrap()).collect();
    // Right version, wrong version, no row; updates and deletes side by side.
    let writes: Vec<_> = (0..MANY)
        .map(|n| {
            let wanted = if n % 3 == 1 { versions[n].next() } else { versions[n] };
            let condition = IfMatch::Version(Some(wanted));
            let row = key(if n % 3 == 2 { n + MANY } else { n }).row;
            if n % 2 == 0 {
                write(WriteKind::Replace(condition), "p", &row, number("N", 7))
            } else {
                write(WriteKind::Delete(condition), "p", &row, vec![])
            }
        })
        .collect();
    let outcomes = join_all(writes.iter().map(|w| store.write(table.in_account(&account), w, now()))).await;
    for (n, outcome) in outcomes.iter().enumerate() {
        let found = store.get(table.in_account(&account), &key(n)).await.unwrap();
        match n % 3 {
            0 => {
                let modified = outcome.as_ref().unwrap().modified;
                assert_eq!(found.map(|f| f.modified), modified, "{n}");
                assert_eq!(modified.is_some(), n % 2 == 0, "{n}");
            }
            1 => {
                assert_eq!(code(outcome), Some(Code::UpdateConditionNotSatisfied), "{n}");
                assert_eq!(found.unwrap().modified, versions[n], "{n}");
            }
            _ => assert_eq!(code(outcome), Some(Code::ResourceNotFound), "{n}"),
        }
    }
}

#[tokio::test]
async fn upserts_and_merges_of_one_round_each_learn_their_version() {
    let (_, store, account, table) = fixture().await;
    insert_all(&store, &account, &table, 0..MANY / 2).await;
    for kind in [WriteKind::Replace(IfMatch::Absent), WriteKind::Merge(IfMatch::Absent)] {
        let writes: Vec<_> = (0..MANY).map(|n| write(kind, "p", &key(n).row, number("M", 3))).collect();
        let outcomes =
            join_all(writes.iter().map(|w| store.write(table.in_account(&account), w, now()))).await;
        for (n, outcome) in outcomes.into_iter().enumerate() {
            let found = store.get(table.in_account(&account), &key(n)).await.unwrap();
            assert_eq!(found.map(|f| f.modified), outcome.unwrap().modified, "{n}");
        }
    }
}

#[tokio::test]
async fn tables_do_not_mix() {
    let (_, store, account, table) = fixture().await;
    let (other, gone) = (name("Other"), name("Gone"));
    store.create_table(other.in_account(&account), now()).await.unwrap();
    store.create_table(gone.in_account(&account), now()).await.unwrap();
    // Remembered by this store, removed by another.
    store.get(gone.in_account(&account), &key(0)).await.unwrap();
    let write = insert("p", "r");
    let tables = [&table, &other, &gone, &name("Never")];
    store.delete_table(gone.in_account(&account), now()).await.unwrap();
    let written = join_all(tables.iter().map(|t| store.write(t.in_account(&account), &write, now()))).await;
    let found = Key::new("p", "r");
    let found = join_all(tables.iter().map(|t| store.get(t.in_account(&account), &found))).await;
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
    let (url, store, account, table) = fixture().await;
    let mut admin = PgConnection::connect(&url).await.unwrap();
    run(&mut admin, "ALTER TABLE entities ADD CHECK (rk <> 'r7')").await;
    for (row, outcome) in insert_all(&store, &account, &table, 0..MANY).await.into_iter().enumerate() {
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
    let store = PgStore::connect(options).await.unwrap();
    let (account, table) = table(&store).await;
    insert_all(&store, &account, &table, 0..MANY).await;
    let mut holder = PgConnection::connect(&url).await.unwrap();
    run(&mut holder, "BEGIN; SELECT 1 FROM entities WHERE rk = 'r3' FOR UPDATE").await;
    let upsert = |n: usize| write(WriteKind::Replace(IfMatch::Absent), "p", &key(n).row, number("N", 1));
    let held = upsert(3);
    let others: Vec<_> = (0..MANY).filter(|n| *n != 3).map(upsert).collect();
    let mut waiting = pin!(store.write(table.in_account(&account), &held, now()));
    let others = others.iter().map(|write| store.write(table.in_account(&account), write, now()));
    tokio::select! {
        biased;
        outcome = &mut waiting => panic!("the row is held, but {outcome:?}"),
        outcomes = join_all(others) => assert!(outcomes.iter().all(Result::is_ok), "{outcomes:?}"),
    }
    run(&mut holder, "ROLLBACK").await;
    waiting.await.unwrap();
}

#[tokio::test]
async fn a_cancelled_request_harms_nobody() {
    let (_, store, account, table) = fixture().await;
    for round in 0..20_usize {
        let rows: Vec<usize> = (0..MANY).map(|n| round * MANY + n).collect();
        let writes: Vec<_> = rows.iter().map(|row| insert("p", &key(*row).row)).collect();
        let mut asked: Vec<_> = writes
            .iter()
            .map(|write| Box::pin(store.write(table.in_account(&account), write, now())))
            .collect();
        // All are in the queue; then every other one gives up, at another moment
        // of the statement's life in each round.
        std::future::poll_fn(|context| {
            asked.iter_mut().for_each(|one| assert!(one.as_mut().poll(context).is_pending()));
            Poll::Ready(())
        })
        .await;
        pace_async(Duration::from_micros(150 * round as u64)).await;
        let mut kept = Vec::new();
        for (n, one) in asked.into_iter().enumerate() {
            if n % 2 == 0 {
                kept.push(one);
            }
        }
        let outcomes = join_all(kept).await;
        assert!(outcomes.iter().all(Result::is_ok), "{outcomes:?}");
    }
}

#[tokio::test]
async fn a_lost_connection_is_never_reported_as_success_or_as_nothing_done() {
    let (url, store, account, table) = fixture().await;
    let mut admin = PgConnection::connect(&url).await.unwrap();
    let kill = "SELECT pg_terminate_backend(pid) FROM pg_stat_activity \
                WHERE datname = current_database() AND pid <> pg_backend_pid()";
    let mut unknown = 0;
    for round in 0..12_usize {
        let rows = round * MANY..(round + 1) * MANY;
        let writing = insert_all(&store, &account, &table, rows.clone());
        let killing = async {
            pace_async(Duration::from_micros(300 * round as u64)).await;
            run(&mut admin, kill).await;
        };
        let (outcomes, ()) = futures_util::future::join(writing, killing).await;
        for (row, outcome) in rows.zip(outcomes) {
            let found = store.get(table.in_account(&account), &key(row)).await.unwrap();
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
    let (_, store, account, table) = runtime().block_on(fixture());
    for row in 0..3 {
        let outcome = runtime().block_on(insert_all(&store, &account, &table, row..row + 1));
        assert!(outcome[0].is_ok(), "{outcome:?}");
        runtime()
            .block_on(async { store.get(table.in_account(&account), &key(row)).await.unwrap().unwrap() });
    }
}
