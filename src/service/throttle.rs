//! Limits the requests per second of each account.

use std::collections::HashMap;
use std::num::NonZeroU32;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Instant;

use arc_swap::ArcSwap;

use super::Service;
use crate::error::{Code, Error, Result};
use crate::observe::metrics::METRICS;
use crate::protocol::auth::AccountSet;
use crate::protocol::request::Target;

/// The time in which an empty bucket fills: one second. A bucket's `busy_until` is at most this far ahead of the clock.
const BURST_NANOS: u64 = 1_000_000_000;

impl Service {
    /// Counts a request of an authenticated account against the limit of the account, if there is one.
    ///
    /// # Errors
    /// [`Code::ServerBusy`] if the account has used up its limit.
    pub(super) fn admit(&self, accounts: &AccountSet, target: &Target) -> Result<()> {
        let limit = accounts.requests_per_second(&target.account).or(self.max_requests_per_second);
        let Some(limit) = limit else { return Ok(()) };
        let now = u64::try_from(self.throttle.started.elapsed().as_nanos()).unwrap_or(u64::MAX);
        if self.throttle.take_token(&target.account, limit, now) {
            return Ok(());
        }
        METRICS.throttled.one();
        Err(Error::with_message(Code::ServerBusy, "Operations per second is over the account limit."))
    }
}

/// The token buckets of the accounts in this process. A bucket holds the tokens of one second and refills
/// continuously. It is stored as one number: the time in nanoseconds since `started` at which the requests so far
/// would have ended at an even rate.
pub(crate) struct Throttle {
    started: Instant,
    /// Only authenticated accounts are added, so the map never exceeds the number of accounts. Reads take no
    /// lock; adding an account copies the map.
    buckets: ArcSwap<HashMap<String, Arc<AtomicU64>>>,
}

impl Default for Throttle {
    fn default() -> Self {
        Self { started: Instant::now(), buckets: ArcSwap::default() }
    }
}

impl Throttle {
    /// Takes a token from the bucket of an account. Returns `false` if the bucket is empty.
    fn take_token(&self, account: &str, per_second: NonZeroU32, now: u64) -> bool {
        let cost = BURST_NANOS / u64::from(per_second.get());
        let known = self.buckets.load();
        let fresh;
        let busy_until = match known.get(account) {
            Some(busy_until) => busy_until,
            None => {
                fresh = self.add_bucket(account);
                &fresh
            }
        };
        let advance = |busy_until: u64| {
            let next = busy_until.max(now) + cost;
            (next <= now + BURST_NANOS).then_some(next)
        };
        busy_until.fetch_update(Ordering::Relaxed, Ordering::Relaxed, advance).is_ok()
    }

    /// Adds a full bucket for an account, unless another thread has just added it.
    fn add_bucket(&self, account: &str) -> Arc<AtomicU64> {
        self.buckets.rcu(|known| {
            let mut known = HashMap::clone(known);
            known.entry(account.to_owned()).or_default();
            known
        });
        self.buckets.load().get(account).cloned().unwrap_or_default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MILLI: u64 = 1_000_000;

    /// A throttle, and the limit of every account.
    struct Limited(Throttle, NonZeroU32);

    impl Limited {
        fn to(per_second: u32) -> Self {
            Self(Throttle::default(), NonZeroU32::new(per_second).unwrap())
        }
    }

    /// Returns how many of a number of requests at the same time are admitted.
    fn count_admitted(Limited(throttle, limit): &Limited, account: &str, requests: usize, now: u64) -> usize {
        (0..requests).filter(|_| throttle.take_token(account, *limit, now)).count()
    }

    #[test]
    fn requests_of_one_second_may_come_at_once_and_then_the_rate_holds() {
        let throttle = Limited::to(10);
        assert_eq!(count_admitted(&throttle, "abc", 100, 0), 10);
        assert_eq!(count_admitted(&throttle, "abc", 100, 99 * MILLI), 0);
        assert_eq!(count_admitted(&throttle, "abc", 100, 100 * MILLI), 1);
        assert_eq!(count_admitted(&throttle, "abc", 100, 350 * MILLI), 2);
        assert_eq!(count_admitted(&throttle, "abc", 100, 60_000 * MILLI), 10, "unused tokens are lost");
        let steady = (0..1000)
            .filter(|at| throttle.0.take_token("abc", throttle.1, (120_000 + at * 10) * MILLI))
            .count();
        assert!((100..=111).contains(&steady), "{steady}");
    }

    #[test]
    fn accounts_have_separate_buckets() {
        let throttle = Limited::to(1);
        assert_eq!(count_admitted(&throttle, "abc", 5, 0), 1);
        assert_eq!(count_admitted(&throttle, "def", 5, 0), 1);
        assert_eq!(count_admitted(&throttle, "abc", 5, 500 * MILLI), 0);
    }

    #[test]
    fn threads_share_a_bucket() {
        let throttle = Limited::to(1000);
        let threads = 8;
        let admitted: usize = std::thread::scope(|scope| {
            let threads: Vec<_> =
                (0..threads).map(|_| scope.spawn(|| count_admitted(&throttle, "abc", 1000, 0))).collect();
            threads.into_iter().map(|thread| thread.join().unwrap()).sum()
        });
        assert_eq!(admitted, 1000);
    }

    #[test]
    fn the_highest_rate_is_accepted() {
        assert_eq!(count_admitted(&Limited::to(u32::MAX), "abc", 1000, 0), 1000);
    }

    #[test]
    fn a_changed_limit_applies_at_once() {
        let Limited(throttle, one) = Limited::to(1);
        let two = NonZeroU32::new(2).unwrap();
        let admitted = |limit, now| (0..5).filter(|_| throttle.take_token("abc", limit, now)).count();
        assert_eq!(admitted(one, 0), 1);
        assert_eq!(admitted(two, 1000 * MILLI), 2);
        assert_eq!(admitted(one, 1000 * MILLI), 0);
        assert_eq!(admitted(one, 2000 * MILLI), 1);
    }
}
