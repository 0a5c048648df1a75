//! A Table endpoint over HTTP: Rowhouse or any other server.

mod account;
mod continuation;
mod pages;
mod writes;

use std::collections::HashSet;

use serde::Deserialize;
use serde::de::IgnoredAny;

use crate::client::{ClientAnswer, ClientCall, ServiceError};
use crate::contract::{Counts, RowReader, TransferSource, TransferTarget, WritePage};
use crate::error::{TransferError, TransferResult, failed};
use crate::protocol::codec::policies::{self, Policy};
use crate::protocol::codec::properties::{self, Layout, ServiceProperties};
use crate::protocol::codec::uri::{entity_address, escape};
use crate::protocol::model::Key;
use crate::rows::range::{RowRange, quoted};
use crate::rows::selection::NameCase;
use crate::rows::{Row, Version};
pub(crate) use account::Endpoint;
use account::{INSERTED, is_forbidden};
use continuation::{Continuation, next};
use pages::{EndpointPages, MOST_ROWS};

/// Tables that an account may have: each is held in memory.
const MAX_TABLES: usize = 1_000_000;
#[derive(Deserialize)]
struct TableList {
    value: Vec<TableMember>,
}

#[derive(Deserialize)]
struct TableMember {
    #[serde(rename = "TableName")]
    name: String,
}

/// Asks for the tables whose names come after one.
fn tables_behind(name: &str) -> ClientCall {
    ClientCall::get("/Tables").query("$filter", format!("TableName gt {}", quoted(name)))
}

fn first_entity(table: &str) -> ClientCall {
    ClientCall::get(format!("/{}()", escape(table))).query("$top", "1")
}

impl Endpoint {
    /// Returns the names of all tables or, if they may not be listed, those that are selected by name.
    fn list_tables(&self) -> TransferResult<Vec<String>> {
        let (mut names, mut seen) = (Vec::new(), HashSet::new());
        let mut pages = Continuation::of([ClientCall::get("/Tables")].into());
        while let Some(asked) = pages.take() {
            let listed = self.client.read(&asked, |answer| {
                let list: TableList = serde_json::from_slice(&answer.body)
                    .map_err(|error| format!("the list of tables: {error}"))?;
                Ok((list, next(&asked, answer)))
            })?;
            // A signature of a table lists none; it may be named.
            if listed.as_ref().is_err_and(is_forbidden) && !self.named.is_empty() {
                return Ok(self.named.clone());
            }
            let (list, following) = listed?;
            let is_cut = following.is_none() && list.value.len() >= MOST_ROWS;
            pages.follow(following, list.value.is_empty())?;
            let before = names.len();
            names.extend(
                list.value.into_iter().map(|table| table.name).filter(|name| seen.insert(name.clone())),
            );
            if let Some(last) = names.last().filter(|_| is_cut && names.len() > before) {
                // Something on the way may lose tokens.
                pages.calls.push_front(tables_behind(last));
            }
            if names.len() > MAX_TABLES {
                return Err(failed!(
                    "the endpoint lists more than {MAX_TABLES} tables, so the list may never end"
                ));
            }
        }
        Ok(names)
    }
}

/// The answer that nothing was done, as the credentials or the account do not allow it.
fn not_allowed(refused: &ServiceError) -> TransferError {
    TransferError::NotAllowed(TransferError::from(refused.clone()).to_string())
}

impl TransferSource for Endpoint {
    fn tables(&self) -> TransferResult<Vec<String>> {
        let names = self.list_tables()?;
        match names.iter().find(|name| name.contains(char::is_control)) {
            Some(name) => {
                Err(failed!("the endpoint lists a table with control characters in its name: {name:?}"))
            }
            None => Ok(names),
        }
    }

    fn name_case(&self) -> NameCase {
        if self.client.address.is_cosmos() { NameCase::Distinguished } else { NameCase::Ignored }
    }

    fn has_table(&self, table: &str) -> TransferResult<bool> {
        match self.client.read(&first_entity(table), |answer| pages::read(&answer.body))? {
            Err(refused) if refused.is_absent() => Ok(false),
            page => Ok(page.map(|_| true)?),
        }
    }

    fn is_ordered(&self) -> bool {
        !self.client.address.is_cosmos()
    }

    fn open<'a>(
        &'a self,
        table: &str,
        range: &RowRange,
        keys_only: bool,
    ) -> TransferResult<Box<dyn RowReader + 'a>> {
        Ok(Box::new(EndpointPages::new(self, table, range, keys_only)))
    }

    fn probe(&self, table: &str, range: &RowRange) -> TransferResult<Option<Key>> {
        let select = "PartitionKey,RowKey";
        let call =
            |filter: String| self.query(table, &filter, None).query("$select", select).query("$top", "1");
        let mut pages = Continuation::of(range.filters().into_iter().map(call).collect());
        // An empty page may have a token, because rows may follow.
        while let Some(asked) = pages.take() {
            let (page, following) = self.page(table, &asked)?;
            if let Some(row) = page.rows.into_iter().next() {
                return Ok(Some(row.key));
            }
            pages.follow(following, true)?;
        }
        Ok(None)
    }

    fn get(&self, table: &str, key: &Key) -> TransferResult<Option<Row>> {
        let call = ClientCall::get(format!("/{}", entity_address(table, &key.partition, &key.row)));
        let body = match self.client.read(&call, json)? {
            Err(refused) if refused.is_absent() => return Ok(None),
            body => body?,
        };
        let row = std::str::from_utf8(&body).map_err(|error| error.to_string()).and_then(Row::from_json);
        row.map(Some).map_err(|reason| failed!("{table} {key:?}: {reason}"))
    }

    fn policies(&self, table: &str) -> TransferResult<Option<Vec<Policy>>> {
        let call = ClientCall::get(format!("/{}", escape(table))).query("comp", "acl").accept_xml();
        let Some(body) = self.settings(&call, "SignedIdentifiers")? else { return Ok(None) };
        let read = policies::read(&body).map_err(|error| error.text().to_owned());
        read.map(Some).map_err(|reason| failed!("the policies of {table}: {reason}"))
    }

    fn properties(&self) -> TransferResult<Option<ServiceProperties>> {
        let call = ClientCall::get("/").query("restype", "service").query("comp", "properties").accept_xml();
        let Some(body) = self.settings(&call, "StorageServiceProperties")? else { return Ok(None) };
        let read = properties::read(&body, Layout::Cors).map_err(|error| error.text().to_owned());
        read.map(Some).map_err(|reason| failed!("the service properties: {reason}"))
    }

    fn retries(&self) -> (u64, u64) {
        (self.client.throttled(), self.client.retried())
    }
}

/// Returns a body that is JSON to its end.
fn json(answer: &ClientAnswer) -> Result<Vec<u8>, String> {
    let read: Result<IgnoredAny, _> = serde_json::from_slice(&answer.body);
    read.map(|_| answer.body.clone()).map_err(|error| format!("the answer is not JSON: {error}"))
}

impl TransferTarget for Endpoint {
    fn has_entities(&self, table: &str) -> TransferResult<Option<bool>> {
        match self.client.read(&first_entity(table), |answer| pages::read(&answer.body))? {
            Err(refused) if refused.is_absent() => Ok(None),
            // Credentials that may only write do not tell.
            Err(refused) if is_forbidden(&refused) => Ok(Some(true)),
            page => Ok(Some(!page?.rows.is_empty())),
        }
    }

    fn create(&self, table: &str) -> TransferResult<()> {
        let body = serde_json::json!({ "TableName": table }).to_string().into_bytes();
        let call = ClientCall::with_body("POST", "/Tables", "application/json", body);
        let call = call.header("Prefer", "return-no-content").succeeds_with(INSERTED);
        match self.client.send(&call)? {
            Err(refused) if refused.code == "TableAlreadyExists" => Ok(()),
            // A SAS for one table cannot create it, but the table may exist.
            Err(refused) if is_forbidden(&refused) => {
                let found = self.client.read(&first_entity(table), |answer| pages::read(&answer.body))?;
                found.map(drop).map_err(|_| not_allowed(&refused))
            }
            Err(refused) if matches!(refused.status, 401 | 403 | 404) => Err(not_allowed(&refused)),
            created => Ok(created?),
        }
    }

    fn delete_table(&self, table: &str) -> TransferResult<()> {
        let path = format!("/Tables('{}')", escape(table));
        let call = ClientCall { method: "DELETE", success: &[204], ..ClientCall::get(path) };
        match self.client.send(&call)? {
            Err(refused) if refused.is_absent() => Ok(()),
            deleted => Ok(deleted?),
        }
    }

    fn write(&self, mut page: WritePage<'_>) -> TransferResult<Counts> {
        writes::write(self, &mut page)
    }

    fn delete(&self, table: &str, entities: &[(Key, Version)]) -> TransferResult<u64> {
        writes::delete(self, table, entities)
    }

    fn set_policies(&self, table: &str, policies: &[Policy]) -> TransferResult<()> {
        let body = policies::write(policies).into_bytes();
        let call =
            ClientCall::with_body("PUT", format!("/{}", escape(table)), "application/xml", body).accept_xml();
        Ok(self.client.send(&call.query("comp", "acl"))??)
    }

    fn set_properties(&self, wanted: &ServiceProperties) -> TransferResult<()> {
        let body = properties::write(wanted, Layout::Cors).into_bytes();
        let call = ClientCall::with_body("PUT", "/", "application/xml", body).accept_xml();
        let call = call.query("restype", "service").query("comp", "properties").succeeds_with(&[202]);
        Ok(self.client.send(&call)??)
    }

    fn retries(&self) -> (u64, u64) {
        TransferSource::retries(self)
    }
}
