//! `/indexes`: lists, creates and drops property indexes, like `rowhouse index`.

use schemars::JsonSchema;
use serde::Serialize;

use super::call::Call;
use super::reply::Outcome;
use super::reply::Reply;
use super::route::QueryField;
use crate::observe::metrics::METRICS;
use crate::observe::metrics::scans::{ScanCost, ScannedProperty};
use crate::operator::OperatorError;
use crate::operator::indexes::{self, IndexRequest};
use crate::operator::reports::IndexReport;
use crate::protocol::model::Ticks;
use crate::protocol::plan::index::IndexKind;
use crate::store::{IndexFigures, StoredIndex};

pub(super) const QUERY: &[QueryField] = &[
    QueryField::text("account", "Only indexes of this account."),
    QueryField::text("table", "Only indexes of tables of this name."),
];

#[derive(Serialize, JsonSchema)]
#[schemars(inline)]
pub(super) struct DroppedIndex {
    /// The number of the index.
    dropped: i64,
}

#[derive(Serialize, JsonSchema)]
pub(super) struct IndexSuggestion {
    account: String,
    /// In lower case.
    table: String,
    property: String,
    #[schemars(extend("enum" = IndexKind::ALL.map(IndexKind::name)))]
    kind: &'static str,
    pages: u64,
    /// The approximate number of rows that were examined.
    examined: u64,
    returned: u64,
}

/// Lists the indexes of the account and table in the query string, or all indexes.
pub(crate) async fn list(call: &Call<'_>) -> Outcome {
    let (account, table) = (call.query("account")?, call.query("table")?);
    let found = indexes::list(call.store(), account.as_deref(), table.as_deref()).await?;
    let report = |(stored, figures): &(StoredIndex, IndexFigures)| IndexReport::new(stored, *figures);
    Ok(Reply::json(200, &found.iter().map(report).collect::<Vec<_>>()))
}

/// Adds an index. A server on the database starts to build it within seconds. The list shows the state of the
/// build, which can take long.
///
/// # Errors
/// 400 for an invalid body, name or kind; 404 for an unknown account or table; 409 for an index that exists,
/// and for too many indexes; errors of the database.
pub(crate) async fn add(call: &Call<'_>) -> Outcome {
    let request: IndexRequest = call.document()?;
    audit_subject(call, &request.account, &request.table, &request.property);
    let service = &call.admin.service;
    call.check_account(&request.account)?;
    let added = indexes::add(call.store(), &request, Ticks::now()).await?;
    service.follower.follow_own_change(call.store()).await;
    Ok(Reply::json(201, &IndexReport::new(&added, IndexFigures::default())))
}

/// Drops an index, even while it is being built.
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
    Ok(Reply::json(200, &DroppedIndex { dropped: index_no }))
}

/// Records the index of a call for the audit.
fn audit_subject(call: &Call<'_>, account: &str, table: &str, property: &str) {
    call.account.get_or_init(|| account.to_owned());
    call.subject.get_or_init(|| format!("{table}/{property}"));
}

/// Lists the cost of filters without an index on this server, by property. Properties with an index are left out.
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
    let suggestions: Vec<_> = costs
        .into_iter()
        .filter(|(scanned, _)| !is_indexed(scanned))
        .map(|(scanned, cost)| {
            let ScannedProperty { account, table, property, kind } = scanned;
            let ScanCost { pages, examined, returned } = cost;
            IndexSuggestion { account, table, property, kind, pages, examined, returned }
        })
        .collect();
    Ok(Reply::json(200, &suggestions))
}
