//! Health checks, purging of deleted tables, and entity counts.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use super::StoreResult;
use crate::protocol::model::{Key, TableRef, Ticks};

store_trait! {
/// Health and currency of a database, and purging of deleted tables.
pub trait Upkeep {
    /// Returns the time up to which all commits are visible: `now` or, on a read replica, the time of the last
    /// replayed commit. `None` if the replica has replayed none (protocol §11.1).
    async fn current_until(&self, now: Ticks) -> StoreResult<Option<Ticks>>;

    /// Reads the database's clock; `None` if the database uses this machine's clock.
    async fn clock(&self) -> StoreResult<Option<Ticks>>;

    /// Returns the number of deleted tables that may have rows left for [`Upkeep::purge`].
    async fn backlog(&self) -> StoreResult<u64>;

    /// Checks whether the database answers. The check is cheap and bypasses the request queues, so it succeeds under
    /// load.
    async fn answers(&self) -> StoreResult<()>;

    /// Removes some rows of a deleted table; returns whether more rows remain. If a table fails, it is skipped for a
    /// minute. An error means that all tables failed.
    async fn purge(&self, now: Ticks) -> StoreResult<bool>;
}}

/// The position at which a count resumes. Tables are counted bucket by bucket.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CountPosition {
    /// The table number from which the counted buckets are derived; `None` for the current buckets.
    pub layout: Option<i64>,
    /// Index of the bucket in the table.
    pub share: u16,
    pub key: Key,
}

impl CountPosition {
    /// Returns the position before the first entity.
    pub fn start() -> Self {
        Self { layout: None, share: 0, key: Key::new("", "") }
    }
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CountedPart {
    pub entities: u64,
    /// Position of the next step; `None` at the end.
    pub next: Option<CountPosition>,
}

store_trait! {
/// Entity counts: exact counts of parts, and estimates of whole tables that read no entities.
pub trait Totals {
    /// Counts at most `rows` entities from a position on. `None` if the table's buckets have changed since; the count
    /// must then restart.
    ///
    /// # Errors
    /// `TableNotFound`.
    async fn count_part(
        &self,
        table: TableRef<'_>,
        from: &CountPosition,
        rows: u32,
    ) -> StoreResult<Option<CountedPart>>;

    /// Returns the planner's estimate of a table's entities from its statistics; `None` if the database keeps no
    /// statistics of single buckets.
    ///
    /// # Errors
    /// `TableNotFound`.
    async fn estimate(&self, table: TableRef<'_>) -> StoreResult<Option<u64>>;
}}

/// Time for which a failed item is skipped.
const PAUSE: Duration = Duration::from_secs(60);
/// Maximum number of items that are skipped at a time.
const MAX_SET_ASIDE: usize = 1000;

/// Tables or indexes whose last step failed, by number, with the time until which each is skipped so that it delays no
/// other.
#[derive(Debug, Default)]
pub struct SetAside(BTreeMap<i64, Instant>);

impl SetAside {
    /// Skips an item for a minute; `false` if there is no room.
    pub fn add(&mut self, number: i64) -> bool {
        let has_room = self.0.len() < MAX_SET_ASIDE;
        if has_room {
            self.0.insert(number, Instant::now() + PAUSE);
        }
        has_room
    }

    /// Returns the items that are skipped now.
    pub fn current(&mut self) -> Vec<i64> {
        self.0.retain(|_, until| *until > Instant::now());
        self.0.keys().copied().collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_is_left_alone_for_its_time_and_there_is_a_limit() {
        let mut set_aside = SetAside::default();
        assert!(set_aside.add(7));
        assert_eq!(set_aside.current(), [7]);
        set_aside.0.insert(7, Instant::now());
        assert!(set_aside.current().is_empty());
        let added = (0..=MAX_SET_ASIDE as i64).filter(|number| set_aside.add(*number));
        assert_eq!(added.count(), MAX_SET_ASIDE);
    }
}
