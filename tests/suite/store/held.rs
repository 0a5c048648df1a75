//! A row that somebody holds, or that many write, is the affair of its own writes.

use std::sync::atomic::{AtomicUsize, Ordering};

use crate::support::store::AnyStore;
use futures_util::future::{join, join_all, join3};
use rowhouse::protocol::model::{IfMatch, Key};
use rowhouse::protocol::plan::{Span, Write, WriteKind};
use rowhouse::store::postgres::{PgOptions, PgStore};
use sqlx::{Connection, Executor, PgConnection};

use super::contract::{insert, name, now, number, scan, table, write};
use super::postgres::patient;
use crate::support::pace_async;
use crate::support::postgres::fresh_database;
use rowhouse::store::{CountPosition, Entities, Tables, Totals};

const UPSERT: WriteKind = WriteKind::Replace(IfMatch::Absent);

fn upsert(row: &str) -> Write {
    write(UPSERT, "p", row, number("N", 1))
}

async fn others_go_on(coalesce: bool) {
    /// Twice as many as there are connections.
    const WRITERS: usize = 64;
    const ROUNDS: usize = 40;
    let url = fresh_database();
    let mut options = patient(&url);
    options.coalesce = coalesce;
    let store = PgStore::connect(options).await.unwrap();
    let (account, table) = table(&store).await;
    let other = name("Other");
    store.create_table(other.in_account(&account), now()).await.unwrap();
    store.write(table.in_account(&account), &insert("p", "r"), now()).await.unwrap();
    let mut holder = PgConnection::connect(&url).await.unwrap();
    holder.execute("BEGIN; SELECT * FROM entities FOR UPDATE").await.unwrap();
    let written = AtomicUsize::new(0);
    let writers = join_all((0..WRITERS).map(|n| {
        let (store, account, table, written) = (&store, &account, &table, &written);
        async move {
            let group = [upsert("r"), upsert(&format!("g{n}"))];
            // They may be refused while the row is held, but go on.
            while match n % 2 {
                0 => store.write(table.in_account(account), &upsert("r"), now()).await.is_err(),
                _ => store.transact(table.in_account(account), &group, now()).await.is_err(),
            } {}
            written.fetch_add(1, Ordering::Relaxed);
        }
    }));
    let others = async {
        for round in 0..ROUNDS {
            let (a, b, c) = (format!("a{round}"), format!("b{round}"), format!("c{round}"));
            store.write(other.in_account(&account), &insert("p", &a), now()).await.unwrap();
            store
                .transact(other.in_account(&account), &[insert("p", &b), insert("p", &c)], now())
                .await
                .unwrap();
            let page =
                store.query(other.in_account(&account), &scan(vec![Span::everything()])).await.unwrap();
            assert_eq!(page.entities.len(), 3 * (round + 1));
            // Another row of the same partition.
            store.write(table.in_account(&account), &upsert(&a), now()).await.unwrap();
            store.get(table.in_account(&account), &Key::new("p", "r")).await.unwrap().unwrap();
        }
        assert_eq!(written.load(Ordering::Relaxed), 0, "the row is held");
        holder.execute("ROLLBACK").await.unwrap();
    };
    join(writers, others).await;
    assert_eq!(written.load(Ordering::Relaxed), WRITERS);
}

#[tokio::test]
async fn a_held_row_keeps_only_its_own_writes_waiting() {
    others_go_on(true).await;
}

#[tokio::test]
async fn a_held_row_keeps_only_its_own_writes_waiting_where_each_has_its_statement() {
    others_go_on(false).await;
}

/// A lock of the whole table is waited for longer than one of a row, whatever session a
/// read comes by.
async fn reads_wait_for(coalesce: bool) {
    let url = fresh_database();
    let mut options = patient(&url);
    options.coalesce = coalesce;
    options.max_connections = 1;
    let store = PgStore::connect(options).await.unwrap();
    let (account, table) = table(&store).await;
    let (key, everything) = (Key::new("p", "r"), scan(vec![Span::everything()]));
    for _ in 0..3 {
        // Leaves a session that waits for locks as writes do.
        store.write(table.in_account(&account), &upsert("r"), now()).await.unwrap();
        let mut holder = PgConnection::connect(&url).await.unwrap();
        holder.execute("BEGIN; LOCK TABLE entities IN ACCESS EXCLUSIVE MODE").await.unwrap();
        let freed = async {
            pace_async(std::time::Duration::from_millis(200)).await;
            holder.execute("ROLLBACK").await.unwrap();
        };
        let point = store.get(table.in_account(&account), &key);
        let page = store.query(table.in_account(&account), &everything);
        let start = CountPosition::start();
        let part = store.count_part(table.in_account(&account), &start, 10);
        let ((), (point, page), part) = join3(freed, join(point, page), part).await;
        assert!(point.unwrap().is_some());
        assert_eq!(page.unwrap().entities.len(), 1);
        assert_eq!(part.unwrap().unwrap().entities, 1);
    }
}

#[tokio::test]
async fn reads_wait_for_a_table_that_is_locked() {
    reads_wait_for(true).await;
}

#[tokio::test]
async fn reads_wait_for_a_table_that_is_locked_where_each_has_its_statement() {
    reads_wait_for(false).await;
}

#[tokio::test]
async fn many_writes_of_one_row_do_not_go_before_all_others() {
    const HOT: usize = 200;
    const OTHERS: usize = 10;
    let store = PgStore::connect(PgOptions::new(fresh_database())).await.unwrap();
    let (account, table) = table(&store).await;
    let hot = write(WriteKind::Merge(IfMatch::Absent), "p", "hot", number("N", 1));
    store.write(table.in_account(&account), &hot, now()).await.unwrap();
    let written = AtomicUsize::new(0);
    let hot = join_all((0..HOT).map(|_| async {
        store.write(table.in_account(&account), &hot, now()).await.unwrap();
        written.fetch_add(1, Ordering::Relaxed);
    }));
    let others = join_all((0..OTHERS).map(|n| {
        let (store, account, table, written) = (&store, &account, &table, &written);
        async move {
            store.write(table.in_account(account), &insert("p", &format!("r{n}")), now()).await.unwrap();
            written.load(Ordering::Relaxed)
        }
    }));
    // The hot row's writes are asked for first.
    let (_, before) = join(hot, others).await;
    assert!(before.iter().all(|before| *before < HOT / 10), "{before:?}");
    assert_eq!(written.load(Ordering::Relaxed), HOT);
}
