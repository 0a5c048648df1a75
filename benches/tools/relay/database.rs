//! A session with PostgreSQL that has one statement prepared.

use std::io::{self, Read, Write};
use std::os::unix::net::UnixStream;

use crate::work::Work;

/// The settings that Rowhouse gives its own sessions.
const SESSION: &str = "-c plan_cache_mode=force_generic_plan -c jit=off -c enable_seqscan=off \
     -c enable_bitmapscan=off -c enable_hashjoin=off -c enable_mergejoin=off -c synchronous_commit=on";
/// What the statement is called.
pub const NAME: &str = "work";
/// Bytes that are read at once.
const PIECE: usize = 64 * 1024;

pub struct Database {
    stream: UnixStream,
    piece: Vec<u8>,
}

impl Database {
    pub fn connect(socket: &str, database: &str, user: &str, work: &Work) -> io::Result<Self> {
        let mut start = 196_608_u32.to_be_bytes().to_vec();
        for text in ["user", user, "database", database, "options", SESSION, ""] {
            push_text(&mut start, text);
        }
        let mut message = (start.len() as u32 + 4).to_be_bytes().to_vec();
        message.append(&mut start);
        let mut session = Self { stream: UnixStream::connect(socket)?, piece: vec![0; PIECE] };
        session.ask(&message, &mut Vec::new())?;

        let mut parse = Vec::new();
        push_text(&mut parse, NAME);
        push_text(&mut parse, work.statement());
        parse.extend((work.types().len() as u16).to_be_bytes());
        parse.extend(work.types().iter().flat_map(|oid| oid.to_be_bytes()));
        let mut message = Vec::new();
        push_message(&mut message, b'P', &parse);
        push_message(&mut message, b'S', &[]);
        session.ask(&message, &mut Vec::new())?;
        Ok(session)
    }

    /// Sends messages, and reads until the next ones are waited for.
    pub fn ask(&mut self, messages: &[u8], answer: &mut Vec<u8>) -> io::Result<()> {
        self.stream.write_all(messages)?;
        answer.clear();
        let mut at = 0;
        loop {
            while let Some(head) = answer.get(at..at + 5) {
                let length = u32::from_be_bytes([head[1], head[2], head[3], head[4]]) as usize;
                match head[0] {
                    b'E' => return Err(io::Error::other("the database refused")),
                    b'Z' if answer.len() > at + length => return Ok(()),
                    b'Z' => break,
                    _ => at += length + 1,
                }
            }
            match self.stream.read(&mut self.piece)? {
                0 => return Err(io::ErrorKind::UnexpectedEof.into()),
                more => answer.extend_from_slice(&self.piece[..more]),
            }
        }
    }
}

pub fn push_text(message: &mut Vec<u8>, text: &str) {
    message.extend(text.bytes());
    message.push(0);
}

pub fn push_message(messages: &mut Vec<u8>, kind: u8, body: &[u8]) {
    messages.push(kind);
    messages.extend((body.len() as u32 + 4).to_be_bytes());
    messages.extend(body);
}
