//! Bytes that no client would send: each is answered, by no 5xx, and the server
//! goes on.

mod heads;
mod lengths;
mod pipelines;
mod slow;
mod targets;

use std::io::Write;
use std::net::TcpStream;
use std::sync::OnceLock;

use serde_json::{Value, json};

use super::line::read;
use super::site::Site;
use crate::support::http::Raw;
use crate::support::*;

/// A server that is impatient, shared by the cases.
fn site() -> &'static Site {
    static SITE: OnceLock<Site> = OnceLock::new();
    SITE.get_or_init(|| Site::start("sqlite://data.db", &["--head-seconds", "5", "--body-seconds", "5"]))
}

/// An answer to bytes, which must come.
#[track_caller]
fn answer_to(client: &Client, bytes: &[u8]) -> Raw {
    let mut stream = client.wire().connect();
    // The server may answer and close before it has read everything.
    let _ = stream.write_all(bytes);
    answer_on(&mut stream, bytes)
}

#[track_caller]
fn answer_on(stream: &mut TcpStream, sent: &[u8]) -> Raw {
    let shown = String::from_utf8_lossy(&sent[..sent.len().min(300)]).into_owned();
    let raw = read(stream).unwrap_or_else(|| panic!("no answer to {shown:?}"));
    assert!(raw.status < 500, "{raw:?} for {shown:?}");
    raw
}

/// Demands a refusal of bytes, and that the server is well afterwards.
#[track_caller]
fn refused_with(client: &Client, statuses: &[u16], bytes: &[u8]) {
    let raw = answer_to(client, bytes);
    let shown = String::from_utf8_lossy(&bytes[..bytes.len().min(300)]).into_owned();
    assert!(statuses.contains(&raw.status), "{} for {shown:?}", raw.status);
    is_well(client);
}

/// Demands that a healthy request is answered, and that no thread has panicked.
#[track_caller]
fn is_well(client: &Client) {
    client.get("/Tables?$top=1").expect(200);
    let log = site().log();
    assert!(!log.contains("panicked"), "{log}");
}

/// A signed insert as text, to be bent.
fn insert(table: &Table, entity: &Value) -> String {
    String::from_utf8(table.inserting(entity).bytes()).expect("plain text")
}

/// The smallest insert into `p`, `r`.
fn small(table: &Table) -> String {
    insert(table, &with_keys("p", "r", json!({ "A": 1 })))
}
