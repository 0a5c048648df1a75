//! Entity group transactions.

use std::cell::Cell;

use futures_util::future::join_all;
use rowhouse::error::Code;
use rowhouse::protocol::codec::stored::decode;
use rowhouse::protocol::model::entity::Properties;
use rowhouse::protocol::model::{EdmValue, IfMatch, Key, Stored};
use rowhouse::protocol::plan::{Write, WriteKind, decide};
use rowhouse::store::Failure;

use super::contract::{insert, now, number, table, write};
use super::writes::is_as_decided;
use crate::support::store::AnyStore;

const UPSERT: WriteKind = WriteKind::Replace(IfMatch::Absent);
const MERGE: WriteKind = WriteKind::Merge(IfMatch::Absent);
const DELETE: WriteKind = WriteKind::Delete(IfMatch::Any);

pub async fn all_or_nothing<B: AnyStore>(store: &B) {
    let table = table(store).await;
    table.write(&insert("p", "050")).await.unwrap();
    for others in [WriteKind::Insert, UPSERT] {
        let group: Vec<Write> = (0..100)
            .map(|i| {
                let kind = if i == 50 { WriteKind::Insert } else { others };
                write(kind, "p", &format!("{i:03}"), number("N", i))
            })
            .collect();
        let Err(Failure::Refused(error)) = table.transact(&group).await else {
            panic!("a group with a conflict went through")
        };
        assert_eq!((error.code, error.index), (Code::EntityAlreadyExists, Some(50)));
        let left = table.all().await;
        assert_eq!(left.len(), 1, "a failed group left rows");
    }
}

/// Such a group finds other rows there than those that it has just locked, again
/// and again, but nothing that is stored can be against it.
pub async fn upserts_beside_deletes<B: AnyStore>(store: &B) {
    const ROWS: usize = 100;
    let table = table(store).await;
    let groups_left = Cell::new(12);
    let upserts = (0..12).map(|writer| {
        let (table, groups_left) = (&table, &groups_left);
        async move {
            for round in 0..8 {
                let value = writer * 100 + round;
                // Groups of replacements alone do not lock first.
                let kind = if writer % 2 == 0 { UPSERT } else { MERGE };
                let group: Vec<Write> =
                    (0..ROWS).map(|i| write(kind, "p", &format!("{i:03}"), number("N", value))).collect();
                table.transact(&group).await.unwrap();
            }
            groups_left.set(groups_left.get() - 1);
        }
    });
    let deletes = (0..8).map(|start| {
        let (table, groups_left) = (&table, &groups_left);
        async move {
            let mut row = start * 8;
            while groups_left.get() > 0 {
                row = (row + 11) % ROWS;
                let delete = write(DELETE, "p", &format!("{row:03}"), vec![]);
                match table.write(&delete).await {
                    Err(Failure::Refused(error)) => assert_eq!(error.code, Code::ResourceNotFound),
                    done => drop(done.unwrap()),
                }
            }
        }
    });
    tokio::join!(join_all(upserts), join_all(deletes));
}

pub async fn mixed_group<B: AnyStore>(store: &B) {
    let table = table(store).await;
    table.fill(["b", "d", "f"].map(|rk| insert("p", rk)).to_vec()).await;
    let group = [
        write(WriteKind::Merge(IfMatch::Any), "p", "f", number("M", 6)),
        write(WriteKind::Insert, "p", "e", number("N", 5)),
        write(DELETE, "p", "d", vec![]),
        write(UPSERT, "p", "b", number("N", 2)),
        write(WriteKind::Merge(IfMatch::Absent), "p", "a", number("N", 1)),
    ];
    let written = table.transact(&group).await.unwrap();
    assert_eq!(
        written.iter().map(|w| w.modified.is_some()).collect::<Vec<_>>(),
        [true, true, false, true, true]
    );
    let rows = table.all().await;
    let keys: Vec<&str> = rows.iter().map(|row| row.key.row.as_str()).collect();
    assert_eq!(keys, ["a", "b", "e", "f"]);
    for (one, written) in group.iter().zip(&written).filter(|(_, w)| w.modified.is_some()) {
        let stored = rows.iter().find(|row| row.key == one.key).unwrap();
        assert_eq!(Some(stored.modified), written.modified);
    }
    let merged = &rows[3].properties;
    assert_eq!(decode(merged).unwrap().len(), 2);
}

pub async fn group_errors<B: AnyStore>(store: &B) {
    let table = table(store).await;
    table.fill(vec![insert("p", "a")]).await;
    let stale = WriteKind::Merge(IfMatch::Version(Some(now())));
    for (failing, code) in [
        (write(WriteKind::Merge(IfMatch::Any), "p", "x", vec![]), Code::ResourceNotFound),
        (write(DELETE, "p", "x", vec![]), Code::ResourceNotFound),
        (write(stale, "p", "a", vec![]), Code::UpdateConditionNotSatisfied),
        (write(WriteKind::Delete(IfMatch::Version(None)), "p", "a", vec![]), Code::ConditionNotMet),
        (insert("p", "a"), Code::EntityAlreadyExists),
    ] {
        let group = [insert("p", "n"), failing, write(DELETE, "p", "missing", vec![])];
        let Err(Failure::Refused(error)) = table.transact(&group).await else {
            panic!("a failing group went through")
        };
        assert_eq!((error.code, error.index), (code, Some(1)));
        assert_eq!(table.get(&Key::new("p", "n")).await.unwrap(), None);
    }
}

/// Groups that name the same rows in opposite orders wait, but not in a circle.
pub async fn crossing_groups<B: AnyStore>(store: &B) {
    let table = table(store).await;
    let rks = ["a", "b", "c", "d", "e"];
    let tasks = (0..8).map(|task| {
        let table = &table;
        async move {
            for round in 0..8 {
                let mut group = rks.map(|rk| write(UPSERT, "p", rk, number("N", task * 100 + round)));
                if task % 2 == 1 {
                    group.reverse();
                }
                table.transact(&group).await.expect("a crossing group");
            }
        }
    });
    join_all(tasks).await;
    let rows = table.all().await;
    assert_eq!(rows.len(), rks.len());
    assert!(rows.iter().all(|row| row.properties == rows[0].properties), "two groups were mixed");
}

pub async fn groups_of_upserts<B: AnyStore>(store: &B) {
    let table = table(store).await;
    let group = |task: usize| -> Vec<Write> {
        (0..20).map(|i| write(UPSERT, "p", &format!("{:02}", (i * 7 + task) % 20), number("N", 1))).collect()
    };
    let groups: Vec<_> = (0..6).map(group).collect();
    for result in join_all(groups.iter().map(|group| table.transact(group))).await {
        result.expect("an upsert does not fail because another came first");
    }
}

/// Some rows are there, in versions that clocks have not come to, and some are not.
pub async fn upserts_tell_what_they_made<B: AnyStore>(store: &B) {
    let table = table(store).await;
    let early = now();
    for rk in ["b", "d"] {
        table.write(&insert("p", rk)).await.unwrap();
    }
    let older = table.all().await;
    let group: Vec<Write> = [("c", 1), ("b", 2), ("d", 3), ("a", 4)]
        .map(|(rk, n)| write(UPSERT, "p", rk, number("N", n)))
        .to_vec();
    let written = store.transact(table.place(), &group, early).await.unwrap();
    let rows = table.all().await;
    assert_eq!(rows.len(), group.len());
    for (one, written) in group.iter().zip(&written) {
        let stored = rows.iter().find(|row| row.key == one.key).unwrap();
        assert_eq!(Some(stored.modified), written.modified, "{:?}", one.key);
        assert_eq!(decode(&stored.properties), decode(one.properties.stored()));
        assert!(older.iter().all(|old| old.key != one.key || old.modified < stored.modified));
    }
    table.delete().await.unwrap();
    let failure = table.transact(&group[..1]).await;
    let Err(Failure::Refused(error)) = failure else { panic!("{failure:?}") };
    assert_eq!(error.code, Code::TableNotFound);
}

/// Of some of these a database may say that what is stored has to be looked at.
pub async fn groups_of_merges<B: AnyStore>(store: &B) {
    let numbers =
        |prefix: &str, n: i32| (0..n).map(|i| (format!("{prefix}{i}"), EdmValue::Int32(i))).collect();
    let text = |name: &str| (name.to_owned(), EdmValue::String("x".repeat(30 * 1024)));
    let cases: [(&str, Properties, Properties); 4] = [
        ("plain", number("N", 1), number("M", 2)),
        ("retyped", vec![("N".into(), EdmValue::Int64(1))], number("N", 2)),
        ("wide", numbers("O", 200), numbers("N", 60)),
        ("fat", (0..10).map(|i| text(&format!("P{i}"))).collect(), number("N", 2)),
    ];
    let table = table(store).await;
    for (pk, stored, sent) in cases {
        table.write(&write(WriteKind::Insert, pk, "b", stored)).await.unwrap();
        let group = ["c", "b", "a"].map(|rk| write(MERGE, pk, rk, sent.clone()));
        let look = async || -> Vec<Option<Stored>> {
            let found = join_all(group.iter().map(|write| table.get(&write.key))).await;
            found.into_iter().map(Result::unwrap).collect()
        };
        let (at, before) = (now(), look().await);
        let done = store.transact(table.place(), &group, at).await;
        let after = look().await;
        let Ok(written) = done else {
            let Err(Failure::Refused(error)) = done else { panic!("{pk}: {done:?}") };
            assert_eq!((pk, error.index), ("wide", Some(1)));
            assert_eq!(error.code, decide(&group[1], before[1].as_ref(), at).unwrap_err().code);
            assert!(before == after);
            continue;
        };
        for n in 0..group.len() {
            is_as_decided(&group[n], before[n].as_ref(), at, Ok(written[n]), after[n].as_ref());
        }
    }
}
