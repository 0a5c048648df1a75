//! The Table service without a transport: it turns the head and body of a request into a response. `http`
//! serves it over connections. Code in the same process calls it directly, with the same checks.
//!
//! In comments, "as recorded" marks behaviour that recorded responses of Azure show.

mod access;
mod answer;
mod batch;
mod body;
pub(crate) mod clock;
mod cors;
mod explain_query;
mod fault_rules;
mod issuer;
mod operations;
mod pipeline;
mod recent;
mod telemetry;
mod throttle;

use std::num::NonZeroU32;
use std::sync::Arc;
use std::time::Duration;

pub(crate) use access::stored_policies;
pub(crate) use answer::{Answer, STATUS_HANG_UP, XML};
pub(crate) use body::{Body, BodyMemory, Limits, MAX_BODY, ReceiveBody, Share};
pub(crate) use clock::VersionClock;
pub(crate) use cors::{CorsHeaders, response_headers as cors_headers};
pub(crate) use explain_query::{ExplainRequest, ExplainedQuery, NamedIndex, explain_query};
#[cfg_attr(
    not(feature = "testing"),
    expect(unreachable_pub, reason = "only rowhouse::testing exports it")
)]
pub use fault_rules::FaultRule;
pub(crate) use fault_rules::{FaultRuleCount, FaultRules};
pub(crate) use issuer::Issuer;
pub(crate) use pipeline::MAX_OPERATION_TIME;
pub(crate) use recent::{MAX_RECENT, RecentRequest, RecentRequests};
pub(crate) use telemetry::{EXPLANATIONS, Observed};
pub(crate) use throttle::Throttle;

use uuid::Uuid;

use crate::error::Result;
use crate::observe::trace::Tracer;
use crate::operator::accounts::Follower;
use crate::protocol::codec::properties::CorsRule;
use crate::protocol::model::Ticks;
use crate::protocol::request::Target;
use crate::store::{Store, StoreSnapshot};

/// The state for answering requests, shared by all threads.
pub(crate) struct Service {
    pub primary: Store,
    /// The read replica for `{account}-secondary`. Without a replica, the primary is used.
    pub secondary: Option<Store>,
    /// The accounts with their keys, CORS rules and limits, and the indexes.
    pub follower: Follower,
    /// The CORS rules and indexes of the secondary.
    pub secondary_follower: Follower,
    /// The clock for Timestamps and ETags.
    pub version_clock: VersionClock,
    /// The issuer whose tokens are trusted, if any.
    pub issuer: Option<Issuer>,
    pub limits: Limits,
    pub body_memory: BodyMemory,
    /// Maximum requests per second of an account without its own limit.
    pub max_requests_per_second: Option<NonZeroU32>,
    pub throttle: Throttle,
    /// Maximum number of comparisons in a filter.
    pub max_comparisons: usize,
    /// The faults that tests inject.
    pub fault_rules: FaultRules,
    /// How long deleted tables can be restored, in ticks; 0 if they cannot.
    pub keep_deleted: i64,
    /// The duration beyond which requests are logged as slow.
    pub slow_threshold: Duration,
    /// The exporter of traces, if configured.
    pub tracer: Option<Tracer>,
    /// The latest requests, if operators can ask for them.
    pub recent: Option<RecentRequests>,
}

/// A response, and the account's CORS rules, from which its CORS headers are made.
pub(crate) struct Served {
    pub answer: Answer,
    /// Empty if no CORS rule can apply to the response.
    pub cors_rules: Arc<[CorsRule]>,
}

impl Service {
    /// Returns the follower of the store that serves the target.
    fn follower_of(&self, target: &Target) -> &Follower {
        match &self.secondary {
            Some(_) if target.secondary => &self.secondary_follower,
            _ => &self.follower,
        }
    }

    /// Returns the store that serves the target. Writes to a secondary are refused earlier.
    fn store_of(&self, target: &Target) -> &Store {
        match &self.secondary {
            Some(secondary) if target.secondary => secondary,
            _ => &self.primary,
        }
    }

    /// Empties one account. Without an account, empties all accounts and removes the fault rules.
    pub(crate) async fn reset(&self, account: Option<&str>) -> Result<()> {
        self.primary.reset(account, Ticks::now()).await?;
        if account.is_none() {
            self.fault_rules.clear();
        }
        self.follower.follow_own_change(&self.primary).await;
        Ok(())
    }

    /// Takes a snapshot of one account or of all accounts, and returns its name. Returns `None` if there are
    /// already [`crate::store::contract::reset::MAX_SNAPSHOTS`].
    pub(crate) async fn take_snapshot(&self, account: Option<&str>) -> Result<Option<String>> {
        let name = Uuid::new_v4().simple().to_string();
        Ok(self.primary.take_snapshot(&name, account, Ticks::now()).await?.then_some(name))
    }

    /// Restores a snapshot. Returns `false` if none has this name.
    pub(crate) async fn restore_snapshot(&self, name: &str) -> Result<bool> {
        let restored = self.primary.restore_snapshot(name, Ticks::now()).await?;
        self.follower.follow_own_change(&self.primary).await;
        Ok(restored)
    }

    /// Drops a snapshot. Returns `false` if none has this name.
    pub(crate) async fn drop_snapshot(&self, name: &str) -> Result<bool> {
        Ok(self.primary.drop_snapshot(name).await?)
    }

    /// Lists the snapshots, the oldest first.
    pub(crate) async fn snapshots(&self) -> Result<Vec<StoreSnapshot>> {
        Ok(self.primary.snapshots().await?)
    }
}
