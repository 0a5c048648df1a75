//! The signing keys of the token issuer, fetched on demand and cached (protocol §10.7).

use std::sync::Arc;
use std::time::{Duration, Instant};

use jsonwebtoken::jwk::JwkSet;
use parking_lot::Mutex;
use serde::Deserialize;
use tokio::sync::Notify;
use tokio::time::timeout;
use ureq::Agent;
use ureq::tls::{RootCerts, TlsConfig};

use crate::error::{Code, Result};
use crate::protocol::auth::Identity;
use crate::protocol::auth::bearer::{self, Trust};
use crate::protocol::model::Ticks;

/// How long keys are used before they are fetched again.
const FRESH: Duration = Duration::from_secs(3600);
/// How long keys are used while the issuer does not respond. A withdrawn key must not stay valid for ever.
const MAX_AGE: Duration = Duration::from_secs(24 * 3600);
/// Minimum time between two fetches, regardless of the number of unknown keys.
const PAUSE: Duration = Duration::from_secs(10);
/// Timeout of one request to the issuer.
const TIMEOUT: Duration = Duration::from_secs(5);
/// Timeout of the two requests in a fetch.
const LOOKUP_TIMEOUT: Duration = Duration::from_secs(11);
/// Maximum size of a response from the issuer in bytes.
const MAX_ANSWER: u64 = 1024 * 1024;

/// An issuer whose tokens are trusted.
pub(crate) struct Issuer {
    trust: Trust,
    agent: Agent,
    keys: Arc<Keys>,
}

/// The cache of the issuer's keys. A fetch is single-flight and runs in the background. Tokens with known
/// keys do not wait for a fetch of an unknown key, which anyone can name, nor for a fetch while the issuer is
/// silent. The result of a fetch is kept even if the request that started it has ended.
#[derive(Default)]
struct Keys {
    fetched: Mutex<Fetched>,
    /// Notified whenever a fetch ends.
    fetch_ended: Notify,
}

#[derive(Default)]
struct Fetched {
    keys: Option<Arc<JwkSet>>,
    /// When the issuer last responded, and when it was last asked.
    answered: Option<Instant>,
    asked: Option<Instant>,
    is_asked: bool,
    /// Whether the last fetch failed.
    is_silent: bool,
}

/// How to get the keys.
enum KeySource {
    /// Use these keys, if there are any.
    Known(Option<Arc<JwkSet>>),
    /// Wait for the fetch in flight.
    Wait,
    /// Fetch, and wait for it.
    Fetch,
    /// Fetch in the background, but use these keys at once.
    FetchAside(Arc<JwkSet>),
}

impl Keys {
    /// Decides how to get the keys, of which `key` is needed. The keys are fetched again if they are stale or
    /// lack `key`, which may be new.
    fn choose(&self, key: &str, now: Instant) -> KeySource {
        let mut fetched = self.fetched.lock();
        let within = |at: Option<Instant>, limit| at.is_some_and(|at| now.duration_since(at) < limit);
        let is_known = fetched.keys.as_ref().is_some_and(|keys| keys.find(key).is_some());
        if is_known && within(fetched.answered, FRESH) {
            return KeySource::Known(fetched.keys.clone());
        }
        let old = fetched.usable(now).filter(|_| is_known && fetched.is_silent);
        if fetched.is_asked && within(fetched.asked, LOOKUP_TIMEOUT) {
            return old.map_or(KeySource::Wait, |keys| KeySource::Known(Some(keys)));
        }
        if within(fetched.asked, PAUSE) {
            return KeySource::Known(fetched.usable(now));
        }
        fetched.asked = Some(now);
        fetched.is_asked = true;
        old.map_or(KeySource::Fetch, KeySource::FetchAside)
    }

    fn usable(&self) -> Option<Arc<JwkSet>> {
        self.fetched.lock().usable(Instant::now())
    }

    /// Records the result of a fetch.
    fn record(&self, keys: Option<JwkSet>) {
        let mut fetched = self.fetched.lock();
        fetched.is_asked = false;
        fetched.is_silent = keys.is_none();
        if let Some(keys) = keys {
            fetched.keys = Some(Arc::new(keys));
            fetched.answered = fetched.asked;
        }
        drop(fetched);
        self.fetch_ended.notify_waiters();
    }
}

impl Fetched {
    fn usable(&self, now: Instant) -> Option<Arc<JwkSet>> {
        let is_of_use = self.answered.is_some_and(|at| now.duration_since(at) < MAX_AGE);
        self.keys.clone().filter(|_| is_of_use)
    }
}

/// The part of the issuer's metadata document that we read.
#[derive(Deserialize)]
struct Discovery {
    issuer: String,
    jwks_uri: String,
}

impl Issuer {
    /// Returns an issuer whose keys have not been fetched yet.
    pub(crate) fn new(trust: Trust) -> Self {
        let tls = TlsConfig::builder().root_certs(RootCerts::PlatformVerifier).build();
        // A redirect could lead to a different host, or away from TLS.
        let config = Agent::config_builder().timeout_global(Some(TIMEOUT)).max_redirects(0).tls_config(tls);
        Self { trust, agent: config.build().into(), keys: Arc::default() }
    }

    /// Returns the challenge for clients without credentials.
    pub(crate) fn challenge(&self) -> String {
        format!("Bearer authorization_uri={} resource_id={}", self.trust.issuer, self.trust.audience)
    }

    /// Verifies a token and returns the identity of its bearer in an account.
    ///
    /// # Errors
    /// Those of [`bearer::key_id`] and [`bearer::verify`];
    /// [`Code::AuthenticationFailed`] for a token over plain HTTP;
    /// [`Code::ServerBusy`] while the issuer's keys are not available.
    pub(crate) async fn identify(
        &self,
        token: &str,
        account: &str,
        secure: bool,
        now: Ticks,
    ) -> Result<Identity> {
        if !secure && !self.trust.over_http {
            return Err(Code::AuthenticationFailed.into());
        }
        let key = bearer::key_id(token)?;
        let keys = self.keys(&key).await.ok_or(Code::ServerBusy)?;
        bearer::verify(token, &keys, &self.trust, account, now)
    }

    /// Returns the issuer's keys, or `None` if they are not available.
    async fn keys(&self, key: &str) -> Option<Arc<JwkSet>> {
        // Subscribe before deciding, so that the end of a fetch is not missed.
        let ended = self.keys.fetch_ended.notified();
        match self.keys.choose(key, Instant::now()) {
            KeySource::Known(keys) => return keys,
            KeySource::Wait => {}
            KeySource::Fetch => self.fetch_keys(),
            KeySource::FetchAside(keys) => {
                self.fetch_keys();
                return Some(keys);
            }
        }
        let _ = timeout(LOOKUP_TIMEOUT, ended).await;
        self.keys.usable()
    }

    /// Fetches in the background, even if no request waits any more.
    fn fetch_keys(&self) {
        let (agent, issuer, keys) = (self.agent.clone(), self.trust.issuer.clone(), Arc::clone(&self.keys));
        tokio::task::spawn_blocking(move || {
            let fetched = fetch(&agent, &issuer)
                .inspect_err(|error| tracing::warn!(error, "the token issuer's keys cannot be fetched"));
            keys.record(fetched.ok());
        });
    }
}

fn fetch(agent: &Agent, issuer: &str) -> Result<JwkSet, String> {
    let address = format!("{}/.well-known/openid-configuration", issuer.trim_end_matches('/'));
    let discovery: Discovery = get(agent, &address)?;
    if discovery.issuer != issuer {
        return Err(format!("{address} speaks for {}", discovery.issuer));
    }
    get(agent, &discovery.jwks_uri)
}

fn get<T: for<'de> Deserialize<'de>>(agent: &Agent, address: &str) -> Result<T, String> {
    let mut answer = agent.get(address).call().map_err(|error| format!("{address}: {error}"))?;
    if answer.status() != 200 {
        return Err(format!("{address}: the answer is {}", answer.status()));
    }
    answer
        .body_mut()
        .with_config()
        .limit(MAX_ANSWER)
        .read_json()
        .map_err(|error| format!("{address}: {error}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn set(id: &str) -> JwkSet {
        let text = format!(r#"{{"keys": [{{"kty": "oct", "k": "eA", "kid": "{id}"}}]}}"#);
        serde_json::from_str(&text).unwrap()
    }

    #[test]
    fn a_stranger_s_key_keeps_no_token_waiting_whose_key_is_known() {
        let keys = Keys::default();
        let now = Instant::now();
        assert!(matches!(keys.choose("a", now), KeySource::Fetch));
        assert!(matches!(keys.choose("a", now), KeySource::Wait));
        keys.record(Some(set("a")));
        assert!(matches!(keys.choose("b", now), KeySource::Known(Some(_))), "asked a moment ago");
        let later = now + PAUSE;
        assert!(matches!(keys.choose("b", later), KeySource::Fetch));
        assert!(matches!(keys.choose("a", later), KeySource::Known(Some(_))));
        assert!(matches!(keys.choose("b", later), KeySource::Wait));
        assert!(
            matches!(keys.choose("b", later + LOOKUP_TIMEOUT), KeySource::Fetch),
            "nothing was heard of it"
        );
    }

    #[test]
    fn old_keys_hold_while_the_issuer_is_silent_but_not_for_ever() {
        let keys = Keys::default();
        let now = Instant::now();
        assert!(matches!(keys.choose("a", now), KeySource::Fetch));
        keys.record(Some(set("a")));
        for (age, holds) in [(FRESH, true), (MAX_AGE, false)] {
            assert!(matches!(keys.choose("a", now + age), KeySource::Fetch), "{age:?}");
            keys.record(None);
            assert!(
                matches!(keys.choose("a", now + age), KeySource::Known(found) if found.is_some() == holds)
            );
        }
    }

    #[test]
    fn a_silent_issuer_keeps_tokens_with_known_keys_waiting_once() {
        let keys = Keys::default();
        let now = Instant::now();
        assert!(matches!(keys.choose("a", now), KeySource::Fetch));
        keys.record(Some(set("a")));
        let mut now = now + FRESH;
        assert!(matches!(keys.choose("a", now), KeySource::Fetch), "a key may have been withdrawn");
        assert!(matches!(keys.choose("a", now), KeySource::Wait));
        keys.record(None);
        for _ in 0..3 {
            now += PAUSE;
            assert!(matches!(keys.choose("a", now), KeySource::FetchAside(_)));
            assert!(matches!(keys.choose("a", now), KeySource::Known(Some(_))));
            assert!(matches!(keys.choose("b", now), KeySource::Wait), "the key may be new");
            keys.record(None);
        }
        now += PAUSE;
        assert!(matches!(keys.choose("a", now), KeySource::FetchAside(_)));
        keys.record(Some(set("a")));
        assert!(matches!(keys.choose("a", now + FRESH), KeySource::Fetch));
    }
}
