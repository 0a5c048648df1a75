//! Entities that a copy stores keep their versions.

use std::sync::Arc;

use crate::support::store::AnyStore;
use rowhouse::error::Code;
use rowhouse::protocol::codec::stored;
use rowhouse::protocol::model::entity::{Properties, Stored};
use rowhouse::protocol::model::{IfMatch, Key, Ticks};
use rowhouse::protocol::plan::{Span, WriteKind};
use rowhouse::store::{Load, LoadMark};

use super::contract::{name, now, number, refusal, scan, table, walk, write};

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

fn load(rows: &[Stored], replaces: bool) -> Arc<Load> {
    Arc::new(Load { rows: rows.to_vec(), replaces, mark: None })
}

pub async fn stored_as_they_are<B: AnyStore>(store: &B) {
    let (account, people) = table(store).await;
    let everything = || scan(vec![Span::everything()]);
    let first = now().raw() - 10_000_000;
    let new = rows(first, 1);
    assert!(store.load(people.in_account(&account), &load(&new, false)).await.expect("a load"));
    assert_eq!(facts(&walk(store, &account, &people, &everything()).await.concat()), facts(&new));

    // What exists is not replaced unless that is asked for, and then nothing is stored.
    let mut more = rows(first, 1);
    more.push(Stored { key: Key::new("q", "r"), ..new[0].clone() });
    assert!(!store.load(people.in_account(&account), &load(&more, false)).await.expect("a load"));
    assert_eq!(facts(&walk(store, &account, &people, &everything()).await.concat()), facts(&new));

    // What is equal keeps its version.
    assert!(store.load(people.in_account(&account), &load(&more, true)).await.expect("a load"));
    assert_eq!(facts(&walk(store, &account, &people, &everything()).await.concat()), facts(&more));

    // Versions never go back.
    let older = rows(first - 5_000_000, 2);
    assert!(store.load(people.in_account(&account), &load(&older, true)).await.expect("a load"));
    let replaced = facts(&walk(store, &account, &people, &everything()).await.concat());
    for ((key, modified, properties), before) in replaced.iter().zip(&new) {
        assert_eq!((key, properties), (&before.key, &number("N", 2)));
        assert!(*modified > before.modified);
    }
    let missing = store.load(name("Missing").in_account(&account), &load(&new, true)).await;
    assert_eq!(refusal(missing), Code::TableNotFound);
}

pub async fn marked_together<B: AnyStore>(store: &B) {
    let (account, people) = table(store).await;
    let copy = format!("copy-{account}");
    let mark =
        |range, n: &str| LoadMark { copy: copy.clone(), range, reached: Key::new("p", n), counts: [3, 2, 1] };
    let load =
        |rows: &[Stored], replaces, mark| Arc::new(Load { rows: rows.to_vec(), replaces, mark: Some(mark) });
    let new = rows(now().raw() - 10_000_000, 1);
    for (range, n) in [(1, "a"), (2, "b"), (1, "c")] {
        assert!(
            store.load(people.in_account(&account), &load(&new, true, mark(range, n))).await.expect("a load")
        );
    }
    assert!(
        !store.load(people.in_account(&account), &load(&new, false, mark(2, "d"))).await.expect("a load")
    );
    let mut marks = store.marks(&copy).await.expect("marks");
    marks.sort_by_key(|mark| mark.range);
    assert_eq!(marks, [mark(1, "c"), mark(2, "b")]);
    store.forget_marks(&copy).await.expect("marks are forgotten");
    assert_eq!(store.marks(&copy).await.expect("marks"), []);
    // No rows, but a mark.
    assert!(store.load(people.in_account(&account), &load(&[], true, mark(1, "e"))).await.expect("a load"));
    assert_eq!(store.marks(&copy).await.expect("marks"), [mark(1, "e")]);
    store.forget_marks(&copy).await.expect("marks are forgotten");
}

/// Names of copies begin with their time.
pub async fn marks_of_stale_copies_are_removed<B: AnyStore>(store: &B) {
    let (account, people) = table(store).await;
    let days = |days: i64| now().unix_seconds() - days * 86_400;
    let of = |seconds: i64, version: char| format!("{:012x}{version}{account}", seconds * 1000);
    let (stale, recent) = (of(days(91), '7'), of(days(89), '7'));
    let timeless = of(days(91), '4');
    for copy in [&stale, &recent, &timeless] {
        let mark = LoadMark { copy: copy.clone(), range: 1, reached: Key::new("p", "r"), counts: [0; 3] };
        let load = Arc::new(Load { rows: Vec::new(), replaces: true, mark: Some(mark) });
        assert!(store.load(people.in_account(&account), &load).await.expect("a load"));
    }
    store.forget_stale(now()).await.expect("it forgets");
    let mut left = Vec::new();
    for copy in [&stale, &recent, &timeless] {
        left.push(store.marks(copy).await.expect("marks").len());
        store.forget_marks(copy).await.expect("marks are forgotten");
    }
    assert_eq!(left, [0, 1, 1]);
}

/// Former copies have stored such a version; nothing comes after it.
pub async fn the_last_version_has_none_behind_it<B: AnyStore>(store: &B) {
    let (account, people) = table(store).await;
    let last = |n: &str| Stored {
        key: Key::new("p", n),
        modified: Ticks::MAX,
        properties: stored::encode(&number("N", 1)),
    };
    let rows: Vec<Stored> = (0..10).map(|n| last(&n.to_string())).collect();
    assert!(store.load(people.in_account(&account), &load(&rows, false)).await.expect("a load"));
    let kinds = [
        WriteKind::Merge(IfMatch::Absent),
        WriteKind::Replace(IfMatch::Absent),
        WriteKind::Merge(IfMatch::Any),
        WriteKind::Replace(IfMatch::Version(Some(Ticks::MAX))),
    ];
    for (at, kind) in kinds.into_iter().enumerate() {
        let changed = |n: usize| write(kind, "p", &n.to_string(), number("N", 2));
        let written = store.write(people.in_account(&account), &changed(at), now()).await.expect("a write");
        assert_eq!(written.modified, Some(Ticks::MAX), "{kind:?}");
        // Several of a partition, and several at once.
        let group = [changed(at + 4), changed(9 - at)];
        store.transact(people.in_account(&account), &group, now()).await.expect("a group");
        let writes: Vec<_> = (0..10).map(changed).collect();
        let at_once = writes.iter().map(|write| store.write(people.in_account(&account), write, now()));
        for outcome in futures_util::future::join_all(at_once).await {
            assert_eq!(outcome.expect("a write").modified, Some(Ticks::MAX), "{kind:?}");
        }
    }
    assert!(store.load(people.in_account(&account), &load(&rows, true)).await.expect("a load"));
    let left = walk(store, &account, &people, &scan(vec![Span::everything()])).await.concat();
    assert_eq!(facts(&left), facts(&rows));
    let one = store
        .get(people.in_account(&account), &Key::new("p", "3"))
        .await
        .expect("a read")
        .expect("an entity");
    assert_eq!(one.modified, Ticks::MAX);
}
