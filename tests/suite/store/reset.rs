//! Beginning anew and going back. Other cases share the database, so each keeps
//! to accounts of its own.

use rowhouse_protocol::error::Code;
use rowhouse_protocol::model::{EdmValue, IfMatch, Stored};
use rowhouse_protocol::plan::index::IndexKind;
use rowhouse_protocol::plan::{Span, Write, WriteKind};
use rowhouse_store::contract::reset::MAX_SNAPSHOTS;
use rowhouse_store::{AddIndexOutcome, NewIndex};

use super::contract::{TestTable, account, insert, name, now, number, refusal, table, write};
use super::tables::{account_with, list};
use crate::support::store::AnyStore;

/// Takes a snapshot of an account or, without one, of all; returns its name.
pub async fn snapshot<B: AnyStore>(store: &B, account: Option<&str>) -> String {
    let name = uuid::Uuid::new_v4().simple().to_string();
    assert!(store.take_snapshot(&name, account, now()).await.expect("a snapshot"));
    name
}

async fn restore<B: AnyStore>(store: &B, snapshot: &str) {
    assert!(store.restore_snapshot(snapshot, now()).await.expect("a snapshot"));
}

/// All that an account has.
#[derive(Debug, PartialEq)]
struct State {
    properties: Option<String>,
    tables: Vec<(String, i64, Option<String>, Vec<Stored>)>,
}

async fn state<B: AnyStore>(store: &B, account: &str) -> State {
    let page = store.list_tables(account, &list(vec![Span::everything()])).await.expect("tables");
    let mut tables = Vec::new();
    for entry in page.tables {
        let table = named(store, account, &entry.name);
        let policies = store.policies(table.place()).await.expect("policies");
        tables.push((entry.name, entry.created.raw(), policies, table.all().await));
    }
    State { properties: store.properties(account).await.expect("properties"), tables }
}

fn named<'s, B: AnyStore>(store: &'s B, account: &str, table: &str) -> TestTable<&'s B> {
    TestTable { store, account: account.to_owned(), name: name(table) }
}

/// A new account of two tables with something in everything, and one without.
async fn furnished<B: AnyStore>(store: &B) -> String {
    let account = account_with(store, ["People", "Orders", "Empty"].map(str::to_owned)).await;
    let people = named(store, &account, "People");
    let value = |n: i32| vec![("N".into(), EdmValue::Int32(n)), ("D".into(), EdmValue::Double(-0.0))];
    let of = |n| write(WriteKind::Insert, &format!("p{}", n % 7), &format!("{n:04}"), value(n));
    people.fill((0..250).map(of)).await;
    people.named("Orders").fill([insert("", ""), insert("ü\u{10ffff}", "b")]).await;
    store.set_policies(people.place(), r#"[{"id":"a"}]"#).await.expect("policies");
    store.set_properties(&account, r#"{"cors":[]}"#).await.expect("properties");
    account
}

/// Changes something in everything.
async fn disturb<B: AnyStore>(store: &B, account: &str) {
    let people = named(store, account, "People");
    people.named("Orders").delete().await.expect("it is there");
    for name in ["ORDERS", "Another"] {
        let table = people.named(name);
        table.create().await.expect("the name is free");
        table.fill([insert("", ""), insert("new", "r")]).await;
    }
    people.write(&replacement()).await.expect("a write");
    people.write(&insert("p9", "new")).await.expect("a write");
    store.set_policies(people.place(), "[]").await.expect("policies");
    store.set_properties(account, r#"{"cors":[1],"more":2}"#).await.expect("properties");
}

fn replacement() -> Write {
    write(WriteKind::Replace(IfMatch::Absent), "p0", "0000", number("M", 1))
}

pub async fn comes_back_as_it_was<B: AnyStore>(store: &B) {
    let account = furnished(store).await;
    let before = state(store, &account).await;
    assert_eq!(before.tables.iter().map(|table| table.3.len()).collect::<Vec<_>>(), [0, 2, 250]);
    let snapshot = snapshot(store, Some(&account)).await;
    for _ in 0..2 {
        disturb(store, &account).await;
        assert_ne!(state(store, &account).await, before);
        restore(store, &snapshot).await;
        assert_eq!(state(store, &account).await, before);
        // What was deleted is purged, and nothing else.
        while store.purge(now()).await.expect("a purge") {}
        assert_eq!(state(store, &account).await, before);
    }
    let etag = before.tables[2].3[0].modified;
    let written = named(store, &account, "People").write(&replacement()).await.expect("a write");
    assert!(written.modified > Some(etag), "versions grow on from those that came back");
    assert!(store.drop_snapshot(&snapshot).await.expect("an answer"));
    assert!(!store.restore_snapshot(&snapshot, now()).await.expect("an answer"));
}

pub async fn one_account_alone<B: AnyStore>(store: &B) {
    let [one, other] = [furnished(store).await, furnished(store).await];
    let before = state(store, &one).await;
    let snapshot = snapshot(store, Some(&one)).await;
    store.reset(Some(&one), now()).await.expect("a reset");
    assert_eq!(state(store, &one).await, State { properties: None, tables: vec![] });
    let gone = named(store, &one, "People").write(&insert("p", "r")).await;
    assert_eq!(refusal(gone), Code::TableNotFound);
    disturb(store, &other).await;
    let disturbed = state(store, &other).await;
    restore(store, &snapshot).await;
    assert_eq!(state(store, &one).await, before);
    assert_eq!(state(store, &other).await, disturbed);
}

pub async fn snapshots_are_bounded<B: AnyStore>(store: &B) {
    let account = account();
    let mut names = Vec::new();
    for _ in 0..MAX_SNAPSHOTS {
        names.push(snapshot(store, Some(&account)).await);
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
    let account = furnished(store).await;
    let snapshot = snapshot(store, Some(&account)).await;
    for restores in [true, false] {
        let table = named(store, &account, "People");
        let index = NewIndex { table: table.place(), property: "N", kind: IndexKind::Number };
        assert!(matches!(store.add_index(index, now()).await, Ok(AddIndexOutcome::Added(_))));
        match restores {
            true => restore(store, &snapshot).await,
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
    let table = table(store).await;
    let mut snapshots = Vec::new();
    for value in [1, 2] {
        let kind = WriteKind::Replace(IfMatch::Absent);
        table.fill((0..ROWS).map(|n| write(kind, "p", &format!("{n:04}"), number("N", value)))).await;
        snapshots.push(snapshot(store, Some(&table.account)).await);
    }
    let done = std::cell::Cell::new(false);
    let acknowledged = std::cell::RefCell::new(Vec::new());
    let restoring = async {
        for round in 0..ROUNDS {
            let before: Vec<String> = acknowledged.borrow_mut().drain(..).collect();
            restore(store, &snapshots[round % 2]).await;
            let kept = table.all().await;
            let landed = kept.iter().find(|entity| before.contains(&entity.key.row));
            assert_eq!(landed, None, "it was written before, and is there after");
        }
        done.set(true);
    };
    let reading = async {
        while !done.get() {
            let mut page = table.all().await;
            page.retain(|entity| entity.key.partition == "p");
            assert_eq!(page.len() as i32, ROWS);
            assert!(page.iter().all(|row| row.properties == page[0].properties), "two states in one page");
        }
    };
    let writing = async {
        for n in 0.. {
            if done.get() {
                break;
            }
            let row = format!("{n:06}");
            table.write(&insert("q", &row)).await.expect("a write");
            acknowledged.borrow_mut().push(row);
            store.set_policies(table.place(), "[]").await.expect("the table is always there");
        }
    };
    tokio::join!(restoring, reading, writing);
}
