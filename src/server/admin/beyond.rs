//! Expiry, counts and SQL views of tables, like `rowhouse expire`, `count` and `view`.

use std::time::Duration;

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};
use tokio::time::timeout;

use super::call::Outcome;
use super::{Call, Refusal, Reply};
use crate::error::{Code, Error};
use crate::operator::BeyondError;
use crate::operator::expiry::{self, RuleText};
use crate::operator::totals::{self, CountPace};
use crate::operator::views::{self, ViewRequest};
use crate::protocol::model::{Key, Ticks};
use crate::protocol::odata;
use crate::protocol::plan::Predicate;
use crate::protocol::plan::filter::{self, Subject};
use crate::protocol::request::target::Accounts as _;
use crate::store::{CountPosition, CountedPart, Failure, Store};

/// Timeout of a call. The outcome of a later change is not reported.
const CALL_TIMEOUT: Duration = Duration::from_secs(20);
/// Time after which a count answers with what it has counted.
const COUNT_TIME: Duration = Duration::from_secs(5);
/// Comparisons that a filter may have.
const MAX_COMPARISONS: usize = 1000;

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct NewRule {
    after: Option<String>,
    at: Option<String>,
    plus: Option<String>,
    every: Option<String>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct NewView {
    schema: Option<String>,
    #[serde(default)]
    grant: Vec<String>,
}

/// Where a count continues.
#[derive(Serialize, Deserialize)]
struct CountToken(u16, String, String);

/// Lists the rules of an account, or of all accounts.
///
/// # Errors
/// 404 for an unknown account; errors of the database.
pub(crate) async fn expiries(call: &Call<'_>) -> Outcome {
    let account = asked_account(call)?;
    let rules = within(async { Ok(store(call).expiries(account.as_deref()).await?) }).await?;
    let now = Ticks::now();
    Ok(Reply::json(200, &rules.iter().map(|rule| expiry::shown(rule, now)).collect::<Value>()))
}

/// Sets the rule of a table.
///
/// # Errors
/// 400 for an invalid rule; 404 for an unknown account or table; errors of the database.
pub(crate) async fn set_expiry(call: &Call<'_>) -> Outcome {
    let NewRule { after, at, plus, every } = body(call)?;
    let (account, table) = table(call)?;
    let rule = RuleText { after, at, plus, every };
    let set = within(expiry::set(store(call), account, table, &rule, Ticks::now())).await?;
    Ok(Reply::json(200, &set))
}

/// Removes the rule of a table.
///
/// # Errors
/// 404 for an unknown account or table, or one without a rule; errors of the database.
pub(crate) async fn clear_expiry(call: &Call<'_>) -> Outcome {
    let (account, table) = table(call)?;
    within(expiry::clear(store(call), account, table)).await?;
    Ok(Reply::json(200, &json!({ "account": account, "table": table })))
}

/// Lists the views of an account, or of all accounts.
///
/// # Errors
/// 404 for an unknown account; errors of the database.
pub(crate) async fn list_views(call: &Call<'_>) -> Outcome {
    let account = asked_account(call)?;
    let found = within(async { Ok(store(call).views(account.as_deref()).await?) }).await?;
    Ok(Reply::json(200, &found.iter().map(views::shown).collect::<Value>()))
}

/// Makes the view of a table from a sample of its entities, or refreshes it.
///
/// # Errors
/// 400 for invalid names; 404 for an unknown account or table; 409 if the database refuses the
/// definition; errors of the database.
pub(crate) async fn put_view(call: &Call<'_>) -> Outcome {
    let NewView { schema, grant } =
        if call.body.is_empty() { NewView { schema: None, grant: Vec::new() } } else { body(call)? };
    let (account, table) = table(call)?;
    let request = ViewRequest { schema, grants: grant, is_full: false };
    let made = within(views::put(store(call), account, table, &request, Ticks::now(), &mut |_| {})).await?;
    Ok(Reply::json(200, &made))
}

/// Drops the view of a table.
///
/// # Errors
/// 404 for an unknown account or table, or one without a view; 409 if others depend on it; errors of
/// the database.
pub(crate) async fn drop_view(call: &Call<'_>) -> Outcome {
    let (account, table) = table(call)?;
    within(views::drop(store(call), account, table)).await?;
    Ok(Reply::json(200, &json!({ "account": account, "table": table })))
}

/// Counts the entities of a table that match a filter, or all of them, for [`COUNT_TIME`]. Where that
/// is not enough, `next` is the `from` of the call that counts on.
///
/// # Errors
/// 400 for an invalid filter or `from`; 404 for an unknown account or table; errors of the database.
pub(crate) async fn count(call: &Call<'_>) -> Outcome {
    let (account, table) = table(call)?;
    let predicate = call.query("filter")?.map(|text| predicate(&text)).transpose()?;
    let from = call.query("from")?.map(|text| position(&text)).transpose()?;
    let from = from.unwrap_or_else(CountPosition::start);
    let table = expiry::name(table)?;
    let counting = async {
        Ok(match &predicate {
            Some(predicate) => {
                totals::count_matching(store(call), account, &table, &from.key, predicate, COUNT_TIME).await?
            }
            None => CountPace::default().count_for(store(call), account, &table, from, COUNT_TIME).await?,
        })
    };
    let CountedPart { entities, next } = within(counting).await?;
    let next = next.map(|next| token(&next));
    Ok(Reply::json(200, &json!({ "entities": entities, "complete": next.is_none(), "next": next })))
}

fn predicate(text: &str) -> Result<Predicate, Refusal> {
    let parsed = odata::parse(text, MAX_COMPARISONS)?;
    Ok(filter::predicate(&parsed, Subject::Entities)?)
}

fn token(position: &CountPosition) -> String {
    let CountPosition { share, key } = position;
    let token = CountToken(*share, key.partition.clone(), key.row.clone());
    URL_SAFE_NO_PAD.encode(serde_json::to_vec(&token).unwrap_or_default())
}

fn position(text: &str) -> Result<CountPosition, Refusal> {
    let read = URL_SAFE_NO_PAD.decode(text).ok();
    let read = read.and_then(|bytes| serde_json::from_slice::<CountToken>(&bytes).ok());
    let token = read.filter(|token| !token.1.contains('\u{0}') && !token.2.contains('\u{0}'));
    let CountToken(share, partition, row) =
        token.ok_or_else(|| Refusal::bad_request("from: must be the next of an earlier answer"))?;
    Ok(CountPosition { share, key: Key { partition, row } })
}

fn store<'a>(call: &'a Call<'_>) -> &'a Store {
    &call.admin.service.primary
}

/// Returns the account and the table that the path names. The account must be served.
fn table<'a>(call: &'a Call<'_>) -> Result<(&'a str, &'a str), Refusal> {
    let account = call.parameter("name");
    served(call, account)?;
    Ok((account, call.parameter("table")))
}

fn asked_account(call: &Call<'_>) -> Result<Option<String>, Refusal> {
    let account = call.query("account")?;
    account.as_deref().map(|account| served(call, account)).transpose()?;
    Ok(account)
}

fn served(call: &Call<'_>, account: &str) -> Result<(), Refusal> {
    if call.admin.service.follower.accounts().exists(account) {
        return Ok(());
    }
    Err(Refusal::new(404, "AccountNotFound", "There is no such account."))
}

fn body<'a, T: Deserialize<'a>>(call: &'a Call<'_>) -> Result<T, Refusal> {
    serde_json::from_slice(call.body).map_err(|error| Refusal::bad_request(format!("The body: {error}")))
}

async fn within<T>(work: impl Future<Output = Result<T, BeyondError>>) -> Result<T, Refusal> {
    match timeout(CALL_TIMEOUT, work).await {
        Ok(done) => Ok(done?),
        Err(_) => Err(Error::from(Code::OperationTimedOut).into()),
    }
}

impl From<BeyondError> for Refusal {
    fn from(error: BeyondError) -> Self {
        let (status, code) = match error {
            BeyondError::Argument(_) => (400, "BadRequest"),
            BeyondError::TableNotFound => (404, "TableNotFound"),
            BeyondError::NotSet(_) => (404, "NotSet"),
            BeyondError::Told(_) => (409, "DefinitionRefused"),
            BeyondError::Store(fault) => return Error::from(Failure::Fault(fault)).into(),
        };
        Self::new(status, code, error.to_string())
    }
}
