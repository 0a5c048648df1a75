//! A connection with a write timeout.
//!
//! An answer stays in memory until the client has read it. A client that asks for much and reads
//! nothing would hold that for ever, because actix has no such limit.

use std::future::Future as _;
use std::io::{self, IoSlice};
use std::pin::Pin;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::time::{Sleep, sleep};

type Timer = Option<Pin<Box<Sleep>>>;

/// Fails a write that makes no progress for too long.
#[derive(Debug)]
pub(crate) struct WriteTimeout<IO> {
    io: IO,
    limit: Duration,
    /// Runs while the peer accepts nothing of what is written or buffered below.
    writing: Timer,
    flushing: Timer,
}

impl<IO> WriteTimeout<IO> {
    /// Wraps a connection.
    pub(crate) const fn new(io: IO, limit: Duration) -> Self {
        Self { io, limit, writing: None, flushing: None }
    }

    fn judge_write<T>(&mut self, cx: &mut Context<'_>, outcome: Poll<io::Result<T>>) -> Poll<io::Result<T>> {
        if outcome.is_pending() {
            return wait(&mut self.writing, self.limit, cx);
        }
        // The peer accepts bytes, even if a buffer below is never empty.
        (self.writing, self.flushing) = (None, None);
        outcome
    }

    fn judge_flush(&mut self, cx: &mut Context<'_>, outcome: Poll<io::Result<()>>) -> Poll<io::Result<()>> {
        if outcome.is_pending() {
            return wait(&mut self.flushing, self.limit, cx);
        }
        self.flushing = None;
        outcome
    }
}

/// Returns pending, or an error once it was pending for too long.
fn wait<T>(waiting: &mut Timer, limit: Duration, cx: &mut Context<'_>) -> Poll<io::Result<T>> {
    let waiting = waiting.get_or_insert_with(|| Box::pin(sleep(limit)));
    ready!(waiting.as_mut().poll(cx));
    Poll::Ready(Err(io::ErrorKind::TimedOut.into()))
}

impl<IO: AsyncWrite + Unpin> AsyncWrite for WriteTimeout<IO> {
    fn poll_write(self: Pin<&mut Self>, cx: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        let this = self.get_mut();
        let outcome = Pin::new(&mut this.io).poll_write(cx, bytes);
        this.judge_write(cx, outcome)
    }

    fn poll_write_vectored(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        parts: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let this = self.get_mut();
        let outcome = Pin::new(&mut this.io).poll_write_vectored(cx, parts);
        this.judge_write(cx, outcome)
    }

    fn is_write_vectored(&self) -> bool {
        self.io.is_write_vectored()
    }

    fn poll_flush(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        let this = self.get_mut();
        let outcome = Pin::new(&mut this.io).poll_flush(cx);
        this.judge_flush(cx, outcome)
    }

    fn poll_shutdown(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.get_mut().io).poll_shutdown(cx)
    }
}

impl<IO: AsyncRead + Unpin> AsyncRead for WriteTimeout<IO> {
    fn poll_read(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        Pin::new(&mut self.get_mut().io).poll_read(cx, buffer)
    }
}
