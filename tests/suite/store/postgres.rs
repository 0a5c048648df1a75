//! The contract on plain and on hash-partitioned tables, and what only several
//! replicas over one database can show.

use std::net::TcpListener;
use std::process::Command;
use std::sync::{Arc, LazyLock};
use std::time::Duration;

use rowhouse_protocol::error::Code;
use rowhouse_protocol::model::{IfMatch, Key, Ticks};
use rowhouse_protocol::plan::index::IndexKind;
use rowhouse_protocol::plan::{Scan, Span, WriteKind};
use rowhouse_store::postgres::{PgOptions, PgStore};
use rowhouse_store::{
    BuiltIndex, CountPosition, Expiry, ExpiryRule, Failure, Fault, Indexes, NewIndex, Tables, Totals, Upkeep,
};
use sqlx::{Connection, Executor, PgConnection};

use super::contract::{contract, everything, insert, now, number, refusal, table, write};
use super::operator_features::counted;
use super::pages::{fill_large, is_any_of};
use super::tables::list;
use crate::support::postgres::{
    count, execute, fresh_database, migrate, named_programs, partition_entities, text,
};
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
    (options.max_connections, options.coalesce) = (6, false);
    PgStore::connect(options).await.expect("a store")
}

async fn plain_spread() -> PgStore {
    open(plain_url(), 16).await
}

async fn partitioned_spread() -> PgStore {
    open(partitioned_url(), 16).await
}

contract!(on_plain_tables, super::plain);
contract!(writes of on_plain_tables_with_a_statement_a_request, super::plain_alone);
contract!(entities of on_plain_tables_with_spread, super::plain_spread);
contract!(entities of on_hash_partitions_with_spread, super::partitioned_spread);

/// Or `scripts/test --postgres VERSION` would test another one.
#[test]
fn the_server_is_the_one_whose_programs_are_named() {
    let Some(folder) = named_programs() else { return };
    let output = Command::new(folder.join("postgres")).arg("--version").output().expect("it runs");
    let named = String::from_utf8(output.stdout).expect("text");
    let version = text(plain_url(), "SELECT current_setting('server_version')");
    assert!(named.starts_with(&format!("postgres (PostgreSQL) {version}")), "{named} is not {version}");
}

#[tokio::test]
async fn replicas_see_each_others_tables_come_and_go() {
    let (here, there) = (open(plain_url(), 1).await, open(plain_url(), 16).await);
    let here = table(&here).await;
    let there = here.through(&there);
    let key = Key::new("p", "r");
    let upsert = write(WriteKind::Replace(IfMatch::Absent), "p", "r", number("N", 1));
    let merge = write(WriteKind::Merge(IfMatch::Any), "p", "r", number("M", 1));
    for round in 0..4 {
        // Both remember the table, then one of them replaces it.
        let (one, other) = if round % 2 == 0 { (&here, &there) } else { (&there, &here) };
        one.write(&upsert).await.unwrap();
        assert!(other.get(&key).await.unwrap().is_some());
        one.delete().await.unwrap();
        assert_eq!(refusal(other.get(&key).await), Code::TableNotFound);
        one.create().await.unwrap();
        assert_eq!(other.get(&key).await.unwrap(), None);

        one.delete().await.unwrap();
        one.create().await.unwrap();
        match round {
            0 => drop(other.write(&upsert).await.unwrap()),
            1 => assert_eq!(refusal(other.write(&merge).await), Code::ResourceNotFound),
            2 => assert_eq!(other.all().await, []),
            _ => drop(other.transact(&[insert("p", "r")]).await.unwrap()),
        }
        assert_eq!(one.get(&key).await.unwrap().is_some(), round == 0 || round == 3);
    }
}

/// A key of a thousand characters is within our limits, but an index row of PostgreSQL holds a third of a
/// page, compressed.
#[tokio::test]
async fn keys_that_no_index_holds_are_refused_and_harm_nobody() {
    let mix = |seed: u32, i: u32| {
        (seed + i).wrapping_mul(2_654_435_761).rotate_left(15).wrapping_mul(2_246_822_519)
    };
    let long = |seed: u32| -> String {
        (0..900).filter_map(|i| char::from_u32(0x4e00 + (mix(seed, i) >> 8) % 0x5000)).collect()
    };
    for store in [plain().await, plain_alone().await] {
        let table = table(&store).await;
        let upsert = WriteKind::Replace(IfMatch::Absent);
        for kind in [WriteKind::Insert, upsert, WriteKind::Merge(IfMatch::Absent)] {
            let alone = table.write(&write(kind, "p", &long(1), number("N", 1))).await;
            assert_eq!(refusal(alone), Code::PropertyValueTooLarge);
            let group = ["a", &long(2), "b"].map(|rk| write(kind, "p", rk, number("N", 1)));
            let Err(Failure::Refused(error)) = table.transact(&group).await else {
                panic!("such a key is stored")
            };
            assert_eq!((error.code, error.index), (Code::PropertyValueTooLarge, Some(1)));
            assert!(!error.text().contains("64KB"), "the limit of values: {error}");
            let reason = error.reason.expect("a reason");
            assert!(reason.contains("PartitionKey and RowKey") && reason.contains("index row"), "{reason}");
        }
        let neighbours = (0..60).map(|i| {
            let rk = if i % 10 == 5 { long(i * 1000) } else { format!("{i:02}") };
            write(upsert, "p", &rk, number("N", 1))
        });
        let neighbours: Vec<_> = neighbours.collect();
        let rounds = neighbours.iter().map(|write| table.write(write));
        for (i, outcome) in futures_util::future::join_all(rounds).await.into_iter().enumerate() {
            assert_eq!(outcome.is_ok(), i % 10 != 5, "{i} {outcome:?}");
        }
        assert_eq!(table.all().await.len(), 54);
        // What compresses is held.
        table.write(&write(upsert, "p", &"漢".repeat(1024), number("N", 1))).await.unwrap();
    }
}

#[tokio::test]
async fn several_replicas_may_start_at_once() {
    for _ in 0..3 {
        let url = fresh_database();
        let starts = (0..4).map(|_| open(&url, 1));
        futures_util::future::join_all(starts).await;
    }
}

#[tokio::test]
async fn a_schema_from_the_future_is_left_alone() {
    let url = fresh_database();
    migrate(&url);
    execute(
        &url,
        "INSERT INTO _sqlx_migrations (version, description, success, checksum, execution_time) \
         VALUES (9999, 'later', true, '', 0)",
    );
    let mut options = PgOptions::new("postgres://nobody@localhost:1/none");
    options.migrate_url = Some(url.clone());
    PgStore::connect(options).await.expect("migrations run through their own URL");
}

#[tokio::test]
async fn purging_removes_rows_of_deleted_tables_and_nothing_else() {
    let url = fresh_database();
    // The last deletion is of a server whose clock is two days ahead.
    for (spread, ahead) in [(1, 0), (4, 0), (1, 48 * 3600 * 10_000_000)] {
        let (store, other) = (open(&url, spread).await, open(&url, spread).await);
        let kept = table(&store).await;
        let dropped = kept.named("Dropped");
        dropped.create().await.unwrap();
        kept.fill((0..50).map(|i| insert(&i.to_string(), "r"))).await;
        let before = count(&url, "SELECT count(*) FROM entities");
        dropped.fill((0..3000).map(|i| insert(&(i % 30).to_string(), &i.to_string()))).await;
        let deleted = now();
        let stamp = Ticks::from_raw(deleted.raw() + ahead).unwrap();
        store.delete_table(dropped.place(), stamp).await.unwrap();
        // Two servers do it at once, of which one stops in the middle.
        let mut calls = 1;
        while store.purge(deleted).await.unwrap() {
            calls += 1;
            if (10..20).contains(&calls) {
                assert!(other.purge(deleted).await.unwrap());
                calls += 1;
            }
        }
        assert_eq!(count(&url, "SELECT count(*) FROM entities"), before);
        assert!((30..35).contains(&calls) || spread > 1, "{calls} calls");
        assert_eq!(kept.all().await.len(), 50);
        // A write that was under way at the deletion is found after the grace time,
        // even before the place at which a server has stopped.
        assert_eq!(count(&url, "SELECT count(*) FROM doomed"), 1);
        execute(&url, "INSERT INTO entities SELECT table_no << 16, '', 'late', 0, '{}' FROM doomed");
        assert!(!store.purge(deleted).await.unwrap());
        let later = Ticks::from_raw(deleted.raw() + 2 * 3600 * 10_000_000).unwrap();
        while other.purge(later).await.unwrap() {}
        assert_eq!(count(&url, "SELECT count(*) FROM doomed"), 0);
        assert_eq!(count(&url, "SELECT count(*) FROM entities WHERE rk = 'late'"), 0);
    }
}

#[tokio::test]
async fn a_table_that_cannot_be_purged_delays_no_other() {
    let url = fresh_database();
    let store = open(&url, 1).await;
    let stuck = table(&store).await;
    let other = stuck.named("Later");
    other.create().await.unwrap();
    stuck.fill((0..50).map(|i| insert(&i.to_string(), "stuck"))).await;
    other.fill((0..50).map(|i| insert(&i.to_string(), "later"))).await;
    execute(
        &url,
        "CREATE FUNCTION refuse() RETURNS trigger LANGUAGE plpgsql AS 'BEGIN RAISE ''no''; END';
         CREATE TRIGGER stuck BEFORE DELETE ON entities FOR EACH ROW WHEN (old.rk = 'stuck') EXECUTE FUNCTION refuse()",
    );
    let (first, later) = (now(), now());
    store.delete_table(stuck.place(), first).await.unwrap();
    store.delete_table(other.place(), later).await.unwrap();
    while store.purge(later).await.unwrap() {}
    assert_eq!(text(&url, "SELECT string_agg(DISTINCT rk, ',') FROM entities"), "stuck");
    assert_eq!(count(&url, "SELECT count(*) FROM entities"), 50);
    execute(&url, "DROP TRIGGER stuck ON entities");
    assert!(!store.purge(later).await.unwrap(), "it is left alone for a minute");
    let other = open(&url, 1).await;
    while other.purge(later).await.unwrap() {}
    assert_eq!(count(&url, "SELECT count(*) FROM entities"), 0);
}

#[tokio::test]
async fn a_group_of_which_a_part_is_not_done_leaves_nothing() {
    let url = fresh_database();
    let store = open(&url, 1).await;
    let table = table(&store).await;
    table.write(&insert("p", "there")).await.unwrap();
    execute(
        &url,
        "CREATE FUNCTION skip() RETURNS trigger LANGUAGE plpgsql AS 'BEGIN RETURN NULL; END';
         CREATE TRIGGER skip BEFORE DELETE ON entities FOR EACH ROW EXECUTE FUNCTION skip()",
    );
    let group = [insert("p", "new"), write(WriteKind::Delete(IfMatch::Any), "p", "there", vec![])];
    assert_eq!(table.transact(&group).await, Err(Fault::Serialization.into()));
    assert_eq!(text(&url, "SELECT string_agg(rk, ',') FROM entities"), "there");
}

#[tokio::test]
async fn an_expired_entity_that_another_transaction_has_locked_delays_no_other() {
    let url = fresh_database();
    let store = open(&url, 1).await;
    let table = table(&store).await;
    table.fill(["a", "b", "c"].map(|rk| insert("p", rk))).await;
    let rule = ExpiryRule { property: None, delay: 1, interval: 10 };
    store.set_expiry(table.place(), &rule, now()).await.unwrap();
    let set = store.expiries(Some(&table.account)).await.unwrap().remove(0);
    let all: Vec<_> = table.all().await.into_iter().map(|entity| (entity.key, entity.modified)).collect();
    let mut other = PgConnection::connect(&url).await.unwrap();
    other.execute("BEGIN; SELECT rk FROM entities WHERE rk = 'b' FOR UPDATE").await.unwrap();
    assert_eq!(store.delete_expired(&set, &all).await, Ok(2));
    other.execute("ROLLBACK").await.unwrap();
    assert_eq!(store.delete_expired(&set, &all).await, Ok(1));
}

/// Has every list of tables of the account `spy` show the value of an expression in the session that reads it.
fn show_in_lists(url: &str, expression: &str) {
    let script = format!(
        "ALTER TABLE tables RENAME TO real_tables; \
         CREATE VIEW tables AS SELECT table_no, account, name_lower, name, spread, policies, created FROM real_tables \
         UNION ALL SELECT -1, 'spy' COLLATE \"C\", 'spy' COLLATE \"C\", ({expression}), 1, NULL, 638000000000000000"
    );
    execute(url, &script);
}

/// The value of that expression.
async fn shown_in_lists(store: &PgStore) -> String {
    store.list_tables("spy", &list(vec![Span::everything()])).await.unwrap().tables.remove(0).name
}

#[tokio::test]
async fn sessions_have_the_settings_that_statements_and_promises_need_whatever_the_database_says() {
    let url = fresh_database();
    migrate(&url);
    show_in_lists(
        &url,
        "concat(current_setting('standard_conforming_strings'), ' ', current_setting('synchronous_commit'))",
    );
    for (commit, kept) in [("off", "on"), ("remote_apply", "remote_apply")] {
        let database = text(&url, "SELECT current_database()::text");
        for (name, value) in [("standard_conforming_strings", "off"), ("synchronous_commit", commit)] {
            execute(&url, &format!("ALTER DATABASE {database} SET {name} = {value}"));
        }
        assert_eq!(shown_in_lists(&open(&url, 1).await).await, format!("on {kept}"));
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn pages_are_read_while_no_write_can_end() {
    let url = fresh_database();
    let mut options = PgOptions::new(&url);
    (options.max_connections, options.acquire_timeout) = (4, Duration::from_secs(60));
    let table = table(Arc::new(PgStore::connect(options).await.unwrap())).await;
    table.write(&insert("p", "r")).await.unwrap();
    execute(
        &url,
        "CREATE FUNCTION wait() RETURNS trigger LANGUAGE plpgsql AS \
         'BEGIN PERFORM pg_advisory_xact_lock_shared(7); RETURN new; END'; \
         CREATE TRIGGER wait BEFORE INSERT ON entities FOR EACH ROW EXECUTE FUNCTION wait()",
    );
    let mut holder = PgConnection::connect(&url).await.unwrap();
    holder.execute("SELECT pg_advisory_lock(7)").await.unwrap();
    let writers = (0..8).map(|writer| {
        let table = table.clone();
        let group = ["1", "2"].map(|rk| insert(&format!("w{writer}"), rk));
        tokio::spawn(async move { table.transact(&group).await.map(drop) })
    });
    let writers: Vec<_> = writers.collect();
    let waiting = "SELECT count(*) FROM pg_locks WHERE locktype = 'advisory' AND NOT granted \
                   AND database = (SELECT oid FROM pg_database WHERE datname = current_database())";
    let mut watcher = PgConnection::connect(&url).await.unwrap();
    // Three connections wait at first, briefly, and then one for as long as the lock is held.
    until_async("a write waits for the lock", async || {
        sqlx::query_scalar::<_, i64>(waiting).fetch_one(&mut watcher).await.unwrap() > 0
    })
    .await;
    assert_eq!(table.all().await.len(), 1);
    holder.execute("SELECT pg_advisory_unlock(7)").await.unwrap();
    for writer in writers {
        writer.await.unwrap().unwrap();
    }
}

#[tokio::test]
async fn an_index_is_built_later_if_the_database_accepts_a_connection_and_never_answers() {
    let url = fresh_database();
    let store = open(&url, 1).await;
    let table = table(&store).await;
    let index = NewIndex { table: table.place(), property: "N", kind: IndexKind::Number };
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

/// PostgreSQL keeps values of this size apart from the row, and compressed if they can be.
#[tokio::test]
async fn a_filter_of_many_comparisons_over_large_entities_ends() {
    let mut options = PgOptions::new(plain_url());
    options.operation_timeout = Duration::from_secs(5);
    let store = PgStore::connect(options).await.expect("a store");
    let table = table(&store).await;
    fill_large(&table.through(&plain().await), 60).await;
    for comparisons in [16, 400] {
        let residual = Some(is_any_of(&[3, 59], comparisons));
        let scan = Scan { time: Duration::from_secs(25), residual, ..everything() };
        assert_eq!(table.walk(&scan).await.concat().len(), 2, "{comparisons} comparisons");
    }
}

/// A store with one connection over a database of its own.
async fn on_one_connection() -> (String, PgStore) {
    let url = fresh_database();
    migrate(&url);
    let mut options = PgOptions::new(url.as_str());
    (options.max_connections, options.coalesce) = (1, false);
    (url, PgStore::connect(options).await.expect("a store"))
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
    let (url, store) = on_one_connection().await;
    let table = table(&store).await;
    table.write(&insert("p", "r")).await.unwrap();
    execute(&url, SLOW_COMMITS);
    assert!(table.get(&Key::new("p", "r")).await.unwrap().is_some());
    let scan = Scan { residual: Some(is_any_of(&[1], 1)), ..everything() };
    let (page, ()) = tokio::join!(table.query(&scan), cancel_commit(&url));
    let page = page.expect("a page");
    assert_eq!((page.entities.len(), page.next), (1, None));
    assert!(table.get(&Key::new("p", "r")).await.unwrap().is_some());
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

#[tokio::test]
async fn filters_of_any_shape_take_little_memory_of_a_backend() {
    let (url, store) = on_one_connection().await;
    let table = table(&store).await;
    table.write(&insert("p", "r")).await.unwrap();
    let kib = "coalesce(sum(total_bytes) / 1024, 0)::int8::text";
    let contexts = "WITH contexts AS MATERIALIZED (SELECT * FROM pg_backend_memory_contexts)";
    let is_of_a_plan = is_of_a_plan(&url);
    show_in_lists(&url, &format!("{contexts} SELECT {kib} FROM contexts AS c WHERE {is_of_a_plan}"));
    for comparisons in 1..=120 {
        let scan = Scan { residual: Some(is_any_of(&[1], comparisons)), ..everything() };
        assert_eq!(table.query(&scan).await.unwrap().entities.len(), 1);
    }
    let kib: usize = shown_in_lists(&store).await.parse().unwrap();
    assert!((1..8 * 1024).contains(&kib), "{kib} KiB of plans");
}

/// A share of a former layout has other entities than the share of this number has now.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_count_does_not_go_on_in_other_buckets() {
    let url = fresh_database();
    let store = open(&url, 1).await;
    let table = table(&store).await;
    table.fill((0..200).map(|n| insert(&format!("p{:02}", n % 20), &n.to_string()))).await;
    let part =
        async |from: &CountPosition| store.count_part(table.place(), from, 10).await.expect("an answer");
    let mut before = CountPosition::start();
    for (spread, share) in [("8", 0), ("1", 3), ("4", 0)] {
        while before.share < share || before == CountPosition::start() {
            before = part(&before).await.expect("the same buckets").next.expect("there is more");
        }
        let mut respread = Command::new(env!("CARGO_BIN_EXE_rowhouse"));
        respread.args(["table", "respread", "People", spread, "--account", &table.account]);
        let output = respread.args(["--database-url", &url]).output().expect("it runs");
        assert!(output.status.success(), "{output:?}");
        assert_eq!(part(&before).await, None);
        assert_eq!(counted(&table, 10).await, 200);
        before = CountPosition::start();
    }
}
