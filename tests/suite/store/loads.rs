//! Entities that a copy stores keep their versions.

use std::sync::Arc;

use rowhouse_protocol::codec::stored;
use rowhouse_protocol::error::Code;
use rowhouse_protocol::model::entity::{Properties, Stored};
use rowhouse_protocol::model::{IfMatch, Key, Ticks};
use rowhouse_protocol::plan::WriteKind;
use rowhouse_store::{Load, LoadMark};

use super::contract::{TestTable, now, number, refusal, table, write};
use crate::support::store::AnyStore;

const PARTITIONS: i64 = 12;

/// Entities of several partitions, with versions from `first` on.
fn rows(first: i64, value: i32) -> Vec<Stored> {
    let row = |n: i64| Stored {
        key: Key::new(format!("p{:02}", n / 2), format!("{n:03}")),
        modified: Ticks::from_raw(first + n).expect("a time in range"),
        properties: stored::encode(&number("N", value)),
    };
    (0..2 * PARTITIONS).map(row).collect()
}

/// What is compared: databases have the text of properties in forms of their own.
fn facts(rows: &[Stored]) -> Vec<(Key, Ticks, Properties)> {
    let fact = |row: &Stored| {
        (row.key.clone(), row.modified, stored::decode(&row.properties).expect("stored properties"))
    };
    rows.iter().map(fact).collect()
}

/// Loads entities, and returns whether they were stored.
async fn load<B: AnyStore>(table: &TestTable<&B>, rows: &[Stored], replaces: bool) -> bool {
    load_marked(table, rows, replaces, None).await
}

async fn load_marked<B: AnyStore>(
    table: &TestTable<&B>,
    rows: &[Stored],
    replaces: bool,
    mark: Option<LoadMark>,
) -> bool {
    let load = Arc::new(Load { rows: rows.to_vec(), replaces, mark });
    table.store.load(table.place(), &load).await.expect("a load")
}

pub async fn stored_as_they_are<B: AnyStore>(store: &B) {
    let people = table(store).await;
    let first = now().raw() - 10_000_000;
    let new = rows(first, 1);
    assert!(load(&people, &new, false).await);
    assert_eq!(facts(&people.all().await), facts(&new));

    // What exists is not replaced unless that is asked for, and then nothing is stored.
    let mut more = rows(first, 1);
    more.push(Stored { key: Key::new("q", "r"), ..new[0].clone() });
    assert!(!load(&people, &more, false).await);
    assert_eq!(facts(&people.all().await), facts(&new));

    // What is equal keeps its version.
    assert!(load(&people, &more, true).await);
    assert_eq!(facts(&people.all().await), facts(&more));

    // Versions never go back.
    assert!(load(&people, &rows(first - 5_000_000, 2), true).await);
    let replaced = facts(&people.all().await);
    for ((key, modified, properties), before) in replaced.iter().zip(&new) {
        assert_eq!((key, properties), (&before.key, &number("N", 2)));
        assert!(*modified > before.modified);
    }
    let new = Arc::new(Load { rows: new, replaces: true, mark: None });
    let missing = store.load(people.named("Missing").place(), &new).await;
    assert_eq!(refusal(missing), Code::TableNotFound);
}

pub async fn marked_together<B: AnyStore>(store: &B) {
    let people = table(store).await;
    let copy = format!("copy-{}", people.account);
    let mark =
        |range, n: &str| LoadMark { copy: copy.clone(), range, reached: Key::new("p", n), counts: [3, 2, 1] };
    let load = async |rows, replaces, mark| load_marked(&people, rows, replaces, Some(mark)).await;
    let new = rows(now().raw() - 10_000_000, 1);
    for (range, n) in [(1, "a"), (2, "b"), (1, "c")] {
        assert!(load(&new, true, mark(range, n)).await);
    }
    assert!(!load(&new, false, mark(2, "d")).await);
    let mut marks = store.marks(&copy).await.expect("marks");
    marks.sort_by_key(|mark| mark.range);
    assert_eq!(marks, [mark(1, "c"), mark(2, "b")]);
    store.forget_marks(&copy).await.expect("marks are forgotten");
    assert_eq!(store.marks(&copy).await.expect("marks"), []);
    // No rows, but a mark.
    assert!(load(&[], true, mark(1, "e")).await);
    assert_eq!(store.marks(&copy).await.expect("marks"), [mark(1, "e")]);
    store.forget_marks(&copy).await.expect("marks are forgotten");
}

/// Names of copies begin with their time.
pub async fn marks_of_stale_copies_are_removed<B: AnyStore>(store: &B) {
    let people = table(store).await;
    let copy = |days: i64, version: char| {
        let seconds = now().unix_seconds() - days * 86_400;
        format!("{:012x}{version}{}", seconds * 1000, people.account)
    };
    // A stale one, a recent one, and one whose name has no time.
    let copies = [copy(91, '7'), copy(89, '7'), copy(91, '4')];
    for copy in &copies {
        let mark = LoadMark { copy: copy.clone(), range: 1, reached: Key::new("p", "r"), counts: [0; 3] };
        assert!(load_marked(&people, &[], true, Some(mark)).await);
    }
    store.forget_stale(now()).await.expect("it forgets");
    let mut left = Vec::new();
    for copy in &copies {
        left.push(store.marks(copy).await.expect("marks").len());
        store.forget_marks(copy).await.expect("marks are forgotten");
    }
    assert_eq!(left, [0, 1, 1]);
}

/// Former copies have stored such a version; nothing comes after it.
pub async fn the_last_version_has_none_behind_it<B: AnyStore>(store: &B) {
    let people = table(store).await;
    let last = |n: &str| Stored {
        key: Key::new("p", n),
        modified: Ticks::MAX,
        properties: stored::encode(&number("N", 1)),
    };
    let rows: Vec<Stored> = (0..10).map(|n| last(&n.to_string())).collect();
    assert!(load(&people, &rows, false).await);
    let kinds = [
        WriteKind::Merge(IfMatch::Absent),
        WriteKind::Replace(IfMatch::Absent),
        WriteKind::Merge(IfMatch::Any),
        WriteKind::Replace(IfMatch::Version(Some(Ticks::MAX))),
    ];
    for (at, kind) in kinds.into_iter().enumerate() {
        let changed = |n: usize| write(kind, "p", &n.to_string(), number("N", 2));
        let written = people.write(&changed(at)).await.expect("a write");
        assert_eq!(written.modified, Some(Ticks::MAX), "{kind:?}");
        // Several of a partition, and several at once.
        let group = [changed(at + 4), changed(9 - at)];
        people.transact(&group).await.expect("a group");
        let writes: Vec<_> = (0..10).map(changed).collect();
        let at_once = writes.iter().map(|write| people.write(write));
        for outcome in futures_util::future::join_all(at_once).await {
            assert_eq!(outcome.expect("a write").modified, Some(Ticks::MAX), "{kind:?}");
        }
    }
    assert!(load(&people, &rows, true).await);
    assert_eq!(facts(&people.all().await), facts(&rows));
    let one = people.get(&Key::new("p", "3")).await.expect("a read").expect("an entity");
    assert_eq!(one.modified, Ticks::MAX);
}
