//! The keys of the token issuer, fetched when they are needed and remembered
//! (protocol §10.7).

use std::sync::Arc;
use std::time::{Duration, Instant};

use jsonwebtoken::jwk::JwkSet;
use serde::Deserialize;
use tokio::sync::Mutex;
use ureq::Agent;
use ureq::tls::{RootCerts, TlsConfig};

use crate::auth::Identity;
use crate::auth::bearer::{self, Trust};
use crate::error::{Code, Result};
use crate::model::Ticks;

/// How long keys are used without asking again.
const FRESH: Duration = Duration::from_secs(3600);
/// How often the issuer is asked at most, however many unknown keys are named.
const PAUSE: Duration = Duration::from_secs(10);
/// Time for one request to the issuer.
const TIMEOUT: Duration = Duration::from_secs(5);
/// Bytes of an answer of the issuer at most.
const MAX_ANSWER: u64 = 1024 * 1024;

/// An issuer whose tokens are trusted.
pub struct Issuer {
    trust: Trust,
    agent: Agent,
    fetched: Mutex<Fetched>,
}

#[derive(Default)]
struct Fetched {
    keys: Option<Arc<JwkSet>>,
    /// When the issuer last answered, and when it was last asked.
    answered: Option<Instant>,
    asked: Option<Instant>,
}

/// What we read of the issuer's description of itself.
#[derive(Deserialize)]
struct Discovery {
    issuer: String,
    jwks_uri: String,
}

impl Issuer {
    /// An issuer that has not been asked for its keys yet.
    pub fn new(trust: Trust) -> Self {
        let tls = TlsConfig::builder().root_certs(RootCerts::PlatformVerifier).build();
        let config = Agent::config_builder().timeout_global(Some(TIMEOUT)).tls_config(tls).build();
        Self { trust, agent: config.into(), fetched: Mutex::default() }
    }

    /// What a client without credentials is told.
    pub fn challenge(&self) -> String {
        format!("Bearer authorization_uri={} resource_id={}", self.trust.issuer, self.trust.audience)
    }

    /// Verifies a token and says what its bearer may do in an account.
    ///
    /// # Errors
    /// Those of [`bearer::key_id`] and [`bearer::verify`];
    /// [`Code::AuthenticationFailed`] for a token over plain HTTP;
    /// [`Code::ServerBusy`] while the issuer's keys cannot be had.
    pub async fn identify(&self, token: &str, account: &str, secure: bool, now: Ticks) -> Result<Identity> {
        if !secure && !self.trust.over_http {
            return Err(Code::AuthenticationFailed.into());
        }
        let key = bearer::key_id(token)?;
        let keys = self.keys(&key).await.ok_or(Code::ServerBusy)?;
        bearer::verify(token, &keys, &self.trust, account, now)
    }

    /// The issuer's keys, fetched again if they are old or lack this one: it
    /// may have been added since.
    async fn keys(&self, key: &str) -> Option<Arc<JwkSet>> {
        let mut fetched = self.fetched.lock().await;
        let fresh = fetched.answered.is_some_and(|at| at.elapsed() < FRESH);
        let known = fetched.keys.as_ref().is_some_and(|keys| keys.find(key).is_some());
        let rested = fetched.asked.is_none_or(|at| at.elapsed() >= PAUSE);
        if (fresh && known) || !rested {
            return fetched.keys.clone();
        }
        fetched.asked = Some(Instant::now());
        let (agent, issuer) = (self.agent.clone(), self.trust.issuer.clone());
        match tokio::task::spawn_blocking(move || fetch(&agent, &issuer)).await {
            Ok(Ok(keys)) => {
                fetched.keys = Some(Arc::new(keys));
                fetched.answered = fetched.asked;
            }
            Ok(Err(error)) => tracing::warn!(error, "the token issuer's keys cannot be fetched"),
            Err(error) => tracing::error!(%error, "fetching the token issuer's keys did not finish"),
        }
        fetched.keys.clone()
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
