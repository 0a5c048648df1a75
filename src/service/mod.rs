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

use std::num::NonZeroU32;
use std::sync::Arc;
use std::time::Duration;

pub(crate) use answer::{Answer, XML};
pub(crate) use body::{Body, MAX_BODY, ReceiveBody};
pub(crate) use clock::VersionClock;
pub(crate) use cors::{CorsHeaders, actual as cors_headers};
pub(crate) use explain::EXPLANATIONS;
pub(crate) use issuer::Issuer;
pub(crate) use limits::{BodyMemory, Limits, Share};
pub(crate) use throttle::Throttle;

use crate::accounts::{Follower, ReplicaRules};
use crate::codec::properties::CorsRule;
use crate::request::Target;
use crate::store::Store;
use crate::trace::Tracer;

/// What answering requests takes; shared by all threads.
pub(crate) struct Service {
    pub primary: Store,
    /// The read replica that `{account}-secondary` reads from, if there is one;
    /// without it that is the primary.
    pub secondary: Option<Store>,
    /// The accounts with their keys, CORS rules and limits.
    pub follower: Follower,
    /// The CORS rules of the secondary.
    pub replica_rules: ReplicaRules,
    /// What versions are made of: Timestamps and ETags.
    pub version_clock: VersionClock,
    /// Whose tokens are trusted, if any are.
    pub issuer: Option<Issuer>,
    pub limits: Limits,
    pub body_memory: BodyMemory,
    /// Requests in a second that an account may make which has no limit of its own.
    pub max_requests_per_second: Option<NonZeroU32>,
    pub throttle: Throttle,
    /// Comparisons that a filter may hold.
    pub max_comparisons: usize,
    /// Requests that take longer are logged as slow.
    pub slow: Duration,
    /// Where traces go, if anywhere.
    pub tracer: Option<Tracer>,
}

/// An answer, and what goes into the headers that all answers have.
pub(crate) struct Served {
    pub answer: Answer,
    /// The rules of the account, where they may apply to the answer.
    pub cors_rules: Arc<[CorsRule]>,
    pub request_id: String,
}

impl Service {
    /// Where requests to an address go. Writes to a secondary are refused
    /// before they get there.
    fn store_of(&self, target: &Target) -> &Store {
        match &self.secondary {
            Some(secondary) if target.secondary => secondary,
            _ => &self.primary,
        }
    }
}
