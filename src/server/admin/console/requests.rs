//! `/requests` and `/history`: the latest requests to this server, and its last hour.

use std::time::Duration;

use schemars::JsonSchema;
use serde::Serialize;

use crate::observe::metrics::METRICS;
use crate::operator::durations::Time;
use crate::server::admin::call::Call;
use crate::server::admin::history::{HistoryReport, STEP};
use crate::server::admin::reply::{CallResult, Refusal};
use crate::server::admin::route::{PARAMETER, QueryField, QueryKind, Route, json, token};
use crate::server::admin::state::Admin;
use crate::service::{MAX_RECENT, RecentRequest, RecentRequests};
use crate::store::Failure;

/// Maximum and default number of requests in a response.
const MAX_LIMIT: usize = 500;
const LIMIT: usize = 100;

const QUERY: &[QueryField] = &[
    QueryField {
        kind: QueryKind::Number,
        ..QueryField::text("after", "Only requests after this id. Without it, the last ones.")
    },
    QueryField {
        kind: QueryKind::Limit { max: MAX_LIMIT, default: LIMIT },
        ..QueryField::text("limit", "Maximum number of requests.")
    },
];

pub(crate) const ROUTES: &[Route] = &[
    token("GET", "/requests", |call| json(async { requests(call) }))
        .of_console()
        .about("requests", "The last requests that this server has answered")
        .details(
            "Until the first call of this path or of /console/api/session, the server keeps only refused and slow \
             requests.",
        )
        .query(QUERY)
        .answers::<RequestsReport>("Requests in the order of their ids.")
        .others(&[PARAMETER]),
    token("GET", "/history", |call| json(async { Ok(call.admin.history.report()) }))
        .of_console()
        .about("history", "The last hour of this server")
        .answers::<HistoryReport>(
            "Points of ten seconds each, the oldest first. A table has a point for each request of /tables.",
        ),
];

#[derive(Serialize, JsonSchema)]
#[schemars(inline)]
pub(crate) struct RequestsReport {
    requests: Vec<RequestReport>,
    /// The value of `after` for the next call.
    last: u64,
    /// The number of requests that the server keeps.
    kept: usize,
}

#[derive(Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
#[schemars(rename = "Request")]
struct RequestReport {
    id: u64,
    time: Time,
    operation: &'static str,
    /// Whether the request came over the admin listener, as those of the console do.
    from_operator: bool,
    account: String,
    table: String,
    status: u16,
    error: &'static str,
    /// The exact reason of an error. It may name keys of entities, but has no secret.
    reason: String,
    milliseconds: f64,
    store_milliseconds: f64,
    request_id: String,
}

fn requests(call: &Call<'_>) -> CallResult<RequestsReport> {
    let number = |name: &str| -> CallResult<Option<u64>> {
        let refuse = |_| Refusal::bad_request(format!("{name}: must be a number"));
        call.query(name)?.map(|text| text.parse().map_err(refuse)).transpose()
    };
    let after = number("after")?;
    let limit = match number("limit")? {
        None => LIMIT,
        Some(limit) if (1..=MAX_LIMIT as u64).contains(&limit) => limit as usize,
        Some(_) => return Err(Refusal::bad_request(format!("limit: must be 1 to {MAX_LIMIT}"))),
    };
    let recent = call.admin.service.recent.as_ref();
    recent.inspect(|recent| recent.watch());
    let found = recent.map(|recent| recent.read(after, limit)).unwrap_or_default();
    let newest = recent.map_or(0, RecentRequests::newest_id);
    let last =
        found.last().map(|request| request.id).or(after.map(|after| after.min(newest))).unwrap_or_default();
    let requests = found.into_iter().map(report).collect();
    Ok(RequestsReport { requests, last, kept: MAX_RECENT })
}

fn report(request: RecentRequest) -> RequestReport {
    RequestReport {
        id: request.id,
        time: Time(request.at),
        operation: request.ending.operation.text(),
        from_operator: request.is_of_operator,
        status: request.ending.status,
        error: request.ending.refusal.map_or("", |code| code.facts().code),
        reason: reason(&request).to_owned(),
        milliseconds: request.ending.duration.as_secs_f64() * 1000.0,
        store_milliseconds: request.ending.database.as_secs_f64() * 1000.0,
        account: request.account,
        table: request.table,
        request_id: request.request_id,
    }
}

/// Returns the exact reason of an error, or the message that the client received.
fn reason(request: &RecentRequest) -> &str {
    match request.ending.refusal {
        Some(code) if request.reason.is_empty() => code.facts().message,
        _ => &request.reason,
    }
}

/// Returns the job that adds a point at the end of each step.
pub(crate) fn record_history() -> impl AsyncFnMut(&Admin) -> Result<Duration, Failure> + 'static {
    let mut has_begun = false;
    async move |admin: &Admin| {
        if std::mem::replace(&mut has_begun, true) {
            admin.history.step(METRICS.requests.totals());
        }
        Ok(STEP)
    }
}
