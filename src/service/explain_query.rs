//! Explains how the server answers a query, and on request measures the cost of a page. From the table's data, the
//! result contains only counts.

use std::collections::BTreeSet;
use std::time::Instant;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::error::{Code, Result};
use crate::operator::indexes::IndexCatalog;
use crate::protocol::auth::{Identity, allows};
use crate::protocol::codec::uri::escape;
use crate::protocol::model::{Key, TableName, TableRef};
use crate::protocol::odata::Grammar;
use crate::protocol::plan::index::{IndexChoice, PropertyIndex};
use crate::protocol::plan::scan::MAX_TIME;
use crate::protocol::plan::strategy::{self, KeyAccess, SpanBound};
use crate::protocol::plan::{Projection, Scan, query, span};
use crate::protocol::request::OperationLabel;
use crate::protocol::request::options::Options;
use crate::store::Store;

/// Maximum number of spans in an explanation.
const MAX_SPANS: usize = 20;
/// Maximum number of examined rows to count.
const MAX_COUNTED_ROWS: u64 = 100_000;

/// A query to explain.
#[derive(Debug, Clone, Default, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
#[schemars(inline)]
pub(crate) struct ExplainRequest {
    pub account: String,
    pub table: String,
    pub filter: Option<String>,
    pub select: Option<String>,
    /// As in $orderby.
    pub orderby: Option<String>,
    #[schemars(range(min = 1, max = 1000))]
    pub top: Option<u32>,
    /// Whether to read a page and report its cost.
    #[serde(default)]
    pub measure: bool,
}

/// How the server answers a query.
#[derive(Debug, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
#[schemars(inline)]
pub(crate) struct ExplainedQuery {
    pub access: KeyAccess,
    pub summary: String,
    /// The number of ranges.
    pub span_count: usize,
    /// The first 20 ranges.
    pub spans: Vec<ExplainedSpan>,
    /// The filter that is compared with each entity of the ranges.
    pub residual: Option<String>,
    /// The indexes that name the entities to read.
    pub index: Option<Vec<NamedIndex>>,
    /// The most promising choice of indexes, if the store did not use it.
    pub index_passed_over: Option<Vec<NamedIndex>>,
    /// Why the query is refused, or what an operator can do.
    pub advice: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cost: Option<PageCost>,
}

/// A range of keys; null for an open end.
#[derive(Debug, Serialize, JsonSchema)]
#[schemars(rename = "Span")]
pub(crate) struct ExplainedSpan {
    from: Option<ExplainedBound>,
    to: Option<ExplainedBound>,
    pub words: String,
}

#[derive(Debug, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
#[schemars(rename = "Bound")]
struct ExplainedBound {
    partition_key: String,
    /// Null for the whole partition.
    row_key: Option<String>,
    inclusive: bool,
}

/// An index by its property and kind.
#[derive(Debug, Serialize, JsonSchema)]
pub(crate) struct NamedIndex {
    pub property: String,
    pub kind: &'static str,
}

/// The cost of one page.
#[derive(Debug, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
#[schemars(inline)]
pub(crate) struct PageCost {
    pub rows_returned: u64,
    pub rows_looked_at: u64,
    pub rows_looked_at_is_exact: bool,
    pub milliseconds: f64,
    /// Whether there are more pages.
    pub more: bool,
}

/// Explains a query with the indexes of the store. `grammar` is that of the account's clients.
pub(crate) async fn explain_query(
    store: &Store,
    indexes: &IndexCatalog,
    grammar: Grammar,
    request: &ExplainRequest,
) -> Result<ExplainedQuery> {
    let table = TableName::parse(&request.table)?;
    let is_refused = plan_scan(request, &table, grammar).is_err();
    let mut scan = plan_scan(request, &table, Grammar { extended: true, ..grammar })?;
    match indexes.apply(&request.account, &table, &mut scan) {
        Err(error) if error.code == Code::NotImplemented => {
            let advice = Some(format!("Refused: {}.", error.reason_or_text()));
            return Ok(ExplainedQuery { advice, ..explain_scan(&scan, KeyAccess::Refused) });
        }
        applied => applied?,
    }
    let table = table.in_account(&request.account);
    let (narrowed_by, cost) = if request.measure {
        let (narrowed_by, cost) = measure_page(store, table, &scan).await?;
        (narrowed_by, Some(cost))
    } else {
        (look_up_choice(store, table, &scan).await?, None)
    };
    let used = narrowed_by.and_then(|number| scan.indexed.get(number));
    let access = if used.is_some() { KeyAccess::Index } else { KeyAccess::of(&scan) };
    let passed_over = scan.indexed.first().filter(|_| used.is_none());
    let order_index = scan.by.as_ref().and_then(|by| by.index.as_deref());
    let account = &request.account;
    let advice = is_refused.then(|| {
        format!(
            "Clients of {account} are refused this query, until `rowhouse account queries {account} extended` turns on \
             extended queries."
        )
    });
    Ok(ExplainedQuery {
        index: used.map(names_of).or_else(|| order_index.map(|index| vec![name_of(index)])),
        index_passed_over: passed_over.map(names_of),
        advice,
        cost,
        ..explain_scan(&scan, access)
    })
}

/// Explains a query without reading anything.
fn explain_scan(scan: &Scan, access: KeyAccess) -> ExplainedQuery {
    let spans = scan.spans.iter().take(MAX_SPANS).map(|span| {
        let (from, to) = strategy::bounds(span);
        ExplainedSpan {
            from: from.map(explain_bound),
            to: to.map(explain_bound),
            words: strategy::describe_span(span),
        }
    });
    ExplainedQuery {
        access,
        summary: access.summary(scan.residual.is_some(), scan.order),
        span_count: scan.spans.len(),
        spans: spans.collect(),
        residual: scan.residual.as_ref().map(strategy::filter_text),
        index: None,
        index_passed_over: None,
        advice: None,
        cost: None,
    }
}

/// Returns the indexes that a choice reads, each once.
fn names_of(choice: &IndexChoice) -> Vec<NamedIndex> {
    let mut named = BTreeSet::new();
    let indexes = choice.ranges.iter().map(|range| &range.index);
    indexes.filter(|index| named.insert(index.index_no)).map(|index| name_of(index)).collect()
}

fn name_of(index: &PropertyIndex) -> NamedIndex {
    NamedIndex { property: index.property.clone(), kind: index.kind.name() }
}

/// Asks the store which choice of indexes it would use. The store searches the indexes as for a page, but
/// reads no row.
async fn look_up_choice(store: &Store, table: TableRef<'_>, scan: &Scan) -> Result<Option<usize>> {
    if scan.indexed.is_empty() {
        return Ok(None);
    }
    // Without spans, a page ends after the lookup of indexes.
    let lookup = Scan { spans: Vec::new(), by: None, ..scan.clone() };
    let ((), end) = store.page(table, &lookup, ()).await?;
    Ok(end.narrowed_by)
}

fn explain_bound(bound: SpanBound) -> ExplainedBound {
    let SpanBound { partition, row, is_inclusive } = bound;
    ExplainedBound { partition_key: partition, row_key: row, inclusive: is_inclusive }
}

/// Returns the scan of the query, with the permissions of an operator who only reads.
fn plan_scan(request: &ExplainRequest, table: &TableName, grammar: Grammar) -> Result<Scan> {
    let mut text = format!("$filter={}", escape(request.filter.as_deref().unwrap_or_default()));
    if let Some(select) = &request.select {
        text += &format!("&$select={}", escape(select));
    }
    if let Some(order) = &request.orderby {
        text += &format!("&$orderby={}", escape(order));
    }
    if let Some(top) = request.top {
        text += &format!("&$top={top}");
    }
    let options = Options::parse_with(&text, grammar.extended)?.query(grammar)?;
    allows(&Identity::Operator { may_write: false }, OperationLabel::QueryEntities, Some(table), None)?;
    query::entities(&options, None)
}

/// Reads one page. Returns the position of the index choice that the store used, if any, and the page's cost.
async fn measure_page(store: &Store, table: TableRef<'_>, scan: &Scan) -> Result<(Option<usize>, PageCost)> {
    let begun = Instant::now();
    let ((), end) = store.page(table, scan, ()).await?;
    let (returned, took) = (end.entities as u64, begun.elapsed());
    let more = end.next.is_some() || end.next_in_index.is_some();
    let (examined, is_exact) = match &scan.residual {
        None => (returned, true),
        Some(_) if end.narrowed_by.is_some() || scan.by.is_some() => (end.examined, true),
        Some(_) => count(store, table, scan, end.next.as_ref()).await?,
    };
    let cost = PageCost {
        rows_returned: returned,
        rows_looked_at: examined.max(returned),
        rows_looked_at_is_exact: is_exact,
        milliseconds: took.as_secs_f64() * 1000.0,
        more,
    };
    Ok((end.narrowed_by, cost))
}

/// Counts the rows of the spans before `until`. Returns whether all of them were counted.
async fn count(store: &Store, table: TableRef<'_>, scan: &Scan, until: Option<&Key>) -> Result<(u64, bool)> {
    let begun = Instant::now();
    let spans = scan.order.arrange(scan.spans.clone());
    // The rows before a bound are the rest of a read in the opposite order.
    let spans = match until {
        Some(until) => scan.order.reversed().rest_of(spans, until),
        None => spans,
    };
    let mut rows = 0;
    let mut from = Key::new("", "");
    loop {
        let left = MAX_TIME.saturating_sub(begun.elapsed());
        if rows >= MAX_COUNTED_ROWS || left.is_zero() {
            return Ok((rows, false));
        }
        let spans = span::starting_at(spans.clone(), &from);
        if spans.is_empty() {
            return Ok((rows, true));
        }
        let page = Scan { projection: Projection::SystemOnly, time: left, ..Scan::of_spans(spans) };
        let ((), end) = store.page(table, &page, ()).await?;
        rows += end.entities as u64;
        match end.next {
            Some(next) => from = next,
            None => return Ok((rows, true)),
        }
    }
}
