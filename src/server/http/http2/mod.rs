//! HTTP/2 connections, with the limits of HTTP/1.1 connections.
//!
//! actix could drive them, but has no limits for streams, heads or answers that wait to be taken.
//! Every stream is answered by the same service as a request over HTTP/1.1. It is not needed once
//! actix offers these limits.

mod exchange;
mod translate;

use std::cell::Cell;
use std::future::{Future, poll_fn};
use std::net::SocketAddr;
use std::pin::{Pin, pin};
use std::rc::Rc;
use std::task::{Context, Poll};
use std::time::Duration;

use actix_http::{Request, Response};
use actix_service::Service;
use actix_web::body::BoxBody;
use actix_web::web::Bytes;
use futures_util::StreamExt as _;
use futures_util::stream::FuturesUnordered;
use h2::server::{Builder, Connection, SendResponse};
use h2::{Reason, RecvStream};
use tokio::io::{AsyncRead, AsyncReadExt as _, AsyncWrite, AsyncWriteExt as _};
use tokio::sync::Semaphore;
use tokio::time::{Instant, Sleep, sleep, timeout, timeout_at};

use self::exchange::{Stalled, exchange};
use super::timeouts::{DISCONNECT_TIMEOUT, KEEP_ALIVE};
use crate::service::Limits;

/// Maximum streams that a client may have open at once.
const MAX_STREAMS: usize = 100;
/// Maximum requests of a connection in flight, including large answers that wait to be taken. Other
/// streams wait for their turn.
const MAX_ACTIVE: usize = 32;
/// Bytes of a body that are received before it is read.
const STREAM_WINDOW: u32 = 64 * 1024;
/// The same for each stream: streams that wait for their turn must not keep the others from
/// receiving.
const CONNECTION_WINDOW: u32 = MAX_STREAMS as u32 * STREAM_WINDOW;
/// Maximum bytes of a head, as on HTTP/1.1.
const MAX_HEAD: u32 = 128 * 1024;

/// Serves a connection until it ends, or until `stop` is done and the requests in flight are
/// answered. From `drain` on, the client is asked to leave, once it has sent a request: what was
/// opened meanwhile is for at least one. `blocked` is set while something waits to be written.
///
/// # Errors
/// Those of the connection.
pub(crate) async fn serve_connection<IO, S>(
    mut io: IO,
    blocked: Rc<Cell<bool>>,
    service: &S,
    peer: Option<SocketAddr>,
    limits: Limits,
    drain: impl Future<Output = ()>,
    stop: impl Future<Output = ()>,
) -> Result<(), h2::Error>
where
    IO: AsyncRead + AsyncWrite + Unpin,
    S: Service<Request>,
    S::Response: Into<Response<BoxBody>>,
    S::Error: Into<Response<BoxBody>>,
{
    let (mut drain, mut stop) = (pin!(drain), pin!(stop));
    let connection = tokio::select! {
        opened = timeout(limits.head, settings().handshake(&mut io)) => match opened {
            Ok(connection) => connection?,
            Err(_) => return Ok(()),
        },
        () = &mut stop => return Ok(()),
    };
    let mut connection = Lifetime::new(connection, blocked, limits.head);
    let turns = Semaphore::new(MAX_ACTIVE);
    let mut under_way = FuturesUnordered::new();
    let mut was_used = false;
    // The bytes of answers that the client may not have read, and when the last one was done.
    let (mut unread, mut answered) = (0, Instant::now());
    let outcome = loop {
        let requests = under_way.len();
        tokio::select! {
            event = poll_fn(|cx| connection.poll_event(cx, requests)) => match event {
                Event::Request(request, respond) => {
                    was_used = true;
                    if requests == 0 && answered.elapsed() > DISCONNECT_TIMEOUT {
                        unread = 0;
                    }
                    under_way.push(exchange(service, &turns, *request, respond, peer, limits.body));
                }
                Event::Rested if connection.is_leaving() => break Ok(()),
                Event::Rested => connection.say_goodbye(),
                Event::Closed(outcome) => break outcome,
            },
            Some(outcome) = under_way.next() => {
                answered = Instant::now();
                match outcome {
                    Ok(bytes) => unread += bytes,
                    Err(Stalled) => connection.say_goodbye(),
                }
                if under_way.is_empty() {
                    connection.rest();
                }
            }
            () = &mut drain, if was_used && !connection.is_leaving() => connection.say_goodbye(),
            () = &mut stop, if !connection.is_leaving() => connection.say_goodbye(),
        }
    };
    drop(connection);
    // A cancelled statement costs a database connection.
    while under_way.next().await.is_some() {}
    // Less than that has reached the client's system, whether or not it was read.
    if unread > exchange::SEND_BUFFER && outcome.is_ok() {
        close(&mut io, answered + limits.body).await;
    }
    outcome
}

/// Closes a connection, and waits until the client has done the same: if it sends anything to one that is gone, such as
/// that it has taken a part of an answer, the system drops the rest.
async fn close(io: &mut (impl AsyncRead + AsyncWrite + Unpin), end: Instant) {
    let closed = async {
        io.shutdown().await?;
        let mut unread = [0; 1024];
        while io.read(&mut unread).await? > 0 {}
        std::io::Result::Ok(())
    };
    let _ = timeout_at(end, closed).await;
}

fn settings() -> Builder {
    let mut settings = Builder::new();
    settings
        .max_concurrent_streams(MAX_STREAMS as u32)
        .initial_window_size(STREAM_WINDOW)
        .initial_connection_window_size(CONNECTION_WINDOW)
        .max_header_list_size(MAX_HEAD)
        .max_send_buffer_size(exchange::SEND_BUFFER);
    settings
}

/// An event of a connection.
enum Event {
    Request(Box<http::Request<RecvStream>>, SendResponse<Bytes>),
    /// The connection was idle for too long.
    Rested,
    Closed(Result<(), h2::Error>),
}

/// A connection, and when it ends.
struct Lifetime<IO> {
    connection: Connection<IO, Bytes>,
    /// Whether something waits to be written: the end of an answer, although its request is over.
    blocked: Rc<Cell<bool>>,
    /// Ends when the connection has been idle for too long.
    resting: Pin<Box<Sleep>>,
    /// When GOAWAY was sent to the client.
    leaving: Option<Instant>,
}

impl<IO: AsyncRead + AsyncWrite + Unpin> Lifetime<IO> {
    fn new(connection: Connection<IO, Bytes>, blocked: Rc<Cell<bool>>, first_request: Duration) -> Self {
        Self { connection, blocked, resting: Box::pin(sleep(first_request)), leaving: None }
    }

    /// Drives the connection. It accepts no request beyond the limit, and refuses those that come long after
    /// GOAWAY: the client may send them again elsewhere.
    fn poll_event(&mut self, cx: &mut Context<'_>, requests: usize) -> Poll<Event> {
        let is_over = self.leaving.is_some_and(|since| since.elapsed() > DISCONNECT_TIMEOUT);
        let event = loop {
            if requests >= MAX_STREAMS {
                break self.connection.poll_closed(cx).map(Event::Closed);
            }
            break match self.connection.poll_accept(cx) {
                Poll::Ready(Some(Ok((_, mut respond)))) if is_over => {
                    respond.send_reset(Reason::REFUSED_STREAM);
                    continue;
                }
                Poll::Ready(Some(Ok((request, respond)))) => {
                    Poll::Ready(Event::Request(Box::new(request), respond))
                }
                Poll::Ready(Some(Err(error))) => Poll::Ready(Event::Closed(Err(error))),
                Poll::Ready(None) => Poll::Ready(Event::Closed(Ok(()))),
                Poll::Pending => Poll::Pending,
            };
        };
        if event.is_ready() || requests > 0 {
            return event;
        }
        while self.resting.as_mut().poll(cx).is_ready() {
            if !self.blocked.get() {
                return Poll::Ready(Event::Rested);
            }
            self.rest();
        }
        Poll::Pending
    }

    const fn is_leaving(&self) -> bool {
        self.leaving.is_some()
    }

    /// Sends GOAWAY: the client opens no further streams; open ones go on.
    fn say_goodbye(&mut self) {
        if self.leaving.is_none() {
            self.connection.graceful_shutdown();
            self.leaving = Some(Instant::now());
            self.rest();
        }
    }

    /// Starts to wait for another request, or for the client to leave.
    fn rest(&mut self) {
        let time = if self.is_leaving() { DISCONNECT_TIMEOUT } else { KEEP_ALIVE };
        self.resting.as_mut().reset(Instant::now() + time);
    }
}
