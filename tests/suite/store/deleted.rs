//! Deleted tables that are kept: what comes back, and what cannot.
//!
//! Other cases share the database: tables whose time is to end have one that has ended for the clock of the
//! tests, and all others one that never ends.

use std::time::Duration;

use futures_util::future::join;
use rowhouse_protocol::error::Code;
use rowhouse_protocol::model::{Key, Ticks};
use rowhouse_protocol::plan::index::IndexKind;
use rowhouse_store::postgres::{PgOptions, PgStore};
use rowhouse_store::sqlite::{Location, SqliteOptions, SqliteStore};
use rowhouse_store::{
    AddIndexOutcome, DeletedScan, DeletedTable, DeletedTables, Expiry, ExpiryRule, Failure, Fault,
    IndexState, Indexes, NewIndex, TableRecords, TableSize, Tables, Undeletion, Upkeep,
};
use sqlx::{Connection, Executor, PgConnection};

use super::contract::{TestTable, insert, name, now, refusal, table};
use super::postgres::open;
use super::reset::snapshot;
use crate::support::postgres::{execute, fresh_database, text};
use crate::support::server::fresh_folder;
use crate::support::store::AnyStore;

/// Longer than the pause before a table can have another name.
const LONG_AGO: i64 = 11 * 60 * 10_000_000;

async fn delete<B: AnyStore>(table: &TestTable<&B>) -> DeletedTable {
    delete_at(table, now()).await
}

async fn delete_at<B: AnyStore>(table: &TestTable<&B>, at: Ticks) -> DeletedTable {
    table.store.delete_and_keep(table.place(), at, Ticks::MAX).await.expect("it is there");
    listed(table).await.swap_remove(0)
}

/// The deleted tables of its account.
async fn listed<B: AnyStore>(table: &TestTable<&B>) -> Vec<DeletedTable> {
    let scan = DeletedScan { account: Some(&table.account), most: 100, ..DeletedScan::default() };
    table.store.deleted_tables(scan).await.expect("a list")
}

async fn undelete<B: DeletedTables>(store: &B, deleted: &DeletedTable, as_name: &str) -> Undeletion {
    store.undelete(deleted, &name(as_name), now()).await.expect("an answer")
}

fn is_done(undeletion: &Undeletion) -> bool {
    matches!(undeletion, Undeletion::Done { .. })
}

/// Row keys of a table.
async fn rows<B: AnyStore>(table: &TestTable<&B>) -> Vec<String> {
    table.all().await.into_iter().map(|entity| entity.key.row).collect()
}

async fn purge_all<B: Upkeep>(store: &B) {
    while store.purge(Ticks::MAX).await.expect("a purge") {}
}

pub async fn a_table_comes_back_with_all_that_it_had<B: AnyStore>(store: &B) {
    let table = table(store).await;
    table.fill((0..30).map(|n| insert(&format!("p{}", n % 7), &n.to_string()))).await;
    let place = table.place();
    store.set_policies(place, r#"[{"id": "é'\\"}]"#).await.expect("policies");
    let rule = ExpiryRule { property: Some("it's".into()), delay: 5, interval: 10 };
    store.set_expiry(place, &rule, now()).await.expect("a rule");
    for (property, kind) in [("N", IndexKind::Number), ("a'b", IndexKind::Text)] {
        let added = store.add_index(NewIndex { table: place, property, kind }, now()).await;
        assert!(matches!(added, Ok(AddIndexOutcome::Added(_))), "{added:?}");
    }
    let of_table = async || {
        let indexes =
            store.indexes().await.expect("indexes").into_iter().filter(|i| i.account == table.account);
        let entities = table.all().await;
        let mut rules = store.expiries(Some(&table.account)).await.expect("rules");
        let entry = store.get_table(place).await.expect("an answer");
        let policies = store.policies(place).await.expect("policies");
        ((entities, entry, policies), rules.pop(), indexes.collect::<Vec<_>>())
    };
    let before = of_table().await;
    let (deleted_at, kept_until) = (now(), Ticks::MAX);
    store.delete_and_keep(place, deleted_at, kept_until).await.expect("it is there");
    assert_eq!(store.get_table(place).await.expect("an answer"), None);
    assert_eq!(refusal(store.get(place, &Key::new("p1", "1")).await), Code::TableNotFound);
    assert_eq!(refusal(store.delete_and_keep(place, now(), kept_until).await), Code::ResourceNotFound);
    assert_eq!(store.expiries(Some(&table.account)).await.expect("rules"), []);
    assert!(store.indexes().await.expect("indexes").iter().all(|stored| stored.account != table.account));
    // What forgets the records of deleted tables has been there.
    store.forget_stale(now()).await.expect("nothing of this table");
    store.remove_index(now()).await.expect("it may be the index of another case");
    let deleted = listed(&table).await;
    let [deleted] = &deleted[..] else { panic!("{deleted:?}") };
    assert_eq!((deleted.name.as_str(), deleted.deleted), ("People", deleted_at));
    assert_eq!(deleted.kept_until, kept_until);
    let size = store.deleted_size(deleted.table_no, 100).await.expect("an answer").expect("a size");
    assert_eq!((size.entities, size.complete), (30, true));
    assert!(!store.deleted_size(deleted.table_no, 10).await.expect("an answer").expect("a size").complete);

    let undeleted = undelete(store, deleted, "People").await;
    let Undeletion::Done { records: TableRecords { indexes, .. }, left_out } = undeleted else {
        panic!("{undeleted:?}")
    };
    assert_eq!(left_out, 0);
    assert_eq!(indexes.map(|indexes| indexes.len()), Some(2));
    let after = of_table().await;
    assert_eq!(after.0, before.0, "entities with their versions, policies, the time of its creation");
    let (old_rule, new_rule) = (before.1.expect("a rule"), after.1.expect("a rule"));
    assert_eq!((new_rule.rule, new_rule.made), (old_rule.rule, old_rule.made));
    let of_index = |stored: &rowhouse_store::StoredIndex| (stored.index.property.clone(), stored.index.kind);
    assert!(after.2.iter().map(of_index).eq(before.2.iter().map(of_index)), "{:?}", after.2);
    for stored in &after.2 {
        assert_eq!(stored.state, IndexState::Building);
        assert!(before.2.iter().all(|old| old.index.index_no != stored.index.index_no), "it is built again");
    }
    assert_eq!(listed(&table).await, []);
    assert_eq!(store.deleted_size(deleted.table_no, 1).await.expect("an answer"), None);
    // It is a table like any other.
    store.write(place, &insert("p", "new"), now()).await.expect("a write");
    store.delete_table(place, now()).await.expect("it is there");
    assert_eq!(undelete(store, deleted, "People").await, Undeletion::Gone, "deleted without being kept");
}

pub async fn deleted_tables_have_names_and_numbers<B: AnyStore>(store: &B) {
    let table = table(store).await;
    let long_ago = Ticks::from_raw(now().raw() - LONG_AGO).expect("a time");
    let mut all = Vec::new();
    for n in 0..3 {
        table.write(&insert("p", &n.to_string())).await.expect("a write");
        let at = Ticks::from_raw(long_ago.raw() + n).expect("a time");
        all.push(delete_at(&table, at).await);
        table.create().await.expect("the name is free");
    }
    all.reverse();
    assert_eq!(listed(&table).await, all, "the last deleted first");
    for (scan, found) in [
        (DeletedScan { most: 2, ..DeletedScan::default() }, &all[..2]),
        (DeletedScan { name: Some(&name("PEOPLE")), most: 9, ..DeletedScan::default() }, &all[..]),
        (DeletedScan { name: Some(&name("Other")), most: 9, ..DeletedScan::default() }, &[]),
        (DeletedScan { table_no: Some(all[1].table_no), most: 9, ..DeletedScan::default() }, &all[1..2]),
    ] {
        let scan = DeletedScan { account: Some(&table.account), ..scan };
        assert_eq!(store.deleted_tables(scan).await.expect("a list"), found, "{scan:?}");
    }
    assert_eq!(undelete(store, &all[0], "people").await, Undeletion::NameTaken);
    assert_eq!(listed(&table).await, all, "a refusal changes nothing");
    assert!(is_done(&undelete(store, &all[1], "Second").await));
    assert_eq!(undelete(store, &all[0], "sECOND").await, Undeletion::NameTaken);
    assert!(is_done(&undelete(store, &all[0], "Third").await));
    table.delete().await.expect("it is there");
    assert!(is_done(&undelete(store, &all[2], "pEOPLE").await));
    for (name, row) in [("Second", "1"), ("Third", "2"), ("People", "0")] {
        assert_eq!(rows(&table.named(name)).await, [row], "{name}");
    }
    let entry = store.get_table(table.place()).await.expect("an answer").expect("it is back");
    assert_eq!(entry.name, "pEOPLE", "the name as it was given");
    // Under the number of the former deletion nothing comes back that was deleted again.
    let again = delete(&table).await;
    assert_eq!(again.table_no, all[2].table_no);
    assert_eq!(undelete(store, &all[2], "People").await, Undeletion::Gone);
    assert!(!store.purge_deleted(&all[2], now()).await.expect("an answer"));
    assert!(is_done(&undelete(store, &again, "People").await));
}

#[tokio::test]
async fn what_is_purged_does_not_come_back() {
    for spread in [1, 4] {
        let url = fresh_database();
        purge_one_of_two(&open(&url, spread).await).await;
        assert_eq!(text(&url, "SELECT count(*)::text FROM entities"), "50", "spread {spread}");
    }
    let path = fresh_folder().join("deleted.db");
    let store = SqliteStore::open(&SqliteOptions::new(Location::File(path.clone()))).expect("a store");
    purge_one_of_two(&store).await;
    drop(store);
    let db = rusqlite::Connection::open(path).expect("the database");
    let rows: i64 = db.query_row("SELECT count(*) FROM entities", [], |row| row.get(0)).expect("a count");
    assert_eq!(rows, 50);
}

async fn purge_one_of_two<B: AnyStore>(store: &B) {
    let table = table(store).await;
    let kept = table.named("Kept");
    kept.create().await.expect("a table");
    let many = |count: i32| (0..count).map(|n| insert(&(n % 9).to_string(), &n.to_string()));
    table.fill(many(1500)).await;
    kept.fill(many(50)).await;
    let kept_record = delete(&kept).await;
    let purged = delete(&table).await;
    // Nothing is purged before.
    purge_all(store).await;
    let size = store.deleted_size(purged.table_no, 5000).await.expect("an answer");
    assert!(matches!(size, Some(TableSize { entities: 1500, complete: true, .. })), "{size:?}");
    assert!(store.purge_deleted(&purged, now()).await.expect("an answer"));
    assert!(!store.purge_deleted(&purged, now()).await.expect("an answer"));
    // Before, while and after its entities are removed.
    assert_eq!(undelete(store, &purged, "People").await, Undeletion::Gone);
    while store.purge(Ticks::MAX).await.expect("a purge") {
        assert_eq!(undelete(store, &purged, "People").await, Undeletion::Gone);
    }
    assert_eq!(undelete(store, &purged, "People").await, Undeletion::Gone);
    assert_eq!(store.get_table(table.place()).await.expect("an answer"), None);
    assert!(is_done(&undelete(store, &kept_record, "Kept").await));
    purge_all(store).await;
    assert_eq!(rows(&kept).await.len(), 50);
}

pub async fn tables_are_kept_until_their_time_ends<B: AnyStore>(store: &B) {
    let table = table(store).await;
    table.fill(vec![insert("p", "r")]).await;
    let deleted_at = now();
    let end = Ticks::from_raw(deleted_at.raw() + 1_000_000_000).expect("a time");
    store.delete_and_keep(table.place(), deleted_at, end).await.expect("it is there");
    let before = Ticks::from_raw(end.raw() - 1).expect("a time");
    let has_ended = async |now| {
        let ended = store.ended_tables(now).await.expect("a list");
        ended.iter().any(|deleted| deleted.account == table.account)
    };
    assert!(!has_ended(before).await);
    let [deleted] = &listed(&table).await[..] else { panic!("its time has not ended") };
    assert!(has_ended(end).await);
    assert!(store.purge_deleted(deleted, end).await.expect("an answer"));
    assert!(!has_ended(end).await);
    assert_eq!(listed(&table).await, []);
    assert_eq!(undelete(store, deleted, "People").await, Undeletion::Gone);
}

pub async fn a_reset_leaves_nothing_to_bring_back<B: AnyStore>(store: &B) {
    let table = table(store).await;
    let deleted = delete(&table).await;
    table.create().await.expect("the name is free");
    let snapshot = snapshot(store, Some(&table.account)).await;
    assert!(store.restore_snapshot(&snapshot, now()).await.expect("it is there"));
    assert_eq!(listed(&table).await, []);
    assert_eq!(undelete(store, &deleted, "People").await, Undeletion::Gone);
    assert!(store.drop_snapshot(&snapshot).await.expect("an answer"));
}

/// Of two who want the table, or its name, one has it.
pub async fn one_of_two_has_a_deleted_table<B: AnyStore>(store: &B) {
    let table = table(store).await;
    for round in 0..30 {
        table.fill(vec![insert("p", &round.to_string())]).await;
        let deleted = delete(&table).await;
        match round % 3 {
            0 => {
                let (one, other) =
                    join(undelete(store, &deleted, "People"), undelete(store, &deleted, "People")).await;
                assert!(is_done(&one) != is_done(&other), "{one:?} {other:?}");
            }
            1 => {
                let purge = store.purge_deleted(&deleted, now());
                let (undeleted, purged) = join(undelete(store, &deleted, "People"), purge).await;
                assert_eq!(is_done(&undeleted), !purged.expect("an answer"), "{undeleted:?}");
                if !is_done(&undeleted) {
                    table.create().await.expect("the name is free");
                    table.fill(vec![insert("p", &round.to_string())]).await;
                }
            }
            _ => {
                let creation = table.create();
                let (undeleted, created) = join(undelete(store, &deleted, "People"), creation).await;
                assert_eq!(is_done(&undeleted), created.is_err(), "{undeleted:?} {created:?}");
                if created.is_ok() {
                    assert_eq!(undeleted, Undeletion::NameTaken);
                    table.delete().await.expect("it is there");
                    assert!(is_done(&undelete(store, &deleted, "People").await));
                }
            }
        }
        assert!(rows(&table).await.contains(&round.to_string()), "round {round}");
    }
}

/// The statements by which servers without this feature delete and clean up.
mod older {
    pub const DUE: &str = "SELECT count(*)::text FROM doomed WHERE due <= $NOW OR due > $NOW + 36000000000";
    pub const CLEAN_UP: &str =
        "DELETE FROM expiry AS e WHERE NOT EXISTS (SELECT 1 FROM tables AS t WHERE t.table_no = e.table_no)";
    pub const REMOVABLE: &str = "DELETE FROM property_indexes AS i \
         WHERE NOT EXISTS (SELECT 1 FROM tables AS t WHERE t.table_no = i.table_no)";
    pub const DELETE: [&str; 2] = [
        "INSERT INTO doomed (table_no, spread, deleted_at, due) SELECT table_no, spread, $NOW, $NOW FROM tables",
        "DELETE FROM tables",
    ];
}

#[tokio::test]
async fn servers_that_do_not_know_kept_tables_leave_them_alone() {
    let url = fresh_database();
    let store = open(&url, 4).await;
    let table = table(&store).await;
    table.fill((0..40).map(|n| insert(&n.to_string(), "r"))).await;
    let place = table.place();
    let rule = ExpiryRule { property: None, delay: 5, interval: 10 };
    store.set_expiry(place, &rule, now()).await.expect("a rule");
    let index = NewIndex { table: place, property: "N", kind: IndexKind::Number };
    store.add_index(index, now()).await.expect("an index");
    let deleted = delete(&table).await;
    for when in [now().raw(), Ticks::MAX.raw()] {
        let due = text(&url, &older::DUE.replace("$NOW", &when.to_string()));
        assert_eq!(due, "0", "nothing is to be purged");
    }
    for statement in [older::CLEAN_UP, older::REMOVABLE] {
        execute(&url, statement);
    }
    assert!(is_done(&undelete(&store, &deleted, "People").await));
    assert_eq!(rows(&table).await.len(), 40);
    assert_eq!(store.expiries(Some(&table.account)).await.expect("rules").len(), 1);
    assert_eq!(store.indexes().await.expect("indexes").len(), 1);
    // Such a server deletes a table that came back. It cannot come back, and is purged as ever.
    for statement in older::DELETE {
        execute(&url, &statement.replace("$NOW", &now().raw().to_string()));
    }
    assert_eq!(refusal(table.get(&Key::new("0", "r")).await), Code::TableNotFound);
    assert_eq!(listed(&table).await, []);
    purge_all(&store).await;
    assert_eq!(text(&url, "SELECT count(*)::text FROM entities"), "0");
}

#[tokio::test]
async fn a_write_that_began_before_the_deletion_is_there_when_the_table_comes_back() {
    let url = fresh_database();
    let store = open(&url, 1).await;
    let table = table(&store).await;
    for commits_late in [false, true] {
        let row = format!("late {commits_late}");
        let mut writer = PgConnection::connect(&url).await.expect("a connection");
        let insert = format!(
            "BEGIN; INSERT INTO entities SELECT table_no << 16, 'p', '{row}', 638000000000000000, '{{}}' FROM tables"
        );
        writer.execute(sqlx::raw_sql(sqlx::AssertSqlSafe(insert))).await.expect("a write");
        let deleted = delete(&table).await;
        if !commits_late {
            writer.execute("COMMIT").await.expect("a commit");
        }
        assert!(is_done(&undelete(&store, &deleted, "People").await));
        if commits_late {
            writer.execute("COMMIT").await.expect("a commit");
        }
        assert!(rows(&table).await.contains(&row));
    }
}

#[tokio::test]
async fn another_name_needs_a_pause_that_outlasts_what_servers_remember() {
    let url = fresh_database();
    let (here, there) = (open(&url, 1).await, open(&url, 1).await);
    let table = table(&here).await;
    let elsewhere = table.through(&there);
    elsewhere.write(&insert("p", "r")).await.expect("it knows the number");
    let deleted = delete(&table).await;
    let free = Ticks::from_raw(deleted.deleted.raw() + 600 * 10_000_000).expect("a time");
    assert_eq!(undelete(&here, &deleted, "Other").await, Undeletion::TooSoon(free));
    assert!(is_done(&undelete(&here, &deleted, "pEOPLE").await));
    assert_eq!(rows(&elsewhere).await, ["r"]);
    let deleted = delete(&table).await;
    let later = Ticks::from_raw(deleted.deleted.raw() + LONG_AGO).expect("a time");
    assert!(is_done(&here.undelete(&deleted, &name("Other"), later).await.expect("an answer")));
    assert_eq!(rows(&elsewhere.named("Other")).await, ["r"]);
}

#[tokio::test]
async fn a_lock_that_somebody_holds_makes_nobody_wait_for_ever() {
    let url = fresh_database();
    let mut options = PgOptions::new(&url);
    options.operation_timeout = Duration::from_secs(2);
    let store = PgStore::connect(options).await.expect("a store");
    let table = table(&store).await;
    let deleted = delete(&table).await;
    let other = table.named("Other");
    other.create().await.expect("a table");
    let mut holder = PgConnection::connect(&url).await.expect("a connection");
    holder.execute("BEGIN; LOCK TABLE deleted_tables IN ACCESS EXCLUSIVE MODE").await.expect("a lock");
    let is_timely = |failure: Failure| matches!(failure, Failure::Fault(Fault::Busy | Fault::Timeout));
    assert!(is_timely(store.undelete(&deleted, &name("People"), now()).await.expect_err("it waits")));
    assert!(is_timely(store.purge_deleted(&deleted, now()).await.expect_err("it waits")));
    let place = other.place();
    assert!(is_timely(store.delete_and_keep(place, now(), Ticks::MAX).await.expect_err("it waits")));
    holder.execute("ROLLBACK").await.expect("the lock goes");
    assert!(store.get_table(place).await.expect("an answer").is_some(), "nothing was done");
    assert!(is_done(&undelete(&store, &deleted, "People").await));
}

#[tokio::test]
async fn a_deleted_table_whose_record_is_locked_delays_no_other() {
    let url = fresh_database();
    let mut options = PgOptions::new(&url);
    options.operation_timeout = Duration::from_secs(2);
    let store = PgStore::connect(options).await.expect("a store");
    let table = table(&store).await;
    let stuck = delete(&table).await;
    let mut others = Vec::new();
    for text in ["Back", "Gone"] {
        let other = table.named(text);
        other.create().await.expect("a table");
        others.push(delete(&other).await);
    }
    let mut holder = PgConnection::connect(&url).await.expect("a connection");
    let lock = format!("BEGIN; SELECT FROM deleted_tables WHERE table_no = {} FOR UPDATE", stuck.table_no);
    holder.execute(sqlx::AssertSqlSafe(lock)).await.expect("a lock");
    assert!(is_done(&undelete(&store, &others[0], "Back").await));
    assert_eq!(store.purge_deleted(&others[1], now()).await, Ok(true));
    let failure = store.undelete(&stuck, &table.name, now()).await.expect_err("its record is locked");
    assert!(matches!(failure, Failure::Fault(Fault::Busy | Fault::Timeout)), "{failure:?}");
    holder.execute("ROLLBACK").await.expect("the lock goes");
    assert!(is_done(&undelete(&store, &stuck, "People").await));
}
