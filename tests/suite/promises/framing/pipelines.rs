//! Requests that are sent before the answers to those before them.

use std::io::{BufReader, Read, Result};

use super::*;
use crate::support::http::read_answer;

/// Hands over byte by byte, so that nothing of the next answer is read with one.
struct Bytewise<R>(R);

impl<R: Read> Read for Bytewise<R> {
    fn read(&mut self, buffer: &mut [u8]) -> Result<usize> {
        self.0.read(&mut buffer[..1])
    }
}

/// Sends them all at once, and demands that each answer is the one to its request,
/// or that the connection ends. Returns how many there were.
#[track_caller]
fn answered(t: &Table, verbs: &[&str]) -> usize {
    let requests: Vec<u8> = verbs.iter().flat_map(|verb| t.on(verb, "p", "r").bytes()).collect();
    let mut stream = t.client.wire().connect();
    stream.write_all(&requests).expect("a connection");
    let mut stream = Bytewise(BufReader::new(stream));
    for (at, verb) in verbs.iter().enumerate() {
        let Some((raw, _)) = read_answer(&mut stream, "HEAD") else { return at };
        assert_eq!(raw.status, 200, "{verbs:?} {at} {raw:?}");
        if *verb == "GET" {
            let length = raw.headers.iter().find(|(name, _)| name == "Content-Length").expect("a length");
            let mut body = vec![0; length.1.parse().expect("a number")];
            if stream.read_exact(&mut body).is_err() {
                return at;
            }
            let entity: Value = serde_json::from_slice(&body).expect("the entity and nothing else");
            assert_eq!(entity["A"], 1, "{verbs:?} {at}");
        }
    }
    verbs.len()
}

/// actix mixes them up if it reads a request before it has written the answer to the one before.
#[test]
fn no_answer_is_taken_for_another() {
    let client = site().client();
    let t = client.table();
    t.seed_one(json!({ "A": 1 }));
    for verbs in [
        &["HEAD", "GET"][..],
        &["HEAD", "HEAD", "GET"],
        &["GET", "HEAD"],
        &["GET", "GET", "HEAD"],
        &["GET", "HEAD", "GET", "HEAD", "GET"],
    ] {
        for _ in 0..10 {
            assert_eq!(answered(&t, verbs), verbs.len());
        }
    }
    is_well(&client);
}

#[test]
fn a_thousand_requests_at_once_are_answered_in_their_order() {
    // Its patience is that of servers, since a busy machine takes its time for so many.
    let site = Site::start("sqlite::memory:", &[]);
    let client = site.client();
    let t = client.table();
    let rows: Vec<String> = (0..10).map(|row| format!("{row}")).collect();
    for (value, row) in rows.iter().enumerate() {
        t.seed(with_keys("p", row, json!({ "A": value })));
    }
    let requests: Vec<Vec<u8>> = rows.iter().map(|row| t.on("GET", "p", row).bytes()).collect();
    let order: Vec<usize> = (0..1000).map(|n| n * n % 10).collect();
    let stream = client.wire().connect();
    let (mut writer, mut reader) = (stream.try_clone().expect("a descriptor"), BufReader::new(stream));
    std::thread::scope(|scope| {
        scope.spawn(|| {
            let all: Vec<u8> = order.iter().flat_map(|row| requests[*row].iter().copied()).collect();
            writer.write_all(&all).expect("the server reads on");
        });
        let mut reader = Bytewise(&mut reader);
        for (at, row) in order.iter().enumerate() {
            let (raw, _) = read_answer(&mut reader, "GET").expect("an answer");
            let entity: Value = serde_json::from_slice(&raw.body).expect("an entity");
            assert_eq!((raw.status, &entity["A"]), (200, &json!(row)), "answer {at}");
        }
    });
    client.get("/Tables?$top=1").expect(200);
    assert!(!site.log().contains("panicked"), "{}", site.log());
}
