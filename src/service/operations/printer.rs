//! Prints the parts that the responses to several operations share (protocol §3).

use crate::error::Result;
use crate::protocol::codec::atom::write::{Atom, AtomDocument, Style};
use crate::protocol::codec::json::write::{self as json, Metadata, MetadataContext, Select};
use crate::protocol::model::Ticks;
use crate::protocol::model::entity::BorrowedEntity;
use crate::protocol::request::{Format, Prefer, Representation, Target};
use crate::service::Answer;
use crate::service::answer::{DATA_SERVICE_ID, DATA_SERVICE_VERSION, LOCATION, PREFERENCE_APPLIED};

/// The name of the entity set that lists the tables.
pub(super) const TABLES: &str = "Tables";

/// The context for printing the response to a request, besides its plan.
#[derive(Clone, Copy)]
pub(crate) struct Printer<'a> {
    pub target: &'a Target,
    pub format: Format,
    pub prefer: Option<Prefer>,
    pub now: Ticks,
}

impl<'a> Printer<'a> {
    pub(super) fn account(&self) -> &'a str {
        &self.target.account
    }

    pub(super) fn context<'b>(
        &'b self,
        metadata: Metadata,
        table: &'b str,
        select: Option<&'b Select>,
    ) -> MetadataContext<'b> {
        MetadataContext { metadata, base: &self.target.base, account: &self.target.account, table, select }
    }

    pub(super) fn atom<'b>(&'b self, style: Style, table: &'b str, select: Option<&'b Select>) -> Atom<'b> {
        Atom { context: self.context(Metadata::Minimal, table, select), style, now: self.now }
    }

    /// Prints a document in the format that the client accepts.
    pub(super) fn document(
        &self,
        status: u16,
        kind: AtomDocument,
        print: impl FnOnce(Representation) -> Result<String>,
    ) -> Result<Answer> {
        let representation = self.format.for_body()?;
        let body = print(representation)?;
        Ok(match representation {
            Representation::Json(metadata) => Answer::table_document(status, metadata.content_type(), body),
            Representation::Atom(style) => {
                let answer = Answer::table_document(status, style.content_type(kind), body);
                match style {
                    Style::Classic => answer.with(DATA_SERVICE_VERSION, style.data_service_version()),
                    Style::Modern => answer,
                }
            }
        })
    }

    pub(super) fn table_document(&self, status: u16, name: &str) -> Result<Answer> {
        self.document(status, AtomDocument::Entry, |representation| {
            Ok(match representation {
                Representation::Json(metadata) => {
                    json::table_document(&self.context(metadata, TABLES, None), name)
                }
                Representation::Atom(style) => self.atom(style, TABLES, None).table_document(name),
            })
        })
    }

    pub(super) fn entity_document(
        &self,
        status: u16,
        table: &str,
        entity: BorrowedEntity<'_>,
        select: Option<&Select>,
    ) -> Result<Answer> {
        self.document(status, AtomDocument::Entry, |representation| match representation {
            Representation::Json(metadata) => {
                json::entity_document(&self.context(metadata, table, select), entity)
            }
            Representation::Atom(style) => self.atom(style, table, select).entity_document(entity),
        })
    }

    /// Returns 201 with the document, or 204 without, depending on the client's preference.
    pub(super) fn print_created(
        &self,
        location: String,
        document: impl FnOnce() -> Result<Answer>,
    ) -> Result<Answer> {
        let answer = match self.prefer {
            Some(Prefer::NoContent) => {
                Answer::table_empty(204).with(LOCATION, location.clone()).with(DATA_SERVICE_ID, location)
            }
            _ => document()?.with(LOCATION, location),
        };
        Ok(self.with_applied_preference(answer))
    }

    pub(super) fn with_applied_preference(&self, answer: Answer) -> Answer {
        match self.prefer {
            Some(prefer) => answer.with(PREFERENCE_APPLIED, prefer.applied()),
            None => answer,
        }
    }
}
