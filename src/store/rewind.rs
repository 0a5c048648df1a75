//! Reset, snapshot and restore, for test suites.

use std::future::Future;

use super::StoreResult;
use crate::model::Ticks;

/// Snapshots that a store keeps at once.
pub const MAX_SNAPSHOTS: usize = 64;

/// A state that a store can go back to.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct StoreSnapshot {
    pub name: String,
    /// The account whose state it is; `None` for all accounts.
    pub account: Option<String>,
    /// When it was taken.
    pub taken: Ticks,
}

/// Tables, entities, policies and service properties as a whole; accounts are no part of it. Each
/// change is one transaction: concurrent readers see the state before it or after it.
///
/// What comes back has its ETags and times, in tables with new numbers, so that a write that began
/// before cannot reach it. Snapshots end with the store that took them, and never are in the schema
/// that it serves.
pub trait Rewind: Send + Sync {
    /// Empties an account, or all of them.
    fn reset(&self, account: Option<&str>, now: Ticks) -> impl Future<Output = StoreResult<()>> + Send;

    /// Takes a snapshot of an account, or of all of them, under a name that no
    /// other has; `false` if there are [`MAX_SNAPSHOTS`] already.
    fn take_snapshot(
        &self,
        name: &str,
        account: Option<&str>,
        now: Ticks,
    ) -> impl Future<Output = StoreResult<bool>> + Send;

    /// Goes back to a snapshot, which stays; `false` if there is none of this
    /// name. Accounts that it is not of are left alone.
    fn restore_snapshot(&self, name: &str, now: Ticks) -> impl Future<Output = StoreResult<bool>> + Send;

    /// Forgets a snapshot; `false` if there is none of this name.
    fn drop_snapshot(&self, name: &str) -> impl Future<Output = StoreResult<bool>> + Send;

    /// All snapshots, the oldest first.
    fn snapshots(&self) -> impl Future<Output = StoreResult<Vec<StoreSnapshot>>> + Send;
}
