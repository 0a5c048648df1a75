//! Expiry and counts. Other cases share the database, so each keeps to an account of its own.

use crate::support::store::AnyStore;
use rowhouse::error::Code;
use rowhouse::protocol::model::{IfMatch, Key};
use rowhouse::protocol::plan::WriteKind;
use rowhouse::store::{CountPosition, Expiry, ExpiryRule, SweepState, TableExpiry, Totals};

use super::contract::{fill, insert, name, now, number, refusal, table, write};

fn by_age(delay: i64) -> ExpiryRule {
    ExpiryRule { property: None, delay, pause: 10 }
}

async fn rule<B: Expiry>(store: &B, account: &str) -> Option<TableExpiry> {
    let mut rules = store.expiries(Some(account)).await.expect("rules");
    assert!(rules.len() <= 1, "{rules:?}");
    rules.pop()
}

pub async fn rules_belong_to_tables<B: AnyStore>(store: &B) {
    let (account, table) = table(store).await;
    assert_eq!(
        refusal(store.set_expiry(name("Nowhere").in_account(&account), &by_age(1), now()).await),
        Code::TableNotFound
    );
    assert_eq!(rule(store, &account).await, None);
    let first = now();
    store.set_expiry(table.in_account(&account), &by_age(5), first).await.expect("a rule");
    let set = rule(store, &account).await.expect("a rule");
    assert_eq!((set.table.as_str(), &set.rule, set.made), ("People", &by_age(5), first));
    let sweep = SweepState { due: first, began: None, position: None, clean: None, expired: 0 };
    assert_eq!(set.sweep, sweep);
    let position = Some(Key::new("p'\u{10ffff}", ""));
    let moved = SweepState { due: now(), began: Some(first), position, clean: Some(first), expired: 7 };
    store.record_sweep(&set, &moved).await.expect("a record");
    assert_eq!(rule(store, &account).await.expect("a rule").sweep, moved);
    // A rule in its place begins anew, and is not told what the former one has done.
    let property = ExpiryRule { property: Some("it's".into()), ..by_age(0) };
    store.set_expiry(name("PEOPLE").in_account(&account), &property, now()).await.expect("a rule");
    store.record_sweep(&set, &moved).await.expect("nothing to record");
    let replaced = rule(store, &account).await.expect("a rule");
    assert_eq!((&replaced.rule, replaced.sweep.expired, replaced.sweep.clean), (&property, 0, None));
    // A table that is made anew has none.
    store.delete_table(table.in_account(&account), now()).await.expect("it is there");
    store.create_table(table.in_account(&account), now()).await.expect("the name is free");
    assert_eq!(rule(store, &account).await, None);
    assert!(!store.clear_expiry(table.in_account(&account)).await.expect("an answer"));
    store.set_expiry(table.in_account(&account), &by_age(1), now()).await.expect("a rule");
    store.forget_stale(now()).await.expect("nothing of this table");
    assert!(store.clear_expiry(table.in_account(&account)).await.expect("an answer"));
    assert_eq!(rule(store, &account).await, None);
}

pub async fn what_was_written_meanwhile_stays<B: AnyStore>(store: &B) {
    let (account, table) = table(store).await;
    let rows: Vec<_> = (0..40).map(|n| insert(&format!("p{}", n % 7), &format!("{n:02}"))).collect();
    let keys: Vec<Key> = rows.iter().map(|row| row.key.clone()).collect();
    fill(store, &account, &table, rows).await;
    let mut found = Vec::new();
    for key in &keys {
        found.push((
            key.clone(),
            store.get(table.in_account(&account), key).await.expect("a read").expect("it").modified,
        ));
    }
    store.set_expiry(table.in_account(&account), &by_age(1), now()).await.expect("a rule");
    let set = rule(store, &account).await.expect("a rule");
    let again = write(WriteKind::Merge(IfMatch::Any), &keys[3].partition, &keys[3].row, number("N", 2));
    store.write(table.in_account(&account), &again, now()).await.expect("a write");
    assert_eq!(store.delete_expired(&set, &found[..20]).await.expect("deletions"), 19);
    assert!(store.get(table.in_account(&account), &keys[3]).await.expect("a read").is_some());
    assert!(store.get(table.in_account(&account), &keys[4]).await.expect("a read").is_none());
    // Nothing is deleted for a rule that was replaced or removed, or in a table that was deleted.
    store.set_expiry(table.in_account(&account), &by_age(2), now()).await.expect("a rule");
    assert_eq!(store.delete_expired(&set, &found).await.expect("deletions"), 0);
    let set = rule(store, &account).await.expect("a rule");
    assert!(store.clear_expiry(table.in_account(&account)).await.expect("an answer"));
    assert_eq!(store.delete_expired(&set, &found).await.expect("deletions"), 0);
    store.set_expiry(table.in_account(&account), &by_age(2), now()).await.expect("a rule");
    let set = rule(store, &account).await.expect("a rule");
    store.delete_table(table.in_account(&account), now()).await.expect("it is there");
    assert_eq!(store.delete_expired(&set, &found).await.expect("deletions"), 0);
}

async fn counted<B: Totals>(store: &B, account: &str, rows: u32) -> (u64, usize) {
    let (mut sum, mut steps, mut from) = (0, 0, Some(CountPosition::start()));
    while let Some(position) = from {
        let part = store.count_part(name("People").in_account(account), &position, rows).await;
        let part = part.expect("an answer").expect("the same buckets");
        (sum, steps, from) = (sum + part.entities, steps + 1, part.next);
        assert!(steps < 10_000, "counting makes no progress");
    }
    (sum, steps)
}

pub async fn every_entity_is_counted_once<B: AnyStore>(store: &B) {
    let (account, table) = table(store).await;
    assert_eq!(counted(store, &account, 10).await.0, 0);
    let mut rows: Vec<_> = (0..333).map(|n| insert(&format!("p{:02}", n % 23), &format!("{n:03}"))).collect();
    rows.extend([insert("", ""), insert("", "x"), insert("p", ""), insert("p'\u{10ffff}", "y")]);
    fill(store, &account, &table, rows).await;
    for step in [1, 7, 64, 1000] {
        assert_eq!(counted(store, &account, step).await.0, 337, "steps of {step}");
    }
    let estimate = store.estimate(table.in_account(&account)).await.expect("an answer");
    assert!(estimate.is_none_or(|rows| rows < 1_000_000), "{estimate:?}");
    let missing = store.count_part(name("Nowhere").in_account(&account), &CountPosition::start(), 1).await;
    assert_eq!(refusal(missing), Code::TableNotFound);
}

pub async fn rules_come_back_with_snapshots<B: AnyStore>(store: &B) {
    let (account, table) = table(store).await;
    let kept = ExpiryRule { property: Some("Expires".into()), delay: 3, pause: 50 };
    store.set_expiry(table.in_account(&account), &kept, now()).await.expect("a rule");
    let snapshot = uuid::Uuid::new_v4().simple().to_string();
    assert!(store.take_snapshot(&snapshot, Some(&account), now()).await.expect("a snapshot"));
    store.reset(Some(&account), now()).await.expect("a reset");
    assert_eq!(rule(store, &account).await, None);
    store.forget_stale(now()).await.expect("the rule of the deleted table");
    for _ in 0..2 {
        assert!(store.restore_snapshot(&snapshot, now()).await.expect("a snapshot"));
        assert_eq!(rule(store, &account).await.expect("a rule").rule, kept);
        store.set_expiry(table.in_account(&account), &by_age(1), now()).await.expect("a rule");
    }
    assert!(store.drop_snapshot(&snapshot).await.expect("an answer"));
}
