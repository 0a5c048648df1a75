//! The least that a server between HTTP and PostgreSQL can do, as a floor to
//! compare with.
//!
//! For every request that comes it sends one prepared statement, and when all of the
//! answer is there it passes that on. It looks at nothing: no address, no signature,
//! no JSON. Each client has a thread and a database connection of its own, with
//! blocking calls. `scripts/bench` runs it for the rows "floor".
//!
//! ```text
//! cargo run --profile dist --example relay -- SOCKET DATABASE USER read BUCKET PK RK TABLE_NO
//! cargo run --profile dist --example relay -- SOCKET DATABASE USER page BUCKET PK PAST TABLE_NO
//! cargo run --profile dist --example relay -- SOCKET DATABASE USER transaction BUCKET TABLE_NO PROPERTIES
//! ```
//!
//! It prints its address and serves until it is ended.

mod database;
mod work;

use std::io::{self, Read, Write};
use std::net::{TcpListener, TcpStream};

use database::Database;
use work::Work;

/// Bytes of a request at most.
const ROOM: usize = 256 * 1024;

fn main() -> io::Result<()> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let [socket, database, user, operation, values @ ..] = arguments.as_slice() else {
        return Err(io::Error::other("SOCKET DATABASE USER OPERATION …"));
    };
    let listener = TcpListener::bind("127.0.0.1:0")?;
    println!("http://{},", listener.local_addr()?);
    for client in listener.incoming() {
        let work = Work::new(operation, values)?;
        let database = Database::connect(socket, database, user, &work)?;
        let client = client?;
        std::thread::spawn(move || relay(client, database, work));
    }
    Ok(())
}

/// Answers a client until it goes.
fn relay(mut client: TcpStream, mut database: Database, mut work: Work) -> io::Result<()> {
    client.set_nodelay(true)?;
    let (mut request, mut rows, mut answer) = (vec![0; ROOM], Vec::new(), Vec::new());
    while read_request(&mut client, &mut request)? {
        database.ask(work.next(), &mut rows)?;
        answer.clear();
        write!(answer, "HTTP/1.1 {} OK\r\nContent-Length: {}\r\n\r\n", work.status(), rows.len())?;
        answer.extend_from_slice(&rows);
        client.write_all(&answer)?;
    }
    Ok(())
}

/// Reads one request, of which only its length is looked at; `false` at the end.
fn read_request(client: &mut TcpStream, request: &mut [u8]) -> io::Result<bool> {
    let (mut length, mut whole) = (0, None);
    while whole.is_none_or(|whole| length < whole) {
        match client.read(&mut request[length..])? {
            0 => return Ok(false),
            more => length += more,
        }
        whole = whole.or_else(|| whole_length(&request[..length]));
    }
    Ok(true)
}

/// Bytes of the request with its body, once its head is there.
fn whole_length(request: &[u8]) -> Option<usize> {
    let head = memchr::memmem::find(request, b"\r\n\r\n")? + 4;
    let name = b"Content-Length: ";
    let value = &request[memchr::memmem::find(&request[..head], name)? + name.len()..head];
    let digits = value.split(|byte| *byte == b'\r').next()?;
    Some(head + std::str::from_utf8(digits).ok()?.parse::<usize>().ok()?)
}
