//! From what actix hands over to plain data.

use std::borrow::Cow;
use std::time::Duration;

use actix_web::HttpRequest;
use actix_web::http::Version;
use actix_web::http::header::HeaderValue;
use actix_web::web::{Bytes, BytesMut, Payload};
use futures_util::StreamExt as _;

use crate::error::{Code, Result};
use crate::request::Head;

/// Bytes of a body at most (protocol §5.7, §8.1).
pub const MAX_BODY: usize = 4 * 1024 * 1024;
/// Time between two pieces of a body.
const MAX_BODY_PAUSE: Duration = Duration::from_secs(20);

/// Bytes of a body that are made room for before they come.
const FIRST_ROOM: usize = 64 * 1024;

/// Reads a body, refusing it while it streams once it is too long.
pub async fn read_body(head: &Head<'_>, mut payload: Payload) -> Result<Bytes> {
    let declared = head.header("content-length").and_then(|length| length.parse::<u64>().ok());
    if declared.is_some_and(|length| length > MAX_BODY as u64) {
        return Err(Code::RequestBodyTooLarge.into());
    }
    let Some(first) = next_piece(&mut payload).await? else { return Ok(Bytes::new()) };
    let Some(mut piece) = next_piece(&mut payload).await? else { return limited(first) };
    // A declaration is no reason to set megabytes aside.
    let room = declared.map_or(0, |length| length as usize).min(FIRST_ROOM);
    let mut body = BytesMut::with_capacity(room.max(first.len() + piece.len()));
    body.extend_from_slice(&first);
    loop {
        if body.len() + piece.len() > MAX_BODY {
            return Err(Code::RequestBodyTooLarge.into());
        }
        body.extend_from_slice(&piece);
        piece = match next_piece(&mut payload).await? {
            Some(piece) => piece,
            None => return Ok(body.freeze()),
        };
    }
}

async fn next_piece(payload: &mut Payload) -> Result<Option<Bytes>> {
    match tokio::time::timeout(MAX_BODY_PAUSE, payload.next()).await {
        Err(_) => Err(Code::OperationTimedOut.into()),
        Ok(None) => Ok(None),
        Ok(Some(Ok(piece))) => Ok(Some(piece)),
        Ok(Some(Err(_))) => Err(Code::InvalidInput.into()),
    }
}

fn limited(body: Bytes) -> Result<Bytes> {
    if body.len() > MAX_BODY { Err(Code::RequestBodyTooLarge.into()) } else { Ok(body) }
}

/// The head of a request as plain data.
pub fn head_of(http: &HttpRequest) -> Head<'_> {
    let uri = http.uri();
    let mut headers = Vec::with_capacity(http.headers().len() + 1);
    headers.extend(http.headers().iter().map(|(name, value)| (name.as_str().into(), text_of(value))));
    if http.version() == Version::HTTP_2
        && let Some(authority) = uri.authority()
    {
        headers.push(("host".into(), authority.as_str().into()));
    }
    Head {
        method: http.method().as_str().into(),
        path: uri.path().into(),
        query: uri.query().unwrap_or_default().into(),
        headers,
        secure: http.app_config().secure(),
        peer: http.peer_addr().map(|address| address.ip()),
    }
}

/// A header's value; bytes that are not UTF-8 are taken as Latin-1, so that
/// they cannot match anything by accident.
fn text_of(value: &HeaderValue) -> Cow<'_, str> {
    match std::str::from_utf8(value.as_bytes()) {
        Ok(text) => text.into(),
        Err(_) => value.as_bytes().iter().map(|b| char::from(*b)).collect::<String>().into(),
    }
}
