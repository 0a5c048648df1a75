//! What the server says of itself: `/livez`, `/readyz`, `/metrics`, `/version` and `/openapi.json`.

use std::time::Duration;

use actix_web::http::header;
use serde_json::json;
use tokio::time::timeout;

use super::call::{Call, weight_of};
use super::reply::{Outcome, Refusal, Reply};
use crate::observe::metrics::text::MetricsFormat;
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

/// Answers with all metrics in the text format of Prometheus, or in that of OpenMetrics if the sender prefers it.
pub(crate) async fn metrics(call: &Call<'_>) -> Outcome {
    let accepted = call.header(header::ACCEPT).unwrap_or_default();
    let [open, plain] = [MetricsFormat::OpenMetrics, MetricsFormat::Prometheus]
        .map(|format| weight_of(format.media_type(), accepted));
    let format =
        if open > 0.0 && open >= plain { MetricsFormat::OpenMetrics } else { MetricsFormat::Prometheus };
    Ok(Reply::text(format.content_type(), text::print(format)))
}
