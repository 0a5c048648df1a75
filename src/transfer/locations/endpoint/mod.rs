//! A Table endpoint over HTTP: Rowhouse or any other server.

mod continuation;
mod pages;
mod writes;

use std::sync::atomic::{AtomicU32, AtomicUsize, Ordering};

use serde::Deserialize;
use serde::de::IgnoredAny;

use crate::protocol::codec::policies::{self, Policy};
use crate::protocol::codec::properties::{self, Layout, ServiceProperties};
use crate::protocol::codec::uri::{entity_address, escape};
use crate::protocol::codec::xml;
use crate::protocol::model::Key;
use crate::transfer::client::{Client, ClientAnswer, ClientCall, ServiceError};
use crate::transfer::contract::{
    Counts, Page, Rejected, RowReader, TransferSource, TransferTarget, WritePage,
};
use crate::transfer::error::{TransferError, TransferResult};
use crate::transfer::rows::range::RowRange;
use crate::transfer::rows::row::{Row, Version};
use crate::transfer::rows::selection::Selection;
use continuation::{Continuation, next};
use pages::EndpointPages;

/// Tables that an account may have: each is held in memory.
const MAX_TABLES: usize = 1_000_000;
/// The statuses for an insert; a server may ignore the preference for no content.
const INSERTED: &[u16] = &[201, 204];

/// A Table endpoint.
pub(crate) struct Endpoint {
    client: Client,
    filter: Option<String>,
    /// Tables that are selected by their names, without patterns.
    named: Vec<String>,
    /// Entities in a row that the server failed for.
    failures: AtomicU32,
    /// Threads that help others with their writes.
    helping: AtomicUsize,
}

/// Threads that help with a write, until it is done.
struct Helpers<'a> {
    helping: &'a AtomicUsize,
    count: usize,
}

impl Drop for Helpers<'_> {
    fn drop(&mut self) {
        self.helping.fetch_sub(self.count, Ordering::Relaxed);
    }
}

#[derive(Deserialize)]
struct TableList {
    value: Vec<TableMember>,
}

#[derive(Deserialize)]
struct TableMember {
    #[serde(rename = "TableName")]
    name: String,
}

impl Endpoint {
    /// Returns the endpoint of a client. Reading it returns the entities that the selection's filter
    /// selects.
    ///
    /// # Errors
    /// [`TransferError::Usage`] for `since` on Cosmos, which returns no rows for such a filter, and for
    /// a filter with more than the service knows.
    pub(crate) fn new(client: Client, selection: &Selection) -> TransferResult<Self> {
        if client.address.is_cosmos() && selection.since.is_some() {
            let text = "--since: Cosmos DB answers filters on Timestamp with no rows; copy without it";
            return Err(TransferError::Usage(text.into()));
        }
        selection.check_for_endpoint().map_err(|reason| {
            TransferError::Usage(format!(
                "the filter: {reason} An endpoint takes filters of the service only."
            ))
        })?;
        let is_name = |name: &&String| !name.contains(['*', '?']);
        let named = selection.include.iter().filter(is_name).cloned().collect();
        let (failures, helping) = (AtomicU32::new(0), AtomicUsize::new(0));
        Ok(Self { client, filter: selection.filter_text(), named, failures, helping })
    }

    /// Takes the threads that may help with a write: as many over all as there may be other requests.
    fn helpers(&self) -> Helpers<'_> {
        let most = self.client.concurrency() - 1;
        let before = self.helping.fetch_max(most, Ordering::Relaxed);
        Helpers { helping: &self.helping, count: most.saturating_sub(before) }
    }

    /// Reads a page of entities, and the call for the next one.
    fn page(&self, call: &ClientCall) -> TransferResult<(Page, Option<ClientCall>)> {
        Ok(self.client.read(call, |answer| Ok((pages::read(&answer.body)?, next(call, answer))))??)
    }

    /// Reads policies or service properties, which Cosmos DB does not have, and some servers and
    /// credentials do not allow.
    fn settings(&self, call: &ClientCall, root: &str) -> TransferResult<Option<Vec<u8>>> {
        if self.client.address.is_cosmos() {
            return Ok(None);
        }
        let read = self.client.read(call, |answer| match xml::parse_strictly(&answer.body) {
            Ok(element) if element.name == root => Ok(answer.body.clone()),
            _ => Err(format!("the answer is no {root}")),
        })?;
        match read {
            Err(refused) if is_forbidden(&refused) || refused.is_absent() || refused.status == 501 => {
                Ok(None)
            }
            body => Ok(Some(body?)),
        }
    }

    /// Returns the query for a filter combined with that of the selection.
    fn query(&self, table: &str, filter: &str, extra: Option<&str>) -> ClientCall {
        let parts: Vec<&str> =
            [Some(filter), extra].into_iter().flatten().filter(|part| !part.is_empty()).collect();
        let call = ClientCall::get(format!("/{}()", escape(table)));
        match parts.as_slice() {
            [] => call,
            [only] => call.query("$filter", *only),
            several => {
                let several: Vec<String> = several.iter().map(|part| format!("({part})")).collect();
                call.query("$filter", several.join(" and "))
            }
        }
    }
}

fn first_entity(table: &str) -> ClientCall {
    ClientCall::get(format!("/{}()", escape(table))).query("$top", "1")
}

impl TransferSource for Endpoint {
    fn tables(&self) -> TransferResult<Vec<String>> {
        let mut names = Vec::new();
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
            pages.follow(following, list.value.is_empty())?;
            names.extend(list.value.into_iter().map(|table| table.name));
            if names.len() > MAX_TABLES {
                let text = format!("the endpoint lists more than {MAX_TABLES} tables, as if without end");
                return Err(TransferError::Failed(text));
            }
        }
        Ok(names)
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
            let (page, following) = self.page(&asked)?;
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
        row.map(Some).map_err(|reason| TransferError::Failed(format!("{table} {key:?}: {reason}")))
    }

    fn policies(&self, table: &str) -> TransferResult<Option<Vec<Policy>>> {
        let call = ClientCall::get(format!("/{}", escape(table))).query("comp", "acl").accept_xml();
        let Some(body) = self.settings(&call, "SignedIdentifiers")? else { return Ok(None) };
        let read = policies::read(&body).map_err(|error| error.text().to_owned());
        read.map(Some).map_err(|reason| TransferError::Failed(format!("the policies of {table}: {reason}")))
    }

    fn properties(&self) -> TransferResult<Option<ServiceProperties>> {
        let call = ClientCall::get("/").query("restype", "service").query("comp", "properties").accept_xml();
        let Some(body) = self.settings(&call, "StorageServiceProperties")? else { return Ok(None) };
        let read = properties::read(&body, Layout::Cors).map_err(|error| error.text().to_owned());
        read.map(Some).map_err(|reason| TransferError::Failed(format!("the service properties: {reason}")))
    }

    fn retries(&self) -> (u64, u64) {
        (self.client.throttled(), self.client.retried())
    }
}

/// Whether the credentials do not permit the request, as with some SAS.
fn is_forbidden(refused: &ServiceError) -> bool {
    refused.status == 403 && !refused.code.is_empty()
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
                found.map(drop).map_err(|_| refused.into())
            }
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
