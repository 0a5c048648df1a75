//! The state of the server: `/livez`, `/readyz`, `/metrics`, `/version`, `/cluster`, and the facts that the console
//! needs first, `/console/api/session`.

use std::time::Duration;

use actix_web::http::header;
use chrono::{DateTime, SecondsFormat};
use schemars::JsonSchema;
use serde::Serialize;
use tokio::time::timeout;

use super::call::{Call, weight_of, within};
use super::reply::{CallResult, Outcome, Refusal, Reply, Status};
use super::route::{Route, TIMED_OUT, guarded, json, open, token};
use super::state::ConsoleMode;
use crate::observe::metrics::text::MetricsFormat;
use crate::observe::metrics::{METRICS, process, text};
use crate::operator::{ClusterReport, ClusterUse};
use crate::store::Store;

/// Maximum number of accounts to list for the console.
const MAX_ACCOUNTS: usize = 1000;
/// Timeout for a response from the database.
const DATABASE_TIMEOUT: Duration = Duration::from_secs(2);

pub(super) const ROUTES: &[Route] = &[
    open("GET", "/livez", |_| json(async { Ok(Status { status: "live" }) }))
        .about("live", "Whether the process runs")
        .answers::<Status>("The process runs."),
    open("GET", "/readyz", |call| json(ready(call)))
        .about("ready", "Whether the database answers within two seconds and the server is not stopping")
        .answers::<Status>("The server is ready.")
        .others(&[(503, "Stopping, or DatabaseUnavailable.")]),
    guarded("GET", "/metrics", |call| Box::pin(metrics(call))).about("metrics", "All metrics").answers_text(
        "The text format of Prometheus, 0.0.4, or that of OpenMetrics if Accept prefers it.",
        &["text/plain", "application/openmetrics-text"],
    ),
    guarded("GET", "/version", |call| json(async { version(call) }))
        .about("version", "Name, version and database of this server")
        .answers::<VersionReport>("Name, version, database and uptime."),
    guarded("GET", "/cluster", |call| json(cluster(call)))
        .about("getCluster", "The nodes of the Citus cluster that the database is distributed over")
        .answers::<Option<ClusterReport>>("The nodes, each asked now; null for a single server.")
        .others(&[TIMED_OUT, (503, "DatabaseUnavailable, or ServerBusy.")]),
    token("GET", "/console/api/session", |call| json(async { session(call) }))
        .of_console()
        .about("session", "The state of the server that the console shows")
        .answers::<SessionReport>("The state of the server and the accounts that it serves."),
];

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

fn version(call: &Call<'_>) -> CallResult<VersionReport> {
    let (name, version) = ("rowhouse", env!("CARGO_PKG_VERSION"));
    let (database, uptime_seconds) = (DatabaseKind::of(call.store()), process::uptime());
    Ok(VersionReport { name, version, database, uptime_seconds })
}

async fn ready(call: &Call<'_>) -> CallResult<Status> {
    if call.admin.is_stopping() {
        return Err(Refusal::new(503, "Stopping", "The server is stopping."));
    }
    match timeout(DATABASE_TIMEOUT, call.store().answers()).await {
        Ok(Ok(())) => Ok(Status { status: "ready" }),
        _ => Err(Refusal::new(503, "DatabaseUnavailable", "The database does not answer.")),
    }
}

async fn metrics(call: &Call<'_>) -> Outcome {
    let accepted = call.header(header::ACCEPT).unwrap_or_default();
    let [open, plain] = [MetricsFormat::OpenMetrics, MetricsFormat::Prometheus]
        .map(|format| weight_of(format.media_type(), accepted));
    let format =
        if open > 0.0 && open >= plain { MetricsFormat::OpenMetrics } else { MetricsFormat::Prometheus };
    Ok(Reply::text(format.content_type(), text::print(format)))
}

async fn cluster(call: &Call<'_>) -> CallResult<Option<ClusterReport>> {
    // The status query opens a separate connection.
    let _permit = call.admin.permit().await?;
    let found = within(call.store().cluster()).await?;
    Ok(found.map(|cluster| ClusterReport::new(&cluster, use_of_nodes())))
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

#[derive(Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
#[schemars(inline)]
pub(crate) struct SessionReport {
    version: &'static str,
    database: DatabaseKind,
    /// Whether browsers cannot change anything.
    read_only: bool,
    test_mode: bool,
    /// Scheme, host and port by which this machine reaches the Tables port.
    tables_endpoint: String,
    /// The first 1000 accounts.
    accounts: Vec<AccountSummary>,
    more_accounts: bool,
}

#[derive(Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
struct AccountSummary {
    name: String,
    origin: AccountOrigin,
    disabled: bool,
    extended_queries: bool,
}

#[derive(Serialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
#[schemars(inline)]
enum AccountOrigin {
    Settings,
    Database,
}

fn session(call: &Call<'_>) -> CallResult<SessionReport> {
    let admin = call.admin;
    admin.service.recent.as_ref().inspect(|recent| recent.watch());
    let follower = &admin.service.follower;
    let served = follower.accounts();
    let accounts = served.names();
    let listed = accounts.iter().take(MAX_ACCOUNTS).map(|name| {
        let is_given = follower.is_configured(name);
        AccountSummary {
            name: name.to_string(),
            origin: if is_given { AccountOrigin::Settings } else { AccountOrigin::Database },
            disabled: served.is_disabled(name),
            extended_queries: served.has_extended_queries(name),
        }
    });
    Ok(SessionReport {
        version: env!("CARGO_PKG_VERSION"),
        database: DatabaseKind::of(&admin.service.primary),
        read_only: admin.settings.console == ConsoleMode::ReadOnly,
        test_mode: admin.settings.test_mode,
        tables_endpoint: admin.settings.tables_endpoint.clone(),
        accounts: listed.collect(),
        more_accounts: accounts.len() > MAX_ACCOUNTS,
    })
}
