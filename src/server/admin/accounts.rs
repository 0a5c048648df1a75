//! `/accounts`: lists and changes the accounts of the database, like `rowhouse account`.
//!
//! This server applies a change before it responds. Other servers on the same database apply it within
//! seconds.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::call::{Call, within};
use super::reply::{CallResult, Refusal};
use super::route::{
    NO_ACCOUNT, NO_ANSWER, OtherAnswer, Route, TIMED_OUT, UNKNOWN, created, guarded, json, token,
};
use crate::operator::OperatorError;
use crate::operator::accounts::{
    self, AccountLimit, AccountQueries, AccountReport, AccountSwitch, Follower, RemovedAccount, RotatedKey,
};
use crate::protocol::auth::accounts::connection_string;
use crate::protocol::auth::key_encryption::{KeySlot, MasterKeys};
use crate::protocol::model::Ticks;
use crate::protocol::request::target::Accounts as _;

pub(super) const ROUTES: &[Route] = &[
    guarded("GET", "/accounts", |call| json(list(call)))
        .about("listAccounts", "The accounts of the database, by name, without their keys")
        .answers::<Vec<AccountReport>>("The accounts.")
        .others(&[NO_MASTER_KEY, TIMED_OUT, NO_ANSWER]),
    token("POST", "/accounts", |call| created(add(call)))
        .about("addAccount", "Add an account, and return its keys once")
        .details(APPLIED)
        .body::<AddAccount>()
        .creates::<AddedAccount>("The account with its keys.")
        .others(&[
            (400, "InvalidAccountName, or InvalidKey."),
            (409, "AccountExists."),
            NOT_STORED,
            OTHER_MASTER_KEY,
            UNKNOWN,
            NO_ANSWER,
        ]),
    guarded("GET", "/accounts/{name}", |call| json(read(call)))
        .about("readAccount", "One account, without its keys")
        .answers::<AccountReport>("The account.")
        .others(&[NO_ACCOUNT, NOT_STORED, TIMED_OUT, NO_ANSWER]),
    token("DELETE", "/accounts/{name}", |call| json(remove(call)))
        .about(
            "removeAccount",
            "Remove an account and its keys; its tables stay inaccessible until its name is added again",
        )
        .details(APPLIED)
        .answers::<RemovedAccount>("The account is removed.")
        .others(&[NO_BODY, NO_ACCOUNT, NOT_STORED, UNKNOWN, NO_ANSWER]),
    token("POST", "/accounts/{name}/disable", |call| json(set_disabled(call, true)))
        .about("disableAccount", "Refuse the requests of an account; its keys and tables stay")
        .details(APPLIED)
        .answers::<AccountSwitch>("The account is disabled.")
        .others(&[NO_BODY, NO_ACCOUNT, NOT_STORED, UNKNOWN, NO_ANSWER]),
    token("POST", "/accounts/{name}/enable", |call| json(set_disabled(call, false)))
        .about("enableAccount", "Serve a disabled account again")
        .details(APPLIED)
        .answers::<AccountSwitch>("The account is enabled.")
        .others(&[NO_BODY, NO_ACCOUNT, NOT_STORED, UNKNOWN, NO_ANSWER]),
    guarded("GET", "/accounts/{name}/limits", |call| json(read_limits(call)))
        .about("readLimits", "The limits of an account of the database or of the settings")
        .answers::<AccountLimit>("The limits.")
        .others(&[NO_ACCOUNT, TIMED_OUT, NO_ANSWER]),
    token("PUT", "/accounts/{name}/limits", |call| json(set_limits(call)))
        .about("setLimits", "Limit the requests per second of an account on each server, or remove its limit")
        .details(APPLIED)
        .body::<AccountLimits>()
        .answers::<AccountLimit>("The new limits.")
        .others(&[(400, "InvalidLimit: the limit is not 1 to 1000000."), NO_ACCOUNT, UNKNOWN, NO_ANSWER]),
    guarded("GET", "/accounts/{name}/queries", |call| json(async { read_queries(call) }))
        .about("readQueries", "Whether this server answers extended queries of an account")
        .details("The account may be one of the database or of the settings.")
        .answers::<AccountQueries>("The choice.")
        .others(&[NO_ACCOUNT]),
    token("PUT", "/accounts/{name}/queries", |call| json(set_queries(call)))
        .about("setQueries", "Allow or forbid extended queries for the clients of an account")
        .details(APPLIED)
        .body::<ChosenQueries>()
        .answers::<AccountQueries>("The new choice.")
        .others(&[NO_ACCOUNT, UNKNOWN, NO_ANSWER]),
    token("POST", "/accounts/{name}/rotate", |call| json(rotate(call)))
        .about("rotateKey", "Generate a new key in one slot, and return it once; the other key keeps working")
        .details(APPLIED)
        .body::<RotateKey>()
        .answers::<RotatedKey>("The new key.")
        .others(&[
            NO_ACCOUNT,
            NOT_STORED,
            OTHER_MASTER_KEY,
            (409, "Contended: another caller changed the account."),
            UNKNOWN,
            NO_ANSWER,
        ]),
];

const APPLIED: &str = "This server applies a change before it answers; other servers on the same database do so within seconds.";
const NO_BODY: OtherAnswer = (400, "BadRequest: the body must be empty or {}.");
const NO_MASTER_KEY: OtherAnswer = (409, "NoMasterKey: the server was started without one.");
const NOT_STORED: OtherAnswer = (
    409,
    "NoMasterKey: the server was started without one. AccountOfSettings: the account is one of the server's settings.",
);
const OTHER_MASTER_KEY: OtherAnswer =
    (409, "OtherMasterKey: the server's master key does not decrypt the stored keys.");

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
pub(super) struct AddedAccount {
    name: String,
    keys: [String; 2],
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

async fn list(call: &Call<'_>) -> CallResult<Vec<AccountReport>> {
    master(call)?;
    within(accounts::list(call.store())).await
}

async fn read(call: &Call<'_>) -> CallResult<AccountReport> {
    let (name, _) = stored(call)?;
    within(accounts::report(call.store(), name)).await
}

async fn add(call: &Call<'_>) -> CallResult<AddedAccount> {
    let AddAccount { name, keys } = call.document()?;
    call.subject.get_or_init(|| name.clone());
    let master = master_of(call, &name)?;
    let keys = keys.map(|[first, second]| Some([decoded(&first)?, decoded(&second)?]));
    if keys.as_ref().is_some_and(Option::is_none) {
        return Err(Refusal::bad_request("keys: not base64"));
    }
    let keys =
        changed(call, accounts::add(call.store(), master, &name, keys.flatten(), Ticks::now())).await?;
    let connection_strings = keys.each_ref().map(|key| connection(call, &name, key));
    Ok(AddedAccount { name, keys, connection_strings })
}

async fn rotate(call: &Call<'_>) -> CallResult<RotatedKey> {
    let RotateKey { slot: number } = call.document()?;
    let (name, master) = stored(call)?;
    let slot = match number {
        1 => KeySlot::First,
        2 => KeySlot::Second,
        _ => return Err(Refusal::bad_request("slot: must be 1 or 2")),
    };
    let key = changed(call, accounts::rotate(call.store(), master, name, slot, Ticks::now())).await?;
    let connection_string = connection(call, name, &key);
    Ok(RotatedKey { name: name.to_owned(), slot: number, key, connection_string })
}

async fn set_disabled(call: &Call<'_>, disabled: bool) -> CallResult<AccountSwitch> {
    nothing(call)?;
    let (name, _) = stored(call)?;
    changed(call, accounts::set_disabled(call.store(), name, disabled)).await
}

async fn remove(call: &Call<'_>) -> CallResult<RemovedAccount> {
    nothing(call)?;
    let (name, _) = stored(call)?;
    changed(call, accounts::remove(call.store(), name)).await
}

async fn read_limits(call: &Call<'_>) -> CallResult<AccountLimit> {
    within(accounts::read_limit(call.store(), served(call)?)).await
}

async fn set_limits(call: &Call<'_>) -> CallResult<AccountLimit> {
    let AccountLimits { requests_per_second } = call.document()?;
    changed(call, accounts::set_limit(call.store(), served(call)?, requests_per_second)).await
}

fn read_queries(call: &Call<'_>) -> CallResult<AccountQueries> {
    let name = served(call)?.to_owned();
    let extended = follower(call).accounts().has_extended_queries(&name);
    Ok(AccountQueries { name, extended })
}

async fn set_queries(call: &Call<'_>) -> CallResult<AccountQueries> {
    let ChosenQueries { extended } = call.document()?;
    changed(call, accounts::set_queries(call.store(), served(call)?, extended)).await
}

/// Returns the account in the path, which must be in the settings or in the database.
fn served<'a>(call: &'a Call<'_>) -> CallResult<&'a str> {
    let name = call.parameter("name");
    if follower(call).accounts().exists(name) {
        return Ok(name);
    }
    Err(Refusal::new(404, "AccountNotFound", format!("this server serves no account {name}")))
}

/// Returns the connection string for clients on this machine.
fn connection(call: &Call<'_>, account: &str, key: &str) -> String {
    connection_string(&call.admin.settings.tables_endpoint, account, key)
}

fn follower<'a>(call: &'a Call<'_>) -> &'a Follower {
    &call.admin.service.follower
}

fn master<'a>(call: &'a Call<'_>) -> CallResult<&'a MasterKeys> {
    follower(call).master().ok_or_else(|| {
        let message = "This server has no master key, so it does not serve the accounts of the database.";
        Refusal::new(409, "NoMasterKey", message)
    })
}

/// Returns the account in the path, which must not be in the settings, and the master keys.
fn stored<'a>(call: &'a Call<'_>) -> CallResult<(&'a str, &'a MasterKeys)> {
    let name = call.parameter("name");
    Ok((name, master_of(call, name)?))
}

/// Returns the master keys, unless the settings define this account.
fn master_of<'a>(call: &'a Call<'_>, name: &str) -> CallResult<&'a MasterKeys> {
    let master = master(call)?;
    if follower(call).is_configured(name) {
        let message = "This account is one of the server's settings, and is changed there.";
        return Err(Refusal::new(409, "AccountOfSettings", message));
    }
    Ok(master)
}

/// Refuses a body with members, because they would be ignored.
fn nothing(call: &Call<'_>) -> CallResult<()> {
    if call.body().is_empty() { Ok(()) } else { call.document::<Nothing>().map(|_| ()) }
}

fn decoded(key: &str) -> Option<Vec<u8>> {
    STANDARD.decode(key.trim()).ok()
}

/// Waits until a change is stored, and loads it.
async fn changed<T>(
    call: &Call<'_>,
    change: impl Future<Output = Result<T, OperatorError>>,
) -> CallResult<T> {
    let outcome = within(change).await?;
    call.follow_own_change().await;
    Ok(outcome)
}
