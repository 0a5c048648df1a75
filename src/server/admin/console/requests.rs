//! `/requests`: the latest requests to this server.

use schemars::JsonSchema;
use serde::Serialize;

use crate::operator::reports::Time;
use crate::server::admin::call::Call;
use crate::server::admin::reply::{Outcome, Refusal, Reply};
use crate::server::admin::route::{QueryField, QueryKind};
use crate::service::{KEPT, RecentRequest, RecentRequests};

/// Maximum and default number of requests in a response.
const MAX_LIMIT: usize = 500;
const LIMIT: usize = 100;

pub(crate) const QUERY: &[QueryField] = &[
    QueryField {
        kind: QueryKind::Number,
        ..QueryField::text("after", "Only requests after this id. Without it, the last ones.")
    },
    QueryField {
        kind: QueryKind::Limit { max: MAX_LIMIT, default: LIMIT },
        ..QueryField::text("limit", "Maximum number of requests.")
    },
];

#[derive(Serialize, JsonSchema)]
#[schemars(inline)]
pub(crate) struct RequestsReport {
    requests: Vec<RequestReport>,
    /// The after of the next call.
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

/// Returns the requests after the id in the query string, or the latest requests.
///
/// # Errors
/// 400 for invalid parameters.
pub(crate) async fn requests(call: &Call<'_>) -> Outcome {
    let number = |name: &str| -> Result<Option<u64>, Refusal> {
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
    let newest = recent.map_or(0, RecentRequests::newest);
    let last =
        found.last().map(|request| request.id).or(after.map(|after| after.min(newest))).unwrap_or_default();
    let requests = found.into_iter().map(report).collect();
    Ok(Reply::json(200, &RequestsReport { requests, last, kept: KEPT }))
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
