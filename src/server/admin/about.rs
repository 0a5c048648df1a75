//! What the server says of itself: `/livez`, `/readyz`, `/metrics`, `/version` and `/openapi.json`.

use std::time::Duration;

use serde_json::json;
use tokio::time::timeout;

use super::call::Call;
use super::reply::Outcome;
use super::reply::{Refusal, Reply};
use crate::observe::metrics::{process, text};
use crate::store::Store;

/// Timeout for the database to answer.
const DATABASE_TIMEOUT: Duration = Duration::from_secs(2);

/// The OpenAPI description of all routes, maintained by hand.
pub(crate) const OPENAPI: &str = include_str!("openapi.json");

/// Returns the kind of a database.
pub(crate) const fn database(store: &Store) -> &'static str {
    match store {
        Store::Postgres(_) => "postgres",
        Store::Sqlite(_) => "sqlite",
    }
}

/// Answers with name, version, database and uptime.
pub(crate) async fn version(call: &Call<'_>) -> Outcome {
    Ok(Reply::json(
        200,
        &json!({
            "name": "rowhouse",
            "version": env!("CARGO_PKG_VERSION"),
            "database": database(call.store()),
            "uptimeSeconds": process::uptime(),
        }),
    ))
}

/// Answers with the OpenAPI description.
pub(crate) async fn openapi(_: &Call<'_>) -> Outcome {
    Ok(Reply::text("application/json", OPENAPI))
}

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
    match timeout(DATABASE_TIMEOUT, call.store().answers()).await {
        Ok(Ok(())) => Ok(Reply::json(200, &json!({ "status": "ready" }))),
        _ => Err(Refusal::new(503, "DatabaseUnavailable", "The database does not answer.")),
    }
}

/// Answers with all metrics as OpenMetrics text.
pub(crate) async fn metrics(_: &Call<'_>) -> Outcome {
    Ok(Reply::text(text::CONTENT_TYPE, text::print()))
}
