//! The state of a follower, kept between rounds and runs.

use std::collections::BTreeMap;
use std::time::Duration;

use serde::{Deserialize, Serialize};

use super::refused::RefusedState;
use crate::copy::checkpoint::Checkpoint;
use crate::error::{TransferResult, failed};
use crate::protocol::model::Ticks;
use crate::protocol::model::ticks::TICKS_PER_SECOND;

/// Maximum age of a Timestamp, by the clock of its place, when its entity becomes visible: 30 s of a request, and 90 s
/// between the clocks of servers.
const OVERLAP: i64 = 120 * TICKS_PER_SECOND;
/// Maximum step back of the clock of a place between two answers, which different servers may give. The overlap covers
/// this step.
const MAX_BACKWARD: i64 = OVERLAP / 2;
/// Maximum entities of a small table, whose keys ten requests read completely: a page has 1000 keys.
const SMALL_TABLE: u64 = 10_000;

/// A table that the follower copies. Times are those of the source.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
pub(super) struct FollowedTable {
    /// The number of entities at the last comparison of keys.
    pub entities: Option<u64>,
    /// The time when the last complete comparison of keys began.
    pub keys_compared: Option<i64>,
    /// The time when the policies were last compared.
    pub policies_compared: Option<i64>,
    /// The number of rounds that have written to the table.
    pub writes: u64,
    /// `writes` when the last comparison of keys began; `None` unless that comparison ended with equal keys.
    pub compared_writes: Option<u64>,
    /// Whether the next round reads the table completely.
    pub is_new: bool,
    /// The time when a comparison of keys last began, successful or not.
    pub attempted: Option<i64>,
}

impl FollowedTable {
    /// Returns a table that the next round reads completely.
    pub(super) fn new() -> Self {
        Self { is_new: true, ..Self::default() }
    }

    /// Whether a few requests read the keys of the whole table.
    pub(super) fn is_small(&self) -> bool {
        self.entities.is_some_and(|entities| entities <= SMALL_TABLE)
    }

    /// Whether the last comparison did not end with equal keys, or a round has written since its begin.
    pub(super) fn needs_keys(&self) -> bool {
        self.compared_writes != Some(self.writes)
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
    /// The shortest distance from the latest Timestamp to the clock of the source at the end of a reading, in ticks.
    /// Timestamps of later writes may lag behind the clock as far.
    pub lag: Option<i64>,
    /// The time of the source when the last round proved that both places are equal; `None` after later rounds.
    pub proved_at: Option<i64>,
    pub tables: BTreeMap<String, FollowedTable>,
    /// Entities that the target did not accept.
    pub refused: RefusedState,
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
    /// All entities, because Timestamps cannot show which ones have changed.
    Beginning,
}

impl FollowState {
    pub(super) fn load(checkpoint: &Checkpoint) -> TransferResult<Self> {
        let Some(text) = checkpoint.follow_state()? else { return Ok(Self::default()) };
        let read = serde_json::from_str(&text);
        let mut state: Self =
            read.map_err(|error| failed!("the state file: {error}; begin again with --restart"))?;
        if state.is_in_round {
            state.tables.values_mut().for_each(|table| table.writes += 1);
        }
        Ok(state)
    }

    pub(super) fn save(&self, checkpoint: &Checkpoint) -> TransferResult<()> {
        let text = serde_json::to_string(self).map_err(|error| failed!("the state file: {error}"))?;
        checkpoint.set_follow_state(&text)
    }

    /// Returns the entities to read in a round that begins at `now` by the clock of the source. The clock of this
    /// machine does not matter. A Timestamp ahead of the source's clock shows that the clocks of its servers differ, so
    /// other Timestamps may lag behind as far.
    pub(super) fn since(&self, now: Ticks, max_lag: Option<i64>) -> Since {
        let (Some(read_at), Some(newest), Some(lag)) = (self.read_at, self.newest, self.lag) else {
            return Since::Beginning;
        };
        if now.raw() < read_at - MAX_BACKWARD {
            return Since::Beginning;
        }
        let lag = max_lag.map_or(lag, |max_lag| lag.min(max_lag));
        let lead = (newest - read_at).max(0);
        let since = read_at.saturating_sub(lag).saturating_sub(lead).saturating_sub(OVERLAP);
        Since::Time(Ticks::MIN.later(since.saturating_sub(Ticks::MIN.raw()).max(0)))
    }

    /// Records why a setting could not be compared, or that it was compared.
    pub(super) fn set_unread(&mut self, what: &str, reason: Option<String>) {
        match reason {
            Some(reason) => drop(self.unread.insert(what.to_owned(), reason)),
            None => drop(self.unread.remove(what)),
        }
    }

    /// Records a complete reading, with the times of the source when it began and ended.
    pub(super) fn note_reading(&mut self, [begin, end]: [i64; 2], newest: Option<i64>) {
        self.newest = self.newest.max(newest);
        let lag = self.newest.map(|newest| end.saturating_sub(newest).max(0));
        self.lag = self.lag.into_iter().chain(lag).min();
        self.read_at = Some(begin);
    }

    /// Returns the table with the oldest comparison of keys, unless that comparison began within `pause` before `now`.
    pub(super) fn next_to_compare(&mut self, now: Ticks, pause: Duration) -> Option<String> {
        let pause = i64::try_from(pause.as_secs()).unwrap_or(i64::MAX).saturating_mul(TICKS_PER_SECOND);
        let begun = |table: &FollowedTable| table.attempted.max(table.keys_compared);
        let ready = self.tables.iter_mut().filter(|(_, table)| !table.is_new);
        let (name, table) = ready.min_by_key(|(_, table)| begun(table))?;
        if begun(table).is_some_and(|begun| begun.saturating_add(pause) > now.raw()) {
            return None;
        }
        table.attempted = Some(now.raw());
        Some(name.clone())
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
        let since_within = |max_lag: Option<i64>, read_at, (newest, lag), now| {
            let [read_at, newest] = [read_at, newest].map(|seconds| Some(at(seconds)));
            let lag = Some(lag * TICKS_PER_SECOND);
            let state = FollowState { read_at, newest, lag, ..FollowState::default() };
            match state.since(Ticks::from_raw(at(now)).unwrap(), max_lag) {
                Since::Time(time) => Some((time.raw() - at(0)) / TICKS_PER_SECOND),
                Since::Beginning => None,
            }
        };
        let since = |read_at, newest, now| since_within(None, read_at, newest, now);
        assert_eq!(since(0, (-1, 1), 5), Some(-121));
        assert_eq!(since_within(Some(at(900) - at(0)), 0, (-5000, 5000), 5), Some(-1020));
        assert_eq!(
            since(0, (-5000, 5000), 5),
            Some(-5120),
            "Timestamps may lag behind the dates of a gateway"
        );
        assert_eq!(since(0, (-5000, 3), 5), Some(-123), "they did not lag before");
        assert_eq!(since(0, (300, 0), 5), Some(-420), "a server's clock is 300 s ahead");
        assert_eq!(since(0, (-1, 1), -50), Some(-121), "servers take turns with answers");
        assert_eq!(since(0, (-1, 1), -61), None, "the clock went back");
        let unread = FollowState { read_at: Some(at(0)), ..FollowState::default() };
        assert_eq!(unread.since(Ticks::now(), None), Since::Beginning);
    }

    #[test]
    fn the_lag_of_timestamps_is_the_shortest_that_was_seen() {
        let mut state = FollowState::default();
        let mut read = |begin, end, newest| {
            state.note_reading([begin, end].map(at), Some(at(newest)));
            state.lag.map(|lag| lag / TICKS_PER_SECOND)
        };
        assert_eq!(read(0, 60, -600), Some(660));
        assert_eq!(read(100, 101, 99), Some(2));
        assert_eq!(read(1000, 1001, 99), Some(2));
        assert_eq!(read(1010, 1010, 1020), Some(0));
    }

    #[test]
    fn tables_are_compared_in_turn_and_not_all_the_time() {
        let table = |keys_compared| FollowedTable { keys_compared, ..FollowedTable::default() };
        let [a, b] = [Some(at(-100)), Some(at(-50))];
        let tables = [("a", a), ("b", b)].map(|(name, at)| (name.to_owned(), table(at))).into();
        let mut state = FollowState { tables, ..FollowState::default() };
        let now = Ticks::from_raw(at(0)).unwrap();
        assert_eq!(state.next_to_compare(now, Duration::from_secs(101)), None);
        assert_eq!(state.next_to_compare(now, Duration::from_secs(40)).as_deref(), Some("a"));
        assert_eq!(
            state.next_to_compare(now, Duration::from_secs(40)).as_deref(),
            Some("b"),
            "a may have failed"
        );
        state.tables.insert("c".into(), table(None));
        state.tables.insert("d".into(), FollowedTable::new());
        assert_eq!(state.next_to_compare(now, Duration::from_secs(40)).as_deref(), Some("c"));
        assert_eq!(state.next_to_compare(now, Duration::from_secs(40)), None);
    }
}
