//! Workarounds for missing features of actix. The table lists each workaround and the feature of actix that would make
//! it unnecessary. The files describe the behaviour of actix on which they rely.
//!
//! | part | purpose | unnecessary once actix |
//! |---|---|---|
//! | [`app_config`] | states to handlers whether a connection is encrypted | has a public constructor of `AppConfig` |
//! | `header_case` | writes header names in Azure's case, and the length of a 204 | writes both as they were set |
//! | `header_case` | ends a connection without a response | lets a handler close the connection |
//! | `one_at_a_time` | limits pipelining | decodes a request only after answering the previous one |
//! | `peer_timeout` | disconnects clients that read nothing or stop in a later head | has timeouts for writes and for each head |
//! | [`close_after`] | responds before the end of a chunked body | closes a connection whose body is not read |

mod header_case;
mod one_at_a_time;
mod peer_timeout;

use std::net::SocketAddr;
use std::pin::Pin;
use std::task::{Context, Poll};

use actix_web::body::{BodySize, BoxBody, MessageBody};
use actix_web::dev::AppConfig;
use actix_web::rt::net::TcpStream;
use actix_web::web::{Bytes, Payload};

pub(crate) use header_case::{HeaderCase, LENGTH_PLACEHOLDER, has_capital_names};
pub(crate) use one_at_a_time::{OneAtATime, RequestState};
pub(crate) use peer_timeout::PeerTimeout;
use tokio_rustls::server::TlsStream;
use tokio_util::either::Either;

use crate::protocol::request::Head;

/// A client's connection, plain or encrypted.
pub(crate) type Connection = Either<TcpStream, Box<TlsStream<TcpStream>>>;

/// Size of a limited send buffer in bytes.
const SEND_BUFFER: usize = 64 * 1024;

/// A connection whose send buffer can be limited.
pub(crate) trait SendBuffer {
    /// Limits the number of response bytes that the system buffers for a client that does not read them.
    fn limit_send_buffer(&self);
}

impl SendBuffer for Connection {
    fn limit_send_buffer(&self) {
        let stream = match self {
            Self::Left(stream) => stream,
            Self::Right(stream) => stream.get_ref().0,
        };
        if let Err(error) = rustix::net::sockopt::set_socket_send_buffer_size(stream, SEND_BUFFER) {
            tracing::debug!(%error, "the send buffer of a connection could not be limited");
        }
    }
}

/// Returns the configuration of an app that serves a socket at this address. Handlers learn from it whether a
/// connection is encrypted. actix sets the configuration only in `HttpServer`, which cannot wrap connections (see
/// [`listen`](super::listen)). The constructor is public, but hidden in the documentation of actix.
pub(crate) fn app_config(is_encrypted: bool, address: SocketAddr) -> AppConfig {
    AppConfig::__priv_test_new(is_encrypted, address.to_string(), address)
}

/// Returns whether actix treats all bytes after this head as its body, as it does if a client requests a tunnel or a
/// different protocol, which this server never accepts.
pub(crate) fn is_endless(head: &Head<'_>) -> bool {
    let is_websocket = |upgrade: &str| upgrade.trim().eq_ignore_ascii_case("websocket");
    head.method == "CONNECT" || head.all("upgrade").any(is_websocket)
}

/// Returns whether actix closes the connection after the response because the request names an upgrade. The
/// response must announce the close.
pub(crate) fn closes_after_upgrade(head: &Head<'_>) -> bool {
    let names_upgrade =
        |list: &str| list.split(',').any(|token| token.trim().eq_ignore_ascii_case("upgrade"));
    head.headers.iter().any(|(name, value)| name == "upgrade" || name == "connection" && names_upgrade(value))
}

/// Returns the response to a request whose body is not read to its end. The connection closes after the response. If
/// the reader of a chunked body is dropped, actix reads the body to its end, which may never come. The reader is
/// therefore kept as long as the response. After a request for an upgrade or a tunnel, actix closes the connection
/// in any case.
pub(crate) fn close_after(answer: BoxBody, unread: Payload) -> BoxBody {
    BoxBody::new(AnswerBeforeEnd { answer, _unread: unread })
}

struct AnswerBeforeEnd {
    answer: BoxBody,
    _unread: Payload,
}

impl MessageBody for AnswerBeforeEnd {
    type Error = Box<dyn std::error::Error>;

    fn size(&self) -> BodySize {
        self.answer.size()
    }

    fn poll_next(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Bytes, Self::Error>>> {
        Pin::new(&mut self.answer).poll_next(context)
    }
}
