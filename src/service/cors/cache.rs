//! The CORS rules of accounts, remembered for a moment: one request at a time reads
//! them (single-flight), and others go on with stale ones meanwhile.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use tokio::sync::Notify;

use crate::codec::properties::CorsRule;

/// How long a process may go on with rules that another has changed. Rules
/// only tell browsers what to show to pages; they open nothing.
const FRESH: Duration = Duration::from_secs(5);
/// How long others go on with old rules while one request asks for new ones.
const PAUSE: Duration = Duration::from_secs(1);
/// How long a reading for the first time may take before another request asks, too.
const PATIENCE: Duration = Duration::from_secs(30);
/// Accounts that are remembered at most.
const MAX_REMEMBERED: usize = 10_000;

/// Rules as last read, by account.
#[derive(Default)]
pub(crate) struct CorsCache {
    known: Mutex<Known>,
    /// Told whenever something comes to be known or is forgotten.
    changed: Notify,
}

#[derive(Default)]
struct Known {
    rules: HashMap<String, Remembered>,
    /// That of the last reading for the first time.
    age: Age,
}

/// Until when nobody has to ask for an account's rules, the rules, unless they are
/// being read for the first time, and the reading that may replace them.
type Remembered = (Instant, Option<Arc<[CorsRule]>>, Age);

/// What is remembered of an account.
#[derive(Debug)]
pub(crate) enum Memory {
    Fresh(Arc<[CorsRule]>),
    /// They were so, and whoever is told this is to ask again.
    Old(Arc<[CorsRule]>, Age),
    /// Whoever is told this is to ask.
    Unknown(Age),
    /// Another request has asked, and [`CorsCache::told`] waits for what it learns.
    Asked,
}

/// Tells a reading from those before: what was forgotten since is not remembered. Each
/// account has its own, so that no change of one keeps those who wait for another.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) struct Age(u64);

impl CorsCache {
    /// What is remembered of an account; where it is to be read, with what
    /// [`CorsCache::put`] wants to know then. One request at a time is told to read.
    pub(crate) fn get(&self, account: &str) -> Memory {
        self.get_at(account, Instant::now())
    }

    fn get_at(&self, account: &str, now: Instant) -> Memory {
        let mut known = self.known();
        match known.rules.get_mut(account) {
            Some((until, rules, _)) if *until > now => {
                rules.as_ref().map_or(Memory::Asked, |rules| Memory::Fresh(Arc::clone(rules)))
            }
            Some((until, Some(rules), age)) => {
                *until = now + PAUSE;
                Memory::Old(Arc::clone(rules), *age)
            }
            Some((_, None, _)) | None => {
                let age = Age(known.age.0 + 1);
                known.age = age;
                known.insert(account, (now + PATIENCE, None, age));
                Memory::Unknown(age)
            }
        }
    }

    /// Returns once nobody is asking for an account any more. Whoever waits says for how
    /// long: the one who asks may be gone with its thread.
    pub(crate) async fn told(&self, account: &str) {
        loop {
            // Told of all that changes from here on, before it is waited for.
            let changed = self.changed.notified();
            let is_asked = |(until, rules, _): &Remembered| rules.is_none() && *until > Instant::now();
            if !self.known().rules.get(account).is_some_and(is_asked) {
                return;
            }
            changed.await;
        }
    }

    /// Remembers what was just read, unless it may be what was forgotten since.
    pub(crate) fn put(&self, account: &str, rules: Arc<[CorsRule]>, age: Age) {
        self.change(|known| {
            if known.rules.get(account).is_some_and(|(.., own)| *own == age) {
                known.insert(account, (Instant::now() + FRESH, Some(rules), age));
            }
        });
    }

    /// Notes that the rules of an account could not be read: another request may ask.
    pub(crate) fn failed(&self, account: &str) {
        self.change(|known| {
            if known.rules.get(account).is_some_and(|(_, rules, _)| rules.is_none()) {
                known.rules.remove(account);
            }
        });
    }

    /// Forgets an account whose rules were just changed.
    pub(crate) fn forget(&self, account: &str) {
        self.change(|known| drop(known.rules.remove(account)));
    }

    /// Forgets every account.
    pub(crate) fn forget_all(&self) {
        self.change(|known| known.rules.clear());
    }

    fn change(&self, change: impl FnOnce(&mut Known)) {
        change(&mut self.known());
        self.changed.notify_waiters();
    }

    fn known(&self) -> MutexGuard<'_, Known> {
        self.known.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Known {
    fn insert(&mut self, account: &str, remembered: Remembered) {
        if self.rules.len() >= MAX_REMEMBERED {
            self.rules.clear();
        }
        self.rules.insert(account.to_owned(), remembered);
    }
}

#[cfg(test)]
mod tests {
    use futures_util::FutureExt as _;

    use super::*;

    fn rules() -> Arc<[CorsRule]> {
        [CorsRule { origins: vec!["http://a".to_owned()], ..CorsRule::default() }].into()
    }

    #[test]
    fn what_was_read_before_rules_changed_is_not_remembered() {
        let cache = CorsCache::default();
        let rules = rules();
        let unknown = |cache: &CorsCache| match cache.get("a") {
            Memory::Unknown(age) => age,
            known => panic!("{known:?}"),
        };
        for forget in [|cache: &CorsCache| cache.forget("a"), CorsCache::forget_all] {
            let age = unknown(&cache);
            forget(&cache);
            cache.put("a", Arc::clone(&rules), age);
            cache.put("a", Arc::clone(&rules), unknown(&cache));
            assert!(matches!(cache.get("a"), Memory::Fresh(rules) if rules.len() == 1));
            forget(&cache);
            unknown(&cache);
            cache.failed("a");
        }
    }

    #[test]
    fn a_neighbour_that_changes_its_rules_keeps_nobody_waiting() {
        let cache = CorsCache::default();
        let Memory::Unknown(age) = cache.get("a") else { panic!("nobody has asked") };
        cache.forget("b");
        cache.put("a", Arc::default(), age);
        assert!(matches!(cache.get("a"), Memory::Fresh(_)));
    }

    #[tokio::test]
    async fn one_asks_for_rules_that_nobody_knows_and_others_wait_for_it() {
        let cache = CorsCache::default();
        let rules = rules();
        let Memory::Unknown(_) = cache.get("a") else { panic!("nobody has asked") };
        let is_told = |cache: &CorsCache| cache.told("a").now_or_never().is_some();
        assert!(matches!(cache.get("a"), Memory::Asked) && !is_told(&cache));
        assert!(matches!(cache.get("b"), Memory::Unknown(_)), "another account");
        cache.failed("a");
        assert!(is_told(&cache));
        let Memory::Unknown(age) = cache.get("a") else { panic!("it failed") };
        let waiting = cache.told("a");
        tokio::join!(waiting, async { cache.put("a", Arc::clone(&rules), age) });
        assert!(matches!(cache.get("a"), Memory::Fresh(_)));
        // A reading of which nothing was heard does not keep others from asking for ever.
        cache.forget("a");
        let now = Instant::now();
        assert!(matches!(cache.get_at("a", now), Memory::Unknown(_)));
        assert!(matches!(cache.get_at("a", now + PATIENCE), Memory::Unknown(_)));
    }

    #[test]
    fn one_asks_for_rules_that_are_old_and_others_go_on_with_them() {
        let cache = CorsCache::default();
        let Memory::Unknown(age) = cache.get("a") else { panic!("nothing was read") };
        cache.put("a", rules(), age);
        let later = Instant::now() + FRESH;
        assert!(
            matches!(cache.get_at("a", later), Memory::Old(rules, now) if rules.len() == 1 && now == age)
        );
        assert!(matches!(cache.get_at("a", later), Memory::Fresh(rules) if rules.len() == 1));
        // Whoever asked got no answer.
        assert!(matches!(cache.get_at("a", later + PAUSE), Memory::Old(..)));
        cache.put("a", [].into(), age);
        assert!(matches!(cache.get("a"), Memory::Fresh(rules) if rules.is_empty()));
    }
}
