//! Reads pages of entities.

use std::borrow::Cow;
use std::cmp::Ordering;
use std::collections::VecDeque;
use std::fmt;

use serde::de::{IgnoredAny, SeqAccess, Visitor};
use serde::{Deserialize, Deserializer};
use serde_json::value::RawValue;

use super::{Continuation, Endpoint, MAX_PAGE_ROWS, is_forbidden, next};
use crate::client::{ClientAnswer, ClientCall, MAX_ANSWER_BYTES, ServiceError};
use crate::contract::{OpenedRange, Page, Rejected, RowReader, TransferSource};
use crate::error::{TransferError, TransferResult, failed};
use crate::locations::NonEntities;
use crate::protocol::codec::policies::{self, Policy};
use crate::protocol::codec::properties::{self, Layout, ServiceProperties};
use crate::protocol::codec::uri::{entity_address, escape};
use crate::protocol::model::ticks::TICKS_PER_SECOND;
use crate::protocol::model::{Key, Ticks};
use crate::protocol::plan::predicate::{Predicate, Prepared};
use crate::rows::Row;
use crate::rows::range::{Lower, RowRange, may_follow, order_in_both};
use crate::rows::selection::NameCase;

impl Endpoint {
    pub(super) fn first_page(&self, table: &str) -> TransferResult<Result<Page, ServiceError>> {
        let call = ClientCall::get(format!("/{}()", escape(table))).query("$top", "1");
        self.client.read(&call, |answer| read(&answer.body, false))
    }

    /// Returns the names of the keys, Timestamp, and the properties that the filter reads.
    fn selected_keys(&self) -> String {
        let named = self.predicate.iter().flat_map(Predicate::names);
        ["PartitionKey", "RowKey", "Timestamp"].into_iter().chain(named).collect::<Vec<_>>().join(",")
    }

    fn page(&self, table: &str, call: &ClientCall) -> TransferResult<(Page, Option<ClientCall>)> {
        let read = self.client.read(call, |answer| Ok((read(&answer.body, false)?, next(call, answer))))?;
        read.map_err(|refused| refusal(table, refused))
    }

    /// Returns the calls for the entities of a range, one for each of its filters.
    fn calls(&self, table: &str, range: &RowRange, keys_only: bool) -> VecDeque<ClientCall> {
        let call = |filter: String| {
            let call = self.query(table, &filter, self.filter.as_deref());
            if keys_only {
                call.query("$select", self.selected_keys())
            } else {
                call.query("$top", DEFAULT_ROWS.to_string())
            }
        };
        range.filters().into_iter().map(call).collect()
    }
}

fn refusal(table: &str, refused: ServiceError) -> TransferError {
    if refused.is_absent() { TransferError::NoTable(table.to_owned()) } else { refused.into() }
}

/// How far the date of a request may be from the clock of a server, in ticks.
const MAX_DATE_DISTANCE: i64 = 15 * 60 * TICKS_PER_SECOND;
/// Maximum entities of the first page, and of a page that follows large entities.
const DEFAULT_ROWS: usize = 500;
/// Bytes up to which a full page counts as small, so that the next page may have the maximum number of entities.
const SMALL_BYTES: usize = 1 << 20;
const MAX_BYTES: usize = MAX_ANSWER_BYTES as usize / 2;
/// Bytes of a page that a server may have ended for its size: Azure's limit is 4 MiB.
const FULL_BYTES: usize = 3 << 20;
/// Maximum entities that are read from a page, more than any server sends.
const MAX_ROWS: usize = 10_000;

/// The pages of a range: all pages of each of its filters, in order.
struct EndpointPages<'a> {
    remote: &'a Endpoint,
    table: String,
    keys_only: bool,
    pages: Continuation,
    range: RowRange,
    last: Option<Key>,
    non_entities: NonEntities,
    filter: Option<Prepared<'a>>,
}

/// A page, and the maximum number of entities that was requested.
struct ReadPage {
    page: Page,
    following: Option<ClientCall>,
    bytes: usize,
    asked: usize,
}

#[derive(Deserialize)]
struct PageBody<'a> {
    #[serde(borrow)]
    value: FirstRows<'a>,
}

/// The rows of a page, at most one more than the maximum.
struct FirstRows<'a>(Vec<&'a RawValue>);

impl<'de: 'a, 'a> Deserialize<'de> for FirstRows<'a> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Rows;
        impl<'de> Visitor<'de> for Rows {
            type Value = Vec<&'de RawValue>;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a list of entities")
            }

            fn visit_seq<A: SeqAccess<'de>>(self, mut list: A) -> Result<Self::Value, A::Error> {
                let mut rows = Vec::new();
                while rows.len() <= MAX_ROWS {
                    let Some(row) = list.next_element()? else { return Ok(rows) };
                    rows.push(row);
                }
                while list.next_element::<IgnoredAny>()?.is_some() {}
                Ok(rows)
            }
        }
        deserializer.deserialize_seq(Rows).map(FirstRows)
    }
}

impl<'a> EndpointPages<'a> {
    fn new(remote: &'a Endpoint, table: &str, range: &RowRange, keys_only: bool) -> Self {
        let pages = Continuation::new(remote.calls(table, range, keys_only));
        let (table, range, non_entities) = (table.to_owned(), range.clone(), NonEntities::default());
        let filter = remote.predicate.as_ref().map(Prepared::new);
        Self { remote, table, keys_only, pages, range, last: None, non_entities, filter }
    }

    /// Checks that a page does not have too many entities, and that they follow the previous ones.
    fn check(&mut self, page: &Page) -> TransferResult<()> {
        let wrong = |reason: String| Err(failed!("{}: {reason}", self.table));
        if page.rows.len() + page.rejected.len() > MAX_ROWS {
            return wrong(format!("the endpoint sends pages of more than {MAX_ROWS} entities"));
        }
        self.non_entities.check(&self.table, page)?;
        if self.remote.client.address.is_cosmos() {
            return Ok(());
        }
        let has_begun = self.last.is_some();
        if let Some(first) = page.rows.first().filter(|_| !has_begun) {
            let order = order_in_both(&first.key, self.range.lower.key());
            let is_after = matches!(self.range.lower, Lower::After(_));
            if order == Some(Ordering::Less) || (is_after && order == Some(Ordering::Equal)) {
                return wrong(format!(
                    "the endpoint sends {:?}, which is outside the requested range",
                    first.key
                ));
            }
        }
        let keys = || page.rows.iter().map(|row| &row.key);
        for (before, key) in self.last.iter().chain(keys()).zip(keys().skip(usize::from(!has_begun))) {
            if !may_follow(key, before) {
                return wrong(format!(
                    "the endpoint sends {key:?} after {before:?}, so the page is not in the order of keys"
                ));
            }
        }
        if let Some(row) = page.rows.last() {
            self.last = Some(row.key.clone());
        }
        Ok(())
    }
}

impl EndpointPages<'_> {
    /// Checks that the filter selects the rows, because a gateway may drop the filter from the request.
    fn check_filter(&self, page: &Page) -> TransferResult<()> {
        let Some(filter) = &self.filter else { return Ok(()) };
        for row in &page.rows {
            if !row.is_selected(filter)? {
                return Err(failed!(
                    "{}: the endpoint sends {:?}, which the filter does not select; something on the way may drop \
                     $filter",
                    self.table,
                    row.key
                ));
            }
        }
        Ok(())
    }

    /// Returns the calls for the rows after a full page without a token, because a gateway may lose tokens.
    fn calls_after(&self, page: &Page) -> VecDeque<ClientCall> {
        let is_known = page.rejected.is_empty() && self.remote.is_ordered();
        let Some(last) = page.rows.last().filter(|_| is_known) else { return VecDeque::new() };
        let rest = RowRange { lower: Lower::After(last.key.clone()), upper: self.range.upper.clone() };
        let mut calls = self.remote.calls(&self.table, &rest, self.keys_only);
        // Rows that the other filters of the range select are requested anyway.
        calls.retain(|call| self.pages.calls.iter().all(|queued| filter_of(queued) != filter_of(call)));
        calls
    }

    /// Reads a page, the call for the next page, and the number of bytes.
    fn read(&self, mut call: ClientCall) -> TransferResult<ReadPage> {
        loop {
            let read = |answer: &ClientAnswer| {
                Ok(ReadPage {
                    page: read(&answer.body, self.keys_only)?,
                    following: next(&call, answer),
                    bytes: answer.body.len(),
                    asked: requested_rows(&call),
                })
            };
            match self.remote.client.read(&call, read) {
                Err(TransferError::TooLarge(_)) if halve(&mut call) => {}
                done => return done?.map_err(|refused| refusal(&self.table, refused)),
            }
        }
    }

    fn request_rows(&mut self, rows: usize) {
        let parameters = self.pages.calls.iter_mut().flat_map(|call| &mut call.query);
        parameters.filter(|(name, _)| *name == "$top").for_each(|(_, value)| *value = rows.to_string());
    }
}

/// Returns the number of entities to request after a page with these numbers of entities and bytes.
fn rows_after(rows: usize, bytes: usize) -> usize {
    match rows {
        // The size of the entities is unknown.
        0 => DEFAULT_ROWS,
        _ if bytes * MAX_PAGE_ROWS <= SMALL_BYTES * rows => MAX_PAGE_ROWS,
        _ => (rows * MAX_BYTES / bytes).clamp(1, DEFAULT_ROWS),
    }
}

/// Halves the number of entities that a call requests; returns `false` if the call requests only one.
fn halve(call: &mut ClientCall) -> bool {
    let half = requested_rows(call) / 2;
    let Some((_, rows)) = call.query.iter_mut().find(|(name, _)| *name == "$top") else { return false };
    *rows = half.to_string();
    half > 0
}

fn requested_rows(call: &ClientCall) -> usize {
    let asked = call.query.iter().find(|(name, _)| *name == "$top");
    asked.and_then(|(_, rows)| rows.parse().ok()).unwrap_or(MAX_PAGE_ROWS)
}

fn filter_of(call: &ClientCall) -> Option<&str> {
    call.query.iter().find(|(name, _)| *name == "$filter").map(|(_, filter)| filter.as_str())
}

impl RowReader for EndpointPages<'_> {
    fn next(&mut self) -> TransferResult<Option<Page>> {
        let Some(call) = self.pages.take() else { return Ok(None) };
        let ReadPage { page, following, bytes, asked } = self.read(call)?;
        let rows = page.rows.len() + page.rejected.len();
        self.check(&page)?;
        self.check_filter(&page)?;
        let may_lack_token = following.is_none() && !self.remote.client.has_sent_token();
        let is_cut = may_lack_token && (rows >= asked || bytes >= FULL_BYTES);
        self.pages.follow(following, page.rows.is_empty())?;
        if is_cut {
            self.calls_after(&page).into_iter().rev().for_each(|call| self.pages.calls.push_front(call));
        }
        self.request_rows(rows_after(rows, bytes));
        Ok(Some(page))
    }
}

#[derive(Deserialize)]
struct TagMember<'a> {
    #[serde(rename = "odata.etag", borrow)]
    tag: Option<Cow<'a, str>>,
}

/// Parses a page; `with_tags` adds the ETags if all rows were parsed.
fn read(body: &[u8], with_tags: bool) -> Result<Page, String> {
    let wrong = |error| format!("a page of entities: {error}");
    let PageBody { value: FirstRows(rows) } = serde_json::from_slice(body).map_err(wrong)?;
    let mut page = Page::default();
    for raw in &rows {
        match Row::from_json(raw.get()) {
            Ok(row) => page.rows.push(row),
            Err(reason) => page.rejected.push(Rejected { entity: raw.get().to_owned(), reason }),
        }
    }
    if with_tags && page.rejected.is_empty() {
        for (row, raw) in page.rows.iter_mut().zip(rows) {
            let member: TagMember<'_> = serde_json::from_str(raw.get()).map_err(wrong)?;
            // Cosmos DB doubles the quotes of tags in bodies.
            row.tag = member.tag.map(|tag| tag.replace("''", "'"));
        }
    }
    Ok(page)
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
        match self.first_page(table)? {
            Err(refused) if refused.is_absent() => Ok(false),
            page => Ok(page.map(|_| true)?),
        }
    }

    fn is_ordered(&self) -> bool {
        !self.client.address.is_cosmos()
    }

    fn time(&self) -> TransferResult<Option<Ticks>> {
        let call = ClientCall::get("/Tables").query("$top", "1");
        match self.client.read(&call, |answer| json(answer).map(|_| answer.date))? {
            // A refusal has a time too.
            Err(refused) if is_forbidden(&refused) => Ok(self.client.date()),
            date => Ok(date?),
        }
    }

    /// A server refuses a request that is signed with a key if its date, which is ours, is more than 15 minutes from the
    /// server's clock (protocol §10.2).
    fn max_lag(&self) -> Option<i64> {
        let theirs = self.client.date().filter(|_| self.client.address.has_key())?;
        let distance = theirs.raw().saturating_sub(Ticks::now().raw()).saturating_abs();
        Some(distance.saturating_add(MAX_DATE_DISTANCE))
    }

    fn changed_since(&self, since: Ticks) -> TransferResult<Box<dyn TransferSource + '_>> {
        Ok(Box::new(self.with_changes_since(since)?))
    }

    fn open<'a>(&'a self, table: &str, range: &RowRange, keys_only: bool) -> OpenedRange<'a> {
        Ok(Box::new(EndpointPages::new(self, table, range, keys_only)))
    }

    fn probe(&self, table: &str, range: &RowRange) -> TransferResult<Option<Key>> {
        let select = "PartitionKey,RowKey";
        let call =
            |filter: String| self.query(table, &filter, None).query("$select", select).query("$top", "1");
        let mut pages = Continuation::new(range.filters().into_iter().map(call).collect());
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
        row.map(Some).map_err(|reason| TransferError::NotEntity(format!("{table} {key:?}: {reason}")))
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
        self.client.retries()
    }
}

/// Returns a body that is valid JSON.
fn json(answer: &ClientAnswer) -> Result<Vec<u8>, String> {
    let read: Result<IgnoredAny, _> = serde_json::from_slice(&answer.body);
    read.map(|_| answer.body.clone()).map_err(|error| format!("the answer is not JSON: {error}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pages_have_as_many_entities_as_an_answer_has_room_for() {
        assert_eq!(rows_after(0, 12), DEFAULT_ROWS, "an empty page says nothing");
        assert_eq!(rows_after(1000, 200_000), MAX_PAGE_ROWS);
        assert_eq!(rows_after(500, 4 << 20), DEFAULT_ROWS);
        assert_eq!(rows_after(100, 2 * MAX_BYTES), 50);
        assert_eq!(rows_after(1, 2 * MAX_BYTES), 1);
    }
}
