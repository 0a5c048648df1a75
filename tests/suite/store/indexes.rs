//! A page that an index narrows has the rows that `Predicate::eval` keeps, and no index outlives its table.

use std::sync::Arc;

use proptest::prelude::*;
use proptest::strategy::ValueTree;
use proptest::test_runner::TestRunner;
use rowhouse_protocol::error::Code;
use rowhouse_protocol::model::{CompareOp, EdmValue, IfMatch, Key, PageOrder, TextTest, Ticks};
use rowhouse_protocol::plan::index::{IndexKind, PropertyIndex, choices};
use rowhouse_protocol::plan::{Field, Predicate, Scan, WriteKind};
use rowhouse_store::postgres::PgStore;
use rowhouse_store::sqlite::{Location, SqliteOptions, SqliteStore};
use rowhouse_store::{AddIndexOutcome, BuiltIndex, IndexState, MAX_TABLE_INDEXES, NewIndex, StoredIndex};

use super::contract::{TestTable, compare, contract, everything, insert, now, number, refusal, table, write};
use super::meaning::{Decoded, fill_at_random, holds};
use super::postgres::open;
use super::values;
use crate::support::postgres::{fresh_database, partition_entities};
use crate::support::server::fresh_folder;
use crate::support::store::AnyStore;
use crate::support::until_async;

const NAMES: [&str; 3] = ["A", "B", "Größe"];
const ENTITIES: usize = 300;
const FILTERS: usize = 60;

pub(super) async fn memory() -> SqliteStore {
    SqliteStore::open(&SqliteOptions::new(Location::Memory)).expect("a store")
}

pub(super) async fn file() -> SqliteStore {
    let file = fresh_folder().join("indexes.db");
    SqliteStore::open(&SqliteOptions::new(Location::File(file))).expect("a store")
}

pub(super) async fn plain() -> PgStore {
    open(&fresh_database(), 1).await
}

pub(super) async fn spread() -> PgStore {
    open(&fresh_database(), 8).await
}

pub(super) async fn partitioned() -> PgStore {
    let url = fresh_database();
    partition_entities(&url);
    open(&url, 8).await
}

contract!(indexes of in_memory, super::memory);
contract!(indexed entities of in_a_file, super::file);
contract!(indexes of on_plain_tables, super::plain);
contract!(indexed entities of on_plain_tables_with_spread, super::spread);
contract!(indexed entities of on_hash_partitions_with_spread, super::partitioned);

mod in_one_bucket_of_sqlite {
    crate::store::contract::contract!(@stamp super::file, indexes: other_literals_of_dense_filters_walk);
}

mod in_one_bucket_of_postgres {
    crate::store::contract::contract!(@stamp super::plain, indexes: other_literals_of_dense_filters_walk);
}

mod in_several_buckets {
    crate::store::contract::contract!(@stamp super::spread, indexes: wider_ranges_than_dense_ones_walk);
}

/// Values that often meet in comparisons, and the ones at the limits of indexes.
fn value() -> impl Strategy<Value = EdmValue> {
    let wide = |n: i64| (1 << 53) + n;
    prop_oneof![
        2 => (-3_i32..3).prop_map(EdmValue::Int32),
        2 => (-3_i64..3).prop_map(EdmValue::Int64),
        1 => (-2_i64..3).prop_map(move |n| EdmValue::Int64(wide(n))),
        2 => (-6_i32..6).prop_map(|n| EdmValue::Double(f64::from(n) / 2.0)),
        1 => (-2_i64..3).prop_map(move |n| EdmValue::Double(wide(n) as f64)),
        1 => prop::sample::select(vec![f64::NAN, -0.0, f64::INFINITY, f64::NEG_INFINITY, f64::MAX, 5e-324, 0.1])
            .prop_map(EdmValue::Double),
        3 => "[ab\u{0}\u{1}\u{2}]{0,3}".prop_map(EdmValue::String),
        1 => "[aé\u{0}\u{1}]{0,2}".prop_map(|end| EdmValue::String("é".repeat(255) + &end)),
        1 => any::<bool>().prop_map(EdmValue::Boolean),
        1 => (0_i64..4).prop_map(|n| {
            EdmValue::DateTime(Ticks::from_raw(637_000_000_000_000_000 + n * 2_500_000).unwrap())
        }),
        1 => (0_u8..3).prop_map(|n| {
            let text = format!("0000000{n}-0000-0000-0000-00000000000{n}");
            EdmValue::Guid(text.parse().unwrap())
        }),
        1 => prop::collection::vec(0_u8..2, 0..2).prop_map(EdmValue::Binary),
        3 => values::value(),
    ]
}

fn comparison() -> impl Strategy<Value = Predicate> {
    let op = prop::sample::select(CompareOp::ALL.to_vec());
    (op, value(), 0..12_u8, prop::sample::select(NAMES.to_vec())).prop_map(|(op, literal, kind, name)| {
        let field = match kind {
            0 if matches!(literal, EdmValue::String(_)) => Field::PartitionKey,
            1 => return Predicate::Flag(name.into()),
            2 => return Predicate::Always(op == CompareOp::Eq),
            3 => return starts_with(name, literal),
            _ => Field::Custom(name.into()),
        };
        Predicate::Compare { field, op, literal }
    })
}

/// A test for the first characters of a string, or for its presence.
fn starts_with(name: &str, literal: EdmValue) -> Predicate {
    let EdmValue::String(text) = literal else { return Predicate::Present(name.into()) };
    let needle = text.chars().take(if text.len() % 2 == 0 { 1 } else { 300 }).collect();
    Predicate::Text { field: Field::Custom(name.into()), fold: None, test: TextTest::StartsWith, needle }
}

pub(super) fn predicate() -> impl Strategy<Value = Predicate> {
    comparison().prop_recursive(3, 12, 4, |inner| {
        prop_oneof![
            3 => prop::collection::vec(inner.clone(), 0..4).prop_map(Predicate::All),
            2 => prop::collection::vec(inner.clone(), 0..3).prop_map(Predicate::Any),
            1 => inner.prop_map(|p| Predicate::Not(Box::new(p))),
        ]
    })
}

/// Adds an index and builds it, when its turn comes.
pub(super) async fn index<B: AnyStore>(
    table: &TestTable<&B>,
    property: &str,
    kind: IndexKind,
) -> Arc<PropertyIndex> {
    let store = table.store;
    let added = store.add_index(NewIndex { table: table.place(), property, kind }, now()).await;
    let Ok(AddIndexOutcome::Added(number)) = added else { panic!("{added:?}") };
    let stored = find(store, number).await.expect("it is listed");
    assert_eq!(stored.state, IndexState::Building);
    assert_eq!(build(store, &stored.index).await, BuiltIndex::Ready);
    let stored = find(store, number).await.expect("it is listed");
    assert_eq!(stored.state, IndexState::Ready);
    Arc::new(stored.index)
}

async fn build<B: AnyStore>(store: &B, index: &PropertyIndex) -> BuiltIndex {
    let mut built = BuiltIndex::Busy;
    until_async("the build", async || {
        built = store.build_index(index, now()).await.expect("a build");
        built != BuiltIndex::Busy
    })
    .await;
    built
}

async fn find<B: AnyStore>(store: &B, number: i64) -> Option<StoredIndex> {
    store.indexes().await.expect("a list").into_iter().find(|stored| stored.index.index_no == number)
}

/// Random entities of a new table.
pub(super) async fn filled<'s, B: AnyStore>(
    store: &'s B,
    runner: &mut TestRunner,
) -> (TestTable<&'s B>, Vec<Decoded>) {
    let table = table(store).await;
    let all = fill_at_random(&table, runner, ENTITIES, &NAMES, value()).await;
    (table, all)
}

pub async fn narrowed_is_eval<B: AnyStore>(store: &B) {
    narrowed_is_eval_for(store, FILTERS).await;
}

/// For stores that look up the same entries as another one, over several buckets.
pub async fn narrowed_is_eval_for_some_filters<B: AnyStore>(store: &B) {
    narrowed_is_eval_for(store, FILTERS / 3).await;
}

async fn narrowed_is_eval_for<B: AnyStore>(store: &B, filters: usize) {
    let mut runner = TestRunner::deterministic();
    let (table, all) = filled(store, &mut runner).await;
    let mut indexes = Vec::new();
    for (property, kind) in [
        ("A", IndexKind::Number),
        ("A", IndexKind::Text),
        ("Größe", IndexKind::Number),
        ("A", IndexKind::Time),
        ("B", IndexKind::Guid),
        ("B", IndexKind::Boolean),
        ("Größe", IndexKind::Text),
        ("B", IndexKind::Number),
    ] {
        indexes.push(index(&table, property, kind).await);
    }
    let tree = predicate();
    let mut narrowed = 0;
    for at in 0..filters {
        let predicate = tree.new_tree(&mut runner).unwrap().current();
        let matches = all.iter().filter(|row| holds(&predicate, row));
        let mut expected: Vec<&Key> = matches.map(|row| &row.stored.key).collect();
        let one = at % indexes.len();
        for used in [&indexes[one..=one], &indexes[..], &[]] {
            let indexed = choices(&predicate, used);
            narrowed += usize::from(!indexed.is_empty());
            let rows = if at % 2 == 0 { 29 } else { 1000 };
            let residual = Some(predicate.clone());
            for order in [PageOrder::Ascending, PageOrder::Descending] {
                let scan = Scan {
                    rows,
                    order,
                    indexed: indexed.clone(),
                    residual: residual.clone(),
                    ..everything()
                };
                let rows = table.walk(&scan).await.concat();
                assert_eq!(rows.iter().map(|row| &row.key).collect::<Vec<_>>(), expected, "{predicate:?}");
                expected.reverse();
            }
        }
    }
    assert!(narrowed > filters / 3, "{narrowed} of {filters} filters used an index");
}

fn equal(value: i32) -> Predicate {
    compare("N", CompareOp::Eq, EdmValue::Int32(value))
}

/// Counts matches, and tells whether an index has found them.
async fn matches<B: AnyStore>(
    table: &TestTable<&B>,
    index: &Arc<PropertyIndex>,
    predicate: Predicate,
) -> (usize, bool) {
    let indexed = choices(&predicate, std::slice::from_ref(index));
    assert!(!indexed.is_empty());
    let filtered = Scan { indexed, residual: Some(predicate), ..everything() };
    let (rows, end) = table.store.page(table.place(), &filtered, Vec::new()).await.expect("a page");
    (rows.len(), end.narrowed_by.is_some())
}

pub async fn indexes_follow_writes<B: AnyStore>(store: &B) {
    let (table, index) = numbers(store, (0..100).map(|n| n % 10)).await;
    assert_eq!(matches(&table, &index, equal(3)).await, (10, true));
    let replace = write(WriteKind::Replace(IfMatch::Any), "p", "00003", number("N", 77));
    table.write(&replace).await.unwrap();
    table.write(&write(WriteKind::Delete(IfMatch::Any), "p", "00013", vec![])).await.unwrap();
    assert_eq!(matches(&table, &index, equal(3)).await, (8, true));
    assert_eq!(matches(&table, &index, equal(77)).await, (1, true));
    assert_eq!(matches(&table, &index, equal(78)).await, (0, true));
    let figures = store.index_figures(&index).await.unwrap();
    assert!(figures.bytes.is_some_and(|bytes| bytes > 0), "{figures:?}");
}

/// Too many entries: the page is read in the order of keys, and the next one asks no index.
pub async fn dense_filters_walk<B: AnyStore>(store: &B) {
    let of = numbers(store, std::iter::repeat_n(1, 4100)).await;
    let (first, by_index, examined) = page_of(&of, CompareOp::Eq, 1).await;
    assert!(first == 10 && !by_index && examined > 4000, "{examined}");
    assert!(is_walked(page_of(&of, CompareOp::Eq, 1).await));
    assert_eq!(matches(&of.0, &of.1, equal(2)).await, (0, true));
}

/// A table of entities with these values of `N`, and its index.
async fn numbers<B: AnyStore>(
    store: &B,
    values: impl Iterator<Item = i32>,
) -> (TestTable<&B>, Arc<PropertyIndex>) {
    let table = table(store).await;
    let of = |(n, value)| write(WriteKind::Insert, "p", &format!("{n:05}"), number("N", value));
    table.fill((0..).zip(values).map(of)).await;
    let index = index(&table, "N", IndexKind::Number).await;
    (table, index)
}

/// A page of ten by a filter on `N`: its rows, whether an index found them, and the rows that were looked at.
async fn page_of<B: AnyStore>(
    (table, index): &(TestTable<&B>, Arc<PropertyIndex>),
    op: CompareOp,
    literal: i32,
) -> (usize, bool, u64) {
    let predicate = compare("N", op, EdmValue::Int32(literal));
    let indexed = choices(&predicate, std::slice::from_ref(index));
    let filtered = Scan { rows: 10, indexed, residual: Some(predicate), ..everything() };
    let (rows, end) = table.store.page(table.place(), &filtered, Vec::new()).await.unwrap();
    let walked = Scan { indexed: choices(&Predicate::Always(true), &[]), ..filtered };
    assert_eq!(rows, table.query(&walked).await.unwrap().entities);
    (rows.len(), end.narrowed_by.is_some(), end.examined)
}

fn is_walked((rows, by_index, examined): (usize, bool, u64)) -> bool {
    rows == 10 && !by_index && examined < 1000
}

pub async fn wider_ranges_than_dense_ones_walk<B: AnyStore>(store: &B) {
    let of = numbers(store, 0..4200).await;
    assert!(page_of(&of, CompareOp::Ge, 5).await.2 > 4000);
    assert!(is_walked(page_of(&of, CompareOp::Ge, 4).await));
    assert!(page_of(&of, CompareOp::Ge, 6).await.2 > 4000, "it may match few");
}

/// A filter with another literal is known to be dense from the first one, unless it may match few.
pub async fn other_literals_of_dense_filters_walk<B: AnyStore>(store: &B) {
    let of = numbers(store, 0..4200).await;
    let page = async |op, literal| page_of(&of, op, literal).await;
    assert!(page(CompareOp::Ge, 5).await.2 > 4000);
    assert!(is_walked(page(CompareOp::Ge, 6).await) && is_walked(page(CompareOp::Gt, 100).await));
    let (rows, by_index, _) = page(CompareOp::Ge, 4195).await;
    assert!(rows == 5 && by_index);
    let (rows, by_index, _) = page(CompareOp::Ge, 300).await;
    assert!(rows == 10 && by_index, "3900 match");
    assert!(page(CompareOp::Le, 4150).await.2 > 4000, "from the other end");
    assert!(is_walked(page(CompareOp::Le, 4140).await));
    let (rows, by_index, _) = page(CompareOp::Le, 3).await;
    assert!(rows == 4 && by_index);
}

pub async fn indexes_are_limited<B: AnyStore>(store: &B) {
    let table = table(store).await;
    let add = async |place, property: &str| {
        store.add_index(NewIndex { table: place, property, kind: IndexKind::Text }, now()).await
    };
    let mut added = Vec::new();
    for at in 0..MAX_TABLE_INDEXES {
        match add(table.place(), &format!("P{at}")).await.unwrap() {
            AddIndexOutcome::Added(number) => added.push(number),
            other => panic!("{other:?}"),
        }
    }
    assert_eq!(add(table.place(), "P0").await.unwrap(), AddIndexOutcome::Exists);
    assert_eq!(add(table.place(), "More").await.unwrap(), AddIndexOutcome::TooMany);
    assert!(store.drop_index(added[0], now()).await.unwrap());
    assert!(!store.drop_index(added[0], now()).await.unwrap(), "it is gone");
    assert!(matches!(add(table.place(), "P0").await.unwrap(), AddIndexOutcome::Added(_)));
    assert_eq!(refusal(add(table.named("Missing").place(), "P").await), Code::TableNotFound);
}

pub async fn a_deleted_table_takes_its_indexes_along<B: AnyStore>(store: &B) {
    let (table, old) = numbers(store, 1..2).await;
    let new = NewIndex { table: table.place(), property: "M", kind: IndexKind::Number };
    let added = store.add_index(new, now()).await;
    let Ok(AddIndexOutcome::Added(unbuilt)) = added else { panic!("{added:?}") };
    let unbuilt = find(store, unbuilt).await.unwrap().index;
    let changes = store.account_changes().await.unwrap().indexes;
    table.delete().await.unwrap();
    assert_eq!(find(store, old.index_no).await, None);
    assert_eq!(build(store, &unbuilt).await, BuiltIndex::Gone);
    table.create().await.unwrap();
    table.write(&insert("p", "r")).await.unwrap();
    // A page that was planned for the former table.
    assert_eq!(matches(&table, &old, equal(1)).await, (1, false));
    assert!(store.indexes().await.unwrap().iter().all(|stored| stored.account != table.account));
    // It is not remembered for the new table.
    let new = index(&table, "N", IndexKind::Number).await;
    assert_eq!(matches(&table, &new, equal(1)).await, (1, true));
    table.delete().await.unwrap();
    until_async("the removal of the index", async || {
        store.remove_index(now()).await.unwrap();
        store.index_figures(&old).await.unwrap().bytes.is_none()
    })
    .await;
    assert!(store.account_changes().await.unwrap().indexes > changes, "servers are told");
}

/// A reader of the file still has the statement of the index, which another process has removed.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_statement_that_outlives_its_index_reads_the_table() {
    let path = fresh_folder().join("indexes.db");
    let store = SqliteStore::open(&SqliteOptions::new(Location::File(path.clone()))).expect("a store");
    let (table, index) = numbers(&store, 0..100).await;
    assert_eq!(matches(&table, &index, equal(7)).await, (1, true));
    let other = rusqlite::Connection::open(&path).expect("the file");
    let removal = format!("DROP INDEX property_index_{}", index.index_no);
    other.execute_batch(&removal).expect("it is there");
    assert_eq!(matches(&table, &index, equal(7)).await, (1, false));
}
