//! `/indexes`: lists, makes and drops property indexes, like `rowhouse index`.

use serde_json::{Value, json};

use super::call::Call;
use super::reply::Outcome;
use super::reply::Reply;
use crate::observe::metrics::METRICS;
use crate::observe::metrics::scans::ScannedProperty;
use crate::operator::indexes::{self, IndexRequest};
use crate::operator::{OperatorError, to_json};
use crate::protocol::model::Ticks;
use crate::store::StoredIndex;

/// Lists the indexes of the account and table that the query names, or all.
pub(crate) async fn list(call: &Call<'_>) -> Outcome {
    let (account, table) = (call.query("account")?, call.query("table")?);
    let found = indexes::list(call.store(), account.as_deref(), table.as_deref()).await?;
    Ok(Reply::json(
        200,
        &found.iter().map(|(stored, figures)| to_json::index(stored, *figures)).collect::<Value>(),
    ))
}

/// Adds an index. A server on the database builds it within seconds, or for as long as that takes: the list
/// shows its state.
///
/// # Errors
/// 400 for an invalid body, name or kind; 404 for an unknown account or table; 409 for an index that exists,
/// and for too many; errors of the database.
pub(crate) async fn add(call: &Call<'_>) -> Outcome {
    let request: IndexRequest = call.document()?;
    audit_subject(call, &request.account, &request.table, &request.property);
    let service = &call.admin.service;
    call.check_account(&request.account)?;
    let added = indexes::add(call.store(), &request, Ticks::now()).await?;
    service.follower.follow_own_change(call.store()).await;
    Ok(Reply::json(201, &to_json::index(&added, Default::default())))
}

/// Drops an index, also one that is being built.
///
/// # Errors
/// 404 for an unknown index; errors of the database.
pub(crate) async fn remove(call: &Call<'_>) -> Outcome {
    let service = &call.admin.service;
    let index_no = call.parameter("id").parse().map_err(|_| OperatorError::IndexNotFound)?;
    let StoredIndex { account, table, index, .. } = indexes::find_by_number(call.store(), index_no).await?;
    audit_subject(call, &account, &table, &index.property);
    indexes::drop(call.store(), index_no, Ticks::now()).await?;
    service.follower.follow_own_change(call.store()).await;
    Ok(Reply::json(200, &json!({ "dropped": index_no })))
}

/// Says for the audit which index a call is about.
fn audit_subject(call: &Call<'_>, account: &str, table: &str, property: &str) {
    call.account.get_or_init(|| account.to_owned());
    call.subject.get_or_init(|| format!("{table}/{property}"));
}

/// Lists what filters without an index have cost this server, by property. A property that has an index is left out.
///
/// # Errors
/// Errors of the database.
pub(crate) async fn suggestions(call: &Call<'_>) -> Outcome {
    let costs = METRICS.scan_costs.list();
    let indexes = call.store().indexes().await.map_err(OperatorError::from)?;
    let is_indexed = |scanned: &ScannedProperty| {
        indexes.iter().any(|StoredIndex { account, table, index, .. }| {
            (account, &index.property, index.kind.name())
                == (&scanned.account, &scanned.property, scanned.kind)
                && table.eq_ignore_ascii_case(&scanned.table)
        })
    };
    let suggestions: Vec<Value> = costs
        .iter()
        .filter(|(scanned, _)| !is_indexed(scanned))
        .map(|(scanned, cost)| {
            json!({
                "account": scanned.account,
                "table": scanned.table,
                "property": scanned.property,
                "kind": scanned.kind,
                "pages": cost.pages,
                "examined": cost.examined,
                "returned": cost.returned,
            })
        })
        .collect();
    Ok(Reply::json(200, &suggestions))
}
