//! `/test/reset`, `/test/snapshots`: reset, snapshot and restore stored data, in test mode only.

use std::future::Future;
use std::sync::Arc;

use schemars::JsonSchema;
use serde::Serialize;

use super::call::Call;
use super::reply::Outcome;
use super::reply::{Refusal, Reply, Status};
use super::route::QueryField;
use crate::error::Result;
use crate::operator::reports::Time;
use crate::service::Service;
use crate::store::contract::reset::{MAX_SNAPSHOTS, StoreSnapshot};

pub(super) const QUERY: &[QueryField] = &[QueryField::text("account", "This account only, instead of all.")];

#[derive(Serialize, JsonSchema)]
#[schemars(inline)]
pub(super) struct SnapshotName {
    name: String,
}

#[derive(Serialize, JsonSchema)]
#[schemars(inline)]
pub(super) struct Snapshots {
    snapshots: Vec<SnapshotReport>,
}

#[derive(Serialize, JsonSchema)]
#[schemars(rename = "Snapshot")]
struct SnapshotReport {
    name: String,
    /// The account whose state it is; null for all accounts.
    account: Option<String>,
    taken: Time,
}

/// Empties the account in the query string, or all accounts, and then removes the fault rules.
///
/// # Errors
/// 404 for an unknown account; errors of the database.
pub(crate) async fn reset(call: &Call<'_>) -> Outcome {
    let account = account(call)?;
    uncancelled(call, async move |service| service.reset(account.as_deref()).await).await?;
    Ok(Reply::json(200, &Status { status: "reset" }))
}

/// Takes a snapshot of the account in the query string, or of all accounts.
///
/// # Errors
/// 404 for an unknown account; 409 if there are too many snapshots; errors of the database.
pub(crate) async fn take(call: &Call<'_>) -> Outcome {
    let account = account(call)?;
    let taken = uncancelled(call, async move |service| service.take_snapshot(account.as_deref()).await);
    match taken.await? {
        Some(name) => Ok(Reply::json(200, &SnapshotName { name })),
        None => {
            let message = format!("There are {MAX_SNAPSHOTS} snapshots; delete one first.");
            Err(Refusal::new(409, "TooManySnapshots", message))
        }
    }
}

/// Lists all snapshots.
pub(crate) async fn list(call: &Call<'_>) -> Outcome {
    let snapshots = uncancelled(call, async |service| service.snapshots().await).await?;
    let report = |snapshot: StoreSnapshot| {
        let StoreSnapshot { name, account, taken } = snapshot;
        SnapshotReport { name, account, taken: Time(taken) }
    };
    Ok(Reply::json(200, &Snapshots { snapshots: snapshots.into_iter().map(report).collect() }))
}

/// Restores a snapshot, and keeps the snapshot.
///
/// # Errors
/// 404 if no snapshot has this name; errors of the database.
pub(crate) async fn restore(call: &Call<'_>) -> Outcome {
    let name = call.parameter("name").to_owned();
    let restored = uncancelled(call, async move |service| service.restore_snapshot(&name).await).await?;
    found(restored, "restored")
}

/// Deletes a snapshot.
pub(crate) async fn discard(call: &Call<'_>) -> Outcome {
    let name = call.parameter("name").to_owned();
    let deleted = uncancelled(call, async move |service| service.drop_snapshot(&name).await).await?;
    found(deleted, "deleted")
}

/// Returns the account in the query string. Refuses unknown parameters: a misspelt `account` must not select all.
fn account(call: &Call<'_>) -> std::result::Result<Option<String>, Refusal> {
    let mut parameters = call.query.split('&').filter(|pair| !pair.is_empty());
    let is_known = |pair: &str| pair == "account" || pair.starts_with("account=");
    if parameters.next().is_some_and(|pair| !is_known(pair)) || parameters.next().is_some() {
        return Err(Refusal::bad_request("account is the only parameter, given once at most"));
    }
    call.queried_account()
}

fn found(found: bool, status: &'static str) -> Outcome {
    if found {
        return Ok(Reply::json(200, &Status { status }));
    }
    Err(Refusal::new(404, "SnapshotNotFound", "There is no such snapshot."))
}

/// Completes the work even if the caller goes away. Dropping a database connection in the middle of an
/// operation closes the connection, which on PostgreSQL also ends the snapshots.
async fn uncancelled<T: 'static, W: Future<Output = Result<T>> + 'static>(
    call: &Call<'_>,
    work: impl FnOnce(Arc<Service>) -> W,
) -> std::result::Result<T, Refusal> {
    let done = actix_web::rt::spawn(work(call.admin.service.clone())).await;
    let done = done.map_err(|_| Refusal::new(500, "InternalError", "The work did not come to its end."))?;
    Ok(done?)
}
