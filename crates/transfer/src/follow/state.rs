//! The state of a follower between its rounds, and after it was killed.

use std::collections::BTreeMap;
use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::copy::checkpoint::Checkpoint;
use crate::error::{TransferResult, failed};
use crate::protocol::model::Ticks;
use crate::protocol::model::ticks::TICKS_PER_SECOND;

/// How far a Timestamp may lie behind the clock of its place when its entity becomes visible: a request of 30 s, and
/// servers whose clocks differ by 90 s.
const OVERLAP: i64 = 120 * TICKS_PER_SECOND;
/// How far the clock of a place may go back between two readings, because its servers take turns with answers. The
/// overlap covers it.
const MAX_BACKWARD: i64 = OVERLAP / 2;
/// How far the Timestamps of a place may lag behind its dates. Servers refuse requests whose date differs from their
/// clock by more than 15 minutes, so their own clocks hardly differ by more.
const MAX_LAG: i64 = 900 * TICKS_PER_SECOND;
/// Tables with at most this many entities are read completely by one request.
const SMALL_TABLE: u64 = 1000;

/// A table that the follower copies. Times are those of the source.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
pub(super) struct FollowedTable {
    /// The number of entities at the last comparison of keys.
    pub entities: Option<u64>,
    /// The time when the last complete comparison of keys began.
    pub keys_compared: Option<i64>,
    /// The time when the policies were last compared.
    pub policies_compared: Option<i64>,
    /// Whether an entity was written since the last comparison of keys began.
    pub has_changed: bool,
}

impl FollowedTable {
    /// Whether one request reads the whole table.
    pub(super) fn is_small(&self) -> bool {
        self.entities.is_some_and(|entities| entities <= SMALL_TABLE)
    }

    /// Whether deleted entities may have remained in the target.
    pub(super) const fn needs_keys(&self) -> bool {
        self.has_changed || self.keys_compared.is_none()
    }
}

#[derive(Debug, Clone, Default, Serialize, Deserialize)]
pub(super) struct FollowState {
    /// Whether the initial copy is complete.
    pub is_copied: bool,
    /// The time of the source when the last complete round began.
    pub read_at: Option<i64>,
    /// The latest Timestamp of all entities that were read.
    pub newest: Option<i64>,
    pub tables: BTreeMap<String, FollowedTable>,
    /// Entities that the target did not accept.
    pub rejected: u64,
    /// Settings that could not be compared, by their names, with the reasons.
    pub unread: BTreeMap<String, String>,
    /// Whether a round has begun and not ended. Its writes are then unknown.
    pub is_in_round: bool,
}

/// The entities that a round reads.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Since {
    /// The entities that changed at this time or later.
    Time(Ticks),
    /// All entities, because a clock does not show which entities have changed.
    Beginning,
}

impl FollowState {
    pub(super) fn load(checkpoint: &Checkpoint) -> TransferResult<Self> {
        let Some(text) = checkpoint.follow_state()? else { return Ok(Self::default()) };
        let read = serde_json::from_str(&text);
        let mut state: Self =
            read.map_err(|error| failed!("the state file: {error}; remove it to begin again"))?;
        if state.is_in_round {
            state.tables.values_mut().for_each(|table| table.has_changed = true);
        }
        Ok(state)
    }

    pub(super) fn save(&self, checkpoint: &Checkpoint) -> TransferResult<()> {
        let text = serde_json::to_string(self).map_err(|error| failed!("the state file: {error}"))?;
        checkpoint.set_follow_state(&text)
    }

    /// Returns the entities to read in a round that begins at `now` by the clock of the source. The clock of this
    /// machine does not matter. A Timestamp that is ahead of the source's clock shows that the clocks of its servers
    /// differ.
    pub(super) fn since(&self, now: Ticks) -> Since {
        let (Some(read_at), Some(newest)) = (self.read_at, self.newest) else { return Since::Beginning };
        if now.raw() < read_at - MAX_BACKWARD {
            return Since::Beginning;
        }
        let lead = (newest - read_at).max(0);
        let lag = (read_at - newest).clamp(0, MAX_LAG);
        let since = (read_at - lag).saturating_sub(OVERLAP).saturating_sub(lead);
        Since::Time(Ticks::MIN.later(since.saturating_sub(Ticks::MIN.raw()).max(0)))
    }

    /// Returns the table whose keys were compared first, unless all were compared within `pause` before `now`.
    pub(super) fn next_to_compare(&self, now: Ticks, pause: Duration) -> Option<String> {
        let pause = i64::try_from(pause.as_secs()).unwrap_or(i64::MAX).saturating_mul(TICKS_PER_SECOND);
        let (name, table) = self.tables.iter().min_by_key(|(_, table)| table.keys_compared)?;
        let is_due = table.keys_compared.is_none_or(|compared| compared.saturating_add(pause) <= now.raw());
        is_due.then(|| name.clone())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(seconds: i64) -> i64 {
        Ticks::now().raw() / TICKS_PER_SECOND * TICKS_PER_SECOND + seconds * TICKS_PER_SECOND
    }

    #[test]
    fn a_round_overlaps_the_last_one_by_the_clocks_of_the_source() {
        let since = |read_at, newest, now| {
            let [read_at, newest] = [read_at, newest].map(|seconds| Some(at(seconds)));
            let state = FollowState { read_at, newest, ..FollowState::default() };
            match state.since(Ticks::from_raw(at(now)).unwrap()) {
                Since::Time(time) => Some((time.raw() - at(0)) / TICKS_PER_SECOND),
                Since::Beginning => None,
            }
        };
        assert_eq!(since(0, -1, 5), Some(-121));
        assert_eq!(since(0, -500, 5), Some(-620), "Timestamps may lag behind the dates of a gateway");
        assert_eq!(since(0, -5000, 5), Some(-1020), "nothing was written for a long time");
        assert_eq!(since(0, 300, 5), Some(-420), "a server's clock is 300 s ahead");
        assert_eq!(since(0, -1, -50), Some(-121), "servers take turns with answers");
        assert_eq!(since(0, -1, -61), None, "the clock went back");
        let unread = FollowState { read_at: Some(at(0)), ..FollowState::default() };
        assert_eq!(unread.since(Ticks::now()), Since::Beginning);
    }

    #[test]
    fn tables_are_compared_in_turn_and_not_all_the_time() {
        let table = |keys_compared| FollowedTable { keys_compared, ..FollowedTable::default() };
        let [a, b] = [Some(at(-100)), Some(at(-50))];
        let tables = [("a", a), ("b", b)].map(|(name, at)| (name.to_owned(), table(at))).into();
        let mut state = FollowState { tables, ..FollowState::default() };
        let now = Ticks::from_raw(at(0)).unwrap();
        assert_eq!(state.next_to_compare(now, Duration::from_secs(60)).as_deref(), Some("a"));
        assert_eq!(state.next_to_compare(now, Duration::from_secs(101)), None);
        state.tables.insert("c".into(), table(None));
        assert_eq!(state.next_to_compare(now, Duration::from_secs(101)).as_deref(), Some("c"));
    }
}
