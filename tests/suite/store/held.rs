//! A row that somebody holds, or that many write, is the affair of its own writes.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use futures_util::future::{join, join_all, join3};
use rowhouse_protocol::model::{IfMatch, Key};
use rowhouse_protocol::plan::{Write, WriteKind};
use rowhouse_store::postgres::{PgOptions, PgStore};
use rowhouse_store::{CountPosition, Totals};
use sqlx::{Connection, Executor, PgConnection};

use super::contract::{everything, insert, number, table, write};
use super::postgres::patient;
use crate::support::pace_async;
use crate::support::postgres::fresh_database;

const UPSERT: WriteKind = WriteKind::Replace(IfMatch::Absent);

fn upsert(row: &str) -> Write {
    write(UPSERT, "p", row, number("N", 1))
}

async fn others_go_on(coalesce: bool) {
    /// Twice as many as there are connections.
    const WRITERS: usize = 64;
    const ROUNDS: usize = 20;
    let url = fresh_database();
    let mut options = patient(&url);
    options.coalesce = coalesce;
    let store = PgStore::connect(options).await.unwrap();
    let table = table(&store).await;
    let other = table.named("Other");
    other.create().await.unwrap();
    table.write(&insert("p", "r")).await.unwrap();
    let mut holder = PgConnection::connect(&url).await.unwrap();
    holder.execute("BEGIN; SELECT * FROM entities FOR UPDATE").await.unwrap();
    let written = AtomicUsize::new(0);
    let writers = join_all((0..WRITERS).map(|n| {
        let (table, written) = (&table, &written);
        async move {
            let group = [upsert("r"), upsert(&format!("g{n}"))];
            // They may be refused while the row is held, but go on.
            while match n % 2 {
                0 => table.write(&upsert("r")).await.is_err(),
                _ => table.transact(&group).await.is_err(),
            } {}
            written.fetch_add(1, Ordering::Relaxed);
        }
    }));
    let others = async {
        for round in 0..ROUNDS {
            let (a, b, c) = (format!("a{round}"), format!("b{round}"), format!("c{round}"));
            other.write(&insert("p", &a)).await.unwrap();
            other.transact(&[insert("p", &b), insert("p", &c)]).await.unwrap();
            assert_eq!(other.all().await.len(), 3 * (round + 1));
            // Another row of the same partition.
            table.write(&upsert(&a)).await.unwrap();
            table.get(&Key::new("p", "r")).await.unwrap().unwrap();
        }
        assert_eq!(written.load(Ordering::Relaxed), 0, "the row is held");
        holder.execute("ROLLBACK").await.unwrap();
    };
    join(writers, others).await;
    assert_eq!(written.load(Ordering::Relaxed), WRITERS);
}

#[tokio::test]
async fn a_held_row_keeps_only_its_own_writes_waiting() {
    for coalesce in [true, false] {
        others_go_on(coalesce).await;
    }
}

/// A lock of the whole table is waited for longer than one of a row, whatever session a
/// read comes by.
async fn reads_wait_for(coalesce: bool) {
    let url = fresh_database();
    let mut options = patient(&url);
    options.coalesce = coalesce;
    options.max_connections = 1;
    let store = PgStore::connect(options).await.unwrap();
    let table = table(&store).await;
    let (key, everything) = (Key::new("p", "r"), everything());
    for _ in 0..3 {
        // Leaves a session that waits for locks as writes do.
        table.write(&upsert("r")).await.unwrap();
        let mut holder = PgConnection::connect(&url).await.unwrap();
        holder.execute("BEGIN; LOCK TABLE entities IN ACCESS EXCLUSIVE MODE").await.unwrap();
        let freed = async {
            pace_async(Duration::from_millis(200)).await;
            holder.execute("ROLLBACK").await.unwrap();
        };
        let point = table.get(&key);
        let page = table.query(&everything);
        let start = CountPosition::start();
        let part = store.count_part(table.place(), &start, 10);
        let ((), (point, page), part) = join3(freed, join(point, page), part).await;
        assert!(point.unwrap().is_some());
        assert_eq!(page.unwrap().entities.len(), 1);
        assert_eq!(part.unwrap().unwrap().entities, 1);
    }
}

#[tokio::test]
async fn reads_wait_for_a_table_that_is_locked() {
    for coalesce in [true, false] {
        reads_wait_for(coalesce).await;
    }
}

#[tokio::test]
async fn many_writes_of_one_row_do_not_go_before_all_others() {
    const HOT: usize = 200;
    const OTHERS: usize = 10;
    let store = PgStore::connect(PgOptions::new(fresh_database())).await.unwrap();
    let table = table(&store).await;
    let hot = write(WriteKind::Merge(IfMatch::Absent), "p", "hot", number("N", 1));
    table.write(&hot).await.unwrap();
    let written = AtomicUsize::new(0);
    let hot = join_all((0..HOT).map(|_| async {
        table.write(&hot).await.unwrap();
        written.fetch_add(1, Ordering::Relaxed);
    }));
    let others = join_all((0..OTHERS).map(|n| {
        let (table, written) = (&table, &written);
        async move {
            table.write(&insert("p", &format!("r{n}"))).await.unwrap();
            written.load(Ordering::Relaxed)
        }
    }));
    // The hot row's writes are asked for first.
    let (_, before) = join(hot, others).await;
    assert!(before.iter().all(|before| *before < HOT / 10), "{before:?}");
    assert_eq!(written.load(Ordering::Relaxed), HOT);
}
