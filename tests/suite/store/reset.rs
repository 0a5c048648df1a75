//! Beginning anew and going back. Other cases share the database, so each keeps
//! to accounts of its own.

use crate::support::store::AnyStore;
use rowhouse::error::Code;
use rowhouse::protocol::model::{EdmValue, IfMatch, Stored, TableName};
use rowhouse::protocol::plan::index::IndexKind;
use rowhouse::protocol::plan::scan::MAX_TIME;
use rowhouse::protocol::plan::{Span, TableScan, WriteKind};
use rowhouse::store::contract::reset::MAX_SNAPSHOTS;
use rowhouse::store::{AddedIndex, Failure, NewIndex};

use super::contract::{account, fill, insert, name, now, number, scan, walk, write};

/// A name for a snapshot: they are told apart by store only.
fn snapshot() -> String {
    uuid::Uuid::new_v4().simple().to_string()
}

/// All that an account has.
#[derive(Debug, PartialEq)]
struct State {
    properties: Option<String>,
    tables: Vec<(String, i64, Option<String>, Vec<Stored>)>,
}

async fn state<B: AnyStore>(store: &B, account: &str) -> State {
    let everything =
        TableScan { spans: vec![Span::everything()], residual: None, rows: 1000, time: MAX_TIME };
    let page = store.list_tables(account, &everything).await.expect("tables");
    let mut tables = Vec::new();
    for entry in page.tables {
        let table = name(&entry.name);
        let policies = store.policies(table.in_account(account)).await.expect("policies");
        let pages = walk(store, account, &table, &scan(vec![Span::everything()])).await;
        tables.push((entry.name, entry.created.raw(), policies, pages.concat()));
    }
    State { properties: store.properties(account).await.expect("properties"), tables }
}

/// Two tables with something in everything, and one without.
async fn furnish<B: AnyStore>(store: &B, account: &str) {
    for table in ["People", "Orders", "Empty"] {
        store.create_table(name(table).in_account(account), now()).await.expect("a table");
    }
    let value = |n: i32| vec![("N".into(), EdmValue::Int32(n)), ("D".into(), EdmValue::Double(-0.0))];
    let writes = (0..250)
        .map(|n| write(WriteKind::Insert, &format!("p{}", n % 7), &format!("{n:04}"), value(n)))
        .collect();
    fill(store, account, &name("People"), writes).await;
    fill(store, account, &name("Orders"), vec![insert("", ""), insert("ü\u{10ffff}", "b")]).await;
    store.set_policies(name("People").in_account(account), r#"[{"id":"a"}]"#).await.expect("policies");
    store.set_properties(account, r#"{"cors":[]}"#).await.expect("properties");
}

/// Changes something in everything.
async fn disturb<B: AnyStore>(store: &B, account: &str) {
    let people = name("People");
    store.delete_table(name("Orders").in_account(account), now()).await.expect("it is there");
    store.create_table(name("ORDERS").in_account(account), now()).await.expect("the name is free");
    store.create_table(name("Another").in_account(account), now()).await.expect("a table");
    for table in ["ORDERS", "Another"] {
        fill(store, account, &name(table), vec![insert("", ""), insert("new", "r")]).await;
    }
    let replace = write(WriteKind::Replace(IfMatch::Absent), "p0", "0000", number("M", 1));
    store.write(people.in_account(account), &replace, now()).await.expect("a write");
    store.write(people.in_account(account), &insert("p9", "new"), now()).await.expect("a write");
    store.set_policies(people.in_account(account), "[]").await.expect("policies");
    store.set_properties(account, r#"{"cors":[1],"more":2}"#).await.expect("properties");
}

pub async fn comes_back_as_it_was<B: AnyStore>(store: &B) {
    let account = account();
    furnish(store, &account).await;
    let before = state(store, &account).await;
    assert_eq!(before.tables.iter().map(|table| table.3.len()).collect::<Vec<_>>(), [0, 2, 250]);
    let snapshot = snapshot();
    assert!(store.take_snapshot(&snapshot, Some(&account), now()).await.expect("a snapshot"));
    for _ in 0..2 {
        disturb(store, &account).await;
        assert_ne!(state(store, &account).await, before);
        assert!(store.restore_snapshot(&snapshot, now()).await.expect("a snapshot"));
        assert_eq!(state(store, &account).await, before);
        // What was deleted is purged, and nothing else.
        while store.purge(now()).await.expect("a purge") {}
        assert_eq!(state(store, &account).await, before);
    }
    let etag = before.tables[2].3[0].modified;
    let stale = write(WriteKind::Replace(IfMatch::Absent), "p0", "0000", number("M", 1));
    let written = store.write(name("People").in_account(&account), &stale, now()).await.expect("a write");
    assert!(written.modified > Some(etag), "versions grow on from those that came back");
    assert!(store.drop_snapshot(&snapshot).await.expect("an answer"));
    assert!(!store.restore_snapshot(&snapshot, now()).await.expect("an answer"));
}

pub async fn one_account_alone<B: AnyStore>(store: &B) {
    let [one, other] = [account(), account()];
    furnish(store, &one).await;
    furnish(store, &other).await;
    let before = state(store, &one).await;
    let snapshot = snapshot();
    assert!(store.take_snapshot(&snapshot, Some(&one), now()).await.expect("a snapshot"));
    store.reset(Some(&one), now()).await.expect("a reset");
    assert_eq!(state(store, &one).await, State { properties: None, tables: vec![] });
    let gone = store.write(name("People").in_account(&one), &insert("p", "r"), now()).await;
    assert!(matches!(gone, Err(Failure::Refused(error)) if error.code == Code::TableNotFound));
    disturb(store, &other).await;
    let disturbed = state(store, &other).await;
    assert!(store.restore_snapshot(&snapshot, now()).await.expect("a snapshot"));
    assert_eq!(state(store, &one).await, before);
    assert_eq!(state(store, &other).await, disturbed);
}

pub async fn snapshots_are_bounded<B: AnyStore>(store: &B) {
    let account = account();
    let names: Vec<String> = (0..MAX_SNAPSHOTS).map(|_| snapshot()).collect();
    for name in &names {
        assert!(store.take_snapshot(name, Some(&account), now()).await.expect("an answer"));
    }
    assert!(!store.take_snapshot("more", None, now()).await.expect("an answer"));
    assert!(!store.restore_snapshot("more", now()).await.expect("an answer"));
    assert!(!store.drop_snapshot("more").await.expect("an answer"));
    let listed = store.snapshots().await.expect("a list");
    assert_eq!(listed.iter().map(|found| &found.name).collect::<Vec<_>>(), names.iter().collect::<Vec<_>>());
    assert!(listed.iter().all(|found| found.account.as_deref() == Some(account.as_str())));
    assert!(store.drop_snapshot(&names[3]).await.expect("an answer"));
    assert!(store.take_snapshot("more", Some(&account), now()).await.expect("an answer"));
}

/// The tables that come back are others than those that had the indexes.
pub async fn indexes_do_not_come_back<B: AnyStore>(store: &B) {
    let account = account();
    furnish(store, &account).await;
    let snapshot = snapshot();
    assert!(store.take_snapshot(&snapshot, Some(&account), now()).await.expect("a snapshot"));
    for restores in [true, false] {
        let table = name("People");
        let index = NewIndex { table: table.in_account(&account), property: "N", kind: IndexKind::Number };
        assert!(matches!(store.add_index(index, now()).await, Ok(AddedIndex::Added(_))));
        match restores {
            true => assert!(store.restore_snapshot(&snapshot, now()).await.expect("a snapshot")),
            false => store.reset(Some(&account), now()).await.expect("a reset"),
        }
        assert!(store.indexes().await.expect("indexes").iter().all(|stored| stored.account != account));
    }
    assert!(store.drop_snapshot(&snapshot).await.expect("an answer"));
}

/// Every page is of one state, no table is missing in between, and nothing that
/// began before lands after.
pub async fn whoever_asks_meanwhile_sees_one_state<B: AnyStore>(store: &B) {
    const ROWS: i32 = 40;
    const ROUNDS: usize = 30;
    let (account, table) = (account(), name("People"));
    store.create_table(table.in_account(&account), now()).await.expect("a table");
    let snapshots = [snapshot(), snapshot()];
    for (value, snapshot) in (1..).zip(&snapshots) {
        let kind = WriteKind::Replace(IfMatch::Absent);
        let rows = (0..ROWS).map(|n| write(kind, "p", &format!("{n:04}"), number("N", value)));
        fill(store, &account, &table, rows.collect()).await;
        assert!(store.take_snapshot(snapshot, Some(&account), now()).await.expect("a snapshot"));
    }
    let done = std::cell::Cell::new(false);
    let acknowledged = std::cell::RefCell::new(Vec::new());
    let restoring = async {
        for round in 0..ROUNDS {
            let before: Vec<String> = acknowledged.borrow_mut().drain(..).collect();
            store.restore_snapshot(&snapshots[round % 2], now()).await.expect("a snapshot");
            let kept = page(store, &account, &table).await;
            let landed = kept.iter().find(|entity| before.contains(&entity.key.row));
            assert_eq!(landed, None, "it was written before, and is there after");
        }
        done.set(true);
    };
    let reading = async {
        while !done.get() {
            let page = page(store, &account, &table).await;
            let old: Vec<&Stored> = page.iter().filter(|entity| entity.key.partition == "p").collect();
            assert_eq!(old.len() as i32, ROWS);
            assert!(
                old.iter().all(|entity| entity.properties == old[0].properties),
                "two states in one page"
            );
        }
    };
    let writing = async {
        for n in 0.. {
            if done.get() {
                break;
            }
            let row = format!("{n:06}");
            store.write(table.in_account(&account), &insert("q", &row), now()).await.expect("a write");
            acknowledged.borrow_mut().push(row);
            store.set_policies(table.in_account(&account), "[]").await.expect("the table is always there");
        }
    };
    tokio::join!(restoring, reading, writing);
}

async fn page<B: AnyStore>(store: &B, account: &str, table: &TableName) -> Vec<Stored> {
    walk(store, account, table, &scan(vec![Span::everything()])).await.concat()
}
