//! Reading pages of entities.

use std::borrow::Cow;
use std::collections::VecDeque;

use serde::Deserialize;
use serde_json::value::RawValue;

use super::{Page, Rejected, Remote, Row, RowReader, TransferResult, next};
use crate::client::{ClientAnswer, ClientCall};
use crate::transfer::range::RowRange;

/// Entities of the first page, and of each after a page whose entities were large.
const SOME_ROWS: usize = 500;
/// The most entities that the service returns at once.
const MOST_ROWS: usize = 1000;
/// Bytes up to which as many entities are asked for at once as there may be. Several pages are in memory.
const BYTES: usize = 1 << 20;

/// The pages of a range: all pages of each of its filters, in order.
pub(super) struct RemotePages<'a> {
    remote: &'a Remote,
    keys_only: bool,
    calls: VecDeque<ClientCall>,
}

#[derive(Deserialize)]
struct PageBody<'a> {
    #[serde(borrow)]
    value: Vec<&'a RawValue>,
}

impl<'a> RemotePages<'a> {
    pub(super) fn new(remote: &'a Remote, table: &str, range: &RowRange, keys_only: bool) -> Self {
        let calls = range.filters().into_iter().map(|filter| {
            let call = remote.query(table, &filter, remote.filter.as_deref());
            if keys_only {
                call.query("$select", "PartitionKey,RowKey,Timestamp")
            } else {
                call.query("$top", SOME_ROWS.to_string())
            }
        });
        Self { remote, keys_only, calls: calls.collect() }
    }
}

impl RemotePages<'_> {
    /// Sets how many entities the next pages have at most.
    fn ask_for(&mut self, rows: usize) {
        let parameters = self.calls.iter_mut().flat_map(|call| &mut call.query);
        parameters.filter(|(name, _)| *name == "$top").for_each(|(_, value)| *value = rows.to_string());
    }
}

/// Returns how many entities to ask for after a page of so many with so many bytes.
const fn rows_after(rows: usize, bytes: usize) -> usize {
    if bytes * MOST_ROWS <= BYTES * rows { MOST_ROWS } else { SOME_ROWS }
}

impl RowReader for RemotePages<'_> {
    fn next(&mut self) -> TransferResult<Option<Page>> {
        let Some(call) = self.calls.pop_front() else { return Ok(None) };
        let read = |answer: &ClientAnswer| {
            let mut page = read(&answer.body)?;
            if self.keys_only {
                page.rows = tagged(&answer.body, page.rows)?;
            }
            Ok((page, next(&call, answer), answer.body.len()))
        };
        let (page, following, bytes) = self.remote.client.read(&call, read)??;
        if let Some(following) = following {
            self.calls.push_front(following);
        }
        self.ask_for(rows_after(page.rows.len() + page.rejected.len(), bytes));
        Ok(Some(page))
    }
}

#[derive(Deserialize)]
struct TagMember<'a> {
    #[serde(rename = "odata.etag", borrow)]
    tag: Option<Cow<'a, str>>,
}

/// Adds the ETags of a page to its rows, as long as all of them were understood.
fn tagged(body: &[u8], mut rows: Vec<Row>) -> Result<Vec<Row>, String> {
    let wrong = |error| format!("a page of entities: {error}");
    let read: PageBody<'_> = serde_json::from_slice(body).map_err(wrong)?;
    if read.value.len() == rows.len() {
        for (row, raw) in rows.iter_mut().zip(read.value) {
            let member: TagMember<'_> = serde_json::from_str(raw.get()).map_err(wrong)?;
            // Cosmos DB doubles the quotes of tags in bodies.
            row.tag = member.tag.map(|tag| tag.replace("''", "'"));
        }
    }
    Ok(rows)
}

/// Reads the body of a page.
///
/// # Errors
/// If it is not a page. Entities that cannot be read are returned as rejected.
pub(super) fn read(body: &[u8]) -> Result<Page, String> {
    let read: PageBody<'_> =
        serde_json::from_slice(body).map_err(|error| format!("a page of entities: {error}"))?;
    let mut page = Page::default();
    for raw in read.value {
        match Row::from_json(raw.get()) {
            Ok(row) => page.rows.push(row),
            Err(reason) => page.rejected.push(Rejected { entity: raw.get().to_owned(), reason }),
        }
    }
    Ok(page)
}
