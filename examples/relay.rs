//! The least that a server between HTTP and PostgreSQL can do, as a floor to
//! compare point reads with.
//!
//! For every request that comes it sends one prepared statement, always for the
//! same key, and answers with what comes back. It looks at nothing: no address, no
//! signature, no JSON. Each client has a thread and a database connection of its
//! own, with blocking calls. `scripts/bench` runs it for the row "floor".
//!
//! ```text
//! cargo run --release --example relay -- SOCKET DATABASE USER BUCKET PK RK TABLE_NO
//! ```
//!
//! It prints its address and serves until it is ended.

use std::io::{self, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::os::unix::net::UnixStream;

/// The statement of a point read.
const READ: &str = "SELECT e.modified, e.properties FROM tables t \
     LEFT JOIN entities e ON e.bucket = $1 AND e.pk = $2 AND e.rk = $3 WHERE t.table_no = $4";
/// The settings that Rowhouse gives its own sessions.
const SESSION: &str = "-c plan_cache_mode=force_generic_plan -c jit=off -c enable_seqscan=off \
     -c enable_bitmapscan=off -c enable_hashjoin=off -c enable_mergejoin=off";
/// Bytes of a request, and of what the database answers, at most.
const ROOM: usize = 64 * 1024;

fn main() -> io::Result<()> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let [socket, database, user, key @ ..] = arguments.as_slice() else {
        return Err(io::Error::other("SOCKET DATABASE USER BUCKET PK RK TABLE_NO"));
    };
    let listener = TcpListener::bind("127.0.0.1:0")?;
    println!("http://{},", listener.local_addr()?);
    for client in listener.incoming() {
        let database = connect(socket, database, user)?;
        let round = round(key);
        let client = client?;
        std::thread::spawn(move || relay(client, database, &round));
    }
    Ok(())
}

/// Answers a client until it goes.
fn relay(mut client: TcpStream, mut database: UnixStream, round: &[u8]) -> io::Result<()> {
    client.set_nodelay(true)?;
    let (mut request, mut rows, mut answer) = (vec![0; ROOM], Vec::with_capacity(ROOM), Vec::new());
    loop {
        let mut length = 0;
        while !request[..length].ends_with(b"\r\n\r\n") {
            match client.read(&mut request[length..])? {
                0 => return Ok(()),
                more => length += more,
            }
        }
        database.write_all(round)?;
        read_to_ready(&mut database, &mut rows)?;
        answer.clear();
        write!(answer, "HTTP/1.1 200 OK\r\nContent-Length: {}\r\n\r\n", rows.len())?;
        answer.extend_from_slice(&rows);
        client.write_all(&answer)?;
    }
}

/// A session that has the statement prepared.
fn connect(socket: &str, database: &str, user: &str) -> io::Result<UnixStream> {
    let mut stream = UnixStream::connect(socket)?;
    let mut start = 196_608_u32.to_be_bytes().to_vec();
    for text in ["user", user, "database", database, "options", SESSION, ""] {
        push_text(&mut start, text);
    }
    let mut message = (start.len() as u32 + 4).to_be_bytes().to_vec();
    message.append(&mut start);
    stream.write_all(&message)?;
    read_to_ready(&mut stream, &mut Vec::new())?;
    let mut parse = Vec::new();
    push_text(&mut parse, "read");
    push_text(&mut parse, READ);
    parse.extend([0, 0]);
    let mut message = Vec::new();
    push_message(&mut message, b'P', &parse);
    push_message(&mut message, b'S', &[]);
    stream.write_all(&message)?;
    read_to_ready(&mut stream, &mut Vec::new())?;
    Ok(stream)
}

/// Bind, execute and sync for one key.
fn round(key: &[String]) -> Vec<u8> {
    let mut bind = Vec::new();
    push_text(&mut bind, "");
    push_text(&mut bind, "read");
    bind.extend([0, 0]);
    bind.extend((key.len() as u16).to_be_bytes());
    for value in key {
        bind.extend((value.len() as u32).to_be_bytes());
        bind.extend(value.bytes());
    }
    // All columns in their binary form.
    bind.extend([0, 1, 0, 1]);
    let mut round = Vec::new();
    push_message(&mut round, b'B', &bind);
    push_message(&mut round, b'E', &[0; 5]);
    push_message(&mut round, b'S', &[]);
    round
}

fn push_text(message: &mut Vec<u8>, text: &str) {
    message.extend(text.bytes());
    message.push(0);
}

fn push_message(messages: &mut Vec<u8>, kind: u8, body: &[u8]) {
    messages.push(kind);
    messages.extend((body.len() as u32 + 4).to_be_bytes());
    messages.extend(body);
}

/// Reads until the database waits for the next statement.
fn read_to_ready(database: &mut UnixStream, read: &mut Vec<u8>) -> io::Result<()> {
    read.clear();
    let (mut piece, mut at) = ([0; 16 * 1024], 0);
    loop {
        while let Some(head) = read.get(at..at + 5) {
            let length = u32::from_be_bytes([head[1], head[2], head[3], head[4]]) as usize;
            match head[0] {
                b'E' => return Err(io::Error::other("the database refused")),
                b'Z' if read.len() > at + length => return Ok(()),
                b'Z' => break,
                _ => at += length + 1,
            }
        }
        match database.read(&mut piece)? {
            0 => return Err(io::ErrorKind::UnexpectedEof.into()),
            more => read.extend_from_slice(&piece[..more]),
        }
    }
}
