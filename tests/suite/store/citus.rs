//! The contract where Citus distributes the entities, or on the stand-in where there is none.

use std::time::Duration;

use futures_util::future::join_all;
use rowhouse::error::Code;
use rowhouse::protocol::model::{CompareOp, EdmValue, IfMatch, Key, PageOrder, Ticks};
use rowhouse::protocol::plan::{Field, Predicate, Projection, Scan, Span, WriteKind};
use rowhouse::store::postgres::{PgOptions, PgStore, statements};
use rowhouse::store::{Entities, StoreResult, Tables, Upkeep};
use sqlx::{AssertSqlSafe, Connection, Executor, PgConnection, Row};

use super::contract::{
    account, contract, fill, insert, name, now, number, refusal, scan, table, walk, write,
};
use super::explain::{hot, partitions_of_entities};
use super::postgres::open;
use crate::support::citus::{CATALOGUES, distributed_url, real};
use crate::support::postgres::{execute, fresh_database, partition_entities, text};

async fn whole_tables() -> PgStore {
    open(distributed_url(), 1).await
}

async fn spread_tables() -> PgStore {
    open(distributed_url(), 8).await
}

contract!(distributed, super::whole_tables);
contract!(distributed_with_spread, super::spread_tables);

/// Entities that were read are in memory: that the time of their page is used up does not end it.
#[tokio::test]
async fn a_late_merged_page_has_all_that_its_buckets_yielded() {
    let store = spread_tables().await;
    let (account, table) = table(&store).await;
    let of = |n: i32| write(WriteKind::Insert, &(n % 40).to_string(), &n.to_string(), number("N", n % 3));
    fill(&store, &account, &table, (0..1200).map(of).collect()).await;
    let literal = EdmValue::Int32(0);
    let filter = Predicate::Compare { field: Field::Custom("N".into()), op: CompareOp::Eq, literal };
    for (residual, found) in [(None, 1200), (Some(filter), 400)] {
        for order in [PageOrder::Ascending, PageOrder::Descending] {
            let everything = scan(vec![Span::everything()]);
            let scan = Scan { residual: residual.clone(), order, time: Duration::ZERO, ..everything };
            let pages = walk(&store, &account, &table, &scan).await;
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

/// The plan of a prepared statement under the settings of a session of a distributed database.
async fn plan(text: &str, types: &str, values: &str) -> String {
    let url = distributed_url();
    let mut connection = PgConnection::connect(url).await.unwrap();
    let settings = PgOptions::new(url).session();
    let script = format!("{settings}; SET plan_cache_mode = auto; PREPARE s ({types}) AS {text}");
    connection.execute(sqlx::raw_sql(AssertSqlSafe(script))).await.unwrap();
    let explain = format!("EXPLAIN (COSTS OFF) EXECUTE s ({values})");
    let rows = connection.fetch_all(sqlx::raw_sql(AssertSqlSafe(explain))).await;
    let rows = rows.unwrap_or_else(|error| panic!("{error}: {text}"));
    rows.iter().map(|row| row.get::<String, _>(0) + "\n").collect()
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
    for (text, types, values) in hot() {
        let plan = plan(&text, types, values).await;
        assert!(is_of_one_server(&plan), "{text}\n{plan}");
    }
    for (text, types, values) in writes_and_rounds() {
        let plan = plan(text, types, values).await;
        assert!(is_of_one_server(&plan), "{text}\n{plan}");
    }
}

/// What a server of the version before `buckets` sends to create and to delete a table.
async fn create_as_before(table_no: i64, account: &str, spread: i32) {
    let mut connection = PgConnection::connect(distributed_url()).await.unwrap();
    let text = "INSERT INTO tables (table_no, account, name_lower, name, spread, created) \
         VALUES ($1, $2, $3, $4, $5, $6) ON CONFLICT (account, name_lower) DO NOTHING RETURNING table_no";
    let query = sqlx::query(text).bind(table_no).bind(account).bind("people").bind("People").bind(spread);
    query.bind(now().raw()).fetch_one(&mut connection).await.unwrap();
}

async fn delete_as_before(account: &str) {
    let mut connection = PgConnection::connect(distributed_url()).await.unwrap();
    let mut transaction = connection.begin().await.unwrap();
    let text = "DELETE FROM tables WHERE account = $1 AND name_lower = $2 RETURNING table_no, spread";
    let gone = sqlx::query(text).bind(account).bind("people").fetch_one(&mut *transaction).await.unwrap();
    let text = "INSERT INTO doomed (table_no, spread, deleted_at, due) VALUES ($1, $2, $3, $3)";
    let doom = sqlx::query(text).bind(gone.get::<i64, _>(0)).bind(gone.get::<i32, _>(1)).bind(now().raw());
    doom.execute(&mut *transaction).await.unwrap();
    transaction.commit().await.unwrap();
}

/// Every way to store a new row.
async fn store_new_rows(store: &PgStore, account: &str, mark: &str) -> Vec<StoreResult<()>> {
    let table = name("People");
    let mut results = Vec::new();
    for kind in [WriteKind::Insert, WriteKind::Replace(IfMatch::Absent), WriteKind::Merge(IfMatch::Absent)] {
        let row = |n: usize| write(kind, "p", &format!("{mark}{kind:?}{n}"), number("N", 1));
        results.push(store.write(table.in_account(account), &row(0), now()).await.map(drop));
        let together = [1, 2, 3].map(row);
        let together = together.each_ref().map(|write| store.write(table.in_account(account), write, now()));
        results.extend(join_all(together).await.into_iter().map(|result| result.map(drop)));
        results.push(store.transact(table.in_account(account), &[row(4), row(5)], now()).await.map(drop));
    }
    let mixed = [
        insert("p", &format!("{mark}mixed")),
        write(WriteKind::Replace(IfMatch::Absent), "p", &format!("{mark}x"), number("N", 1)),
    ];
    results.push(store.transact(table.in_account(account), &mixed, now()).await.map(drop));
    results
}

#[tokio::test]
async fn tables_that_an_older_server_creates_and_deletes_are_there_and_gone_for_this_one() {
    for spread in [1, 8] {
        let (account, table) = (account(), name("People"));
        let stores = [open(distributed_url(), 1).await, open(distributed_url(), 1).await];
        create_as_before(i64::from(std::process::id()) << 8 | i64::from(spread), &account, spread).await;
        for (n, store) in stores.iter().enumerate() {
            let stored = store_new_rows(store, &account, &format!("a{n}")).await;
            assert!(stored.iter().all(Result::is_ok), "{stored:?}");
        }
        // Both remember the table now.
        delete_as_before(&account).await;
        for store in &stores {
            for refused in store_new_rows(store, &account, "b").await {
                assert_eq!(refusal(refused), Code::TableNotFound);
            }
            assert_eq!(
                refusal(store.get(table.in_account(&account), &Key::new("p", "r")).await),
                Code::TableNotFound
            );
        }
        stores[0].create_table(table.in_account(&account), now()).await.unwrap();
        for store in &stores {
            assert!(walk(store, &account, &table, &scan(vec![Span::everything()])).await.concat().is_empty());
        }
        // What the server of this version creates, the older one may delete.
        assert!(store_new_rows(&stores[0], &account, "c").await.iter().all(Result::is_ok));
        delete_as_before(&account).await;
        create_as_before(i64::from(std::process::id()) << 8 | i64::from(100 + spread), &account, spread)
            .await;
        for (n, store) in stores.iter().enumerate() {
            let stored = store_new_rows(store, &account, &format!("d{n}")).await;
            assert!(stored.iter().all(Result::is_ok), "{stored:?}");
        }
        let rows = walk(&stores[0], &account, &table, &scan(vec![Span::everything()])).await.concat();
        assert_eq!(rows.len(), 2 * 20, "only rows of the new table");
    }
}

#[tokio::test]
async fn rows_of_buckets_go_with_the_last_trace_of_their_table() {
    let store = open(distributed_url(), 4).await;
    let (account, table) = table(&store).await;
    store.write(table.in_account(&account), &insert("p", "r"), now()).await.unwrap();
    let mut connection = PgConnection::connect(distributed_url()).await.unwrap();
    let text = "SELECT table_no FROM tables WHERE account = $1";
    let table_no: i64 = sqlx::query_scalar(text).bind(&account).fetch_one(&mut connection).await.unwrap();
    let count = "SELECT count(*) FROM buckets WHERE bucket >> 16 = $1";
    let of = async |connection: &mut PgConnection| -> i64 {
        sqlx::query_scalar(count).bind(table_no).fetch_one(connection).await.unwrap()
    };
    assert_eq!(of(&mut connection).await, 1);
    let deleted = now();
    store.delete_table(table.in_account(&account), deleted).await.unwrap();
    let later = Ticks::from_raw(deleted.raw() + 3 * 3600 * 10_000_000).unwrap();
    while store.purge(later).await.unwrap() {}
    assert_eq!(of(&mut connection).await, 0);
}

#[tokio::test]
async fn a_listed_server_that_is_away_is_passed_over() {
    let away = "postgres://nobody@localhost:1/none";
    // Migrations cannot run, but are not needed.
    let options = PgOptions::new(format!("{away},{}", distributed_url()));
    let store = PgStore::connect(options).await.expect("a store by the second server");
    let (account, table) = table(&store).await;
    assert!(store_new_rows(&store, &account, "a").await.iter().all(Result::is_ok));
    assert!(store.get(table.in_account(&account), &Key::new("p", "amixed")).await.unwrap().is_some());
    assert_eq!(walk(&store, &account, &table, &scan(vec![Span::everything()])).await.concat().len(), 20);
    store.delete_table(table.in_account(&account), now()).await.unwrap();
    let empty = PgOptions::new(format!("{away},{}", fresh_database()));
    assert!(PgStore::connect(empty).await.is_err(), "its schema is not current");
}

/// A stand-in of its own as the server of this number, with this port for the first.
async fn stand_in(number: i32, first: u16) -> String {
    let url = fresh_database();
    partition_entities(&url);
    execute(&url, CATALOGUES);
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
    let [old, other] = [stand_in(1, 7).await, stand_in(2, 8).await];
    for urls in [format!("{old},{other}"), format!("{other},{old}")] {
        let mut options = PgOptions::new(urls);
        options.migrate_url = Some(other.clone());
        let store = PgStore::connect(options).await.expect("a store");
        let (account, table) = table(&store).await;
        for n in 0..16 {
            // Some of the buckets are those of the first server.
            let more = name(&format!("More{n}"));
            store.create_table(more.in_account(&account), now()).await.unwrap();
            store.write(more.in_account(&account), &insert("p", "r"), now()).await.unwrap();
            assert!(store.get(more.in_account(&account), &Key::new("p", "r")).await.unwrap().is_some());
        }
        assert!(store_new_rows(&store, &account, "a").await.iter().all(Result::is_ok));
        store.delete_table(table.in_account(&account), now()).await.unwrap();
    }
    for table in ["tables", "buckets", "entities"] {
        let count = format!("SELECT count(*)::text FROM {table}");
        assert_eq!(text(&old, &count), "0", "{table}");
        assert_ne!(text(&other, &count), "0", "{table}");
    }
}

#[tokio::test]
async fn a_running_server_notices_that_entities_are_distributed() {
    let url = fresh_database();
    partition_entities(&url);
    let store = open(&url, 4).await;
    let (account, table) = table(&store).await;
    execute(&url, CATALOGUES);
    store.write(table.in_account(&account), &insert("p", "r"), now()).await.unwrap();
    assert_eq!(
        text(&url, "SELECT count(*)::text FROM buckets"),
        "1",
        "as only statements for Citus need them"
    );
    store.transact(table.in_account(&account), &[insert("q", "1"), insert("q", "2")], now()).await.unwrap();
    assert_eq!(walk(&store, &account, &table, &scan(vec![Span::everything()])).await.concat().len(), 3);
}
