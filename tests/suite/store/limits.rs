//! A database that allows fewer connections than the server would open.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use futures_util::future::join_all;
use rowhouse::protocol::model::{IfMatch, Key, TableName};
use rowhouse::protocol::plan::{Span, WriteKind};
use rowhouse::store::postgres::{PgOptions, PgStore};
use rowhouse::store::{Entities, Failure, Fault};
use sqlx::{AssertSqlSafe, Connection, Executor, PgConnection};

use super::contract::{insert, now, number, scan, table, walk, write};
use super::postgres::patient;
use crate::support::postgres::{LOCK_WAITERS, execute, fresh_database, migrate, text};
use crate::support::{pace_async, until_async};

const LIMIT: usize = 6;
/// No test waits longer than this for what must happen.
const SAFETY: Duration = Duration::from_secs(120);
const KINDS: usize = 4;
const CLIENTS_OF_A_KIND: usize = 4;
const OPERATIONS: usize = 2000;

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

async fn one(store: &PgStore, account: &str, table: &TableName, kind: usize, n: usize) {
    match kind {
        0 => {
            let upsert = write(WriteKind::Replace(IfMatch::Absent), "w", &n.to_string(), number("N", 1));
            store.write(table.in_account(account), &upsert, now()).await.map(drop).expect("a write");
        }
        1 => store.get(table.in_account(account), &Key::new("p", "r")).await.map(drop).expect("a point"),
        2 => assert_eq!(walk(store, account, table, &scan(vec![Span::everything()])).await.len(), 1),
        _ => {
            let upsert =
                |row: &str| write(WriteKind::Replace(IfMatch::Absent), &format!("g{n}"), row, number("N", 1));
            let group = [upsert("a"), upsert("b")];
            store.transact(table.in_account(account), &group, now()).await.map(drop).expect("a group");
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn nothing_is_refused_where_connections_are_few() {
    let (_, options) = limited("rowhouse_few");
    for first in 0..KINDS {
        let store = Arc::new(PgStore::connect(options.clone()).await.unwrap());
        let (account, table) = table(&*store).await;
        store.write(table.in_account(&account), &insert("p", "r"), now()).await.unwrap();
        // The first kind has all connections that there are.
        join_all((0..16).map(|n| one(&store, &account, &table, first, n % CLIENTS_OF_A_KIND))).await;
        let done: Arc<[AtomicUsize; KINDS]> = Arc::default();
        let clients = (0..KINDS * CLIENTS_OF_A_KIND).map(|n| {
            let (store, done) = (Arc::clone(&store), Arc::clone(&done));
            let (account, table) = (account.clone(), table.clone());
            tokio::spawn(async move {
                let total = || done.iter().map(|count| count.load(Ordering::Relaxed)).sum::<usize>();
                while total() < OPERATIONS {
                    one(&store, &account, &table, n % KINDS, n / KINDS).await;
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
    let (account, table) = table(&owner).await;
    let store = PgStore::connect(options.clone()).await.unwrap();
    let key = Key::new("p", "r");
    let refused = store.get(table.in_account(&account), &key).await;
    assert_eq!(refused, Err(Failure::Fault(Fault::NotBegun)));
    drop(store);
    // A busy machine may take long to open the connection that is free.
    options.acquire_timeout = Duration::from_secs(60);
    let store = PgStore::connect(options).await.unwrap();
    let get = store.get(table.in_account(&account), &key);
    let free = async {
        pace_async(Duration::from_millis(50)).await;
        others.pop().unwrap().close().await.unwrap();
    };
    let (served, ()) = futures_util::future::join(get, free).await;
    assert_eq!(served, Ok(None));
}

#[tokio::test]
async fn connections_that_rest_are_closed_and_none_lives_for_ever() {
    const SESSIONS: &str = "SELECT count(*)::text FROM pg_stat_activity WHERE \
         application_name = 'rowhouse' AND datname = current_database()";
    let url = fresh_database();
    let mut options = PgOptions::new(&url);
    options.idle_timeout = Duration::from_millis(1500);
    let store = PgStore::connect(options.clone()).await.unwrap();
    let (account, table) = table(&store).await;
    let everything = scan(vec![Span::everything()]);
    join_all((0..16).map(|_| walk(&store, &account, &table, &everything))).await;
    // The lanes keep theirs; on a busy machine one of them may be about to open it again.
    until_async("idle sessions go", async || ["0", "1", "2"].contains(&text(&url, SESSIONS).as_str())).await;
    drop(store);
    until_async("all sessions go", async || text(&url, SESSIONS) == "0").await;
    options.max_lifetime = Duration::from_millis(300);
    let store = PgStore::connect(options).await.unwrap();
    walk(&store, &account, &table, &everything).await;
    until_async("all sessions go", async || text(&url, SESSIONS) == "0").await;
    walk(&store, &account, &table, &everything).await;
}

/// Writers of a held row do not take the connections that pages need.
#[tokio::test]
async fn writers_of_a_held_row_leave_connections_to_others() {
    let url = fresh_database();
    let mut options = patient(&url);
    options.max_connections = 4;
    let store = PgStore::connect(options).await.unwrap();
    let (account, table) = table(&store).await;
    store.write(table.in_account(&account), &insert("p", "held"), now()).await.unwrap();
    let mut holder = PgConnection::connect(&url).await.unwrap();
    let hold = "BEGIN; SELECT 1 FROM entities WHERE rk = 'held' FOR UPDATE";
    holder.execute(sqlx::raw_sql(AssertSqlSafe(hold.to_owned()))).await.unwrap();
    let upsert = write(WriteKind::Replace(IfMatch::Absent), "p", "held", number("N", 2));
    let group = [upsert.clone(), insert("p", "beside")];
    let mut writers: Vec<std::pin::Pin<Box<dyn Future<Output = ()> + '_>>> = Vec::new();
    for _ in 0..20 {
        // They may be refused while the row is held, but go on.
        writers.push(Box::pin(async {
            while store.write(table.in_account(&account), &upsert, now()).await.is_err() {}
        }));
        writers.push(Box::pin(async {
            while store.transact(table.in_account(&account), &group, now()).await.is_err() {}
        }));
    }
    let others = async {
        until_async("writers that wait", async || text(&url, LOCK_WAITERS) != "0").await;
        for n in 0..20 {
            walk(&store, &account, &table, &scan(vec![Span::everything()])).await;
            store.write(table.in_account(&account), &insert("q", &n.to_string()), now()).await.unwrap();
        }
    };
    tokio::select! {
        biased;
        _ = join_all(writers) => panic!("the row is held"),
        () = others => {}
    }
}
