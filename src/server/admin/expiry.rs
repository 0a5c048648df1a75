//! `/expiry`: lists, sets and clears expiry rules, like `rowhouse expire`.

use super::call::Call;
use super::call::{CALL_TIMEOUT, within};
use super::reply::Outcome;
use super::reply::Reply;
use crate::operator::expiry::{self, NewRule};
use crate::operator::reports::{ExpiryReport, NamedTable};
use crate::protocol::model::Ticks;

/// Lists the rules of one account or of all accounts.
///
/// # Errors
/// 404 for an unknown account; errors of the database.
pub(crate) async fn list(call: &Call<'_>) -> Outcome {
    let account = call.queried_account()?;
    let rules = within(CALL_TIMEOUT, call.store().expiries(account.as_deref())).await?;
    let now = Ticks::now();
    Ok(Reply::json(200, &rules.iter().map(|rule| ExpiryReport::new(rule, now)).collect::<Vec<_>>()))
}

/// Sets the rule of a table.
///
/// # Errors
/// 400 for an invalid rule; 404 for an unknown account or table; errors of the database.
pub(crate) async fn set(call: &Call<'_>) -> Outcome {
    let rule: NewRule = call.document()?;
    let (account, table) = call.table()?;
    let now = Ticks::now();
    let set = within(CALL_TIMEOUT, expiry::set(call.store(), account, table, &rule, now)).await?;
    Ok(Reply::json(200, &ExpiryReport::new(&set, now)))
}

/// Removes the rule of a table.
///
/// # Errors
/// 404 for an unknown account or table, or a table without a rule; errors of the database.
pub(crate) async fn clear(call: &Call<'_>) -> Outcome {
    let (account, table) = call.table()?;
    within(CALL_TIMEOUT, expiry::clear(call.store(), account, table)).await?;
    Ok(Reply::json(200, &NamedTable { account, table }))
}
