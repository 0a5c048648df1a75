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
        let status = if *verb == "GET" { 200 } else { 405 };
        assert_eq!(raw.status, status, "{verbs:?} {at} {raw:?}");
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

#[test]
fn each_of_many_reads_is_answered() {
    let client = site().client();
    let t = client.table();
    t.seed_one(json!({ "A": 1 }));
    assert_eq!(answered(&t, &["GET"; 40]), 40);
    is_well(&client);
}

/// actix mixes them up; nobody may be told what is the answer to another.
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
            answered(&t, verbs);
        }
    }
    is_well(&client);
}
