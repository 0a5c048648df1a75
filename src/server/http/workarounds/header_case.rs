//! The case of header names on the wire.
//!
//! HTTP ignores the case, and actix writes lower case. Azure uses its own case, though, and clients that compare text
//! notice the difference. [`HeaderCase`] sits between actix and a connection and restores Azure's case. It becomes
//! unnecessary once actix can write header names as given.
//!
//! [`HeaderCase`] parses the written bytes: a head, the body that the head announces, the next head. It counts the
//! bytes of bodies, but does not parse them. Case does not change lengths, so each byte that the connection accepts
//! stands for one byte of the caller. [`HeaderCase`] relies on three facts about actix. If one of them does not hold,
//! the rest of the connection passes unchanged:
//!
//! - A head is written in one piece.
//! - A response with a body that is not chunked has a Content-Length.
//! - The response to a HEAD has a length, but no body. The server's other responses have names with
//!   capital letters ([`has_capital_names`]), so a capital C announces a body.
//!
//! Azure also sends a length of zero with a 204. actix removes this header, so the responses carry a
//! placeholder with a name of the same length ([`LENGTH_PLACEHOLDER`]). [`HeaderCase`] replaces it. The placeholder
//! becomes unnecessary once actix keeps a length that was set.
//!
//! A test may require that a connection ends without a response, but a handler cannot close its connection. The handler
//! sends a head with [`STATUS_HANG_UP`] instead, in whose place the connection is closed. This status becomes
//! unnecessary once actix lets a handler close the connection.
//!
//! If actix decodes several pipelined requests at once, it may mistake a response for that to the latest request,
//! and send a body to a HEAD, or none to an earlier GET. [`OneAtATime`](super::OneAtATime) prevents this. As a second
//! line of defence, [`HeaderCase`] closes the connection if the next bytes are not what it expects.

use std::io::{self, IoSlice};
use std::pin::Pin;
use std::task::{Context, Poll};

use memchr::{memchr, memmem};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

use super::SendBuffer;
use crate::service::STATUS_HANG_UP;

/// Maximum size of a body that is copied behind its head. Longer bodies are written from the caller's buffer.
const MAX_COPIED_BODY: usize = 4 * 1024;
const MAX_HEAD_BYTES: usize = 64 * 1024;

/// Placeholder for `Content-Length` in a response whose length actix would remove.
pub(crate) const LENGTH_PLACEHOLDER: &str = "no-body-length";

/// Returns whether the names in the response to this method have capital letters, from which [`HeaderCase`] infers that
/// the announced body follows.
pub(crate) fn has_capital_names(method: &str) -> bool {
    method != "HEAD"
}

/// The part of a response to which the next byte belongs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum FramePosition {
    Head,
    /// A body with this number of bytes left, at least one.
    Body(u64),
    /// A body of unknown length, after which no head follows.
    Opaque,
}

impl FramePosition {
    const fn body(length: u64) -> Self {
        if length == 0 { Self::Head } else { Self::Body(length) }
    }

    /// Returns how many of `available` bytes belong to the body.
    fn body_len(self, available: usize) -> usize {
        match self {
            Self::Head => 0,
            Self::Body(left) => usize::try_from(left).map_or(available, |left| left.min(available)),
            Self::Opaque => available,
        }
    }

    fn advance(&mut self, written: usize) {
        if let Self::Body(left) = *self {
            *self = Self::body(left.saturating_sub(written as u64));
        }
    }
}

/// A connection that writes header names in Azure's case.
#[derive(Debug)]
pub(crate) struct HeaderCase<IO> {
    io: IO,
    /// Converted bytes. The bytes before `sent` have been written. The others replace the first bytes of the caller's
    /// next write.
    ready: Vec<u8>,
    sent: usize,
    /// The position at the end of `ready`.
    position: FramePosition,
    /// Whether a body begins at the end of `ready`.
    is_at_body_start: bool,
}

impl<IO> HeaderCase<IO> {
    /// Wraps a connection on which nothing has been written.
    pub(crate) const fn new(io: IO) -> Self {
        Self { io, ready: Vec::new(), sent: 0, position: FramePosition::Head, is_at_body_start: false }
    }

    /// Converts the heads in `bytes`, up to a body that is too long to copy.
    fn prepare(&mut self, bytes: &[u8]) -> io::Result<()> {
        let mut rest = bytes;
        while !rest.is_empty() && self.ready.len() < MAX_COPIED_BODY {
            if self.is_displaced(rest) {
                // Everything before the displaced bytes is valid.
                return if self.ready.is_empty() { Err(io::ErrorKind::InvalidData.into()) } else { Ok(()) };
            }
            let take = match self.position {
                FramePosition::Head => head_length(rest),
                // A body is copied only behind a head that is in `ready`.
                _ if self.ready.is_empty() => return Ok(()),
                position => Some(position.body_len(rest.len())).filter(|length| *length <= MAX_COPIED_BODY),
            };
            let Some(take) = take else {
                if self.position == FramePosition::Head {
                    self.position = FramePosition::Opaque;
                }
                return Ok(());
            };
            let (piece, after) = rest.split_at(take);
            let start = self.ready.len();
            self.ready.extend_from_slice(piece);
            if self.position == FramePosition::Head {
                self.position = restore_head(&mut self.ready[start..]);
                self.is_at_body_start = true;
            } else {
                self.advance(take);
            }
            rest = after;
        }
        Ok(())
    }

    /// Returns whether a body is in the place of a head or the reverse, or a head has [`STATUS_HANG_UP`]. No body of
    /// this server looks like a head.
    fn is_displaced(&self, bytes: &[u8]) -> bool {
        match self.position {
            FramePosition::Head => !bytes.starts_with(b"HTTP/1.") || is_hang_up(bytes),
            FramePosition::Body(_) => self.is_at_body_start && bytes.starts_with(b"HTTP/1."),
            FramePosition::Opaque => false,
        }
    }

    fn advance(&mut self, written: usize) {
        self.is_at_body_start &= written == 0;
        self.position.advance(written);
    }

    /// Records that the connection accepted `written` bytes, of which up to `from_ready` came from `ready`.
    fn record_written(&mut self, written: usize, from_ready: usize) {
        let sent_from_ready = written.min(from_ready);
        self.sent += sent_from_ready;
        if self.sent == self.ready.len() {
            self.ready.clear();
            self.sent = 0;
        }
        self.advance(written - sent_from_ready);
    }
}

impl<IO: SendBuffer> SendBuffer for HeaderCase<IO> {
    fn limit_send_buffer(&self) {
        self.io.limit_send_buffer();
    }
}

impl<IO: AsyncWrite + Unpin> AsyncWrite for HeaderCase<IO> {
    fn poll_write(self: Pin<&mut Self>, cx: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        let this = self.get_mut();
        if this.ready.is_empty() {
            this.prepare(bytes)?;
        }
        let ready = &this.ready[this.sent..];
        // Callers may retry with fewer bytes.
        let ready = &ready[..ready.len().min(bytes.len())];
        let from_ready = ready.len();
        let rest = &bytes[from_ready..];
        let body = if this.is_displaced(rest) { &[] } else { &rest[..this.position.body_len(rest.len())] };
        let io = Pin::new(&mut this.io);
        let outcome = match (ready, body) {
            (ready, []) => io.poll_write(cx, ready),
            ([], body) => io.poll_write(cx, body),
            (ready, body) => io.poll_write_vectored(cx, &[IoSlice::new(ready), IoSlice::new(body)]),
        };
        if let Poll::Ready(Ok(written)) = outcome {
            this.record_written(written, from_ready);
        }
        outcome
    }

    fn poll_flush(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        // All bytes that were reported as written have been written.
        Pin::new(&mut self.get_mut().io).poll_flush(cx)
    }

    fn poll_shutdown(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.get_mut().io).poll_shutdown(cx)
    }
}

impl<IO: AsyncRead + Unpin> AsyncRead for HeaderCase<IO> {
    fn poll_read(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        Pin::new(&mut self.get_mut().io).poll_read(cx, buffer)
    }
}

/// Returns the length of the first head, including its empty line.
fn head_length(bytes: &[u8]) -> Option<usize> {
    if !bytes.starts_with(b"HTTP/1.") {
        return None;
    }
    memmem::find(&bytes[..bytes.len().min(MAX_HEAD_BYTES)], b"\r\n\r\n").map(|end| end + 4)
}

/// Returns whether a head has [`STATUS_HANG_UP`].
fn is_hang_up(bytes: &[u8]) -> bool {
    // "HTTP/1.1 444"
    let status = bytes.get(9..12).and_then(|status| str::from_utf8(status).ok());
    status.and_then(|status| status.parse().ok()) == Some(STATUS_HANG_UP)
}

/// Restores the case of the names in a head. Returns the position after the head.
fn restore_head(head: &mut [u8]) -> FramePosition {
    // "HTTP/1.1 200 OK"
    let status: [u8; 3] = head.get(9..12).and_then(|s| s.try_into().ok()).unwrap_or_default();
    let mut position = match &status {
        b"101" => return FramePosition::Opaque,
        b"204" | b"304" | [b'1', ..] => Some(FramePosition::Head),
        _ => None,
    };
    let mut rest = head;
    let mut first = true;
    while let Some(end) = memchr(b'\n', rest) {
        let (line, after) = rest.split_at_mut(end + 1);
        rest = after;
        if std::mem::take(&mut first) {
            continue;
        }
        let Some(colon) = memchr(b':', line) else { continue };
        let (name, value) = line.split_at_mut(colon);
        let Some(known) = azure_case(name) else { continue };
        match known {
            "Content-Length" if name.starts_with(b"C") => position = position.or_else(|| length(&value[1..])),
            "Content-Length" => position = position.or(Some(FramePosition::Head)),
            "Transfer-Encoding" => position = Some(FramePosition::Opaque),
            _ => {}
        }
        name.copy_from_slice(known.as_bytes());
    }
    position.unwrap_or(FramePosition::Opaque)
}

/// Returns a name in Azure's case. The name is compared only with names of the same length, because this function
/// runs for every line of every head.
fn azure_case(name: &[u8]) -> Option<&'static str> {
    let candidates: &[&str] = match name.len() {
        4 => &["Date", "ETag", "Vary"],
        5 => &["Allow"],
        6 => &["Server"],
        8 => &["Location"],
        10 => &["Connection"],
        11 => &["Retry-After"],
        12 => &["Content-Type", "x-ms-version"],
        13 => &["Cache-Control", "DataServiceId"],
        14 if name.eq_ignore_ascii_case(LENGTH_PLACEHOLDER.as_bytes()) => return Some("Content-Length"),
        14 => &["Content-Length"],
        15 => &["x-ms-error-code", "x-ms-request-id"],
        16 => &["WWW-Authenticate"],
        17 => &["Transfer-Encoding"],
        18 => &["DataServiceVersion", "Preference-Applied"],
        22 => &["Access-Control-Max-Age", "X-Content-Type-Options", "x-ms-client-request-id"],
        27 => &["Access-Control-Allow-Origin"],
        28 => {
            &["Access-Control-Allow-Headers", "Access-Control-Allow-Methods", "x-ms-continuation-NextRowKey"]
        }
        29 => &["Access-Control-Expose-Headers"],
        31 => &["x-ms-continuation-NextTableName"],
        32 => &["Access-Control-Allow-Credentials"],
        34 => &["x-ms-continuation-NextPartitionKey"],
        _ => return None,
    };
    candidates.iter().find(|known| known.as_bytes().eq_ignore_ascii_case(name)).copied()
}

fn length(value: &[u8]) -> Option<FramePosition> {
    std::str::from_utf8(value).ok()?.trim().parse().ok().map(FramePosition::body)
}

#[cfg(test)]
mod tests {
    use std::task::Waker;

    use super::*;

    const HEAD: &str = "HTTP/1.1 200 OK\r\nContent-Length: 72\r\nX-Ms-Continuation-Nextpartitionkey: Etag: a\r\n\
                        Etag: W/\"etag:\"\r\nX-Unknown-name: Date\r\n\r\n";
    const HEAD_RESTORED: &str = "HTTP/1.1 200 OK\r\nContent-Length: 72\r\n\
                                 x-ms-continuation-NextPartitionKey: Etag: a\r\nETag: W/\"etag:\"\r\n\
                                 X-Unknown-name: Date\r\n\r\n";
    /// This body could be mistaken for a response, but counts as 72 bytes.
    const BODY: &str = "\nHTTP/1.1 200 OK\r\nContent-Length: 9\r\nx-ms-continuation-nextrowkey: 1\r\n\r\n";
    /// Without capital letters no body follows, as in a response to HEAD.
    const BODILESS: &str = "HTTP/1.1 200 OK\r\ncontent-length: 9\r\nx-ms-version: 1\r\netag: 2\r\n\r\n";
    const BODILESS_RESTORED: &str =
        "HTTP/1.1 200 OK\r\nContent-Length: 9\r\nx-ms-version: 1\r\nETag: 2\r\n\r\n";
    const CONTINUE: &str = "HTTP/1.1 100 Continue\r\n\r\n";

    /// Accepts a few bytes at a time, and none on every other write.
    struct Mock {
        at_most: usize,
        reluctant: bool,
        busy: bool,
        calls: usize,
        taken: Vec<u8>,
    }

    impl AsyncWrite for Mock {
        fn poll_write(self: Pin<&mut Self>, cx: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
            self.poll_write_vectored(cx, &[IoSlice::new(bytes)])
        }

        fn poll_write_vectored(
            mut self: Pin<&mut Self>,
            _: &mut Context<'_>,
            pieces: &[IoSlice<'_>],
        ) -> Poll<io::Result<usize>> {
            self.busy = self.reluctant && !self.busy;
            if self.busy {
                return Poll::Pending;
            }
            self.calls += 1;
            let before = self.taken.len();
            for piece in pieces {
                let room = self.at_most - (self.taken.len() - before);
                self.taken.extend_from_slice(&piece[..piece.len().min(room)]);
            }
            Poll::Ready(Ok(self.taken.len() - before))
        }

        fn poll_flush(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
            Poll::Ready(Ok(()))
        }

        fn poll_shutdown(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
            Poll::Ready(Ok(()))
        }
    }

    fn wire(at_most: usize, reluctant: bool) -> HeaderCase<Mock> {
        HeaderCase::new(Mock { at_most, reluctant, busy: false, calls: 0, taken: Vec::new() })
    }

    /// Writes like actix, which repeats the remaining bytes until all are accepted.
    fn write(wire: &mut HeaderCase<Mock>, mut bytes: &[u8]) {
        let mut cx = Context::from_waker(Waker::noop());
        while !bytes.is_empty() {
            if let Poll::Ready(written) = Pin::new(&mut *wire).poll_write(&mut cx, bytes) {
                let written = written.expect("the mock does not fail");
                assert!(written > 0 && written <= bytes.len());
                bytes = &bytes[written..];
            }
        }
    }

    /// Returns the bytes that arrive if each text is written at once, for every number of bytes that the
    /// connection accepts at a time.
    fn sent(writes: &[&str]) -> String {
        let outcomes = [1, 2, 7, 100, 4096, usize::MAX].map(|at_most| {
            [false, true].map(|reluctant| {
                let mut wire = wire(at_most, reluctant);
                writes.iter().for_each(|bytes| write(&mut wire, bytes.as_bytes()));
                assert!(wire.ready.is_empty());
                String::from_utf8(wire.io.taken).expect("only letters change")
            })
        });
        let [first, ..] = outcomes.as_flattened() else { unreachable!() };
        assert!(outcomes.as_flattened().iter().all(|outcome| outcome == first));
        first.clone()
    }

    #[test]
    fn names_are_restored_and_values_and_bodies_kept() {
        assert_eq!(BODY.len(), 72);
        assert_eq!(sent(&[&format!("{HEAD}{BODY}")]), format!("{HEAD_RESTORED}{BODY}"));
        assert_eq!(sent(&[HEAD, BODY]), format!("{HEAD_RESTORED}{BODY}"));
        let (one, other) = BODY.split_at(17);
        assert_eq!(
            sent(&[&format!("{HEAD}{one}"), other, HEAD]),
            format!("{HEAD_RESTORED}{BODY}{HEAD_RESTORED}")
        );
    }

    #[test]
    fn heads_of_many_responses_are_restored() {
        let answers = [HEAD, BODY, CONTINUE, BODILESS, HEAD, BODY, BODILESS, BODILESS].concat();
        let restored = [
            HEAD_RESTORED,
            BODY,
            CONTINUE,
            BODILESS_RESTORED,
            HEAD_RESTORED,
            BODY,
            BODILESS_RESTORED,
            BODILESS_RESTORED,
        ];
        assert_eq!(sent(&[&answers]), restored.concat());
        // The cut may be anywhere between two responses or in a body.
        assert_eq!(sent(&[&answers.repeat(40), &answers]), restored.concat().repeat(41));
    }

    #[test]
    fn responses_without_a_body_are_recognized() {
        for status in ["204 No Content", "304 Not Modified", "100 Continue", "103 Early Hints"] {
            let head = format!("HTTP/1.1 {status}\r\nContent-Length: 5\r\ndate: x\r\n\r\n");
            let restored = head.replace("date", "Date");
            assert_eq!(sent(&[&format!("{head}{head}")]), format!("{restored}{restored}"));
        }
        let nothing = "HTTP/1.0 400 Bad Request\r\ncontent-length: 0\r\nconnection: close\r\n\r\n";
        let restored = "HTTP/1.0 400 Bad Request\r\nContent-Length: 0\r\nConnection: close\r\n\r\n";
        assert_eq!(sent(&[nothing, nothing]), format!("{restored}{restored}"));
    }

    #[test]
    fn the_length_placeholder_becomes_content_length() {
        let empty = "HTTP/1.1 204 No Content\r\nNo-Body-Length: 0\r\nEtag: 1\r\n\r\n";
        let restored = "HTTP/1.1 204 No Content\r\nContent-Length: 0\r\nETag: 1\r\n\r\n";
        let answers = format!("{empty}{HEAD}{BODY}{empty}{empty}{BODILESS}");
        let expected = format!("{restored}{HEAD_RESTORED}{BODY}{restored}{restored}{BODILESS_RESTORED}");
        assert_eq!(sent(&[&answers]), expected);
        assert_eq!(LENGTH_PLACEHOLDER.len(), "Content-Length".len());
    }

    #[test]
    fn bodies_of_unknown_length_pass_unchanged() {
        for head in [
            "HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\netag: 1\r\n\r\n",
            "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\nContent-Length: 3\r\nEtag: 1\r\n\r\n",
            "HTTP/1.1 200 OK\r\nContent-Length: 3\r\nTransfer-Encoding: chunked\r\nEtag: 1\r\n\r\n",
            "HTTP/1.1 200 OK\r\netag: 1\r\n\r\n",
            "HTTP/1.1 200 OK\r\nContent-Length: many\r\netag: 1\r\n\r\n",
        ] {
            let restored = head.replace("etag", "ETag").replace("Etag", "ETag");
            let restored = restored.replace("transfer-encoding", "Transfer-Encoding");
            let expected = format!("{restored}{BODY}{HEAD}");
            assert_eq!(sent(&[&format!("{head}{BODY}"), HEAD]), expected);
        }
        // A head without an end in sight, or a switch to a different protocol.
        for start in ["HTTP/1.1 200 OK\r\netag: 1\r\n", "HTTP/1.1 101 Switching Protocols\r\netag: 1\r\n\r\n"]
        {
            assert_eq!(sent(&[start, BODY, HEAD]), format!("{start}{BODY}{HEAD}"));
        }
    }

    /// Returns the bytes that a connection accepts until it fails. Panics if it does not fail.
    fn sent_until_failure(bytes: &[u8]) -> String {
        let mut cx = Context::from_waker(Waker::noop());
        let mut wire = wire(usize::MAX, false);
        let mut left = bytes;
        while let Poll::Ready(Ok(written)) = Pin::new(&mut wire).poll_write(&mut cx, left) {
            left = &left[written..];
            assert!(!left.is_empty(), "the connection accepts all bytes");
        }
        String::from_utf8(wire.io.taken).expect("only letters change")
    }

    #[test]
    fn displaced_heads_and_bodies_end_the_connection() {
        // A body without an announcement, and a head in the place of a body.
        for (before, displaced) in
            [(BODILESS, "{\"a\":1}"), (HEAD, HEAD), (BODILESS, "PRI * HTTP/2.0\r\n\r\n")]
        {
            let restored = if before == HEAD { HEAD_RESTORED } else { BODILESS_RESTORED };
            let answers = format!("{HEAD}{BODY}{before}{displaced}{HEAD}{BODY}");
            assert_eq!(sent_until_failure(answers.as_bytes()), format!("{HEAD_RESTORED}{BODY}{restored}"));
        }
        assert_eq!(sent_until_failure(b"no head"), "");
    }

    #[test]
    fn a_hang_up_ends_the_connection_after_the_answers_before_it() {
        let none = format!("HTTP/1.1 {STATUS_HANG_UP} \r\ncontent-length: 0\r\n\r\n");
        assert_eq!(sent_until_failure(none.as_bytes()), "");
        let answers = format!("{HEAD}{BODY}{none}{HEAD}{BODY}");
        assert_eq!(sent_until_failure(answers.as_bytes()), format!("{HEAD_RESTORED}{BODY}"));
    }

    #[test]
    fn a_long_body_is_written_with_its_head_but_not_copied() {
        let body = "etag: x\r\n\r\n".repeat(1 << 16);
        let head = format!("HTTP/1.1 200 OK\r\nContent-Length: {}\r\nEtag: 1\r\n\r\n", body.len());
        let mut wire = wire(usize::MAX, false);
        for _ in 0..3 {
            write(&mut wire, format!("{head}{body}").as_bytes());
        }
        assert_eq!(wire.io.calls, 3);
        assert!(wire.ready.capacity() < MAX_COPIED_BODY);
        assert_eq!(wire.io.taken, format!("{}{body}", head.replace("Etag", "ETag")).repeat(3).as_bytes());
    }

    #[test]
    fn small_answers_take_one_write_together() {
        let mut wire = wire(usize::MAX, false);
        write(&mut wire, format!("{CONTINUE}{HEAD}{BODY}{BODILESS}").as_bytes());
        assert_eq!(wire.io.calls, 1);
    }

    #[test]
    fn callers_may_retry_with_fewer_or_more_bytes() {
        let mut cx = Context::from_waker(Waker::noop());
        let mut wire = wire(usize::MAX, true);
        let answer = format!("{HEAD}{BODY}");
        let mut poll =
            |bytes: &str| Pin::new(&mut wire).poll_write(&mut cx, bytes.as_bytes()).map(Result::ok);
        assert_eq!(poll(&answer), Poll::Pending);
        assert_eq!(poll(&answer[..20]), Poll::Ready(Some(20)));
        assert_eq!(poll(&answer[20..40]), Poll::Pending);
        assert_eq!(poll(&answer[20..]), Poll::Ready(Some(answer.len() - 20)));
        assert_eq!(wire.io.taken, format!("{HEAD_RESTORED}{BODY}").as_bytes());
    }

    #[test]
    fn names_are_found_in_any_case() {
        for name in ["Date", "WWW-Authenticate", "DataServiceId", "x-ms-continuation-NextTableName"] {
            assert_eq!(azure_case(name.to_ascii_lowercase().as_bytes()), Some(name));
            assert_eq!(azure_case(name.to_ascii_uppercase().as_bytes()), Some(name));
        }
        assert_eq!(azure_case(b"Dat"), None);
        assert_eq!(azure_case(b"Dave"), None);
    }
}
