//! The cases that hold for every store, and the helpers they share.

use std::ops::Deref;
use std::sync::atomic::{AtomicI64, AtomicU32, Ordering};
use std::time::Duration;

use crate::support::store::{AnyStore, EntityPage};
use rowhouse_protocol::codec::validated::ValidatedProperties;
use rowhouse_protocol::error::Code;
use rowhouse_protocol::model::entity::Properties;
use rowhouse_protocol::model::{CompareOp, EdmValue, Key, Stored, TableName, TableRef, Ticks};
use rowhouse_protocol::plan::{Field, Predicate, Scan, Span, Write, WriteKind, Written};
use rowhouse_store::{Entities, Failure, StoreResult, Tables};

/// Stamps the cases of the contract for one store. `$open` is an async function without arguments that opens it;
/// stores of one process may share their database, since every case uses an account of its own.
///
/// Every case runs on one store of each database. Other stores of a database differ in how statements reach it, or in
/// how it holds entities: `writes of` and `entities of` stamp the cases that depend on that, with fewer random filters.
/// Cases of indexes need a database each: an index costs every write of its database, and a build waits for all
/// transactions.
macro_rules! contract {
    ($name:ident, $open:path) => {
        mod $name {
            crate::store::contract::contract!(@writes $open);
            crate::store::contract::contract!(@entities $open);
            crate::store::contract::contract!(
                @stamp $open,
                tables: creation_and_deletion, pages_of_tables, filtered_tables, tables_out_of_time;
                merges: limits_of_the_union;
                accounts: sealed_anew_together, options_by_account;
                loads: marked_together, marks_of_stale_copies_are_removed;
                pushdown: sql_is_eval;
                operator_features: rules_belong_to_tables, rules_come_back_with_snapshots;
                deleted: tables_are_kept_until_their_time_ends, a_reset_leaves_nothing_to_bring_back;
                reset: indexes_do_not_come_back, snapshots_are_bounded
            );
        }
    };
    (entities of $name:ident, $open:path) => {
        mod $name {
            crate::store::contract::contract!(@writes $open);
            crate::store::contract::contract!(@entities $open);
            crate::store::contract::contract!(@stamp $open, pushdown: sql_is_eval_for_some_filters);
        }
    };
    (writes of $name:ident, $open:path) => {
        mod $name {
            crate::store::contract::contract!(@writes $open);
            crate::store::contract::contract!(@stamp $open, merges: limits_of_the_union);
        }
    };
    (indexes of $name:ident, $open:path) => {
        mod $name {
            crate::store::contract::contract!(@indexes $open);
            crate::store::contract::contract!(
                @stamp $open,
                indexes: narrowed_is_eval, indexes_are_limited;
                ordered: ordered_is_sorted_eval, an_order_without_its_index_is_refused
            );
        }
    };
    (indexed entities of $name:ident, $open:path) => {
        mod $name {
            crate::store::contract::contract!(@indexes $open);
            crate::store::contract::contract!(
                @stamp $open,
                indexes: narrowed_is_eval_for_some_filters;
                ordered: ordered_is_sorted_eval_for_some_filters
            );
        }
    };
    (@indexes $open:path) => {
        crate::store::contract::contract!(
            @stamp $open,
            indexes: indexes_follow_writes, dense_filters_walk, a_deleted_table_takes_its_indexes_along;
            ordered: long_keys_are_ordered_and_told_apart, a_page_is_full_or_the_last,
                what_cannot_be_sorted_in_time_is_read_in_the_order_of_the_index
        );
    };
    (@writes $open:path) => {
        crate::store::contract::contract!(
            @stamp $open,
            tables: deleted_tables_are_empty_when_recreated;
            writes: every_state, missing_table_first, versions_only_grow, merges_lose_nothing, one_insert_wins;
            merges: any_into_any;
            groups: all_or_nothing, any_group, crossing_groups, groups_of_upserts, upserts_beside_deletes,
                groups_of_merges;
            values: stored_unaltered;
            loads: the_last_version_has_none_behind_it;
            reset: whoever_asks_meanwhile_sees_one_state
        );
    };
    (@entities $open:path) => {
        crate::store::contract::contract!(
            @stamp $open,
            tables: sizes;
            pages: walks, newest_first_beside_writers, limits, points_and_ranges, out_of_time, matches_of_any_density,
                a_window_that_is_cut_off, large_entities;
            loads: stored_as_they_are;
            operator_features: what_was_written_meanwhile_stays, every_entity_is_counted_once;
            deleted: a_table_comes_back_with_all_that_it_had, deleted_tables_have_names_and_numbers,
                one_of_two_has_a_deleted_table;
            reset: comes_back_as_it_was, one_account_alone
        );
    };
    (@stamp $open:path, $($module:ident: $($case:ident),+);+) => {
        $($(
            #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
            async fn $case() {
                crate::store::$module::$case(&$open().await).await;
            }
        )+)+
    };
}
pub(crate) use contract;

/// An account that no other test uses.
pub fn account() -> String {
    static NUMBER: AtomicU32 = AtomicU32::new(0);
    format!("account{}x{}", std::process::id(), NUMBER.fetch_add(1, Ordering::Relaxed))
}

/// A table of an account that no other test uses.
#[derive(Clone)]
pub struct TestTable<S> {
    pub store: S,
    pub account: String,
    pub name: TableName,
}

/// Creates such a table.
pub async fn table<S: Deref<Target: AnyStore>>(store: S) -> TestTable<S> {
    let table = TestTable { store, account: account(), name: name("People") };
    table.create().await.expect("a new table");
    table
}

impl<S: Deref<Target: AnyStore>> TestTable<S> {
    pub fn place(&self) -> TableRef<'_> {
        self.name.in_account(&self.account)
    }

    /// Another name in the same account.
    pub fn named(&self, text: &str) -> TestTable<&S::Target> {
        TestTable { name: name(text), ..self.through(&*self.store) }
    }

    /// The same table, as another store over its database has it.
    pub fn through<T>(&self, store: T) -> TestTable<T> {
        TestTable { store, account: self.account.clone(), name: self.name.clone() }
    }

    pub async fn create(&self) -> StoreResult<()> {
        self.store.create_table(self.place(), now()).await
    }

    pub async fn delete(&self) -> StoreResult<()> {
        self.store.delete_table(self.place(), now()).await
    }

    pub async fn write(&self, write: &Write) -> StoreResult<Written> {
        self.store.write(self.place(), write, now()).await
    }

    pub async fn transact(&self, group: &[Write]) -> StoreResult<Vec<Written>> {
        self.store.transact(self.place(), &group.into(), now()).await
    }

    pub async fn get(&self, key: &Key) -> StoreResult<Option<Stored>> {
        self.store.get(self.place(), key).await
    }

    pub async fn query(&self, scan: &Scan) -> StoreResult<EntityPage> {
        self.store.query(self.place(), scan).await
    }

    /// Writes entities, group by group.
    pub async fn fill(&self, writes: impl IntoIterator<Item = Write>) {
        let mut writes: Vec<Write> = writes.into_iter().collect();
        writes.sort_by(|a, b| a.key.cmp(&b.key));
        for partition in writes.chunk_by(|a, b| a.key.partition == b.key.partition) {
            for group in partition.chunks(100) {
                self.transact(group).await.expect("a group of writes");
            }
        }
    }

    /// All entities.
    pub async fn all(&self) -> Vec<Stored> {
        self.walk(&everything()).await.concat()
    }

    /// Follows `next` to the end; the pages in order.
    pub async fn walk(&self, scan: &Scan) -> Vec<Vec<Stored>> {
        let mut scan = scan.clone();
        let mut pages = Vec::new();
        loop {
            let page = self.query(&scan).await.expect("a page");
            pages.push(page.entities);
            assert!(pages.len() < 10_000, "the walk makes no progress");
            let Some(next) = page.next else { return pages };
            scan.spans = scan.order.rest_of(scan.spans, &next);
        }
    }
}

pub fn name(text: &str) -> TableName {
    TableName::parse(text).expect("a table name")
}

/// A clock that never gives one tick twice.
pub fn now() -> Ticks {
    static NOW: AtomicI64 = AtomicI64::new(638_000_000_000_000_000);
    Ticks::from_raw(NOW.fetch_add(1, Ordering::Relaxed)).expect("a time in range")
}

pub fn write(kind: WriteKind, pk: &str, rk: &str, properties: Properties) -> Write {
    Write { kind, key: Key::new(pk, rk), properties: sent(&properties) }
}

/// Properties as a request has them.
pub fn sent(properties: &Properties) -> ValidatedProperties {
    ValidatedProperties::new(0, properties, None).expect("properties that may be stored")
}

pub fn insert(pk: &str, rk: &str) -> Write {
    write(WriteKind::Insert, pk, rk, number("N", 1))
}

pub fn number(name: &str, value: i32) -> Properties {
    vec![(name.into(), EdmValue::Int32(value))]
}

/// All entities in one page.
pub fn everything() -> Scan {
    scan(vec![Span::everything()])
}

/// The entities of these ranges in one page.
pub fn scan(spans: Vec<Span>) -> Scan {
    Scan { bytes: usize::MAX, time: Duration::from_secs(60), ..Scan::of_spans(spans) }
}

/// One key.
pub fn point(key: &Key) -> Span {
    Span { lower: key.clone(), upper: Some(Key::new(key.partition.as_str(), format!("{}\u{1}", key.row))) }
}

/// All keys of a partition.
pub fn partition(name: &str) -> Span {
    Span { lower: Key::new(name, ""), upper: Some(Key::new(format!("{name}\u{1}"), "")) }
}

/// A comparison of a property.
pub fn compare(property: &str, op: CompareOp, literal: EdmValue) -> Predicate {
    Predicate::Compare { field: Field::Custom(property.into()), op, literal }
}

/// The refusal's code.
pub fn refusal<T: std::fmt::Debug>(result: Result<T, Failure>) -> Code {
    match result {
        Err(Failure::Refused(error)) => error.code,
        other => panic!("expected a refusal, got {other:?}"),
    }
}
