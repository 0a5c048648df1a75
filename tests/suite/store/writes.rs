//! Single writes.

use std::collections::HashSet;

use crate::support::store::AnyStore;
use futures_util::future::join_all;
use rowhouse::error::Code;
use rowhouse::protocol::codec::stored;
use rowhouse::protocol::model::{EdmValue, IfMatch, Key};
use rowhouse::protocol::plan::{Span, WriteKind, decide};
use rowhouse::store::Failure;

use super::contract::{account, insert, name, now, number, refusal, scan, table, write};

/// Each operation on each state does what `decide` says, alone and as a group.
pub async fn every_state<B: AnyStore>(store: &B) {
    let (account, table) = table(store).await;
    for (at, condition) in [None, Some(IfMatch::Absent), Some(IfMatch::Any)].into_iter().enumerate() {
        for stored_before in [false, true] {
            for kind in 0..4 {
                for grouped in [false, true] {
                    let rk = format!("{at}{stored_before}{kind}{grouped}");
                    check_state(store, (&account, &table), &rk, stored_before, (kind, condition), grouped)
                        .await;
                }
            }
        }
    }
}

async fn check_state<B: AnyStore>(
    store: &B,
    (account, table): (&str, &rowhouse::protocol::model::TableName),
    rk: &str,
    stored_before: bool,
    (kind, condition): (u8, Option<IfMatch>),
    grouped: bool,
) {
    let key = Key::new("p", rk);
    if stored_before {
        let first = write(WriteKind::Insert, "p", rk, vec![("A".into(), EdmValue::Int32(1))]);
        store.write(table.in_account(account), &first, now()).await.unwrap();
    }
    let before = store.get(table.in_account(account), &key).await.unwrap();
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
        let before = store.get(table.in_account(account), &key).await.unwrap();
        let at = now();
        let expected = decide(&one, before.as_ref(), at);
        let done = if grouped {
            store.transact(table.in_account(account), std::slice::from_ref(&one), at).await.map(|all| all[0])
        } else {
            store.write(table.in_account(account), &one, at).await
        };
        let after = store.get(table.in_account(account), &key).await.unwrap();
        match (expected, done) {
            (Ok(rowhouse::protocol::plan::Change::Delete), Ok(written)) => {
                assert_eq!((written.modified, after), (None, None), "{kind:?}");
            }
            (Ok(rowhouse::protocol::plan::Change::Put { properties, modified }), Ok(written)) => {
                let after = after.expect("a stored entity");
                assert_eq!((written.modified, after.modified), (Some(modified), modified), "{kind:?}");
                let mut have = stored::decode(&after.properties).unwrap();
                let mut want = stored::decode(&properties).unwrap();
                have.sort_by(|a, b| a.0.cmp(&b.0));
                want.sort_by(|a, b| a.0.cmp(&b.0));
                assert_eq!(have, want, "{kind:?}");
            }
            (Err(expected), Err(Failure::Refused(error))) => {
                assert_eq!((expected.code, &before), (error.code, &after), "{kind:?}");
            }
            (expected, done) => panic!("{kind:?}: expected {expected:?}, got {done:?}"),
        }
    }
}

pub async fn missing_table_first<B: AnyStore>(store: &B) {
    let (account, table) = (account(), name("Nowhere"));
    let delete = WriteKind::Delete(IfMatch::Any);
    let writes = [insert("p", "r"), write(delete, "p", "r", vec![])];
    for created_and_deleted in [false, true] {
        for one in &writes {
            assert_eq!(
                refusal(store.write(table.in_account(&account), one, now()).await),
                Code::TableNotFound
            );
            let Err(Failure::Refused(error)) =
                store.transact(table.in_account(&account), std::slice::from_ref(one), now()).await
            else {
                panic!("a group without a table")
            };
            assert_eq!((error.code, error.index), (Code::TableNotFound, Some(0)));
        }
        assert_eq!(
            refusal(store.get(table.in_account(&account), &Key::new("p", "r")).await),
            Code::TableNotFound
        );
        let everything = scan(vec![Span::everything()]);
        assert_eq!(refusal(store.query(table.in_account(&account), &everything).await), Code::TableNotFound);
        if !created_and_deleted {
            store.create_table(table.in_account(&account), now()).await.unwrap();
            store.write(table.in_account(&account), &writes[0], now()).await.unwrap();
            store.delete_table(table.in_account(&account), now()).await.unwrap();
        }
    }
}

pub async fn versions_only_grow<B: AnyStore>(store: &B) {
    let (account, table) = table(store).await;
    let past = now();
    let mut last = store.write(table.in_account(&account), &insert("p", "r"), now()).await.unwrap().modified;
    for kind in [
        WriteKind::Replace(IfMatch::Absent),
        WriteKind::Replace(IfMatch::Any),
        WriteKind::Merge(IfMatch::Absent),
        WriteKind::Merge(IfMatch::Any),
    ] {
        let one = write(kind, "p", "r", number("N", 2));
        for grouped in [false, true] {
            let next = if grouped {
                store.transact(table.in_account(&account), std::slice::from_ref(&one), past).await.unwrap()[0]
                    .modified
            } else {
                store.write(table.in_account(&account), &one, past).await.unwrap().modified
            };
            assert!(next > last, "{kind:?} went from {last:?} to {next:?}");
            last = next;
        }
    }
}

pub async fn merges_lose_nothing<B: AnyStore>(store: &B) {
    let (account, table) = table(store).await;
    store.write(table.in_account(&account), &insert("p", "r"), now()).await.unwrap();
    let tasks = (0..12).map(|task| {
        let (account, table) = (&account, &table);
        async move {
            let mut versions = Vec::new();
            for round in 0..8 {
                let one = write(WriteKind::Merge(IfMatch::Any), "p", "r", number(&format!("T{task}"), round));
                versions.push(
                    store.write(table.in_account(account), &one, now()).await.unwrap().modified.unwrap(),
                );
            }
            versions
        }
    });
    let versions: Vec<_> = join_all(tasks).await.into_iter().flatten().collect();
    assert_eq!(versions.iter().collect::<HashSet<_>>().len(), versions.len(), "an ETag was given twice");
    let after = store.get(table.in_account(&account), &Key::new("p", "r")).await.unwrap().unwrap();
    let properties = stored::decode(&after.properties).unwrap();
    for task in 0..12 {
        let counter = (format!("T{task}"), EdmValue::Int32(7));
        assert!(properties.contains(&counter), "{counter:?} is missing in {properties:?}");
    }
}

pub async fn one_insert_wins<B: AnyStore>(store: &B) {
    let (account, table) = table(store).await;
    for round in 0..10 {
        let one = insert("p", &round.to_string());
        let all = join_all((0..6).map(|_| store.write(table.in_account(&account), &one, now()))).await;
        assert_eq!(all.iter().filter(|result| result.is_ok()).count(), 1);
        for lost in all.into_iter().filter(Result::is_err) {
            assert_eq!(refusal(lost), Code::EntityAlreadyExists);
        }
    }
}
