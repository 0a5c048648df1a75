//! An account at an endpoint, and what reading and writing it share.

use std::sync::atomic::{AtomicU32, AtomicUsize, Ordering};

use crate::client::{Client, ClientCall, ServiceError};
use crate::error::{TransferError, TransferResult, usage};
use crate::protocol::codec::uri::escape;
use crate::protocol::codec::xml;
use crate::protocol::plan::Predicate;
use crate::rows::selection::Selection;

/// The statuses for an insert; a server may ignore the preference for no content.
pub(super) const INSERTED: &[u16] = &[201, 204];

/// A Table endpoint.
pub struct Endpoint {
    pub(super) client: Client,
    pub(super) filter: Option<String>,
    /// The same filter: what the endpoint sends is checked against it.
    pub(super) predicate: Option<Predicate>,
    /// Tables that are selected by their names, without patterns.
    pub(super) named: Vec<String>,
    /// Entities in a row that the server failed for.
    pub(super) failures: AtomicU32,
    /// Threads that help others with their writes.
    helping: AtomicUsize,
}

/// Threads that help with a write, until it is done.
pub(super) struct Helpers<'a> {
    helping: &'a AtomicUsize,
    pub count: usize,
}

impl Drop for Helpers<'_> {
    fn drop(&mut self) {
        self.helping.fetch_sub(self.count, Ordering::Relaxed);
    }
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

    /// Takes the threads that may help with a write: as many over all as there may be other requests.
    pub(super) fn helpers(&self) -> Helpers<'_> {
        let most = self.client.concurrency() - 1;
        let before = self.helping.fetch_max(most, Ordering::Relaxed);
        Helpers { helping: &self.helping, count: most.saturating_sub(before) }
    }

    /// Reads policies or service properties, which Cosmos DB and some other servers do not have.
    ///
    /// # Errors
    /// [`TransferError::NotAllowed`] if the credentials do not permit it.
    pub(super) fn settings(&self, call: &ClientCall, root: &str) -> TransferResult<Option<Vec<u8>>> {
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

    /// Returns the query for a filter combined with that of the selection.
    pub(super) fn query(&self, table: &str, filter: &str, extra: Option<&str>) -> ClientCall {
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

/// Whether the credentials do not permit the request, as with some SAS. Keys that are wrong, or have been changed,
/// are another error.
pub(super) fn is_forbidden(refused: &ServiceError) -> bool {
    refused.status == 403 && !matches!(refused.code.as_str(), "" | "AuthenticationFailed")
}
