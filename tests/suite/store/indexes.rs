//! A page that an index narrows has the rows that `Predicate::eval` keeps, and no index outlives its table.

use std::sync::Arc;

use crate::support::store::AnyStore;
use proptest::prelude::*;
use proptest::strategy::ValueTree;
use proptest::test_runner::TestRunner;
use rowhouse::error::Code;
use rowhouse::protocol::model::entity::Properties;
use rowhouse::protocol::model::{CompareOp, EdmValue, Key, PageOrder, Stored, TableName, TextTest, Ticks};
use rowhouse::protocol::plan::index::{IndexKind, PropertyIndex, choices};
use rowhouse::protocol::plan::{Field, Predicate, Span, WriteKind};
use rowhouse::store::{AddedIndex, BuiltIndex, IndexState, MAX_TABLE_INDEXES, NewIndex, StoredIndex};

use rowhouse::store::postgres::PgStore;
use rowhouse::store::sqlite::{Location, SqliteOptions, SqliteStore};

use super::contract::{fill, name, now, number, refusal, scan, table, walk, write};
use super::meaning::holds;
use super::postgres::open;
use super::values;
use crate::support::postgres::{fresh_database, partition_entities};
use crate::support::server::fresh_folder;
use crate::support::until_async;

const NAMES: [&str; 3] = ["A", "B", "Größe"];
const ENTITIES: usize = 300;
const FILTERS: usize = 60;

/// Stamps every case for one store. Each case has a database of its own: an index costs every write of its
/// database, and a build waits for all transactions.
macro_rules! indexed {
    ($name:ident, $open:path) => {
        indexed!(
            @stamp $name, $open, narrowed_is_eval indexes_follow_writes dense_filters_walk indexes_are_limited
            a_deleted_table_takes_its_indexes_along
        );
    };
    (@stamp $name:ident, $open:path, $($case:ident)+) => {
        mod $name {
            $(
                #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
                async fn $case() {
                    let store = $open().await;
                    super::$case(&store).await;
                }
            )+
        }
    };
}

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

indexed!(in_memory, super::memory);
indexed!(in_a_file, super::file);
indexed!(on_plain_tables, super::plain);
indexed!(on_plain_tables_with_spread, super::spread);
indexed!(on_hash_partitions_with_spread, super::partitioned);
indexed!(@stamp in_one_bucket_of_sqlite, super::file, other_literals_of_dense_filters_walk);
indexed!(@stamp in_one_bucket_of_postgres, super::plain, other_literals_of_dense_filters_walk);
indexed!(@stamp in_several_buckets, super::spread, wider_ranges_than_dense_ones_walk);

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
    store: &B,
    account: &str,
    table: &TableName,
    property: &str,
    kind: IndexKind,
) -> PropertyIndex {
    let added = store
        .add_index(NewIndex { table: table.in_account(account), property, kind }, now())
        .await
        .expect("an index");
    let AddedIndex::Added(number) = added else { panic!("{added:?}") };
    let stored = find(store, number).await.expect("it is listed");
    assert_eq!(stored.state, IndexState::Building);
    assert_eq!(build(store, &stored.index).await, BuiltIndex::Ready);
    let stored = find(store, number).await.expect("it is listed");
    assert_eq!(stored.state, IndexState::Ready);
    stored.index
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

pub(super) async fn filled<B: AnyStore>(
    store: &B,
    runner: &mut TestRunner,
) -> (String, TableName, Vec<Stored>) {
    let (account, table) = table(store).await;
    let one = prop::collection::vec(prop::option::weighted(0.8, value()), NAMES.len());
    let writes = (0..ENTITIES).map(|i| {
        let values = one.new_tree(runner).unwrap().current();
        let named = NAMES.iter().zip(values).filter_map(|(n, v)| Some(((*n).to_owned(), v?)));
        let partition = ["", "a", "é"][i % 3];
        write(WriteKind::Insert, partition, &format!("{i:03}"), named.collect::<Properties>())
    });
    fill(store, &account, &table, writes.collect()).await;
    let everything = walk(store, &account, &table, &scan(vec![Span::everything()])).await.concat();
    assert_eq!(everything.len(), ENTITIES);
    (account, table, everything)
}

pub async fn narrowed_is_eval<B: AnyStore>(store: &B) {
    let mut runner = TestRunner::deterministic();
    let (account, table, everything) = filled(store, &mut runner).await;
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
        indexes.push(Arc::new(index(store, &account, &table, property, kind).await));
    }
    let tree = predicate();
    let mut narrowed = 0;
    for at in 0..FILTERS {
        let predicate = tree.new_tree(&mut runner).unwrap().current();
        let matches = everything.iter().filter(|row| holds(&predicate, row));
        let expected: Vec<&Key> = matches.map(|row| &row.key).collect();
        // Without each index and with all: with none, then with one after the other, then with every one.
        let some = match at % (indexes.len() + 2) {
            0 => &indexes[..],
            n => indexes.get(n - 1..n).unwrap_or(&indexes[..]),
        };
        for used in [some, &indexes[..], &[]] {
            let mut filtered = scan(vec![Span::everything()]);
            filtered.rows = if at % 2 == 0 { 29 } else { 1000 };
            filtered.indexed = choices(&predicate, used);
            narrowed += usize::from(!filtered.indexed.is_empty());
            filtered.residual = Some(predicate.clone());
            let rows = walk(store, &account, &table, &filtered).await.concat();
            assert_eq!(rows.iter().map(|row| &row.key).collect::<Vec<_>>(), expected, "{predicate:?}");
            filtered.spans.reverse();
            filtered.order = PageOrder::Descending;
            let rows = walk(store, &account, &table, &filtered).await.concat();
            assert!(rows.iter().rev().map(|row| &row.key).eq(expected.iter().copied()), "{predicate:?}");
        }
    }
    assert!(narrowed > FILTERS / 3, "{narrowed} of {FILTERS} filters used an index");
}

fn equal(property: &str, value: i32) -> Predicate {
    compare(property, CompareOp::Eq, value)
}

fn compare(property: &str, op: CompareOp, value: i32) -> Predicate {
    let field = Field::Custom(property.into());
    Predicate::Compare { field, op, literal: EdmValue::Int32(value) }
}

/// Counts matches, and tells whether an index has found them.
async fn matches<B: AnyStore>(
    store: &B,
    (account, table): (&str, &TableName),
    index: &PropertyIndex,
    predicate: Predicate,
) -> (usize, bool) {
    let mut filtered = scan(vec![Span::everything()]);
    filtered.indexed = choices(&predicate, &[Arc::new(index.clone())]);
    assert!(!filtered.indexed.is_empty());
    filtered.residual = Some(predicate);
    let (rows, end) = store.page(table.in_account(account), &filtered, Vec::new()).await.expect("a page");
    (rows.len(), end.narrowed_by.is_some())
}

pub async fn indexes_follow_writes<B: AnyStore>(store: &B) {
    let (account, table) = table(store).await;
    let place = (account.as_str(), &table);
    let of = |n: i32| write(WriteKind::Insert, "p", &format!("{n:05}"), number("N", n % 10));
    fill(store, &account, &table, (0..100).map(of).collect()).await;
    let index = index(store, &account, &table, "N", IndexKind::Number).await;
    assert_eq!(matches(store, place, &index, equal("N", 3)).await, (10, true));
    let replace = WriteKind::Replace(rowhouse::protocol::model::IfMatch::Any);
    store
        .write(table.in_account(&account), &write(replace, "p", "00003", number("N", 77)), now())
        .await
        .unwrap();
    let delete = WriteKind::Delete(rowhouse::protocol::model::IfMatch::Any);
    store
        .write(table.in_account(&account), &write(delete, "p", "00013", Properties::new()), now())
        .await
        .unwrap();
    assert_eq!(matches(store, place, &index, equal("N", 3)).await, (8, true));
    assert_eq!(matches(store, place, &index, equal("N", 77)).await, (1, true));
    assert_eq!(matches(store, place, &index, equal("N", 78)).await, (0, true));
    let figures = store.index_figures(&index).await.unwrap();
    assert!(figures.bytes.is_some_and(|bytes| bytes > 0), "{figures:?}");
}

/// Too many entries: the page is read in the order of keys, and the next one asks no index.
pub async fn dense_filters_walk<B: AnyStore>(store: &B) {
    let (account, table) = table(store).await;
    let of = |n: i32| write(WriteKind::Insert, "p", &format!("{n:05}"), number("N", 1));
    fill(store, &account, &table, (0..4100).map(of).collect()).await;
    let index = index(store, &account, &table, "N", IndexKind::Number).await;
    let predicate = equal("N", 1);
    let mut filtered = scan(vec![Span::everything()]);
    filtered.indexed = choices(&predicate, &[Arc::new(index.clone())]);
    filtered.residual = Some(predicate);
    filtered.rows = 10;
    let (first, end) = store.page(table.in_account(&account), &filtered, Vec::new()).await.unwrap();
    assert!(first.len() == 10 && end.narrowed_by.is_none() && end.examined > 4000, "{end:?}");
    let (again, end) = store.page(table.in_account(&account), &filtered, Vec::new()).await.unwrap();
    assert!(again == first && end.narrowed_by.is_none() && end.examined < 1000, "{end:?}");
    assert_eq!(matches(store, (&account, &table), &index, equal("N", 2)).await, (0, true));
}

async fn numbers<B: AnyStore>(store: &B, count: i32) -> (String, TableName, Arc<PropertyIndex>) {
    let (account, table) = table(store).await;
    let of = |n: i32| write(WriteKind::Insert, "p", &format!("{n:05}"), number("N", n));
    fill(store, &account, &table, (0..count).map(of).collect()).await;
    let index = index(store, &account, &table, "N", IndexKind::Number).await;
    (account, table, Arc::new(index))
}

/// A page of ten by a filter on `N`: its rows, whether an index found them, and the rows that were looked at.
async fn page_of<B: AnyStore>(
    store: &B,
    (account, table, index): &(String, TableName, Arc<PropertyIndex>),
    op: CompareOp,
    literal: i32,
) -> (usize, bool, u64) {
    let predicate = compare("N", op, literal);
    let mut filtered = scan(vec![Span::everything()]);
    filtered.indexed = choices(&predicate, &[Arc::clone(index)]);
    filtered.residual = Some(predicate);
    filtered.rows = 10;
    let (rows, end) = store.page(table.in_account(account), &filtered, Vec::new()).await.unwrap();
    (rows.len(), end.narrowed_by.is_some(), end.examined)
}

fn is_walked((rows, by_index, examined): (usize, bool, u64)) -> bool {
    rows == 10 && !by_index && examined < 1000
}

pub async fn wider_ranges_than_dense_ones_walk<B: AnyStore>(store: &B) {
    let of = numbers(store, 4200).await;
    assert!(page_of(store, &of, CompareOp::Ge, 5).await.2 > 4000);
    assert!(is_walked(page_of(store, &of, CompareOp::Ge, 4).await));
    assert!(page_of(store, &of, CompareOp::Ge, 6).await.2 > 4000, "it may match few");
}

/// A filter with another literal is known to be dense from the first one, unless it may match few.
pub async fn other_literals_of_dense_filters_walk<B: AnyStore>(store: &B) {
    let of = numbers(store, 4200).await;
    let page = async |op, literal| page_of(store, &of, op, literal).await;
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
    let (account, table) = table(store).await;
    let add = async |property: &str| {
        store
            .add_index(NewIndex { table: table.in_account(&account), property, kind: IndexKind::Text }, now())
            .await
    };
    let mut added = Vec::new();
    for at in 0..MAX_TABLE_INDEXES {
        match add(&format!("P{at}")).await.unwrap() {
            AddedIndex::Added(number) => added.push(number),
            other => panic!("{other:?}"),
        }
    }
    assert_eq!(add("P0").await.unwrap(), AddedIndex::Exists);
    assert_eq!(add("More").await.unwrap(), AddedIndex::TooMany);
    assert!(store.drop_index(added[0], now()).await.unwrap());
    assert!(!store.drop_index(added[0], now()).await.unwrap(), "it is gone");
    assert!(matches!(add("P0").await.unwrap(), AddedIndex::Added(_)));
    let missing = store
        .add_index(
            NewIndex { table: name("Missing").in_account(&account), property: "P", kind: IndexKind::Text },
            now(),
        )
        .await;
    assert_eq!(refusal(missing), Code::TableNotFound);
    store.delete_table(table.in_account(&account), now()).await.unwrap();
}

pub async fn a_deleted_table_takes_its_indexes_along<B: AnyStore>(store: &B) {
    let (account, table) = table(store).await;
    fill(store, &account, &table, vec![write(WriteKind::Insert, "p", "r", number("N", 1))]).await;
    let old = index(store, &account, &table, "N", IndexKind::Number).await;
    let AddedIndex::Added(unbuilt) = store
        .add_index(
            NewIndex { table: table.in_account(&account), property: "M", kind: IndexKind::Number },
            now(),
        )
        .await
        .unwrap()
    else {
        panic!("an index")
    };
    let unbuilt = find(store, unbuilt).await.unwrap().index;
    let changes = store.account_changes().await.unwrap().indexes;
    store.delete_table(table.in_account(&account), now()).await.unwrap();
    assert_eq!(find(store, old.index_no).await, None);
    assert_eq!(build(store, &unbuilt).await, BuiltIndex::Gone);
    store.create_table(table.in_account(&account), now()).await.unwrap();
    fill(store, &account, &table, vec![write(WriteKind::Insert, "p", "r", number("N", 1))]).await;
    // A page that was planned for the former table.
    assert_eq!(matches(store, (&account, &table), &old, equal("N", 1)).await, (1, false));
    assert!(store.indexes().await.unwrap().iter().all(|stored| stored.account != account));
    // It is not remembered for the new table.
    let new = index(store, &account, &table, "N", IndexKind::Number).await;
    assert_eq!(matches(store, (&account, &table), &new, equal("N", 1)).await, (1, true));
    store.delete_table(table.in_account(&account), now()).await.unwrap();
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
    let numbered = numbers(&store, 100).await;
    let place = (numbered.0.as_str(), &numbered.1);
    assert_eq!(matches(&store, place, &numbered.2, equal("N", 7)).await, (1, true));
    let other = rusqlite::Connection::open(&path).expect("the file");
    let removal = format!("DROP INDEX property_index_{}", numbered.2.index_no);
    other.execute_batch(&removal).expect("it is there");
    assert_eq!(matches(&store, place, &numbered.2, equal("N", 7)).await, (1, false));
}
