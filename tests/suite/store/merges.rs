//! Writes do what `decide` does, whoever does them; merges above all.

use futures_util::future::join_all;
use proptest::prelude::*;
use proptest::strategy::ValueTree;
use proptest::test_runner::TestRunner;
use rowhouse_protocol::error::Code;
use rowhouse_protocol::model::entity::{Entity, Properties};
use rowhouse_protocol::model::{EdmValue, IfMatch, Key, Ticks};
use rowhouse_protocol::plan::{Write, WriteKind};
use sqlx::{Connection, PgConnection, Row};

use super::contract::{TestTable, now, number, refusal, sent, table, write};
use super::postgres::open;
use super::values::value;
use super::writes::is_as_decided;
use crate::support::postgres::fresh_database;
use crate::support::store::AnyStore;

/// Entities that are written at once.
const MANY: usize = 48;

/// Few names, so that merges meet what is stored, under other types too.
fn properties() -> impl Strategy<Value = Properties> {
    let long = "n".repeat(255);
    let names =
        ["A", "a", "B", "_", "é", "中文", "e\u{301}", "𝐀𝐁", "odata", "type", "Edm_Int64", long.as_str()];
    let name = prop::sample::select(names.map(str::to_owned).to_vec());
    prop::collection::btree_map(name, value(), 0..5).prop_map(|map| map.into_iter().collect())
}

/// Does the writes at once, each at its time, and compares with `decide`.
async fn write_all<B: AnyStore>(table: &TestTable<&B>, writes: &[(Write, Ticks)]) {
    let look = || join_all(writes.iter().map(|(write, _)| table.get(&write.key)));
    let before = look().await;
    let done = writes.iter().map(|(write, at)| table.store.write(table.place(), write, *at));
    let done = join_all(done).await;
    let after = look().await;
    for (((write, at), before), (done, after)) in writes.iter().zip(before).zip(done.into_iter().zip(after)) {
        is_as_decided(write, before.unwrap().as_ref(), *at, done, after.unwrap().as_ref());
    }
}

/// Most writes are merges, which have to look at what is stored. On PostgreSQL, those of a kind share a statement.
pub async fn any_into_any<B: AnyStore>(store: &B) {
    let table = table(store).await;
    let mut runner = TestRunner::deterministic();
    let past = now();
    for round in 0..12 {
        let mut writes = Vec::new();
        for n in 0..MANY {
            let key = Key::new(format!("p{}", n % 3), n.to_string());
            let found = table.get(&key).await.unwrap();
            let condition = match (n + round) % 5 {
                0 => IfMatch::Any,
                1 => IfMatch::Version(found.as_ref().map(|found| found.modified)),
                2 => IfMatch::Version(Some(now())),
                _ => IfMatch::Absent,
            };
            let kind = match (n + 3 * round) % 8 {
                0 | 1 => WriteKind::Replace(condition),
                2 if condition != IfMatch::Absent => WriteKind::Delete(condition),
                3 => WriteKind::Insert,
                _ => WriteKind::Merge(condition),
            };
            // A clock behind what is stored, and the same for several.
            let at = if n % 4 == 0 && found.is_some() { past } else { now() };
            let properties = properties().new_tree(&mut runner).unwrap().current();
            writes.push((Write { kind, key, properties: sent(&properties) }, at));
        }
        write_all(&table, &writes).await;
    }
}

fn many(prefix: &str, n: usize, value: &EdmValue) -> Properties {
    (0..n).map(|i| (format!("{prefix}{i}"), value.clone())).collect()
}

pub async fn limits_of_the_union<B: AnyStore>(store: &B) {
    let table = table(store).await;
    let (int, long) = (EdmValue::Int32(1), EdmValue::Int64(1));
    let text = EdmValue::String("x".repeat(32 * 1024));
    let blob = EdmValue::Binary(vec![7; 64 * 1024]);
    let escapes = EdmValue::String("\u{0}".repeat(32 * 1024));
    for (stored, sent) in [
        (many("O", 252, &int), many("O", 1, &long)),
        (many("O", 252, &int), many("N", 1, &int)),
        (many("O", 252, &int), vec![]),
        (many("O", 251, &int), many("N", 1, &long)),
        (many("O", 200, &int), many("N", 52, &int)),
        (many("O", 200, &int), many("N", 53, &int)),
        (many("O", 200, &long), many("N", 52, &long)),
        (many("O", 1, &int), many("N", 252, &int)),
        (vec![], many("N", 252, &long)),
        (many("O", 15, &text), many("N", 1, &int)),
        (many("O", 15, &text), many("N", 1, &text)),
        (many("O", 8, &text), many("N", 8, &text)),
        (many("O", 7, &text), many("N", 8, &text)),
        (many("O", 3, &text), many("N", 6, &text)),
        (many("O", 15, &blob), many("O", 15, &text)),
        (many("O", 15, &blob), many("N", 1, &text)),
        (many("O", 8, &escapes), many("O", 1, &int)),
    ] {
        for condition in [IfMatch::Any, IfMatch::Absent] {
            let upsert = write(WriteKind::Replace(IfMatch::Absent), "p", "r", stored.clone());
            table.write(&upsert).await.unwrap();
            let merge = write(WriteKind::Merge(condition), "p", "r", sent.clone());
            write_all(&table, &[(merge, now())]).await;
        }
    }
    let merge = write(WriteKind::Merge(IfMatch::Any), "p", "r", many("N", 15, &text));
    assert_eq!(refusal(table.write(&merge).await), Code::EntityTooLarge);
}

#[tokio::test]
async fn the_text_that_guards_merges_counts_for_all_that_is_stored() {
    let url = fresh_database();
    let store = open(&url, 1).await;
    let table = table(&store).await;
    let mut runner = TestRunner::deterministic();
    let any = prop_oneof![properties(), (0_usize..60, value()).prop_map(|(n, value)| many("P", n, &value))];
    let sent: Vec<Properties> = (0..300).map(|_| any.new_tree(&mut runner).unwrap().current()).collect();
    for (row, properties) in sent.iter().enumerate() {
        let one = write(WriteKind::Insert, "p", &row.to_string(), properties.clone());
        table.write(&one).await.unwrap();
    }
    let mut connection = PgConnection::connect(&url).await.unwrap();
    let measure = "SELECT rk, octet_length(properties::text) AS bytes, \
                   jsonb_array_length(jsonb_path_query_array(properties, '$.*')) AS members FROM entities";
    let rows = sqlx::query(measure).fetch_all(&mut connection).await.unwrap();
    assert_eq!(rows.len(), sent.len());
    for row in rows {
        let properties = &sent[row.get::<&str, _>("rk").parse::<usize>().unwrap()];
        let entity = Entity { key: Key::new("", ""), properties: properties.clone() };
        let counted = entity.counted_size() - 4;
        assert!(counted <= 2 * row.get::<i32, _>("bytes") as usize, "{counted}: {properties:?}");
        assert!(properties.len() <= row.get::<i32, _>("members") as usize, "{properties:?}");
    }
}

/// How many sessions have read an entity as the last thing that they did.
async fn readers(url: &str) -> i64 {
    let mut connection = PgConnection::connect(url).await.unwrap();
    let query = "SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() \
                 AND (query LIKE 'SELECT u.n%' OR query LIKE 'SELECT e.modified%')";
    sqlx::query_scalar(query).fetch_one(&mut connection).await.unwrap()
}

#[tokio::test]
async fn merges_read_nothing_unless_types_change() {
    let url = fresh_database();
    let store = open(&url, 1).await;
    let table = table(&store).await;
    let row = |n: usize| format!("r{n}");
    let long = |n: i64| vec![("N".to_owned(), EdmValue::Int64(n))];
    for (kind, properties) in [
        (WriteKind::Merge(IfMatch::Absent), long(1)),
        (WriteKind::Merge(IfMatch::Any), long(2)),
        (WriteKind::Merge(IfMatch::Absent), number("M", 3)),
        (WriteKind::Merge(IfMatch::Any), vec![("M".to_owned(), EdmValue::Double(4.0))]),
        (WriteKind::Merge(IfMatch::Any), vec![]),
    ] {
        for many in [1, 40] {
            let merges: Vec<_> = (0..many).map(|n| write(kind, "p", &row(n), properties.clone())).collect();
            let done = join_all(merges.iter().map(|merge| table.write(merge))).await;
            assert!(done.iter().all(Result::is_ok), "{done:?}");
        }
    }
    assert_eq!(readers(&url).await, 0);
    let merge = write(WriteKind::Merge(IfMatch::Any), "p", "r0", number("N", 3));
    table.write(&merge).await.unwrap();
    assert_eq!(readers(&url).await, 1);
}
