//! A small blocking HTTP/1.1 client that sends exactly what it is told to:
//! any verb, any target, any header, in the given order and spelling.

use std::io::{ErrorKind, Read, Write};
use std::net::TcpStream;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use tokio_rustls::rustls::pki_types::ServerName;
use tokio_rustls::rustls::{ClientConfig, ClientConnection, StreamOwned};

/// How long one read or write may take.
const PATIENCE: Duration = Duration::from_secs(45);

/// An answer as it came over the wire.
#[derive(Debug, Clone)]
pub struct Raw {
    pub status: u16,
    pub reason: String,
    pub headers: Vec<(String, String)>,
    pub body: Vec<u8>,
}

/// Connections to one server that wait to be used again.
pub struct Wire {
    address: String,
    tls: Option<Arc<ClientConfig>>,
    idle: Mutex<Vec<Box<dyn Stream>>>,
}

/// A connection, plain or encrypted.
pub trait Stream: Read + Write + Send {}

impl<S: Read + Write + Send> Stream for S {}

impl Wire {
    /// Nothing is opened yet.
    pub fn new(address: impl Into<String>) -> Self {
        Self { address: address.into(), tls: None, idle: Mutex::new(Vec::new()) }
    }

    /// Connections are encrypted.
    pub fn over_tls(address: impl Into<String>, tls: Arc<ClientConfig>) -> Self {
        Self { tls: Some(tls), ..Self::new(address) }
    }

    /// How connections are encrypted, if they are.
    pub fn tls(&self) -> Option<&Arc<ClientConfig>> {
        self.tls.as_ref()
    }

    /// `host:port`.
    pub fn address(&self) -> &str {
        &self.address
    }

    /// A fresh connection with time-outs.
    pub fn connect(&self) -> TcpStream {
        let stream = TcpStream::connect(&self.address)
            .unwrap_or_else(|e| panic!("no connection to {}: {e}", self.address));
        stream.set_read_timeout(Some(PATIENCE)).expect("a time-out can be set");
        stream.set_write_timeout(Some(PATIENCE)).expect("a time-out can be set");
        stream.set_nodelay(true).expect("nodelay can be set");
        stream
    }

    /// A fresh connection, encrypted if they are.
    fn open(&self) -> Box<dyn Stream> {
        match &self.tls {
            None => Box::new(self.connect()),
            Some(tls) => Box::new(self.connect_tls(tls)),
        }
    }

    /// A fresh encrypted connection.
    pub fn connect_tls(&self, tls: &Arc<ClientConfig>) -> StreamOwned<ClientConnection, TcpStream> {
        let name = ServerName::try_from("127.0.0.1").expect("an address");
        let connection = ClientConnection::new(Arc::clone(tls), name).expect("a connection");
        StreamOwned::new(connection, self.connect())
    }

    /// Sends bytes, reads one answer. A kept connection that turns out to be
    /// closed before it answered anything is replaced once.
    pub fn exchange(&self, verb: &str, request: &[u8]) -> Raw {
        let kept = self.idle.lock().expect("no test panics while it holds the lock").pop();
        if let Some(stream) = kept
            && let Some(raw) = self.attempt(stream, verb, request)
        {
            return raw;
        }
        self.attempt(self.open(), verb, request)
            .unwrap_or_else(|| panic!("{} closed the connection without an answer", self.address))
    }

    fn attempt(&self, mut stream: Box<dyn Stream>, verb: &str, request: &[u8]) -> Option<Raw> {
        // A server may refuse and close before it has read all of a large
        // body, so a failed write still leaves an answer to look for.
        let sent = stream.write_all(request).is_ok();
        let (raw, reusable) = read_answer(&mut stream, verb)?;
        if sent && reusable {
            self.idle.lock().expect("no test panics while it holds the lock").push(stream);
        }
        Some(raw)
    }
}

/// Reads one answer; `None` if the connection ends before its first byte.
/// The flag tells whether the connection can carry another request.
pub fn read_answer(stream: &mut impl Read, verb: &str) -> Option<(Raw, bool)> {
    let mut buffer = Vec::with_capacity(8 * 1024);
    loop {
        let (raw, used) = read_head(stream, &mut buffer)?;
        buffer.drain(..used);
        if raw.status != 100 {
            return Some(read_body(stream, verb, raw, buffer));
        }
    }
}

fn read_head(stream: &mut impl Read, buffer: &mut Vec<u8>) -> Option<(Raw, usize)> {
    loop {
        if let Some(found) = parse_head(buffer) {
            return Some(found);
        }
        if fill(stream, buffer) == 0 {
            assert!(buffer.is_empty(), "the answer broke off: {}", String::from_utf8_lossy(buffer));
            return None;
        }
    }
}

/// The head that a buffer begins with, and its length; `None` as long as it is not whole.
pub fn parse_head(buffer: &[u8]) -> Option<(Raw, usize)> {
    let mut slots = [httparse::EMPTY_HEADER; 64];
    let mut parsed = httparse::Response::new(&mut slots);
    match parsed.parse(buffer) {
        Ok(httparse::Status::Complete(used)) => {
            let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
            let headers = parsed.headers.iter().map(|h| (h.name.to_owned(), text(h.value))).collect();
            let raw = Raw {
                status: parsed.code.expect("a complete answer has a status"),
                reason: parsed.reason.unwrap_or_default().to_owned(),
                headers,
                body: Vec::new(),
            };
            Some((raw, used))
        }
        Ok(httparse::Status::Partial) => None,
        Err(e) => panic!("not an HTTP answer ({e}): {}", String::from_utf8_lossy(buffer)),
    }
}

/// Reads some bytes; 0 at the end or when the peer cut the connection.
fn fill(stream: &mut impl Read, buffer: &mut Vec<u8>) -> usize {
    let mut chunk = [0; 64 * 1024];
    match stream.read(&mut chunk) {
        Ok(n) => {
            buffer.extend_from_slice(&chunk[..n]);
            n
        }
        Err(e) if matches!(e.kind(), ErrorKind::WouldBlock | ErrorKind::TimedOut) => {
            panic!("no answer within {PATIENCE:?}")
        }
        Err(_) => 0,
    }
}

fn read_body(stream: &mut impl Read, verb: &str, mut raw: Raw, buffer: Vec<u8>) -> (Raw, bool) {
    let header = |name: &str| {
        raw.headers.iter().find(|(n, _)| n.eq_ignore_ascii_case(name)).map(|(_, v)| v.to_ascii_lowercase())
    };
    let closes = header("connection").is_some_and(|v| v == "close");
    let length = header("content-length").map(|v| v.parse().expect("Content-Length is a number"));
    let chunked = header("transfer-encoding").is_some_and(|v| v == "chunked");
    let bodiless = verb == "HEAD" || raw.status == 204 || raw.status == 304;
    let mut complete = true;
    raw.body = match (bodiless, chunked, length) {
        (true, ..) => Vec::new(),
        (false, true, _) => read_chunks(stream, buffer),
        (false, false, Some(length)) => read_exactly(stream, buffer, length),
        (false, false, None) => {
            complete = false;
            read_to_end(stream, buffer)
        }
    };
    (raw, complete && !closes)
}

fn read_exactly(stream: &mut impl Read, mut buffer: Vec<u8>, length: usize) -> Vec<u8> {
    while buffer.len() < length {
        assert_ne!(fill(stream, &mut buffer), 0, "the body broke off at {} of {length}", buffer.len());
    }
    assert_eq!(buffer.len(), length, "bytes after the end of the body");
    buffer
}

fn read_to_end(stream: &mut impl Read, mut buffer: Vec<u8>) -> Vec<u8> {
    while fill(stream, &mut buffer) > 0 {}
    buffer
}

fn read_chunks(stream: &mut impl Read, mut buffer: Vec<u8>) -> Vec<u8> {
    let mut body = Vec::new();
    let mut at = 0;
    loop {
        let (start, size) = loop {
            match httparse::parse_chunk_size(&buffer[at..]).expect("chunk sizes are hexadecimal") {
                httparse::Status::Complete((used, size)) => break (at + used, size as usize),
                httparse::Status::Partial => {
                    assert_ne!(fill(stream, &mut buffer), 0, "the body broke off between chunks");
                }
            }
        };
        let end = start + size;
        while buffer.len() < end + 2 {
            assert_ne!(fill(stream, &mut buffer), 0, "the body broke off inside a chunk");
        }
        body.extend_from_slice(&buffer[start..end]);
        at = end + 2;
        if size == 0 {
            return body;
        }
    }
}
