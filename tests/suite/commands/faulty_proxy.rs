//! A proxy before a server that throttles, times out, resets connections and cuts answers.

use std::io::{Read as _, Write as _};
use std::net::{Shutdown, TcpListener, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use crate::promises::chance::Chance;

/// A proxy that fails about half of all requests, in turn in each of its ways.
pub struct FaultyProxy {
    pub address: String,
    pub faults: Arc<AtomicU64>,
}

/// What happens to a request.
#[derive(Debug, Clone, Copy)]
enum Fate {
    Answered,
    /// Answered by the proxy; the server does not see it.
    Refused(&'static str),
    /// The connection ends before the server sees it.
    Reset,
    /// The server does it, and the answer is lost.
    AnswerLost,
    /// The server does it, and half of the answer arrives.
    AnswerCut,
    /// The page ends before its first row.
    EmptyPage,
}

const FATES: [Fate; 14] = [
    Fate::Answered,
    Fate::Refused("503 Service Unavailable"),
    Fate::Answered,
    Fate::Reset,
    Fate::Answered,
    Fate::AnswerLost,
    Fate::Answered,
    Fate::Refused("429 Too Many Requests"),
    Fate::Answered,
    Fate::AnswerCut,
    Fate::Answered,
    Fate::EmptyPage,
    Fate::Answered,
    Fate::Refused("500 Internal Server Error"),
];

/// Calls `meddle` before the first request with these words reaches the server.
pub fn meddling(server: &str, words: &'static str, meddle: impl FnOnce() + Send + 'static) -> String {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
    let address = listener.local_addr().expect("an address").to_string();
    let server = server.to_owned();
    std::thread::spawn(move || {
        let mut meddle = Some(meddle);
        for mut client in listener.incoming().flatten() {
            let Ok(request) = request(&mut client) else { continue };
            if String::from_utf8_lossy(&request).contains(words)
                && let Some(meddle) = meddle.take()
            {
                meddle();
            }
            drop(forward(client, &server, &request, Fate::Answered));
        }
    });
    address
}

impl FaultyProxy {
    pub fn before(server: &str, seed: &str) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
        let address = listener.local_addr().expect("an address").to_string();
        let faults = Arc::new(AtomicU64::new(0));
        let (server, counted, chance) = (server.to_owned(), faults.clone(), Chance::of(seed));
        std::thread::spawn(move || {
            for (number, client) in (0..).zip(listener.incoming().flatten()) {
                let (server, counted, mut chance) = (server.clone(), counted.clone(), chance.fork(number));
                std::thread::spawn(move || {
                    let fate = FATES[usize::try_from(chance.below(FATES.len() as u64)).expect("small")];
                    if !matches!(fate, Fate::Answered) {
                        counted.fetch_add(1, Ordering::Relaxed);
                    }
                    // A client that goes away ends only this thread.
                    drop(serve(client, &server, fate));
                });
            }
        });
        Self { address, faults }
    }
}

fn serve(mut client: TcpStream, server: &str, fate: Fate) -> std::io::Result<()> {
    let request = request(&mut client)?;
    match fate {
        Fate::Reset => return client.shutdown(Shutdown::Both),
        Fate::Refused(status) => {
            let body =
                r#"{"odata.error":{"code":"OperationTimedOut","message":{"lang":"en-US","value":"Later."}}}"#;
            let head = format!(
                "HTTP/1.1 {status}\r\nContent-Type: application/json\r\nContent-Length: {}\r\nConnection: close\r\n\r\n",
                body.len()
            );
            return client.write_all(format!("{head}{body}").as_bytes());
        }
        _ => {}
    }
    if let (Fate::EmptyPage, Some(token)) = (fate, token(&request)) {
        let body = r#"{"value":[]}"#;
        let head = format!(
            "HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: {}\r\n{token}Connection: close\r\n\r\n",
            body.len()
        );
        return client.write_all(format!("{head}{body}").as_bytes());
    }
    forward(client, server, &request, fate)
}

/// Sends a request to the server, and as much of the answer to the client as the fate allows.
fn forward(mut client: TcpStream, server: &str, request: &[u8], fate: Fate) -> std::io::Result<()> {
    let answer = exchange(server, request)?;
    match fate {
        Fate::AnswerLost => {}
        Fate::AnswerCut => client.write_all(&answer[..answer.len() / 2])?,
        _ => client.write_all(&answer)?,
    }
    client.shutdown(Shutdown::Both)
}

/// Sends a request to a server, and returns its whole answer.
pub fn exchange(server: &str, request: &[u8]) -> std::io::Result<Vec<u8>> {
    let mut upstream = TcpStream::connect(server)?;
    let at = request.windows(2).position(|window| window == b"\r\n").expect("a first line") + 2;
    upstream.write_all(&request[..at])?;
    upstream.write_all(b"Connection: close\r\n")?;
    upstream.write_all(&request[at..])?;
    let mut answer = Vec::new();
    upstream.read_to_end(&mut answer)?;
    Ok(answer)
}

/// Reads one request, whose body has a length.
pub fn request(client: &mut TcpStream) -> std::io::Result<Vec<u8>> {
    let mut read = Vec::new();
    let mut buffer = [0; 16 << 10];
    loop {
        if let Some(end) = read.windows(4).position(|window| window == b"\r\n\r\n") {
            let head = String::from_utf8_lossy(&read[..end]).to_ascii_lowercase();
            let length = head.lines().find_map(|line| line.strip_prefix("content-length:"));
            let length: usize = length.map_or(0, |length| length.trim().parse().expect("a length"));
            if read.len() >= end + 4 + length {
                return Ok(read);
            }
        }
        match client.read(&mut buffer)? {
            0 => return Err(std::io::ErrorKind::UnexpectedEof.into()),
            more => read.extend_from_slice(&buffer[..more]),
        }
    }
}

/// The continuation token of a query, as headers of an answer.
fn token(request: &[u8]) -> Option<String> {
    let text = String::from_utf8_lossy(request);
    let target = text.lines().next()?.split(' ').nth(1)?;
    let query = target.split_once('?')?.1;
    let part = |name: &str| query.split('&').find_map(|pair| pair.strip_prefix(name)?.strip_prefix('='));
    let (partition, row) = (part("NextPartitionKey")?, part("NextRowKey")?);
    let plain = |text: &str| text.replace("%21", "!");
    Some(format!(
        "x-ms-continuation-NextPartitionKey: {}\r\nx-ms-continuation-NextRowKey: {}\r\n",
        plain(partition),
        plain(row)
    ))
}
