//! The contract on plain and on hash-partitioned tables, and what only several
//! replicas over one database can show.

use std::net::TcpListener;
use std::sync::{Arc, LazyLock};
use std::time::Duration;

use crate::support::store::AnyStore;
use rowhouse::error::Code;
use rowhouse::protocol::model::{EdmValue, IfMatch, Key, TableName, Ticks};
use rowhouse::protocol::plan::index::IndexKind;
use rowhouse::protocol::plan::scan::MAX_TIME;
use rowhouse::protocol::plan::{Span, TableScan, WriteKind};
use rowhouse::store::postgres::{PgOptions, PgStore};
use rowhouse::store::{
    BuiltIndex, CountPosition, Entities, Expiry, ExpiryRule, Failure, Fault, Indexes, NewIndex, Tables,
    Totals, Upkeep,
};
use sqlx::{Connection, PgConnection};

use super::contract::{
    account, contract, fill, insert, name, now, number, refusal, scan, table, walk, write,
};
use super::pages::{fill_large, is_any_of};
use crate::support::postgres::{execute, fresh_database, migrate, named_programs, partition_entities, text};
use crate::support::until_async;

static PLAIN_URL: LazyLock<String> = LazyLock::new(|| {
    let url = fresh_database();
    migrate(&url);
    url
});
static PARTITIONED_URL: LazyLock<String> = LazyLock::new(|| {
    let url = fresh_database();
    partition_entities(&url);
    url
});

/// A migrated database that tests share.
pub fn plain_url() -> &'static str {
    &PLAIN_URL
}

/// Its hash-partitioned twin.
pub fn partitioned_url() -> &'static str {
    &PARTITIONED_URL
}

/// A store over a database, with few connections.
pub async fn open(url: &str, spread: u16) -> PgStore {
    let mut options = PgOptions::new(url);
    options.max_connections = 6;
    options.spread = spread;
    // A busy machine may take long to open a connection.
    options.acquire_timeout = Duration::from_secs(60);
    PgStore::connect(options).await.expect("a store")
}

/// Lets whoever needs no locked row wait long for a connection on a slow machine, yet not as long as the
/// writers of such a row wait for its lock.
pub fn patient(url: &str) -> PgOptions {
    let mut options = PgOptions::new(url);
    options.acquire_timeout = Duration::from_secs(30);
    options.operation_timeout = Duration::from_secs(120);
    options
}

async fn plain() -> PgStore {
    open(plain_url(), 1).await
}

async fn plain_alone() -> PgStore {
    let mut options = PgOptions::new(plain_url());
    options.max_connections = 6;
    options.coalesce = false;
    PgStore::connect(options).await.expect("a store")
}

async fn plain_spread() -> PgStore {
    open(plain_url(), 16).await
}

async fn partitioned() -> PgStore {
    open(partitioned_url(), 1).await
}

async fn partitioned_spread() -> PgStore {
    open(partitioned_url(), 16).await
}

contract!(on_plain_tables, super::plain);
contract!(on_plain_tables_with_a_statement_a_request, super::plain_alone);
contract!(on_plain_tables_with_spread, super::plain_spread);
contract!(on_hash_partitions, super::partitioned);
contract!(on_hash_partitions_with_spread, super::partitioned_spread);

/// Or `scripts/test --postgres VERSION` would test another one.
#[test]
fn the_server_is_the_one_whose_programs_are_named() {
    let Some(folder) = named_programs() else { return };
    let said =
        std::process::Command::new(folder.join("postgres")).arg("--version").output().expect("it runs");
    let said = String::from_utf8(said.stdout).expect("text");
    let version = text(plain_url(), "SELECT current_setting('server_version')");
    assert!(
        said.trim_end().starts_with(&format!("postgres (PostgreSQL) {version}")),
        "{said} is not {version}"
    );
}

#[tokio::test]
async fn replicas_see_each_others_tables_come_and_go() {
    let (here, there) = (open(plain_url(), 1).await, open(plain_url(), 16).await);
    let (account, table) = (account(), name("Shared"));
    let key = Key::new("p", "r");
    let everything = scan(vec![Span::everything()]);
    here.create_table(table.in_account(&account), now()).await.unwrap();
    let upsert = write(WriteKind::Replace(IfMatch::Absent), "p", "r", number("N", 1));
    let merge = write(WriteKind::Merge(IfMatch::Any), "p", "r", number("M", 1));
    for round in 0..4 {
        // Both remember the table, then one of them replaces it.
        let (one, other) = if round % 2 == 0 { (&here, &there) } else { (&there, &here) };
        one.write(table.in_account(&account), &upsert, now()).await.unwrap();
        assert!(other.get(table.in_account(&account), &key).await.unwrap().is_some());
        one.delete_table(table.in_account(&account), now()).await.unwrap();
        assert_eq!(refusal(other.get(table.in_account(&account), &key).await), Code::TableNotFound);
        one.create_table(table.in_account(&account), now()).await.unwrap();
        assert_eq!(other.get(table.in_account(&account), &key).await.unwrap(), None);

        one.delete_table(table.in_account(&account), now()).await.unwrap();
        one.create_table(table.in_account(&account), now()).await.unwrap();
        match round {
            0 => drop(other.write(table.in_account(&account), &upsert, now()).await.unwrap()),
            1 => assert_eq!(
                refusal(other.write(table.in_account(&account), &merge, now()).await),
                Code::ResourceNotFound
            ),
            2 => assert!(
                other.query(table.in_account(&account), &everything).await.unwrap().entities.is_empty()
            ),
            _ => drop(other.transact(table.in_account(&account), &[insert("p", "r")], now()).await.unwrap()),
        }
        let seen = one.get(table.in_account(&account), &key).await.unwrap().is_some();
        assert_eq!(seen, round == 0 || round == 3);
    }
}

/// A key of a thousand characters is within our limits, but an index row of PostgreSQL holds a third of a
/// page, compressed.
#[tokio::test]
async fn keys_that_no_index_holds_are_refused_and_harm_nobody() {
    for coalesce in [true, false] {
        let mut options = PgOptions::new(plain_url());
        options.coalesce = coalesce;
        let store = PgStore::connect(options).await.expect("a store");
        let (account, table) = (account(), name("Long"));
        store.create_table(table.in_account(&account), now()).await.unwrap();
        let long = |seed: u32| -> String {
            let mix =
                |i: u32| (seed + i).wrapping_mul(2_654_435_761).rotate_left(15).wrapping_mul(2_246_822_519);
            (0..900).filter_map(|i| char::from_u32(0x4e00 + (mix(i) >> 8) % 0x5000)).collect()
        };
        let upsert = WriteKind::Replace(IfMatch::Absent);
        for kind in [WriteKind::Insert, upsert, WriteKind::Merge(IfMatch::Absent)] {
            let alone = write(kind, "p", &long(1), number("N", 1));
            assert_eq!(
                refusal(store.write(table.in_account(&account), &alone, now()).await),
                Code::PropertyValueTooLarge
            );
            let group = ["a", &long(2), "b"].map(|rk| write(kind, "p", rk, number("N", 1)));
            let Err(Failure::Refused(error)) =
                store.transact(table.in_account(&account), &group, now()).await
            else {
                panic!("such a key is stored")
            };
            assert_eq!((error.code, error.index), (Code::PropertyValueTooLarge, Some(1)));
            assert!(!error.text().contains("64KB"), "the limit of values: {error}");
            let why = error.why.expect("a reason");
            assert!(why.contains("PartitionKey and RowKey") && why.contains("index row"), "{why}");
        }
        let neighbours = (0..60).map(|i| {
            let rk = if i % 10 == 5 { long(i * 1000) } else { format!("{i:02}") };
            write(upsert, "p", &rk, number("N", 1))
        });
        let neighbours: Vec<_> = neighbours.collect();
        let rounds = neighbours.iter().map(|write| store.write(table.in_account(&account), write, now()));
        for (i, outcome) in futures_util::future::join_all(rounds).await.into_iter().enumerate() {
            assert_eq!(outcome.is_ok(), i % 10 != 5, "{i} {outcome:?}");
        }
        let stored = walk(&store, &account, &table, &scan(vec![Span::everything()])).await.concat();
        assert_eq!(stored.len(), 54);
        // What compresses is held.
        let repeated = write(upsert, "p", &"漢".repeat(1024), number("N", 1));
        store.write(table.in_account(&account), &repeated, now()).await.unwrap();
    }
}

#[tokio::test]
async fn several_replicas_may_start_at_once() {
    for _ in 0..5 {
        let url = fresh_database();
        let starts = (0..4).map(|_| open(&url, 1));
        futures_util::future::join_all(starts).await;
    }
}

#[tokio::test]
async fn a_schema_from_the_future_is_left_alone() {
    let url = fresh_database();
    migrate(&url);
    crate::support::postgres::execute(
        &url,
        "INSERT INTO _sqlx_migrations (version, description, success, checksum, execution_time) \
         VALUES (9999, 'later', true, '', 0)",
    );
    let mut options = PgOptions::new("postgres://nobody@localhost:1/none");
    options.migrate_url = Some(url.clone());
    PgStore::connect(options).await.expect("migrations run through their own URL");
}

async fn count(url: &str, query: &'static str) -> i64 {
    let mut connection = PgConnection::connect(url).await.unwrap();
    sqlx::query_scalar(query).fetch_one(&mut connection).await.unwrap()
}

#[tokio::test]
async fn purging_removes_rows_of_deleted_tables_and_nothing_else() {
    let url = fresh_database();
    // The last deletion is of a server whose clock is two days ahead.
    for (spread, ahead) in [(1, 0), (4, 0), (1, 48 * 3600 * 10_000_000)] {
        let store = open(&url, spread).await;
        let account = account();
        let (kept, dropped) = (name("Kept"), name("Dropped"));
        for table in [&kept, &dropped] {
            store.create_table(table.in_account(&account), now()).await.unwrap();
        }
        fill(&store, &account, &kept, (0..50).map(|i| insert(&i.to_string(), "r")).collect()).await;
        let many = (0..6000).map(|i| insert(&(i % 60).to_string(), &i.to_string()));
        fill(&store, &account, &dropped, many.collect()).await;
        let before = count(&url, "SELECT count(*) FROM entities").await;
        let deleted = now();
        let stamp = Ticks::from_raw(deleted.raw() + ahead).unwrap();
        store.delete_table(dropped.in_account(&account), stamp).await.unwrap();
        // Two servers do it at once, of which one stops in the middle.
        let other = open(&url, spread).await;
        let mut calls = 1;
        while store.purge(deleted).await.unwrap() {
            calls += 1;
            if (10..20).contains(&calls) {
                assert!(other.purge(deleted).await.unwrap());
                calls += 1;
            }
        }
        assert_eq!(count(&url, "SELECT count(*) FROM entities").await, before - 6000);
        assert!((60..65).contains(&calls) || spread > 1, "{calls} calls");
        assert_eq!(walk(&store, &account, &kept, &scan(vec![Span::everything()])).await.concat().len(), 50);
        // A write that was under way at the deletion is found after the grace time,
        // even before the place at which a server has stopped.
        assert_eq!(count(&url, "SELECT count(*) FROM doomed").await, 1);
        crate::support::postgres::execute(
            &url,
            "INSERT INTO entities SELECT table_no << 16, '', 'late', 0, '{}' FROM doomed",
        );
        assert!(!store.purge(deleted).await.unwrap());
        let later = Ticks::from_raw(deleted.raw() + 2 * 3600 * 10_000_000).unwrap();
        while other.purge(later).await.unwrap() {}
        assert_eq!(count(&url, "SELECT count(*) FROM doomed").await, 0);
        assert_eq!(count(&url, "SELECT count(*) FROM entities WHERE rk = 'late'").await, 0);
    }
}

#[tokio::test]
async fn a_table_that_cannot_be_purged_delays_no_other() {
    let url = fresh_database();
    let store = open(&url, 1).await;
    let account = account();
    let stuck = (name("Stuck"), now(), "stuck");
    let later = (name("Later"), Ticks::from_raw(now().raw() + 1).unwrap(), "later");
    for (table, _, rk) in [&stuck, &later] {
        store.create_table(table.in_account(&account), now()).await.unwrap();
        fill(&store, &account, table, (0..50).map(|i| insert(&i.to_string(), rk)).collect()).await;
    }
    crate::support::postgres::execute(
        &url,
        "CREATE FUNCTION refuse() RETURNS trigger LANGUAGE plpgsql AS 'BEGIN RAISE ''no''; END';
         CREATE TRIGGER stuck BEFORE DELETE ON entities FOR EACH ROW WHEN (old.rk = 'stuck') EXECUTE FUNCTION refuse()",
    );
    for (table, deleted, _) in [&stuck, &later] {
        store.delete_table(table.in_account(&account), *deleted).await.unwrap();
    }
    let rows = async |of| count(&url, of).await;
    while store.purge(later.1).await.unwrap() {}
    assert_eq!(rows("SELECT count(*) FROM entities WHERE rk = 'later'").await, 0);
    assert_eq!(rows("SELECT count(*) FROM entities WHERE rk = 'stuck'").await, 50);
    crate::support::postgres::execute(&url, "DROP TRIGGER stuck ON entities");
    assert!(!store.purge(later.1).await.unwrap(), "it is left alone for a minute");
    let other = open(&url, 1).await;
    while other.purge(later.1).await.unwrap() {}
    assert_eq!(rows("SELECT count(*) FROM entities").await, 0);
}

#[tokio::test]
async fn a_group_of_which_a_part_is_not_done_leaves_nothing() {
    let url = fresh_database();
    let store = open(&url, 1).await;
    let (account, table) = table(&store).await;
    fill(&store, &account, &table, vec![insert("p", "there")]).await;
    execute(
        &url,
        "CREATE FUNCTION skip() RETURNS trigger LANGUAGE plpgsql AS 'BEGIN RETURN NULL; END';
         CREATE TRIGGER skip BEFORE DELETE ON entities FOR EACH ROW EXECUTE FUNCTION skip()",
    );
    let delete = WriteKind::Delete(IfMatch::Any);
    let group = [insert("p", "new"), write(delete, "p", "there", vec![])];
    let failed = store.transact(table.in_account(&account), &group, now()).await;
    assert_eq!(failed, Err(Fault::Serialization.into()));
    assert_eq!(text(&url, "SELECT string_agg(rk, ',') FROM entities"), "there");
}

#[tokio::test]
async fn an_expired_entity_that_another_transaction_has_locked_delays_no_other() {
    let url = fresh_database();
    let store = open(&url, 1).await;
    let (account, table) = super::contract::table(&store).await;
    fill(&store, &account, &table, ["a", "b", "c"].map(|rk| insert("p", rk)).into()).await;
    let rule = ExpiryRule { property: None, delay: 1, pause: 10 };
    store.set_expiry(table.in_account(&account), &rule, now()).await.unwrap();
    let set = store.expiries(Some(&account)).await.unwrap().remove(0);
    let all = walk(&store, &account, &table, &scan(vec![Span::everything()])).await.concat();
    let all: Vec<_> = all.into_iter().map(|entity| (entity.key, entity.modified)).collect();
    let mut other = PgConnection::connect(&url).await.unwrap();
    let mut transaction = other.begin().await.unwrap();
    let lock = "SELECT rk FROM entities WHERE rk = 'b' FOR UPDATE";
    sqlx::query(lock).execute(&mut *transaction).await.unwrap();
    assert_eq!(store.delete_expired(&set, &all).await, Ok(2));
    transaction.rollback().await.unwrap();
    assert_eq!(store.delete_expired(&set, &all).await, Ok(1));
}

#[tokio::test]
async fn sessions_have_the_settings_that_statements_and_promises_need_whatever_the_database_says() {
    let url = fresh_database();
    drop(open(&url, 1).await);
    execute(
        &url,
        "ALTER TABLE tables RENAME TO real_tables; \
         CREATE VIEW tables AS SELECT table_no, account, name_lower, name, spread, policies, created FROM real_tables \
         UNION ALL SELECT -1, 'spy' COLLATE \"C\", 'spy' COLLATE \"C\", concat(\
         current_setting('standard_conforming_strings'), ' ', current_setting('synchronous_commit')), \
         1, NULL, 638000000000000000",
    );
    for (commit, kept) in [("off", "on"), ("remote_apply", "remote_apply")] {
        let database = text(&url, "SELECT current_database()::text");
        let settings = [("standard_conforming_strings", "off"), ("synchronous_commit", commit)];
        for (name, value) in settings {
            execute(&url, &format!("ALTER DATABASE {database} SET {name} = {value}"));
        }
        let store = open(&url, 1).await;
        let list = TableScan { spans: vec![Span::everything()], residual: None, rows: 10, time: MAX_TIME };
        let spied = store.list_tables("spy", &list).await.unwrap().tables;
        assert_eq!(spied[0].name, format!("on {kept}"));
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn pages_are_read_while_no_write_can_end() {
    let url = fresh_database();
    let mut options = PgOptions::new(&url);
    options.max_connections = 4;
    options.acquire_timeout = Duration::from_secs(60);
    let store = Arc::new(PgStore::connect(options).await.unwrap());
    let (account, table) = super::contract::table(&*store).await;
    fill(&*store, &account, &table, vec![insert("p", "r")]).await;
    execute(
        &url,
        "CREATE FUNCTION wait() RETURNS trigger LANGUAGE plpgsql AS \
         'BEGIN PERFORM pg_advisory_xact_lock_shared(7); RETURN new; END'; \
         CREATE TRIGGER wait BEFORE INSERT ON entities FOR EACH ROW EXECUTE FUNCTION wait()",
    );
    let mut holder = PgConnection::connect(&url).await.unwrap();
    sqlx::query("SELECT pg_advisory_lock(7)").execute(&mut holder).await.unwrap();
    let writers: Vec<_> = (0..8)
        .map(|writer| {
            let (store, account, table) = (Arc::clone(&store), account.clone(), table.clone());
            tokio::spawn(async move {
                let group = [insert(&format!("w{writer}"), "1"), insert(&format!("w{writer}"), "2")];
                store.transact(table.in_account(&account), &group, now()).await.map(drop)
            })
        })
        .collect();
    let waiting = "SELECT count(*) FROM pg_locks WHERE locktype = 'advisory' AND NOT granted \
                   AND database = (SELECT oid FROM pg_database WHERE datname = current_database())";
    crate::support::wait::until_async("three of four connections write", async || {
        count(&url, waiting).await == 3
    })
    .await;
    let page = store.query(table.in_account(&account), &scan(vec![Span::everything()])).await.unwrap();
    assert_eq!(page.entities.len(), 1);
    sqlx::query("SELECT pg_advisory_unlock(7)").execute(&mut holder).await.unwrap();
    for writer in writers {
        writer.await.unwrap().unwrap();
    }
}

#[tokio::test]
async fn an_index_is_built_later_if_the_database_accepts_a_connection_and_never_answers() {
    let url = fresh_database();
    let store = open(&url, 1).await;
    let (account, table) = super::contract::table(&store).await;
    let index = NewIndex { table: table.in_account(&account), property: "N", kind: IndexKind::Number };
    store.add_index(index, now()).await.unwrap();
    let index = store.indexes().await.unwrap().remove(0).index;
    let silent = TcpListener::bind("127.0.0.1:0").unwrap();
    let mut options = PgOptions::new(&url);
    options.operation_timeout = Duration::from_secs(1);
    options.migrate_url = Some(format!("postgres://{}/", silent.local_addr().unwrap()));
    let frozen = PgStore::open_to_read(&options).await.unwrap();
    let built = tokio::time::timeout(Duration::from_secs(60), frozen.build_index(&index, now())).await;
    assert_eq!(built, Ok(Err(Fault::Unavailable.into())));
    assert_eq!(store.build_index(&index, now()).await, Ok(BuiltIndex::Ready));
}

#[tokio::test]
async fn a_walk_over_large_entities_keeps_its_connections() {
    let store = open(plain_url(), 1).await;
    let (account, table) = super::contract::table(&store).await;
    let heavy = |i: i32| {
        let values = (0..8).map(|p| (format!("P{p}"), EdmValue::Binary(vec![i as u8; 60 * 1024])));
        write(WriteKind::Insert, "p", &format!("{i:02}"), values.collect())
    };
    for i in 0..30 {
        store.write(table.in_account(&account), &heavy(i), now()).await.unwrap();
    }
    let mut scan = scan(vec![Span::everything()]);
    scan.bytes = 1 << 20;
    let pages = walk(&store, &account, &table, &scan).await;
    assert_eq!(pages.concat().len(), 30);
    assert!(pages.iter().all(|page| page.len() == 1));
}

/// PostgreSQL keeps values of this size apart from the row, and compressed if they can be.
#[tokio::test]
async fn a_filter_of_many_comparisons_over_large_entities_ends() {
    const ENTITIES: i32 = 60;
    let (account, table) = (account(), name("Large"));
    let filler = plain().await;
    filler.create_table(table.in_account(&account), now()).await.unwrap();
    fill_large(&filler, &account, &table, ENTITIES).await;
    let mut options = PgOptions::new(plain_url());
    options.operation_timeout = Duration::from_secs(5);
    let store = PgStore::connect(options).await.expect("a store");
    for comparisons in [16, 100, 400] {
        let mut scan = scan(vec![Span::everything()]);
        scan.time = Duration::from_secs(25);
        scan.residual = Some(is_any_of(&[3, 59], comparisons));
        let found = walk(&store, &account, &table, &scan).await.concat();
        assert_eq!(found.len(), 2, "{comparisons} comparisons");
    }
}

/// A store with one connection over a database of its own, and a table with one entity.
async fn on_one_connection() -> (String, PgStore, String, TableName) {
    let url = fresh_database();
    migrate(&url);
    let mut options = PgOptions::new(url.as_str());
    (options.max_connections, options.coalesce) = (1, false);
    let store = PgStore::connect(options).await.expect("a store");
    let (account, table) = super::contract::table(&store).await;
    fill(&store, &account, &table, vec![insert("p", "r")]).await;
    (url, store, account, table)
}

/// A session that reads an entity in a read-only transaction sleeps when it commits.
const SLOW_COMMITS: &str = "CREATE FUNCTION sleep_at_commit() RETURNS trigger LANGUAGE plpgsql AS \
     'BEGIN PERFORM pg_sleep(20); RETURN NULL; END'; \
     CREATE FUNCTION is_seen() RETURNS bool LANGUAGE plpgsql AS \
     'BEGIN IF to_regclass(''pg_temp.seen'') IS NULL THEN \
     CREATE TEMP TABLE seen (n int); \
     CREATE CONSTRAINT TRIGGER sleeps AFTER INSERT ON seen DEFERRABLE INITIALLY DEFERRED \
     FOR EACH ROW EXECUTE FUNCTION sleep_at_commit(); \
     ELSIF current_setting(''transaction_read_only'') = ''on'' THEN INSERT INTO seen VALUES (1); \
     END IF; RETURN true; END'; \
     ALTER TABLE entities RENAME TO real_entities; \
     CREATE VIEW entities AS SELECT * FROM real_entities WHERE is_seen()";

/// The timeout of a page's statements may reach its COMMIT. PostgreSQL then reports what it reports here.
#[tokio::test]
async fn a_page_is_whole_though_its_commit_is_cancelled() {
    let (url, store, account, table) = on_one_connection().await;
    execute(&url, SLOW_COMMITS);
    assert!(store.get(table.in_account(&account), &Key::new("p", "r")).await.unwrap().is_some());
    let mut scan = scan(vec![Span::everything()]);
    scan.residual = Some(is_any_of(&[1], 1));
    let (page, ()) = tokio::join!(store.query(table.in_account(&account), &scan), cancel_commit(&url));
    let page = page.expect("a page");
    assert_eq!((page.entities.len(), page.next), (1, None));
    assert!(store.get(table.in_account(&account), &Key::new("p", "r")).await.unwrap().is_some());
}

/// Waits for a COMMIT that sleeps, and cancels it.
async fn cancel_commit(url: &str) {
    let mut connection = PgConnection::connect(url).await.expect("a connection");
    let cancel = "SELECT pg_cancel_backend(pid) FROM pg_stat_activity \
         WHERE datname = current_database() AND query = 'COMMIT' AND wait_event = 'PgSleep'";
    until_async("a COMMIT", async || {
        sqlx::query(cancel).fetch_optional(&mut connection).await.expect("an answer").is_some()
    })
    .await;
}

/// What tells that a memory context `c` belongs to a plan: before PostgreSQL 18 by the name of its parent, then
/// by the numbers of all above it.
fn is_of_a_plan(url: &str) -> &'static str {
    let version = text(url, "SELECT current_setting('server_version_num')");
    match version.parse::<u32>().expect("a number") < 180_000 {
        true => "c.name LIKE 'CachedPlan%' OR c.parent LIKE 'CachedPlan%'",
        false => {
            "EXISTS (SELECT 1 FROM contexts AS plan WHERE plan.name LIKE 'CachedPlan%' \
             AND plan.path[array_upper(plan.path, 1)] = ANY (c.path))"
        }
    }
}

/// Has a table's name in the list be what the session's plans take in KiB.
fn spy(url: &str) {
    let is_of_a_plan = is_of_a_plan(url);
    let script = format!(
        "ALTER TABLE tables RENAME TO real_tables; \
         CREATE VIEW tables AS SELECT table_no, account, name_lower, name, spread, policies, created FROM real_tables \
         UNION ALL SELECT -1, 'spy' COLLATE \"C\", 'spy' COLLATE \"C\", \
         (WITH contexts AS MATERIALIZED (SELECT * FROM pg_backend_memory_contexts) \
         SELECT coalesce(sum(total_bytes) / 1024, 0)::int8::text FROM contexts AS c WHERE {is_of_a_plan}), \
         1, NULL, 638000000000000000"
    );
    execute(url, &script);
}

#[tokio::test]
async fn filters_of_any_shape_take_little_memory_of_a_backend() {
    let (url, store, account, table) = on_one_connection().await;
    spy(&url);
    for comparisons in 1..=120 {
        let mut scan = scan(vec![Span::everything()]);
        scan.residual = Some(is_any_of(&[1], comparisons));
        assert_eq!(store.query(table.in_account(&account), &scan).await.unwrap().entities.len(), 1);
    }
    let list = TableScan { spans: vec![Span::everything()], residual: None, rows: 10, time: MAX_TIME };
    let spied = store.list_tables("spy", &list).await.unwrap().tables;
    let kib: usize = spied[0].name.parse().unwrap();
    assert!((1..8 * 1024).contains(&kib), "{kib} KiB of plans");
}

/// A share of a former layout has other entities than the share of this number has now.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_count_does_not_go_on_in_other_buckets() {
    let url = fresh_database();
    let store = open(&url, 1).await;
    let (account, table) = table(&store).await;
    fill(
        &store,
        &account,
        &table,
        (0..200).map(|n| insert(&format!("p{:02}", n % 20), &n.to_string())).collect(),
    )
    .await;
    let place = table.in_account(&account);
    let mut before = CountPosition::start();
    for (spread, share) in [("8", 0), ("1", 3), ("4", 0)] {
        while before.share < share || before == CountPosition::start() {
            let part =
                store.count_part(place, &before, 10).await.expect("an answer").expect("the same buckets");
            before = part.next.expect("there is more");
        }
        let mut respread = std::process::Command::new(env!("CARGO_BIN_EXE_rowhouse"));
        respread.args(["table", "respread", "People", spread, "--account", &account, "--database-url", &url]);
        let output = respread.output().expect("it runs");
        assert!(output.status.success(), "{output:?}");
        assert_eq!(store.count_part(place, &before, 10).await.expect("an answer"), None);
        let (mut sum, mut from) = (0, Some(CountPosition::start()));
        while let Some(position) = from {
            let part =
                store.count_part(place, &position, 10).await.expect("an answer").expect("the same buckets");
            (sum, from) = (sum + part.entities, part.next);
        }
        assert_eq!(sum, 200);
        before = CountPosition::start();
    }
}
