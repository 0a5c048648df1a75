//! How a query will be answered, and on demand what a page of it costs. Only numbers leave here, no
//! entity.

use std::time::{Duration, Instant};

use serde::Deserialize;
use serde_json::{Value, json};

use crate::error::{Code, Error, Result};
use crate::operator::indexes::IndexCatalog;
use crate::protocol::auth::{Action, Identity, allows};
use crate::protocol::codec::uri::escape;
use crate::protocol::model::{Key, TableName, TableRef};
use crate::protocol::odata::Grammar;
use crate::protocol::plan::index::{IndexChoice, PropertyIndex};
use crate::protocol::plan::scan::MAX_TIME;
use crate::protocol::plan::strategy::{self, KeyAccess, SpanBound};
use crate::protocol::plan::{Projection, Scan, query, span};
use crate::protocol::request::options::Options;
use crate::store::Store;

/// Maximum number of spans that are shown.
const MAX_SHOWN: usize = 20;
/// Maximum number of examined rows that are counted.
const MAX_COUNTED: u64 = 100_000;

/// A query to explain.
#[derive(Debug, Clone, Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct ExplainRequest {
    pub account: String,
    pub table: String,
    pub filter: Option<String>,
    pub select: Option<String>,
    pub orderby: Option<String>,
    pub top: Option<u32>,
    /// Whether to read a page and report what it costs.
    #[serde(default)]
    pub measure: bool,
}

/// What a page of a query costs.
#[derive(Debug, Clone, Copy, PartialEq)]
struct QueryCost {
    returned: u64,
    /// The rows in the ranges that were read, up to where the page ended; with an index, the entries and
    /// rows that were read.
    looked_at: u64,
    /// Whether all of them were counted. Otherwise there are more.
    is_exact: bool,
    /// Time to read the page.
    took: Duration,
    /// Whether there are more pages.
    more: bool,
    /// The number of the choice of indexes that has named the rows.
    narrowed_by: Option<usize>,
}

/// Explains a query, by the indexes of the store. `grammar` is that of the account's clients.
pub(crate) async fn explain_query(
    store: &Store,
    indexes: &IndexCatalog,
    grammar: Grammar,
    request: &ExplainRequest,
) -> Result<Value> {
    let table = TableName::parse(&request.table)?;
    let is_refused = scan(request, &table, grammar).is_err();
    let mut scan = scan(request, &table, Grammar { extended: true, ..grammar })?;
    match indexes.apply(&request.account, &table, &mut scan) {
        Err(error) if error.code == Code::NotImplemented => return Ok(refused(&scan, &error)),
        applied => applied?,
    }
    let table = table.in_account(&request.account);
    let cost = if request.measure { Some(measure(store, table, &scan).await?) } else { None };
    let narrowed_by = match &cost {
        Some(cost) => cost.narrowed_by,
        None => narrowed_by(store, table, &scan).await?,
    };
    let used = narrowed_by.and_then(|number| scan.indexed.get(number));
    let access = if used.is_some() { KeyAccess::Index } else { KeyAccess::of(&scan) };
    let passed_over = scan.indexed.first().filter(|_| used.is_none());
    let mut explained = explained(&scan, access);
    let order_index =
        scan.by.as_ref().and_then(|by| by.index.as_deref()).map(|index| json!([to_json(index)]));
    explained["index"] = used.map(properties).or(order_index).into();
    explained["indexPassedOver"] = passed_over.map(properties).into();
    explained["advice"] = is_refused.then(|| advice(&request.account)).into();
    if let Some(cost) = cost {
        explained["cost"] = json!({
            "rowsReturned": cost.returned,
            "rowsLookedAt": cost.looked_at,
            "rowsLookedAtIsExact": cost.is_exact,
            "milliseconds": cost.took.as_secs_f64() * 1000.0,
            "more": cost.more,
        });
    }
    Ok(explained)
}

/// What is known of a query without reading anything.
fn explained(scan: &Scan, access: KeyAccess) -> Value {
    let spans = scan.spans.iter().take(MAX_SHOWN).map(|span| {
        let (from, to) = strategy::bounds(span);
        json!({ "from": from.map(bound_to_json), "to": to.map(bound_to_json), "words": strategy::words(span) })
    });
    json!({
        "access": access.name(),
        "summary": access.summary(scan.residual.is_some(), scan.order),
        "spanCount": scan.spans.len(),
        "spans": spans.collect::<Vec<_>>(),
        "residual": scan.residual.as_ref().map(strategy::filter_text),
        "index": null,
        "indexPassedOver": null,
        "advice": null,
    })
}

/// The explanation of an order that is refused.
fn refused(scan: &Scan, error: &Error) -> Value {
    let mut explained = explained(scan, KeyAccess::Refused);
    explained["advice"] = format!("Refused: {}.", error.why.as_deref().unwrap_or(error.text())).into();
    explained
}

/// What an operator can do if clients are refused a query that extended queries have.
fn advice(account: &str) -> String {
    format!(
        "Clients of {account} are refused this query, until `rowhouse account queries {account} extended` turns on \
         extended queries."
    )
}

/// The properties of the indexes that a choice reads, each once.
fn properties(choice: &IndexChoice) -> Value {
    let mut indexes: Vec<_> = choice.ranges.iter().map(|range| &range.index).collect();
    indexes.dedup_by_key(|index| index.index_no);
    indexes.into_iter().map(|index| to_json(index)).collect()
}

fn to_json(index: &PropertyIndex) -> Value {
    json!({ "property": index.property, "kind": index.kind.name() })
}

/// Asks the store which choice of indexes it would use. It looks up entries as for a page, but
/// reads no row.
async fn narrowed_by(store: &Store, table: TableRef<'_>, scan: &Scan) -> Result<Option<usize>> {
    if scan.indexed.is_empty() {
        return Ok(None);
    }
    let lookup = Scan { spans: Vec::new(), by: None, ..scan.clone() };
    let ((), end) = store.page(table, &lookup, ()).await?;
    Ok(end.narrowed_by)
}

fn bound_to_json(bound: SpanBound) -> Value {
    let row = bound.row.unwrap_or_default();
    json!({ "partitionKey": bound.partition, "rowKey": row, "inclusive": bound.is_inclusive })
}

/// Returns the scan of the query, with the permission of an operator who only reads.
fn scan(request: &ExplainRequest, table: &TableName, grammar: Grammar) -> Result<Scan> {
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
    allows(&Identity::Operator { may_write: false }, Action::ReadEntities, Some(table), None)?;
    query::entities(&options, None)
}

/// Reads one page, and counts the rows that were examined for it.
async fn measure(store: &Store, table: TableRef<'_>, scan: &Scan) -> Result<QueryCost> {
    let begun = Instant::now();
    let ((), end) = store.page(table, scan, ()).await?;
    let (returned, took) = (end.entities as u64, begun.elapsed());
    let more = end.next.is_some() || end.next_in_index.is_some();
    let (looked_at, is_exact) = match &scan.residual {
        None => (returned, true),
        Some(_) if end.narrowed_by.is_some() || scan.by.is_some() => (end.examined, true),
        Some(_) => count(store, table, scan, end.next.as_ref()).await?,
    };
    Ok(QueryCost {
        returned,
        looked_at: looked_at.max(returned),
        is_exact,
        took,
        more,
        narrowed_by: end.narrowed_by,
    })
}

/// Counts the rows of the spans that come before the bound `until`, and says whether these are all.
async fn count(store: &Store, table: TableRef<'_>, scan: &Scan, until: Option<&Key>) -> Result<(u64, bool)> {
    let begun = Instant::now();
    let spans = scan.order.arrange(scan.spans.clone());
    // What comes before a bound is what a read in the opposite order has behind it.
    let spans = match until {
        Some(until) => scan.order.reversed().rest_of(spans, until),
        None => spans,
    };
    let mut rows = 0;
    let mut from = Key::new("", "");
    loop {
        let left = MAX_TIME.saturating_sub(begun.elapsed());
        if rows >= MAX_COUNTED || left.is_zero() {
            return Ok((rows, false));
        }
        let spans = span::starting_at(spans.clone(), &from);
        if spans.is_empty() {
            return Ok((rows, true));
        }
        let page = Scan { projection: Projection::SystemOnly, time: left, ..Scan::over(spans) };
        let ((), end) = store.page(table, &page, ()).await?;
        rows += end.entities as u64;
        match end.next {
            Some(next) => from = next,
            None => return Ok((rows, true)),
        }
    }
}
