//! Lost connections, abandoned work and a database that is busy or away.

use std::time::{Duration, Instant};

use futures_util::future::join_all;
use rowhouse_protocol::model::{IfMatch, Key};
use rowhouse_protocol::plan::WriteKind;
use rowhouse_store::postgres::{PgOptions, PgStore, StartError};
use rowhouse_store::{Failure, Fault};
use sqlx::{Connection, Executor, PgConnection};

use super::contract::{insert, number, table, write};
use super::postgres::open;
use crate::support::postgres::{count, fresh_database};
use crate::support::until_async;

async fn session(url: &str) -> PgConnection {
    PgConnection::connect(url).await.unwrap()
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
    let table = table(&store).await;
    let key = Key::new("p", "r");
    table.write(&insert("p", "r")).await.unwrap();
    let upsert = write(WriteKind::Replace(IfMatch::Absent), "p", "r", number("N", 2));
    for micros in 0..120 {
        let limit = Duration::from_micros(micros * 25);
        let group = [upsert.clone(), insert("p", &format!("x{micros}"))];
        let _ = tokio::time::timeout(limit, table.get(&key)).await;
        let _ = tokio::time::timeout(limit, table.write(&upsert)).await;
        let _ = tokio::time::timeout(limit, table.transact(&group)).await;
        let found = table.get(&key).await.unwrap();
        assert_eq!(found.map(|row| row.key), Some(key.clone()));
    }
    // Every slot is there again and no lock was left behind.
    let all = join_all((0..12).map(|_| table.write(&upsert))).await;
    assert!(all.iter().all(Result::is_ok), "{all:?}");
}

/// Waits until the database has noticed that nobody waits for statements of the store.
async fn until_idle(url: &str) {
    let busy = "SELECT count(*) FROM pg_stat_activity WHERE application_name = 'rowhouse' \
                AND datname = current_database() AND state <> 'idle'";
    until_async("the end of abandoned sessions", async || count(url, busy) == 0).await;
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
    let table = table(&store).await;
    table.write(&insert("p", "r")).await.unwrap();
    let (mut other, mut watcher) = (session(&url).await, session(&url).await);
    let sessions = "SELECT count(*) FROM pg_stat_activity WHERE application_name = 'rowhouse' \
                    AND datname = current_database() AND wait_event_type = 'Lock'";
    other.execute("BEGIN; SELECT * FROM entities FOR UPDATE").await.unwrap();
    let held = [write(WriteKind::Replace(IfMatch::Absent), "p", "r", number("N", 2)), insert("p", "s")];
    for _ in 0..5 {
        let begun = Instant::now();
        for _ in 0..5 {
            let groups = (0..LIMIT).map(|_| table.transact(&held));
            assert!(tokio::time::timeout(Duration::from_millis(100), join_all(groups)).await.is_err());
            let sessions: i64 = sqlx::query_scalar(sessions).fetch_one(&mut watcher).await.unwrap();
            // Those that the database has not noticed by then are its own.
            assert!(sessions <= LIMIT.into() || begun.elapsed() >= HELD, "{sessions} sessions");
        }
        until_idle(&url).await;
    }
    // The row is still held.
    let free = [insert("q", "r"), insert("q", "s")];
    let read = join_all((0..3).map(|_| table.get(&held[0].key))).await;
    assert!(read.iter().all(Result::is_ok), "{read:?}");
    table.transact(&free).await.unwrap();
    other.execute("ROLLBACK").await.unwrap();
    table.transact(&held).await.unwrap();
}

#[tokio::test]
async fn killed_sessions_cost_at_most_one_answer_each() {
    let url = fresh_database();
    let store = open(&url, 1).await;
    let table = table(&store).await;
    let key = Key::new("p", "r");
    let upsert = write(WriteKind::Replace(IfMatch::Absent), "p", "r", number("N", 2));
    let mut admin = session(&url).await;
    let kill = "SELECT pg_terminate_backend(pid) FROM pg_stat_activity \
                WHERE datname = current_database() AND pid <> pg_backend_pid()";
    for _ in 0..3 {
        let written = join_all((0..6).map(|_| table.write(&upsert))).await;
        assert!(written.iter().all(Result::is_ok), "{written:?}");
        admin.execute(kill).await.unwrap();
        // Nothing can have been done by a read, so it is simply asked again.
        table.get(&key).await.unwrap();
        admin.execute(kill).await.unwrap();
        let lost = table.write(&upsert).await;
        assert!(matches!(lost, Ok(_) | Err(Failure::Fault(Fault::Timeout))), "{lost:?}");
        table.write(&upsert).await.unwrap();
        // One loss makes all other connections doubtful, however short they rested.
        admin.execute(kill).await.unwrap();
        table.get(&key).await.unwrap();
        table.write(&upsert).await.unwrap();
    }
}

#[tokio::test]
async fn a_row_that_is_locked_for_too_long_is_busy() {
    let url = fresh_database();
    let store = impatient(&url, 2).await;
    let table = table(&store).await;
    table.write(&insert("p", "r")).await.unwrap();
    let mut blocker = session(&url).await;
    blocker.execute("BEGIN; SELECT * FROM entities FOR UPDATE").await.unwrap();
    let upsert = write(WriteKind::Replace(IfMatch::Absent), "p", "r", number("N", 2));
    assert_eq!(table.write(&upsert).await, Err(Failure::Fault(Fault::Busy)));
    let waiting = join_all((0..3).map(|_| table.write(&upsert))).await;
    assert!(waiting.iter().all(|result| *result == Err(Failure::Fault(Fault::Busy))), "{waiting:?}");
    table.get(&Key::new("p", "r")).await.unwrap();
    blocker.execute("ROLLBACK").await.unwrap();
    table.write(&upsert).await.unwrap();
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
