//! One connection that asks and waits, over and over.

use std::io;

use memchr::memmem;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;

/// Bytes that are read at once.
const READ: usize = 64 * 1024;

pub struct Connection {
    stream: TcpStream,
    received: Vec<u8>,
    chunks: Vec<u8>,
}

/// An answer, valid until the next one.
pub struct Answer<'a> {
    pub status: u16,
    head: &'a [u8],
    pub body: &'a [u8],
}

/// How long the body is.
enum Framing {
    Length(usize),
    Chunked,
}

impl Connection {
    pub async fn open(address: &str) -> io::Result<Self> {
        let stream = TcpStream::connect(address).await?;
        stream.set_nodelay(true)?;
        Ok(Self { stream, received: Vec::with_capacity(READ), chunks: Vec::new() })
    }

    pub async fn exchange(&mut self, request: &[u8]) -> io::Result<Answer<'_>> {
        self.stream.write_all(request).await?;
        self.received.clear();
        let end = self.read_head().await?;
        let head = &self.received[..end];
        let status = status(head).ok_or_else(|| invalid("no status"))?;
        match framing(head, status) {
            Framing::Length(length) => {
                self.read_to(end + length).await?;
                let (head, rest) = self.received.split_at(end);
                Ok(Answer { status, head, body: &rest[..length] })
            }
            Framing::Chunked => {
                self.read_chunks(end).await?;
                Ok(Answer { status, head: &self.received[..end], body: &self.chunks })
            }
        }
    }

    /// Reads up to the empty line; where the body starts.
    async fn read_head(&mut self) -> io::Result<usize> {
        loop {
            if let Some(at) = memmem::find(&self.received, b"\r\n\r\n") {
                return Ok(at + 4);
            }
            self.read_more(READ).await?;
        }
    }

    async fn read_to(&mut self, length: usize) -> io::Result<()> {
        while self.received.len() < length {
            self.read_more(length - self.received.len()).await?;
        }
        Ok(())
    }

    async fn read_more(&mut self, room: usize) -> io::Result<()> {
        self.received.reserve(room);
        match self.stream.read_buf(&mut self.received).await? {
            0 => Err(io::ErrorKind::UnexpectedEof.into()),
            _ => Ok(()),
        }
    }

    async fn read_chunks(&mut self, mut at: usize) -> io::Result<()> {
        self.chunks.clear();
        loop {
            let line_end = loop {
                match memmem::find(&self.received[at..], b"\r\n") {
                    Some(end) => break at + end,
                    None => self.read_more(READ).await?,
                }
            };
            let size = std::str::from_utf8(&self.received[at..line_end])
                .ok()
                .and_then(|text| usize::from_str_radix(text.split(';').next()?.trim(), 16).ok())
                .ok_or_else(|| invalid("no chunk size"))?;
            let start = line_end + 2;
            self.read_to(start + size + 2).await?;
            self.chunks.extend_from_slice(&self.received[start..start + size]);
            at = start + size + 2;
            if size == 0 {
                return Ok(());
            }
        }
    }
}

impl Answer<'_> {
    /// The value of a header whose name is given in lower case.
    pub fn header(&self, name: &str) -> Option<&str> {
        header(self.head, name)
    }
}

fn invalid(what: &str) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, what)
}

/// From `HTTP/1.1 200 OK`.
pub fn status(head: &[u8]) -> Option<u16> {
    std::str::from_utf8(head.get(9..12)?).ok()?.parse().ok()
}

fn framing(head: &[u8], status: u16) -> Framing {
    if status == 204 || status == 304 {
        return Framing::Length(0);
    }
    match header(head, "content-length").and_then(|text| text.parse().ok()) {
        Some(length) => Framing::Length(length),
        None if header(head, "transfer-encoding").is_some() => Framing::Chunked,
        None => Framing::Length(0),
    }
}

fn header<'a>(head: &'a [u8], name: &str) -> Option<&'a str> {
    head.split(|byte| *byte == b'\n').find_map(|line| {
        let (found, value) = line.split_at_checked(name.len())?;
        let value = found.eq_ignore_ascii_case(name.as_bytes()).then_some(value)?.strip_prefix(b":")?;
        std::str::from_utf8(value).ok().map(str::trim)
    })
}
