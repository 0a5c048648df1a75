//! Requests from pages of other origins (protocol §11.3).

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use tokio::sync::Notify;

use crate::codec::properties::CorsRule;
use crate::error::{Code, Result};
use crate::request::Head;

/// How long a process may go on with rules that another has changed. Rules
/// only tell browsers what to show to pages; they open nothing.
const FRESH: Duration = Duration::from_secs(5);
/// How long others go on with old rules while one request asks for new ones.
const PAUSE: Duration = Duration::from_secs(1);
/// How long a reading for the first time may take before another request asks, too.
const PATIENCE: Duration = Duration::from_secs(30);
/// Headers that a page may ask for at most: each is compared with those of the rules,
/// for whoever asks.
const MAX_ASKED: usize = 256;
/// Accounts that are remembered at most.
const MAX_REMEMBERED: usize = 10_000;

/// Rules as last read, by account.
#[derive(Default)]
pub struct CorsCache {
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
pub enum Memory {
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
pub struct Age(u64);

impl CorsCache {
    /// What is remembered of an account; where it is to be read, with what
    /// [`CorsCache::put`] wants to know then. One request at a time is told to read.
    pub fn get(&self, account: &str) -> Memory {
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
    pub async fn told(&self, account: &str) {
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
    pub fn put(&self, account: &str, rules: Arc<[CorsRule]>, age: Age) {
        self.change(|known| {
            if known.rules.get(account).is_some_and(|(.., own)| *own == age) {
                known.insert(account, (Instant::now() + FRESH, Some(rules), age));
            }
        });
    }

    /// Notes that the rules of an account could not be read: another request may ask.
    pub fn failed(&self, account: &str) {
        self.change(|known| {
            if known.rules.get(account).is_some_and(|(_, rules, _)| rules.is_none()) {
                known.rules.remove(account);
            }
        });
    }

    /// Forgets an account whose rules were just changed.
    pub fn forget(&self, account: &str) {
        self.change(|known| drop(known.rules.remove(account)));
    }

    /// Forgets every account.
    pub fn forget_all(&self) {
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

/// Headers to add to an answer.
pub type Headers = Vec<(&'static str, String)>;

/// What a rule names that allows every origin.
const ANY: &str = "*";
const ALLOW_ORIGIN: &str = "Access-Control-Allow-Origin";
const ALLOW_CREDENTIALS: &str = "Access-Control-Allow-Credentials";

/// The answer to a preflight request.
///
/// # Errors
/// [`Code::CorsHeaderMissing`] without Origin or method,
/// [`Code::CorsPreflightFailure`] without a rule that matches.
pub fn preflight(head: &Head, rules: &[CorsRule]) -> Result<Headers> {
    let origin = head.header("origin").ok_or(Code::CorsHeaderMissing)?;
    let method = head.header("access-control-request-method").ok_or(Code::CorsHeaderMissing)?;
    let asked = head.header("access-control-request-headers").unwrap_or_default();
    let names: Vec<&str> = asked.split(',').map(str::trim).filter(|n| !n.is_empty()).collect();
    if names.len() > MAX_ASKED {
        return Err(Code::CorsPreflightFailure.into());
    }
    let rule = find(rules, origin, method)
        .find(|rule| names.iter().all(|name| matches_any(&rule.allowed_headers, name)))
        .ok_or(Code::CorsPreflightFailure)?;
    let mut headers = vec![
        (ALLOW_ORIGIN, origin.to_owned()),
        ("Access-Control-Allow-Methods", method.to_owned()),
        ("Access-Control-Max-Age", rule.max_age.to_string()),
        (ALLOW_CREDENTIALS, "true".to_owned()),
    ];
    if !asked.is_empty() {
        headers.push(("Access-Control-Allow-Headers", asked.to_owned()));
    }
    Ok(headers)
}

/// What is added to the answer of any other request. `sent` names the headers
/// that the answer carries. As recorded, a GET without an origin is answered as one by
/// whatever origin, where a rule allows all; then nothing varies.
pub fn actual(head: &Head, rules: &[CorsRule], sent: &[&str]) -> Headers {
    let mut headers = Headers::new();
    if rules.is_empty() {
        return headers;
    }
    let is_get = head.method == "GET";
    let origin = head.header("origin").or(is_get.then_some(ANY));
    let rule = origin.and_then(|origin| Some((origin, find(rules, origin, &head.method).next()?)));
    let mut varies = is_get;
    if let Some((origin, rule)) = rule {
        if rule.origins.iter().any(|o| o == ANY) {
            headers.push((ALLOW_ORIGIN, ANY.to_owned()));
            varies = false;
        } else {
            headers.push((ALLOW_ORIGIN, origin.to_owned()));
            headers.push((ALLOW_CREDENTIALS, "true".to_owned()));
            varies = true;
        }
        let exposed: Vec<&str> =
            sent.iter().copied().filter(|name| matches_any(&rule.exposed_headers, name)).collect();
        if !exposed.is_empty() {
            headers.push(("Access-Control-Expose-Headers", exposed.join(",")));
        }
    }
    if varies {
        headers.push(("Vary", "Origin".to_owned()));
    }
    headers
}

/// Rules for an origin, compared with case, and a method.
fn find<'a>(rules: &'a [CorsRule], origin: &'a str, method: &'a str) -> impl Iterator<Item = &'a CorsRule> {
    rules.iter().filter(move |rule| {
        rule.origins.iter().any(|o| o == ANY || o == origin) && rule.methods.iter().any(|m| m == method)
    })
}

/// Whether a header matches a literal, a prefix `abc*` or `*`, without case.
fn matches_any(patterns: &[String], name: &str) -> bool {
    let name = name.to_ascii_lowercase();
    patterns.iter().any(|pattern| {
        let pattern = pattern.to_ascii_lowercase();
        match pattern.strip_suffix('*') {
            Some(prefix) => name.starts_with(prefix),
            None => name == pattern,
        }
    })
}

#[cfg(test)]
mod tests {
    use futures_util::FutureExt as _;

    use super::*;

    fn head<'a>(method: &'a str, headers: &[(&'a str, &'a str)]) -> Head<'a> {
        let own = |(name, value): &(&'a str, &'a str)| ((*name).into(), (*value).into());
        Head { method: method.into(), headers: headers.iter().map(own).collect(), ..Head::default() }
    }
    fn rule(origin: &str, methods: &str, allowed: &str, exposed: &str) -> CorsRule {
        let list = |text: &str| text.split(',').filter(|t| !t.is_empty()).map(str::to_owned).collect();
        CorsRule {
            origins: list(origin),
            methods: list(methods),
            allowed_headers: list(allowed),
            exposed_headers: list(exposed),
            max_age: 7,
        }
    }
    fn get(headers: &Headers, name: &str) -> Option<String> {
        headers.iter().find(|(n, _)| *n == name).map(|(_, v)| v.clone())
    }

    #[test]
    fn what_was_read_before_rules_changed_is_not_remembered() {
        let cache = CorsCache::default();
        let rules: Arc<[CorsRule]> = [rule("http://a", "GET", "", "")].into();
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
        let rules: Arc<[CorsRule]> = [rule("http://a", "GET", "", "")].into();
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
        cache.put("a", [rule("http://a", "GET", "", "")].into(), age);
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

    #[test]
    fn a_preflight_takes_the_first_rule_that_matches_everything() {
        let rules = [rule("http://a", "GET", "x-ms-*", ""), rule("*", "PUT", "*", "")];
        let ask = |origin: &str, method: &str, headers: &str| {
            let head = head(
                "OPTIONS",
                &[
                    ("origin", origin),
                    ("access-control-request-method", method),
                    ("access-control-request-headers", headers),
                ],
            );
            preflight(&head, &rules).map_err(|e| e.code)
        };
        let granted = ask("http://a", "GET", "X-MS-Date, x-ms-version").unwrap();
        assert_eq!(get(&granted, ALLOW_ORIGIN).as_deref(), Some("http://a"));
        assert_eq!(get(&granted, "Access-Control-Max-Age").as_deref(), Some("7"));
        assert_eq!(get(&granted, "Access-Control-Allow-Headers").as_deref(), Some("X-MS-Date, x-ms-version"));
        assert!(ask("http://b", "PUT", "anything").is_ok());
        let many = |count: usize| vec!["x"; count].join(",");
        assert!(ask("http://b", "PUT", &many(MAX_ASKED)).is_ok());
        assert_eq!(ask("http://b", "PUT", &many(MAX_ASKED + 1)), Err(Code::CorsPreflightFailure));
        for (origin, method, headers) in [
            ("http://A", "GET", ""),
            ("http://a", "GET", "other"),
            ("http://b", "GET", ""),
            ("http://a", "get", ""),
        ] {
            assert_eq!(ask(origin, method, headers), Err(Code::CorsPreflightFailure), "{origin} {method}");
        }
        let bare = head("OPTIONS", &[("origin", "http://a")]);
        assert_eq!(preflight(&bare, &rules).unwrap_err().code, Code::CorsHeaderMissing);
        assert_eq!(preflight(&head("OPTIONS", &[]), &rules).unwrap_err().code, Code::CorsHeaderMissing);
    }

    #[test]
    fn answers_tell_pages_what_they_may_see() {
        let sent = ["ETag", "x-ms-version", "Date"];
        let named = [rule("http://a", "GET", "", "x-ms-*,etag")];
        let headers = actual(&head("GET", &[("origin", "http://a")]), &named, &sent);
        assert_eq!(get(&headers, ALLOW_CREDENTIALS).as_deref(), Some("true"));
        assert_eq!(get(&headers, "Access-Control-Expose-Headers").as_deref(), Some("ETag,x-ms-version"));
        assert_eq!(get(&headers, "Vary").as_deref(), Some("Origin"));
        let anyone = [rule("*", "GET,PUT", "", "*")];
        let headers = actual(&head("PUT", &[("origin", "http://z")]), &anyone, &sent);
        assert_eq!(get(&headers, ALLOW_ORIGIN).as_deref(), Some("*"));
        assert_eq!((get(&headers, ALLOW_CREDENTIALS), get(&headers, "Vary")), (None, None));
        assert_eq!(get(&headers, "Access-Control-Expose-Headers").as_deref(), Some("ETag,x-ms-version,Date"));
        let unmatched = actual(&head("GET", &[("origin", "http://b")]), &named, &sent);
        assert_eq!(unmatched, vec![("Vary", "Origin".to_owned())]);
        assert_eq!(actual(&head("PUT", &[]), &named, &sent), vec![]);
        assert_eq!(actual(&head("GET", &[]), &[], &sent), vec![]);
    }
}
