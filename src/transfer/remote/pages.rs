//! Reading pages of entities.

use std::collections::VecDeque;

use serde::Deserialize;
use serde_json::value::RawValue;

use super::{Page, Rejected, Remote, Row, RowReader, TransferError, TransferResult, next};
use crate::client::ClientCall;
use crate::transfer::range::RowRange;

/// The pages of a range: all pages of each of its filters, in order.
pub(super) struct RemotePages<'a> {
    remote: &'a Remote,
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
            if keys_only { call.query("$select", "PartitionKey,RowKey,Timestamp") } else { call }
        });
        Self { remote, calls: calls.collect() }
    }
}

impl RowReader for RemotePages<'_> {
    fn next(&mut self) -> TransferResult<Option<Page>> {
        let Some(call) = self.calls.pop_front() else { return Ok(None) };
        let answer = self.remote.ask(&call)?;
        if let Some(following) = next(&call, &answer) {
            self.calls.push_front(following);
        }
        read(&answer.body).map(Some)
    }
}

/// Reads the body of a page.
///
/// # Errors
/// If it is not a page. Entities that cannot be read are returned as rejected.
pub(super) fn read(body: &[u8]) -> TransferResult<Page> {
    let read: PageBody<'_> = serde_json::from_slice(body)
        .map_err(|error| TransferError::Endpoint(format!("a page of entities: {error}")))?;
    let mut page = Page::default();
    for raw in read.value {
        match Row::from_json(raw.get()) {
            Ok(row) => page.rows.push(row),
            Err(reason) => page.rejected.push(Rejected { entity: raw.get().to_owned(), reason }),
        }
    }
    Ok(page)
}
