//! Pages and their bounds.

use std::collections::BTreeSet;
use std::time::Duration;

use crate::support::store::AnyStore;
use proptest::prelude::*;
use proptest::strategy::ValueTree;
use proptest::test_runner::TestRunner;
use rowhouse::protocol::model::{CompareOp, EdmValue, Key, PageOrder, Stored, TableName};
use rowhouse::protocol::plan::{Field, Predicate, Projection, Scan, Span};

use super::contract::{WALKS, fill, now, number, scan, table, walk, write};
use rowhouse::protocol::model::IfMatch;
use rowhouse::protocol::plan::WriteKind;

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

pub async fn walks<B: AnyStore>(store: &B) {
    let (account, table) = table(store).await;
    let all = keys();
    let writes = all
        .iter()
        .enumerate()
        .map(|(n, key)| write(WriteKind::Insert, &key.partition, &key.row, number("N", (n % 3) as i32)));
    fill(store, &account, &table, writes.collect()).await;
    let case =
        (spans(), 1_usize..12, prop::sample::select(vec![1, 60, 200, 1 << 20]), 0..3_u8, any::<bool>());
    let mut runner = TestRunner::deterministic();
    for _ in 0..WALKS {
        let (spans, rows, bytes, residual, system) = case.new_tree(&mut runner).unwrap().current();
        let mut scan = scan(spans);
        (scan.rows, scan.bytes) = (rows, bytes);
        scan.residual = (residual > 0).then(|| {
            let literal = if residual == 1 { EdmValue::Int32(1) } else { EdmValue::String("\u{0}".into()) };
            Predicate::Compare { field: Field::Custom("N".into()), op: CompareOp::Ne, literal }
        });
        if system {
            scan.projection = Projection::SystemOnly;
        }
        let expected: Vec<&Key> = all
            .iter()
            .enumerate()
            .filter(|(n, key)| inside(&scan.spans, key) && (residual != 1 || n % 3 != 1))
            .map(|(_, key)| key)
            .collect();
        let pages = walk(store, &account, &table, &scan).await;
        assert!(pages.iter().all(|page| page.len() <= rows));
        let rows: Vec<Stored> = pages.concat();
        assert_eq!(rows.iter().map(|row| &row.key).collect::<Vec<_>>(), expected, "{scan:?}");
        assert!(rows.iter().all(|row| (row.properties.as_str() == "{}") == system));
    }
}

/// The scan of the same entities in descending order.
fn reversed(scan: &Scan) -> Scan {
    let spans = scan.spans.iter().rev().cloned().collect();
    Scan { spans, order: PageOrder::Descending, ..scan.clone() }
}

/// A walk in descending order returns what one in ascending order does, reversed, in pages of the same size.
pub async fn newest_first<B: AnyStore>(store: &B) {
    let (account, table) = table(store).await;
    let writes = keys()
        .into_iter()
        .enumerate()
        .map(|(n, key)| write(WriteKind::Insert, &key.partition, &key.row, number("N", (n % 3) as i32)));
    fill(store, &account, &table, writes.collect()).await;
    let times = vec![Duration::from_secs(60), Duration::ZERO];
    let case = (
        spans(),
        1_usize..12,
        prop::sample::select(vec![1, 60, 200, 1 << 20]),
        0..3_u8,
        any::<bool>(),
        prop::sample::select(times),
    );
    let mut runner = TestRunner::deterministic();
    for _ in 0..WALKS {
        let (spans, rows, bytes, residual, system, time) = case.new_tree(&mut runner).unwrap().current();
        let mut scan = scan(spans);
        (scan.rows, scan.bytes, scan.time) = (rows, bytes, time);
        scan.residual = (residual > 0).then(|| {
            let literal = if residual == 1 { EdmValue::Int32(1) } else { EdmValue::String("\u{0}".into()) };
            Predicate::Compare { field: Field::Custom("N".into()), op: CompareOp::Ne, literal }
        });
        if system {
            scan.projection = Projection::SystemOnly;
        }
        let mut expected = walk(store, &account, &table, &scan).await.concat();
        expected.reverse();
        let scan = reversed(&scan);
        let pages = walk(store, &account, &table, &scan).await;
        assert!(pages.iter().all(|page| page.len() <= rows));
        assert_eq!(pages.concat(), expected, "{scan:?}");
    }
}

/// Entities that others insert and delete between the pages of a descending walk neither make it return one
/// twice nor leave out one that is there all the time.
pub async fn newest_first_beside_writers<B: AnyStore>(store: &B) {
    let (account, table) = table(store).await;
    let key = |n: usize| (format!("{:02}", n / 40), format!("{:03}", n % 40));
    let insert = |n: usize| write(WriteKind::Insert, &key(n).0, &key(n).1, number("N", (n % 2) as i32));
    fill(store, &account, &table, (0..400).filter(|n| n % 3 != 0).map(insert).collect()).await;
    let literal = EdmValue::Int32(1);
    let odd = Predicate::Compare { field: Field::Custom("N".into()), op: CompareOp::Eq, literal };
    for residual in [None, Some(odd)] {
        let mut found: Vec<Key> = Vec::new();
        let mut scan = reversed(&scan(vec![Span::everything()]));
        (scan.rows, scan.residual) = (17, residual);
        for turn in 0.. {
            let page = store.query(table.in_account(&account), &scan).await.expect("a page");
            found.extend(page.entities.into_iter().map(|entity| entity.key));
            // Every third key comes and goes, some of them between the last key and the next.
            for n in (turn % 5 * 3..400).step_by(15) {
                let kind = if turn % 2 == 0 { WriteKind::Insert } else { WriteKind::Delete(IfMatch::Any) };
                let (pk, rk) = key(n);
                let change = write(kind, &pk, &rk, number("N", (n % 2) as i32));
                // Of those that come and go, any may be there already or not any more.
                let _ = store.write(table.in_account(&account), &change, now()).await;
            }
            let Some(next) = page.next else { break };
            scan.spans = scan.order.rest_of(scan.spans, &next);
        }
        assert!(found.is_sorted_by(|a, b| a > b), "{found:?}");
        let is_steady = |n: &usize| !n.is_multiple_of(3) && (scan.residual.is_none() || n % 2 == 1);
        let steady: Vec<usize> = (0..400).filter(is_steady).collect();
        for n in steady {
            let (pk, rk) = key(n);
            assert!(found.contains(&Key::new(pk, rk)), "{n} is missing");
        }
    }
}

pub async fn limits<B: AnyStore>(store: &B) {
    let (account, table) = table(store).await;
    let heavy = |i: i32| vec![("B".into(), EdmValue::Binary(vec![i as u8; 48 * 1024]))];
    let writes = (0..60).map(|i| write(WriteKind::Insert, "p", &format!("{i:02}"), heavy(i)));
    fill(store, &account, &table, writes.collect()).await;
    // A stored row has about 64 KiB of base64.
    for (bytes, rows_of_page) in [(1, 1), (200 * 1024, 3), (1 << 30, 60)] {
        let mut scan = scan(vec![Span::everything()]);
        scan.bytes = bytes;
        let pages = walk(store, &account, &table, &scan).await;
        assert_eq!(pages[0].len(), rows_of_page);
        assert_eq!(pages.concat().len(), 60);
    }
    // A page that is exactly full and the last has no next.
    let mut scan = scan(vec![Span::everything()]);
    scan.rows = 60;
    assert_eq!(store.query(table.in_account(&account), &scan).await.unwrap().next, None);
    scan.rows = 59;
    assert_eq!(store.query(table.in_account(&account), &scan).await.unwrap().next, Some(Key::new("p", "59")));
    let page = store.query(table.in_account(&account), &reversed(&scan)).await.unwrap();
    assert_eq!(page.next, Some(Key::new("p", "00\u{1}")), "the first is still below");
    scan.rows = 60;
    assert_eq!(store.query(table.in_account(&account), &reversed(&scan)).await.unwrap().next, None);
}

pub async fn points_and_ranges<B: AnyStore>(store: &B) {
    let (account, table) = table(store).await;
    let writes: Vec<_> = (0..40)
        .flat_map(|p| (0..5).map(move |r| (format!("{p:02}"), r.to_string())))
        .map(|(p, r)| write(WriteKind::Insert, &p, &r, number("N", 1)))
        .collect();
    fill(store, &account, &table, writes).await;
    let point = |p: String, r: &str| Span {
        lower: Key::new(p.as_str(), r),
        upper: Some(Key::new(p, format!("{r}\u{1}"))),
    };
    let one_partition = (0..9).map(|r| point("07".into(), &r.to_string())).collect();
    assert_eq!(walk(store, &account, &table, &scan(one_partition)).await.concat().len(), 5);
    let many: Vec<Span> = (0..50).map(|p| point(format!("{p:02}"), "3")).collect();
    assert_eq!(walk(store, &account, &table, &scan(many.clone())).await.concat().len(), 40);
    let mut by_sevens = scan(many);
    by_sevens.rows = 7;
    let pages = walk(store, &account, &table, &by_sevens).await;
    assert_eq!((pages.len(), pages.concat().len()), (6, 40));
    let mut descending = walk(store, &account, &table, &reversed(&by_sevens)).await.concat();
    descending.reverse();
    assert_eq!(descending, pages.concat());
}

/// Without time a page still gets somewhere, and a walk to the end.
pub async fn out_of_time<B: AnyStore>(store: &B) {
    let (account, table) = table(store).await;
    let writes = (0..900).map(|i| write(WriteKind::Insert, "p", &format!("{i:03}"), number("N", i)));
    fill(store, &account, &table, writes.collect()).await;
    for literal in [EdmValue::Int32(899), EdmValue::String("\u{0}".into())] {
        let found = usize::from(literal == EdmValue::Int32(899));
        let mut scan = scan(vec![Span::everything()]);
        scan.time = Duration::ZERO;
        scan.residual =
            Some(Predicate::Compare { field: Field::Custom("N".into()), op: CompareOp::Eq, literal });
        for scan in [reversed(&scan), scan] {
            let pages = walk(store, &account, &table, &scan).await;
            assert_eq!(pages.concat().len(), found);
        }
    }
    let mut scan = scan(vec![Span::everything()]);
    scan.time = Duration::ZERO;
    assert_eq!(walk(store, &account, &table, &scan).await.concat().len(), 900);
    assert_eq!(walk(store, &account, &table, &reversed(&scan)).await.concat().len(), 900);
}

/// However often a filter matches, and wherever that changes, its pages hold every
/// match once and in order, and are full until the last two.
pub async fn matches_of_any_density<B: AnyStore>(store: &B) {
    const ROWS: i32 = 6000;
    let (account, table) = table(store).await;
    // Nothing at first, then one in seven, then all, then nothing.
    let value = |n: i32| match n {
        2000..3000 if n % 7 == 0 => 1,
        3000..5000 => 1 + n % 2,
        _ => 0,
    };
    let writes = (0..ROWS).map(|n| {
        write(WriteKind::Insert, &(n / 1500).to_string(), &format!("{n:05}"), number("N", value(n)))
    });
    fill(store, &account, &table, writes.collect()).await;
    for (least, rows) in [(0, 1000), (1, 1000), (1, 64), (2, 150), (2, 1), (3, 1000)] {
        let mut scan = scan(vec![Span::everything()]);
        scan.rows = rows;
        scan.residual = Some(Predicate::Compare {
            field: Field::Custom("N".into()),
            op: CompareOp::Ge,
            literal: EdmValue::Int32(least),
        });
        let mut expected: Vec<String> =
            (0..ROWS).filter(|n| value(*n) >= least).map(|n| format!("{n:05}")).collect();
        for scan in [reversed(&scan), scan] {
            expected.reverse();
            let pages = walk(store, &account, &table, &scan).await;
            let found: Vec<String> = pages.concat().into_iter().map(|row| row.key.row).collect();
            let what = format!("N ge {least} by {rows} {:?}", scan.order);
            assert_eq!(found, expected, "{what}");
            let full = pages.iter().take_while(|page| page.len() == rows).count();
            assert!(full + 2 >= pages.len(), "{full} of {} pages are full: {what}", pages.len());
        }
    }
}

/// Inserts entities of a quarter of a megabyte each, which do not compress; `N` counts them.
pub async fn fill_large<B: AnyStore>(store: &B, account: &str, table: &TableName, count: i32) {
    let noise = |seed: u32| -> Vec<u8> {
        (0..48 * 1024_u32).map(|i| ((seed + i).wrapping_mul(2_654_435_761) >> 13) as u8).collect()
    };
    for n in 0..count {
        let mut properties = number("N", n);
        for part in 0..4_u32 {
            properties.push((format!("P{part}"), EdmValue::Binary(noise(n as u32 * 7 + part))));
        }
        let insert = write(WriteKind::Insert, "p", &format!("{n:03}"), properties);
        store.write(table.in_account(account), &insert, now()).await.expect("an insert");
    }
}

/// Whether `N` is one of these; further comparisons that never hold make up the number.
pub fn is_any_of(wanted: &[i32], comparisons: i32) -> Predicate {
    let others = (0..comparisons - wanted.len() as i32).map(|n| -1 - n);
    let compare = |n| Predicate::Compare {
        field: Field::Custom("N".into()),
        op: CompareOp::Eq,
        literal: EdmValue::Int32(n),
    };
    Predicate::Any(others.chain(wanted.iter().copied()).map(compare).collect())
}

/// A page ends behind the last match of a window that is cut off, and the next one does not repeat it.
pub async fn a_window_that_is_cut_off<B: AnyStore>(store: &B) {
    const MATCHES: i32 = 150;
    let (account, table) = table(store).await;
    let of = |n: i32| {
        let properties = [number("N", 0), vec![("T".into(), EdmValue::String("x".repeat(500)))]].concat();
        write(WriteKind::Insert, "a", &format!("{n:03}"), properties)
    };
    let matches: Vec<_> = (0..MATCHES).map(of).collect();
    // One of the large ones matches too.
    let last = Key::new("p", "000");
    let expected: Vec<Key> = matches.iter().map(|write| write.key.clone()).chain([last]).collect();
    fill(store, &account, &table, matches).await;
    fill_large(store, &account, &table, 100).await;
    for time in [10, 30, 100].map(Duration::from_millis) {
        let scan = Scan { time, residual: Some(is_any_of(&[0], 16)), ..scan(vec![Span::everything()]) };
        let found = walk(store, &account, &table, &scan).await.concat();
        let found: Vec<Key> = found.into_iter().map(|row| row.key).collect();
        assert_eq!(found, expected, "in {time:?}");
    }
}

/// Whatever a page's time and its filter, a walk over large entities ends and finds all.
pub async fn large_entities<B: AnyStore>(store: &B) {
    const ENTITIES: i32 = 24;
    const WANTED: [i32; 4] = [0, 5, 20, 23];
    let (account, table) = table(store).await;
    fill_large(store, &account, &table, ENTITIES).await;
    let point = |n: i32| Span {
        lower: Key::new("p", format!("{n:03}")),
        upper: Some(Key::new("p", format!("{n:03}\u{1}"))),
    };
    for spans in [vec![Span::everything()], (0..ENTITIES).map(point).collect()] {
        for comparisons in [4, 16, 100] {
            for time in [Duration::from_secs(60), Duration::from_millis(1)] {
                let mut scan = scan(spans.clone());
                scan.time = time;
                scan.residual = Some(is_any_of(&WANTED, comparisons));
                let mut expected = WANTED.map(|n| format!("{n:03}"));
                for scan in [reversed(&scan), scan] {
                    expected.reverse();
                    let found = walk(store, &account, &table, &scan).await.concat();
                    let found: Vec<String> = found.into_iter().map(|row| row.key.row).collect();
                    assert_eq!(found, expected, "{comparisons} in {time:?} {:?}", scan.order);
                }
            }
        }
    }
}
