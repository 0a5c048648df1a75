//! Outcomes to answers (protocol §3).

use super::answer::{Answer, DATA_SERVICE_ID, ETAG, LOCATION, PREFERENCE_APPLIED};
use crate::codec::json::write::{self, Context, Metadata, Select};
use crate::codec::{stored, uri};
use crate::error::Result;
use crate::model::version::etag;
use crate::model::{Stored, TableName};
use crate::plan::{EntityPage, TablePage, Write, WriteKind, Written, page};
use crate::request::{Format, Prefer, Target};

/// What answers to one request have in common.
#[derive(Clone, Copy)]
pub struct Printer<'a> {
    pub target: &'a Target,
    pub format: Format,
    pub prefer: Option<Prefer>,
}

impl<'a> Printer<'a> {
    fn context(&self, metadata: Metadata, table: &'a str, select: Option<&'a Select>) -> Context<'a> {
        Context { metadata, base: &self.target.base, account: &self.target.account, table, select }
    }

    /// Query Tables (§3.1).
    pub fn tables(&self, found: &TablePage, select: Option<&Select>) -> Result<Answer> {
        let metadata = self.format.for_body()?;
        let context = self.context(metadata, "Tables", select);
        let body = write::table_feed(&context, found.tables.iter().map(|t| t.name.as_str()));
        let answer = Answer::json(200, metadata, body);
        Ok(match &found.next {
            None => answer,
            Some(next) => {
                let token = page::table_token(&next.name, next.created);
                answer.with("x-ms-continuation-NextTableName", token)
            }
        })
    }

    /// Get Table (§3.2).
    pub fn table(&self, name: &str) -> Result<Answer> {
        let metadata = self.format.for_body()?;
        let body = write::table_document(&self.context(metadata, "Tables", None), name);
        Ok(Answer::json(200, metadata, body))
    }

    /// Create Table (§3.3).
    pub fn created_table(&self, table: &TableName) -> Result<Answer> {
        let location = format!("{}/Tables('{}')", self.target.base, table.as_given());
        self.created(location, |metadata| {
            Ok(write::table_document(&self.context(metadata, "Tables", None), table.as_given()))
        })
    }

    /// Query Entities (§3.7).
    pub fn entities(&self, table: &str, found: &EntityPage, select: Option<&Select>) -> Result<Answer> {
        let metadata = self.format.for_body()?;
        let body = write::entity_feed(&self.context(metadata, table, select), &found.entities)?;
        let answer = Answer::json(200, metadata, body);
        Ok(match &found.next {
            None => answer,
            Some(next) => answer
                .with("x-ms-continuation-NextPartitionKey", page::token(&next.partition))
                .with("x-ms-continuation-NextRowKey", page::token(&next.row)),
        })
    }

    /// Get Entity (§3.8).
    pub fn entity(&self, table: &str, entity: &Stored, select: Option<&Select>) -> Result<Answer> {
        let metadata = self.format.for_body()?;
        let body = write::entity_document(&self.context(metadata, table, select), entity)?;
        Ok(Answer::json(200, metadata, body).with(ETAG, etag(entity.modified)))
    }

    /// A write that was done (§3.9 to §3.11).
    pub fn written(&self, table: &str, write: &Write, written: Written) -> Result<Answer> {
        let Some(modified) = written.modified else { return Ok(Answer::empty(204)) };
        if write.kind != WriteKind::Insert {
            return Ok(Answer::empty(204).with(ETAG, etag(modified)));
        }
        let location = format!("{}/{}", self.target.base, uri::entity_address(table, &write.key));
        let answer = self.created(location, |metadata| {
            let properties = stored::encode(&write.properties);
            let entity = write::as_stored(write.key.clone(), properties, modified);
            write::entity_document(&self.context(metadata, table, None), &entity)
        })?;
        Ok(answer.with(ETAG, etag(modified)))
    }

    /// 201 with the document, or 204 without, as the client prefers.
    fn created(&self, location: String, document: impl FnOnce(Metadata) -> Result<String>) -> Result<Answer> {
        let answer = match self.prefer {
            Some(Prefer::NoContent) => {
                Answer::empty(204).with(LOCATION, location.clone()).with(DATA_SERVICE_ID, location)
            }
            _ => {
                let metadata = self.format.for_body()?;
                Answer::json(201, metadata, document(metadata)?).with(LOCATION, location)
            }
        };
        Ok(match self.prefer {
            Some(prefer) => answer.with(PREFERENCE_APPLIED, prefer.applied()),
            None => answer,
        })
    }
}
