//! An HTTP/2 client that sends the frames that it is told to, however wrong.

use std::io::{ErrorKind, Read, Write};
use std::net::TcpStream;
use std::time::Duration;

use tokio_rustls::rustls::{ClientConnection, StreamOwned};

use crate::support::client::Request;
use crate::support::http::Wire;
use crate::tls::trusting;

pub const DATA: u8 = 0;
pub const HEADERS: u8 = 1;
pub const RST_STREAM: u8 = 3;
pub const SETTINGS: u8 = 4;
pub const PING: u8 = 6;
pub const GOAWAY: u8 = 7;
pub const WINDOW_UPDATE: u8 = 8;
pub const CONTINUATION: u8 = 9;

pub const END_STREAM: u8 = 1;
pub const ACK: u8 = 1;
pub const END_HEADERS: u8 = 4;

pub const MAX_CONCURRENT_STREAMS: u16 = 3;
pub const INITIAL_WINDOW_SIZE: u16 = 4;

pub const REFUSED_STREAM: u32 = 7;
pub const CANCEL: u32 = 8;

/// Bytes of a frame that every server takes.
const MAX_FRAME: usize = 16 * 1024;

#[derive(Debug, Clone)]
pub struct Frame {
    pub kind: u8,
    pub flags: u8,
    pub stream: u32,
    pub payload: Vec<u8>,
}

impl Frame {
    pub fn ends_stream(&self) -> bool {
        matches!(self.kind, DATA | HEADERS) && self.flags & END_STREAM != 0
    }

    /// The reason that a stream is reset for.
    pub fn reason(&self) -> u32 {
        u32::from_be_bytes(self.payload[..4].try_into().expect("four bytes"))
    }

    /// The value of a setting.
    pub fn setting(&self, wanted: u16) -> Option<u32> {
        let found = self.payload.chunks_exact(6).find(|entry| entry[..2] == wanted.to_be_bytes())?;
        Some(u32::from_be_bytes(found[2..].try_into().expect("four bytes")))
    }
}

/// What came within a while.
pub enum Came {
    Frame(Frame),
    Nothing,
    End,
}

/// A connection. Settings and pings of the server are confirmed as they come.
pub struct Connection {
    stream: StreamOwned<ClientConnection, TcpStream>,
    read: Vec<u8>,
}

impl Connection {
    /// Encrypts a connection, and sends nothing more.
    pub fn silent(address: &str) -> Self {
        let wire = Wire::new(address);
        let mut stream = wire.connect_tls(&trusting(&[b"h2"]));
        stream.conn.complete_io(&mut stream.sock).expect("a handshake");
        assert_eq!(stream.conn.alpn_protocol(), Some(&b"h2"[..]));
        Self { stream, read: Vec::new() }
    }

    /// Opens a connection with these settings.
    pub fn open(address: &str, settings: &[(u16, u32)]) -> Self {
        let mut connection = Self::silent(address);
        connection.write(b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n");
        connection.settings(settings);
        connection
    }

    fn write(&mut self, bytes: &[u8]) -> bool {
        self.stream.write_all(bytes).is_ok()
    }

    /// Sends a frame; whether the connection is still there.
    pub fn send(&mut self, kind: u8, flags: u8, stream: u32, payload: &[u8]) -> bool {
        let length = u32::try_from(payload.len()).expect("a short payload").to_be_bytes();
        let mut bytes = length[1..].to_vec();
        bytes.extend([kind, flags]);
        bytes.extend(stream.to_be_bytes());
        bytes.extend(payload);
        self.write(&bytes)
    }

    pub fn settings(&mut self, settings: &[(u16, u32)]) -> bool {
        let payload: Vec<u8> = settings
            .iter()
            .flat_map(|(name, value)| [&name.to_be_bytes()[..], &value.to_be_bytes()].concat())
            .collect();
        self.send(SETTINGS, 0, 0, &payload)
    }

    /// Lets so many more bytes come, on a stream or, with 0, on the connection.
    pub fn open_window(&mut self, stream: u32, bytes: u32) -> bool {
        self.send(WINDOW_UPDATE, 0, stream, &bytes.to_be_bytes())
    }

    /// Sends a head in as many frames as it needs.
    pub fn head(&mut self, stream: u32, block: &[u8], end: bool) -> bool {
        let mut pieces = block.chunks(MAX_FRAME).peekable();
        let mut kind = HEADERS;
        let mut flags = if end { END_STREAM } else { 0 };
        while let Some(piece) = pieces.next() {
            let last = if pieces.peek().is_none() { END_HEADERS } else { 0 };
            if !self.send(kind, flags | last, stream, piece) {
                return false;
            }
            (kind, flags) = (CONTINUATION, 0);
        }
        true
    }

    /// Sends a request without a body.
    pub fn ask(&mut self, stream: u32, request: &Request<'_>) -> bool {
        self.head(stream, &block(request), true)
    }

    /// The next frame; `None` at the end.
    pub fn next(&mut self) -> Option<Frame> {
        match self.next_within(Duration::from_secs(45)) {
            Came::Frame(frame) => Some(frame),
            Came::End => None,
            Came::Nothing => panic!("nothing comes"),
        }
    }

    /// All frames up to the end.
    pub fn rest(&mut self) -> Vec<Frame> {
        std::iter::from_fn(|| self.next()).collect()
    }

    /// What comes next within so much time.
    pub fn next_within(&mut self, patience: Duration) -> Came {
        loop {
            if let Some(frame) = self.parsed() {
                self.confirm(&frame);
                return Came::Frame(frame);
            }
            self.stream.sock.set_read_timeout(Some(patience)).expect("a time-out can be set");
            let mut bytes = [0; 64 * 1024];
            match self.stream.read(&mut bytes) {
                Ok(0) => return Came::End,
                Ok(count) => self.read.extend_from_slice(&bytes[..count]),
                Err(e) if matches!(e.kind(), ErrorKind::WouldBlock | ErrorKind::TimedOut) => {
                    return Came::Nothing;
                }
                Err(_) => return Came::End,
            }
        }
    }

    fn parsed(&mut self) -> Option<Frame> {
        let head = self.read.get(..9)?;
        let length = u32::from_be_bytes([0, head[0], head[1], head[2]]) as usize;
        let (kind, flags) = (head[3], head[4]);
        let stream = u32::from_be_bytes(head[5..9].try_into().expect("four bytes"));
        let payload = self.read.get(9..9 + length)?.to_vec();
        self.read.drain(..9 + length);
        Some(Frame { kind, flags, stream, payload })
    }

    fn confirm(&mut self, frame: &Frame) {
        match frame.kind {
            SETTINGS if frame.flags & ACK == 0 => self.send(SETTINGS, ACK, 0, &[]),
            PING if frame.flags & ACK == 0 => self.send(PING, ACK, 0, &frame.payload),
            _ => true,
        };
    }
}

/// The head of a request as HPACK has it, without its tables.
pub fn block(request: &Request<'_>) -> Vec<u8> {
    let bytes = request.bytes();
    let mut slots = [httparse::EMPTY_HEADER; 64];
    let mut parsed = httparse::Request::new(&mut slots);
    parsed.parse(&bytes).expect("a request").unwrap();
    let host = parsed.headers.iter().find(|h| h.name == "Host").expect("a host").value;
    let mut block = Vec::new();
    field(&mut block, ":method", parsed.method.expect("a verb").as_bytes());
    field(&mut block, ":scheme", b"https");
    field(&mut block, ":authority", host);
    field(&mut block, ":path", parsed.path.expect("a path").as_bytes());
    for header in parsed.headers.iter().filter(|h| h.name != "Host") {
        field(&mut block, &header.name.to_ascii_lowercase(), header.value);
    }
    block
}

/// Adds a field in full.
pub fn field(block: &mut Vec<u8>, name: &str, value: &[u8]) {
    block.push(0);
    for text in [name.as_bytes(), value] {
        length(block, text.len());
        block.extend(text);
    }
}

fn length(block: &mut Vec<u8>, length: usize) {
    let Some(mut rest) = length.checked_sub(127) else {
        return block.push(length as u8);
    };
    block.push(127);
    while rest >= 128 {
        block.push((rest % 128) as u8 | 128);
        rest /= 128;
    }
    block.push(rest as u8);
}
