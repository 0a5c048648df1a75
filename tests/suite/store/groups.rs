//! Entity group transactions.

use std::cell::Cell;

use futures_util::future::join_all;
use rowhouse_protocol::error::Code;
use rowhouse_protocol::model::entity::Properties;
use rowhouse_protocol::model::{EdmValue, IfMatch, Key, Stored, Ticks};
use rowhouse_protocol::plan::{Write, WriteKind, decide};
use rowhouse_store::Failure;

use super::contract::{TestTable, insert, now, number, table, write};
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

/// Groups of any writes on any state do what `decide` says, or nothing: then the first refusal is reported.
pub async fn any_group<B: AnyStore>(store: &B) {
    let table = table(store).await;
    let past = now();
    for round in 0..24 {
        let mut group = Vec::new();
        for n in 0..8 {
            let rk = ((round * 5 + n * 7) % 12).to_string();
            let found = table.get(&Key::new("p", rk.as_str())).await.unwrap();
            let conditions = [IfMatch::Any, IfMatch::Version(found.as_ref().map(|found| found.modified))];
            let condition = conditions[(round + n) % 2];
            let kind = match (found.is_some(), (round + n) % 5) {
                (true, 0) => WriteKind::Delete(condition),
                (true, 1) => WriteKind::Replace(condition),
                (true, 2) => WriteKind::Merge(condition),
                (false, 0 | 1) => WriteKind::Insert,
                (_, 3) => UPSERT,
                _ => MERGE,
            };
            group.push(write(kind, "p", &rk, number(["N", "M"][n % 2], round as i32)));
        }
        // What some groups are refused for, in the middle; the last one would be refused as well.
        let stale = IfMatch::Version(Some(past));
        let refused = [WriteKind::Merge(stale), WriteKind::Delete(IfMatch::Version(None))];
        if round % 3 == 2 {
            group[round % 7].kind = refused[round % 2];
            group[7].kind = WriteKind::Merge(stale);
        }
        let at = if round % 2 == 0 { past } else { now() };
        check_group(&table, &group, at).await;
    }
}

/// Writes a group at a time, and compares with `decide`.
async fn check_group<B: AnyStore>(table: &TestTable<&B>, group: &[Write], at: Ticks) {
    let look = async || -> Vec<Option<Stored>> {
        let found = join_all(group.iter().map(|write| table.get(&write.key))).await;
        found.into_iter().map(Result::unwrap).collect()
    };
    let before = look().await;
    let done = table.store.transact(table.place(), &group.into(), at).await;
    let after = look().await;
    let decided = group.iter().zip(&before).map(|(write, before)| decide(write, before.as_ref(), at));
    match (decided.enumerate().find_map(|(n, decided)| Some((n, decided.err()?))), done) {
        (None, Ok(written)) => {
            let states = before.iter().zip(&after);
            for ((write, written), (before, after)) in group.iter().zip(written).zip(states) {
                is_as_decided(write, before.as_ref(), at, Ok(written), after.as_ref());
            }
        }
        (Some((n, expected)), Err(Failure::Refused(error))) => {
            assert_eq!((error.code, error.index), (expected.code, Some(n)));
            assert!(before == after, "a refused group left something");
        }
        (expected, done) => panic!("expected {expected:?}, got {done:?}"),
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
        check_group(&table, &group, now()).await;
    }
}
