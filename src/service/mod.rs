//! The Table service without a transport: the head and the body of a request in, an
//! answer out. `http` serves it over connections; whoever is in the process asks it
//! directly, through the same checks.

mod answer;
mod authenticate;
mod batch;
mod body;
pub(crate) mod clock;
mod cors;
mod explain;
mod issuer;
mod limits;
mod observe;
mod operations;
mod permit;
mod pipeline;
mod rewind;
mod throttle;

use std::sync::Arc;
use std::time::Duration;

use arc_swap::ArcSwap;

pub(crate) use answer::{Answer, XML};
pub(crate) use body::{Body, MAX_BODY, ReceiveBody};
pub(crate) use clock::VersionClock;
pub(crate) use cors::{CorsCache, CorsHeaders, actual as cors_headers};
pub(crate) use explain::EXPLANATIONS;
pub(crate) use issuer::Issuer;
pub(crate) use limits::{BodyMemory, Limits, Share};
pub(crate) use throttle::Throttle;

use crate::auth::AccountSet;
use crate::codec::properties::CorsRule;
use crate::request::Target;
use crate::store::Store;
use crate::trace::Tracer;

/// What answering requests takes; shared by all threads.
pub(crate) struct Service {
    pub primary: CachedStore,
    /// The read replica that `{account}-secondary` reads from, if there is one;
    /// without it that is the primary.
    pub secondary: Option<CachedStore>,
    /// The accounts of now; a request keeps those that it began with.
    pub accounts: ArcSwap<AccountSet>,
    /// What versions are made of: Timestamps and ETags.
    pub version_clock: VersionClock,
    /// Whose tokens are trusted, if any are.
    pub issuer: Option<Issuer>,
    pub limits: Limits,
    pub body_memory: BodyMemory,
    /// What each account may ask for, if that is limited.
    pub throttle: Option<Throttle>,
    /// Comparisons that a filter may hold.
    pub max_comparisons: usize,
    /// Requests that take longer are logged as slow.
    pub slow: Duration,
    /// Where traces go, if anywhere.
    pub tracer: Option<Tracer>,
}

/// A database, and what is remembered of it.
pub(crate) struct CachedStore {
    pub store: Store,
    pub cors: CorsCache,
}

/// An answer, and what goes into the headers that all answers have.
pub(crate) struct Served {
    pub answer: Answer,
    /// The rules of the account, where they may apply to the answer.
    pub cors_rules: Arc<[CorsRule]>,
    pub request_id: String,
}

impl From<Store> for CachedStore {
    fn from(store: Store) -> Self {
        Self { store, cors: CorsCache::default() }
    }
}

impl Service {
    /// Where requests to an address go. Writes to a secondary are refused
    /// before they get there.
    fn store_of(&self, target: &Target) -> &CachedStore {
        match &self.secondary {
            Some(secondary) if target.secondary => secondary,
            _ => &self.primary,
        }
    }
}
