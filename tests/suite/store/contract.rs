//! The cases that hold for every store, and the helpers they share.

use std::sync::atomic::{AtomicI64, AtomicU32, Ordering};
use std::time::Duration;

use crate::support::store::AnyStore;
use rowhouse::error::Code;
use rowhouse::protocol::codec::validated::ValidatedProperties;
use rowhouse::protocol::model::entity::Properties;
use rowhouse::protocol::model::{EdmValue, Key, Stored, TableName, Ticks};
use rowhouse::protocol::plan::{Scan, Span, Write, WriteKind};
use rowhouse::store::Failure;

/// Stamps every case of the contract for one store. `$open` is an async
/// function without arguments that opens it; stores of one process may share
/// their database, since every case uses an account of its own.
macro_rules! contract {
    ($name:ident, $open:path) => {
        crate::store::contract::contract!(
            @stamp $name, $open,
            tables: creation_and_deletion, pages_of_tables, filtered_tables, tables_out_of_time, sizes, deleted_tables_are_empty_when_recreated;
            writes: every_state, missing_table_first, versions_only_grow, merges_lose_nothing, one_insert_wins;
            merges: any_into_any, limits_of_the_union;
            groups: all_or_nothing, mixed_group, group_errors, crossing_groups, groups_of_upserts, upserts_beside_deletes,
                upserts_tell_what_they_made, groups_of_merges;
            pages: walks, newest_first, newest_first_beside_writers, limits, points_and_ranges, out_of_time,
                matches_of_any_density, a_window_that_is_cut_off, large_entities;
            values: stored_unaltered;
            loads: stored_as_they_are, marked_together, marks_of_stale_copies_are_removed, the_last_version_has_none_behind_it;
            accounts: sealed_anew_together, options_by_account, queries_by_account;
            pushdown: sql_is_eval;
            operator_features: rules_belong_to_tables, what_was_written_meanwhile_stays, every_entity_is_counted_once,
                rules_come_back_with_snapshots;
            deleted: a_table_comes_back_with_all_that_it_had, deleted_tables_have_names_and_numbers,
                tables_are_kept_until_their_time_ends,
                a_reset_leaves_nothing_to_bring_back, one_of_two_has_a_deleted_table;
            reset: comes_back_as_it_was, one_account_alone, indexes_do_not_come_back, snapshots_are_bounded, whoever_asks_meanwhile_sees_one_state
        );
    };
    (@stamp $name:ident, $open:path, $($module:ident: $($case:ident),+);+) => {
        mod $name {
            $($(
                #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
                async fn $case() {
                    let store = $open().await;
                    crate::store::$module::$case(&store).await;
                }
            )+)+
        }
    };
}
pub(crate) use contract;

/// Property strategies generate this many cases.
pub const WALKS: usize = 40;

/// An account that no other test uses.
pub fn account() -> String {
    static NUMBER: AtomicU32 = AtomicU32::new(0);
    format!("account{}x{}", std::process::id(), NUMBER.fetch_add(1, Ordering::Relaxed))
}

/// A table of an account of its own.
pub async fn table<B: AnyStore>(store: &B) -> (String, TableName) {
    let (account, table) = (account(), name("People"));
    store.create_table(table.in_account(&account), now()).await.expect("a new table");
    (account, table)
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

/// Inserts entities, group by group.
pub async fn fill<B: AnyStore>(store: &B, account: &str, table: &TableName, mut writes: Vec<Write>) {
    writes.sort_by(|a, b| a.key.cmp(&b.key));
    for partition in writes.chunk_by(|a, b| a.key.partition == b.key.partition) {
        for group in partition.chunks(100) {
            store.transact(table.in_account(account), group, now()).await.expect("a group of inserts");
        }
    }
}

/// Everything, without bounds.
pub fn scan(spans: Vec<Span>) -> Scan {
    Scan { bytes: usize::MAX, time: Duration::from_secs(60), ..Scan::over(spans) }
}

/// Follows `next` to the end; the pages in order.
pub async fn walk<B: AnyStore>(store: &B, account: &str, table: &TableName, scan: &Scan) -> Vec<Vec<Stored>> {
    let mut scan = scan.clone();
    let mut pages = Vec::new();
    loop {
        let page = store.query(table.in_account(account), &scan).await.expect("a page");
        pages.push(page.entities);
        assert!(pages.len() < 10_000, "the walk makes no progress");
        let Some(next) = page.next else { return pages };
        scan.spans = scan.order.rest_of(scan.spans, &next);
    }
}

/// The refusal's code.
pub fn refusal<T: std::fmt::Debug>(result: Result<T, Failure>) -> Code {
    match result {
        Err(Failure::Refused(error)) => error.code,
        other => panic!("expected a refusal, got {other:?}"),
    }
}
