//! `/explain`: how a query will be answered, and what it costs.

use std::time::Duration;

use serde::Deserialize;
use tokio::time::timeout;

use crate::error::{Code, Error};
use crate::protocol::request::target::Accounts as _;
use crate::server::admin::call::{Call, Outcome, Refusal, Reply};
use crate::service::{AskedQuery, explain_query};

/// Timeout of a call: a page, and counting what it looked at.
const CALL_TIMEOUT: Duration = Duration::from_secs(20);

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct ExplainRequest {
    account: String,
    table: String,
    filter: Option<String>,
    select: Option<String>,
    top: Option<u32>,
    #[serde(default)]
    measure: bool,
}

/// Explains a query.
///
/// # Errors
/// 404 for an unknown account or table; the errors of the query; errors of the database.
pub(crate) async fn explain(call: &Call<'_>) -> Outcome {
    let asked: ExplainRequest = call.document()?;
    let service = &call.admin.service;
    if !service.follower.accounts().exists(&asked.account) {
        return Err(Refusal::new(404, "AccountNotFound", "There is no such account."));
    }
    let query = AskedQuery {
        account: &asked.account,
        table: &asked.table,
        filter: asked.filter.as_deref().unwrap_or_default(),
        select: asked.select.as_deref(),
        top: asked.top,
        measure: asked.measure,
    };
    let _turn = call.admin.turn().await?;
    let indexes = service.follower.indexes();
    let explaining = explain_query(&service.primary, &indexes, service.max_comparisons, &query);
    let explained = timeout(CALL_TIMEOUT, explaining);
    let explained = explained.await.map_err(|_| Error::from(Code::OperationTimedOut))??;
    Ok(Reply::json(200, &explained))
}
