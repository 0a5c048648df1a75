//! Outcomes to answers (protocol §3).

use super::answer::{Answer, DATA_SERVICE_ID, DATA_SERVICE_VERSION, ETAG, LOCATION, PREFERENCE_APPLIED};
use crate::codec::atom::write::{Atom, AtomDocument, Style};
use crate::codec::feed::{Feed, FeedForm};
use crate::codec::json::write::{self as json, Metadata, MetadataContext, Select, as_stored};
use crate::codec::uri;
use crate::error::{Error, Result};
use crate::model::entity::BorrowedEntity;
use crate::model::version::etag;
use crate::model::{Stored, TableName, Ticks};
use crate::plan::{PageEnd, TablePage, Write, WriteKind, Written, page};
use crate::request::{Format, Prefer, Representation, Target};
use crate::store::Collect;

/// What answers to one request have in common.
#[derive(Clone, Copy)]
pub(crate) struct Printer<'a> {
    pub target: &'a Target,
    pub format: Format,
    pub prefer: Option<Prefer>,
    pub now: Ticks,
}

/// A page of entities, printed as they come.
pub(crate) struct EntityFeed {
    feed: Feed,
    /// Why it cannot be sent.
    broken: Option<Error>,
}

impl EntityFeed {
    fn close(self) -> Result<String> {
        match self.broken {
            None => Ok(self.feed.close()),
            Some(error) => Err(error),
        }
    }
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

/// The name under which tables are listed.
const TABLES: &str = "Tables";

impl<'a> Printer<'a> {
    fn context(&self, metadata: Metadata, table: &'a str, select: Option<&'a Select>) -> MetadataContext<'a> {
        MetadataContext { metadata, base: &self.target.base, account: &self.target.account, table, select }
    }

    fn atom(&self, style: Style, table: &'a str, select: Option<&'a Select>) -> Atom<'a> {
        Atom { context: self.context(Metadata::Minimal, table, select), style, now: self.now }
    }

    /// Query Tables (§3.1).
    pub(crate) fn tables(&self, found: &TablePage, select: Option<&'a Select>) -> Result<Answer> {
        let names = found.tables.iter().map(|t| t.name.as_str());
        let answer = match self.format.for_body()? {
            Representation::Json(metadata) => {
                let body = json::table_feed(&self.context(metadata, TABLES, select), names);
                Answer::document(200, metadata.content_type(), body)
            }
            Representation::Atom(style) => {
                in_atom(200, style, AtomDocument::Feed, self.atom(style, TABLES, select).table_feed(names))
            }
        };
        Ok(match &found.next {
            None => answer,
            Some(next) => {
                let token = page::table_token(&next.name, next.created);
                answer.with("x-ms-continuation-NextTableName", token)
            }
        })
    }

    /// Get Table (§3.2).
    pub(crate) fn table(&self, name: &str) -> Result<Answer> {
        self.table_document(200, name)
    }

    fn table_document(&self, status: u16, name: &str) -> Result<Answer> {
        Ok(match self.format.for_body()? {
            Representation::Json(metadata) => {
                let body = json::table_document(&self.context(metadata, TABLES, None), name);
                Answer::document(status, metadata.content_type(), body)
            }
            Representation::Atom(style) => in_atom(
                status,
                style,
                AtomDocument::Entry,
                self.atom(style, TABLES, None).table_document(name),
            ),
        })
    }

    /// Create Table (§3.3).
    pub(crate) fn created_table(&self, table: &TableName) -> Result<Answer> {
        let location = format!("{}/Tables('{}')", self.target.base, table.as_given());
        self.created(location, || self.table_document(201, table.as_given()))
    }

    /// A page of Query Entities (§3.7), to be printed as it is read.
    ///
    /// # Errors
    /// Where the client does not accept a form in which it can be printed.
    pub(crate) fn feed(&self, table: &'a str, rows: usize, select: Option<&'a Select>) -> Result<EntityFeed> {
        let form = match self.format.for_body()? {
            Representation::Json(metadata) => FeedForm::Json(self.context(metadata, table, select)),
            Representation::Atom(style) => FeedForm::Atom(self.atom(style, table, select)),
        };
        Ok(EntityFeed { feed: Feed::open(form, rows), broken: None })
    }

    /// Query Entities (§3.7).
    ///
    /// # Errors
    /// For a row that is not in stored form.
    pub(crate) fn entities(&self, feed: EntityFeed, end: PageEnd) -> Result<Answer> {
        let body = feed.close()?;
        let answer = match self.format.for_body()? {
            Representation::Json(metadata) => Answer::document(200, metadata.content_type(), body),
            Representation::Atom(style) => in_atom(200, style, AtomDocument::Feed, body),
        };
        Ok(match &end.next {
            None => answer,
            Some(next) => answer
                .with("x-ms-continuation-NextPartitionKey", page::token(&next.partition))
                .with("x-ms-continuation-NextRowKey", page::token(&next.row)),
        })
    }

    /// Get Entity (§3.8).
    pub(crate) fn entity(
        &self,
        table: &'a str,
        entity: &Stored,
        select: Option<&'a Select>,
    ) -> Result<Answer> {
        let answer = self.entity_document(200, table, entity, select)?;
        Ok(answer.with(ETAG, etag(entity.modified)))
    }

    fn entity_document(
        &self,
        status: u16,
        table: &'a str,
        entity: &Stored,
        select: Option<&'a Select>,
    ) -> Result<Answer> {
        Ok(match self.format.for_body()? {
            Representation::Json(metadata) => {
                let body = json::entity_document(&self.context(metadata, table, select), entity)?;
                Answer::document(status, metadata.content_type(), body)
            }
            Representation::Atom(style) => {
                let body = self.atom(style, table, select).entity_document(entity)?;
                in_atom(status, style, AtomDocument::Entry, body)
            }
        })
    }

    /// A write that was done (§3.9 to §3.11).
    pub(crate) fn written(&self, table: &'a str, write: &Write, written: Written) -> Result<Answer> {
        let Some(modified) = written.modified else { return Ok(Answer::empty(204)) };
        if write.kind != WriteKind::Insert {
            return Ok(self.preferring(Answer::empty(204)).with(ETAG, etag(modified)));
        }
        let location =
            [&self.target.base, "/", &uri::entity_address(table, &write.key.partition, &write.key.row)]
                .concat();
        let answer = self.created(location, || {
            let entity = as_stored(write.key.clone(), write.properties.stored().clone(), modified);
            self.entity_document(201, table, &entity, None)
        })?;
        Ok(answer.with(ETAG, etag(modified)))
    }

    /// 201 with the document, or 204 without, as the client prefers.
    fn created(&self, location: String, document: impl FnOnce() -> Result<Answer>) -> Result<Answer> {
        let answer = match self.prefer {
            Some(Prefer::NoContent) => {
                Answer::empty(204).with(LOCATION, location.clone()).with(DATA_SERVICE_ID, location)
            }
            _ => document()?.with(LOCATION, location),
        };
        Ok(self.preferring(answer))
    }

    fn preferring(&self, answer: Answer) -> Answer {
        match self.prefer {
            Some(prefer) => answer.with(PREFERENCE_APPLIED, prefer.applied()),
            None => answer,
        }
    }
}

fn in_atom(status: u16, style: Style, kind: AtomDocument, body: String) -> Answer {
    let answer = Answer::document(status, style.content_type(kind), body);
    match style {
        Style::Classic => answer.with(DATA_SERVICE_VERSION, style.data_service_version()),
        Style::Modern => answer,
    }
}
