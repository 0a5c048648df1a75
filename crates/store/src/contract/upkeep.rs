//! The state of a database, and what is left to clean up in it.

use super::StoreResult;
use crate::protocol::model::Ticks;

store_trait! {
/// Whether a database answers, how current it is, and the rows of deleted tables.
pub trait Upkeep {
    /// Returns the time up to which all commits are visible here: `now`, or on a read replica the
    /// time of the last replayed commit; `None` if it has replayed none (protocol §11.1).
    async fn current_until(&self, now: Ticks) -> StoreResult<Option<Ticks>>;

    /// Reads the database's own clock; `None` if that is the clock of this machine.
    async fn clock(&self) -> StoreResult<Option<Ticks>>;

    /// Returns how many deleted tables may have rows left for [`Upkeep::purge`]. Some of them may
    /// have none.
    async fn backlog(&self) -> StoreResult<u64>;

    /// Checks whether the database answers. Costs little and does not wait in the queues of
    /// requests, so that it succeeds under load.
    async fn answers(&self) -> StoreResult<()>;

    /// Removes some rows of a deleted table. Returns whether more are left. A table for which that failed is left
    /// alone for a minute; an error means that it failed for all.
    async fn purge(&self, now: Ticks) -> StoreResult<bool>;
}}
