//! `/accounts`: those of the database, as the commands list and change them.
//!
//! A change is served here when its answer is sent, and by other servers over
//! the same database within seconds.

use std::time::Duration;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde::Deserialize;
use serde_json::{Value, json};
use tokio::time::timeout;

use super::call::Outcome;
use super::{Call, Refusal, Reply};
use crate::accounts::{self, AccountsError, Follower};
use crate::auth::seal::{KeySlot, MasterKeys};
use crate::error::{Code, Error};
use crate::request::target::Accounts as _;
use crate::service::clock::system_time;
use crate::store::{Failure, Store};

/// Time that a call may take; what is found out later is not told.
const CALL_TIMEOUT: Duration = Duration::from_secs(20);

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Added {
    name: String,
    /// In base64; new ones without them.
    keys: Option<[String; 2]>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Rotated {
    /// 1 or 2.
    slot: u8,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields, rename_all = "camelCase")]
struct AccountLimits {
    /// Null ends the limit.
    #[serde(deserialize_with = "Option::deserialize")]
    requests_per_second: Option<u32>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Nothing {}

/// The accounts by name, without their keys.
///
/// # Errors
/// 409 without a master key, and those of the database.
pub(crate) async fn list(call: &Call<'_>) -> Outcome {
    master(call)?;
    let found = timely(accounts::list(store(call))).await?;
    let limits = timely(accounts::limits(store(call))).await?;
    Ok(Reply::json(200, &found.iter().map(|account| accounts::shown(account, &limits)).collect::<Value>()))
}

/// One account, without its keys.
///
/// # Errors
/// 404 for an unknown one; 409 for one of the settings and without a master
/// key; those of the database.
pub(crate) async fn read(call: &Call<'_>) -> Outcome {
    stored(call, call.parameter("name"))?;
    let found = timely(accounts::find(store(call), call.parameter("name"))).await?;
    let limits = timely(accounts::limits(store(call))).await?;
    Ok(Reply::json(200, &accounts::shown(&found, &limits)))
}

/// Adds an account, and shows its keys once.
///
/// # Errors
/// 400 for what is no account; 409 for a name that is taken, here or in the
/// settings, without a master key, and with another than the accounts have;
/// those of the database.
pub(crate) async fn add(call: &Call<'_>) -> Outcome {
    let Added { name, keys } = body(call)?;
    let master = stored(call, &name)?;
    let keys = keys.map(|[first, second]| Some([decoded(&first)?, decoded(&second)?]));
    if keys.as_ref().is_some_and(Option::is_none) {
        return Err(Refusal::bad_request("keys: not base64"));
    }
    let now = system_time();
    let added = accounts::add(store(call), master, &name, keys.flatten(), now);
    let added = changed(call, "added", &name, added).await?;
    Ok(Reply::json(201, &json!({ "name": name, "keys": added.keys })))
}

/// Makes a new key in one slot, and shows it once. The other goes on to work.
///
/// # Errors
/// As [`read`]; 400 for a slot that is none.
pub(crate) async fn rotate(call: &Call<'_>) -> Outcome {
    let Rotated { slot: number } = body(call)?;
    let name = call.parameter("name");
    let master = stored(call, name)?;
    let slot = match number {
        1 => KeySlot::First,
        2 => KeySlot::Second,
        _ => return Err(Refusal::bad_request("slot: must be 1 or 2")),
    };
    let now = system_time();
    let rotated = accounts::rotate(store(call), master, name, slot, now);
    let key = changed(call, "rotated a key of", name, rotated).await?;
    Ok(Reply::json(200, &json!({ "name": name, "slot": number, "key": key })))
}

/// Refuses an account, whose keys and tables stay, or serves it again.
///
/// # Errors
/// As [`read`].
pub(crate) async fn set_disabled(call: &Call<'_>, disabled: bool) -> Outcome {
    nothing(call)?;
    let name = call.parameter("name");
    stored(call, name)?;
    let change = accounts::set_disabled(store(call), name, disabled);
    changed(call, if disabled { "disabled" } else { "enabled" }, name, change).await?;
    Ok(Reply::json(200, &json!({ "name": name, "disabled": disabled })))
}

/// How many requests of an account each server answers in a second, if that is limited. The
/// account may be one of the settings.
///
/// # Errors
/// 404 for an unknown one; those of the database.
pub(crate) async fn read_limits(call: &Call<'_>) -> Outcome {
    let name = served(call)?;
    let limits = timely(accounts::limits(store(call))).await?;
    Ok(Reply::json(200, &json!({ "name": name, "requestsPerSecond": limits.get(name) })))
}

/// Limits an account, or ends its limit, which leaves that of the settings.
///
/// # Errors
/// As [`read_limits`]; 400 for a limit that is none.
pub(crate) async fn set_limits(call: &Call<'_>) -> Outcome {
    let AccountLimits { requests_per_second } = body(call)?;
    let name = served(call)?;
    let change = accounts::limit(store(call), name, requests_per_second);
    changed(call, "changed the limits of", name, change).await?;
    Ok(Reply::json(200, &json!({ "name": name, "requestsPerSecond": requests_per_second })))
}

/// The account that the call names, which is one of the settings or of the database.
fn served<'a>(call: &'a Call<'_>) -> Result<&'a str, Refusal> {
    let name = call.parameter("name");
    if follower(call).accounts().exists(name) {
        return Ok(name);
    }
    Err(Refusal::new(404, "AccountNotFound", format!("this server serves no account {name}")))
}

/// Removes an account and its keys. Its tables stay, out of reach.
///
/// # Errors
/// As [`read`].
pub(crate) async fn remove(call: &Call<'_>) -> Outcome {
    nothing(call)?;
    let name = call.parameter("name");
    stored(call, name)?;
    changed(call, "removed", name, accounts::remove(store(call), name)).await?;
    Ok(Reply::json(200, &json!({ "removed": name })))
}

fn store<'a>(call: &'a Call<'_>) -> &'a Store {
    &call.admin.service.primary
}

fn follower<'a>(call: &'a Call<'_>) -> &'a Follower {
    &call.admin.service.follower
}

fn master<'a>(call: &'a Call<'_>) -> Result<&'a MasterKeys, Refusal> {
    follower(call).master().ok_or_else(|| {
        let message = "This server has no master key, so it does not serve the accounts of the database.";
        Refusal::new(409, "NoMasterKey", message)
    })
}

/// Where an account of this name is one of the database, not of the settings.
fn stored<'a>(call: &'a Call<'_>, name: &str) -> Result<&'a MasterKeys, Refusal> {
    let master = master(call)?;
    if follower(call).is_given(name) {
        let message = "This account is one of the server's settings, and is changed there.";
        return Err(Refusal::new(409, "AccountOfSettings", message));
    }
    Ok(master)
}

fn body<'a, T: Deserialize<'a>>(call: &'a Call<'_>) -> Result<T, Refusal> {
    serde_json::from_slice(call.body).map_err(|error| Refusal::bad_request(format!("The body: {error}")))
}

/// Demands that nothing is said that would not be heard.
fn nothing(call: &Call<'_>) -> Result<(), Refusal> {
    if call.body.is_empty() { Ok(()) } else { body::<Nothing>(call).map(|_| ()) }
}

fn decoded(key: &str) -> Option<Vec<u8>> {
    STANDARD.decode(key.trim()).ok()
}

async fn timely<T>(work: impl Future<Output = Result<T, AccountsError>>) -> Result<T, Refusal> {
    match timeout(CALL_TIMEOUT, work).await {
        Ok(done) => Ok(done?),
        Err(_) => Err(Error::from(Code::OperationTimedOut).into()),
    }
}

/// Waits for a change, and serves it.
async fn changed<T>(
    call: &Call<'_>,
    done: &'static str,
    account: &str,
    change: impl Future<Output = Result<T, AccountsError>>,
) -> Result<T, Refusal> {
    let outcome = timely(change).await?;
    tracing::info!(account, "an operator {done} an account");
    follower(call).follow_own_change(store(call)).await;
    Ok(outcome)
}

impl From<AccountsError> for Refusal {
    fn from(error: AccountsError) -> Self {
        let (status, code) = match error {
            AccountsError::Name(_) => (400, "InvalidAccountName"),
            AccountsError::KeyLength => (400, "InvalidKey"),
            AccountsError::Limit => (400, "InvalidLimit"),
            AccountsError::Exists(_) => (409, "AccountExists"),
            AccountsError::Unknown(_) => (404, "AccountNotFound"),
            AccountsError::MasterKey | AccountsError::Closed(_) => (409, "OtherMasterKey"),
            AccountsError::Contended => (409, "Contended"),
            AccountsError::Random => (500, "InternalError"),
            AccountsError::Store(fault) => return Error::from(Failure::Fault(fault)).into(),
        };
        Self::new(status, code, error.to_string())
    }
}
