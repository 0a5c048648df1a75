//! A database that allows fewer connections than the server would open.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use futures_util::future::join_all;
use rowhouse_protocol::model::{IfMatch, Key};
use rowhouse_protocol::plan::WriteKind;
use rowhouse_store::postgres::{PgOptions, PgStore};
use rowhouse_store::{Failure, Fault};
use sqlx::{Connection, PgConnection};

use super::contract::{TestTable, everything, insert, number, table, write};
use crate::support::postgres::{count, execute, fresh_database, migrate};
use crate::support::{pace_async, until_async};

const LIMIT: usize = 6;
/// No test waits longer than this for what must happen.
const SAFETY: Duration = Duration::from_secs(120);
const KINDS: usize = 4;
const CLIENTS_OF_A_KIND: usize = 4;
const OPERATIONS: usize = 1000;

/// A database, and the settings of a role that may have few connections to it.
fn limited(role: &str) -> (String, PgOptions) {
    let url = fresh_database();
    migrate(&url);
    let role = format!("{role}_{}", std::process::id());
    execute(
        &url,
        &format!(
            "CREATE ROLE {role} LOGIN PASSWORD 'rowhouse' CONNECTION LIMIT {LIMIT}; \
             GRANT ALL ON ALL TABLES IN SCHEMA public TO {role}; \
             GRANT ALL ON ALL SEQUENCES IN SCHEMA public TO {role}"
        ),
    );
    let rest = url.split_once('@').expect("a user").1;
    let mut options = PgOptions::new(format!("postgres://{role}:rowhouse@{rest}"));
    options.migrate_url = Some(url.clone());
    // A busy machine may take long to open a connection.
    options.acquire_timeout = Duration::from_secs(60);
    (url, options)
}

async fn one(table: &TestTable<Arc<PgStore>>, kind: usize, n: usize) {
    let upsert = |pk: &str, rk: &str| write(WriteKind::Replace(IfMatch::Absent), pk, rk, number("N", 1));
    match kind {
        0 => drop(table.write(&upsert("w", &n.to_string())).await.expect("a write")),
        1 => drop(table.get(&Key::new("p", "r")).await.expect("a point")),
        2 => assert_eq!(table.walk(&everything()).await.len(), 1),
        _ => {
            let group = ["a", "b"].map(|rk| upsert(&format!("g{n}"), rk));
            drop(table.transact(&group).await.expect("a group"));
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn nothing_is_refused_where_connections_are_few() {
    let (_, options) = limited("rowhouse_few");
    for first in 0..KINDS {
        let table = table(Arc::new(PgStore::connect(options.clone()).await.unwrap())).await;
        table.write(&insert("p", "r")).await.unwrap();
        // The first kind has all connections that there are.
        join_all((0..16).map(|n| one(&table, first, n % CLIENTS_OF_A_KIND))).await;
        let done: Arc<[AtomicUsize; KINDS]> = Arc::default();
        let clients = (0..KINDS * CLIENTS_OF_A_KIND).map(|n| {
            let (table, done) = (table.clone(), Arc::clone(&done));
            tokio::spawn(async move {
                let total = || done.iter().map(|count| count.load(Ordering::Relaxed)).sum::<usize>();
                while total() < OPERATIONS {
                    one(&table, n % KINDS, n / KINDS).await;
                    done[n % KINDS].fetch_add(1, Ordering::Relaxed);
                }
            })
        });
        let clients: Vec<_> = clients.collect();
        let ended = tokio::time::timeout(SAFETY, join_all(clients)).await.expect("an end");
        assert!(ended.iter().all(Result::is_ok), "something was refused");
        let counts = done.each_ref().map(|count| count.load(Ordering::Relaxed));
        let share = counts.iter().sum::<usize>() / KINDS;
        let is_fair = |count: &usize| (share / 2..=share * 2).contains(count);
        assert!(counts.iter().all(is_fair), "kind {first} came first: {counts:?}");
        println!("kind {first} came first: {counts:?}");
    }
}

#[tokio::test]
async fn without_any_connection_requests_are_refused_until_there_is_one() {
    let (url, mut options) = limited("rowhouse_none");
    options.acquire_timeout = Duration::from_secs(5);
    let mut others = Vec::new();
    for _ in 0..LIMIT {
        others.push(PgConnection::connect(&options.url).await.unwrap());
    }
    let owner = PgStore::connect(PgOptions::new(&url)).await.unwrap();
    let table = table(&owner).await;
    let key = Key::new("p", "r");
    let store = PgStore::connect(options.clone()).await.unwrap();
    assert_eq!(table.through(&store).get(&key).await, Err(Failure::Fault(Fault::NotBegun)));
    drop(store);
    // A busy machine may take long to open the connection that is free.
    options.acquire_timeout = Duration::from_secs(60);
    let store = PgStore::connect(options).await.unwrap();
    let table = table.through(&store);
    let get = table.get(&key);
    let free = async {
        pace_async(Duration::from_millis(50)).await;
        others.pop().unwrap().close().await.unwrap();
    };
    let (served, ()) = futures_util::future::join(get, free).await;
    assert_eq!(served, Ok(None));
}

#[tokio::test]
async fn connections_that_rest_are_closed_and_none_lives_for_ever() {
    const SESSIONS: &str = "SELECT count(*) FROM pg_stat_activity WHERE \
         application_name = 'rowhouse' AND datname = current_database()";
    let url = fresh_database();
    let mut options = PgOptions::new(&url);
    options.idle_timeout = Duration::from_millis(1500);
    let store = PgStore::connect(options.clone()).await.unwrap();
    let table = table(&store).await;
    join_all((0..16).map(|_| table.all())).await;
    // The lanes keep theirs; on a busy machine one of them may be about to open it again.
    until_async("idle sessions go", async || count(&url, SESSIONS) <= 2).await;
    let table = table.through(());
    drop(store);
    until_async("all sessions go", async || count(&url, SESSIONS) == 0).await;
    options.max_lifetime = Duration::from_millis(300);
    let store = PgStore::connect(options).await.unwrap();
    let table = TestTable { store: &store, account: table.account, name: table.name };
    table.all().await;
    until_async("all sessions go", async || count(&url, SESSIONS) == 0).await;
    table.all().await;
}
