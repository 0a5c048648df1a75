//! Query Entities (protocol §3.7). A page is printed while it is being read.

use super::printer::{Printer, in_atom};
use crate::error::{Code, Error, Result};
use crate::observe::metrics::METRICS;
use crate::observe::metrics::scans::{ScannedProperty, is_costly};
use crate::protocol::codec::atom::write::AtomDocument;
use crate::protocol::codec::feed::{Feed, FeedForm};
use crate::protocol::codec::json::write::Select;
use crate::protocol::model::entity::BorrowedEntity;
use crate::protocol::model::{PageOrder, TableName, TableRef};
use crate::protocol::plan::index::indexable;
use crate::protocol::plan::{PageEnd, Predicate, Scan, page};
use crate::protocol::request::Representation;
use crate::service::Answer;
use crate::store::{Collect, Failure, Store};

/// A page of entities that is printed while it is being read.
struct EntityFeed {
    feed: Feed,
    /// The reason why the page cannot be sent.
    broken: Option<Error>,
}

impl Collect for EntityFeed {
    fn take(&mut self, entity: BorrowedEntity<'_>) {
        if self.broken.is_none() {
            self.broken = self.feed.push(entity).err();
        }
    }

    fn restart(&mut self) {
        self.feed.restart();
        self.broken = None;
    }
}

pub(super) async fn run(
    store: &Store,
    table: &TableName,
    scan: &Scan,
    select: Option<&Select>,
    printer: &Printer<'_>,
) -> Result<Answer> {
    let feed = Box::new(open(table.as_given(), scan.rows, select, printer)?);
    let (feed, end) = read(store, printer.account(), table, scan, feed).await?;
    close(*feed, scan.order, &end, printer)
}

/// Reads a page. With `$top=0`, the page still requires the table, and has no continuation token: a client
/// that followed the token would never finish.
async fn read<C: Collect>(
    store: &Store,
    account: &str,
    table: &TableName,
    scan: &Scan,
    into: C,
) -> Result<(C, PageEnd), Failure> {
    if scan.rows > 0 {
        let table = table.in_account(account);
        let (into, end) = store.page(table, scan, into).await?;
        METRICS.requests.page(end.entities);
        if let Some(filter) = &scan.residual {
            count_filtered(table, filter, &end);
        }
        return Ok((into, end));
    }
    match store.get_table(table.in_account(account)).await? {
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

fn open(table: &str, rows: usize, select: Option<&Select>, printer: &Printer<'_>) -> Result<EntityFeed> {
    let form = match printer.format.for_body()? {
        Representation::Json(metadata) => FeedForm::Json(printer.context(metadata, table, select)),
        Representation::Atom(style) => FeedForm::Atom(printer.atom(style, table, select)),
    };
    Ok(EntityFeed { feed: Feed::open(form, rows), broken: None })
}

fn close(feed: EntityFeed, order: PageOrder, end: &PageEnd, printer: &Printer<'_>) -> Result<Answer> {
    if let Some(error) = feed.broken {
        return Err(error);
    }
    let body = feed.feed.close();
    let answer = match printer.format.for_body()? {
        Representation::Json(metadata) => Answer::document(200, metadata.content_type(), body),
        Representation::Atom(style) => in_atom(200, style, AtomDocument::Feed, body),
    };
    let by_keys = end.next.as_ref().map(|next| page::entity_tokens(order, next));
    let tokens = by_keys.or_else(|| end.next_in_index.as_ref().map(|next| page::index_tokens(order, next)));
    Ok(match tokens {
        None => answer,
        Some((partition, row)) => answer
            .with("x-ms-continuation-NextPartitionKey", partition)
            .with("x-ms-continuation-NextRowKey", row),
    })
}
