//! `/accounts`: lists and changes the accounts of the database, like `rowhouse account`.
//!
//! This server applies a change before it responds. Other servers on the same database apply it within
//! seconds.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::call::Call;
use super::call::{CALL_TIMEOUT, within};
use super::reply::Outcome;
use super::reply::{Refusal, Reply};
use crate::operator::OperatorError;
use crate::operator::accounts::{self, Follower};
use crate::operator::reports::{
    AccountLimit, AccountQueries, AccountReport, AccountSwitch, RemovedAccount, RotatedKey,
};
use crate::protocol::auth::accounts::connection_string;
use crate::protocol::auth::seal::{KeySlot, MasterKeys};
use crate::protocol::model::Ticks;
use crate::protocol::request::target::Accounts as _;

#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
#[schemars(inline)]
pub(super) struct AddAccount {
    #[schemars(regex(pattern = "^[a-z0-9]{3,24}$"))]
    name: String,
    /// Keys that clients already have, of 1 to 1024 bytes, in base64. If absent, the server generates new keys.
    keys: Option<[String; 2]>,
}

/// A new account, with its keys in base64.
#[derive(Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
#[schemars(inline)]
pub(super) struct AddedAccount<'a> {
    name: &'a str,
    keys: &'a [String; 2],
    /// For clients on the server's machine.
    connection_strings: [String; 2],
}

#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
#[schemars(inline)]
pub(super) struct RotateKey {
    /// 1 or 2.
    #[schemars(range(min = 1, max = 2))]
    slot: u8,
}

#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, rename_all = "camelCase")]
#[schemars(inline)]
pub(super) struct AccountLimits {
    /// Null removes the limit, so that the limit of the settings applies.
    #[serde(deserialize_with = "Option::deserialize")]
    #[schemars(required, range(min = 1, max = 1_000_000), extend("type" = ["integer", "null"]))]
    requests_per_second: Option<u32>,
}

#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
#[schemars(inline)]
pub(super) struct ChosenQueries {
    /// Whether clients of the account may use extended queries.
    extended: bool,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Nothing {}

/// Lists the accounts by name, without their keys.
///
/// # Errors
/// 409 without a master key; errors of the database.
pub(crate) async fn list(call: &Call<'_>) -> Outcome {
    master(call)?;
    let found = within(CALL_TIMEOUT, accounts::list(call.store())).await?;
    let options = within(CALL_TIMEOUT, accounts::options(call.store())).await?;
    Ok(Reply::json(
        200,
        &found.iter().map(|account| AccountReport::new(account, &options)).collect::<Vec<_>>(),
    ))
}

/// Returns one account, without its keys.
///
/// # Errors
/// 404 for an unknown account; 409 for an account of the settings, or without a master key; errors of the
/// database.
pub(crate) async fn read(call: &Call<'_>) -> Outcome {
    stored(call, call.parameter("name"))?;
    let found = within(CALL_TIMEOUT, accounts::find(call.store(), call.parameter("name"))).await?;
    let options = within(CALL_TIMEOUT, accounts::options(call.store())).await?;
    Ok(Reply::json(200, &AccountReport::new(&found, &options)))
}

/// Adds an account and returns its keys, which are never returned again.
///
/// # Errors
/// 400 for an invalid account; 409 for a name that exists in the database or in the settings, without a
/// master key, or if the master key does not decrypt the stored accounts; errors of the database.
pub(crate) async fn add(call: &Call<'_>) -> Outcome {
    let AddAccount { name, keys } = call.document()?;
    call.subject.get_or_init(|| name.clone());
    let master = stored(call, &name)?;
    let keys = keys.map(|[first, second]| Some([decoded(&first)?, decoded(&second)?]));
    if keys.as_ref().is_some_and(Option::is_none) {
        return Err(Refusal::bad_request("keys: not base64"));
    }
    let now = Ticks::now();
    let added = accounts::add(call.store(), master, &name, keys.flatten(), now);
    let added = changed(call, added).await?;
    let connection_strings = added.keys.each_ref().map(|key| connection(call, &name, key));
    Ok(Reply::json(201, &AddedAccount { name: &name, keys: &added.keys, connection_strings }))
}

/// Generates a new key in one slot and returns it, once only. The other key keeps working.
///
/// # Errors
/// Those of [`read`]; 400 for an invalid slot.
pub(crate) async fn rotate(call: &Call<'_>) -> Outcome {
    let RotateKey { slot: number } = call.document()?;
    let name = call.parameter("name");
    let master = stored(call, name)?;
    let slot = match number {
        1 => KeySlot::First,
        2 => KeySlot::Second,
        _ => return Err(Refusal::bad_request("slot: must be 1 or 2")),
    };
    let now = Ticks::now();
    let rotated = accounts::rotate(call.store(), master, name, slot, now);
    let key = changed(call, rotated).await?;
    let connection_string = connection(call, name, &key);
    Ok(Reply::json(200, &RotatedKey { name, slot: number, key: &key, connection_string }))
}

/// Disables or enables an account. The account keeps its keys and tables.
pub(crate) async fn set_disabled(call: &Call<'_>, disabled: bool) -> Outcome {
    nothing(call)?;
    let name = call.parameter("name");
    stored(call, name)?;
    let change = accounts::set_disabled(call.store(), name, disabled);
    changed(call, change).await?;
    Ok(Reply::json(200, &AccountSwitch { name, disabled }))
}

/// Returns the limit of an account, in requests per second on each server. The account may be one of the
/// settings.
///
/// # Errors
/// 404 for an unknown account; errors of the database.
pub(crate) async fn read_limits(call: &Call<'_>) -> Outcome {
    let name = served(call)?;
    let options = within(CALL_TIMEOUT, accounts::options(call.store())).await?;
    let requests_per_second = options.get(name).and_then(|options| options.requests_per_second);
    Ok(Reply::json(200, &AccountLimit { name, requests_per_second }))
}

/// Sets the limit of an account, or removes it so that the limit in the settings applies.
///
/// # Errors
/// Those of [`read_limits`]; 400 for an invalid limit.
pub(crate) async fn set_limits(call: &Call<'_>) -> Outcome {
    let AccountLimits { requests_per_second } = call.document()?;
    let name = served(call)?;
    let change = accounts::limit(call.store(), name, requests_per_second);
    changed(call, change).await?;
    Ok(Reply::json(200, &AccountLimit { name, requests_per_second }))
}

/// Returns whether this server accepts extended queries of an account, which may be one of the settings.
///
/// # Errors
/// 404 for an unknown account.
pub(crate) fn read_queries(call: &Call<'_>) -> Outcome {
    let name = served(call)?;
    let extended = follower(call).accounts().has_extended_queries(name);
    Ok(Reply::json(200, &AccountQueries { name, extended }))
}

/// Sets whether an account may use extended queries.
///
/// # Errors
/// Those of [`read_queries`]; 400 for an invalid body; errors of the database.
pub(crate) async fn set_queries(call: &Call<'_>) -> Outcome {
    let ChosenQueries { extended } = call.document()?;
    let name = served(call)?;
    changed(call, accounts::set_queries(call.store(), name, extended)).await?;
    Ok(Reply::json(200, &AccountQueries { name, extended }))
}

/// Returns the account in the path, which must be in the settings or in the database.
fn served<'a>(call: &'a Call<'_>) -> Result<&'a str, Refusal> {
    let name = call.parameter("name");
    if follower(call).accounts().exists(name) {
        return Ok(name);
    }
    Err(Refusal::new(404, "AccountNotFound", format!("this server serves no account {name}")))
}

/// Removes an account and its keys. The account's tables stay, but are inaccessible.
pub(crate) async fn remove(call: &Call<'_>) -> Outcome {
    nothing(call)?;
    let name = call.parameter("name");
    stored(call, name)?;
    changed(call, accounts::remove(call.store(), name)).await?;
    Ok(Reply::json(200, &RemovedAccount { removed: name }))
}

/// Returns the connection string for clients on this machine.
fn connection(call: &Call<'_>, account: &str, key: &str) -> String {
    connection_string(&call.admin.settings.tables_endpoint, account, key)
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

/// Returns the master keys, unless the settings define this account.
fn stored<'a>(call: &'a Call<'_>, name: &str) -> Result<&'a MasterKeys, Refusal> {
    let master = master(call)?;
    if follower(call).is_given(name) {
        let message = "This account is one of the server's settings, and is changed there.";
        return Err(Refusal::new(409, "AccountOfSettings", message));
    }
    Ok(master)
}

/// Refuses a body with members, because they would be ignored.
fn nothing(call: &Call<'_>) -> Result<(), Refusal> {
    if call.body().is_empty() { Ok(()) } else { call.document::<Nothing>().map(|_| ()) }
}

fn decoded(key: &str) -> Option<Vec<u8>> {
    STANDARD.decode(key.trim()).ok()
}

/// Waits until a change is stored, and loads it.
async fn changed<T>(
    call: &Call<'_>,
    change: impl Future<Output = Result<T, OperatorError>>,
) -> Result<T, Refusal> {
    let outcome = within(CALL_TIMEOUT, change).await?;
    follower(call).follow_own_change(call.store()).await;
    Ok(outcome)
}
