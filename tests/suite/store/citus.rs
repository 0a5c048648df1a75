//! The contract where Citus distributes the entities, or on the stand-in where there is none.

use std::time::Duration;

use futures_util::future::join_all;
use rowhouse_protocol::error::Code;
use rowhouse_protocol::model::{CompareOp, EdmValue, IfMatch, Key, PageOrder, Ticks};
use rowhouse_protocol::plan::{Projection, Scan, WriteKind};
use rowhouse_store::postgres::{PgOptions, PgStore, statements};
use rowhouse_store::{StoreResult, Tables, Upkeep};

use super::contract::{
    TestTable, account, compare, contract, everything, insert, name, now, number, refusal, table, write,
};
use super::explain::{hot, partitions_of_entities, plan_with};
use super::postgres::open;
use crate::support::citus::{CATALOGUES, distributed_url, fresh_stand_in, real};
use crate::support::postgres::{count, execute, fresh_database, partition_entities, text};

async fn whole_tables() -> PgStore {
    open(distributed_url(), 1).await
}

async fn spread_tables() -> PgStore {
    open(distributed_url(), 8).await
}

contract!(distributed, super::whole_tables);
contract!(entities of distributed_with_spread, super::spread_tables);

/// Entities that were read are in memory: that the time of their page is used up does not end it.
#[tokio::test]
async fn a_late_merged_page_has_all_that_its_buckets_yielded() {
    let store = spread_tables().await;
    let table = table(&store).await;
    let of = |n: i32| write(WriteKind::Insert, &(n % 40).to_string(), &n.to_string(), number("N", n % 3));
    table.fill((0..1200).map(of)).await;
    let filter = compare("N", CompareOp::Eq, EdmValue::Int32(0));
    for (residual, found) in [(None, 1200), (Some(filter), 400)] {
        for order in [PageOrder::Ascending, PageOrder::Descending] {
            let scan = Scan { residual: residual.clone(), order, time: Duration::ZERO, ..everything() };
            let pages = table.walk(&scan).await;
            assert!(pages.iter().any(|page| page.len() > 1), "{order:?}: {} pages", pages.len());
            assert_eq!(pages.concat().len(), found);
        }
    }
}

/// Statements that store new rows, and those of several requests of one bucket: text, types and
/// values of the parameters.
fn writes_and_rounds() -> Vec<(&'static str, &'static str, &'static str)> {
    let one = ("bigint, text, text, bigint, bigint, jsonb", "5, 'p', 'r', 0, 1, '{}'");
    let many =
        ("bigint, text, text[], bigint, bigint[], jsonb[]", "5, 'p', '{a}', 0, '{1}', array['{}'::jsonb]");
    let round = (
        "bigint, text[], text[], bigint, bigint[], jsonb[]",
        "5, '{p}', '{r}', 0, '{1}', array['{}'::jsonb]",
    );
    let load = (
        "bigint, text[], text[], bigint[], jsonb[], bigint",
        "5, '{p}', '{r}', '{1}', array['{}'::jsonb], 0",
    );
    vec![
        (statements::INSERT_ROUTED, one.0, one.1),
        (statements::UPSERT_ROUTED, one.0, one.1),
        (
            statements::INSERT_OR_MERGE_ROUTED,
            "bigint, text, text, bigint, bigint, jsonb, text, int, int, text",
            "5, 'p', 'r', 0, 1, '{}', 'N@odata.type', 251, 262144, '$.*'",
        ),
        (statements::INSERT_MANY_ROUTED, many.0, many.1),
        (statements::INSERT_MISSING_ROUTED, many.0, many.1),
        (statements::UPSERT_MANY_ROUTED, many.0, many.1),
        (
            statements::INSERT_OR_MERGE_MANY_ROUTED,
            "bigint, text, text[], bigint, bigint[], jsonb[], text, int, int, text",
            "5, 'p', '{a}', 0, '{1}', array['{}'::jsonb], 'N@odata.type', 251, 262144, '$.*'",
        ),
        (
            statements::points_of_bucket(Projection::Full),
            "bigint, bigint, bigint, text[], text[]",
            "0, 10, 5, '{p,q}', '{r,s}'",
        ),
        (statements::CHECK_TABLE, "bigint", "0"),
        (statements::HAS_BUCKET, "bigint", "5"),
        (statements::ADD_BUCKET, "bigint", "5"),
        (statements::LOAD_IN_BUCKET, load.0, load.1),
        (statements::LOAD_NEW_IN_BUCKET, load.0, load.1),
        (statements::READ_IN_BUCKET, "bigint, text[], text[], bigint", "5, '{p}', '{r}', 0"),
        (statements::INSERT_IN_BUCKET, round.0, round.1),
        (statements::UPSERT_IN_BUCKET, round.0, round.1),
        (
            statements::UPDATE_IN_BUCKET,
            "bigint, text[], text[], bigint, bigint[], jsonb[], bigint[]",
            "5, '{p}', '{r}', 0, '{1}', array['{}'::jsonb], '{null}'",
        ),
        (
            statements::MERGE_IN_BUCKET,
            "bigint, text[], text[], bigint, bigint[], jsonb[], text[], int[], int, text, bigint[]",
            "5, '{p}', '{r}', 0, '{1}', array['{}'::jsonb], '{N@odata.type}', '{251}', 262144, '$.*', '{null}'",
        ),
        (
            statements::INSERT_OR_MERGE_IN_BUCKET,
            "bigint, text[], text[], bigint, bigint[], jsonb[], text[], int[], int, text",
            "5, '{p}', '{r}', 0, '{1}', array['{}'::jsonb], '{N@odata.type}', '{251}', 262144, '$.*'",
        ),
        (
            statements::DELETE_IN_BUCKET,
            "bigint, text[], text[], bigint, bigint[]",
            "5, '{p}', '{r}', 0, '{1}'",
        ),
        (statements::respread::BY_KEY, "bigint, text[], text[]", "5, '{p}', '{r}'"),
        (statements::respread::RECORD, "bigint, bigint, text[], text[]", "5, 1, '{p}', '{r}'"),
        (statements::respread::CHANGES, "bigint, bigint, bigint", "5, 1, 256"),
        (statements::respread::FORGET_CHANGES, "bigint, bigint, bigint, text, text", "5, 1, 2, 'p', 'r'"),
        (statements::respread::IS_CHANGED, "bigint, text[], text[], bigint", "5, '{p}', '{r}', 1"),
        (
            statements::respread::PUT,
            "bigint, text[], text[], bigint[], jsonb[]",
            "5, '{p}', '{r}', '{1}', array['{}'::jsonb]",
        ),
    ]
}

/// Whether it is one task of one server or, of the stand-in, touches one partition.
fn is_of_one_server(plan: &str) -> bool {
    if real().is_some() {
        return plan.contains("Task Count: 1\n") && !plan.contains("pull to coordinator");
    }
    partitions_of_entities(plan).len() <= 1
}

#[tokio::test]
async fn every_hot_statement_is_one_task() {
    let others = writes_and_rounds().into_iter().map(|(text, types, values)| (text.into(), types, values));
    for (text, types, values) in hot().into_iter().chain(others) {
        let plan = plan_with(distributed_url(), "SET plan_cache_mode = auto", &text, types, values).await;
        assert!(is_of_one_server(&plan), "{text}\n{plan}");
    }
}

/// What a server of the version before `buckets` sends to create and to delete a table.
fn create_as_before(number: u32, account: &str, spread: u32) {
    let table_no = u64::from(std::process::id()) << 8 | u64::from(number);
    let insert = format!(
        "INSERT INTO tables (table_no, account, name_lower, name, spread, created) \
         VALUES ({table_no}, '{account}', 'people', 'People', {spread}, {})",
        now().raw()
    );
    execute(distributed_url(), &insert);
}

fn delete_as_before(account: &str) {
    let table = format!("tables WHERE account = '{account}' AND name_lower = 'people'");
    let doom = "INSERT INTO doomed (table_no, spread, deleted_at, due)";
    let now = now().raw();
    let doom = format!("{doom} SELECT table_no, spread, {now}, {now} FROM {table}");
    execute(distributed_url(), &format!("BEGIN; {doom}; DELETE FROM {table}; COMMIT"));
}

/// Every way to store a new row.
async fn store_new_rows(table: &TestTable<&PgStore>, mark: &str) -> Vec<StoreResult<()>> {
    let mut results = Vec::new();
    for kind in [WriteKind::Insert, WriteKind::Replace(IfMatch::Absent), WriteKind::Merge(IfMatch::Absent)] {
        let row = |n: usize| write(kind, "p", &format!("{mark}{kind:?}{n}"), number("N", 1));
        results.push(table.write(&row(0)).await.map(drop));
        let together = [1, 2, 3].map(row);
        let together = together.each_ref().map(|write| table.write(write));
        results.extend(join_all(together).await.into_iter().map(|result| result.map(drop)));
        results.push(table.transact(&[row(4), row(5)]).await.map(drop));
    }
    let upsert = write(WriteKind::Replace(IfMatch::Absent), "p", &format!("{mark}x"), number("N", 1));
    let mixed = [insert("p", &format!("{mark}mixed")), upsert];
    results.push(table.transact(&mixed).await.map(drop));
    results
}

/// Stores rows in every way, which must succeed.
async fn must_store(table: &TestTable<&PgStore>, mark: &str) {
    let stored = store_new_rows(table, mark).await;
    assert!(stored.iter().all(Result::is_ok), "{stored:?}");
}

#[tokio::test]
async fn tables_that_an_older_server_creates_and_deletes_are_there_and_gone_for_this_one() {
    for spread in [1, 8] {
        let stores = [open(distributed_url(), 1).await, open(distributed_url(), 1).await];
        let account = account();
        let tables = stores.each_ref().map(|store| TestTable {
            store,
            account: account.clone(),
            name: name("People"),
        });
        create_as_before(spread, &account, spread);
        for (n, table) in tables.iter().enumerate() {
            must_store(table, &format!("a{n}")).await;
        }
        // Both remember the table now.
        delete_as_before(&account);
        for table in &tables {
            for refused in store_new_rows(table, "b").await {
                assert_eq!(refusal(refused), Code::TableNotFound);
            }
            assert_eq!(refusal(table.get(&Key::new("p", "r")).await), Code::TableNotFound);
        }
        tables[0].create().await.unwrap();
        for table in &tables {
            assert!(table.all().await.is_empty());
        }
        // What the server of this version creates, the older one may delete.
        must_store(&tables[0], "c").await;
        delete_as_before(&account);
        create_as_before(100 + spread, &account, spread);
        for (n, table) in tables.iter().enumerate() {
            must_store(table, &format!("d{n}")).await;
        }
        assert_eq!(tables[0].all().await.len(), 2 * 20, "only rows of the new table");
    }
}

#[tokio::test]
async fn rows_of_buckets_go_with_the_last_trace_of_their_table() {
    let store = open(distributed_url(), 4).await;
    let table = table(&store).await;
    table.write(&insert("p", "r")).await.unwrap();
    let table_no = format!("SELECT table_no::text FROM tables WHERE account = '{}'", table.account);
    let table_no = text(distributed_url(), &table_no);
    let buckets = format!("SELECT count(*) FROM buckets WHERE bucket >> 16 = {table_no}");
    assert_eq!(count(distributed_url(), &buckets), 1);
    let deleted = now();
    store.delete_table(table.place(), deleted).await.unwrap();
    let later = Ticks::from_raw(deleted.raw() + 3 * 3600 * 10_000_000).unwrap();
    while store.purge(later).await.unwrap() {}
    assert_eq!(count(distributed_url(), &buckets), 0);
}

#[tokio::test]
async fn a_listed_server_that_is_away_is_passed_over() {
    let away = "postgres://nobody@localhost:1/none";
    // Migrations cannot run, but are not needed.
    let options = PgOptions::new(format!("{away},{}", distributed_url()));
    let store = PgStore::connect(options).await.expect("a store by the second server");
    let table = table(&store).await;
    must_store(&table, "a").await;
    assert!(table.get(&Key::new("p", "amixed")).await.unwrap().is_some());
    assert_eq!(table.all().await.len(), 20);
    let empty = PgOptions::new(format!("{away},{}", fresh_database()));
    assert!(PgStore::connect(empty).await.is_err(), "its schema is not current");
}

/// A stand-in of its own as the server of this number, with this port for the first.
fn stand_in(number: i32, first: u16) -> String {
    let url = fresh_stand_in();
    execute(
        &url,
        &format!(
            "UPDATE pg_dist_local_group SET groupid = {number}; \
             UPDATE pg_dist_node SET nodeport = {first} WHERE groupid = 1"
        ),
    );
    url
}

/// A standby was promoted in the place of the first server, which is back and takes writes still.
#[tokio::test]
async fn a_server_that_the_others_have_replaced_gets_nothing() {
    let [old, other] = [stand_in(1, 7), stand_in(2, 8)];
    for urls in [format!("{old},{other}"), format!("{other},{old}")] {
        let mut options = PgOptions::new(urls);
        options.migrate_url = Some(other.clone());
        let store = PgStore::connect(options).await.expect("a store");
        let table = table(&store).await;
        for n in 0..16 {
            // Some of the buckets are those of the first server.
            let more = table.named(&format!("More{n}"));
            more.create().await.unwrap();
            more.write(&insert("p", "r")).await.unwrap();
            assert!(more.get(&Key::new("p", "r")).await.unwrap().is_some());
        }
        must_store(&table, "a").await;
        table.delete().await.unwrap();
    }
    for table in ["tables", "buckets", "entities"] {
        let rows = format!("SELECT count(*) FROM {table}");
        assert_eq!(count(&old, &rows), 0, "{table}");
        assert_ne!(count(&other, &rows), 0, "{table}");
    }
}

#[tokio::test]
async fn a_running_server_notices_that_entities_are_distributed() {
    let url = fresh_database();
    partition_entities(&url);
    let store = open(&url, 4).await;
    let table = table(&store).await;
    execute(&url, CATALOGUES);
    table.write(&insert("p", "r")).await.unwrap();
    assert_eq!(count(&url, "SELECT count(*) FROM buckets"), 1, "as only statements for Citus need them");
    table.transact(&[insert("q", "1"), insert("q", "2")]).await.unwrap();
    assert_eq!(table.all().await.len(), 3);
}
