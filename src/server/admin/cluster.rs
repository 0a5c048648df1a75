//! `/cluster`: the nodes of a Citus cluster, and how this server uses them.

use chrono::{DateTime, SecondsFormat};
use serde_json::{Value, json};

use super::call::Call;
use super::call::{CALL_TIMEOUT, within};
use super::reply::Outcome;
use super::reply::{Refusal, Reply};
use crate::observe::metrics::METRICS;
use crate::operator::to_json;
use crate::store::postgres::StartError;

/// Answers with the nodes; `null` where the database is a single server.
///
/// # Errors
/// 503 if the database does not answer, or too many requests wait.
pub(crate) async fn status(call: &Call<'_>) -> Outcome {
    // It opens a connection of its own.
    let _permit = call.admin.permit().await?;
    let found = within(CALL_TIMEOUT, call.store().cluster()).await?;
    let cluster = found.map_or(Value::Null, |cluster| {
        let mut value = to_json::cluster(&cluster);
        value["server"] = of_this_server();
        value
    });
    Ok(Reply::json(200, &cluster))
}

/// What the metrics say, too.
fn of_this_server() -> Value {
    let read = Some(METRICS.bucket_map_read.get()).filter(|read| *read > 0);
    let read = read.and_then(|seconds| DateTime::from_timestamp(seconds, 0));
    json!({
        "silentNodes": METRICS.open_breakers.get(),
        "substitutedLanes": METRICS.substituted_lanes.get(),
        "bucketMapRead": read.map(|read| read.to_rfc3339_opts(SecondsFormat::Secs, true)),
    })
}

impl From<StartError> for Refusal {
    fn from(error: StartError) -> Self {
        tracing::warn!(%error, "cannot read the nodes of the cluster");
        Refusal::new(503, "DatabaseUnavailable", "The database does not answer.")
    }
}
