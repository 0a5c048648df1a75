//! The state of the server: `/livez`, `/readyz`, `/metrics` and `/version`.

use std::time::Duration;

use actix_web::http::header;
use schemars::JsonSchema;
use serde::Serialize;
use tokio::time::timeout;

use super::call::{Call, weight_of};
use super::reply::{Outcome, Refusal, Reply, Status};
use crate::observe::metrics::text::MetricsFormat;
use crate::observe::metrics::{process, text};
use crate::store::Store;

/// Timeout for a response from the database.
const DATABASE_TIMEOUT: Duration = Duration::from_secs(2);

/// The kind of a database.
#[derive(Clone, Copy, Serialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
#[schemars(inline)]
pub(crate) enum DatabaseKind {
    Postgres,
    Sqlite,
}

impl DatabaseKind {
    pub(crate) const fn of(store: &Store) -> Self {
        match store {
            Store::Postgres(_) => Self::Postgres,
            Store::Sqlite(_) => Self::Sqlite,
        }
    }
}

#[derive(Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
#[schemars(inline)]
pub(crate) struct VersionReport {
    name: &'static str,
    version: &'static str,
    database: DatabaseKind,
    uptime_seconds: f64,
}

/// Returns name, version, database and uptime.
pub(crate) async fn version(call: &Call<'_>) -> Outcome {
    let (name, version) = ("rowhouse", env!("CARGO_PKG_VERSION"));
    let (database, uptime_seconds) = (DatabaseKind::of(call.store()), process::uptime());
    Ok(Reply::json(200, &VersionReport { name, version, database, uptime_seconds }))
}

/// Reports liveness: always successful while the process runs.
pub(crate) async fn live(_: &Call<'_>) -> Outcome {
    Ok(Reply::json(200, &Status { status: "live" }))
}

/// Reports readiness: the database responds and the server is not shutting down.
///
/// # Errors
/// 503 otherwise.
pub(crate) async fn ready(call: &Call<'_>) -> Outcome {
    if call.admin.is_stopping() {
        return Err(Refusal::new(503, "Stopping", "The server finishes what it has begun and stops."));
    }
    match timeout(DATABASE_TIMEOUT, call.store().answers()).await {
        Ok(Ok(())) => Ok(Reply::json(200, &Status { status: "ready" })),
        _ => Err(Refusal::new(503, "DatabaseUnavailable", "The database does not answer.")),
    }
}

/// Returns all metrics in the Prometheus text format, or in the OpenMetrics format if the client prefers it.
pub(crate) async fn metrics(call: &Call<'_>) -> Outcome {
    let accepted = call.header(header::ACCEPT).unwrap_or_default();
    let [open, plain] = [MetricsFormat::OpenMetrics, MetricsFormat::Prometheus]
        .map(|format| weight_of(format.media_type(), accepted));
    let format =
        if open > 0.0 && open >= plain { MetricsFormat::OpenMetrics } else { MetricsFormat::Prometheus };
    Ok(Reply::text(format.content_type(), text::print(format)))
}
