//! How many requests each account may make.

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Instant;

use arc_swap::ArcSwap;

use super::Service;
use crate::error::{Code, Error, Result};
use crate::metrics::METRICS;
use crate::request::Target;

/// Nanoseconds of requests that an account may be ahead of the clock.
const BURST: u64 = 1_000_000_000;

impl Service {
    /// Counts a request of an account that has proven itself, where that is limited.
    ///
    /// # Errors
    /// [`Code::ServerBusy`] where the account has had its share.
    pub(super) fn admit(&self, target: &Target) -> Result<()> {
        self.throttle.as_ref().map_or(Ok(()), |throttle| throttle.admit(&target.account))
    }
}

/// The allowances of the accounts in this process. Each is one number: when the
/// requests so far would have ended if they had come evenly spread. That is as a
/// bucket of tokens for one second, which fills all the time.
pub(crate) struct Throttle {
    /// Nanoseconds that one request stands for.
    cost: u64,
    begun: Instant,
    /// Only those that have proven themselves ever get in, so there are no more
    /// than accounts. Read without a lock; copied when one comes for the first
    /// time.
    accounts: ArcSwap<HashMap<String, Arc<AtomicU64>>>,
}

impl Throttle {
    /// So many requests a second for each account; 0 counts as 1.
    pub(crate) fn new(per_second: u32) -> Self {
        let cost = BURST / u64::from(per_second.max(1));
        Self { cost, begun: Instant::now(), accounts: ArcSwap::default() }
    }

    /// Counts a request of an account that has proven itself.
    ///
    /// # Errors
    /// [`Code::ServerBusy`] where the account has had its share.
    pub(crate) fn admit(&self, account: &str) -> Result<()> {
        let now = u64::try_from(self.begun.elapsed().as_nanos()).unwrap_or(u64::MAX);
        if self.takes(account, now) {
            return Ok(());
        }
        METRICS.throttled.one();
        Err(Error::with_message(Code::ServerBusy, "Operations per second is over the account limit."))
    }

    /// Whether there is something left at this time, in nanoseconds, and takes it.
    fn takes(&self, account: &str, now: u64) -> bool {
        let known = self.accounts.load();
        let fresh;
        let until = match known.get(account) {
            Some(until) => until,
            None => {
                fresh = self.come(account);
                &fresh
            }
        };
        let later = |until: u64| {
            let next = until.max(now) + self.cost;
            (next <= now + BURST).then_some(next)
        };
        until.fetch_update(Ordering::Relaxed, Ordering::Relaxed, later).is_ok()
    }

    /// The allowance of an account that comes for the first time.
    fn come(&self, account: &str) -> Arc<AtomicU64> {
        self.accounts.rcu(|known| {
            let mut known = HashMap::clone(known);
            known.entry(account.to_owned()).or_default();
            known
        });
        self.accounts.load().get(account).cloned().unwrap_or_default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MILLI: u64 = 1_000_000;

    /// How many of so many requests at this time are let in.
    fn of(throttle: &Throttle, account: &str, requests: usize, now: u64) -> usize {
        (0..requests).filter(|_| throttle.takes(account, now)).count()
    }

    #[test]
    fn a_second_of_requests_may_come_at_once_and_then_the_rate_holds() {
        let throttle = Throttle::new(10);
        assert_eq!(of(&throttle, "abc", 100, 0), 10);
        assert_eq!(of(&throttle, "abc", 100, 99 * MILLI), 0);
        assert_eq!(of(&throttle, "abc", 100, 100 * MILLI), 1);
        assert_eq!(of(&throttle, "abc", 100, 350 * MILLI), 2);
        assert_eq!(of(&throttle, "abc", 100, 60_000 * MILLI), 10, "what was not used is not saved up");
        let steady = (0..1000).filter(|at| throttle.takes("abc", (120_000 + at * 10) * MILLI)).count();
        assert!((100..=111).contains(&steady), "{steady}");
    }

    #[test]
    fn accounts_have_allowances_of_their_own() {
        let throttle = Throttle::new(1);
        assert_eq!(of(&throttle, "abc", 5, 0), 1);
        assert_eq!(of(&throttle, "def", 5, 0), 1);
        assert_eq!(of(&throttle, "abc", 5, 500 * MILLI), 0);
    }

    #[test]
    fn threads_share_an_allowance() {
        let throttle = Throttle::new(1000);
        let threads = 8;
        let admitted: usize = std::thread::scope(|scope| {
            let threads: Vec<_> =
                (0..threads).map(|_| scope.spawn(|| of(&throttle, "abc", 1000, 0))).collect();
            threads.into_iter().map(|thread| thread.join().unwrap()).sum()
        });
        assert_eq!(admitted, 1000);
    }

    #[test]
    fn the_highest_rate_and_none_are_taken() {
        assert_eq!(of(&Throttle::new(u32::MAX), "abc", 1000, 0), 1000);
        assert_eq!(of(&Throttle::new(0), "abc", 10, 0), 1);
    }
}
