//! The time that versions are made of.

use std::sync::atomic::{AtomicI64, Ordering};

use uuid::Uuid;

use crate::protocol::model::Ticks;

/// Minimum ticks between two times: 6.4 microseconds. The ticks between are left to writes that
/// find a version as new as their own time and take the next tick. Otherwise that tick could also
/// be the time of another request in flight, and one ETag would name two versions.
const STEP: i64 = 64;

/// A clock that never goes back and never returns one tick twice, so that two writes of this
/// process never share a version. Two processes seldom share one: each has its own offset within
/// the steps.
#[derive(Debug)]
pub(crate) struct VersionClock {
    /// The last tick; its offset is that of all ticks.
    last: AtomicI64,
    place: i64,
}

impl VersionClock {
    /// Returns the time of a new version: the current one, or the last tick plus a step if that is later.
    /// It may be ahead for long, so nothing else is measured by it.
    pub(crate) fn next_version(&self) -> Ticks {
        self.give(Ticks::now().raw())
    }

    /// Returns a clock whose last tick lies in the future.
    #[cfg(test)]
    pub(crate) fn ahead(by: std::time::Duration) -> Self {
        let clock = Self::default();
        let ticks = i64::try_from(by.as_nanos() / 100).unwrap();
        clock.give(Ticks::now().raw() + ticks);
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
    use crate::protocol::codec::validated::ValidatedProperties;
    use crate::protocol::model::entity::StoredProperties;
    use crate::protocol::model::{IfMatch, Key, Stored};
    use crate::protocol::plan::{Change, Write, WriteKind, decide};

    #[test]
    fn no_tick_is_given_twice() {
        let clock = VersionClock::default();
        let ticks: Vec<Ticks> = (0..10_000).map(|_| clock.next_version()).collect();
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
