//! The time of requests, and the time that versions are made of.

use std::sync::atomic::{AtomicI64, Ordering};

use uuid::Uuid;

use crate::model::Ticks;

/// Ticks from one that is given to the next at least: 6.4 microseconds. Those
/// between them are left to writes that find a version as new as their own time, and
/// make the one after it. Without them that could be what a request has been given
/// that is not done yet: one ETag would name two versions.
const STEP: i64 = 64;

/// The system's time, as it is now. It may go back, when somebody sets the clock right.
/// Credentials are judged by it.
pub(crate) fn system_time() -> Ticks {
    Ticks::from_utc(chrono::Utc::now())
}

/// A clock that never goes back and never gives one tick twice, so that two writes of
/// this process never share a version by accident. Nor do those of two processes in
/// most cases: each has its own place between the steps.
#[derive(Debug)]
pub(crate) struct VersionClock {
    /// The tick given last; its place is that of all.
    last: AtomicI64,
    place: i64,
}

impl VersionClock {
    /// The current time, or a step after the last tick given.
    pub(crate) fn now(&self) -> Ticks {
        self.give(system_time().raw())
    }

    /// A clock that has already given a tick of the future.
    #[cfg(test)]
    pub(crate) fn ahead(by: std::time::Duration) -> Self {
        let clock = Self::default();
        let ticks = i64::try_from(by.as_nanos() / 100).unwrap();
        clock.give(system_time().raw() + ticks);
        clock
    }

    fn give(&self, read: i64) -> Ticks {
        let read = read - read.rem_euclid(STEP) + self.place;
        let mut last = self.last.load(Ordering::Relaxed);
        loop {
            let next = read.max(last + STEP);
            match self.last.compare_exchange_weak(last, next, Ordering::Relaxed, Ordering::Relaxed) {
                Ok(_) => return Ticks::from_raw(next).unwrap_or(Ticks::MAX),
                Err(other) => last = other,
            }
        }
    }
}

impl Default for VersionClock {
    fn default() -> Self {
        let place = i64::from(Uuid::new_v4().as_bytes()[0]) % STEP;
        Self { last: AtomicI64::new(place), place }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::codec::validated::ValidatedProperties;
    use crate::model::entity::StoredProperties;
    use crate::model::{IfMatch, Key, Stored};
    use crate::plan::{Change, Write, WriteKind, decide};

    #[test]
    fn no_tick_is_given_twice() {
        let clock = VersionClock::default();
        let ticks: Vec<Ticks> = (0..10_000).map(|_| clock.now()).collect();
        assert!(ticks.windows(2).all(|pair| pair[0] < pair[1]));
    }

    /// Of two requests that came before it the later was done first.
    #[test]
    fn a_write_that_comes_late_makes_no_version_that_another_request_was_given() {
        for read in [638_000_000_000_000_000, 638_000_000_000_000_001, 638_000_000_000_000_063] {
            let clock = VersionClock::default();
            let noon = clock.give(read).raw();
            // The time is set back by a second.
            let [early, late, pending] = [(); 3].map(|()| clock.give(noon - 10_000_000));
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
