//! `/requests`: the last requests that this server has answered.

use serde_json::{Value, json};

use crate::server::admin::call::Call;
use crate::server::admin::reply::{Outcome, Refusal, Reply};
use crate::service::{KEPT, RecentRequest, RecentRequests};

/// Maximum and default number of requests of an answer.
const MAX_LIMIT: usize = 500;
const LIMIT: usize = 100;

/// Answers with the requests after the id that the query names, or with the last ones.
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
    let requests: Vec<Value> = found.iter().map(to_json).collect();
    Ok(Reply::json(200, &json!({ "requests": requests, "last": last, "kept": KEPT })))
}

fn to_json(request: &RecentRequest) -> Value {
    json!({
        "id": request.id,
        "time": request.at.to_canonical(),
        "operation": request.operation.text(),
        "fromOperator": request.is_of_operator,
        "account": request.account,
        "table": request.table,
        "status": request.status,
        "error": request.refusal.map_or("", |code| code.facts().code),
        "reason": reason(request),
        "milliseconds": request.duration.as_secs_f64() * 1000.0,
        "storeMilliseconds": request.database.as_secs_f64() * 1000.0,
        "requestId": request.request_id,
    })
}

/// Returns the exact reason of an error, or the message that the client got.
fn reason(request: &RecentRequest) -> &str {
    match request.refusal {
        Some(code) if request.reason.is_empty() => code.facts().message,
        _ => &request.reason,
    }
}
