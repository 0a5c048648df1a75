//! Servers whose answers a test writes, and proxies before a server that change what is asked or answered.

use std::io::{Read as _, Write as _};
use std::net::{Shutdown, TcpListener, TcpStream};
use std::sync::Arc;

/// Answers the one request of each connection, each in a thread of its own; without an answer, the connection ends.
/// Returns the address.
pub fn scripted(answer: impl Fn(&[u8]) -> Option<Vec<u8>> + Send + Sync + 'static) -> String {
    scripted_at("127.0.0.1:0", answer)
}

/// The same at this address.
pub fn scripted_at(
    address: &str,
    answer: impl Fn(&[u8]) -> Option<Vec<u8>> + Send + Sync + 'static,
) -> String {
    let listener = TcpListener::bind(address).expect("an address that nobody has");
    let address = listener.local_addr().expect("an address").to_string();
    let answer = Arc::new(answer);
    // It ends with the tests, and a client that goes away ends only its thread.
    std::thread::spawn(move || {
        for mut client in listener.incoming().flatten() {
            let answer = Arc::clone(&answer);
            std::thread::spawn(move || -> std::io::Result<()> {
                let request = request(&mut client)?;
                client.write_all(&answer(&request).unwrap_or_default())?;
                client.shutdown(Shutdown::Both)
            });
        }
    });
    address
}

/// An answer that ends its connection; the head is the status and further headers.
pub fn answer(head: &str, body: impl AsRef<[u8]>) -> Vec<u8> {
    let body = body.as_ref();
    let length = body.len();
    let head = format!("HTTP/1.1 {head}\r\nContent-Length: {length}\r\nConnection: close\r\n\r\n");
    [head.as_bytes(), body].concat()
}

/// An answer of JSON with status 200.
pub fn json_answer(body: impl AsRef<[u8]>) -> Vec<u8> {
    answer("200 OK\r\nContent-Type: application/json", body)
}

/// The first line of a request.
pub fn first_line(request: &[u8]) -> String {
    String::from_utf8_lossy(request).lines().next().unwrap_or_default().to_owned()
}

/// Its method and target apart.
pub fn target(request: &[u8]) -> String {
    first_line(request).split(' ').nth(1).expect("a target").to_owned()
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
fn request(client: &mut TcpStream) -> std::io::Result<Vec<u8>> {
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
