//! Clients that pipeline and take no answers: they cost little memory and no time, and are disconnected, on both
//! listeners.

use std::io::{ErrorKind, Write as _};
use std::net::TcpStream;
use std::time::{Duration, Instant};

use serde_json::json;

use super::overload::resident;
use crate::operators::{get, server};
use crate::support::http::Wire;
use crate::support::*;

/// Bytes that each client sends, as far as the server takes them.
const SENT: usize = 1 << 20;
const CLIENTS: usize = 100;
/// More connections than the admin listener keeps.
const MANY: usize = 300;
/// KiB that they may cost together. Requests that are decoded ahead take gigabytes.
const MAX_GROWTH: u64 = 32 * 1024;
/// Less than the admin listener waits for a body.
const PROMPT: Duration = Duration::from_secs(8);

/// Requests whose answers fill everything between a server and its client, and small ones after them.
fn pipeline(large: &[u8], count: usize, host: &str) -> Vec<u8> {
    let mut bytes = large.repeat(count);
    let small = format!("GET / HTTP/1.1\r\nHost:{host}\r\n\r\n");
    while bytes.len() < SENT {
        bytes.extend_from_slice(small.as_bytes());
    }
    bytes
}

/// A request for a page of 240 kB.
fn large_page(client: &Client) -> Vec<u8> {
    let table = client.table();
    for row in ["1", "2", "3", "4"] {
        table.seed(with_keys("p", row, json!({ "A": "x".repeat(30_000), "B": "x".repeat(30_000) })));
    }
    client.request("GET", &format!("/{}()", table.name)).bytes()
}

/// A request to the admin listener for its description, of more than 100 kB.
fn description(admin: &Wire) -> Vec<u8> {
    format!("GET /openapi.json HTTP/1.1\r\nHost: {}\r\n\r\n", admin.address()).into_bytes()
}

/// A connection that has sent as much of this as the server and the system take at once.
fn unread(wire: &Wire, bytes: &[u8]) -> TcpStream {
    let mut stream = wire.connect();
    stream.set_nonblocking(true).expect("a socket");
    let _ = stream.write_all(bytes);
    stream
}

/// Hundredths of a second for which a process has run.
fn ticks(pid: u32) -> u64 {
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).expect("the server runs");
    let (_, fields) = stat.rsplit_once(')').expect("its name");
    let times = fields.split_whitespace().skip(11).take(2);
    times.map(|time| time.parse::<u64>().expect("a number")).sum()
}

/// Waits until a process runs for less than a tenth of a second.
#[track_caller]
fn comes_to_rest(pid: u32) {
    until("rest", || {
        let before = ticks(pid);
        pace(Duration::from_secs(1));
        ticks(pid) - before < 10
    });
}

/// Sends on, byte by byte, until the connection has ended.
#[track_caller]
fn is_disconnected(mut stream: TcpStream) {
    until("the end of the connection", || {
        stream.write(b"G").is_err_and(|error| error.kind() != ErrorKind::WouldBlock)
    });
}

#[test]
fn clients_that_take_no_answers_cost_little_memory_and_no_time() {
    let (server, _) = server("sqlite::memory:", &["--workers", "1", "--body-seconds", "29"]);
    let client = server.client();
    let bytes = pipeline(b"", 0, "x");
    let before = resident(server.pid);
    let held: Vec<_> = (0..CLIENTS).map(|_| unread(client.wire(), &bytes)).collect();
    comes_to_rest(server.pid);
    let after = resident(server.pid);
    println!("{} connections: from {before:?} to {after:?} KiB", held.len());
    assert!(before.zip(after).is_none_or(|(before, after)| after < before + MAX_GROWTH));
    client.get("/Tables?$top=1").expect(200);
}

#[test]
fn clients_that_take_no_answers_are_disconnected_whatever_they_send() {
    let (server, admin) = server("sqlite::memory:", &["--body-seconds", "2"]);
    let client = server.client();
    is_disconnected(unread(client.wire(), &pipeline(&large_page(&client), 20, "x")));
    is_disconnected(unread(&admin, &pipeline(&description(&admin), 60, admin.address())));
    client.get("/Tables?$top=1").expect(200);
}

#[test]
fn probes_are_answered_beside_clients_that_take_no_answers() {
    let (server, admin) = server("sqlite::memory:", &["--body-seconds", "29"]);
    let bytes = pipeline(&description(&admin), 60, admin.address());
    let before = resident(server.pid);
    let held: Vec<_> = (0..MANY).map(|_| unread(&admin, &bytes)).collect();
    let waited = || {
        let ask = |path| {
            let asked = Instant::now();
            assert_eq!(get(&admin, path).status, 200, "{path}");
            asked.elapsed()
        };
        ["/livez", "/readyz", "/metrics"].map(ask).into_iter().max().expect("three probes")
    };
    // Probes that had to wait for the end of the others would do so each time.
    let times: Vec<_> = (0..3).map(|_| waited()).take_while(|time| *time >= PROMPT).collect();
    assert!(times.len() < 3, "{times:?}");
    comes_to_rest(server.pid);
    let after = resident(server.pid);
    println!("{} connections: from {before:?} to {after:?} KiB", held.len());
    assert!(before.zip(after).is_none_or(|(before, after)| after < before + 2 * MAX_GROWTH));
}
