//! A page in the order of an index has the rows that the filter and the ranges of keys keep, each once, in the
//! order of their values.

use std::sync::Arc;
use std::time::Duration;

use proptest::strategy::{Strategy as _, ValueTree as _};
use proptest::test_runner::TestRunner;
use rowhouse_protocol::error::Code;
use rowhouse_protocol::model::{CompareOp, EdmValue, Key, PageOrder, Stored};
use rowhouse_protocol::plan::index::{IndexKind, IndexValue, PropertyIndex, ValueOrder, choices};
use rowhouse_protocol::plan::{Predicate, Scan, Span, WriteKind};
use rowhouse_store::Entities;
use rowhouse_store::postgres::PgStore;

use super::contract::{TestTable, compare, insert, number, partition, refusal, scan, table, write};
use super::indexes::{filled, index, partitioned, plain, predicate, spread};
use super::meaning::{Decoded, holds};
use super::pages::{fill_large, is_any_of};
use super::postgres::open;
use crate::support::citus::fresh_stand_in;
use crate::support::nodes;
use crate::support::postgres::{execute, fresh_database};
use crate::support::store::AnyStore;

mod distributed {
    crate::store::contract::contract!(
        @stamp super::distributed,
        ordered: ordered_is_sorted_eval_for_some_filters, long_keys_are_ordered_and_told_apart,
            a_page_is_full_or_the_last
    );
}

/// A database of its own, as indexes need.
async fn distributed() -> PgStore {
    let url = nodes::distributed().map_or_else(fresh_stand_in, |nodes| nodes.coordinator);
    open(&url, 8).await
}

const PROPERTIES: [(&str, IndexKind); 7] = [
    ("A", IndexKind::Text),
    ("A", IndexKind::Number),
    ("Größe", IndexKind::Number),
    ("A", IndexKind::Time),
    ("B", IndexKind::Guid),
    ("B", IndexKind::Boolean),
    ("Timestamp", IndexKind::Timestamp),
];
/// The numbers of filters, which decide their form and what they are read with.
const FILTERS: std::ops::Range<usize> = 0..12;
/// Some that have every form.
const SOME_FILTERS: [usize; 5] = [2, 3, 6, 9, 10];

/// The entry of an entity, as the databases make it; `None` comes first.
fn entry(entity: &Decoded, index: &PropertyIndex) -> Option<IndexValue> {
    if index.kind == IndexKind::Timestamp {
        return Some(IndexValue::Timestamp(entity.stored.modified));
    }
    let first = |text: &str| IndexValue::Text(text.chars().take(256).collect());
    Some(match (index.kind, entity.property(&index.property)?) {
        (IndexKind::Text, EdmValue::String(text)) if text.contains('\0') => {
            first(text.split(['\0', '\u{1}']).next().unwrap_or_default())
        }
        (IndexKind::Text, EdmValue::String(text)) => first(text),
        (IndexKind::Number, EdmValue::Double(value)) if value.is_nan() => return None,
        (IndexKind::Number, EdmValue::Double(value)) => IndexValue::Number(*value),
        (IndexKind::Number, EdmValue::Int32(value)) => IndexValue::Number(f64::from(*value)),
        (IndexKind::Number, EdmValue::Int64(value)) => IndexValue::Number(*value as f64),
        (IndexKind::Number, _) => IndexValue::Number(f64::NEG_INFINITY),
        (IndexKind::Time, EdmValue::DateTime(time)) => first(time.to_canonical().trim_end_matches('Z')),
        (IndexKind::Guid, EdmValue::Guid(guid)) => first(&guid.to_string()),
        (IndexKind::Boolean, EdmValue::Boolean(value)) => IndexValue::Boolean(*value),
        (IndexKind::Boolean, _) => IndexValue::Boolean(false),
        _ => IndexValue::Text(String::new()),
    })
}

/// A page in the order of an index, as a server plans it.
fn ordered(
    index: &Arc<PropertyIndex>,
    order: PageOrder,
    filter: Option<&Predicate>,
    spans: Vec<Span>,
) -> Scan {
    let own = filter.map(|filter| choices(filter, std::slice::from_ref(index))).unwrap_or_default();
    let range = own.into_iter().next().filter(|choice| choice.ranges.len() == 1);
    let by = ValueOrder {
        property: index.property.clone(),
        from: None,
        index: Some(Arc::clone(index)),
        range: range.and_then(|choice| choice.ranges.into_iter().next()),
    };
    Scan { order, by: Some(Box::new(by)), residual: filter.cloned(), ..scan(spans) }
}

/// Follows the positions to the end.
async fn walked<B: AnyStore>(table: &TestTable<&B>, scan: &Scan) -> Vec<Vec<Stored>> {
    walked_until(table, scan, usize::MAX).await
}

/// Follows the positions until there are as many entities, or to the end.
async fn walked_until<B: AnyStore>(table: &TestTable<&B>, scan: &Scan, enough: usize) -> Vec<Vec<Stored>> {
    let (mut scan, mut pages) = (scan.clone(), Vec::new());
    loop {
        let (page, end) = table.store.page(table.place(), &scan, Vec::<Stored>::new()).await.expect("a page");
        assert_eq!(end.next, None);
        pages.push(page);
        assert!(pages.len() < 2000, "the walk makes no progress: {scan:?}");
        let found: usize = pages.iter().map(Vec::len).sum();
        match (&mut scan.by, end.next_in_index) {
            (Some(by), Some(next)) if found < enough => by.from = Some(next),
            _ => return pages,
        }
    }
}

fn keys(entities: &[Stored]) -> Vec<&Key> {
    entities.iter().map(|entity| &entity.key).collect()
}

/// Ranges as those of a filter or of a SAS.
fn some_spans(at: usize) -> Vec<Span> {
    let span = |lower: (&str, &str), upper: Option<(&str, &str)>| Span {
        lower: Key::new(lower.0, lower.1),
        upper: upper.map(|(p, r)| Key::new(p, r)),
    };
    // More than a statement compares rows with.
    let tens =
        || (0..20).map(|n| span(("a", &format!("{n:02}1")), Some(("a", &format!("{n:02}8"))))).collect();
    match at % 5 {
        0 => vec![Span::everything()],
        1 => vec![partition("a")],
        2 => vec![span(("", "100"), Some(("a", "040"))), span(("a", "150"), None)],
        3 => vec![span(("a", "2"), None)],
        _ => tens(),
    }
}

/// The same filter with further comparisons, which decide nothing.
fn with_comparisons(filter: Predicate, count: i32) -> Predicate {
    Predicate::All(vec![filter, Predicate::Not(Box::new(is_any_of(&[], count)))])
}

pub async fn ordered_is_sorted_eval<B: AnyStore>(store: &B) {
    ordered_is_sorted_eval_for(store, FILTERS).await;
}

/// For stores that read the same entries as another one, in several buckets.
pub async fn ordered_is_sorted_eval_for_some_filters<B: AnyStore>(store: &B) {
    ordered_is_sorted_eval_for(store, SOME_FILTERS).await;
}

async fn ordered_is_sorted_eval_for<B: AnyStore>(store: &B, filters: impl IntoIterator<Item = usize>) {
    let mut runner = TestRunner::deterministic();
    let (table, all) = filled(store, &mut runner).await;
    let mut indexes = Vec::new();
    for (property, kind) in PROPERTIES {
        indexes.push(index(&table, property, kind).await);
    }
    let tree = predicate();
    for at in filters {
        let filter = (at > 2).then(|| tree.new_tree(&mut runner).unwrap().current());
        // So many comparisons that PostgreSQL does not evaluate them.
        let filter = filter.map(|filter| if at % 4 == 3 { with_comparisons(filter, 20) } else { filter });
        let spans = some_spans(at);
        let is_in = |key: &Key| {
            spans.iter().any(|span| span.lower <= *key && span.upper.as_ref().is_none_or(|upper| key < upper))
        };
        let is_match = |row: &&Decoded| {
            is_in(&row.stored.key) && filter.as_ref().is_none_or(|filter| holds(filter, row))
        };
        for index in &indexes {
            let matches = all.iter().filter(is_match);
            let mut expected: Vec<_> = matches.map(|row| (entry(row, index), &row.stored)).collect();
            expected.sort_by(|a, b| a.0.partial_cmp(&b.0).unwrap().then_with(|| a.1.key.cmp(&b.1.key)));
            let mut expected: Vec<&Stored> = expected.into_iter().map(|(_, row)| row).collect();
            for order in [PageOrder::Ascending, PageOrder::Descending] {
                let mut scan = ordered(index, order, filter.as_ref(), spans.clone());
                scan.rows = if at % 2 == 0 { 29 } else { 1000 };
                let others: Vec<_> = indexes.iter().filter(|other| *other != index).cloned().collect();
                if let (Some(filter), 0) = (&filter, at % 3) {
                    scan.indexed = choices(filter, &others);
                }
                let found = walked(&table, &scan).await.concat();
                assert_eq!(
                    found.iter().collect::<Vec<_>>(),
                    expected,
                    "{order:?} {index:?} {filter:?} {spans:?}"
                );
                expected.reverse();
            }
        }
    }
}

/// Indexes hold the first characters of keys: what they share does not mix entities up.
pub async fn long_keys_are_ordered_and_told_apart<B: AnyStore>(store: &B) {
    let table = table(store).await;
    let long = |end: &str| format!("{}{end}", "é".repeat(70));
    let mut writes = Vec::new();
    for partition in ["p".to_owned(), long("a"), long("b"), long("c")] {
        for row in ["r".to_owned(), long("1"), long("2"), long("3"), "漢".repeat(511)] {
            writes.push(insert(&partition, &row));
        }
    }
    // The longest value and the longest keys share a row of the index.
    let text = vec![("T".to_owned(), EdmValue::String("漢字かな交じり文".repeat(100)))];
    writes.push(write(WriteKind::Insert, &"漢".repeat(511), &"字".repeat(511), text));
    table.fill(writes).await;
    for (property, kind) in [("N", IndexKind::Number), ("T", IndexKind::Text)] {
        let index = index(&table, property, kind).await;
        for rows in [1, 2, 7, 1000] {
            let walk = async |order| {
                let scan = Scan { rows, ..ordered(&index, order, None, vec![Span::everything()]) };
                walked(&table, &scan).await.concat()
            };
            let (ascending, mut descending) =
                (walk(PageOrder::Ascending).await, walk(PageOrder::Descending).await);
            descending.reverse();
            assert_eq!(keys(&ascending), keys(&descending));
            let mut sorted = keys(&ascending);
            sorted.sort();
            sorted.dedup();
            assert_eq!(sorted.len(), 21);
        }
    }
}

pub async fn an_order_without_its_index_is_refused<B: AnyStore>(store: &B) {
    let table = table(store).await;
    table.write(&insert("p", "r")).await.unwrap();
    let old = index(&table, "N", IndexKind::Number).await;
    let page = async |scan: &Scan| store.page(table.place(), scan, Vec::<Stored>::new()).await;
    let scan = ordered(&old, PageOrder::Ascending, None, vec![Span::everything()]);
    assert_eq!(page(&scan).await.unwrap().0.len(), 1);
    let unknown =
        Scan { by: Some(Box::new(ValueOrder { index: None, ..*scan.by.clone().unwrap() })), ..scan.clone() };
    assert_eq!(refusal(page(&unknown).await), Code::NotImplemented);
    table.delete().await.unwrap();
    assert_eq!(refusal(page(&scan).await), Code::TableNotFound);
    table.create().await.unwrap();
    assert_eq!(refusal(page(&scan).await), Code::NotImplemented, "it was of the former table");
}

/// Ranges that leave few rows are sorted, others walk the index; both fill their pages.
pub async fn a_page_is_full_or_the_last<B: AnyStore>(store: &B) {
    let table = table(store).await;
    let of = |n: i32| {
        write(WriteKind::Insert, if n % 5 == 0 { "p" } else { "q" }, &format!("{n:05}"), number("N", n % 7))
    };
    table.fill((0..1000).map(of)).await;
    let index = index(&table, "N", IndexKind::Number).await;
    // Pages of one row are read of few.
    let few = vec![Span { lower: Key::new("p", "00900"), upper: Some(Key::new("q", "00020")) }];
    for (spans, sizes, count) in [
        (vec![Span::everything()], [30, 999], 1000),
        (vec![partition("p")], [30, 199], 200),
        (few, [1, 2], 36),
    ] {
        for rows in sizes {
            let scan = Scan { rows, ..ordered(&index, PageOrder::Descending, None, spans.clone()) };
            let pages = walked(&table, &scan).await;
            let (last, full) = pages.split_last().expect("a page");
            assert!(full.iter().all(|page| page.len() == rows) && last.len() <= rows);
            assert_eq!(pages.concat().len(), count);
        }
    }
}

/// Few rows are sorted if that is quick. Those of this partition are large.
pub async fn what_cannot_be_sorted_in_time_is_read_in_the_order_of_the_index<B: AnyStore>(store: &B) {
    const ENTITIES: usize = 40;
    let table = table(store).await;
    fill_large(&table, ENTITIES as i32).await;
    let index = index(&table, "N", IndexKind::Number).await;
    for order in [PageOrder::Ascending, PageOrder::Descending] {
        let scan = ordered(&index, order, None, vec![partition("p")]);
        let late = walked(&table, &Scan { time: Duration::ZERO, ..scan.clone() }).await;
        assert!(late.iter().any(|page| page.len() > 1), "{} pages", late.len());
        let (late, whole) = (late.concat(), walked(&table, &scan).await.concat());
        assert_eq!((keys(&late), late.len()), (keys(&whole), ENTITIES));
    }
}

/// The filter that `M` is 0.
fn without_m() -> Predicate {
    compare("M", CompareOp::Eq, EdmValue::Int32(0))
}

/// A page whose time is used up has all that it found until then.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_late_page_has_more_than_its_first_match() {
    for store in [plain().await, spread().await, partitioned().await, distributed().await] {
        let table = table(&store).await;
        let of = |n: i32| {
            let properties = [number("N", n), number("M", n % 5)].concat();
            write(WriteKind::Insert, &(n % 30).to_string(), &n.to_string(), properties)
        };
        table.fill((0..1500).map(of)).await;
        let index = index(&table, "N", IndexKind::Number).await;
        for order in [PageOrder::Ascending, PageOrder::Descending] {
            let everything = ordered(&index, order, Some(&without_m()), vec![Span::everything()]);
            let pages = walked(&table, &Scan { time: Duration::ZERO, ..everything.clone() }).await;
            assert!(pages.iter().any(|page| page.len() > 1), "{order:?}: {} pages", pages.len());
            assert_eq!(pages.concat(), walked(&table, &everything).await.concat());
        }
    }
}

/// The page is full after a part of a window, of which the rest takes longer than a statement may.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_page_that_is_full_in_a_window_that_is_cut_off_skips_nothing() {
    const MATCHES: i32 = 100;
    for spread in [1, 8] {
        let url = fresh_database();
        let store = open(&url, spread).await;
        let table = table(&store).await;
        let of = |n: i32| {
            let properties = [number("N", n - MATCHES), number("M", 0)].concat();
            write(WriteKind::Insert, "q", &format!("{n:03}"), properties)
        };
        table.fill((0..MATCHES).map(of)).await;
        // In the order of N, the large ones come last.
        fill_large(&table, 1).await;
        let copies = "INSERT INTO entities \
             SELECT bucket, pk, lpad(n::text, 3, '0'), modified, properties || jsonb_build_object('N', n) \
             FROM entities, generate_series(1, 199) AS n WHERE pk = 'p'";
        execute(&url, copies);
        let index = index(&table, "N", IndexKind::Number).await;
        let scan = ordered(&index, PageOrder::Ascending, Some(&without_m()), vec![Span::everything()]);
        // A page ends by its bytes, while its statement looks for more matches among the large entities.
        let scan = Scan { bytes: 2048, time: Duration::ZERO, ..scan };
        let found = walked_until(&table, &scan, MATCHES as usize).await.concat();
        let rows: Vec<_> = found.iter().map(|entity| entity.key.row.as_str()).collect();
        assert_eq!(rows, (0..MATCHES).map(|n| format!("{n:03}")).collect::<Vec<_>>());
    }
}

/// Buckets that are merged share the bytes of a page, so that it does not read many times as much as it returns.
#[tokio::test]
async fn buckets_share_the_bytes_of_a_page() {
    const ENTITIES: i32 = 400;
    let store = distributed().await;
    let table = table(&store).await;
    let of = |n: i32| {
        let properties = [number("N", n), vec![("T".into(), EdmValue::String("x".repeat(1000)))]].concat();
        write(WriteKind::Insert, &(n % 40).to_string(), &n.to_string(), properties)
    };
    table.fill((0..ENTITIES).map(of)).await;
    let index = index(&table, "N", IndexKind::Number).await;
    let everything = ordered(&index, PageOrder::Ascending, None, vec![Span::everything()]);
    let scan = Scan { bytes: 64 << 10, ..everything };
    let (page, end) = store.page(table.place(), &scan, Vec::<Stored>::new()).await.expect("a page");
    assert!(!page.is_empty());
    assert!(end.examined < ENTITIES as u64 / 2, "{} for {} entities", end.examined, page.len());
    assert_eq!(walked(&table, &scan).await.concat().len(), ENTITIES as usize);
    // One bucket has the bytes of the page alone.
    let of_partition = ordered(&index, PageOrder::Ascending, None, vec![partition("7")]);
    let pages = walked(&table, &Scan { bytes: 64 << 10, ..of_partition }).await;
    assert_eq!(pages.iter().map(Vec::len).collect::<Vec<_>>(), [10]);
}

/// Statements return more rows than a page has bytes for, and are cut off.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn pages_that_end_by_their_bytes_skip_nothing() {
    const ENTITIES: i32 = 120;
    for spread in [1, 8] {
        let store = open(&fresh_database(), spread).await;
        let table = table(&store).await;
        // A third of the entities has no entry.
        let of = |n: i32| {
            let text = vec![("T".into(), EdmValue::String("x".repeat(30_000)))];
            let entry = if n % 3 == 0 { Vec::new() } else { number("N", n) };
            write(WriteKind::Insert, &(n % 7).to_string(), &n.to_string(), [entry, text].concat())
        };
        table.fill((0..ENTITIES).map(of)).await;
        let index = index(&table, "N", IndexKind::Number).await;
        for order in [PageOrder::Ascending, PageOrder::Descending] {
            let everything = ordered(&index, order, None, vec![Span::everything()]);
            let expected = walked(&table, &everything).await.concat();
            assert_eq!(expected.len(), ENTITIES as usize);
            for (bytes, entities) in [(1, 1), (100_000, 3)] {
                let pages = walked(&table, &Scan { bytes, ..everything.clone() }).await;
                assert!(pages.iter().all(|page| page.len() <= entities), "{spread}, {order:?}, {bytes}");
                assert_eq!(pages.len(), ENTITIES as usize / entities, "{spread}, {order:?}, {bytes}");
                assert_eq!(pages.concat(), expected, "{spread}, {order:?}, {bytes}");
            }
        }
    }
}
