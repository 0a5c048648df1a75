//! `/test/…`: beginning anew and going back, in test mode only.

use std::future::Future;
use std::sync::Arc;

use serde_json::json;

use super::call::Outcome;
use super::{Call, Refusal, Reply};
use crate::error::Result;
use crate::request::target::Accounts as _;
use crate::service::Service;
use crate::store::rewind::MAX_SNAPSHOTS;

/// Empties the account of the query, or all of them.
///
/// # Errors
/// 404 for an account that is not served, and those of the database.
pub(crate) async fn reset(call: &Call<'_>) -> Outcome {
    let account = account(call)?;
    to_the_end(call, async move |service| service.reset(account.as_deref()).await).await?;
    Ok(Reply::json(200, &json!({ "status": "reset" })))
}

/// Takes a snapshot of the account of the query, or of all of them.
///
/// # Errors
/// 404 as above, 409 where there are too many, and those of the database.
pub(crate) async fn take(call: &Call<'_>) -> Outcome {
    let account = account(call)?;
    let taken = to_the_end(call, async move |service| service.take_snapshot(account.as_deref()).await);
    match taken.await? {
        Some(name) => Ok(Reply::json(200, &json!({ "name": name }))),
        None => {
            let message = format!("There are {MAX_SNAPSHOTS} snapshots; delete one first.");
            Err(Refusal::new(409, "TooManySnapshots", message))
        }
    }
}

/// Every snapshot.
///
/// # Errors
/// Those of the database.
pub(crate) async fn list(call: &Call<'_>) -> Outcome {
    let snapshots = to_the_end(call, async |service| service.snapshots().await).await?;
    let shown = snapshots.iter().map(
        |snapshot| json!({ "name": snapshot.name, "account": snapshot.account, "taken": snapshot.taken.to_canonical() }),
    );
    Ok(Reply::json(200, &json!({ "snapshots": shown.collect::<Vec<_>>() })))
}

/// Goes back to a snapshot, which stays.
///
/// # Errors
/// 404 where there is none of this name, and those of the database.
pub(crate) async fn restore(call: &Call<'_>) -> Outcome {
    let name = call.parameter("name").to_owned();
    let restored = to_the_end(call, async move |service| service.restore_snapshot(&name).await).await?;
    found(restored, "restored")
}

/// Deletes a snapshot.
///
/// # Errors
/// As above.
pub(crate) async fn discard(call: &Call<'_>) -> Outcome {
    let name = call.parameter("name").to_owned();
    let deleted = to_the_end(call, async move |service| service.drop_snapshot(&name).await).await?;
    found(deleted, "deleted")
}

/// What is misspelt must not widen one account to all of them.
fn account(call: &Call<'_>) -> std::result::Result<Option<String>, Refusal> {
    let mut parameters = call.query.split('&').filter(|pair| !pair.is_empty());
    let is_known = |pair: &str| pair == "account" || pair.starts_with("account=");
    if parameters.next().is_some_and(|pair| !is_known(pair)) || parameters.next().is_some() {
        return Err(Refusal::bad_request("account is the only parameter, given once at most"));
    }
    let account = call.query("account")?;
    if account.as_ref().is_some_and(|name| !call.admin.service.follower.accounts().exists(name)) {
        return Err(Refusal::new(404, "AccountNotFound", "There is no such account."));
    }
    Ok(account)
}

fn found(found: bool, status: &str) -> Outcome {
    if found {
        return Ok(Reply::json(200, &json!({ "status": status })));
    }
    Err(Refusal::new(404, "SnapshotNotFound", "There is no such snapshot."))
}

/// Goes on where the caller does not wait: a connection that is left in the
/// middle of something is closed, and PostgreSQL's has the snapshots.
async fn to_the_end<T: 'static, W: Future<Output = Result<T>> + 'static>(
    call: &Call<'_>,
    work: impl FnOnce(Arc<Service>) -> W,
) -> std::result::Result<T, Refusal> {
    let done = actix_web::rt::spawn(work(call.admin.service.clone())).await;
    let done = done.map_err(|_| Refusal::new(500, "InternalError", "The work did not come to its end."))?;
    Ok(done?)
}
