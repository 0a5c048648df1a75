//! Expiry: rules by which the entities of a table are deleted some time after they were written, or
//! after a date that they carry.

use super::StoreResult;
use super::unrecorded::Unrecorded;
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

/// Sweeps that could not be recorded, since their rules were set.
pub type UnrecordedSweeps = Unrecorded<SweepState>;

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

store_trait! {
/// The rules of a database, and the deletion of what has expired. Rules belong to the number of a
/// table, so they end with it.
pub trait Expiry {
    /// Sets or replaces the rule of a table.
    ///
    /// # Errors
    /// `TableNotFound`.
    async fn set_expiry(
        &self,
        table: TableRef<'_>,
        rule: &ExpiryRule,
        now: Ticks,
    ) -> StoreResult<()>;

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
