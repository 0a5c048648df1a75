//! Expiry and counts. Other cases share the database, so each keeps to an account of its own.

use rowhouse_protocol::error::Code;
use rowhouse_protocol::model::{IfMatch, Key};
use rowhouse_protocol::plan::WriteKind;
use rowhouse_store::{CountPosition, ExpiryRule, SweepState, TableExpiry};

use super::contract::{TestTable, insert, now, number, refusal, table, write};
use super::reset::snapshot;
use crate::support::store::AnyStore;

fn by_age(delay: i64) -> ExpiryRule {
    ExpiryRule { property: None, delay, interval: 10 }
}

async fn rule<B: AnyStore>(table: &TestTable<&B>) -> Option<TableExpiry> {
    let mut rules = table.store.expiries(Some(&table.account)).await.expect("rules");
    assert!(rules.len() <= 1, "{rules:?}");
    rules.pop()
}

/// Gives a table a rule by age.
async fn expire<B: AnyStore>(table: &TestTable<&B>, delay: i64) -> TableExpiry {
    table.store.set_expiry(table.place(), &by_age(delay), now()).await.expect("a rule");
    rule(table).await.expect("a rule")
}

pub async fn rules_belong_to_tables<B: AnyStore>(store: &B) {
    let table = table(store).await;
    let nowhere = store.set_expiry(table.named("Nowhere").place(), &by_age(1), now()).await;
    assert_eq!(refusal(nowhere), Code::TableNotFound);
    assert_eq!(rule(&table).await, None);
    let first = now();
    store.set_expiry(table.place(), &by_age(5), first).await.expect("a rule");
    let set = rule(&table).await.expect("a rule");
    assert_eq!((set.table.as_str(), &set.rule, set.made), ("People", &by_age(5), first));
    let sweep = SweepState { due: first, began: None, position: None, clean: None, expired: 0 };
    assert_eq!(set.sweep, sweep);
    let position = Some(Key::new("p'\u{10ffff}", ""));
    let moved = SweepState { due: now(), began: Some(first), position, clean: Some(first), expired: 7 };
    store.record_sweep(&set, &moved).await.expect("a record");
    assert_eq!(rule(&table).await.expect("a rule").sweep, moved);
    // A rule in its place begins anew, and is not told what the former one has done.
    let property = ExpiryRule { property: Some("it's".into()), ..by_age(0) };
    store.set_expiry(table.named("PEOPLE").place(), &property, now()).await.expect("a rule");
    store.record_sweep(&set, &moved).await.expect("nothing to record");
    let replaced = rule(&table).await.expect("a rule");
    assert_eq!((&replaced.rule, replaced.sweep.expired, replaced.sweep.clean), (&property, 0, None));
    // A table that is made anew has none.
    table.delete().await.expect("it is there");
    table.create().await.expect("the name is free");
    assert_eq!(rule(&table).await, None);
    assert!(!store.clear_expiry(table.place()).await.expect("an answer"));
    expire(&table, 1).await;
    store.forget_stale(now()).await.expect("nothing of this table");
    assert!(store.clear_expiry(table.place()).await.expect("an answer"));
    assert_eq!(rule(&table).await, None);
}

pub async fn what_was_written_meanwhile_stays<B: AnyStore>(store: &B) {
    let table = table(store).await;
    table.fill((0..40).map(|n| insert(&format!("p{}", n % 7), &format!("{n:02}")))).await;
    let found: Vec<_> = table.all().await.into_iter().map(|entity| (entity.key, entity.modified)).collect();
    let set = expire(&table, 1).await;
    let [written, other] = [&found[3].0, &found[4].0];
    let again = write(WriteKind::Merge(IfMatch::Any), &written.partition, &written.row, number("N", 2));
    table.write(&again).await.expect("a write");
    assert_eq!(store.delete_expired(&set, &found[..20]).await.expect("deletions"), 19);
    assert!(table.get(written).await.expect("a read").is_some());
    assert!(table.get(other).await.expect("a read").is_none());
    // Nothing is deleted for a rule that was replaced or removed, or in a table that was deleted.
    let second = expire(&table, 2).await;
    assert_eq!(store.delete_expired(&set, &found).await.expect("deletions"), 0);
    assert!(store.clear_expiry(table.place()).await.expect("an answer"));
    assert_eq!(store.delete_expired(&second, &found).await.expect("deletions"), 0);
    let third = expire(&table, 2).await;
    table.delete().await.expect("it is there");
    assert_eq!(store.delete_expired(&third, &found).await.expect("deletions"), 0);
}

pub async fn counted<B: AnyStore>(table: &TestTable<&B>, rows: u32) -> u64 {
    let (mut sum, mut steps, mut from) = (0, 0, Some(CountPosition::start()));
    while let Some(position) = from {
        let part = table.store.count_part(table.place(), &position, rows).await;
        let part = part.expect("an answer").expect("the same buckets");
        (sum, steps, from) = (sum + part.entities, steps + 1, part.next);
        assert!(steps < 10_000, "counting makes no progress");
    }
    sum
}

pub async fn every_entity_is_counted_once<B: AnyStore>(store: &B) {
    let table = table(store).await;
    assert_eq!(counted(&table, 10).await, 0);
    let mut rows: Vec<_> = (0..333).map(|n| insert(&format!("p{:02}", n % 23), &format!("{n:03}"))).collect();
    rows.extend([insert("", ""), insert("", "x"), insert("p", ""), insert("p'\u{10ffff}", "y")]);
    table.fill(rows).await;
    for step in [1, 7, 64, 1000] {
        assert_eq!(counted(&table, step).await, 337, "steps of {step}");
    }
    let estimate = store.estimate(table.place()).await.expect("an answer");
    assert!(estimate.is_none_or(|rows| rows < 1_000_000), "{estimate:?}");
    let missing = store.count_part(table.named("Nowhere").place(), &CountPosition::start(), 1).await;
    assert_eq!(refusal(missing), Code::TableNotFound);
}

pub async fn rules_come_back_with_snapshots<B: AnyStore>(store: &B) {
    let table = table(store).await;
    let kept = ExpiryRule { property: Some("Expires".into()), delay: 3, interval: 50 };
    store.set_expiry(table.place(), &kept, now()).await.expect("a rule");
    let snapshot = snapshot(store, Some(&table.account)).await;
    store.reset(Some(&table.account), now()).await.expect("a reset");
    assert_eq!(rule(&table).await, None);
    store.forget_stale(now()).await.expect("the rule of the deleted table");
    for _ in 0..2 {
        assert!(store.restore_snapshot(&snapshot, now()).await.expect("a snapshot"));
        assert_eq!(rule(&table).await.expect("a rule").rule, kept);
        expire(&table, 1).await;
    }
    assert!(store.drop_snapshot(&snapshot).await.expect("an answer"));
}
