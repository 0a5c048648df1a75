//! The state of a database, the number of its entities, and what is left to clean up in it.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use super::StoreResult;
use crate::protocol::model::{Key, TableRef, Ticks};

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

/// Where counting goes on: tables are counted bucket by bucket.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CountPosition {
    /// The number that the table's buckets are made of; `None` for those that it has now.
    pub layout: Option<i64>,
    /// The number of the bucket among those of the table.
    pub share: u16,
    pub key: Key,
}

impl CountPosition {
    /// Before the first entity.
    pub fn start() -> Self {
        Self { layout: None, share: 0, key: Key::new("", "") }
    }
}

/// Entities counted in one step.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CountedPart {
    pub entities: u64,
    /// Where the next step begins; `None` at the end.
    pub next: Option<CountPosition>,
}

store_trait! {
/// Counts of entities: of a part, exactly, and estimates of whole tables, which read no entities.
pub trait Totals {
    /// Counts the entities from a position on, `rows` at most. `None` if the table has got other buckets since
    /// then: what was counted says nothing of what is left, and the count has to begin anew.
    ///
    /// # Errors
    /// `TableNotFound`.
    async fn count_part(
        &self,
        table: TableRef<'_>,
        from: &CountPosition,
        rows: u32,
    ) -> StoreResult<Option<CountedPart>>;

    /// Returns the entities of a table that the planner of the database expects by its statistics; `None` if it
    /// keeps none of single buckets.
    ///
    /// # Errors
    /// `TableNotFound`.
    async fn estimate(&self, table: TableRef<'_>) -> StoreResult<Option<u64>>;
}}

/// How long something is left alone.
const PAUSE: Duration = Duration::from_secs(60);
/// Maximum that is left alone at a time.
const MAX_SET_ASIDE: usize = 1000;

/// Tables or indexes whose last step failed, by their numbers, and until when each is left alone, so that it delays
/// no other.
#[derive(Debug, Default)]
pub struct SetAside(BTreeMap<i64, Instant>);

impl SetAside {
    /// Leaves one alone for a minute; `false` if there is no room.
    pub fn add(&mut self, number: i64) -> bool {
        let has_room = self.0.len() < MAX_SET_ASIDE;
        if has_room {
            self.0.insert(number, Instant::now() + PAUSE);
        }
        has_room
    }

    /// Those that are left alone now.
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
