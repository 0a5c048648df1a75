//! Hands actix one request at a time.
//!
//! A client may send requests before it has read the responses to earlier ones (pipelining). actix decodes
//! all requests that it has read at once, which can be thousands of requests. While its buffer is full and the
//! client reads no response, actix polls without a pause. [`OneAtATime`] sits between actix and a connection. It
//! hands a request to actix once everything before it has been answered and written, and reads nothing while a
//! response cannot be written. Beyond the current request, it holds at most [`MAX_AHEAD`] bytes.
//!
//! Every byte is handed over unaltered and in order, so a wrong guess can only cause a delay. The guesses
//! rely on these facts about actix:
//!
//! - In each poll, actix reads, decodes, calls the handler, writes, and flushes, in this order. A poll that
//!   drops an unread body flushes before it reads, and not after.
//! - A head is complete only after an empty line, which ends with LF and follows a line that is not empty.
//! - All bytes that were read are decoded in the same poll, unless the handler leaves a body unread.
//! - Connections can carry data, through which a handler finds its connection.
//!
//! The handler reports its state through [`RequestState`]. While a handler works, actix gets only the body for which
//! the handler waits.
//!
//! This file becomes unnecessary once actix decodes a request only after writing the response to the previous one.

use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::task::{Context, Poll, ready};

use actix_web::HttpRequest;
use actix_web::web::BytesMut;
use bytes::Buf as _;
use memchr::memchr_iter;
use tokio::io::{AsyncRead, AsyncReadExt as _, AsyncWrite, ReadBuf};

use super::SendBuffer;

/// Maximum number of bytes that are read at once, that are held back, and that actix gets between two flushes.
const MAX_AHEAD: usize = 64 * 1024;
/// Number of requests that may queue behind others before the send buffer of their connection is limited.
/// Otherwise a client that sends more and reads no responses would fill megabytes of the system's buffers.
const MAX_PIPELINED: usize = 16;
/// Represents the remaining length of a chunked body.
const UNKNOWN_LENGTH: u64 = u64::MAX;

/// The state of a connection's current request. The handler of the request sets it. The connection reads it, and
/// subtracts the body bytes that it hands over.
#[derive(Debug, Clone, Default)]
pub(crate) struct RequestState(Arc<SharedState>);

/// Only the thread of the connection writes this state.
#[derive(Debug, Default)]
struct SharedState {
    is_answering: AtomicBool,
    /// Number of body bytes for which the handler waits.
    wanted: AtomicU64,
}

/// Marks a request as being answered until it is dropped.
pub(crate) struct Answering<'a>(&'a RequestState);

impl RequestState {
    /// Returns the state of the connection on which a request arrived.
    pub(crate) fn of(http: &HttpRequest) -> Self {
        http.conn_data::<Self>().cloned().unwrap_or_default()
    }

    /// Marks the connection as occupied by a request until the response is made.
    pub(crate) fn begin(&self) -> Answering<'_> {
        self.0.is_answering.store(true, Ordering::Relaxed);
        Answering(self)
    }

    /// Waits for a piece of the body. `left` is the number of missing bytes; `None` if the body is chunked.
    pub(crate) async fn receive<T>(&self, left: Option<u64>, piece: impl Future<Output = T>) -> T {
        self.want(left.unwrap_or(UNKNOWN_LENGTH));
        let piece = piece.await;
        self.want(0);
        piece
    }

    /// Returns whether a request has arrived completely and is being answered.
    pub(crate) fn is_busy(&self) -> bool {
        self.is_answering() && self.wanted() == 0
    }

    fn is_answering(&self) -> bool {
        self.0.is_answering.load(Ordering::Relaxed)
    }

    fn wanted(&self) -> u64 {
        self.0.wanted.load(Ordering::Relaxed)
    }

    fn want(&self, bytes: u64) {
        self.0.wanted.store(bytes, Ordering::Relaxed);
    }
}

impl Drop for Answering<'_> {
    fn drop(&mut self) {
        self.0.want(0);
        self.0.0.is_answering.store(false, Ordering::Relaxed);
    }
}

/// A connection that is read only as fast as requests are answered.
#[derive(Debug)]
pub(crate) struct OneAtATime<IO> {
    io: IO,
    state: RequestState,
    /// Bytes that were read, but not handed over yet.
    ahead: BytesMut,
    head_scan: HeadScan,
    /// Whether the end of a head was handed over since the last flush.
    has_handed_over_head: bool,
    /// Bytes that were handed over since the last flush.
    handed_over: usize,
    /// Number of requests that were handed over while another one seemed to wait behind them. The count restarts when
    /// no bytes are held back.
    pipelined: usize,
    has_limited_send_buffer: bool,
    /// Whether the connection accepts no response bytes at the moment.
    is_blocked: bool,
    /// Whether a read was refused, so that actix must be woken to read again.
    was_refused: bool,
}

impl<IO: SendBuffer> OneAtATime<IO> {
    /// Wraps a new connection.
    pub(crate) fn new(io: IO, state: RequestState) -> Self {
        Self {
            io,
            state,
            ahead: BytesMut::new(),
            head_scan: HeadScan::default(),
            has_handed_over_head: false,
            handed_over: 0,
            pipelined: 0,
            has_limited_send_buffer: false,
            is_blocked: false,
            was_refused: false,
        }
    }

    /// Returns the state of the connection's current request.
    pub(crate) const fn request_state(&self) -> &RequestState {
        &self.state
    }

    /// Returns how many of the next bytes may be handed over now, and counts them as handed over.
    fn admit(&mut self, bytes: &[u8]) -> usize {
        if !self.state.is_answering() {
            return self.admit_up_to_head(bytes);
        }
        match self.state.wanted() {
            // The scan is not reset, because the beginning of the next head may have been handed over already.
            0 => 0,
            UNKNOWN_LENGTH => self.admit_up_to_head(bytes),
            wanted => {
                let admitted = usize::try_from(wanted).map_or(bytes.len(), |wanted| wanted.min(bytes.len()));
                self.state.want(wanted - admitted as u64);
                self.head_scan = HeadScan::default();
                admitted
            }
        }
    }

    /// Admits bytes that contain the end of at most one head.
    fn admit_up_to_head(&mut self, bytes: &[u8]) -> usize {
        let bytes = &bytes[..bytes.len().min(MAX_AHEAD - self.handed_over)];
        let before = self.head_scan;
        let admitted = match self.head_scan.end_in(bytes) {
            None => bytes.len(),
            Some(_) if self.has_handed_over_head => {
                self.head_scan = before;
                0
            }
            Some(end) => {
                self.has_handed_over_head = true;
                if self.head_scan.end_in(&bytes[end..]).is_some() {
                    self.head_scan = HeadScan::default();
                    self.pipelined += 1;
                    self.limit_send_buffer();
                    end
                } else {
                    bytes.len()
                }
            }
        };
        self.handed_over += admitted;
        admitted
    }

    /// Limits the send buffer once if many requests queue behind others.
    fn limit_send_buffer(&mut self) {
        if self.pipelined >= MAX_PIPELINED && !self.has_limited_send_buffer {
            self.has_limited_send_buffer = true;
            self.io.limit_send_buffer();
        }
    }

    #[cold]
    fn refuse<T>(&mut self, cx: &Context<'_>) -> Poll<T> {
        self.was_refused = true;
        if !self.is_blocked && !self.state.is_answering() {
            // If this poll drops an unread body, no flush follows that would wake actix.
            cx.waker().wake_by_ref();
        }
        Poll::Pending
    }

    #[cold]
    fn read_ahead_bytes(&mut self, cx: &Context<'_>, buffer: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        let mut ahead = std::mem::take(&mut self.ahead);
        let admitted = self.admit(&ahead[..ahead.len().min(buffer.remaining())]);
        buffer.put_slice(&ahead[..admitted]);
        ahead.advance(admitted);
        if ahead.is_empty() {
            self.pipelined = 0;
        } else {
            self.ahead = ahead;
        }
        if admitted == 0 { self.refuse(cx) } else { Poll::Ready(Ok(())) }
    }

    /// Allows the next request, because everything before it has been written.
    fn allow_next_request(&mut self, cx: &Context<'_>) {
        self.is_blocked = false;
        self.has_handed_over_head = false;
        self.handed_over = 0;
        if self.was_refused && !self.state.is_busy() {
            self.was_refused = false;
            cx.waker().wake_by_ref();
        }
    }
}

impl<IO: AsyncRead + SendBuffer + Unpin> AsyncRead for OneAtATime<IO> {
    fn poll_read(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let this = self.get_mut();
        if this.is_blocked {
            return this.refuse(cx);
        }
        if !this.ahead.is_empty() {
            return this.read_ahead_bytes(cx, buffer);
        }
        let start = buffer.filled().len();
        ready!(Pin::new(&mut (&mut this.io).take(MAX_AHEAD as u64)).poll_read(cx, buffer))?;
        let read = &buffer.filled()[start..];
        let admitted = this.admit(read);
        if admitted < read.len() {
            this.ahead.extend_from_slice(&read[admitted..]);
            buffer.set_filled(start + admitted);
            if admitted == 0 {
                return this.refuse(cx);
            }
        } else {
            this.pipelined = 0;
        }
        Poll::Ready(Ok(()))
    }
}

impl<IO: AsyncWrite + SendBuffer + Unpin> AsyncWrite for OneAtATime<IO> {
    fn poll_write(self: Pin<&mut Self>, cx: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        let this = self.get_mut();
        let outcome = Pin::new(&mut this.io).poll_write(cx, bytes);
        this.is_blocked |= outcome.is_pending();
        outcome
    }

    fn poll_flush(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        let this = self.get_mut();
        let outcome = Pin::new(&mut this.io).poll_flush(cx);
        match outcome {
            Poll::Ready(_) => this.allow_next_request(cx),
            Poll::Pending => this.is_blocked = true,
        }
        outcome
    }

    fn poll_shutdown(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.get_mut().io).poll_shutdown(cx)
    }
}

/// The content of the current line so far.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
enum HeadLine {
    #[default]
    Empty,
    CarriageReturn,
    Text,
}

/// Finds possible ends of heads: an empty line after a line that is not empty. A body may contain such lines too.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
struct HeadScan {
    line: HeadLine,
    /// Whether the current head has had a line that is not empty.
    has_text: bool,
}

impl HeadScan {
    /// Returns the length of these bytes up to the end of the first head. The scan then expects another head.
    fn end_in(&mut self, bytes: &[u8]) -> Option<usize> {
        let mut start = 0;
        for newline in memchr_iter(b'\n', bytes) {
            let line = self.line.followed_by(&bytes[start..newline]);
            start = newline + 1;
            self.line = HeadLine::Empty;
            if line == HeadLine::Text {
                self.has_text = true;
            } else if self.has_text {
                self.has_text = false;
                return Some(start);
            }
        }
        self.line = self.line.followed_by(&bytes[start..]);
        None
    }
}

impl HeadLine {
    const fn followed_by(self, bytes: &[u8]) -> Self {
        match (self, bytes) {
            (line, []) => line,
            (Self::Empty, [b'\r']) => Self::CarriageReturn,
            _ => Self::Text,
        }
    }
}

#[cfg(test)]
mod tests {
    use std::collections::VecDeque;
    use std::sync::Arc;
    use std::sync::atomic::{AtomicUsize, Ordering};
    use std::task::{Wake, Waker};

    use proptest::prelude::*;

    use super::*;

    const GET: &[u8] = b"GET / HTTP/1.1\r\nHost: x\r\n\r\n";

    /// A client that sends pieces, and reads the written bytes unless it is stuck.
    #[derive(Default)]
    struct Client {
        pieces: VecDeque<Vec<u8>>,
        is_stuck: bool,
        /// Number of times that its send buffer was limited.
        limits: AtomicUsize,
    }

    impl AsyncRead for Client {
        fn poll_read(
            mut self: Pin<&mut Self>,
            _: &mut Context<'_>,
            buffer: &mut ReadBuf<'_>,
        ) -> Poll<io::Result<()>> {
            let Some(mut piece) = self.pieces.pop_front() else { return Poll::Pending };
            let rest = piece.split_off(piece.len().min(buffer.remaining()));
            buffer.put_slice(&piece);
            if !rest.is_empty() {
                self.pieces.push_front(rest);
            }
            Poll::Ready(Ok(()))
        }
    }

    impl AsyncWrite for Client {
        fn poll_write(self: Pin<&mut Self>, _: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
            if self.is_stuck { Poll::Pending } else { Poll::Ready(Ok(bytes.len())) }
        }

        fn poll_flush(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
            Poll::Ready(Ok(()))
        }

        fn poll_shutdown(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
            Poll::Ready(Ok(()))
        }
    }

    impl SendBuffer for Client {
        fn limit_send_buffer(&self) {
            self.limits.fetch_add(1, Ordering::Relaxed);
        }
    }

    #[derive(Default)]
    struct Wakes(AtomicUsize);

    impl Wake for Wakes {
        fn wake(self: Arc<Self>) {
            self.0.fetch_add(1, Ordering::Relaxed);
        }
    }

    /// Uses a connection like actix, and answers a request some polls after it has arrived completely.
    struct Actix {
        wire: OneAtATime<Client>,
        state: RequestState,
        wakes: Arc<Wakes>,
        read: Vec<u8>,
        /// Number of the read bytes that are decoded.
        decoded: usize,
        /// Number of requests that are decoded but not answered.
        waiting: usize,
        /// Number of body bytes that the first waiting request lacks.
        left: Option<u64>,
        /// Number of polls until a request is answered.
        work: usize,
        worked: usize,
        answered: usize,
        most_waiting: usize,
    }

    impl Actix {
        fn new(pieces: impl IntoIterator<Item = Vec<u8>>, work: usize) -> Self {
            let (state, pieces) = (RequestState::default(), pieces.into_iter().collect());
            Self {
                wire: OneAtATime::new(Client { pieces, ..Client::default() }, state.clone()),
                state,
                wakes: Arc::default(),
                read: Vec::new(),
                decoded: 0,
                waiting: 0,
                left: None,
                work,
                worked: 0,
                answered: 0,
                most_waiting: 0,
            }
        }

        fn poll(&mut self) {
            let waker = Waker::from(Arc::clone(&self.wakes));
            let mut cx = Context::from_waker(&waker);
            loop {
                let mut room = [0; 8192];
                let mut buffer = ReadBuf::new(&mut room);
                if Pin::new(&mut self.wire).poll_read(&mut cx, &mut buffer).is_pending() {
                    break;
                }
                self.read.extend_from_slice(buffer.filled());
            }
            self.decode();
            self.most_waiting = self.most_waiting.max(self.waiting);
            self.work();
            let blocked =
                self.answered > 0 && Pin::new(&mut self.wire).poll_write(&mut cx, b"x").is_pending();
            if !blocked {
                let _ = Pin::new(&mut self.wire).poll_flush(&mut cx);
            }
        }

        fn decode(&mut self) {
            loop {
                let rest = &self.read[self.decoded..];
                if let Some(left) = self.left.filter(|left| *left > 0) {
                    let taken = (left as usize).min(rest.len());
                    self.left = Some(left - taken as u64);
                    self.decoded += taken;
                    if taken == 0 {
                        return;
                    }
                    continue;
                }
                let mut slots = [httparse::EMPTY_HEADER; 16];
                let mut head = httparse::Request::new(&mut slots);
                let Ok(httparse::Status::Complete(length)) = head.parse(rest) else { return };
                let declared = head.headers.iter().find(|header| header.name == "Content-Length");
                self.left = declared.map(|header| str::from_utf8(header.value).unwrap().parse().unwrap());
                self.decoded += length;
                self.waiting += 1;
                if self.waiting == 1 {
                    std::mem::forget(self.state.begin());
                }
            }
        }

        fn work(&mut self) {
            while self.waiting > 0 {
                self.state.want(self.left.unwrap_or(0));
                if self.left.is_some_and(|left| left > 0) {
                    return;
                }
                self.worked += 1;
                if self.worked <= self.work {
                    // A database would wake it in the same way.
                    self.wakes.0.fetch_add(1, Ordering::Relaxed);
                    return;
                }
                (self.worked, self.left) = (0, None);
                self.waiting -= 1;
                self.answered += 1;
                drop(Answering(&self.state));
                if self.waiting > 0 {
                    std::mem::forget(self.state.begin());
                }
            }
        }

        /// Polls whenever it is woken, and as often as the client sends.
        fn run(&mut self) {
            for _ in 0..1_000_000 {
                let before = self.wakes.0.load(Ordering::Relaxed);
                self.poll();
                let is_woken = self.wakes.0.load(Ordering::Relaxed) > before;
                if !is_woken && self.wire.io.pieces.is_empty() {
                    return;
                }
            }
            panic!("no progress after {} answered requests", self.answered);
        }
    }

    fn post(body: &[u8]) -> Vec<u8> {
        let head = format!("POST / HTTP/1.1\r\nHost: x\r\nContent-Length: {}\r\n\r\n", body.len());
        [head.as_bytes(), body].concat()
    }

    fn requests() -> Vec<u8> {
        let batch = "--b\r\n\r\nPUT / HTTP/1.1\r\n\r\n{}\n\n\n\r\n".repeat(3);
        [GET, &post(b"{\"A\":1}"), b"\r\n\n", &post(batch.as_bytes()), b"G / HTTP/1.0\n\n", GET].concat()
    }

    #[track_caller]
    fn all_are_answered(pieces: Vec<Vec<u8>>, work: usize, count: usize) {
        let sent = pieces.concat();
        let mut actix = Actix::new(pieces, work);
        actix.run();
        assert!(actix.read == sent, "the bytes are unaltered");
        assert_eq!((actix.answered, actix.most_waiting), (count, 1));
        assert!(actix.wire.ahead.is_empty());
    }

    #[test]
    fn requests_in_two_pieces_are_answered_one_at_a_time() {
        let all = requests();
        for at in 0..=all.len() {
            for work in 0..3 {
                all_are_answered(vec![all[..at].to_vec(), all[at..].to_vec()], work, 5);
            }
        }
    }

    #[test]
    fn requests_of_single_bytes_are_answered_one_at_a_time() {
        for work in 0..3 {
            all_are_answered(requests().iter().map(|byte| vec![*byte]).collect(), work, 5);
        }
    }

    #[test]
    fn a_thousand_requests_at_once_are_answered() {
        all_are_answered(vec![GET.repeat(1000)], 1, 1000);
        all_are_answered(vec![b"G / HTTP/1.0\n\n".repeat(1000)], 0, 1000);
    }

    #[test]
    fn the_send_buffer_is_limited_for_clients_that_send_many_requests_ahead() {
        for (count, limits) in [(1, 0), (MAX_PIPELINED, 0), (MAX_PIPELINED + 1, 1), (100, 1)] {
            let mut actix = Actix::new([GET.repeat(count)], 0);
            actix.run();
            let limited = actix.wire.io.limits.load(Ordering::Relaxed);
            assert_eq!((actix.answered, limited), (count, limits));
        }
    }

    #[test]
    fn blank_lines_in_bodies_do_not_count_as_requests() {
        let batch = post(&b"--b\r\n\r\n".repeat(9));
        let count = 3 * MAX_PIPELINED;
        let mut actix = Actix::new(vec![batch; count], 0);
        actix.run();
        assert_eq!((actix.answered, actix.wire.io.limits.load(Ordering::Relaxed)), (count, 0));
    }

    #[test]
    fn a_single_request_is_read_at_once_and_wakes_nothing() {
        for request in [GET.to_vec(), post(b"{\"A\":1}")] {
            let mut actix = Actix::new([request.clone()], 0);
            actix.poll();
            assert_eq!((actix.read.len(), actix.answered), (request.len(), 1));
            assert_eq!(actix.wakes.0.load(Ordering::Relaxed), 0);
        }
    }

    #[test]
    fn a_long_body_comes_in_few_polls() {
        let body = "\r\n\r\n{}".repeat(1 << 18);
        let mut actix = Actix::new([[post(body.as_bytes()), GET.to_vec()].concat()], 0);
        actix.poll();
        actix.poll();
        assert_eq!(actix.answered, 1);
        actix.run();
        assert_eq!((actix.answered, actix.most_waiting), (2, 1));
    }

    #[test]
    fn nothing_is_read_while_an_answer_cannot_be_written() {
        let mut actix = Actix::new([GET.to_vec()], 0);
        actix.wire.io.is_stuck = true;
        actix.run();
        let pieces = std::iter::repeat_with(|| GET.repeat(100)).take(100);
        actix.wire.io.pieces.extend(pieces);
        let before = actix.wakes.0.load(Ordering::Relaxed);
        for _ in 0..10 {
            actix.poll();
        }
        assert_eq!(actix.wakes.0.load(Ordering::Relaxed), before, "it does not wake itself");
        assert_eq!((actix.read.len(), actix.wire.io.pieces.len()), (GET.len(), 100));
        actix.wire.io.is_stuck = false;
        actix.run();
        assert_eq!((actix.answered, actix.most_waiting), (10_001, 1));
    }

    #[test]
    fn little_is_held_beyond_the_current_request() {
        let mut actix = Actix::new(std::iter::repeat_with(|| GET.repeat(2000)).take(20), 1000);
        for _ in 0..500 {
            actix.poll();
        }
        assert_eq!((actix.answered, actix.waiting), (0, 1));
        assert!(actix.read.len() < 2 * GET.len() && actix.wire.ahead.len() <= MAX_AHEAD);
        assert_eq!(actix.wire.io.pieces.len(), 20, "most of the first piece was not read");
    }

    #[test]
    fn endless_heads_and_empty_lines_are_handed_over_in_large_pieces() {
        for bytes in [vec![b'a'; 300_000], b"\r\n".repeat(150_000)] {
            let mut actix = Actix::new([bytes], 0);
            actix.poll();
            assert_eq!(actix.read.len(), MAX_AHEAD);
            actix.run();
            assert_eq!((actix.read.len(), actix.answered), (300_000, 0));
        }
    }

    #[test]
    fn a_chunked_body_with_empty_lines_is_handed_over() {
        let state = RequestState::default();
        let body = b"9\r\na\n\nb\n\nc\n\n\r\n0\r\n\r\n";
        let mut wire =
            OneAtATime::new(Client { pieces: [body.to_vec()].into(), ..Client::default() }, state.clone());
        let _answering = state.begin();
        state.want(UNKNOWN_LENGTH);
        let mut cx = Context::from_waker(Waker::noop());
        let mut read = Vec::new();
        for _ in 0..body.len() {
            let mut room = [0; 100];
            let mut buffer = ReadBuf::new(&mut room);
            let _ = Pin::new(&mut wire).poll_read(&mut cx, &mut buffer);
            read.extend_from_slice(buffer.filled());
            let _ = Pin::new(&mut wire).poll_flush(&mut cx);
        }
        assert_eq!(read, body);
    }

    #[test]
    fn ends_of_heads_are_found_for_all_line_endings() {
        for (text, end) in [
            ("GET\r\n\r\nx", Some(7)),
            ("GET\n\nx", Some(5)),
            ("GET\n\r\nx", Some(6)),
            ("GET\r\n\nx", Some(6)),
            ("\r\n\n\r\nG\n\nx", Some(8)),
            ("\r\n\r\n\r\n", None),
            ("GET\r\nA: b\r\n\r", None),
        ] {
            assert_eq!(HeadScan::default().end_in(text.as_bytes()), end, "{text:?}");
            let mut head_scan = HeadScan::default();
            let found = (1..=text.len()).find(|at| head_scan.end_in(&text.as_bytes()[at - 1..*at]).is_some());
            assert_eq!(found, end, "{text:?}, byte by byte");
        }
    }

    proptest! {
        #[test]
        fn a_pipeline_is_handed_over_unaltered(
            bodies in prop::collection::vec(prop::option::of("[a\r\n]{0,40}"), 1..20),
            cuts in prop::collection::vec(1..60_usize, 1..40),
            work in 0..3_usize,
        ) {
            let one = |body: &Option<String>| match body {
                Some(body) => post(body.as_bytes()),
                None => GET.to_vec(),
            };
            let mut rest: &[u8] = &bodies.iter().flat_map(one).collect::<Vec<_>>();
            let mut pieces = Vec::new();
            for cut in cuts {
                let (piece, after) = rest.split_at(cut.min(rest.len()));
                pieces.push(piece.to_vec());
                rest = after;
            }
            pieces.push(rest.to_vec());
            pieces.retain(|piece| !piece.is_empty());
            all_are_answered(pieces, work, bodies.len());
        }
    }
}
