//! `/cluster`: the nodes of a Citus cluster, and how this server uses them.

use chrono::{DateTime, SecondsFormat};

use super::call::Call;
use super::call::{CALL_TIMEOUT, within};
use super::reply::Outcome;
use super::reply::{Refusal, Reply};
use crate::observe::metrics::METRICS;
use crate::operator::reports::{ClusterReport, ClusterUse};
use crate::store::postgres::StartError;

/// Returns the nodes, or `null` if the database is a single server.
///
/// # Errors
/// 503 if the database does not respond, or if too many requests wait.
pub(crate) async fn status(call: &Call<'_>) -> Outcome {
    // The status query opens a separate connection.
    let _permit = call.admin.permit().await?;
    let found = within(CALL_TIMEOUT, call.store().cluster()).await?;
    let report = found.map(|cluster| ClusterReport::new(&cluster, use_of_nodes()));
    Ok(Reply::json(200, &report))
}

/// Reads this server's metrics about the nodes.
fn use_of_nodes() -> ClusterUse {
    let read = Some(METRICS.bucket_map_read.get()).filter(|read| *read > 0);
    let read = read.and_then(|seconds| DateTime::from_timestamp(seconds, 0));
    ClusterUse {
        silent_nodes: METRICS.open_breakers.get(),
        substituted_lanes: METRICS.substituted_lanes.get(),
        bucket_map_read: read.map(|read| read.to_rfc3339_opts(SecondsFormat::Secs, true)),
    }
}

impl From<StartError> for Refusal {
    fn from(error: StartError) -> Self {
        tracing::warn!(%error, "cannot read the nodes of the cluster");
        Refusal::new(503, "DatabaseUnavailable", "The database does not answer.")
    }
}
