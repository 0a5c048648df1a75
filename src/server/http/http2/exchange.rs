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

/// Waits for a permit, gets the answer and sends it. A client that resets the stream ends the wait,
/// but not the work that was begun.
pub(crate) async fn exchange<S>(
    service: &S,
    permits: &Semaphore,
    request: http::Request<RecvStream>,
    mut respond: SendResponse<Bytes>,
    peer: Option<SocketAddr>,
    write_timeout: Duration,
) -> Result<(), Stalled>
where
    S: Service<Request>,
    S::Response: Into<Response<BoxBody>>,
    S::Error: Into<Response<BoxBody>>,
{
    let permit = tokio::select! {
        _ = poll_fn(|cx| respond.poll_reset(cx)) => return Ok(()),
        permit = timeout(write_timeout, permits.acquire()) => permit,
    };
    let Ok(Ok(permit)) = permit else {
        // Tells the client that it may retry.
        respond.send_reset(Reason::REFUSED_STREAM);
        return Ok(());
    };
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

/// Sends an answer, or resets the stream if there is none. A large one keeps its permit until it is taken.
async fn send(
    answer: Response<BoxBody>,
    without_body: bool,
    respond: &mut SendResponse<Bytes>,
    permit: SemaphorePermit<'_>,
    write_timeout: Duration,
) -> Result<(), Stalled> {
    if answer.status().as_u16() == NO_ANSWER {
        respond.send_reset(Reason::INTERNAL_ERROR);
        return Ok(());
    }
    let (answer, body) = answer.into_parts();
    let size = body.size();
    let is_whole = without_body || matches!(size, BodySize::None | BodySize::Sized(0));
    let Ok(mut stream) = respond.send_response(head_of(answer.head(), size), is_whole) else {
        return Ok(());
    };
    if is_whole {
        return Ok(());
    }
    let Some(body) = whole(body).await else {
        stream.send_reset(Reason::INTERNAL_ERROR);
        return Ok(());
    };
    let permit = Some(permit).filter(|_| body.len() > SEND_BUFFER);
    let outcome = send_body(body, &mut stream, write_timeout).await;
    drop(permit);
    outcome
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
        let Ok(has_room) = timeout(write_timeout, room(stream, piece.len())).await else {
            stream.send_reset(Reason::CANCEL);
            return Err(Stalled);
        };
        // A copy, so that the last bytes to be sent do not keep the others in memory.
        if !has_room || stream.send_data(Bytes::copy_from_slice(&piece), body.is_empty()).is_err() {
            return Ok(());
        }
    }
    Ok(())
}

/// Waits until the client accepts this many bytes; `false` if it does not.
async fn room(stream: &mut SendStream<Bytes>, bytes: usize) -> bool {
    stream.reserve_capacity(bytes);
    while stream.capacity() < bytes {
        if !matches!(poll_fn(|cx| stream.poll_capacity(cx)).await, Some(Ok(_))) {
            return false;
        }
    }
    true
}
