//! Many connections to the admin listener that ask nothing.

use std::io::{Read, Write};
use std::net::TcpStream;
use std::time::{Duration, Instant};

use super::*;

/// More than the listener keeps.
const MANY: usize = 300;
/// Less than the listener waits for a body.
const PROMPT: Duration = Duration::from_secs(8);

/// Connections that have sent this and go on to say nothing.
fn stalled(admin: &Wire, beginning: &str) -> Vec<TcpStream> {
    let begin = || {
        let mut stream = TcpStream::connect(admin.address()).expect("the listener accepts");
        stream.write_all(beginning.as_bytes()).expect("it listens");
        stream
    };
    (0..MANY).map(|_| begin()).collect()
}

#[test]
fn probes_are_answered_beside_connections_that_ask_nothing() {
    let (_server, admin) = server("sqlite::memory:", &[]);
    for beginning in
        ["", "GET /livez HTTP/1.1\r\nHost: x", "GET /livez HTTP/1.1\r\nHost: x\r\nContent-Length: 9\r\n\r\n"]
    {
        let waited = || {
            let _held = stalled(&admin, beginning);
            let times = ["/livez", "/readyz"].map(|path| {
                let asked = Instant::now();
                assert_eq!(get(&admin, path).status, 200, "{path} beside {beginning:?}");
                asked.elapsed()
            });
            times.into_iter().max().expect("two probes")
        };
        // Probes that had to wait for the end of the others would do so each time.
        let times: Vec<_> = (0..3).map(|_| waited()).take_while(|time| *time >= PROMPT).collect();
        assert!(times.len() < 3, "{times:?} beside {beginning:?}");
    }
}

#[test]
fn a_body_that_does_not_arrive_is_given_up() {
    let (_server, admin) = server("sqlite::memory:", &[]);
    let mut stream = TcpStream::connect(admin.address()).expect("the listener accepts");
    stream.set_read_timeout(Some(Duration::from_secs(30))).expect("a timeout");
    stream.write_all(b"GET /livez HTTP/1.1\r\nHost: x\r\nContent-Length: 9\r\n\r\n").expect("it listens");
    let mut answer = String::new();
    let _ = stream.read_to_string(&mut answer);
    assert!(answer.starts_with("HTTP/1.1 408 ") && answer.contains("RequestTimedOut"), "{answer:?}");
}
