//! `/indexes`: lists, creates and drops property indexes, like `rowhouse index`; `/explain`: explains which
//! entities a query reads.

use schemars::JsonSchema;
use serde::Serialize;

use super::call::{Call, within};
use super::reply::CallResult;
use super::route::{NO_ANSWER, PARAMETER, QueryField, Route, TIMED_OUT, created, guarded, json, token};
use crate::observe::metrics::METRICS;
use crate::observe::metrics::scans::{ScanCost, ScannedProperty};
use crate::operator::OperatorError;
use crate::operator::indexes::{self, IndexReport, IndexRequest};
use crate::protocol::model::Ticks;
use crate::protocol::odata::Grammar;
use crate::protocol::plan::index::IndexKind;
use crate::service::{ExplainRequest, ExplainedQuery, explain_query};
use crate::store::{IndexFigures, StoredIndex};

const QUERY: &[QueryField] = &[
    QueryField::text("account", "Only indexes of this account."),
    QueryField::text("table", "Only indexes of tables of this name."),
];

pub(super) const ROUTES: &[Route] = &[
    guarded("GET", "/indexes", |call| json(list(call)))
        .about("indexes", "The property indexes, with their state, size and use")
        .query(QUERY)
        .answers::<Vec<IndexReport>>("The indexes.")
        .others(&[PARAMETER, NO_ANSWER]),
    token("POST", "/indexes", |call| created(add(call)))
        .about("addIndex", "Create an index of a property of a table")
        .details(
            "A server on the database begins to build the index within seconds. On SQLite, writes wait while it is \
             built. Answers to filters do not change; they use the index once it is ready.",
        )
        .body::<IndexRequest>()
        .creates::<IndexReport>("The index, which is to be built.")
        .others(&[
            (400, "A name or the kind is invalid, or the values have several types."),
            (404, "AccountNotFound, or TableNotFound."),
            (409, "IndexAlreadyExists. TooManyIndexes: a table can have 8, a database 64."),
            NO_ANSWER,
        ]),
    token("DELETE", "/indexes/{id}", |call| json(remove(call)))
        .about("dropIndex", "Drop an index, even one that is being built")
        .details("Servers stop using the index within seconds, and then free its space.")
        .answers::<DroppedIndex>("The index is no longer used.")
        .others(&[(404, "IndexNotFound."), NO_ANSWER]),
    guarded("GET", "/index-suggestions", |call| json(suggestions(call)))
        .about("indexSuggestions", "The cost of filters without an index on this server, by property")
        .details(
            "Since the start of the server, the highest cost first; at most 256 properties. Only pages that returned \
             one row in ten or fewer of at least 1000 count.",
        )
        .answers::<Vec<IndexSuggestion>>("The properties.")
        .others(&[NO_ANSWER]),
    token("POST", "/explain", |call| json(explain(call)))
        .of_console()
        .reading()
        .about("explain", "How the server answers a query, and the cost of one page")
        .body::<ExplainRequest>()
        .answers::<ExplainedQuery>("The ranges of keys that are read, and the residual filter.")
        .others(&[
            (400, "The error of an invalid query, as on the Tables port."),
            (404, "AccountNotFound, or TableNotFound."),
            TIMED_OUT,
            NO_ANSWER,
        ]),
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

async fn list(call: &Call<'_>) -> CallResult<Vec<IndexReport>> {
    let (account, table) = (call.query("account")?, call.query("table")?);
    Ok(indexes::list(call.store(), account.as_deref(), table.as_deref()).await?)
}

/// The list shows the state of the build, which can take long.
async fn add(call: &Call<'_>) -> CallResult<IndexReport> {
    let request: IndexRequest = call.document()?;
    audit_subject(call, &request.account, &request.table, &request.property);
    call.check_account(&request.account)?;
    let added = indexes::add(call.store(), &request, Ticks::now()).await?;
    call.follow_own_change().await;
    Ok(IndexReport::new(&added, IndexFigures::default()))
}

async fn remove(call: &Call<'_>) -> CallResult<DroppedIndex> {
    let dropped = call.parameter("id").parse().map_err(|_| OperatorError::IndexNotFound)?;
    let StoredIndex { account, table, index, .. } = indexes::find_by_number(call.store(), dropped).await?;
    audit_subject(call, &account, &table, &index.property);
    indexes::drop_index(call.store(), dropped, Ticks::now()).await?;
    call.follow_own_change().await;
    Ok(DroppedIndex { dropped })
}

/// Records the index of a call for the audit.
fn audit_subject(call: &Call<'_>, account: &str, table: &str, property: &str) {
    call.account.get_or_init(|| account.to_owned());
    call.subject.get_or_init(|| format!("{table}/{property}"));
}

/// Lists the cost of filters without an index on this server, by property. Properties with an index are left out.
async fn suggestions(call: &Call<'_>) -> CallResult<Vec<IndexSuggestion>> {
    let costs = METRICS.scan_costs.list();
    let indexes = call.store().indexes().await.map_err(OperatorError::from)?;
    let is_indexed = |scanned: &ScannedProperty| {
        indexes.iter().any(|StoredIndex { account, table, index, .. }| {
            (account, &index.property, index.kind.name())
                == (&scanned.account, &scanned.property, scanned.kind)
                && table.eq_ignore_ascii_case(&scanned.table)
        })
    };
    Ok(costs
        .into_iter()
        .filter(|(scanned, _)| !is_indexed(scanned))
        .map(|(scanned, cost)| {
            let ScannedProperty { account, table, property, kind } = scanned;
            let ScanCost { pages, examined, returned } = cost;
            IndexSuggestion { account, table, property, kind, pages, examined, returned }
        })
        .collect())
}

async fn explain(call: &Call<'_>) -> CallResult<ExplainedQuery> {
    let request: ExplainRequest = call.document()?;
    let service = &call.admin.service;
    call.check_account(&request.account)?;
    let _permit = call.admin.permit().await?;
    let indexes = service.follower.indexes();
    let extended = service.follower.accounts().has_extended_queries(&request.account);
    let grammar = Grammar { max_comparisons: service.max_comparisons, extended };
    within(explain_query(call.store(), &indexes, grammar, &request)).await
}
