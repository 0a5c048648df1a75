//! The plans that PostgreSQL makes of the hot statements, under the settings of
//! our sessions: index scans by every key column, no sorts, one partition.

use std::collections::BTreeSet;

use rowhouse_protocol::model::PageOrder;
use rowhouse_protocol::plan::Projection;
use rowhouse_protocol::plan::index::{IndexKind, PropertyIndex};
use rowhouse_store::postgres::statements::indexes::{OrderedFrom, OrderedRows};
use rowhouse_store::postgres::{PgOptions, statements};
use sqlx::{AssertSqlSafe, Connection, Executor, PgConnection, Row};

use super::postgres::{partitioned_url, plain_url};
use crate::support::postgres::{execute, fresh_database, migrate, partition_entities};

/// Prepares a statement with these types and shows its plan for these values.
pub async fn plan(url: &str, text: &str, types: &str, values: &str) -> String {
    plan_with(url, "SELECT", text, types, values).await
}

/// The same, after a statement that changes a setting.
pub async fn plan_with(url: &str, setting: &str, text: &str, types: &str, values: &str) -> String {
    let mut connection = PgConnection::connect(url).await.unwrap();
    let script = format!("{}; {setting}; PREPARE s ({types}) AS {text}", PgOptions::new(url).session());
    connection.execute(sqlx::raw_sql(AssertSqlSafe(script))).await.unwrap();
    let explain = format!("EXPLAIN (COSTS OFF) EXECUTE s ({values})");
    let rows = connection.fetch_all(sqlx::raw_sql(AssertSqlSafe(explain))).await;
    let rows = rows.unwrap_or_else(|error| panic!("{error}: {text}"));
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

/// Statements that read a page, whose parameters are limits, bounds and buckets, and then those of a filter.
enum Reads {
    Range,
    Walk,
    Window,
}

#[tokio::test]
async fn pages_read_the_key_index_in_their_order_within_their_bounds_and_are_not_sorted() {
    for (reads, bounded, buckets) in [
        (Reads::Range, true, 1),
        (Reads::Range, false, 1),
        (Reads::Range, false, 3),
        (Reads::Walk, true, 1),
        (Reads::Walk, false, 1),
        (Reads::Walk, false, 3),
        (Reads::Window, false, 1),
        (Reads::Window, false, 3),
    ] {
        for order in [PageOrder::Ascending, PageOrder::Descending] {
            a_page_is_read_by_its_index(&reads, bounded, buckets, order).await;
        }
    }
}

async fn a_page_is_read_by_its_index(reads: &Reads, bounded: bool, buckets: usize, order: PageOrder) {
    let (upper, upper_value) = if bounded { (", text, text", ", 'b', ''") } else { ("", "") };
    let bucket_types = ", bigint".repeat(buckets);
    let bucket_values = [", 5", ", 6", ", 7"][..buckets].concat();
    let after = |n: usize| format!("${}", 4 + 2 * usize::from(bounded) + buckets + n);
    let filter = |n| format!("(properties ->> 'N')::int4 = {}", after(n));
    let (text, types, values) = match reads {
        Reads::Range => (statements::range(Projection::Full, bounded, buckets).into_owned(), "", ""),
        Reads::Walk => (statements::walk(Projection::Full, bounded, buckets, &filter(1)), ", int", ", 1"),
        Reads::Window => {
            let limits = (&*after(1), &*after(2));
            let text = statements::window(Projection::Full, bounded, buckets, &filter(3), limits);
            (text, ", jsonb, bigint, int", ", '{}', 11, 1")
        }
    };
    let text = statements::in_order(text.into(), order);
    let types = format!("bigint, bigint, text, text{upper}{bucket_types}{types}");
    let values = format!("0, 1001, 'a', ''{upper_value}{bucket_values}{values}");
    let plan = plan(plain_url(), &text, &types, &values).await;
    assert!(!plan.contains("Sort\n") && !plan.contains("Bitmap"), "{text}\n{plan}");
    assert_eq!(plan.contains("Merge Append"), buckets > 1, "{text}\n{plan}");
    let scans = if matches!(reads, Reads::Window) { 2 * buckets } else { buckets };
    assert_eq!(on_entities(&plan), scans, "{text}\n{plan}");
    let backward = if order == PageOrder::Descending { scans } else { 0 };
    assert_eq!(plan.matches("Scan Backward using").count(), backward, "{text}\n{plan}");
    if bounded {
        let condition = plan.lines().find(|line| line.contains("Index Cond") && line.contains("bucket"));
        let condition = condition.expect("a condition");
        assert!(condition.contains("ROW(pk, rk) >= ROW($3, $4)"), "{plan}");
        assert!(condition.contains("ROW(pk, rk) < ROW($5, $6)"), "{plan}");
    }
    match reads {
        Reads::Range => {}
        Reads::Walk => {
            assert!(!plan.contains("random"), "{plan}");
            // The cheaper condition comes first, and the filter is evaluated once for each bucket.
            assert_eq!(plan.matches(&after(1)).count(), buckets, "{plan}");
            assert!(plan.find(&after(1)) > plan.find("modified %"), "{plan}");
        }
        Reads::Window => {
            assert_eq!(plan.lines().filter(|line| line.contains("->>")).count(), 1, "{plan}");
            // Above the limit, where the properties are already taken out of storage.
            assert!(plan.find("->>") < plan.rfind("Limit"), "{plan}");
        }
    }
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
    let filtered = rows.filtered(&source, "true", Projection::Full, "$3");
    let (types, values) = if from.is_some() {
        (format!("bigint, bigint, jsonb, {sql_type}, text, text"), "0, 1001, '{}', null, 'a', ''")
    } else {
        ("bigint, bigint, jsonb".to_owned(), "0, 1001, '{}'")
    };
    for text in [filtered, rows.every_row(0..i64::from(spread), Projection::Full)] {
        let plan = plan_with(url, "SET enable_sort = off", &text, &types, values).await;
        assert_eq!(
            plan.matches(&format!("using {}_", index.kind)).count(),
            usize::from(spread),
            "{text}\n{plan}"
        );
        assert_eq!(plan.contains("Backward"), order == PageOrder::Descending, "{text}\n{plan}");
        // What the index has sorted is only completed by the keys.
        assert!(
            !plan.lines().any(|line| line.trim_start_matches([' ', '-', '>']) == "Sort"),
            "{text}\n{plan}"
        );
    }
}
