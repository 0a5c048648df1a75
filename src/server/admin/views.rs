//! `/views`: lists, makes and drops SQL views of tables, like `rowhouse view`.

use serde_json::{Value, json};

use super::call::Call;
use super::call::{CALL_TIMEOUT, within};
use super::reply::Outcome;
use super::reply::Reply;
use crate::operator::to_json;
use crate::operator::views::{self, NewView};
use crate::protocol::model::Ticks;

/// Lists the views of an account, or of all accounts.
///
/// # Errors
/// 404 for an unknown account; errors of the database.
pub(crate) async fn list(call: &Call<'_>) -> Outcome {
    let account = call.queried_account()?;
    let found = within(CALL_TIMEOUT, call.store().views(account.as_deref())).await?;
    Ok(Reply::json(200, &found.iter().map(to_json::view).collect::<Value>()))
}

/// Makes the view of a table from a sample of its entities, or refreshes it.
///
/// # Errors
/// 400 for invalid names; 404 for an unknown account or table; 409 if the database refuses the
/// definition; errors of the database.
pub(crate) async fn put(call: &Call<'_>) -> Outcome {
    let request = if call.body().is_empty() { NewView::default() } else { call.document()? };
    let (account, table) = call.table()?;
    let (now, mut on_progress) = (Ticks::now(), |_| {});
    let put = views::put(call.store(), account, table, &request, now, &mut on_progress);
    let (made, left_out) = within(CALL_TIMEOUT, put).await?;
    Ok(Reply::json(200, &to_json::made_view(&made, left_out)))
}

/// Drops the view of a table.
///
/// # Errors
/// 404 for an unknown account or table, or one without a view; 409 if others depend on it; errors of
/// the database.
pub(crate) async fn drop(call: &Call<'_>) -> Outcome {
    let (account, table) = call.table()?;
    within(CALL_TIMEOUT, views::drop(call.store(), account, table)).await?;
    Ok(Reply::json(200, &json!({ "account": account, "table": table })))
}
