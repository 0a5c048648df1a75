//! `/test/…`: resets, snapshots and restores stored data, and injects faults, in test mode only.

use std::future::Future;
use std::sync::Arc;

use schemars::JsonSchema;
use serde::Serialize;

use super::call::Call;
use super::reply::{CallResult, Refusal, Status};
use super::route::{NO_ACCOUNT, NO_ANSWER, OtherAnswer, PARAMETER, QueryField, Route, for_tests, json};
use crate::error::Result;
use crate::operator::durations::Time;
use crate::service::{FaultRule, FaultRuleCount, Service};
use crate::store::contract::reset::{MAX_SNAPSHOTS, StoreSnapshot};

const QUERY: &[QueryField] = &[QueryField::text("account", "This account only, instead of all.")];

pub(super) const ROUTES: &[Route] = &[
    for_tests("POST", "/test/reset", |call| json(reset(call)))
        .about("reset", "Empty all accounts, or one")
        .details(
            "Deletes tables, entities, policies and service properties, but not the accounts; without an account, \
             also the fault rules.",
        )
        .query(QUERY)
        .answers::<Status>("The accounts are empty.")
        .others(&[PARAMETER, NO_ACCOUNT, NO_ANSWER]),
    for_tests("GET", "/test/snapshots", |call| json(snapshots(call)))
        .about("snapshots", "All snapshots, the oldest first")
        .answers::<Snapshots>("The snapshots.")
        .others(&[NO_ANSWER]),
    for_tests("POST", "/test/snapshots", |call| json(take(call)))
        .about("takeSnapshot", "Take a snapshot of all accounts, or of one")
        .details(
            "At most 64 are kept. They are lost when the server stops and, on PostgreSQL, when the connection that \
             keeps them is lost.",
        )
        .query(QUERY)
        .answers::<SnapshotName>("The name of the snapshot.")
        .others(&[PARAMETER, NO_ACCOUNT, (409, "TooManySnapshots: there are 64."), NO_ANSWER]),
    for_tests("POST", "/test/snapshots/{name}/restore", |call| json(restore(call)))
        .about("restoreSnapshot", "Restore a snapshot, which stays")
        .answers::<Status>("The state is that of the snapshot, including ETags and timestamps.")
        .others(&[(404, "SnapshotNotFound."), NO_ANSWER]),
    for_tests("DELETE", "/test/snapshots/{name}", |call| json(discard(call)))
        .about("deleteSnapshot", "Delete a snapshot")
        .answers::<Status>("The snapshot is deleted.")
        .others(&[(404, "SnapshotNotFound."), NO_ANSWER]),
    for_tests("GET", "/test/faults", |call| json(async { fault_rules(call) }))
        .about("faultRules", "The fault rules with their counts")
        .answers::<FaultRuleList>("The rules.")
        .others(&[NO_PARAMETER]),
    for_tests("PUT", "/test/faults", |call| json(async { set_fault_rules(call) }))
        .about("setFaultRules", "Replace all fault rules")
        .body::<Vec<FaultRule>>()
        .answers::<FaultRuleList>("The rules, with counts at zero.")
        .others(&[(400, "A rule is invalid, there are more than 100, or there is a parameter; nothing is changed.")]),
    for_tests("DELETE", "/test/faults", |call| json(async { clear_fault_rules(call) }))
        .about("clearFaultRules", "Remove all fault rules")
        .answers::<FaultRuleList>("An empty list.")
        .others(&[NO_PARAMETER]),
];

const NO_PARAMETER: OtherAnswer = (400, "There is a parameter.");

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
    /// The account whose state the snapshot has; null for all accounts.
    account: Option<String>,
    taken: Time,
}

#[derive(Serialize, JsonSchema)]
#[schemars(rename = "FaultRules")]
pub(super) struct FaultRuleList {
    rules: Vec<FaultRuleCount>,
}

async fn reset(call: &Call<'_>) -> CallResult<Status> {
    let account = account(call)?;
    uncancelled(call, async move |service| service.reset(account.as_deref()).await).await?;
    Ok(Status { status: "reset" })
}

async fn take(call: &Call<'_>) -> CallResult<SnapshotName> {
    let account = account(call)?;
    let taken = uncancelled(call, async move |service| service.take_snapshot(account.as_deref()).await);
    taken.await?.map(|name| SnapshotName { name }).ok_or_else(|| {
        let message = format!("There are {MAX_SNAPSHOTS} snapshots; delete one first.");
        Refusal::new(409, "TooManySnapshots", message)
    })
}

async fn snapshots(call: &Call<'_>) -> CallResult<Snapshots> {
    let snapshots = uncancelled(call, async |service| service.snapshots().await).await?;
    let report = |snapshot: StoreSnapshot| {
        let StoreSnapshot { name, account, taken } = snapshot;
        SnapshotReport { name, account, taken: Time(taken) }
    };
    Ok(Snapshots { snapshots: snapshots.into_iter().map(report).collect() })
}

async fn restore(call: &Call<'_>) -> CallResult<Status> {
    let name = call.parameter("name").to_owned();
    let restored = uncancelled(call, async move |service| service.restore_snapshot(&name).await).await?;
    found(restored, "restored")
}

async fn discard(call: &Call<'_>) -> CallResult<Status> {
    let name = call.parameter("name").to_owned();
    let deleted = uncancelled(call, async move |service| service.drop_snapshot(&name).await).await?;
    found(deleted, "deleted")
}

/// Returns the account in the query string. Refuses unknown parameters: a misspelt `account` must not select all.
fn account(call: &Call<'_>) -> CallResult<Option<String>> {
    let mut parameters = call.query.split('&').filter(|pair| !pair.is_empty());
    let is_known = |pair: &str| pair == "account" || pair.starts_with("account=");
    if parameters.next().is_some_and(|pair| !is_known(pair)) || parameters.next().is_some() {
        return Err(Refusal::bad_request("account is the only parameter, and may be given once"));
    }
    call.queried_account()
}

fn found(found: bool, status: &'static str) -> CallResult<Status> {
    if found {
        return Ok(Status { status });
    }
    Err(Refusal::new(404, "SnapshotNotFound", "There is no such snapshot."))
}

/// Completes the work even if the caller goes away. Dropping a database connection in the middle of an
/// operation closes the connection, which on PostgreSQL also ends the snapshots.
async fn uncancelled<T: 'static, W: Future<Output = Result<T>> + 'static>(
    call: &Call<'_>,
    work: impl FnOnce(Arc<Service>) -> W,
) -> CallResult<T> {
    let done = actix_web::rt::spawn(work(call.admin.service.clone())).await;
    let done = done.map_err(|_| Refusal::new(500, "InternalError", "The request was not completed."))?;
    Ok(done?)
}

fn fault_rules(call: &Call<'_>) -> CallResult<FaultRuleList> {
    if call.query.is_empty() {
        return Ok(FaultRuleList { rules: call.admin.service.fault_rules.list() });
    }
    Err(Refusal::bad_request("/test/faults has no parameters: its rules are those of the server"))
}

fn set_fault_rules(call: &Call<'_>) -> CallResult<FaultRuleList> {
    fault_rules(call)?;
    call.admin.service.fault_rules.replace(call.document()?).map_err(Refusal::bad_request)?;
    fault_rules(call)
}

fn clear_fault_rules(call: &Call<'_>) -> CallResult<FaultRuleList> {
    fault_rules(call)?;
    call.admin.service.fault_rules.clear();
    fault_rules(call)
}
