//! Pages stop at what they need, and end early so that others get their turn.

use std::num::NonZero;
use std::sync::Arc;
use std::thread::available_parallelism;
use std::time::Duration;

use futures_util::future::join_all;
use rowhouse_protocol::model::{CaseFold, EdmValue, PageOrder, TextTest};
use rowhouse_protocol::plan::index::{IndexKind, PropertyIndex, ValueOrder};
use rowhouse_protocol::plan::{Field, Predicate, Scan, Span, TableScan, WriteKind};
use rowhouse_store::Entities;
use rowhouse_store::postgres::{PgOptions, PgStore};

use super::contract::{TestTable, everything, insert, number, partition, scan, table, write};
use super::indexes::{file, index, plain, spread};
use super::pages::is_any_of;
use super::tables::{account_with, list, listed};
use crate::support::postgres::{count, execute, fresh_database};
use crate::support::store::AnyStore;

/// More than anything here takes, also on a slow machine.
const SAFETY: Duration = Duration::from_secs(60);
/// A filter that no entity satisfies, of this many comparisons.
fn nothing(comparisons: i32) -> Scan {
    Scan { residual: Some(is_any_of(&[-1], comparisons)), ..everything() }
}

/// Clients that all walk a table to its end, and how many pages they read.
async fn walk_together<B: AnyStore>(table: &TestTable<&B>, scan: &Scan, clients: usize) -> usize {
    let walks = join_all((0..clients).map(|_| table.walk(scan))).await;
    assert!(walks.iter().all(|pages| pages.iter().all(Vec::is_empty)));
    walks.iter().map(Vec::len).sum()
}

/// Whoever waits for a permit gets it, or a page without one: no client is refused.
async fn costly_scans_take_turns<B: AnyStore>(store: &B) {
    let table = table(store).await;
    let of = |n: i32| write(WriteKind::Insert, "p", &format!("{n:06}"), number("N", n));
    table.fill((0..300).map(of)).await;
    let scan = Scan { time: Duration::from_millis(500), ..nothing(600) };
    walk_together(&table, &scan, 12).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn no_costly_scan_is_refused() {
    costly_scans_take_turns(&file().await).await;
    costly_scans_take_turns(&plain().await).await;
    costly_scans_take_turns(&spread().await).await;
}

/// How many pages clients read that all walk a table of 200,000 rows, over so many connections.
async fn pages_of_scans_over(connections: u32, clients: usize) -> usize {
    let url = fresh_database();
    let mut options = PgOptions::new(&url);
    (options.max_connections, options.acquire_timeout) = (connections, SAFETY);
    let store = PgStore::connect(options).await.expect("a store");
    let table = table(&store).await;
    let rows = "INSERT INTO entities (bucket, pk, rk, modified, properties) \
                SELECT t.table_no << 16, 'p', lpad(n::text, 6, '0'), t.created, jsonb_build_object('N', n) \
                FROM tables AS t, generate_series(1, 200000) AS n";
    execute(&url, rows);
    walk_together(&table, &nothing(16), clients).await
}

/// A page that PostgreSQL filters ends early while others wait for its connection.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn scans_share_the_connections_of_postgres() {
    const CLIENTS: usize = 4;
    let pages = pages_of_scans_over(2, CLIENTS).await;
    assert!(pages > CLIENTS, "every page was read to the end: {pages}");
}

/// With a connection for each client, a page ends early while others wait for a permit.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn scans_share_the_processors_of_postgres() {
    let clients = 2 * available_parallelism().map_or(1, NonZero::get);
    let connections = u32::try_from(2 * clients).expect("a small number");
    let pages = pages_of_scans_over(connections, clients).await;
    assert!(pages > clients, "every page was read to the end: {pages}");
}

/// The order of an index.
fn by(index: &Arc<PropertyIndex>) -> Option<Box<ValueOrder>> {
    let (property, index) = (index.property.clone(), Some(Arc::clone(index)));
    Some(Box::new(ValueOrder { property, from: None, index, range: None }))
}

/// The first partitions of those that are named by numbers.
fn partitions(count: i32) -> Vec<Span> {
    (0..count).map(|n| partition(&format!("p{n:02}"))).collect()
}

/// How many sessions the database has begun, about: a session may be counted a second after it began.
fn sessions(url: &str) -> i64 {
    count(url, "SELECT sessions FROM pg_stat_database WHERE datname = current_database()")
}

/// However many entities match, a page has no more of them sent than it needs: what is left unread of a statement
/// costs its session.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn small_pages_keep_their_session() {
    let url = fresh_database();
    let store = super::postgres::open(&url, 1).await;
    let table = table(&store).await;
    let of = |n: i32| {
        let text = vec![("T".to_owned(), EdmValue::String(format!("{n:04}").repeat(1000)))];
        let properties = [number("N", n), text].concat();
        write(WriteKind::Insert, &format!("p{:02}", n % 30), &format!("{n:04}"), properties)
    };
    table.fill((0..600).map(of)).await;
    let index = index(&table, "N", IndexKind::Number).await;
    let by = || by(&index);
    let positive = |comparisons: i32| {
        let present = Predicate::Present("N".into());
        Some(Predicate::All(vec![present, Predicate::Not(Box::new(is_any_of(&[-1], comparisons)))]))
    };
    let everything = || Scan { rows: 5, ..everything() };
    for scan in [
        Scan { by: by(), residual: positive(4), ..everything() },
        Scan { by: by(), residual: positive(40), ..everything() },
        Scan { by: by(), residual: positive(4), spans: partitions(30), ..everything() },
        Scan { by: by(), order: PageOrder::Descending, residual: positive(4), ..everything() },
        Scan { residual: positive(4), ..everything() },
        Scan { residual: positive(40), ..everything() },
    ] {
        let page = || store.page(table.place(), &scan, Vec::new());
        let before = sessions(&url);
        for _ in 0..20 {
            let (entities, end) = page().await.expect("a page");
            assert_eq!(entities.len(), 5);
            assert!(end.next.is_some() || end.next_in_index.is_some());
        }
        let opened = sessions(&url) - before;
        assert!(opened < 10, "{opened} sessions for 20 pages: {scan:?}");
    }
}

/// A page whose time is over reads no more partitions of its filter to sort what they have.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn named_partitions_are_read_while_there_is_time() {
    for store in [plain().await, spread().await] {
        let table = table(&store).await;
        let keys = (0..2000).map(|n| insert(&format!("p{:02}", n % 40), &format!("{n:04}")));
        table.fill(keys).await;
        let index = index(&table, "N", IndexKind::Number).await;
        let mut scan = Scan { rows: 20, time: Duration::ZERO, by: by(&index), ..scan(partitions(40)) };
        let (mut found, mut pages) = (0, 0);
        loop {
            let (page, end) = store.page(table.place(), &scan, Vec::new()).await.expect("a page");
            assert!(end.examined < 1000, "{} keys were examined for a page of 20", end.examined);
            (found, pages) = (found + page.len(), pages + 1);
            assert!(pages < 2000, "the walk makes no progress");
            match (&mut scan.by, end.next_in_index) {
                (Some(by), Some(next)) => by.from = Some(next),
                _ => break,
            }
        }
        assert_eq!(found, 2000);
    }
}

/// Lists of tables end with their time, also between the names of a filter, and share the permits.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn lists_of_tables_end_and_take_turns() {
    let store = plain().await;
    let account = account_with(&store, (0..200).map(|n| format!("T{n:03}"))).await;
    let points = (0..200).step_by(2).map(|n| partition(&format!("t{n:03}"))).collect();
    let points = TableScan { time: Duration::ZERO, ..list(points) };
    let calls = (0..900).map(|n| Predicate::Text {
        field: Field::PartitionKey,
        fold: Some(CaseFold::Upper),
        test: TextTest::Contains,
        needle: if n == 450 { "5".into() } else { format!("x{n}") },
    });
    let residual = Some(Predicate::Any(calls.collect()));
    let costly = TableScan { residual, ..list(vec![Span::everything()]) };
    let with_five = (0..200).filter(|n| n.to_string().contains('5')).count();
    for (scan, clients, expected) in [(points, 1, 100), (costly, 8, with_five)] {
        let lists = join_all((0..clients).map(|_| listed(&store, &account, scan.clone()))).await;
        for (tables, pages) in lists {
            assert_eq!(tables.len(), expected);
            assert!(tables.is_sorted() && (pages > 1 || !scan.time.is_zero()), "{pages} pages");
        }
    }
}
