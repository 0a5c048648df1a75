//! The time by which entities expire and kept tables are purged.

use std::time::{Duration, Instant};

use crate::observe::metrics::warning_limiter::{DueWarning, WarningLimiter};
use crate::protocol::model::Ticks;
use crate::protocol::model::ticks::TICKS_PER_SECOND;
use crate::store::{Failure, Store};

/// Ticks by which a clock may differ from the time that has passed before it counts as set.
const TOLERANCE: i64 = 2 * TICKS_PER_SECOND;
/// A clock that stays ahead for this long is right: the machine was suspended, or the clock had been behind.
const DOUBT: Duration = Duration::from_secs(600);
/// The clocks of a server and of its database differ by less.
const SKEW: i64 = 60 * TICKS_PER_SECOND;

static SKEWED: WarningLimiter = WarningLimiter::new();

/// The earlier of two clocks, the server's and the database's, as long as it advances as the time that passes.
/// Deletions that depend on the time are for good, so they never depend on a single reading.
#[derive(Debug, Default)]
pub(crate) struct TrustedClock {
    trusted: Option<(Ticks, Instant)>,
    ahead_since: Option<Instant>,
    /// When the first reading of the present, consistent ones was made.
    steady_since: Option<Instant>,
}

impl TrustedClock {
    /// Reads the clocks. While they are ahead of the time that has passed, returns the time by the latter.
    pub(crate) async fn read(&mut self, store: &Store) -> Result<Ticks, Failure> {
        let database = store.clock().await?;
        let own = Ticks::now();
        if let Some(database) = database
            && (own.raw() - database.raw()).abs() > SKEW
            && let Some(DueWarning { left_out }) = SKEWED.due()
        {
            let seconds = (own.raw() - database.raw()) / TICKS_PER_SECOND;
            tracing::warn!(
                seconds,
                left_out,
                "the clock of this server is ahead of the database's by these seconds (negative: behind); synchronize both"
            );
        }
        Ok(self.judge(database.map_or(own, |database| database.min(own)), Instant::now()))
    }

    /// How long readings have been consistent.
    pub(crate) fn steady_for(&self) -> Duration {
        self.steady_since.map_or(Duration::ZERO, |since| since.elapsed())
    }

    fn judge(&mut self, now: Ticks, at: Instant) -> Ticks {
        let Some(expected) = self.expected(at) else { return self.trust(now, at) };
        let (earliest, latest) = (expected.later(-TOLERANCE), expected.later(TOLERANCE));
        if !(earliest..=latest).contains(&now) {
            self.steady_since = None;
        }
        if now <= latest {
            return self.trust(now, at);
        }
        let since = *self.ahead_since.get_or_insert_with(|| {
            tracing::warn!(
                time = now.to_canonical(),
                expected = expected.to_canonical(),
                "the clock jumped ahead; nothing expires until the clock has stayed ahead for ten minutes"
            );
            at
        });
        if at.saturating_duration_since(since) < DOUBT { expected } else { self.trust(now, at) }
    }

    /// The last trusted time, and what has passed since then.
    fn expected(&self, at: Instant) -> Option<Ticks> {
        let (time, then) = self.trusted?;
        let passed = at.saturating_duration_since(then).as_nanos() / 100;
        Some(time.later(i64::try_from(passed).unwrap_or(i64::MAX)))
    }

    fn trust(&mut self, now: Ticks, at: Instant) -> Ticks {
        self.trusted = Some((now, at));
        self.ahead_since = None;
        self.steady_since.get_or_insert(at);
        now
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const DAY: i64 = 86_400 * TICKS_PER_SECOND;

    fn noon() -> Ticks {
        Ticks::parse("2026-01-01T12:00:00Z").unwrap()
    }

    #[test]
    fn a_clock_that_is_ahead_for_a_while_is_not_followed() {
        let (mut clock, start) = (TrustedClock::default(), Instant::now());
        let at = |seconds: u64| start + Duration::from_secs(seconds);
        let true_time = |seconds: u64| noon().later(seconds.cast_signed() * TICKS_PER_SECOND);
        assert_eq!(clock.judge(noon(), start), noon());
        for seconds in [5, 10, 15] {
            assert_eq!(clock.judge(true_time(seconds).later(8 * DAY), at(seconds)), true_time(seconds));
            assert_eq!(clock.steady_since, None);
        }
        assert_eq!(clock.judge(true_time(20), at(20)), true_time(20));
        assert_eq!(clock.steady_since, Some(at(20)));
    }

    #[test]
    fn a_clock_that_stays_ahead_is_followed_after_ten_minutes() {
        let (mut clock, start) = (TrustedClock::default(), Instant::now());
        clock.judge(noon(), start);
        let ahead = noon().later(DAY);
        assert_eq!(clock.judge(ahead, start), noon());
        let later = clock.judge(ahead, start + DOUBT - Duration::from_secs(1));
        assert_eq!(later, noon().later(599 * TICKS_PER_SECOND));
        assert_eq!(clock.judge(ahead, start + DOUBT), ahead);
    }

    #[test]
    fn a_clock_that_is_set_back_is_followed_at_once() {
        let (mut clock, start) = (TrustedClock::default(), Instant::now());
        clock.judge(noon().later(DAY), start);
        let later = start + Duration::from_secs(5);
        assert_eq!(clock.judge(noon(), later), noon());
        assert_eq!(clock.steady_since, Some(later), "the former readings prove nothing");
    }
}
