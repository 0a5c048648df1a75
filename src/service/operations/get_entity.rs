//! Get Entity (protocol §3.8).

use super::printer::Printer;
use crate::error::{Code, Result};
use crate::observe::metrics::METRICS;
use crate::protocol::model::version::etag;
use crate::protocol::model::{Key, Stored, TableName, TableRef};
use crate::protocol::plan::{PointRead, Predicate, Scan, Span};
use crate::service::Answer;
use crate::service::answer::ETAG;
use crate::store::{Failure, Store};

pub(super) async fn run(
    store: &Store,
    table: &TableName,
    read: &PointRead,
    printer: &Printer<'_>,
) -> Result<Answer> {
    let in_account = table.in_account(printer.account());
    let found = match &read.filter {
        None => store.get(in_account, &read.key).await?,
        // Boxed, because hardly any client sends a filter.
        Some(filter) => Box::pin(matching(store, in_account, &read.key, filter)).await?,
    };
    let entity = found.ok_or(Code::ResourceNotFound)?;
    let answer = match &read.known {
        Some(known) if known.has(entity.modified) => Answer::empty(304),
        _ => {
            METRICS.requests.entity();
            printer.entity_document(200, table.as_given(), &entity, read.select.as_ref())?
        }
    };
    Ok(answer.with(ETAG, etag(entity.modified)))
}

/// Reads an entity as a page with one row, so that its filter costs no more than that of a query.
async fn matching(
    store: &Store,
    table: TableRef<'_>,
    key: &Key,
    filter: &Predicate,
) -> Result<Option<Stored>, Failure> {
    let residual = Some(filter.clone());
    let scan = Scan { residual, rows: 1, ..Scan::of_spans(vec![Span::point(key.clone())]) };
    let (mut found, end) = store.page(table, &scan, Vec::new()).await?;
    match found.pop() {
        None if end.next.is_some() => Err(Code::OperationTimedOut.into()),
        found => Ok(found),
    }
}
