//! The keys of the token issuer, fetched when they are needed and remembered
//! (protocol §10.7).

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use jsonwebtoken::jwk::JwkSet;
use serde::Deserialize;
use tokio::sync::Notify;
use tokio::time::timeout;
use ureq::Agent;
use ureq::tls::{RootCerts, TlsConfig};

use crate::auth::Identity;
use crate::auth::bearer::{self, Trust};
use crate::error::{Code, Result};
use crate::model::Ticks;

/// How long keys are used without asking again.
const FRESH: Duration = Duration::from_secs(3600);
/// How long they are used while the issuer does not answer. One that it has withdrawn
/// must not hold for ever.
const MAX_AGE: Duration = Duration::from_secs(24 * 3600);
/// How often the issuer is asked at most, however many unknown keys are named.
const PAUSE: Duration = Duration::from_secs(10);
/// Time for one request to the issuer.
const TIMEOUT: Duration = Duration::from_secs(5);
/// Time for both requests that asking takes.
const LOOKUP_TIMEOUT: Duration = Duration::from_secs(11);
/// Bytes of an answer of the issuer at most.
const MAX_ANSWER: u64 = 1024 * 1024;

/// An issuer whose tokens are trusted.
pub(crate) struct Issuer {
    trust: Trust,
    agent: Agent,
    keys: Arc<Keys>,
}

/// What the issuer has said. Anybody can name a key that nobody knows: this must keep
/// no token waiting whose key is known, and what was asked for must be learnt, whoever
/// has gone away meanwhile.
#[derive(Default)]
struct Keys {
    fetched: Mutex<Fetched>,
    /// Told whenever asking has ended.
    told: Notify,
}

#[derive(Default)]
struct Fetched {
    keys: Option<Arc<JwkSet>>,
    /// When the issuer last answered, and when it was last asked.
    answered: Option<Instant>,
    asked: Option<Instant>,
    is_asked: bool,
}

/// What is to be done to have a key.
enum Look {
    /// Nothing: these are the keys, if there are any.
    Known(Option<Arc<JwkSet>>),
    /// To wait for what another has asked.
    Wait,
    /// To ask, and to note what becomes of it.
    Ask,
}

impl Keys {
    /// How to have the keys, of which this one is needed. They are fetched again if they
    /// are old or lack it: it may have been added since.
    fn look(&self, key: &str, now: Instant) -> Look {
        let mut fetched = self.fetched();
        let within = |at: Option<Instant>, limit| at.is_some_and(|at| now.duration_since(at) < limit);
        let is_known = fetched.keys.as_ref().is_some_and(|keys| keys.find(key).is_some());
        if is_known && within(fetched.answered, FRESH) {
            return Look::Known(fetched.keys.clone());
        }
        if fetched.is_asked && within(fetched.asked, LOOKUP_TIMEOUT) {
            return Look::Wait;
        }
        if within(fetched.asked, PAUSE) {
            return Look::Known(fetched.usable(now));
        }
        fetched.asked = Some(now);
        fetched.is_asked = true;
        Look::Ask
    }

    fn usable(&self) -> Option<Arc<JwkSet>> {
        self.fetched().usable(Instant::now())
    }

    /// Notes the end of asking.
    fn note(&self, keys: Option<JwkSet>) {
        let mut fetched = self.fetched();
        fetched.is_asked = false;
        if let Some(keys) = keys {
            fetched.keys = Some(Arc::new(keys));
            fetched.answered = fetched.asked;
        }
        drop(fetched);
        self.told.notify_waiters();
    }

    fn fetched(&self) -> MutexGuard<'_, Fetched> {
        self.fetched.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Fetched {
    fn usable(&self, now: Instant) -> Option<Arc<JwkSet>> {
        let is_of_use = self.answered.is_some_and(|at| now.duration_since(at) < MAX_AGE);
        self.keys.clone().filter(|_| is_of_use)
    }
}

/// What we read of the issuer's description of itself.
#[derive(Deserialize)]
struct Discovery {
    issuer: String,
    jwks_uri: String,
}

impl Issuer {
    /// An issuer that has not been asked for its keys yet.
    pub(crate) fn new(trust: Trust) -> Self {
        let tls = TlsConfig::builder().root_certs(RootCerts::PlatformVerifier).build();
        let config = Agent::config_builder().timeout_global(Some(TIMEOUT)).tls_config(tls).build();
        Self { trust, agent: config.into(), keys: Arc::default() }
    }

    /// What a client without credentials is told.
    pub(crate) fn challenge(&self) -> String {
        format!("Bearer authorization_uri={} resource_id={}", self.trust.issuer, self.trust.audience)
    }

    /// Verifies a token and says what its bearer may do in an account.
    ///
    /// # Errors
    /// Those of [`bearer::key_id`] and [`bearer::verify`];
    /// [`Code::AuthenticationFailed`] for a token over plain HTTP;
    /// [`Code::ServerBusy`] while the issuer's keys cannot be had.
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

    /// The issuer's keys; `None` if they cannot be had.
    async fn keys(&self, key: &str) -> Option<Arc<JwkSet>> {
        // Told of an end from here on, before it is waited for.
        let told = self.keys.told.notified();
        match self.keys.look(key, Instant::now()) {
            Look::Known(keys) => return keys,
            Look::Wait => {}
            Look::Ask => self.ask(),
        }
        let _ = timeout(LOOKUP_TIMEOUT, told).await;
        self.keys.usable()
    }

    /// Asks beside requests: it goes on when nobody waits for it any more.
    fn ask(&self) {
        let (agent, issuer, keys) = (self.agent.clone(), self.trust.issuer.clone(), Arc::clone(&self.keys));
        tokio::task::spawn_blocking(move || {
            let fetched = fetch(&agent, &issuer)
                .inspect_err(|error| tracing::warn!(error, "the token issuer's keys cannot be fetched"));
            keys.note(fetched.ok());
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
        assert!(matches!(keys.look("a", now), Look::Ask));
        assert!(matches!(keys.look("a", now), Look::Wait));
        keys.note(Some(set("a")));
        assert!(matches!(keys.look("b", now), Look::Known(Some(_))), "asked a moment ago");
        let later = now + PAUSE;
        assert!(matches!(keys.look("b", later), Look::Ask));
        assert!(matches!(keys.look("a", later), Look::Known(Some(_))));
        assert!(matches!(keys.look("b", later), Look::Wait));
        assert!(matches!(keys.look("b", later + LOOKUP_TIMEOUT), Look::Ask), "nothing was heard of it");
    }

    #[test]
    fn old_keys_hold_while_the_issuer_is_silent_but_not_for_ever() {
        let keys = Keys::default();
        let now = Instant::now();
        assert!(matches!(keys.look("a", now), Look::Ask));
        keys.note(Some(set("a")));
        for (age, holds) in [(FRESH, true), (MAX_AGE, false)] {
            assert!(matches!(keys.look("a", now + age), Look::Ask), "{age:?}");
            keys.note(None);
            assert!(matches!(keys.look("a", now + age), Look::Known(found) if found.is_some() == holds));
        }
    }
}
