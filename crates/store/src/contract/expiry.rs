//! Expiry: rules by which the entities of a table are deleted some time after they were written, or
//! after a date that they carry.

use std::collections::BTreeMap;
use std::sync::{Mutex, PoisonError};

use super::StoreResult;
use crate::protocol::model::ticks::TICKS_PER_SECOND;
use crate::protocol::model::{Key, TableRef, Ticks};

/// Ticks for which a table whose step failed is left alone.
pub const SWEEP_RETRY_PAUSE: i64 = 60 * TICKS_PER_SECOND;

/// When the entities of a table expire.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ExpiryRule {
    /// The DateTime property that the delay counts from; `None` for Timestamp.
    pub property: Option<String>,
    /// Ticks from there until an entity expires.
    pub delay: i64,
    /// Ticks from the start of a pass over the table to that of the next, at least.
    pub pause: i64,
}

/// How far the passes over a table have come.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SweepState {
    /// When the next step is due.
    pub due: Ticks,
    /// When the pass that is under way began.
    pub began: Option<Ticks>,
    /// Where it goes on.
    pub position: Option<Key>,
    /// Entities that had expired at this time are deleted; `None` before the end of the first pass.
    pub clean: Option<Ticks>,
    /// Entities deleted since the rule was set.
    pub expired: u64,
}

/// A table with its rule.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TableExpiry {
    pub table_no: i64,
    pub spread: u16,
    pub account: String,
    /// The table's name as created.
    pub table: String,
    pub rule: ExpiryRule,
    /// When the rule was set, which distinguishes it from a later one.
    pub made: Ticks,
    pub sweep: SweepState,
}

/// All rules together, for metrics.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct ExpirySummary {
    /// Tables that have a rule.
    pub tables: u64,
    /// When the next pass over a table should have begun, of the table where that is the earliest.
    pub behind_since: Option<Ticks>,
}

/// Maximum tables.
const MAX_TABLES: usize = 10_000;

/// Progress that could not be recorded: how far this process has come with tables, by their numbers and the time since
/// when. What it forgets when it ends is done again.
#[derive(Debug)]
pub struct Unrecorded<T>(Mutex<BTreeMap<i64, (Ticks, T)>>);

impl<T> Default for Unrecorded<T> {
    fn default() -> Self {
        Self(Mutex::default())
    }
}

impl<T: Clone> Unrecorded<T> {
    fn with<R>(&self, work: impl FnOnce(&mut BTreeMap<i64, (Ticks, T)>) -> R) -> R {
        work(&mut self.0.lock().unwrap_or_else(PoisonError::into_inner))
    }

    /// After an attempt to record progress: forgets the table if that was done. Otherwise `progress` is kept, if
    /// there is any to keep and room for it, and the failure is none.
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

    /// Remembers how far the work on a table has come; `false` if there is no room.
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

    /// Forgets all: another process does the work now.
    pub(crate) fn clear(&self) {
        self.with(BTreeMap::clear);
    }

    /// The progress with a table, unless it is that of an earlier work.
    pub(crate) fn of(&self, table_no: i64, since: Ticks) -> Option<T> {
        let kept = self.with(|all| all.get(&table_no).cloned());
        kept.filter(|(kept_since, _)| *kept_since == since).map(|(_, progress)| progress)
    }

    /// All tables: their numbers, since when, and the progress.
    pub(crate) fn all(&self) -> Vec<(i64, Ticks, T)> {
        let copied = |(no, (since, progress)): (&i64, &(Ticks, T))| (*no, *since, progress.clone());
        self.with(|all| all.iter().map(copied).collect())
    }
}

/// Sweeps that could not be recorded, since their rules were set.
pub type UnrecordedSweeps = Unrecorded<SweepState>;

store_trait! {
/// The rules of a database, and the deletion of what has expired. Rules belong to the number of a
/// table, so they end with it.
pub trait Expiry {
    /// Sets or replaces the rule of a table.
    ///
    /// # Errors
    /// `TableNotFound`.
    async fn set_expiry(&self, table: TableRef<'_>, rule: &ExpiryRule, now: Ticks) -> StoreResult<()>;

    /// Removes the rule of a table; `false` if there is none.
    async fn clear_expiry(&self, table: TableRef<'_>) -> StoreResult<bool>;

    /// Returns the rules of an account, or of all accounts, by account and table.
    async fn expiries(&self, account: Option<&str>) -> StoreResult<Vec<TableExpiry>>;

    /// Summarizes all rules. A pass that ended later than `now`, by a clock that was ahead, does not
    /// count.
    async fn expiry_summary(&self, now: Ticks) -> StoreResult<ExpirySummary>;

    /// Returns the table whose step has been due for the longest. A step is also due if it is due
    /// later than any pause from `now` on allows: a clock that was ahead has recorded it.
    async fn due_expiry(&self, now: Ticks) -> StoreResult<Option<TableExpiry>>;

    /// Deletes those of these entities that still have the given version, if the table still has
    /// the rule; returns how many.
    async fn delete_expired(&self, of: &TableExpiry, entities: &[(Key, Ticks)]) -> StoreResult<u64>;

    /// Stores how far the passes have come, if the table still has the rule.
    async fn record_sweep(&self, of: &TableExpiry, sweep: &SweepState) -> StoreResult<()>;

    /// Removes what is stored here about tables that no longer exist, and the marks of copies that began 90 days
    /// before `now`.
    async fn forget_stale(&self, now: Ticks) -> StoreResult<()>;

    /// Whether this server is the one that works on expiry, until `until`. At any
    /// time one server is; another takes over once the time of the last one has run out, or if it ends
    /// later than twice the time from `now` until `until`: a clock that was ahead has recorded it.
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
