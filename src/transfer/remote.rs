//! A Table endpoint over HTTP: Rowhouse or any other server.

mod pages;
mod writes;

use std::sync::atomic::{AtomicUsize, Ordering};

use serde::Deserialize;

use super::endpoint::{
    Page, Rejected, RowReader, TransferError, TransferResult, TransferSource, TransferTarget, WritePage,
    WriteResult,
};
use super::range::RowRange;
use super::row::{Row, Version};
use super::selection::Selection;
use crate::client::{Client, ClientAnswer, ClientCall};
use crate::codec::policies::{self, Policy};
use crate::codec::properties::{self, Layout, ServiceProperties};
use crate::codec::uri::{entity_address, escape};
use crate::model::Key;
use pages::RemotePages;

/// Names of continuation parameters, and of the headers that carry them, in lower case.
const CONTINUATION: [(&str, &str); 3] = [
    ("NextPartitionKey", "nextpartitionkey"),
    ("NextRowKey", "nextrowkey"),
    ("NextTableName", "nexttablename"),
];

/// A Table endpoint.
pub(crate) struct Remote {
    client: Client,
    filter: Option<String>,
    /// Tables that are selected by their names, without patterns.
    named: Vec<String>,
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

impl Remote {
    /// Returns the endpoint of a client. Reading it returns the entities that the selection's filter
    /// selects.
    ///
    /// # Errors
    /// [`TransferError::Usage`] for `since` on Cosmos, which returns no rows for such a filter.
    pub(crate) fn new(client: Client, selection: &Selection) -> TransferResult<Self> {
        if client.address.is_cosmos() && selection.since.is_some() {
            let text = "--since: Cosmos DB answers filters on Timestamp with no rows; copy without it";
            return Err(TransferError::Usage(text.into()));
        }
        let is_name = |name: &&String| !name.contains(['*', '?']);
        let named = selection.include.iter().filter(is_name).cloned().collect();
        Ok(Self { client, filter: selection.filter_text(), named, helping: AtomicUsize::new(0) })
    }

    /// Takes the threads that may help with a write: as many over all as there may be other requests.
    fn helpers(&self) -> Helpers<'_> {
        let most = self.client.concurrency() - 1;
        let before = self.helping.fetch_max(most, Ordering::Relaxed);
        Helpers { helping: &self.helping, count: most.saturating_sub(before) }
    }

    fn ask(&self, call: &ClientCall) -> TransferResult<ClientAnswer> {
        succeeded(self.client.send(call)?)
    }

    /// Returns the query for a filter combined with that of the selection.
    fn query(&self, table: &str, filter: &str, extra: Option<&str>) -> ClientCall {
        let parts: Vec<String> = [Some(filter), extra]
            .into_iter()
            .flatten()
            .filter(|part| !part.is_empty())
            .map(in_parentheses)
            .collect();
        let call = ClientCall::get(format!("/{}()", escape(table)));
        match parts.as_slice() {
            [] => call,
            [only] => call.query("$filter", only.trim_start_matches('(').strip_suffix(')').unwrap_or(only)),
            several => call.query("$filter", several.join(" and ")),
        }
    }
}

fn succeeded(answer: ClientAnswer) -> TransferResult<ClientAnswer> {
    if answer.is_success() { Ok(answer) } else { Err(answer.refused().into()) }
}

fn in_parentheses(filter: &str) -> String {
    format!("({filter})")
}

/// Returns the call with the continuation token of its answer; `None` if the answer has none.
fn next(call: &ClientCall, answer: &ClientAnswer) -> Option<ClientCall> {
    let mut following = call.clone();
    following.query.retain(|(name, _)| CONTINUATION.iter().all(|(parameter, _)| parameter != name));
    let before = following.query.len();
    for (parameter, header) in CONTINUATION {
        if let Some((_, value)) = answer.continuation.iter().find(|(name, _)| name == header) {
            following.query.push((parameter, value.clone()));
        }
    }
    (following.query.len() > before).then_some(following)
}

impl TransferSource for Remote {
    fn tables(&self) -> TransferResult<Vec<String>> {
        let mut names = Vec::new();
        let mut call = Some(ClientCall::get("/Tables"));
        while let Some(asked) = call {
            let answer = self.client.send(&asked)?;
            // A signature of a table lists none; it may be named.
            if answer.status == 403 && !self.named.is_empty() {
                return Ok(self.named.clone());
            }
            let answer = succeeded(answer)?;
            let page: TableList = serde_json::from_slice(&answer.body)
                .map_err(|error| TransferError::Endpoint(format!("the list of tables: {error}")))?;
            names.extend(page.value.into_iter().map(|table| table.name));
            call = next(&asked, &answer);
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
        Ok(Box::new(RemotePages::new(self, table, range, keys_only)))
    }

    fn probe(&self, table: &str, range: &RowRange) -> TransferResult<Option<Key>> {
        let select = "PartitionKey,RowKey";
        for filter in range.filters() {
            let call = self.query(table, &filter, None).query("$select", select).query("$top", "1");
            // An empty page may have a token, because rows may follow.
            let mut call = Some(call);
            while let Some(asked) = call {
                let answer = self.ask(&asked)?;
                if let Some(row) = pages::read(&answer.body)?.rows.into_iter().next() {
                    return Ok(Some(row.key));
                }
                call = next(&asked, &answer);
            }
        }
        Ok(None)
    }

    fn get(&self, table: &str, key: &Key) -> TransferResult<Option<Row>> {
        let answer = self
            .client
            .send(&ClientCall::get(format!("/{}", entity_address(table, &key.partition, &key.row))))?;
        if answer.status == 404 {
            return Ok(None);
        }
        let body = answer.success()?;
        let row = std::str::from_utf8(&body).map_err(|error| error.to_string()).and_then(Row::from_json);
        row.map(Some).map_err(|reason| TransferError::Endpoint(format!("{table} {key:?}: {reason}")))
    }

    fn policies(&self, table: &str) -> TransferResult<Option<Vec<Policy>>> {
        if self.client.address.is_cosmos() {
            return Ok(None);
        }
        let answer = self
            .client
            .send(&ClientCall::get(format!("/{}", escape(table))).query("comp", "acl").accept_xml())?;
        if is_forbidden(&answer) {
            return Ok(None);
        }
        let read = policies::read(&answer.success()?).map_err(|error| error.text().to_owned());
        read.map(Some).map_err(|reason| TransferError::Endpoint(format!("the policies of {table}: {reason}")))
    }

    fn properties(&self) -> TransferResult<Option<ServiceProperties>> {
        if self.client.address.is_cosmos() {
            return Ok(None);
        }
        let call = ClientCall::get("/").query("restype", "service").query("comp", "properties").accept_xml();
        let answer = self.client.send(&call)?;
        if is_forbidden(&answer) {
            return Ok(None);
        }
        let read =
            properties::read(&answer.success()?, Layout::Cors).map_err(|error| error.text().to_owned());
        read.map(Some).map_err(|reason| TransferError::Endpoint(format!("the service properties: {reason}")))
    }

    fn retries(&self) -> (u64, u64) {
        (self.client.throttled(), self.client.retried())
    }
}

/// Whether the credentials do not permit the request, as with some SAS, or the server does not support
/// it.
fn is_forbidden(answer: &ClientAnswer) -> bool {
    matches!(answer.status, 403 | 404 | 501)
}

impl TransferTarget for Remote {
    fn has_entities(&self, table: &str) -> TransferResult<bool> {
        let answer =
            self.client.send(&ClientCall::get(format!("/{}()", escape(table))).query("$top", "1"))?;
        if answer.status == 404 {
            return Ok(false);
        }
        Ok(!pages::read(&answer.success()?)?.rows.is_empty())
    }

    fn create(&self, table: &str) -> TransferResult<()> {
        let body = serde_json::json!({ "TableName": table }).to_string().into_bytes();
        let call = ClientCall::with_body("POST", "/Tables", "application/json", body);
        let answer = self.client.send(&call.header("Prefer", "return-no-content"))?;
        match answer.status {
            409 if answer.refused().code == "TableAlreadyExists" => Ok(()),
            // A SAS for one table cannot create it, but the table may exist.
            403 if self
                .client
                .send(&ClientCall::get(format!("/{}()", escape(table))).query("$top", "1"))?
                .is_success() =>
            {
                Ok(())
            }
            _ => Ok(answer.success().map(drop)?),
        }
    }

    fn write(&self, mut page: WritePage<'_>) -> TransferResult<WriteResult> {
        writes::write(self, &mut page)
    }

    fn delete(&self, table: &str, entities: &[(Key, Version)]) -> TransferResult<u64> {
        writes::delete(self, table, entities)
    }

    fn set_policies(&self, table: &str, policies: &[Policy]) -> TransferResult<()> {
        let body = policies::write(policies).into_bytes();
        let call =
            ClientCall::with_body("PUT", format!("/{}", escape(table)), "application/xml", body).accept_xml();
        self.ask(&call.query("comp", "acl")).map(drop)
    }

    fn set_properties(&self, wanted: &ServiceProperties) -> TransferResult<()> {
        let body = properties::write(wanted, Layout::Cors).into_bytes();
        let call = ClientCall::with_body("PUT", "/", "application/xml", body).accept_xml();
        self.ask(&call.query("restype", "service").query("comp", "properties")).map(drop)
    }

    fn retries(&self) -> (u64, u64) {
        TransferSource::retries(self)
    }
}
