//! Pages that end before the rows of their statement do: the session of the statement is used again.

use std::collections::BTreeSet;

use rowhouse_protocol::model::{EdmValue, Key, PageOrder};
use rowhouse_protocol::odata::{self, Grammar};
use rowhouse_protocol::plan::filter::{Subject, predicate};
use rowhouse_protocol::plan::{Predicate, Scan, Span, Write, WriteKind};
use rowhouse_store::postgres::{PgOptions, PgStore};
use sqlx::{Connection, PgConnection};

use super::contract::{TestTable, table, write};
use crate::support::postgres::fresh_database;

/// Characters of one property.
const TEXT: usize = 30_000;
const GRAMMAR: Grammar = Grammar { max_comparisons: 100, extended: false };

/// A store over a new database, and a connection that sees its sessions.
struct Watched {
    table: TestTable<Box<PgStore>>,
    admin: PgConnection,
}

impl Watched {
    async fn with(entities: Vec<Write>) -> Self {
        let url = fresh_database();
        let store = PgStore::connect(PgOptions::new(&url)).await.expect("a store");
        let table = table(Box::new(store)).await;
        table.fill(entities).await;
        Self { table, admin: PgConnection::connect(&url).await.expect("a connection") }
    }

    /// The keys that the pages of a scan have, and the number of pages.
    async fn keys(&self, scan: &Scan) -> (Vec<Key>, usize) {
        let pages = self.table.walk(scan).await;
        let count = pages.len();
        (pages.into_iter().flatten().map(|entity| entity.key).collect(), count)
    }

    async fn sessions(&mut self) -> BTreeSet<i32> {
        let others = "SELECT pid FROM pg_stat_activity WHERE datname = current_database() \
                      AND pid <> pg_backend_pid() AND backend_type = 'client backend'";
        let pids: Vec<i32> = sqlx::query_scalar(others).fetch_all(&mut self.admin).await.expect("sessions");
        pids.into_iter().collect()
    }
}

fn entity(rk: &str, bytes: usize) -> Write {
    let mut properties = vec![("N".into(), EdmValue::Int32(1))];
    for (at, start) in (0..bytes).step_by(TEXT).enumerate() {
        let text = rk.chars().cycle().take(TEXT.min(bytes - start)).collect();
        properties.push((format!("Text{at}"), EdmValue::String(text)));
    }
    write(WriteKind::Insert, "p", rk, properties)
}

fn filter(text: &str) -> Predicate {
    predicate(&odata::parse(text, GRAMMAR).expect("a filter"), Subject::Entities).expect("a predicate")
}

/// More comparisons than PostgreSQL evaluates.
fn many_comparisons(first: &str) -> Predicate {
    filter(&(100..120).fold(first.to_owned(), |text, n| format!("{text} or N eq {n}")))
}

#[tokio::test]
async fn a_page_that_ends_by_its_bytes_keeps_its_session() {
    let mut watched = Watched::with((0..300).map(|n| entity(&format!("{n:03}"), 20_000)).collect()).await;
    let by_keys = Scan { bytes: 64 * 1024, ..Scan::of_spans(vec![Span::everything()]) };
    let (expected, _) = watched.keys(&by_keys).await;
    assert_eq!(expected.len(), 300);
    let before = watched.sessions().await;
    for residual in [None, Some(filter("N eq 1")), Some(many_comparisons("N eq 1"))] {
        let (keys, pages) = watched.keys(&Scan { residual: residual.clone(), ..by_keys.clone() }).await;
        assert_eq!((keys, pages), (expected.clone(), 100), "{residual:?}");
    }
    let descending = Scan { order: PageOrder::Descending, ..by_keys };
    let (keys, _) = watched.keys(&descending).await;
    assert!(keys.iter().eq(expected.iter().rev()));
    let after = watched.sessions().await;
    assert!(before.is_subset(&after), "{before:?}, then {after:?}");
}

#[tokio::test]
async fn a_page_whose_filter_holds_large_entities_keeps_its_session() {
    let small = (0..8).map(|n| entity(&format!("a{n}"), 10));
    let large = (0..40).map(|n| entity(&format!("b{n:02}"), 400_000));
    let mut watched = Watched::with(small.chain(large).collect()).await;
    let everything = Scan::of_spans(vec![Span::everything()]);
    let (expected, _) = watched.keys(&everything).await;
    let before = watched.sessions().await;
    for (first, count) in [("N eq 2", 0), ("N eq 1", 48)] {
        let residual = Some(many_comparisons(first));
        let (keys, _) = watched.keys(&Scan { residual, ..everything.clone() }).await;
        assert_eq!(keys, expected[..count], "{first}");
    }
    let after = watched.sessions().await;
    assert!(before.is_subset(&after), "{before:?}, then {after:?}");
}
