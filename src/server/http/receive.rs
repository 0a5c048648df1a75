//! Converts actix requests to plain data.

use std::borrow::Cow;
use std::time::Duration;

use actix_web::http::Method;
use actix_web::http::header::HeaderValue;
use actix_web::web::{Bytes, BytesMut, Payload};
use actix_web::{HttpRequest, HttpResponse};
use futures_util::StreamExt as _;

use super::forwarded::Proxies;
use super::workarounds::{RequestState, close_after, is_endless};
use crate::error::{Code, Result};
use crate::protocol::request::Head;
use crate::service::{Body, BodyMemory, MAX_BODY, ReceiveBody, Share};

/// Number of bytes that each body may use without a share of the memory. Requests of usual size therefore proceed even
/// if others have taken all the memory.
const FREE_BYTES: usize = 64 * 1024;

/// The body of a request while it is being received.
pub(crate) struct Incoming<'t> {
    payload: Payload,
    /// The state of the connection on which the body arrives.
    state: &'t RequestState,
    /// Whether actix treats all bytes after the head as the body.
    is_endless: bool,
    /// Whether an endless or chunked body has not been read to its end.
    is_unread: bool,
    declared_length: Option<u64>,
}

impl<'t> Incoming<'t> {
    /// Wraps a body of which nothing has been read.
    pub(crate) fn new(payload: Payload, head: &Head<'_>, state: &'t RequestState) -> Self {
        let is_endless = is_endless(head);
        let is_unread = is_endless || head.header("transfer-encoding").is_some();
        let declared_length = head.header("content-length").and_then(|length| length.parse().ok());
        Self { payload, state, is_endless, is_unread, declared_length }
    }

    /// Returns the response. The connection closes after the response if the body was not read to its end.
    pub(crate) fn close(self, response: HttpResponse) -> HttpResponse {
        if self.is_unread {
            return response.map_body(|_, answer| close_after(answer, self.payload));
        }
        response
    }
}

impl ReceiveBody for Incoming<'_> {
    async fn receive<'m>(&mut self, memory: &'m BodyMemory, within: Duration) -> Result<Body<'m>> {
        let mut share = memory.share();
        if self.declared_length.is_none() && !self.is_unread {
            return Ok(Body::new(Bytes::new(), share));
        }
        let bytes = tokio::time::timeout(within, read_body(self, &mut share))
            .await
            .map_err(|_| Code::RequestTimedOut)??;
        self.is_unread = self.is_endless;
        Ok(Body::new(bytes, share))
    }
}

async fn read_body(body: &mut Incoming<'_>, share: &mut Share<'_>) -> Result<Bytes> {
    if body.is_endless {
        return Ok(Bytes::new());
    }
    let declared = body.declared_length;
    let left = |received: usize| declared.map(|length| length.saturating_sub(received as u64));
    if declared.is_some_and(|length| length > MAX_BODY as u64) {
        return Err(Code::RequestBodyTooLarge.into());
    }
    let Some(first) = next_piece(body, left(0)).await? else { return Ok(Bytes::new()) };
    share.grow_to(first.len().saturating_sub(FREE_BYTES)).await?;
    let Some(mut piece) = next_piece(body, left(first.len())).await? else {
        return if first.len() > MAX_BODY { Err(Code::RequestBodyTooLarge.into()) } else { Ok(first) };
    };
    // A declared length does not justify allocating megabytes.
    let room = declared.map_or(0, |length| length as usize).min(FREE_BYTES);
    let room = room.max(capacity_for(first.len() + piece.len(), declared));
    share.grow_to(room.saturating_sub(FREE_BYTES)).await?;
    let mut received = BytesMut::with_capacity(room);
    received.extend_from_slice(&first);
    loop {
        let length = received.len() + piece.len();
        if length > MAX_BODY {
            return Err(Code::RequestBodyTooLarge.into());
        }
        if length > received.capacity() {
            let room = capacity_for(length, declared);
            share.grow_to(room.saturating_sub(FREE_BYTES)).await?;
            received.reserve(room - received.len());
        }
        received.extend_from_slice(&piece);
        piece = match next_piece(body, left(length)).await? {
            Some(piece) => piece,
            None => return Ok(received.freeze()),
        };
    }
}

/// Returns the capacity for a body of which `length` bytes have arrived: the declared length, but at most
/// four times the bytes that have arrived.
fn capacity_for(length: usize, declared: Option<u64>) -> usize {
    match declared.and_then(|declared| usize::try_from(declared).ok()) {
        Some(declared) if declared >= length => declared.min(4 * length),
        _ => length.next_power_of_two(),
    }
}

/// Waits for more of a body, of which `left` bytes are missing.
async fn next_piece(body: &mut Incoming<'_>, left: Option<u64>) -> Result<Option<Bytes>> {
    match body.state.receive(left, body.payload.next()).await {
        None => Ok(None),
        Some(Ok(piece)) => Ok(Some(piece)),
        Some(Err(_)) => Err(Code::InvalidInput.into()),
    }
}

/// Converts the head of a request. The client's address comes from the connection or from a trusted proxy.
pub(crate) fn head_of<'a>(http: &'a HttpRequest, proxies: &Proxies) -> Head<'a> {
    let uri = http.uri();
    let mut headers = Vec::with_capacity(http.headers().len() + 1);
    headers.extend(http.headers().iter().map(|(name, value)| (name.as_str().into(), header_text(value))));
    // The host of an absolute target replaces the Host header.
    if let Some(authority) = uri.authority().filter(|_| http.method() != Method::CONNECT) {
        headers.retain(|(name, _): &(Cow<'_, str>, _)| name != "host");
        headers.push(("host".into(), authority.as_str().into()));
    }
    let mut head = Head {
        method: http.method().as_str().into(),
        path: uri.path().into(),
        query: uri.query().unwrap_or_default().into(),
        headers,
        secure: http.app_config().secure(),
        peer: http.peer_addr().map(|address| address.ip()),
    };
    proxies.apply_forwarded_headers(&mut head);
    head
}

/// Returns a header's value. Bytes that are not UTF-8 are decoded as Latin-1, so that they cannot match
/// anything by accident.
fn header_text(value: &HeaderValue) -> Cow<'_, str> {
    match std::str::from_utf8(value.as_bytes()) {
        Ok(text) => text.into(),
        Err(_) => value.as_bytes().iter().map(|b| char::from(*b)).collect::<String>().into(),
    }
}
