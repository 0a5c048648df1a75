//! The clock that assigns versions.

use std::sync::atomic::{AtomicI64, Ordering};

use uuid::Uuid;

use crate::protocol::model::Ticks;

/// Minimum distance between two times: 6.4 microseconds. A write that finds a stored version at least as new as its
/// own time takes the tick after that version. The ticks between two times are reserved for such writes. Otherwise,
/// that tick could also be the time of another request in flight, and one ETag would name two versions.
const STEP: i64 = 64;

/// Maximum lag of the system clock behind the last version before it counts as set back: one second. A slewed clock
/// stays within this limit.
const SET_BACK_TICKS: i64 = 10_000_000;

/// Number of ticks by which the offset within the steps changes when the clock is set back. It is odd, so that all 64
/// offsets occur before one repeats. It is large, so that a few consecutive writes that take the next tick do not
/// reach the next offset.
const TURN: i64 = 27;

/// A clock that does not repeat a tick until the system clock has been set back 64 times, so that two writes of this
/// process do not share a version. Two processes seldom share a version, because each has its own offset within the
/// steps. The clock follows a system clock that is set back, and then uses a different offset.
#[derive(Debug)]
pub(crate) struct VersionClock {
    /// The last tick, at first only the offset within a step. The next tick has the same offset within its step.
    last: AtomicI64,
}

impl VersionClock {
    /// Returns the time of a new version: the current time, or the last tick plus a step if that is later by
    /// up to a second.
    pub(crate) fn next_version(&self) -> Ticks {
        self.next_after(|| Ticks::now().raw())
    }

    /// Returns a clock whose last tick lies in the future.
    #[cfg(test)]
    pub(crate) fn ahead(by: std::time::Duration) -> Self {
        let clock = Self::default();
        let ticks = i64::try_from(by.as_nanos() / 100).unwrap();
        clock.next_after(|| Ticks::now().raw() + ticks);
        clock
    }

    fn next_after(&self, system_clock: impl Fn() -> i64) -> Ticks {
        let mut last = self.last.load(Ordering::Relaxed);
        loop {
            // The system clock is read after the last tick, so that a thread that is suspended here does not set the
            // clock back.
            let now = system_clock();
            let step = now - now.rem_euclid(STEP);
            let offset = last.rem_euclid(STEP);
            let is_set_back = last - now > SET_BACK_TICKS;
            let next =
                if is_set_back { step + (offset + TURN) % STEP } else { (step + offset).max(last + STEP) };
            match self.last.compare_exchange_weak(last, next, Ordering::Relaxed, Ordering::Relaxed) {
                Ok(_) => return Ticks::from_raw(next).unwrap_or(Ticks::MAX),
                Err(current) => last = current,
            }
        }
    }
}

impl Default for VersionClock {
    fn default() -> Self {
        let offset = i64::from(Uuid::new_v4().as_bytes()[0]) % STEP;
        Self { last: AtomicI64::new(offset) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::protocol::codec::validated::ValidatedProperties;
    use crate::protocol::model::entity::StoredProperties;
    use crate::protocol::model::{IfMatch, Key, Stored};
    use crate::protocol::plan::{Change, Write, WriteKind, decide};

    #[test]
    fn no_tick_is_assigned_twice() {
        let clock = VersionClock::default();
        let ticks: Vec<Ticks> = (0..10_000).map(|_| clock.next_version()).collect();
        assert!(ticks.windows(2).all(|pair| pair[0] < pair[1]));
    }

    #[test]
    fn a_clock_that_is_set_back_assigns_different_ticks() {
        const HOUR: i64 = 3600 * 10_000_000;
        let (clock, noon) = (VersionClock::default(), 638_000_000_000_000_000);
        let early: Vec<i64> = (0..64).map(|at| clock.next_after(|| noon + at * STEP).raw()).collect();
        let ahead = clock.next_after(|| noon + HOUR).raw();
        let again: Vec<i64> = (0..64).map(|at| clock.next_after(|| noon + at * STEP).raw()).collect();
        assert!(ahead >= noon + HOUR);
        assert!(again.iter().all(|tick| (noon..noon + 65 * STEP).contains(tick)), "{again:?}");
        assert!(again.iter().all(|tick| !early.contains(tick)), "{early:?} {again:?}");
        assert!(again.windows(2).all(|pair| pair[0] < pair[1]));
    }

    /// Of two requests for one row, the one with the later time writes first.
    #[test]
    fn a_late_write_does_not_take_the_version_of_another_request() {
        for read in [638_000_000_000_000_000, 638_000_000_000_000_001, 638_000_000_000_000_063] {
            let clock = VersionClock::default();
            let noon = clock.next_after(|| read).raw();
            // The system clock is slewed back by half a second.
            let [early, late, pending] = [(); 3].map(|()| clock.next_after(|| noon - SET_BACK_TICKS / 2));
            let key = Key::new("p", "r");
            let write = Write {
                kind: WriteKind::Replace(IfMatch::Any),
                key: key.clone(),
                properties: ValidatedProperties::default(),
            };
            let stored = Stored { key, modified: late, properties: StoredProperties::default() };
            let Ok(Change::Put { modified, .. }) = decide(&write, Some(&stored), early) else {
                panic!("the write was refused")
            };
            assert!(late < modified && modified < pending, "{late:?} {modified:?} {pending:?}");
        }
    }
}
