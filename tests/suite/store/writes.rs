//! Single writes.

use std::collections::HashSet;

use futures_util::future::join_all;
use rowhouse_protocol::codec::stored;
use rowhouse_protocol::error::Code;
use rowhouse_protocol::model::entity::StoredProperties;
use rowhouse_protocol::model::{EdmValue, IfMatch, Key, Stored, Ticks};
use rowhouse_protocol::plan::{Change, Write, WriteKind, Written, decide};
use rowhouse_store::{Failure, StoreResult};

use super::contract::{TestTable, account, everything, insert, name, now, number, refusal, table, write};
use crate::support::store::AnyStore;

/// Each operation on each state does what `decide` says, alone and as a group.
pub async fn every_state<B: AnyStore>(store: &B) {
    let table = table(store).await;
    for (at, condition) in [None, Some(IfMatch::Absent), Some(IfMatch::Any)].into_iter().enumerate() {
        for stored_before in [false, true] {
            for kind in 0..4 {
                for grouped in [false, true] {
                    let rk = format!("{at}{stored_before}{kind}{grouped}");
                    check_state(&table, &rk, stored_before, (kind, condition), grouped).await;
                }
            }
        }
    }
}

async fn check_state<B: AnyStore>(
    table: &TestTable<&B>,
    rk: &str,
    stored_before: bool,
    (kind, condition): (u8, Option<IfMatch>),
    grouped: bool,
) {
    let key = Key::new("p", rk);
    if stored_before {
        table.write(&write(WriteKind::Insert, "p", rk, number("A", 1))).await.unwrap();
    }
    let before = table.get(&key).await.unwrap();
    // Without a condition of its own: each of the stored, a foreign and an older version.
    let versions = [before.as_ref().map(|b| b.modified), None, Some(now())];
    let conditions: Vec<IfMatch> = match condition {
        Some(condition) => vec![condition],
        None => versions.into_iter().rev().map(IfMatch::Version).collect(),
    };
    for condition in conditions {
        let kind = match kind {
            0 => WriteKind::Insert,
            1 => WriteKind::Replace(condition),
            2 => WriteKind::Merge(condition),
            _ if condition == IfMatch::Absent => return,
            _ => WriteKind::Delete(condition),
        };
        let one = write(kind, "p", rk, number("B", 2));
        let before = table.get(&key).await.unwrap();
        let at = now();
        let done = write_at(table, &one, at, grouped).await;
        is_as_decided(&one, before.as_ref(), at, done, table.get(&key).await.unwrap().as_ref());
    }
}

/// Writes at a time, alone or as a group of one.
async fn write_at<B: AnyStore>(
    table: &TestTable<&B>,
    write: &Write,
    at: Ticks,
    grouped: bool,
) -> StoreResult<Written> {
    if grouped {
        table.store.transact(table.place(), &[write.clone()].into(), at).await.map(|all| all[0])
    } else {
        table.store.write(table.place(), write, at).await
    }
}

/// Demands of a write what `decide` says.
pub fn is_as_decided(
    write: &Write,
    before: Option<&Stored>,
    at: Ticks,
    done: StoreResult<Written>,
    after: Option<&Stored>,
) {
    // As much as one wants to read of what may be a mebibyte.
    let case = || -> String { format!("{write:?} {before:?} {after:?}").chars().take(1000).collect() };
    match (decide(write, before, at), done) {
        (Ok(Change::Delete), Ok(written)) => {
            assert_eq!((written.modified, after), (None, None), "{}", case())
        }
        (Ok(Change::Put { properties, modified }), Ok(written)) => {
            let after = after.expect("a stored entity");
            assert_eq!((written.modified, after.modified), (Some(modified), modified), "{}", case());
            assert!(is_same(&after.properties, &properties), "{}", case());
        }
        (Err(expected), Err(Failure::Refused(error))) => {
            assert_eq!(expected.code, error.code, "{}", case());
            assert!(before == after, "{}", case());
        }
        (Ok(_), done) => panic!("{}: got {done:?}", case()),
        (Err(expected), done) => panic!("{}: expected {expected:?}, got {done:?}", case()),
    }
}

/// Whether properties are the same in any order. It tells the zeros apart, and takes NaN for itself.
fn is_same(one: &StoredProperties, other: &StoredProperties) -> bool {
    let [one, other] = [one, other].map(|properties| {
        let mut properties = stored::decode(properties).unwrap();
        properties.sort_by(|a, b| a.0.cmp(&b.0));
        properties
    });
    let is_equal = |one: &EdmValue, other: &EdmValue| match (one, other) {
        (EdmValue::Double(a), EdmValue::Double(b)) => a.to_bits() == b.to_bits() || a.is_nan() && b.is_nan(),
        _ => one == other,
    };
    one.len() == other.len() && one.iter().zip(&other).all(|(a, b)| a.0 == b.0 && is_equal(&a.1, &b.1))
}

pub async fn missing_table_first<B: AnyStore>(store: &B) {
    let table = TestTable { store, account: account(), name: name("Nowhere") };
    let writes = [insert("p", "r"), write(WriteKind::Delete(IfMatch::Any), "p", "r", vec![])];
    for created_and_deleted in [false, true] {
        for one in &writes {
            assert_eq!(refusal(table.write(one).await), Code::TableNotFound);
            let done = table.transact(std::slice::from_ref(one)).await;
            let Err(Failure::Refused(error)) = done else { panic!("a group without a table") };
            assert_eq!((error.code, error.index), (Code::TableNotFound, Some(0)));
        }
        assert_eq!(refusal(table.get(&writes[0].key).await), Code::TableNotFound);
        assert_eq!(refusal(table.query(&everything()).await), Code::TableNotFound);
        if !created_and_deleted {
            table.create().await.unwrap();
            table.write(&writes[0]).await.unwrap();
            table.delete().await.unwrap();
        }
    }
}

pub async fn versions_only_grow<B: AnyStore>(store: &B) {
    let table = table(store).await;
    let past = now();
    let mut last = table.write(&insert("p", "r")).await.unwrap().modified;
    for kind in [
        WriteKind::Replace(IfMatch::Absent),
        WriteKind::Replace(IfMatch::Any),
        WriteKind::Merge(IfMatch::Absent),
        WriteKind::Merge(IfMatch::Any),
    ] {
        let one = write(kind, "p", "r", number("N", 2));
        for grouped in [false, true] {
            let next = write_at(&table, &one, past, grouped).await.unwrap().modified;
            assert!(next > last, "{kind:?} went from {last:?} to {next:?}");
            last = next;
        }
    }
}

pub async fn merges_lose_nothing<B: AnyStore>(store: &B) {
    let table = table(store).await;
    table.write(&insert("p", "r")).await.unwrap();
    let tasks = (0..12).map(|task| {
        let table = &table;
        async move {
            let mut versions = Vec::new();
            for round in 0..8 {
                let one = write(WriteKind::Merge(IfMatch::Any), "p", "r", number(&format!("T{task}"), round));
                versions.push(table.write(&one).await.unwrap().modified.unwrap());
            }
            versions
        }
    });
    let versions: Vec<_> = join_all(tasks).await.into_iter().flatten().collect();
    assert_eq!(versions.iter().collect::<HashSet<_>>().len(), versions.len(), "an ETag was given twice");
    let after = table.get(&Key::new("p", "r")).await.unwrap().unwrap();
    let properties = stored::decode(&after.properties).unwrap();
    for task in 0..12 {
        let counter = (format!("T{task}"), EdmValue::Int32(7));
        assert!(properties.contains(&counter), "{counter:?} is missing in {properties:?}");
    }
}

pub async fn one_insert_wins<B: AnyStore>(store: &B) {
    let table = table(store).await;
    for round in 0..10 {
        let one = insert("p", &round.to_string());
        let all = join_all((0..6).map(|_| table.write(&one))).await;
        assert_eq!(all.iter().filter(|result| result.is_ok()).count(), 1);
        for lost in all.into_iter().filter(Result::is_err) {
            assert_eq!(refusal(lost), Code::EntityAlreadyExists);
        }
    }
}
