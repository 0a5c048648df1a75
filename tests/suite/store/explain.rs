//! The plans that PostgreSQL makes of the hot statements, under the settings of
//! our sessions: index scans by every key column, no sorts, one partition.

use std::collections::BTreeSet;

use rowhouse::protocol::model::PageOrder;
use rowhouse::protocol::plan::Projection;
use rowhouse::protocol::plan::index::{IndexKind, PropertyIndex};
use rowhouse::store::postgres::statements::indexes::{OrderedFrom, OrderedRows};
use rowhouse::store::postgres::{PgOptions, statements};
use sqlx::{AssertSqlSafe, Connection, Executor, PgConnection, Row};

use super::postgres::{partitioned_url, plain_url};
use crate::support::postgres::{execute, fresh_database, migrate, partition_entities};

/// Prepares a statement with these types and shows its plan for these values.
pub async fn plan(url: &str, text: &str, types: &str, values: &str) -> String {
    plan_with(url, "SELECT", text, types, values).await
}

/// The same, after a statement that changes a setting.
async fn plan_with(url: &str, setting: &str, text: &str, types: &str, values: &str) -> String {
    let mut connection = PgConnection::connect(url).await.unwrap();
    let script = format!("{}; {setting}; PREPARE s ({types}) AS {text}", PgOptions::new(url).session());
    connection.execute(sqlx::raw_sql(AssertSqlSafe(script))).await.unwrap();
    let explain = format!("EXPLAIN (COSTS OFF) EXECUTE s ({values})");
    let rows = connection.fetch_all(sqlx::raw_sql(AssertSqlSafe(explain))).await.unwrap();
    rows.iter().map(|row| row.get::<String, _>(0) + "\n").collect()
}

fn scans(plan: &str) -> impl Iterator<Item = &str> {
    plan.lines().filter(|line| line.contains("Scan") && line.contains("entities"))
}

fn on_entities(plan: &str) -> usize {
    scans(plan).count()
}

/// The key indexes that a plan scans, one for each partition, or the whole line of another scan.
pub fn partitions_of_entities(plan: &str) -> BTreeSet<&str> {
    let key_index = |line| str::split_whitespace(line).find(|word| word.ends_with("_pkey"));
    scans(plan).map(|line| key_index(line).unwrap_or(line)).collect()
}

/// Hot statements: text, types of the parameters, values of bucket 5 of table 0.
pub fn hot() -> Vec<(std::borrow::Cow<'static, str>, &'static str, &'static str)> {
    vec![
        (statements::READ.into(), "bigint, text, text, bigint", "5, 'p', 'r', 0"),
        (statements::LOCK_ONE.into(), "bigint, text, text, bigint", "5, 'p', 'r', 0"),
        (
            statements::UPDATE.into(),
            "bigint, text, text, bigint, bigint, jsonb, bigint",
            "5, 'p', 'r', 0, 1, '{}', null",
        ),
        (
            statements::MERGE.into(),
            "bigint, text, text, bigint, bigint, jsonb, text, int, int, text, bigint",
            "5, 'p', 'r', 0, 1, '{}', 'N@odata.type', 251, 262144, '$.*', null",
        ),
        (statements::DELETE.into(), "bigint, text, text, bigint, bigint", "5, 'p', 'r', 0, 1"),
        (statements::LOCK_MANY.into(), "bigint, text, text[]", "5, 'p', '{a,b}'"),
        (
            statements::UPDATE_MANY.into(),
            "bigint, text, text[], bigint, bigint[], jsonb[]",
            "5, 'p', '{a}', 0, '{1}', array['{}'::jsonb]",
        ),
        (statements::DELETE_MANY.into(), "bigint, text, text[], bigint", "5, 'p', '{a}', 0"),
        (statements::PURGE_BOUND.into(), "bigint, text, text, bigint", "5, 'p', 'r', 99"),
        (statements::PURGE_RANGE.into(), "bigint, text, text, text, text", "5, 'p', 'r', 'q', 's'"),
        (
            statements::DELETE_EXPIRED.into(),
            "bigint, text[], text[], bigint[], bigint, bigint",
            "5, '{p}', '{r}', '{1}', 0, 0",
        ),
        (statements::respread::PAGE.into(), "bigint, text, text, bigint", "5, 'p', 'r', 256"),
        (statements::respread::REMOVE.into(), "bigint, text, text[]", "5, 'p', '{r}'"),
        (statements::respread::HASHES_FROM.into(), "bigint, text, text, bigint", "5, 'p', 'r', 1000"),
        (statements::respread::HASHES_BY_KEY.into(), "bigint, text[], text[]", "5, '{p}', '{r}'"),
        (statements::COUNT_REST.into(), "bigint, text, text", "5, 'p', 'r'"),
        (statements::PURGE_REST.into(), "bigint, text, text", "5, 'p', 'r'"),
        (
            statements::range(Projection::Full, true, 1),
            "bigint, bigint, text, text, text, text, bigint",
            "0, 1001, 'a', '', 'b', '', 5",
        ),
        (
            statements::range(Projection::Full, false, 1),
            "bigint, bigint, text, text, bigint",
            "0, 1001, 'a', '', 5",
        ),
        (
            statements::in_order(statements::range(Projection::Full, true, 1), PageOrder::Descending),
            "bigint, bigint, text, text, text, text, bigint",
            "0, 1001, 'a', '', 'b', '', 5",
        ),
        (
            statements::points_of_partition(Projection::Full).into(),
            "bigint, bigint, bigint, text, text[]",
            "0, 10, 5, 'p', '{a,b}'",
        ),
    ]
}

#[tokio::test]
async fn hot_statements_scan_the_key_index() {
    for (text, types, values) in hot() {
        let plan = plan(plain_url(), &text, types, values).await;
        assert!(plan.contains("bucket = $"), "{text}\n{plan}");
        assert_eq!(on_entities(&plan), 1, "{text}\n{plan}");
        assert!(!plan.contains("Seq Scan") && !plan.contains("Bitmap"), "{text}\n{plan}");
        if text.contains("pk = $") {
            assert!(plan.contains("(pk = $"), "{text}\n{plan}");
        }
    }
}

/// Statements of several requests at once: text, types after the four that make
/// the address, and values.
const EACH: [(&str, &str, &str); 7] = [
    (statements::READ_EACH, "", ""),
    (statements::INSERT_EACH, ", bigint[], jsonb[]", ", '{1}', array['{}'::jsonb]"),
    (statements::UPSERT_EACH, ", bigint[], jsonb[]", ", '{1}', array['{}'::jsonb]"),
    (statements::UPDATE_EACH, ", bigint[], jsonb[], bigint[]", ", '{1}', array['{}'::jsonb], '{null}'"),
    (
        statements::MERGE_EACH,
        ", bigint[], jsonb[], text[], int[], int, text, bigint[]",
        ", '{1}', array['{}'::jsonb], '{N@odata.type}', '{251}', 262144, '$.*', '{null}'",
    ),
    (
        statements::INSERT_OR_MERGE_EACH,
        ", bigint[], jsonb[], text[], int[], int, text",
        ", '{1}', array['{}'::jsonb], '{N@odata.type}', '{251}', 262144, '$.*'",
    ),
    (statements::DELETE_EACH, ", bigint[]", ", '{1}'"),
];

#[tokio::test]
async fn requests_that_share_a_statement_look_up_their_keys_in_its_order() {
    for (text, types, values) in EACH {
        let types = format!("bigint[], text[], text[], bigint[]{types}");
        let values = format!("'{{5}}', '{{p}}', '{{r}}', '{{0}}'{values}");
        for url in [plain_url(), partitioned_url()] {
            let plan = plan(url, text, &types, &values).await;
            for bad in ["Seq Scan", "Bitmap", "Hash", "Merge Join", "Sort", "Materialize"] {
                assert!(!plan.contains(bad), "{bad}: {text}\n{plan}");
            }
            if on_entities(&plan) > 0 {
                let condition = "Index Cond: ((bucket = u.bucket) AND (pk = u.pk) AND (rk = u.rk))";
                let plain = plan.replace("(u.pk)::text", "u.pk").replace("(u.rk)::text", "u.rk");
                assert!(plain.contains(condition), "{text}\n{plan}");
            }
            // The keys drive the join, so rows are locked in their order.
            let first_scan = plan.lines().find(|line| line.contains("Scan")).unwrap();
            assert!(first_scan.contains("Function Scan"), "{text}\n{plan}");
        }
    }
}

#[tokio::test]
async fn a_page_is_bounded_by_its_index_conditions_and_not_sorted() {
    let types = "bigint, bigint, text, text, text, text, bigint";
    for order in [PageOrder::Ascending, PageOrder::Descending] {
        let text = statements::in_order(statements::range(Projection::Full, true, 1), order);
        let plan = plan(plain_url(), &text, types, "0, 1001, 'a', '', 'b', '', 5").await;
        let condition = plan.lines().find(|line| line.contains("Index Cond") && line.contains("bucket"));
        let condition = condition.unwrap();
        assert!(condition.contains("ROW(pk, rk) >= ROW($3, $4)"), "{plan}");
        assert!(condition.contains("ROW(pk, rk) < ROW($5, $6)"), "{plan}");
        assert!(!plan.contains("Sort"), "{plan}");
        assert_eq!(plan.contains("Index Scan Backward"), order == PageOrder::Descending, "{plan}");
    }
}

#[tokio::test]
async fn descending_pages_read_the_key_index_backwards_and_are_not_sorted() {
    let filter = "(properties ->> 'N')::int4 = $8";
    let descending = |text: String| statements::in_order(text.into(), PageOrder::Descending);
    let projection = Projection::Full;
    let filter_of = |n: usize| filter.replace("$8", &format!("${n}"));
    let window = statements::window(projection, false, 3, &filter_of(10), ("$8", "$9"));
    let (one, three) =
        ("bigint, bigint, text, text, bigint", "bigint, bigint, text, text, bigint, bigint, bigint");
    for (text, types, values, scans) in [
        (statements::range(projection, false, 1).into_owned(), one.to_owned(), "5", 1),
        (statements::range(projection, false, 3).into_owned(), three.to_owned(), "5, 6, 7", 3),
        (statements::walk(projection, false, 1, &filter_of(6)), format!("{one}, int"), "5, 1", 1),
        (statements::walk(projection, false, 3, &filter_of(8)), format!("{three}, int"), "5, 6, 7, 1", 3),
        (window, format!("{three}, jsonb, bigint, int"), "5, 6, 7, '{}', 11, 1", 6),
    ] {
        let text = descending(text);
        let plan = plan(plain_url(), &text, &types, &format!("0, 1001, 'a', '', {values}")).await;
        assert!(!plan.contains("Sort\n") && !plan.contains("Bitmap"), "{text}\n{plan}");
        assert_eq!(plan.matches("Scan Backward using").count(), scans, "{text}\n{plan}");
    }
}

#[tokio::test]
async fn walks_read_the_key_index_once_stop_early_and_are_not_sorted() {
    let filter = "(properties ->> 'N')::int4 = $8";
    let text = statements::walk(Projection::Full, true, 1, filter);
    let types = "bigint, bigint, text, text, text, text, bigint, int";
    let plan = plan(plain_url(), &text, types, "0, 1001, 'a', '', 'b', '', 5, 1").await;
    assert!(!plan.contains("Sort"), "{plan}");
    assert_eq!(on_entities(&plan), 1, "{plan}");
    let condition = plan.lines().find(|line| line.contains("Index Cond") && line.contains("bucket")).unwrap();
    assert!(condition.contains("ROW(pk, rk) >= ROW($3, $4)"), "{plan}");
    assert!(condition.contains("ROW(pk, rk) < ROW($5, $6)"), "{plan}");
    assert!(!plan.contains("random"), "{plan}");
    // The cheaper condition comes first, and the filter is evaluated once.
    let chosen = plan.find("modified %").unwrap();
    assert_eq!(plan.matches("$8").count(), 1, "{plan}");
    assert!(plan.find("$8").unwrap() > chosen, "{plan}");
}

#[tokio::test]
async fn a_walk_merges_its_buckets() {
    let text = statements::walk(Projection::Full, false, 3, "(properties ->> 'N')::int4 = $8");
    let types = "bigint, bigint, text, text, bigint, bigint, bigint, int";
    let plan = plan(plain_url(), &text, types, "0, 1001, 'a', '', 5, 6, 7, 1").await;
    assert!(plan.contains("Merge Append") && !plan.contains("Sort\n"), "{plan}");
    assert_eq!(on_entities(&plan), 3, "{plan}");
}

#[tokio::test]
async fn a_window_reads_its_rows_once_before_it_filters_them_and_is_not_sorted() {
    let filter = "(properties ->> 'N')::int4 = $10";
    for (buckets, values) in [(1, "5"), (3, "5, 6, 7")] {
        let filter = filter.replace("$10", &format!("${}", 7 + buckets));
        let (empty, limit) = (format!("${}", 5 + buckets), format!("${}", 6 + buckets));
        let text = statements::window(Projection::Full, false, buckets, &filter, (&empty, &limit));
        let types = format!("bigint, bigint, text, text{}, jsonb, bigint, int", ", bigint".repeat(buckets));
        let plan =
            plan(plain_url(), &text, &types, &format!("0, 256, 'a', '', {values}, '{{}}', 11, 1")).await;
        assert!(!plan.contains("Sort\n"), "{plan}");
        assert_eq!(on_entities(&plan), 2 * buckets, "{plan}");
        let filters = plan.lines().filter(|line| line.contains("->>")).count();
        assert_eq!(filters, 1, "{plan}");
        // Above the limit, where the properties are already taken out of storage.
        let (filter, limit) = (plan.find("->>").unwrap(), plan.rfind("Limit").unwrap());
        assert!(filter < limit, "{plan}");
    }
}

#[tokio::test]
async fn several_buckets_are_merged_not_sorted() {
    let types = "bigint, bigint, text, text, bigint, bigint, bigint";
    let text = statements::range(Projection::Full, false, 3);
    let plan = plan(plain_url(), &text, types, "0, 1001, 'a', '', 5, 6, 7").await;
    assert!(plan.contains("Merge Append") && !plan.contains("Sort\n"), "{plan}");
    assert_eq!(on_entities(&plan), 3, "{plan}");
}

#[tokio::test]
async fn hot_statements_touch_one_hash_partition() {
    for (text, types, values) in hot() {
        let plan = plan(partitioned_url(), &text, types, values).await;
        assert_eq!(on_entities(&plan), 1, "{text}\n{plan}");
        assert!(!plan.contains("Seq Scan"), "{text}\n{plan}");
    }
}

/// The database believes nothing about the values: only the order makes it read the index.
#[tokio::test]
async fn lookups_read_their_index_whatever_the_database_believes() {
    let [plain, spread_out, partitioned] = [(); 3].map(|()| fresh_database());
    migrate(&plain);
    migrate(&spread_out);
    partition_entities(&partitioned);
    let one = || vec!["entities".to_owned()];
    let holders = (0..8).map(|n| format!("entities_{n}")).collect();
    for (url, holders, spread) in [(plain, one(), 1), (spread_out, one(), 8), (partitioned, holders, 8)] {
        for (kind, sql_type) in [
            (IndexKind::Text, "text"),
            (IndexKind::Number, "float8"),
            (IndexKind::Time, "text"),
            (IndexKind::Guid, "text"),
            (IndexKind::Boolean, "boolean"),
            (IndexKind::Timestamp, "bigint"),
        ] {
            let index = PropertyIndex { index_no: 1, table_no: 0, property: "Größe".into(), kind };
            for (at, holder) in holders.iter().enumerate() {
                let name = format!("{kind}_{at}");
                execute(&url, &statements::indexes::definition(&index, &name, holder, spread));
            }
            let types = format!("bigint, {sql_type}, {sql_type}");
            for (lower, upper) in [(Some("$2"), Some("$3")), (Some("$2"), None), (None, Some("$3"))] {
                let text = statements::indexes::lookup(&index, i64::from(spread) - 1, lower, upper, "$1");
                let plan = plan(&url, &text, &types, "4001, null, null").await;
                let direction = if upper.is_none() { " Backward" } else { "" };
                let scan = format!("Index Scan{direction} using {kind}_");
                assert!(plan.contains(&scan), "{text}\n{plan}");
                assert!(plan.contains("Index Cond") && !plan.contains("Sort"), "{text}\n{plan}");
            }
            for order in [PageOrder::Ascending, PageOrder::Descending] {
                // Of short keys, of others.
                for from in [None, Some(true), Some(false)] {
                    ordered_pages_walk_their_index(&url, &index, sql_type, order, from, spread).await;
                }
            }
        }
    }
}

/// A page in the order of an index reads entries one after the other, in each bucket.
async fn ordered_pages_walk_their_index(
    url: &str,
    index: &PropertyIndex,
    sql_type: &str,
    order: PageOrder,
    from: Option<bool>,
    spread: u16,
) {
    let at = |is_short| OrderedFrom { entry: Some("$4".into()), pk: "$5".into(), rk: "$6".into(), is_short };
    let rows = OrderedRows {
        index,
        order,
        has_entries: true,
        lower: None,
        upper: None,
        from: from.map(at),
        limit: "$2".into(),
        matches: "6".into(),
    };
    let source = rows.of_buckets(0..i64::from(spread));
    let text = rows.filtered(&source, "true", Projection::Full, "$3");
    let (types, values) = if from.is_some() {
        (format!("bigint, bigint, jsonb, {sql_type}, text, text"), "0, 1001, '{}', null, 'a', ''")
    } else {
        ("bigint, bigint, jsonb".to_owned(), "0, 1001, '{}'")
    };
    let plan = plan_with(url, "SET enable_sort = off", &text, &types, values).await;
    assert_eq!(
        plan.matches(&format!("using {}_", index.kind)).count(),
        usize::from(spread),
        "{text}\n{plan}"
    );
    assert_eq!(plan.contains("Backward"), order == PageOrder::Descending, "{text}\n{plan}");
    // What the index has sorted is only completed by the keys.
    assert!(!plan.lines().any(|line| line.trim_start_matches([' ', '-', '>']) == "Sort"), "{text}\n{plan}");
}
