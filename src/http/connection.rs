//! A client's connection, plain or encrypted.

use std::cell::Cell;
use std::future::Future;
use std::io::{self, IoSlice};
use std::pin::Pin;
use std::rc::Rc;
use std::task::{Context, Poll};
use std::time::{Duration, Instant};

use actix_web::rt::net::TcpStream;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio_rustls::server::TlsStream;

use super::tls::HTTP_2;
use crate::metrics::METRICS;

/// Time in which nothing is sent before a connection counts as done.
const QUIET: Duration = Duration::from_millis(500);

/// A connection of either kind.
pub enum Connection {
    Plain(TcpStream),
    Encrypted(Box<TlsStream<TcpStream>>),
    Http2(Box<Http2>),
}

/// An encrypted connection that carries HTTP/2. Clients keep these open without
/// end, and what is above knows no way to say goodbye, so that each would hold up
/// the end of the server for all the time that it allows. This one ends by itself
/// once the server stops and nothing is under way.
pub struct Http2 {
    stream: TlsStream<TcpStream>,
    sent: Rc<Cell<Instant>>,
    end: Pin<Box<dyn Future<Output = ()>>>,
}

impl Connection {
    /// Wraps an encrypted connection, which carries HTTP/2 if both sides have
    /// agreed on it. `stop` is done when the server shall stop.
    pub fn encrypted(stream: TlsStream<TcpStream>, stop: impl Future<Output = ()> + 'static) -> Self {
        if stream.get_ref().1.alpn_protocol() != Some(HTTP_2) {
            return Self::Encrypted(Box::new(stream));
        }
        let sent = Rc::new(Cell::new(Instant::now()));
        let end = Box::pin(end(stop, Rc::clone(&sent)));
        Self::Http2(Box::new(Http2 { stream, sent, end }))
    }

    fn note_sending(&self) {
        if let Self::Http2(http2) = self {
            http2.sent.set(Instant::now());
        }
    }

    /// Whether both sides have agreed on HTTP/2.
    pub const fn is_http_2(&self) -> bool {
        matches!(self, Self::Http2(_))
    }
}

/// Waits until the server stops and the connection has nothing left to do: no
/// request is under way anywhere, and nothing was sent for a while.
async fn end(stop: impl Future<Output = ()>, sent: Rc<Cell<Instant>>) {
    stop.await;
    while METRICS.requests.in_flight() > 0 || sent.get().elapsed() < QUIET {
        tokio::time::sleep(QUIET / 4).await;
    }
}

macro_rules! on_either {
    ($self:ident, $stream:ident => $call:expr) => {
        match $self.get_mut() {
            Self::Plain(stream) => {
                let $stream = Pin::new(stream);
                $call
            }
            Self::Encrypted(stream) => {
                let $stream = Pin::new(stream.as_mut());
                $call
            }
            Self::Http2(http2) => {
                let $stream = Pin::new(&mut http2.stream);
                $call
            }
        }
    };
}

impl AsyncRead for Connection {
    fn poll_read(self: Pin<&mut Self>, cx: &mut Context<'_>, into: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        let this = self.get_mut();
        match this {
            Self::Plain(stream) => Pin::new(stream).poll_read(cx, into),
            Self::Encrypted(stream) => Pin::new(stream.as_mut()).poll_read(cx, into),
            Self::Http2(http2) => match Pin::new(&mut http2.stream).poll_read(cx, into) {
                // Nothing read is the end of what the client sends.
                Poll::Pending => http2.end.as_mut().poll(cx).map(Ok),
                ready => ready,
            },
        }
    }
}

impl AsyncWrite for Connection {
    fn poll_write(self: Pin<&mut Self>, cx: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        self.note_sending();
        on_either!(self, stream => stream.poll_write(cx, bytes))
    }

    fn poll_write_vectored(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        pieces: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        self.note_sending();
        on_either!(self, stream => stream.poll_write_vectored(cx, pieces))
    }

    fn is_write_vectored(&self) -> bool {
        match self {
            Self::Plain(stream) => stream.is_write_vectored(),
            Self::Encrypted(stream) => stream.is_write_vectored(),
            Self::Http2(http2) => http2.stream.is_write_vectored(),
        }
    }

    fn poll_flush(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        on_either!(self, stream => stream.poll_flush(cx))
    }

    fn poll_shutdown(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        on_either!(self, stream => stream.poll_shutdown(cx))
    }
}
