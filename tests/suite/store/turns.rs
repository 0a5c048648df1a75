//! Pages stop at what they need, and end early so that others get their turn.

use std::sync::Arc;
use std::time::Duration;

use futures_util::future::join_all;
use rowhouse::protocol::model::{CaseFold, EdmValue, Key, PageOrder, TableName, TextTest};
use rowhouse::protocol::plan::index::{IndexKind, PropertyIndex, ValueOrder};
use rowhouse::protocol::plan::span::starting_at;
use rowhouse::protocol::plan::{Field, Predicate, Scan, Span, TableScan, WriteKind};
use rowhouse::store::postgres::{PgOptions, PgStore};
use rowhouse::store::{Entities, Tables};
use sqlx::{Connection, Executor, PgConnection};

use super::contract::{account, fill, insert, name, now, number, scan, table, walk, write};
use super::indexes::{file, index, plain, spread};
use super::pages::is_any_of;
use crate::support::postgres::fresh_database;
use crate::support::store::AnyStore;

/// More than anything here takes, also on a slow machine.
const SAFETY: Duration = Duration::from_secs(60);
/// A filter that no entity satisfies, of this many comparisons.
fn nothing(comparisons: i32) -> Scan {
    Scan { residual: Some(is_any_of(&[-1], comparisons)), ..scan(vec![Span::everything()]) }
}

/// Clients that all walk a table to its end, and how many pages they read.
async fn walk_together<B: AnyStore>(
    store: &B,
    (account, table): (&str, &TableName),
    scan: &Scan,
    clients: usize,
) -> usize {
    let walks = join_all((0..clients).map(|_| walk(store, account, table, scan))).await;
    assert!(walks.iter().all(|pages| pages.iter().all(Vec::is_empty)));
    walks.iter().map(Vec::len).sum()
}

/// Whoever waits for a permit gets it, or a page without one: no client is refused.
async fn costly_scans_take_turns<B: AnyStore>(store: &B) {
    let (account, table) = table(store).await;
    let of = |n: i32| write(WriteKind::Insert, "p", &format!("{n:06}"), number("N", n));
    fill(store, &account, &table, (0..500).map(of).collect()).await;
    let scan = Scan { time: Duration::from_millis(500), ..nothing(600) };
    walk_together(store, (&account, &table), &scan, 24).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn no_costly_scan_is_refused() {
    costly_scans_take_turns(&file().await).await;
    costly_scans_take_turns(&plain().await).await;
    costly_scans_take_turns(&spread().await).await;
}

/// A page that PostgreSQL filters ends early while others wait for its connection.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn scans_share_the_connections_of_postgres() {
    const CLIENTS: usize = 4;
    let url = fresh_database();
    let mut options = PgOptions::new(&url);
    (options.max_connections, options.acquire_timeout) = (2, SAFETY);
    let store = PgStore::connect(options).await.expect("a store");
    let (account, table) = table(&store).await;
    let mut session = PgConnection::connect(&url).await.expect("a session");
    let rows = "INSERT INTO entities (bucket, pk, rk, modified, properties) \
                SELECT t.table_no << 16, 'p', lpad(n::text, 6, '0'), t.created, jsonb_build_object('N', n) \
                FROM tables AS t, generate_series(1, 200000) AS n";
    session.execute(rows).await.expect("entities");
    let pages = walk_together(&store, (&account, &table), &nothing(16), CLIENTS).await;
    assert!(pages > CLIENTS, "every page was read to the end: {pages}");
}

/// The order of an index.
fn by(index: &Arc<PropertyIndex>) -> Option<Box<ValueOrder>> {
    let (property, index) = (index.property.clone(), Some(Arc::clone(index)));
    Some(Box::new(ValueOrder { property, from: None, index, range: None }))
}

/// The whole of a partition.
fn partition(n: i32) -> Span {
    Span { lower: Key::new(format!("p{n:02}"), ""), upper: Some(Key::new(format!("p{n:02}\u{1}"), "")) }
}

/// How many sessions the database has begun, about: a session may be counted a second after it began.
async fn sessions(url: &str) -> i64 {
    let mut session = PgConnection::connect(url).await.expect("a session");
    let count = "SELECT sessions FROM pg_stat_database WHERE datname = current_database()";
    sqlx::query_scalar(count).fetch_one(&mut session).await.expect("a count")
}

/// However many entities match, a page has no more of them sent than it needs: what is left unread of a statement
/// costs its session.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn small_pages_keep_their_session() {
    let url = fresh_database();
    let store = super::postgres::open(&url, 1).await;
    let (account, table) = table(&store).await;
    let of = |n: i32| {
        let text = vec![("T".to_owned(), EdmValue::String(format!("{n:04}").repeat(1000)))];
        write(
            WriteKind::Insert,
            &format!("p{:02}", n % 30),
            &format!("{n:04}"),
            [number("N", n), text].concat(),
        )
    };
    fill(&store, &account, &table, (0..600).map(of).collect()).await;
    let index = Arc::new(index(&store, &account, &table, "N", IndexKind::Number).await);
    let by = || by(&index);
    let positive = |comparisons: i32| {
        let present = Predicate::Present("N".into());
        Some(Predicate::All(vec![present, Predicate::Not(Box::new(is_any_of(&[-1], comparisons)))]))
    };
    let everything = || Scan { rows: 5, ..scan(vec![Span::everything()]) };
    for scan in [
        Scan { by: by(), residual: positive(4), ..everything() },
        Scan { by: by(), residual: positive(40), ..everything() },
        Scan { by: by(), residual: positive(4), spans: (0..30).map(partition).collect(), ..everything() },
        Scan { by: by(), order: PageOrder::Descending, residual: positive(4), ..everything() },
        Scan { residual: positive(4), ..everything() },
        Scan { residual: positive(40), ..everything() },
    ] {
        let page = || store.page(table.in_account(&account), &scan, Vec::new());
        let before = sessions(&url).await;
        for _ in 0..40 {
            let (entities, end) = page().await.expect("a page");
            assert_eq!(entities.len(), 5);
            assert!(end.next.is_some() || end.next_in_index.is_some());
        }
        let opened = sessions(&url).await - before;
        assert!(opened < 20, "{opened} sessions for 40 pages: {scan:?}");
    }
}

/// A page whose time is over reads no more partitions of its filter to sort what they have.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn named_partitions_are_read_while_there_is_time() {
    for store in [plain().await, spread().await] {
        let (account, table) = table(&store).await;
        let keys = (0..2000).map(|n| insert(&format!("p{:02}", n % 40), &format!("{n:04}")));
        fill(&store, &account, &table, keys.collect()).await;
        let index = Arc::new(index(&store, &account, &table, "N", IndexKind::Number).await);
        let mut scan = Scan { rows: 5, by: by(&index), ..scan((0..40).map(partition).collect()) };
        scan.time = Duration::ZERO;
        let (mut found, mut pages) = (0, 0);
        loop {
            let (page, end) =
                store.page(table.in_account(&account), &scan, Vec::new()).await.expect("a page");
            assert!(end.examined < 1000, "{} keys were examined for a page of 5", end.examined);
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
    let account = account();
    for n in 0..200 {
        store.create_table(name(&format!("T{n:03}")).in_account(&account), now()).await.expect("a table");
    }
    let point = |n: i32| Span {
        lower: Key::new(format!("t{n:03}"), ""),
        upper: Some(Key::new(format!("t{n:03}\u{1}"), "")),
    };
    let points = TableScan {
        spans: (0..200).step_by(2).map(point).collect(),
        residual: None,
        rows: 1000,
        time: Duration::ZERO,
    };
    let calls = (0..900).map(|n| Predicate::Text {
        field: Field::PartitionKey,
        fold: Some(CaseFold::Upper),
        test: TextTest::Contains,
        needle: if n == 450 { "5".into() } else { format!("x{n}") },
    });
    let costly = Predicate::Any(calls.collect());
    let costly =
        TableScan { spans: vec![Span::everything()], residual: Some(costly), rows: 1000, time: SAFETY };
    let with_five = (0..200).filter(|n| n.to_string().contains('5')).count();
    for (scan, clients, expected) in [(points, 1, 100), (costly, 8, with_five)] {
        let lists = join_all((0..clients).map(|_| list(&store, &account, scan.clone()))).await;
        for (tables, pages) in lists {
            assert_eq!(tables.len(), expected);
            assert!(tables.is_sorted() && (pages > 1 || scan.time == SAFETY), "{pages} pages");
        }
    }
}

/// Follows a list of tables to its end.
async fn list<B: AnyStore>(store: &B, account: &str, mut scan: TableScan) -> (Vec<String>, usize) {
    let (mut tables, mut pages) = (Vec::new(), 0);
    loop {
        let page = store.list_tables(account, &scan).await.expect("a page");
        tables.extend(page.tables.into_iter().map(|table| table.name));
        pages += 1;
        assert!(pages < 500, "the list makes no progress");
        let Some(next) = page.next else { return (tables, pages) };
        let from = Key::new(next.name.to_ascii_lowercase(), "");
        scan.spans = starting_at(scan.spans, &from);
    }
}
