//! Expiry rules: the entities of a table are deleted some time after they were written, or after a date in one of
//! their properties.

use std::collections::BTreeMap;

use parking_lot::Mutex;

use super::StoreResult;
use crate::protocol::model::ticks::TICKS_PER_SECOND;
use crate::protocol::model::{Key, TableRef, Ticks};

/// Ticks for which a table is skipped after a failed step.
pub const SWEEP_RETRY_PAUSE: i64 = 60 * TICKS_PER_SECOND;

/// When the entities of a table expire.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ExpiryRule {
    /// The DateTime property that the delay counts from; `None` for Timestamp.
    pub property: Option<String>,
    /// Ticks from that time until an entity expires.
    pub delay: i64,
    /// Minimum ticks between the starts of two passes over the table.
    pub interval: i64,
}

/// Progress of the passes over a table.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SweepState {
    /// Time at which the next step is due.
    pub due: Ticks,
    /// Start of the current pass; `None` between passes.
    pub began: Option<Ticks>,
    /// Position at which the pass resumes.
    pub position: Option<Key>,
    /// Entities that had expired by this time are deleted; `None` before the end of the first pass.
    pub clean: Option<Ticks>,
    /// Number of entities deleted since the rule was set.
    pub expired: u64,
}

/// A table with its expiry rule.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TableExpiry {
    pub table_no: i64,
    pub spread: u16,
    pub account: String,
    /// The table's name as created.
    pub table: String,
    pub rule: ExpiryRule,
    /// Time at which the rule was set. It distinguishes the rule from a later one.
    pub made: Ticks,
    pub sweep: SweepState,
}

/// Summary of all rules, for metrics.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct ExpirySummary {
    /// Number of tables that have a rule.
    pub tables: u64,
    /// The earliest time at which any table's next pass should have begun.
    pub behind_since: Option<Ticks>,
}

const MAX_TABLES: usize = 10_000;

/// Progress that could not be recorded in the database, by table number and start of the work. Progress that is lost
/// when the process ends is repeated.
#[derive(Debug)]
pub struct Unrecorded<T>(Mutex<BTreeMap<i64, (Ticks, T)>>);

impl<T> Default for Unrecorded<T> {
    fn default() -> Self {
        Self(Mutex::default())
    }
}

impl<T: Clone> Unrecorded<T> {
    fn with<R>(&self, work: impl FnOnce(&mut BTreeMap<i64, (Ticks, T)>) -> R) -> R {
        work(&mut self.0.lock())
    }

    /// Handles an attempt to record progress. After a success, the table is forgotten. After a failure, `progress` is
    /// kept in memory if there is any and there is room for it, and the failure is suppressed.
    pub(crate) fn settle<E>(
        &self,
        recorded: Result<(), E>,
        (table_no, since): (i64, Ticks),
        progress: impl FnOnce() -> Option<T>,
    ) -> Result<(), E> {
        if recorded.is_ok() {
            self.forget(table_no);
            return recorded;
        }
        let is_kept = progress().is_some_and(|progress| self.keep(table_no, since, progress));
        if is_kept { Ok(()) } else { recorded }
    }

    /// Keeps the progress of a table; `false` if there is no room.
    fn keep(&self, table_no: i64, since: Ticks, progress: T) -> bool {
        self.with(|all| {
            let has_room = all.len() < MAX_TABLES || all.contains_key(&table_no);
            if has_room {
                all.insert(table_no, (since, progress));
            }
            has_room
        })
    }

    fn forget(&self, table_no: i64) {
        self.with(|all| all.remove(&table_no));
    }

    /// Forgets all progress, because another process now does the work.
    pub(crate) fn clear(&self) {
        self.with(BTreeMap::clear);
    }

    /// Returns the progress of a table, unless it belongs to earlier work.
    pub(crate) fn of(&self, table_no: i64, since: Ticks) -> Option<T> {
        let kept = self.with(|all| all.get(&table_no).cloned());
        kept.filter(|(kept_since, _)| *kept_since == since).map(|(_, progress)| progress)
    }

    /// Returns the number, start of the work and progress of each table.
    pub(crate) fn all(&self) -> Vec<(i64, Ticks, T)> {
        let copied = |(no, (since, progress)): (&i64, &(Ticks, T))| (*no, *since, progress.clone());
        self.with(|all| all.iter().map(copied).collect())
    }
}

/// Sweeps that could not be recorded, keyed by the time at which their rules were set.
pub type UnrecordedSweeps = Unrecorded<SweepState>;

store_trait! {
/// Expiry rules and the deletion of expired entities. Rules belong to a table number, so they end with the table.
pub trait Expiry {
    /// Sets or replaces the rule of a table.
    ///
    /// # Errors
    /// `TableNotFound`.
    async fn set_expiry(&self, table: TableRef<'_>, rule: &ExpiryRule, now: Ticks) -> StoreResult<()>;

    /// Removes the rule of a table; `false` if there is none.
    async fn clear_expiry(&self, table: TableRef<'_>) -> StoreResult<bool>;

    /// Returns the rules of an account, or of all accounts if `None`, ordered by account and table.
    async fn expiries(&self, account: Option<&str>) -> StoreResult<Vec<TableExpiry>>;

    /// Summarizes all rules. Passes with an end after `now`, recorded by a clock that was ahead, are ignored.
    async fn expiry_summary(&self, now: Ticks) -> StoreResult<ExpirySummary>;

    /// Returns the table whose step has been due for the longest. A step with a due time later than any interval from
    /// `now` allows is also due, because a clock that was ahead has recorded it.
    async fn due_expiry(&self, now: Ticks) -> StoreResult<Option<TableExpiry>>;

    /// Deletes those entities that still have the given version, if the table still has the rule. Returns the number
    /// of deleted entities.
    async fn delete_expired(&self, of: &TableExpiry, entities: &[(Key, Ticks)]) -> StoreResult<u64>;

    /// Records the progress of the passes, if the table still has the rule.
    async fn record_sweep(&self, of: &TableExpiry, sweep: &SweepState) -> StoreResult<()>;

    /// Removes expiry data of tables that no longer exist, and marks of copies that began more than 90 days before
    /// `now`.
    async fn forget_stale(&self, now: Ticks) -> StoreResult<()>;

    /// Acquires or renews the upkeep lease until `until`; returns whether this server holds it. One server holds the
    /// lease at any time. Another server takes over when the lease has expired, or if its end is later than twice the
    /// time from `now` to `until`, because a clock that was ahead has recorded it.
    async fn leads_upkeep(&self, holder: i64, now: Ticks, until: Ticks) -> StoreResult<bool>;
}}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(raw: i64) -> Ticks {
        Ticks::from_raw(Ticks::MIN.raw() + raw).expect("in range")
    }

    #[test]
    fn progress_is_kept_until_it_is_recorded_or_other_work_begins() {
        let unrecorded = Unrecorded::default();
        assert!(unrecorded.keep(1, at(5), "half"));
        assert_eq!(unrecorded.of(1, at(5)), Some("half"));
        assert_eq!(unrecorded.of(1, at(6)), None, "other work");
        assert_eq!(unrecorded.of(2, at(5)), None, "another table");
        assert_eq!(unrecorded.all(), [(1, at(5), "half")]);
        assert!(unrecorded.keep(1, at(6), "begun"));
        assert_eq!(unrecorded.of(1, at(6)), Some("begun"));
        unrecorded.forget(1);
        assert_eq!(unrecorded.of(1, at(6)), None);
        assert!(unrecorded.keep(2, at(5), "half"));
        unrecorded.clear();
        assert_eq!(unrecorded.all(), []);
    }

    #[test]
    fn only_what_was_not_recorded_is_kept_and_only_what_is_kept_is_no_failure() {
        let (unrecorded, table) = (Unrecorded::default(), (1, at(5)));
        assert_eq!(unrecorded.settle(Err("away"), table, || None), Err("away"));
        assert_eq!(unrecorded.settle(Err("away"), table, || Some("half")), Ok(()));
        assert_eq!(unrecorded.of(1, at(5)), Some("half"));
        assert_eq!(unrecorded.settle(Ok::<_, &str>(()), table, || Some("more")), Ok(()));
        assert_eq!(unrecorded.of(1, at(5)), None);
    }

    #[test]
    fn there_is_a_limit() {
        let unrecorded = Unrecorded::default();
        let kept = (0..=MAX_TABLES as i64).filter(|no| unrecorded.keep(*no, at(0), ()));
        assert_eq!(kept.count(), MAX_TABLES);
        assert!(unrecorded.keep(0, at(1), ()), "one that is there is replaced");
    }
}
