//! A Table endpoint over HTTP: Rowhouse or any other server.

mod pages;
mod writes;

use std::collections::{HashSet, VecDeque};
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use serde::Deserialize;

use crate::client::{Client, ClientAnswer, ClientCall, ServiceError};
use crate::error::{TransferError, TransferResult, failed, usage};
use crate::protocol::codec::uri::escape;
use crate::protocol::codec::xml;
use crate::protocol::model::Ticks;
use crate::protocol::plan::Predicate;
use crate::rows::range::quoted;
use crate::rows::selection::Selection;

/// Maximum entities in a page of Azure.
const MAX_PAGE_ROWS: usize = 1000;
/// Maximum threads that help with a write, and with all writes.
const MAX_HELPERS_OF_WRITE: usize = 15;
const MAX_HELPERS: usize = 256;
/// Maximum tables of an account. Their names are held in memory.
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

fn list_tables_after(name: &str) -> ClientCall {
    ClientCall::get("/Tables").query("$filter", format!("TableName gt {}", quoted(name)))
}

/// The statuses of an insert; a server may ignore the preference for no content.
const INSERTED: &[u16] = &[201, 204];

pub struct Endpoint {
    client: Arc<Client>,
    filter: Option<String>,
    /// The same filter, to check the answers of the endpoint.
    predicate: Option<Predicate>,
    /// Tables that are selected by their names, without patterns.
    named: Vec<String>,
    /// Consecutive entities for which the server failed.
    failures: AtomicU32,
    /// Threads that help others with their writes.
    helping: AtomicUsize,
}

/// Threads that help with a write until it is done.
struct Helpers<'a> {
    helping: &'a AtomicUsize,
    count: usize,
}

impl Drop for Helpers<'_> {
    fn drop(&mut self) {
        self.helping.fetch_sub(self.count, Ordering::Relaxed);
    }
}

impl Endpoint {
    /// Returns the endpoint of a client. Reads return the entities that the selection's filter selects.
    /// Refuses `since` on Cosmos DB, which returns no rows for such a filter, and filters that Azure does not
    /// support.
    pub(crate) fn new(client: Arc<Client>, selection: &Selection) -> TransferResult<Self> {
        if client.address.is_cosmos() && selection.since.is_some() {
            let text = "--since: Cosmos DB returns no rows for filters on Timestamp; copy without --since";
            return Err(TransferError::Usage(text.into()));
        }
        let predicate = selection.predicate_for_endpoint().map_err(|reason| {
            usage!("the filter: {reason} An endpoint accepts only the filters of Azure.")
        })?;
        let is_name = |name: &&String| !name.contains(['*', '?']);
        let named = selection.include.iter().filter(is_name).cloned().collect();
        let (failures, helping) = (AtomicU32::new(0), AtomicUsize::new(0));
        Ok(Self { client, filter: selection.filter_text(), predicate, named, failures, helping })
    }

    /// Returns the endpoint with only the entities that changed at this time or later.
    fn with_changes_since(&self, since: Ticks) -> TransferResult<Self> {
        let since = Selection { since: Some(since), ..Selection::default() };
        let changes = Self::new(self.client.clone(), &since)?;
        Ok(Self { named: self.named.clone(), ..changes })
    }

    /// Reserves threads for a write. Each of them waits for a request in flight, whose number is limited, so more threads
    /// than requests keep all requests busy while several pages are written.
    fn helpers(&self) -> Helpers<'_> {
        let wanted = (self.client.concurrency() - 1).min(MAX_HELPERS_OF_WRITE);
        let free = |helping: usize| wanted.min(MAX_HELPERS.saturating_sub(helping));
        let reserve = |helping| Some(helping + free(helping));
        let before = self.helping.fetch_update(Ordering::Relaxed, Ordering::Relaxed, reserve);
        Helpers { helping: &self.helping, count: free(before.unwrap_or(MAX_HELPERS)) }
    }

    /// Reads policies or service properties, which Cosmos DB and some other servers do not have.
    fn settings(&self, call: &ClientCall, root: &str) -> TransferResult<Option<Vec<u8>>> {
        if self.client.address.is_cosmos() {
            return Ok(None);
        }
        let read = self.client.read(call, |answer| match xml::parse_strictly(&answer.body) {
            Ok(element) if element.name == root => Ok(answer.body.clone()),
            _ => Err(format!("the answer is not an XML document with the root {root}")),
        })?;
        match read {
            Err(refused) if refused.is_absent() || refused.status == 501 => Ok(None),
            Err(refused) if is_forbidden(&refused) => Err(TransferError::NotAllowed(refused.to_string())),
            body => Ok(Some(body?)),
        }
    }

    /// Returns the names of all tables or, if the credentials cannot list tables, the names in the selection.
    fn list_tables(&self) -> TransferResult<Vec<String>> {
        let (mut names, mut seen) = (Vec::new(), HashSet::new());
        let mut pages = Continuation::new([ClientCall::get("/Tables")].into());
        while let Some(asked) = pages.take() {
            let listed = self.client.read(&asked, |answer| {
                let list: TableList = serde_json::from_slice(&answer.body)
                    .map_err(|error| format!("the list of tables: {error}"))?;
                Ok((list, next(&asked, answer)))
            })?;
            // A SAS for a table cannot list tables, so the selected names stand for the list.
            if listed.as_ref().is_err_and(is_forbidden) && !self.named.is_empty() {
                return Ok(self.named.clone());
            }
            let (list, following) = listed?;
            let is_cut = following.is_none() && list.value.len() >= MAX_PAGE_ROWS;
            pages.follow(following, list.value.is_empty())?;
            let before = names.len();
            names.extend(
                list.value.into_iter().map(|table| table.name).filter(|name| seen.insert(name.clone())),
            );
            if let Some(last) = names.last().filter(|_| is_cut && names.len() > before) {
                // A gateway may lose tokens.
                pages.calls.push_front(list_tables_after(last));
            }
            if names.len() > MAX_TABLES {
                return Err(failed!(
                    "the endpoint lists more than {MAX_TABLES} tables, so the list may never end"
                ));
            }
        }
        Ok(names)
    }

    /// Returns a query of a table whose filter is the conjunction of both filters.
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

/// Whether the credentials do not permit the request, as with some SAS. A wrong or changed key is a different
/// error.
fn is_forbidden(refused: &ServiceError) -> bool {
    refused.status == 403 && !matches!(refused.code.as_str(), "" | "AuthenticationFailed")
}

/// Names of continuation parameters, and of their headers in lower case.
const CONTINUATION: [(&str, &str); 3] = [
    ("NextPartitionKey", "nextpartitionkey"),
    ("NextRowKey", "nextrowkey"),
    ("NextTableName", "nexttablename"),
];
/// Maximum empty pages in quick succession. Empty pages after long searches do not count.
const MAX_EMPTY: u32 = 2000;
const QUICK: Duration = Duration::from_secs(1);
/// Maximum consecutive empty pages with a repeated token. A server that finds nothing in time returns the token of the
/// request.
const MAX_REPEATED: u32 = 100;

type QueryParameter = (&'static str, String);

/// The pages of one or more lists, which must end: a page with rows must not repeat a token, and not all
/// pages may be empty.
struct Continuation {
    /// The next page, and the first pages of the following lists.
    calls: VecDeque<ClientCall>,
    followed: u64,
    /// An earlier token of this list.
    before: Option<Vec<QueryParameter>>,
    empty: u32,
    repeated: u32,
    asked: Instant,
}

impl Continuation {
    fn new(lists: VecDeque<ClientCall>) -> Self {
        Self { calls: lists, followed: 0, before: None, empty: 0, repeated: 0, asked: Instant::now() }
    }

    /// Returns the call for the next page; `None` at the end.
    fn take(&mut self) -> Option<ClientCall> {
        self.asked = Instant::now();
        self.calls.pop_front()
    }

    /// Continues with the page after the last one.
    fn follow(&mut self, following: Option<ClientCall>, is_empty: bool) -> TransferResult<()> {
        let is_idle = is_empty && self.asked.elapsed() < QUICK;
        self.empty = if is_idle { self.empty + 1 } else { 0 };
        self.repeated = if is_empty { self.repeated } else { 0 };
        let Some(following) = following else {
            (self.followed, self.before, self.repeated) = (0, None, 0);
            return Ok(());
        };
        let token = following.query.iter().filter(is_token);
        let without_end = |what: &str| {
            let path = &following.path;
            Err(failed!("GET {path}: the endpoint sends {what}, so its pages may never end"))
        };
        if self.before.as_ref().is_some_and(|before| token.clone().eq(before)) {
            self.repeated += 1;
            if !is_empty || self.repeated > MAX_REPEATED {
                return without_end("a continuation token again");
            }
        }
        if self.empty > MAX_EMPTY {
            return without_end("only empty pages");
        }
        self.followed += 1;
        // The remembered token is replaced after twice as many pages each time, so that cycles of any length are found.
        if self.followed.is_power_of_two() {
            self.before = Some(token.cloned().collect());
        }
        self.calls.push_front(following);
        Ok(())
    }
}

fn is_token(parameter: &&QueryParameter) -> bool {
    CONTINUATION.iter().any(|(name, _)| *name == parameter.0)
}

/// Returns the call with the continuation token of its answer; `None` if the answer has none.
fn next(call: &ClientCall, answer: &ClientAnswer) -> Option<ClientCall> {
    let mut following = call.clone();
    following.query.retain(|parameter| !is_token(&parameter));
    let before = following.query.len();
    for (parameter, header) in CONTINUATION {
        // Servers refuse an empty part of a token.
        let has_value = |(name, value): &&(String, String)| name == header && !value.is_empty();
        if let Some((_, value)) = answer.continuation.iter().find(has_value) {
            following.query.push((parameter, value.clone()));
        }
    }
    (following.query.len() > before).then_some(following)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_empty_part_of_a_token_is_not_sent() {
        let header = |name: &str, value: &str| (name.to_owned(), value.to_owned());
        let continuation = vec![header("nextpartitionkey", "1!4"), header("nextrowkey", "")];
        let answer = ClientAnswer { continuation, ..ClientAnswer::default() };
        let call = ClientCall::get("/People()").query("NextRowKey", "before");
        let following = next(&call, &answer).unwrap();
        assert_eq!(following.query, [("NextPartitionKey", "1!4".to_owned())]);
    }
}
