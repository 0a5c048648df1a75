//! Lost connections, abandoned work and a database that is busy or away.

use std::time::{Duration, Instant};

use futures_util::future::join_all;
use rowhouse::protocol::model::{IfMatch, Key};
use rowhouse::protocol::plan::WriteKind;
use rowhouse::store::postgres::{PgOptions, PgStore, StartError};
use rowhouse::store::{Entities, Failure, Fault};
use sqlx::{AssertSqlSafe, Connection, Executor, PgConnection};

use super::contract::{insert, now, number, table, write};
use super::postgres::open;
use crate::support::postgres::fresh_database;
use crate::support::until_async;

async fn session(url: &str) -> PgConnection {
    PgConnection::connect(url).await.unwrap()
}

async fn run(connection: &mut PgConnection, text: &str) {
    connection.execute(sqlx::raw_sql(AssertSqlSafe(text.to_owned()))).await.unwrap();
}

async fn impatient(url: &str, connections: u32) -> PgStore {
    let mut options = PgOptions::new(url);
    options.max_connections = connections;
    options.acquire_timeout = Duration::from_secs(3);
    options.operation_timeout = Duration::from_secs(9);
    PgStore::connect(options).await.unwrap()
}

#[tokio::test]
async fn dropped_futures_leave_the_pool_healthy() {
    let url = fresh_database();
    let store = open(&url, 1).await;
    let (account, table) = table(&store).await;
    let key = Key::new("p", "r");
    store.write(table.in_account(&account), &insert("p", "r"), now()).await.unwrap();
    let upsert = write(WriteKind::Replace(IfMatch::Absent), "p", "r", number("N", 2));
    for micros in 0..120 {
        let limit = Duration::from_micros(micros * 25);
        let group = [upsert.clone(), insert("p", &format!("x{micros}"))];
        let _ = tokio::time::timeout(limit, store.get(table.in_account(&account), &key)).await;
        let _ = tokio::time::timeout(limit, store.write(table.in_account(&account), &upsert, now())).await;
        let _ = tokio::time::timeout(limit, store.transact(table.in_account(&account), &group, now())).await;
        let found = store.get(table.in_account(&account), &key).await.unwrap();
        assert_eq!(found.map(|row| row.key), Some(key.clone()));
    }
    // Every slot is there again and no lock was left behind.
    let all = join_all((0..12).map(|_| store.write(table.in_account(&account), &upsert, now()))).await;
    assert!(all.iter().all(Result::is_ok), "{all:?}");
}

/// Waits until the database has noticed that nobody waits for statements of the store.
async fn until_idle(watcher: &mut PgConnection) {
    let busy = "SELECT count(*) FROM pg_stat_activity WHERE application_name = 'rowhouse' \
                AND datname = current_database() AND state <> 'idle'";
    until_async("the end of abandoned sessions", async || {
        sqlx::query_scalar::<_, i64>(busy).fetch_one(&mut *watcher).await.unwrap() == 0
    })
    .await;
}

/// They wait for a row that somebody holds, so that the database has no reason to
/// notice that nobody waits for them.
#[tokio::test]
async fn dropped_futures_leave_no_sessions_beyond_the_limit() {
    const LIMIT: u32 = 3;
    /// How long the place of an abandoned session is not given to another one.
    const HELD: Duration = Duration::from_millis(500);
    let url = fresh_database();
    let mut options = PgOptions::new(&url);
    options.max_connections = LIMIT;
    options.coalesce = false;
    let store = PgStore::connect(options).await.unwrap();
    let (account, table) = table(&store).await;
    store.write(table.in_account(&account), &insert("p", "r"), now()).await.unwrap();
    let (mut other, mut watcher) = (session(&url).await, session(&url).await);
    let sessions = "SELECT count(*) FROM pg_stat_activity WHERE application_name = 'rowhouse' \
                    AND datname = current_database() AND wait_event_type = 'Lock'";
    run(&mut other, "BEGIN; SELECT * FROM entities FOR UPDATE").await;
    let held = [write(WriteKind::Replace(IfMatch::Absent), "p", "r", number("N", 2)), insert("p", "s")];
    for _ in 0..5 {
        let begun = Instant::now();
        for _ in 0..5 {
            let groups = (0..LIMIT).map(|_| store.transact(table.in_account(&account), &held, now()));
            assert!(tokio::time::timeout(Duration::from_millis(100), join_all(groups)).await.is_err());
            let sessions: i64 = sqlx::query_scalar(sessions).fetch_one(&mut watcher).await.unwrap();
            // Those that the database has not noticed by then are its own.
            assert!(sessions <= LIMIT.into() || begun.elapsed() >= HELD, "{sessions} sessions");
        }
        until_idle(&mut watcher).await;
    }
    // The row is still held.
    let free = [insert("q", "r"), insert("q", "s")];
    join_all((0..3).map(|_| store.get(table.in_account(&account), &held[0].key))).await.into_iter().for_each(
        |row| {
            row.unwrap();
        },
    );
    store.transact(table.in_account(&account), &free, now()).await.unwrap();
    run(&mut other, "ROLLBACK").await;
    store.transact(table.in_account(&account), &held, now()).await.unwrap();
}

#[tokio::test]
async fn killed_sessions_cost_at_most_one_answer_each() {
    let url = fresh_database();
    let store = open(&url, 1).await;
    let (account, table) = table(&store).await;
    let key = Key::new("p", "r");
    let upsert = write(WriteKind::Replace(IfMatch::Absent), "p", "r", number("N", 2));
    let mut admin = session(&url).await;
    let kill = "SELECT pg_terminate_backend(pid) FROM pg_stat_activity \
                WHERE datname = current_database() AND pid <> pg_backend_pid()";
    for _ in 0..3 {
        assert!(
            join_all((0..6).map(|_| store.write(table.in_account(&account), &upsert, now())))
                .await
                .iter()
                .all(Result::is_ok)
        );
        run(&mut admin, kill).await;
        // Nothing can have been done by a read, so it is simply asked again.
        store.get(table.in_account(&account), &key).await.unwrap();
        run(&mut admin, kill).await;
        let lost = store.write(table.in_account(&account), &upsert, now()).await;
        assert!(matches!(lost, Ok(_) | Err(Failure::Fault(Fault::Timeout))), "{lost:?}");
        store.write(table.in_account(&account), &upsert, now()).await.unwrap();
        // One loss makes all other connections doubtful, however short they rested.
        run(&mut admin, kill).await;
        store.get(table.in_account(&account), &key).await.unwrap();
        store.write(table.in_account(&account), &upsert, now()).await.unwrap();
    }
}

#[tokio::test]
async fn a_row_that_is_locked_for_too_long_is_busy() {
    let url = fresh_database();
    let store = impatient(&url, 2).await;
    let (account, table) = table(&store).await;
    store.write(table.in_account(&account), &insert("p", "r"), now()).await.unwrap();
    let mut blocker = session(&url).await;
    run(&mut blocker, "BEGIN; SELECT * FROM entities FOR UPDATE").await;
    let upsert = write(WriteKind::Replace(IfMatch::Absent), "p", "r", number("N", 2));
    let stuck = store.write(table.in_account(&account), &upsert, now()).await;
    assert_eq!(stuck, Err(Failure::Fault(Fault::Busy)));
    let waiting = (0..3).map(|_| store.write(table.in_account(&account), &upsert, now()));
    let waiting = join_all(waiting).await;
    assert!(waiting.iter().all(|result| *result == Err(Failure::Fault(Fault::Busy))), "{waiting:?}");
    store.get(table.in_account(&account), &Key::new("p", "r")).await.unwrap();
    run(&mut blocker, "ROLLBACK").await;
    store.write(table.in_account(&account), &upsert, now()).await.unwrap();
}

#[tokio::test]
async fn settings_that_cannot_work_are_refused_at_start() {
    let start = async |change: fn(&mut PgOptions)| {
        let mut options = PgOptions::new("postgres://nobody@127.0.0.1:1/none");
        options.acquire_timeout = Duration::from_secs(2);
        change(&mut options);
        PgStore::connect(options).await.err()
    };
    assert!(matches!(start(|_| {}).await, Some(StartError::Connect(_))));
    let deaf = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let mut options = PgOptions::new(format!("postgres://nobody@{}/none", deaf.local_addr().unwrap()));
    options.acquire_timeout = Duration::from_millis(200);
    assert!(matches!(PgStore::connect(options).await.err(), Some(StartError::ConnectTimeout(_))));
    assert!(matches!(start(|o| o.spread = 0).await, Some(StartError::Options(_))));
    assert!(matches!(start(|o| o.max_connections = 0).await, Some(StartError::Options(_))));
    assert!(matches!(start(|o| o.url = "nonsense".into()).await, Some(StartError::Url(_))));
}
