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
const REFRESH_INTERVAL: Duration = Duration::from_secs(3600);
/// How long keys are used while the issuer does not respond. A withdrawn key must not stay valid for ever.
const MAX_AGE: Duration = Duration::from_secs(24 * 3600);
/// Minimum time between two fetches, regardless of the number of unknown keys.
const MIN_FETCH_INTERVAL: Duration = Duration::from_secs(10);
/// Timeout of one request to the issuer.
const TIMEOUT: Duration = Duration::from_secs(5);
/// Timeout of the two requests in a fetch.
const FETCH_TIMEOUT: Duration = Duration::from_secs(11);
const MAX_RESPONSE_BYTES: u64 = 1024 * 1024;

/// An issuer whose tokens are trusted.
pub(crate) struct Issuer {
    trust: Trust,
    agent: Agent,
    keys: Arc<Keys>,
}

/// The cache of the issuer's keys. At most one fetch runs at a time, in the background. A token with a known key
/// does not wait for the fetch of an unknown key, because anyone can name an unknown key. After a failed fetch, such
/// a token does not wait for the next fetch either. The result of a fetch is kept even if its request has ended.
#[derive(Default)]
struct Keys {
    fetched: Mutex<Fetched>,
    /// Notified whenever a fetch ends.
    fetch_ended: Notify,
}

#[derive(Default)]
struct Fetched {
    keys: Option<Arc<JwkSet>>,
    /// The start of the last successful fetch.
    last_success: Option<Instant>,
    /// The start of the last fetch.
    last_start: Option<Instant>,
    is_fetching: bool,
    last_fetch_failed: bool,
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
    FetchInBackground(Arc<JwkSet>),
}

impl Keys {
    /// Decides how to get the keys to verify a token that names `key`. The keys are fetched again if they are stale or
    /// lack `key`, which may be new.
    fn choose_source(&self, key: &str, now: Instant) -> KeySource {
        let mut fetched = self.fetched.lock();
        let within = |at: Option<Instant>, limit| at.is_some_and(|at| now.duration_since(at) < limit);
        let is_known = fetched.keys.as_ref().is_some_and(|keys| keys.find(key).is_some());
        if is_known && within(fetched.last_success, REFRESH_INTERVAL) {
            return KeySource::Known(fetched.keys.clone());
        }
        let fallback = fetched.usable(now).filter(|_| is_known && fetched.last_fetch_failed);
        if fetched.is_fetching && within(fetched.last_start, FETCH_TIMEOUT) {
            return fallback.map_or(KeySource::Wait, |keys| KeySource::Known(Some(keys)));
        }
        if within(fetched.last_start, MIN_FETCH_INTERVAL) {
            return KeySource::Known(fetched.usable(now));
        }
        fetched.last_start = Some(now);
        fetched.is_fetching = true;
        fallback.map_or(KeySource::Fetch, KeySource::FetchInBackground)
    }

    fn usable(&self) -> Option<Arc<JwkSet>> {
        self.fetched.lock().usable(Instant::now())
    }

    /// Records the result of a fetch.
    fn record(&self, keys: Option<JwkSet>) {
        let mut fetched = self.fetched.lock();
        fetched.is_fetching = false;
        fetched.last_fetch_failed = keys.is_none();
        if let Some(keys) = keys {
            fetched.keys = Some(Arc::new(keys));
            fetched.last_success = fetched.last_start;
        }
        drop(fetched);
        self.fetch_ended.notify_waiters();
    }
}

impl Fetched {
    fn usable(&self, now: Instant) -> Option<Arc<JwkSet>> {
        let is_recent = self.last_success.is_some_and(|at| now.duration_since(at) < MAX_AGE);
        self.keys.clone().filter(|_| is_recent)
    }
}

/// The part of the issuer's metadata document that we read.
#[derive(Deserialize)]
struct Discovery {
    issuer: String,
    jwks_uri: String,
}

impl Issuer {
    /// Creates an issuer. Its keys are fetched on demand.
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
        match self.keys.choose_source(key, Instant::now()) {
            KeySource::Known(keys) => return keys,
            KeySource::Wait => {}
            KeySource::Fetch => self.fetch_keys(),
            KeySource::FetchInBackground(keys) => {
                self.fetch_keys();
                return Some(keys);
            }
        }
        let _ = timeout(FETCH_TIMEOUT, ended).await;
        self.keys.usable()
    }

    /// Starts a fetch in the background, which continues even if no request waits for it any more.
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
        return Err(format!("{address} describes a different issuer: {}", discovery.issuer));
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
        .limit(MAX_RESPONSE_BYTES)
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
    fn an_unknown_key_does_not_delay_tokens_with_known_keys() {
        let keys = Keys::default();
        let now = Instant::now();
        assert!(matches!(keys.choose_source("a", now), KeySource::Fetch));
        assert!(matches!(keys.choose_source("a", now), KeySource::Wait));
        keys.record(Some(set("a")));
        assert!(matches!(keys.choose_source("b", now), KeySource::Known(Some(_))), "fetched a moment ago");
        let later = now + MIN_FETCH_INTERVAL;
        assert!(matches!(keys.choose_source("b", later), KeySource::Fetch));
        assert!(matches!(keys.choose_source("a", later), KeySource::Known(Some(_))));
        assert!(matches!(keys.choose_source("b", later), KeySource::Wait));
        assert!(
            matches!(keys.choose_source("b", later + FETCH_TIMEOUT), KeySource::Fetch),
            "the fetch has timed out"
        );
    }

    #[test]
    fn old_keys_stay_valid_for_a_limited_time_while_the_issuer_is_silent() {
        let keys = Keys::default();
        let now = Instant::now();
        assert!(matches!(keys.choose_source("a", now), KeySource::Fetch));
        keys.record(Some(set("a")));
        for (age, holds) in [(REFRESH_INTERVAL, true), (MAX_AGE, false)] {
            assert!(matches!(keys.choose_source("a", now + age), KeySource::Fetch), "{age:?}");
            keys.record(None);
            assert!(
                matches!(keys.choose_source("a", now + age), KeySource::Known(found) if found.is_some() == holds)
            );
        }
    }

    #[test]
    fn a_silent_issuer_delays_tokens_with_known_keys_only_once() {
        let keys = Keys::default();
        let now = Instant::now();
        assert!(matches!(keys.choose_source("a", now), KeySource::Fetch));
        keys.record(Some(set("a")));
        let mut now = now + REFRESH_INTERVAL;
        assert!(matches!(keys.choose_source("a", now), KeySource::Fetch), "a key may have been withdrawn");
        assert!(matches!(keys.choose_source("a", now), KeySource::Wait));
        keys.record(None);
        for _ in 0..3 {
            now += MIN_FETCH_INTERVAL;
            assert!(matches!(keys.choose_source("a", now), KeySource::FetchInBackground(_)));
            assert!(matches!(keys.choose_source("a", now), KeySource::Known(Some(_))));
            assert!(matches!(keys.choose_source("b", now), KeySource::Wait), "the key may be new");
            keys.record(None);
        }
        now += MIN_FETCH_INTERVAL;
        assert!(matches!(keys.choose_source("a", now), KeySource::FetchInBackground(_)));
        keys.record(Some(set("a")));
        assert!(matches!(keys.choose_source("a", now + REFRESH_INTERVAL), KeySource::Fetch));
    }
}
