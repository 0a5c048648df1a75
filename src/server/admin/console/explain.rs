//! `/explain`: explains how the server answers a query, and measures its cost.

use crate::protocol::odata::Grammar;
use crate::server::admin::call::{CALL_TIMEOUT, Call, within};
use crate::server::admin::reply::{Outcome, Reply};
use crate::service::{ExplainRequest, explain_query};

/// Explains a query.
///
/// # Errors
/// 404 for an unknown account or table; the errors of the query; errors of the database.
pub(crate) async fn explain(call: &Call<'_>) -> Outcome {
    let request: ExplainRequest = call.document()?;
    let service = &call.admin.service;
    call.check_account(&request.account)?;
    let _permit = call.admin.permit().await?;
    let indexes = service.follower.indexes();
    let extended = service.follower.accounts().has_extended_queries(&request.account);
    let grammar = Grammar { max_comparisons: service.max_comparisons, extended };
    let explaining = explain_query(call.store(), &indexes, grammar, &request);
    Ok(Reply::json(200, &within(CALL_TIMEOUT, explaining).await?))
}
