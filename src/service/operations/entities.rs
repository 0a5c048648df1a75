//! Operations on entities (protocol §3.7 to §3.11). A page is printed while it is being read.

use super::printer::Printer;
use crate::error::{Code, Error, Result};
use crate::observe::metrics::METRICS;
use crate::observe::metrics::scans::{ScannedProperty, is_costly};
use crate::protocol::codec::atom::write::AtomDocument;
use crate::protocol::codec::feed::{Feed, FeedForm};
use crate::protocol::codec::json::write::Select;
use crate::protocol::codec::uri;
use crate::protocol::model::entity::BorrowedEntity;
use crate::protocol::model::version::etag;
use crate::protocol::model::{Key, PageOrder, Stored, TableName, TableRef, Ticks};
use crate::protocol::plan::index::indexable;
use crate::protocol::plan::{PageEnd, PointRead, Predicate, Scan, Span, Write, WriteKind, page};
use crate::protocol::request::Representation;
use crate::service::Answer;
use crate::service::answer::ETAG;
use crate::store::{Collect, Failure, Store};

/// Inserts, replaces, merges, upserts or deletes an entity, as `plan::decide` defines.
pub(super) async fn write(
    store: &Store,
    table: &TableName,
    write: &Write,
    printer: &Printer<'_>,
) -> Result<Answer> {
    let written = store.write(table.in_account(printer.account()), write, printer.now).await?;
    print_write(table, write, written.modified.map(|modified| (modified, etag(modified))), printer)
}

/// Returns the response to a completed write, alone or in a change set. `version` is the new version with its ETag;
/// `None` for a delete.
pub(crate) fn print_write(
    table: &TableName,
    write: &Write,
    version: Option<(Ticks, String)>,
    printer: &Printer<'_>,
) -> Result<Answer> {
    let Some((modified, etag)) = version else { return Ok(Answer::table_empty(204)) };
    if write.kind != WriteKind::Insert {
        return Ok(printer.with_applied_preference(Answer::table_empty(204)).with(ETAG, etag));
    }
    let table = table.as_given();
    let address = uri::entity_address(table, &write.key.partition, &write.key.row);
    let answer = printer.print_created([&printer.target.base, "/", &address].concat(), || {
        printer.entity_document(201, table, write.as_stored(modified), None)
    })?;
    Ok(answer.with(ETAG, etag))
}

pub(super) async fn get(
    store: &Store,
    table: &TableName,
    read: &PointRead,
    printer: &Printer<'_>,
) -> Result<Answer> {
    let in_account = table.in_account(printer.account());
    let found = match &read.filter {
        None => store.get(in_account, &read.key).await?,
        // Boxed, because few clients send a filter.
        Some(filter) => Box::pin(get_matching(store, in_account, &read.key, filter)).await?,
    };
    let entity = found.ok_or(Code::ResourceNotFound)?;
    let answer = match &read.known {
        Some(known) if known.has(entity.modified) => Answer::table_empty(304),
        _ => {
            METRICS.requests.entity();
            printer.entity_document(200, table.as_given(), (&entity).into(), read.select.as_ref())?
        }
    };
    Ok(answer.with(ETAG, etag(entity.modified)))
}

/// Reads an entity as a page with one row, so that its filter costs no more than that of a query.
async fn get_matching(
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

struct EntityFeed {
    feed: Feed,
    /// The first entity that cannot be printed makes the whole page fail with this error.
    error: Option<Error>,
}

impl Collect for EntityFeed {
    fn take(&mut self, entity: BorrowedEntity<'_>) {
        if self.error.is_none() {
            self.error = self.feed.push(entity).err();
        }
    }

    fn restart(&mut self) {
        self.feed.restart();
        self.error = None;
    }
}

pub(super) async fn query(
    store: &Store,
    table: &TableName,
    scan: &Scan,
    select: Option<&Select>,
    printer: &Printer<'_>,
) -> Result<Answer> {
    let form = match printer.format.for_body()? {
        Representation::Json(metadata) => FeedForm::Json(printer.context(metadata, table.as_given(), select)),
        Representation::Atom(style) => FeedForm::Atom(printer.atom(style, table.as_given(), select)),
    };
    let feed = Box::new(EntityFeed { feed: Feed::open(form, scan.rows), error: None });
    let (feed, end) = read_page(store, table.in_account(printer.account()), scan, feed).await?;
    match feed.error {
        Some(error) => Err(error),
        None => print_page(feed.feed, scan.order, &end, printer),
    }
}

/// Reads a page. With `$top=0`, the page still requires the table, and has no continuation token: a client
/// that followed the token would never finish.
async fn read_page<C: Collect>(
    store: &Store,
    table: TableRef<'_>,
    scan: &Scan,
    into: C,
) -> Result<(C, PageEnd), Failure> {
    if scan.rows > 0 {
        let (into, end) = store.page(table, scan, into).await?;
        METRICS.requests.page(end.entities);
        if let Some(filter) = &scan.residual {
            count_filtered(table, filter, &end);
        }
        return Ok((into, end));
    }
    match store.get_table(table).await? {
        Some(_) => Ok((into, PageEnd::default())),
        None => Err(Code::TableNotFound.into()),
    }
}

/// Counts a filtered page, and records the cost that an index could have saved.
fn count_filtered(table: TableRef<'_>, filter: &Predicate, end: &PageEnd) {
    let by_index = end.narrowed_by.is_some();
    METRICS.filters.page(end.examined, end.entities, by_index);
    if by_index || !is_costly(end.examined, end.entities) {
        return;
    }
    for (property, kind) in indexable(filter) {
        let (account, table) = (table.account.to_owned(), table.name.lower().to_owned());
        let scanned = ScannedProperty { account, table, property: property.to_owned(), kind: kind.name() };
        METRICS.scan_costs.add(scanned, end.examined, end.entities);
    }
}

fn print_page(feed: Feed, order: PageOrder, end: &PageEnd, printer: &Printer<'_>) -> Result<Answer> {
    let answer = printer.document(200, AtomDocument::Feed, |_| Ok(feed.close()))?;
    let by_keys = end.next.as_ref().map(|next| page::entity_tokens(order, next));
    let tokens = by_keys.or_else(|| end.next_in_index.as_ref().map(|next| page::index_tokens(order, next)));
    Ok(match tokens {
        None => answer,
        Some((partition, row)) => answer
            .with("x-ms-continuation-NextPartitionKey", partition)
            .with("x-ms-continuation-NextRowKey", row),
    })
}
