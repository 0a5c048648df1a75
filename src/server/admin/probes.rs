//! Probes for load balancers and orchestrators.

use std::time::Duration;

use serde_json::json;
use tokio::time::timeout;

use super::call::Outcome;
use super::{Call, Refusal, Reply};

/// Timeout for the database to answer.
const DATABASE_TIMEOUT: Duration = Duration::from_secs(2);

/// Liveness: answers while the process runs.
pub(crate) async fn live(_: &Call<'_>) -> Outcome {
    Ok(Reply::json(200, &json!({ "status": "live" })))
}

/// Readiness: the database answers and the server is not shutting down.
///
/// # Errors
/// 503 otherwise.
pub(crate) async fn ready(call: &Call<'_>) -> Outcome {
    if call.admin.is_stopping() {
        return Err(Refusal::new(503, "Stopping", "The server finishes what it has begun and stops."));
    }
    match timeout(DATABASE_TIMEOUT, call.admin.service.primary.answers()).await {
        Ok(Ok(())) => Ok(Reply::json(200, &json!({ "status": "ready" }))),
        _ => Err(Refusal::new(503, "DatabaseUnavailable", "The database does not answer.")),
    }
}
