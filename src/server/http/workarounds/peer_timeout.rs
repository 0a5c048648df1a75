//! Limits the time for which a connection waits for its peer.
//!
//! A response stays in memory until the client has read it. actix has no write timeout, so a client that requests much
//! and reads nothing would hold this memory for ever.
//!
//! actix has a timeout only for the first head of a connection. A client that stops in the middle of a later head, or
//! has lost power, would hold the connection for ever.

use std::future::Future as _;
use std::io::{self, IoSlice};
use std::pin::Pin;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::time::{Instant, Sleep, sleep, sleep_until};

use super::SendBuffer;

type Timer = Option<Pin<Box<Sleep>>>;

/// Fails a write that makes no progress for too long, and a read if nothing has been written for too long.
#[derive(Debug)]
pub(crate) struct PeerTimeout<IO> {
    io: IO,
    /// Maximum time for which a write or a flush may be pending.
    limit: Duration,
    /// Maximum time between two writes.
    silence: Duration,
    last_write: Instant,
    /// The timers run while their operation is pending.
    reading: Timer,
    writing: Timer,
    flushing: Timer,
}

impl<IO> PeerTimeout<IO> {
    pub(crate) fn new(io: IO, limit: Duration, silence: Duration) -> Self {
        Self { io, limit, silence, last_write: Instant::now(), reading: None, writing: None, flushing: None }
    }

    fn limit_read(&mut self, cx: &mut Context<'_>, outcome: Poll<io::Result<()>>) -> Poll<io::Result<()>> {
        if outcome.is_ready() {
            return outcome;
        }
        let end = self.last_write + self.silence;
        let reading = self.reading.get_or_insert_with(|| Box::pin(sleep_until(end)));
        ready!(reading.as_mut().poll(cx));
        if end > Instant::now() {
            // A write has happened since the timer was set.
            reading.as_mut().reset(end);
            ready!(reading.as_mut().poll(cx));
        }
        Poll::Ready(Err(io::ErrorKind::TimedOut.into()))
    }

    fn limit_write<T>(&mut self, cx: &mut Context<'_>, outcome: Poll<io::Result<T>>) -> Poll<io::Result<T>> {
        if outcome.is_pending() {
            return wait_at_most(&mut self.writing, self.limit, cx);
        }
        // The peer accepts bytes, even if a buffer below never becomes empty.
        (self.writing, self.flushing) = (None, None);
        self.last_write = Instant::now();
        outcome
    }

    fn limit_flush(&mut self, cx: &mut Context<'_>, outcome: Poll<io::Result<()>>) -> Poll<io::Result<()>> {
        if outcome.is_pending() {
            return wait_at_most(&mut self.flushing, self.limit, cx);
        }
        self.flushing = None;
        outcome
    }
}

/// Returns pending, or an error once `timer` has run for `limit`.
fn wait_at_most<T>(timer: &mut Timer, limit: Duration, cx: &mut Context<'_>) -> Poll<io::Result<T>> {
    let timer = timer.get_or_insert_with(|| Box::pin(sleep(limit)));
    ready!(timer.as_mut().poll(cx));
    Poll::Ready(Err(io::ErrorKind::TimedOut.into()))
}

impl<IO: SendBuffer> SendBuffer for PeerTimeout<IO> {
    fn limit_send_buffer(&self) {
        self.io.limit_send_buffer();
    }
}

impl<IO: AsyncWrite + Unpin> AsyncWrite for PeerTimeout<IO> {
    fn poll_write(self: Pin<&mut Self>, cx: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        let this = self.get_mut();
        let outcome = Pin::new(&mut this.io).poll_write(cx, bytes);
        this.limit_write(cx, outcome)
    }

    fn poll_write_vectored(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        parts: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let this = self.get_mut();
        let outcome = Pin::new(&mut this.io).poll_write_vectored(cx, parts);
        this.limit_write(cx, outcome)
    }

    fn poll_flush(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        let this = self.get_mut();
        let outcome = Pin::new(&mut this.io).poll_flush(cx);
        this.limit_flush(cx, outcome)
    }

    fn poll_shutdown(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        let this = self.get_mut();
        let outcome = Pin::new(&mut this.io).poll_shutdown(cx);
        this.limit_flush(cx, outcome)
    }
}

impl<IO: AsyncRead + Unpin> AsyncRead for PeerTimeout<IO> {
    fn poll_read(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let this = self.get_mut();
        let outcome = Pin::new(&mut this.io).poll_read(cx, buffer);
        this.limit_read(cx, outcome)
    }
}

#[cfg(test)]
mod tests {
    use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _, duplex};

    use super::*;

    const LONG: Duration = Duration::from_secs(3600);
    const SHORT: Duration = Duration::from_millis(30);

    fn kind<T>(outcome: io::Result<T>) -> Option<io::ErrorKind> {
        outcome.err().map(|error| error.kind())
    }

    #[tokio::test]
    async fn a_connection_fails_if_the_peer_stops_in_the_middle_of_a_head() {
        let (ours, mut theirs) = duplex(64);
        let mut connection = PeerTimeout::new(ours, LONG, SHORT);
        theirs.write_all(b"G").await.unwrap();
        let mut byte = [0];
        connection.read_exact(&mut byte).await.unwrap();
        assert_eq!(kind(connection.read_exact(&mut byte).await), Some(io::ErrorKind::TimedOut));
    }

    #[tokio::test]
    async fn each_write_restarts_the_time_for_the_peer() {
        let (ours, mut theirs) = duplex(64);
        let mut connection = PeerTimeout::new(ours, LONG, LONG);
        let mut byte = [0];
        for _ in 0..3 {
            let pending = tokio::time::timeout(SHORT, connection.read_exact(&mut byte)).await;
            assert!(pending.is_err(), "nothing was sent");
            connection.write_all(b"a").await.unwrap();
            // The timer that was set before the write expires.
            connection.reading.as_mut().unwrap().as_mut().reset(Instant::now());
        }
        let pending = tokio::time::timeout(SHORT, connection.read_exact(&mut byte)).await;
        assert!(pending.is_err(), "the time has restarted");
        theirs.write_all(b"b").await.unwrap();
        connection.read_exact(&mut byte).await.unwrap();
        assert_eq!(byte, *b"b");
    }

    #[tokio::test]
    async fn a_connection_fails_if_the_peer_reads_nothing() {
        let (ours, _theirs) = duplex(1);
        let mut connection = PeerTimeout::new(ours, SHORT, LONG);
        assert_eq!(kind(connection.write_all(b"ab").await), Some(io::ErrorKind::TimedOut));
    }
}
