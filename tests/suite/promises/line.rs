//! A connection to a server that may be killed at any moment.

use std::io::{Read, Write};
use std::net::TcpStream;
use std::sync::{Arc, RwLock};
use std::time::Duration;

use crate::support::client::Request;
use crate::support::http::{Raw, parse_head};

/// How long an answer may take. A server that is gone closes its connections, so
/// that this is for one that hangs.
const PATIENCE: Duration = Duration::from_secs(60);

/// What became of a request.
#[derive(Debug)]
pub enum Fate {
    Answered(Raw),
    /// No connection could be made: nothing was asked.
    Unsent,
    /// The connection ended before the answer did: it may have been done.
    Lost,
}

impl Raw {
    /// A header's value.
    pub fn header(&self, name: &str) -> Option<&str> {
        self.headers.iter().find(|(n, _)| n.eq_ignore_ascii_case(name)).map(|(_, v)| v.as_str())
    }

    /// The body as JSON.
    pub fn json(&self) -> serde_json::Value {
        serde_json::from_slice(&self.body).unwrap_or_else(|e| panic!("not JSON ({e}): {self:?}"))
    }
}

/// Where a server listens; another place after each start.
#[derive(Clone, Default)]
pub struct Address(Arc<RwLock<String>>);

impl Address {
    pub fn of(address: &str) -> Self {
        Self(Arc::new(RwLock::new(address.to_owned())))
    }

    pub fn set(&self, address: &str) {
        *self.0.write().expect("nobody panics while it is held") = address.to_owned();
    }

    pub fn get(&self) -> String {
        self.0.read().expect("nobody panics while it is held").clone()
    }
}

/// One client's connection, made anew when it is gone.
pub struct Line {
    address: Address,
    stream: Option<TcpStream>,
}

impl Line {
    pub fn new(address: &Address) -> Self {
        Self { address: address.clone(), stream: None }
    }

    /// Sends a request once and waits for what becomes of it.
    pub fn ask(&mut self, request: &Request<'_>) -> Fate {
        self.ask_bytes(&request.bytes())
    }

    /// As [`Line::ask`], with the request as it goes over the wire.
    pub fn ask_bytes(&mut self, request: &[u8]) -> Fate {
        let stream = match self.stream.take() {
            Some(stream) => Some(stream),
            None => self.connect(),
        };
        let Some(mut stream) = stream else { return Fate::Unsent };
        if stream.write_all(request).is_err() {
            return Fate::Lost;
        }
        match read(&mut stream) {
            Some(raw) => {
                if raw.header("connection") != Some("close") {
                    self.stream = Some(stream);
                }
                Fate::Answered(raw)
            }
            None => Fate::Lost,
        }
    }

    fn connect(&self) -> Option<TcpStream> {
        let stream = TcpStream::connect(self.address.get()).ok()?;
        stream.set_read_timeout(Some(PATIENCE)).ok()?;
        stream.set_write_timeout(Some(PATIENCE)).ok()?;
        stream.set_nodelay(true).ok()?;
        Some(stream)
    }
}

/// Reads the only answer on a connection, which has a length; `None` if it does
/// not come, or not whole.
pub fn read(stream: &mut TcpStream) -> Option<Raw> {
    let mut buffer = Vec::new();
    let raw = read_next(stream, &mut buffer);
    assert!(buffer.is_empty(), "more than one answer: {}", String::from_utf8_lossy(&buffer));
    raw
}

/// Reads the next answer; what has come after it stays in the buffer.
pub fn read_next(stream: &mut TcpStream, buffer: &mut Vec<u8>) -> Option<Raw> {
    let (mut raw, used) = loop {
        if let Some(found) = parse_head(buffer) {
            break found;
        }
        fill(stream, buffer)?;
    };
    let length = match raw.status {
        204 | 304 => 0,
        _ => raw.header("content-length")?.parse().ok()?,
    };
    while buffer.len() < used + length {
        fill(stream, buffer)?;
    }
    raw.body = buffer[used..used + length].to_vec();
    buffer.drain(..used + length);
    Some(raw)
}

fn fill(stream: &mut TcpStream, buffer: &mut Vec<u8>) -> Option<()> {
    let mut chunk = [0; 16 * 1024];
    match stream.read(&mut chunk) {
        Ok(0) => None,
        Ok(n) => {
            buffer.extend_from_slice(&chunk[..n]);
            Some(())
        }
        Err(e) if matches!(e.kind(), std::io::ErrorKind::WouldBlock | std::io::ErrorKind::TimedOut) => {
            panic!("the server hangs: no answer within {PATIENCE:?}")
        }
        Err(_) => None,
    }
}
