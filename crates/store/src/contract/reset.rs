//! Reset, snapshot and restore, for test suites.

use super::StoreResult;
use crate::protocol::model::Ticks;

/// Maximum number of snapshots that a store keeps.
pub const MAX_SNAPSHOTS: usize = 64;

/// A saved state that a store can restore.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct StoreSnapshot {
    pub name: String,
    /// The account whose state was saved; `None` for all accounts.
    pub account: Option<String>,
    pub taken: Ticks,
}

store_trait! {
/// Reset, snapshots and restore of the stored data: tables, entities, policies and service properties, but not
/// accounts. Each change is one transaction: concurrent readers see the state before or after it.
///
/// Restored data keeps its ETags and timestamps. Its tables get new numbers, so a write that began earlier cannot
/// reach it. Snapshots end with the store that took them, and are never in the schema that the store serves.
pub trait Reset {
    /// Deletes the data of an account, or of all accounts.
    async fn reset(&self, account: Option<&str>, now: Ticks) -> StoreResult<()>;

    /// Takes a snapshot of an account, or of all accounts, under a unique name; `false` if there are already
    /// [`MAX_SNAPSHOTS`].
    async fn take_snapshot(&self, name: &str, account: Option<&str>, now: Ticks) -> StoreResult<bool>;

    /// Restores and keeps a snapshot; `false` if none has this name. Accounts outside the snapshot are not changed.
    async fn restore_snapshot(&self, name: &str, now: Ticks) -> StoreResult<bool>;

    /// Deletes a snapshot; `false` if none has this name.
    async fn drop_snapshot(&self, name: &str) -> StoreResult<bool>;

    async fn snapshots(&self) -> StoreResult<Vec<StoreSnapshot>>;
}}
