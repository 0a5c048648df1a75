//! One request of an HTTP/2 connection, and its answer.

use std::future::poll_fn;
use std::net::SocketAddr;
use std::time::Duration;

use actix_http::{Request, Response};
use actix_service::Service;
use actix_web::body::{self, BodySize, BoxBody, MessageBody as _};
use actix_web::web::Bytes;
use h2::server::SendResponse;
use h2::{Reason, RecvStream, SendStream};
use tokio::sync::{Semaphore, SemaphorePermit};
use tokio::time::timeout;

use super::translate::{head_of, request_of};
use crate::service::NO_ANSWER;

/// Bytes of an answer that a stream may buffer before they are sent.
pub(super) const SEND_BUFFER: usize = 64 * 1024;

/// Bytes of an answer that are sent at once; the timeout of writes applies to each such piece.
const PIECE: usize = 16 * 1024;

/// A client did not take an answer in time.
pub(crate) struct Stalled;

/// Waits for a permit, gets the answer and sends it; returns the bytes of its body. A client that resets the stream
/// ends the wait, but not the work that was begun.
pub(crate) async fn exchange<S>(
    service: &S,
    permits: &Semaphore,
    request: http::Request<RecvStream>,
    mut respond: SendResponse<Bytes>,
    peer: Option<SocketAddr>,
    write_timeout: Duration,
) -> Result<usize, Stalled>
where
    S: Service<Request>,
    S::Response: Into<Response<BoxBody>>,
    S::Error: Into<Response<BoxBody>>,
{
    let permit = tokio::select! {
        _ = poll_fn(|cx| respond.poll_reset(cx)) => return Ok(0),
        permit = timeout(write_timeout, permits.acquire()) => permit,
    };
    let Ok(Ok(permit)) = permit else {
        // Tells the client that it may retry.
        respond.send_reset(Reason::REFUSED_STREAM);
        return Ok(0);
    };
    if waits_to_send(&request) {
        // If it fails, so does the answer.
        let _ = respond.send_informational(continue_head());
    }
    let without_body = request.method() == http::Method::HEAD;
    let answer = match request_of(request, peer) {
        Err(status) => Response::new(status),
        Ok(request) => match service.call(request).await {
            Ok(answer) => answer.into(),
            Err(answer) => answer.into(),
        },
    };
    send(answer, without_body, &mut respond, permit, write_timeout).await
}

/// The head by which a client is asked for the body.
fn continue_head() -> http::Response<()> {
    let mut head = http::Response::new(());
    *head.status_mut() = http::StatusCode::CONTINUE;
    head
}

/// Whether the client sends the body once it is asked to (RFC 9110, section 10.1.1).
fn waits_to_send(request: &http::Request<RecvStream>) -> bool {
    let expected = request.headers().get(http::header::EXPECT);
    let is_it = |value: &http::HeaderValue| value.as_bytes().eq_ignore_ascii_case(b"100-continue");
    expected.is_some_and(is_it) && !request.body().is_end_stream()
}

/// Sends an answer, or resets the stream if there is none. A large one keeps its permit until it is taken.
async fn send(
    answer: Response<BoxBody>,
    without_body: bool,
    respond: &mut SendResponse<Bytes>,
    permit: SemaphorePermit<'_>,
    write_timeout: Duration,
) -> Result<usize, Stalled> {
    if answer.status().as_u16() == NO_ANSWER {
        respond.send_reset(Reason::INTERNAL_ERROR);
        return Ok(0);
    }
    let (answer, body) = answer.into_parts();
    let size = body.size();
    let is_whole = without_body || matches!(size, BodySize::None | BodySize::Sized(0));
    let Ok(mut stream) = respond.send_response(head_of(answer.head(), size), is_whole) else {
        return Ok(0);
    };
    if is_whole {
        return Ok(0);
    }
    let Some(body) = whole(body).await else {
        stream.send_reset(Reason::INTERNAL_ERROR);
        return Ok(0);
    };
    let bytes = body.len();
    let permit = Some(permit).filter(|_| bytes > SEND_BUFFER);
    let outcome = send_body(body, &mut stream, write_timeout).await;
    drop(permit);
    outcome.map(|()| bytes)
}

/// Returns the body as one piece, as nearly all of ours are.
async fn whole(body: BoxBody) -> Option<Bytes> {
    match body.try_into_bytes() {
        Ok(bytes) => Some(bytes),
        Err(body) => body::to_bytes(body).await.ok(),
    }
}

async fn send_body(
    mut body: Bytes,
    stream: &mut SendStream<Bytes>,
    write_timeout: Duration,
) -> Result<(), Stalled> {
    while !body.is_empty() {
        let piece = body.split_to(PIECE.min(body.len()));
        match timeout(write_timeout, send_piece(piece, body.is_empty(), stream)).await {
            Ok(true) => {}
            Ok(false) => return Ok(()),
            Err(_) => {
                stream.send_reset(Reason::CANCEL);
                return Err(Stalled);
            }
        }
    }
    Ok(())
}

/// Sends a piece in as many parts as the client's window demands; `false` if the client takes no more.
async fn send_piece(mut piece: Bytes, is_last: bool, stream: &mut SendStream<Bytes>) -> bool {
    while !piece.is_empty() {
        let Some(room) = room(stream, piece.len()).await else { return false };
        let part = piece.split_to(room.min(piece.len()));
        // A copy, so that the last bytes to be sent do not keep the others in memory.
        if stream.send_data(Bytes::copy_from_slice(&part), is_last && piece.is_empty()).is_err() {
            return false;
        }
    }
    true
}

/// Waits until the client accepts some of this many bytes; returns how many, or `None` if it takes no more.
async fn room(stream: &mut SendStream<Bytes>, bytes: usize) -> Option<usize> {
    stream.reserve_capacity(bytes);
    while stream.capacity() == 0 {
        if !matches!(poll_fn(|cx| stream.poll_capacity(cx)).await, Some(Ok(_))) {
            return None;
        }
    }
    Some(stream.capacity())
}
