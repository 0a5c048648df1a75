//! Reset, snapshot and restore, for test suites.

use super::StoreResult;
use crate::protocol::model::Ticks;

/// Maximum number of snapshots that a store keeps.
pub const MAX_SNAPSHOTS: usize = 64;

/// A state that a store can restore.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct StoreSnapshot {
    pub name: String,
    /// The account whose state it is; `None` for all accounts.
    pub account: Option<String>,
    /// When it was taken.
    pub taken: Ticks,
}

store_trait! {
/// Resets, takes and restores the stored data: tables, entities, policies and service properties,
/// but not accounts. Each change is one transaction: concurrent readers see the state before it or
/// after it.
///
/// Restored data has its former ETags and timestamps, in tables with new table numbers, so that a
/// write that began before cannot reach it. Snapshots end with the store that took them, and are
/// never in the schema that it serves.
pub trait Reset {
    /// Empties an account, or all accounts.
    async fn reset(&self, account: Option<&str>, now: Ticks) -> StoreResult<()>;

    /// Takes a snapshot of an account, or of all accounts, under a unique name; `false` if there
    /// are [`MAX_SNAPSHOTS`] already.
    async fn take_snapshot(&self, name: &str, account: Option<&str>, now: Ticks) -> StoreResult<bool>;

    /// Restores a snapshot, and keeps it; `false` if there is none of this name. Does not change
    /// accounts that are not in it.
    async fn restore_snapshot(&self, name: &str, now: Ticks) -> StoreResult<bool>;

    /// Deletes a snapshot; `false` if there is none of this name.
    async fn drop_snapshot(&self, name: &str) -> StoreResult<bool>;

    /// Lists all snapshots, the oldest first.
    async fn snapshots(&self) -> StoreResult<Vec<StoreSnapshot>>;
}}
