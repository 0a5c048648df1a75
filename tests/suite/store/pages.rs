//! Pages and their bounds.

use std::collections::BTreeSet;
use std::ops::Deref;
use std::time::Duration;

use crate::support::store::AnyStore;
use proptest::prelude::*;
use proptest::strategy::ValueTree;
use proptest::test_runner::TestRunner;
use rowhouse_protocol::model::entity::Properties;
use rowhouse_protocol::model::{CompareOp, EdmValue, IfMatch, Key, PageOrder};
use rowhouse_protocol::plan::{Predicate, Projection, Scan, Span, Write, WriteKind};

use super::contract::{TestTable, compare, everything, insert, number, point, scan, sent, table, write};

/// How many random walks there are.
const WALKS: usize = 40;
const PARTS: [&str; 8] = ["", "A", "a", "aa", "b", "é", "漢", "😀"];

fn keys() -> BTreeSet<Key> {
    PARTS.iter().flat_map(|pk| PARTS.iter().map(|rk| Key::new(*pk, *rk))).collect()
}

fn key() -> impl Strategy<Value = Key> {
    let part = || prop::sample::select(PARTS.to_vec());
    (part(), part(), any::<bool>())
        .prop_map(|(pk, rk, after)| Key::new(pk, if after { format!("{rk}\u{1}") } else { rk.to_owned() }))
}

/// Ascending, disjoint spans; some of them single keys or partitions.
fn spans() -> impl Strategy<Value = Vec<Span>> {
    (prop::collection::btree_set(key(), 0..6), any::<bool>(), any::<u8>()).prop_map(
        |(bounds, open, kinds)| {
            let bounds: Vec<Key> = bounds.into_iter().collect();
            let mut spans: Vec<Span> = Vec::new();
            for (at, lower) in bounds.iter().enumerate() {
                let upper = match kinds >> (at % 4 * 2) & 3 {
                    0 => Some(Key::new(lower.partition.as_str(), format!("{}\u{1}", lower.row))),
                    1 => Some(Key::new(format!("{}\u{1}", lower.partition), "")),
                    _ => bounds.get(at + 1).cloned(),
                };
                let overlaps = spans.last().is_some_and(|s| s.upper.as_ref().is_none_or(|u| u > lower));
                if !overlaps && upper.as_ref().is_none_or(|u| u > lower) {
                    spans.push(Span { lower: lower.clone(), upper });
                }
            }
            if !open {
                spans.retain(|span| span.upper.is_some());
            }
            spans
        },
    )
}

fn inside(spans: &[Span], key: &Key) -> bool {
    spans.iter().any(|s| s.lower <= *key && s.upper.as_ref().is_none_or(|u| key < u))
}

/// Filters of a walk: none, one for the database, and one that it may not evaluate and that all entities satisfy.
fn residual(kind: u8) -> Option<Predicate> {
    let literal = match kind {
        0 => return None,
        1 => EdmValue::Int32(1),
        _ => EdmValue::String("\u{0}".into()),
    };
    Some(compare("N", CompareOp::Ne, literal))
}

/// A walk finds what is in its ranges and satisfies its filter, in pages that are not too large. A walk in descending
/// order finds the same, reversed.
pub async fn walks<B: AnyStore>(store: &B) {
    let table = table(store).await;
    let all: Vec<Key> = keys().into_iter().collect();
    let of = |(n, key): (usize, &Key)| {
        write(WriteKind::Insert, &key.partition, &key.row, number("N", (n % 3) as i32))
    };
    table.fill(all.iter().enumerate().map(of)).await;
    let sizes = prop::sample::select(vec![1, 60, 200, 1 << 20]);
    let times = prop::sample::select(vec![Duration::from_secs(60), Duration::ZERO]);
    let case = (spans(), 1_usize..12, sizes, 0..3_u8, any::<bool>(), times);
    let mut runner = TestRunner::deterministic();
    for _ in 0..WALKS {
        let (spans, rows, bytes, kind, system, time) = case.new_tree(&mut runner).unwrap().current();
        let projection = if system { Projection::SystemOnly } else { Projection::Full };
        let scan = Scan { rows, bytes, time, residual: residual(kind), projection, ..scan(spans) };
        let is_match = |(n, key): &(usize, &Key)| inside(&scan.spans, key) && (kind != 1 || n % 3 != 1);
        let mut expected: Vec<&Key> = all.iter().enumerate().filter(is_match).map(|(_, key)| key).collect();
        for scan in [reversed(&scan), scan.clone()] {
            expected.reverse();
            let pages = table.walk(&scan).await;
            assert!(pages.iter().all(|page| page.len() <= rows));
            let found = pages.concat();
            assert_eq!(found.iter().map(|row| &row.key).collect::<Vec<_>>(), expected, "{scan:?}");
            assert!(found.iter().all(|row| (row.properties.as_str() == "{}") == system));
        }
    }
}

/// The scan of the same entities in descending order.
fn reversed(scan: &Scan) -> Scan {
    let spans = scan.spans.iter().rev().cloned().collect();
    Scan { spans, order: PageOrder::Descending, ..scan.clone() }
}

/// Entities that others insert and delete between the pages of a descending walk neither make it return one
/// twice nor leave out one that is there all the time.
pub async fn newest_first_beside_writers<B: AnyStore>(store: &B) {
    let table = table(store).await;
    let key = |n: usize| Key::new(format!("{:02}", n / 40), format!("{:03}", n % 40));
    let change = |kind, n: usize| Write { kind, key: key(n), properties: sent(&number("N", (n % 2) as i32)) };
    table.fill((0..400).filter(|n| n % 3 != 0).map(|n| change(WriteKind::Insert, n))).await;
    for residual in [None, Some(compare("N", CompareOp::Eq, EdmValue::Int32(1)))] {
        let mut found: Vec<Key> = Vec::new();
        let mut scan = Scan { rows: 17, residual, ..reversed(&everything()) };
        for turn in 0.. {
            let page = table.query(&scan).await.expect("a page");
            found.extend(page.entities.into_iter().map(|entity| entity.key));
            // Every third key comes and goes, some of them between the last key and the next.
            let kind = if turn % 2 == 0 { WriteKind::Insert } else { WriteKind::Delete(IfMatch::Any) };
            for n in (turn % 5 * 3..400).step_by(15) {
                // Of those that come and go, any may be there already or not any more.
                let _ = table.write(&change(kind, n)).await;
            }
            let Some(next) = page.next else { break };
            scan.spans = scan.order.rest_of(scan.spans, &next);
        }
        assert!(found.is_sorted_by(|a, b| a > b), "{found:?}");
        let is_steady = |n: &usize| !n.is_multiple_of(3) && (scan.residual.is_none() || n % 2 == 1);
        for n in (0..400).filter(is_steady) {
            assert!(found.contains(&key(n)), "{n} is missing");
        }
    }
}

pub async fn limits<B: AnyStore>(store: &B) {
    let table = table(store).await;
    let heavy = |i: i32| vec![("B".into(), EdmValue::Binary(vec![i as u8; 48 * 1024]))];
    table.fill((0..60).map(|i| write(WriteKind::Insert, "p", &format!("{i:02}"), heavy(i)))).await;
    // A stored row has about 64 KiB of base64.
    for (bytes, rows_of_page) in [(1, 1), (200 * 1024, 3), (1 << 30, 60)] {
        let pages = table.walk(&Scan { bytes, ..everything() }).await;
        assert_eq!(pages[0].len(), rows_of_page);
        assert_eq!(pages.concat().len(), 60);
    }
    // A page that is exactly full and the last has no next.
    let next = async |rows, order: fn(&Scan) -> Scan| {
        table.query(&order(&Scan { rows, ..everything() })).await.unwrap().next
    };
    assert_eq!(next(60, Scan::clone).await, None);
    assert_eq!(next(59, Scan::clone).await, Some(Key::new("p", "59")));
    assert_eq!(next(59, reversed).await, Some(Key::new("p", "00\u{1}")), "the first is still below");
    assert_eq!(next(60, reversed).await, None);
}

pub async fn points_and_ranges<B: AnyStore>(store: &B) {
    let table = table(store).await;
    let key = |p: usize, r: usize| Key::new(format!("{p:02}"), r.to_string());
    let keys = (0..40).flat_map(|p| (0..5).map(move |r| key(p, r)));
    table.fill(keys.map(|key| insert(&key.partition, &key.row))).await;
    let one_partition = (0..9).map(|r| point(&key(7, r))).collect();
    assert_eq!(table.walk(&scan(one_partition)).await.concat().len(), 5);
    let many: Vec<Span> = (0..50).map(|p| point(&key(p, 3))).collect();
    assert_eq!(table.walk(&scan(many.clone())).await.concat().len(), 40);
    let by_sevens = Scan { rows: 7, ..scan(many) };
    let pages = table.walk(&by_sevens).await;
    assert_eq!((pages.len(), pages.concat().len()), (6, 40));
    let mut descending = table.walk(&reversed(&by_sevens)).await.concat();
    descending.reverse();
    assert_eq!(descending, pages.concat());
}

/// Without time a page still gets somewhere, and a walk to the end.
pub async fn out_of_time<B: AnyStore>(store: &B) {
    let table = table(store).await;
    table.fill((0..400).map(|i| write(WriteKind::Insert, "p", &format!("{i:03}"), number("N", i)))).await;
    for (literal, matches) in
        [(Some(EdmValue::Int32(399)), 1), (Some(EdmValue::String("\u{0}".into())), 0), (None, 400)]
    {
        let residual = literal.map(|literal| compare("N", CompareOp::Eq, literal));
        let scan = Scan { time: Duration::ZERO, residual, ..everything() };
        for scan in [reversed(&scan), scan] {
            assert_eq!(table.walk(&scan).await.concat().len(), matches, "{scan:?}");
        }
    }
}

/// However often a filter matches, and wherever that changes, its pages hold every
/// match once and in order, and are full until the last two.
pub async fn matches_of_any_density<B: AnyStore>(store: &B) {
    const ROWS: i32 = 6000;
    let table = table(store).await;
    // Nothing at first, then one in seven, then all, a few of them more than the others, then nothing.
    let value = |n: i32| match n {
        2000..3000 if n % 7 == 0 => 1,
        4000..4020 => 3,
        3000..5000 => 1 + n % 2,
        _ => 0,
    };
    let of =
        |n: i32| write(WriteKind::Insert, &(n / 1500).to_string(), &format!("{n:05}"), number("N", value(n)));
    table.fill((0..ROWS).map(of)).await;
    for (least, rows) in [(0, 1000), (1, 1000), (1, 64), (2, 150), (3, 1), (4, 1000)] {
        let residual = Some(compare("N", CompareOp::Ge, EdmValue::Int32(least)));
        let scan = Scan { rows, residual, ..everything() };
        let matches = (0..ROWS).filter(|n| value(*n) >= least);
        let mut expected: Vec<String> = matches.map(|n| format!("{n:05}")).collect();
        for scan in [reversed(&scan), scan] {
            expected.reverse();
            let pages = table.walk(&scan).await;
            let found: Vec<String> = pages.concat().into_iter().map(|row| row.key.row).collect();
            let what = format!("N ge {least} by {rows} {:?}", scan.order);
            assert_eq!(found, expected, "{what}");
            let full = pages.iter().take_while(|page| page.len() == rows).count();
            assert!(full + 2 >= pages.len(), "{full} of {} pages are full: {what}", pages.len());
        }
    }
}

/// Inserts entities of a quarter of a megabyte each, which do not compress; `N` counts them.
pub async fn fill_large<S: Deref<Target: AnyStore>>(table: &TestTable<S>, count: i32) {
    let noise = |seed: u32| -> Vec<u8> {
        (0..48 * 1024_u32).map(|i| ((seed + i).wrapping_mul(2_654_435_761) >> 13) as u8).collect()
    };
    let parts = (0..4_u32).map(|part| (format!("P{part}"), EdmValue::Binary(noise(part * 7))));
    let parts: Properties = parts.collect();
    for n in 0..count {
        let properties = [number("N", n), parts.clone()].concat();
        table.write(&write(WriteKind::Insert, "p", &format!("{n:03}"), properties)).await.expect("an insert");
    }
}

/// Whether `N` is one of these; further comparisons that never hold make up the number.
pub fn is_any_of(wanted: &[i32], comparisons: i32) -> Predicate {
    let others = (0..comparisons - wanted.len() as i32).map(|n| -1 - n);
    let all = others.chain(wanted.iter().copied());
    Predicate::Any(all.map(|n| compare("N", CompareOp::Eq, EdmValue::Int32(n))).collect())
}

/// A page ends behind the last match of a window that is cut off, and the next one does not repeat it.
pub async fn a_window_that_is_cut_off<B: AnyStore>(store: &B) {
    let table = table(store).await;
    let of = |n: i32| {
        let properties = [number("N", 0), vec![("T".into(), EdmValue::String("x".repeat(500)))]].concat();
        write(WriteKind::Insert, "a", &format!("{n:03}"), properties)
    };
    let matches: Vec<_> = (0..150).map(of).collect();
    // One of the large ones matches too.
    let last = Key::new("p", "000");
    let expected: Vec<Key> = matches.iter().map(|write| write.key.clone()).chain([last]).collect();
    table.fill(matches).await;
    fill_large(&table, 30).await;
    for time in [10, 100].map(Duration::from_millis) {
        let scan = Scan { time, residual: Some(is_any_of(&[0], 16)), ..everything() };
        let found = table.walk(&scan).await.concat();
        let found: Vec<Key> = found.into_iter().map(|row| row.key).collect();
        assert_eq!(found, expected, "in {time:?}");
    }
}

/// Whatever a page's time and its filter, a walk over large entities ends and finds all.
pub async fn large_entities<B: AnyStore>(store: &B) {
    const ENTITIES: i32 = 12;
    const WANTED: [i32; 4] = [0, 3, 9, 11];
    let table = table(store).await;
    fill_large(&table, ENTITIES).await;
    let points = (0..ENTITIES).map(|n| point(&Key::new("p", format!("{n:03}")))).collect();
    for spans in [vec![Span::everything()], points] {
        for (comparisons, millis) in [(4, 60_000), (4, 1), (16, 60_000), (16, 1), (100, 1)] {
            let time = Duration::from_millis(millis);
            let residual = Some(is_any_of(&WANTED, comparisons));
            let scan = Scan { time, residual, ..scan(spans.clone()) };
            let mut expected = WANTED.map(|n| format!("{n:03}"));
            for scan in [reversed(&scan), scan] {
                expected.reverse();
                let found = table.walk(&scan).await.concat();
                let found: Vec<String> = found.into_iter().map(|row| row.key.row).collect();
                assert_eq!(found, expected, "{comparisons} in {time:?} {:?}", scan.order);
            }
        }
    }
}
