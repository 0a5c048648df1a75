//! `/sas` and `/sas/inspect`: sign shared access signatures, and explain their refusal.

use std::net::IpAddr;
use std::time::Duration;

use chrono::Utc;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::error::Error;
use crate::protocol::auth::explain_sas::{SasQuestion, SasReport};
use crate::protocol::auth::issue::{Grant, GrantError, SasSubject, at_or_after};
use crate::protocol::auth::sas::Use;
use crate::protocol::model::Ticks;
use crate::protocol::request::target::Accounts as _;
use crate::server::admin::call::{Call, within_limit};
use crate::server::admin::reply::{CallResult, Refusal};
use crate::server::admin::route::{NO_ACCOUNT, NO_ANSWER, Route, TIMED_OUT, json, token};
use crate::server::admin::state::ConsoleMode;
use crate::service::stored_policies;

/// Timeout for reading the stored policies of a table.
const STORE_TIMEOUT: Duration = Duration::from_secs(10);
const DEFAULT_VERSION: &str = "2019-02-02";

pub(crate) const ROUTES: &[Route] = &[
    token("POST", "/sas", |call| json(async { sign(call) }))
        .of_console()
        .about("sas", "Sign a shared access signature, unless the console is read-only")
        .body::<SasRequest>()
        .answers::<SignedSas>("The token.")
        .others(&[
            (400, "InvalidSas: servers would refuse the SAS."),
            NO_ACCOUNT,
            (409, "NoSuchKey: the account lacks the key, or is disabled."),
        ]),
    token("POST", "/sas/inspect", |call| json(inspect(call)))
        .of_console()
        .reading()
        .about("inspectSas", "What a shared access signature allows, and why servers refuse it")
        .body::<InspectRequest>()
        .answers::<SasReport>("The fields, and every problem.")
        .others(&[(400, "There is no SAS to inspect."), NO_ACCOUNT, TIMED_OUT, NO_ANSWER]),
];

#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, rename_all = "camelCase")]
#[schemars(inline)]
pub(crate) struct SasRequest {
    account: String,
    /// Without a table, the SAS is for the account.
    table: Option<String>,
    permissions: Option<String>,
    policy: Option<String>,
    start_partition_key: Option<String>,
    start_row_key: Option<String>,
    end_partition_key: Option<String>,
    end_row_key: Option<String>,
    /// By default t.
    services: Option<String>,
    /// By default sco.
    resource_types: Option<String>,
    start: Option<String>,
    /// A time such as 2030-01-31T12:00:00Z, or a duration from now such as 90s, 15m, 12h or 30d.
    expiry: Option<String>,
    ip: Option<String>,
    protocol: Option<String>,
    /// By default 2019-02-02.
    version: Option<String>,
    /// 1 or 2; by default 1.
    #[schemars(range(min = 1, max = 2))]
    key: Option<usize>,
}

#[derive(Serialize, JsonSchema)]
#[schemars(inline)]
pub(crate) struct SignedSas {
    pub account: String,
    pub token: String,
    pub url: String,
}

#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
#[schemars(inline)]
pub(crate) struct InspectRequest {
    /// The URL with the token; give the URL or the token.
    url: Option<String>,
    token: Option<String>,
    account: Option<String>,
    method: Option<String>,
    resource: Option<String>,
    address: Option<IpAddr>,
    https: Option<bool>,
}

fn sign(call: &Call<'_>) -> CallResult<SignedSas> {
    if call.admin.settings.console == ConsoleMode::ReadOnly {
        return Err(super::read_only());
    }
    let asked: SasRequest = call.document()?;
    call.subject.get_or_init(|| asked.account.clone());
    let (account, slot) = (asked.account.clone(), asked.key.unwrap_or(1));
    let accounts = call.admin.service.follower.accounts();
    let keys = accounts.keys(&account).ok_or_else(Refusal::no_account)?;
    let key = slot.checked_sub(1).and_then(|at| keys.get(at)).ok_or_else(|| {
        Refusal::new(409, "NoSuchKey", format!("the account {account} has no key {slot}, or is disabled"))
    })?;
    let table = asked.table.clone();
    let token = grant(asked)?.sign(&account, key)?;
    let tables = &call.admin.settings.tables_endpoint;
    let url = format!("{tables}/{account}/{}?{token}", table.unwrap_or_default());
    Ok(SignedSas { account, token, url })
}

fn grant(asked: SasRequest) -> Result<Grant, GrantError> {
    let now = Utc::now();
    let given = |text: Option<String>| text.filter(|text| !text.is_empty());
    let is_of_table = [
        &asked.policy,
        &asked.start_partition_key,
        &asked.start_row_key,
        &asked.end_partition_key,
        &asked.end_row_key,
    ]
    .into_iter()
    .any(|field| field.is_some());
    let subject = match asked.table {
        Some(_) if asked.services.is_some() || asked.resource_types.is_some() => {
            return Err(GrantError::OfAccount);
        }
        Some(table) => SasSubject::Table {
            table,
            policy: given(asked.policy),
            start: (given(asked.start_partition_key), given(asked.start_row_key)),
            end: (given(asked.end_partition_key), given(asked.end_row_key)),
        },
        None if is_of_table => return Err(GrantError::NoTable),
        None => SasSubject::Account {
            services: asked.services.unwrap_or_else(|| "t".to_owned()),
            resources: asked.resource_types.unwrap_or_else(|| "sco".to_owned()),
        },
    };
    let time = |text: Option<String>| given(text).map(|text| at_or_after(&text, now)).transpose();
    Ok(Grant {
        subject,
        permissions: given(asked.permissions),
        start: time(asked.start)?,
        expiry: time(asked.expiry)?,
        ip: given(asked.ip),
        protocol: given(asked.protocol),
        version: given(asked.version).unwrap_or_else(|| DEFAULT_VERSION.to_owned()),
    })
}

async fn inspect(call: &Call<'_>) -> CallResult<SasReport> {
    let asked: InspectRequest = call.document()?;
    let service = &call.admin.service;
    let accounts = service.follower.accounts();
    let text = match (&asked.url, &asked.token) {
        (Some(text), None) | (None, Some(text)) => text.as_str(),
        _ => return Err(Refusal::bad_request("url, token: give one of the two")),
    };
    let question = SasQuestion::new(text, asked.account.as_deref(), |name| accounts.exists(name));
    let mut question = question.ok_or_else(|| Refusal::bad_request("account: required, as url has none"))?;
    let keys = accounts.keys(&question.account).ok_or_else(Refusal::no_account)?;
    question.method = asked.method;
    question.resource = asked.resource.unwrap_or(question.resource);
    let claim = question.claim().map_err(refusal)?;
    let policies = match claim.policy() {
        None => Vec::new(),
        Some((table, _)) => {
            within_limit(STORE_TIMEOUT, stored_policies(call.store(), &question.account, table)).await?
        }
    };
    let secure = asked.https.unwrap_or_else(|| !text.starts_with("http:"));
    let usage = Use { now: Ticks::now(), secure, peer: asked.address };
    question.inspect(&claim, keys, &policies, &usage).map_err(refusal)
}

/// Converts an error of the SAS, which must not look like a failure of the operator's own credentials.
fn refusal(error: Error) -> Refusal {
    let reason = error.reason_or_text().to_owned();
    Refusal::new(400, error.code.facts().code, reason)
}

impl From<GrantError> for Refusal {
    fn from(error: GrantError) -> Self {
        Self::new(400, "InvalidSas", error.to_string())
    }
}
