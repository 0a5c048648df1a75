//! Clients that take their time get the server's, up to a point.

use std::io::Write;
use std::time::Duration;

use super::*;

/// Sends bytes one by one until the server has had enough.
fn drip(stream: &mut TcpStream, bytes: &[u8]) {
    for byte in bytes {
        if stream.write_all(&[*byte]).is_err() {
            return;
        }
        pace(Duration::from_millis(150));
        let mut answer = [0];
        stream.set_nonblocking(true).expect("a socket");
        let answered = stream.peek(&mut answer).is_ok();
        stream.set_nonblocking(false).expect("a socket");
        if answered {
            return;
        }
    }
    panic!("the server waits for ever");
}

#[test]
fn a_head_that_comes_too_slowly_is_cut_off() {
    let client = site().client();
    let table = client.table();
    let text = small(&table);
    let mut stream = client.wire().connect();
    drip(&mut stream, text.as_bytes());
    assert_eq!(answer_on(&mut stream, text.as_bytes()).status, 408);
    assert!(read(&mut stream).is_none(), "the connection is closed");
    is_well(&client);
}

#[test]
fn a_head_that_stops_is_cut_off() {
    let client = site().client();
    let half = format!("GET {} HTTP/1.1\r\nHost: x\r\nX-", client.target("/Tables"));
    refused_with(&client, &[408], half.as_bytes());
}

#[test]
fn a_body_that_comes_too_slowly_is_cut_off() {
    let client = site().client();
    let table = client.table();
    let text = insert(&table, &with_keys("p", "r", json!({ "A": "x".repeat(300) })));
    let (head, body) = text.split_once("\r\n\r\n").expect("a body");
    let mut stream = client.wire().connect();
    stream.write_all(format!("{head}\r\n\r\n").as_bytes()).expect("the server listens");
    drip(&mut stream, body.as_bytes());
    let raw = answer_on(&mut stream, text.as_bytes());
    let error = &raw.json()["odata.error"];
    let message = error["message"]["value"].as_str().and_then(|text| text.lines().next());
    let told = (raw.status, error["code"].as_str().unwrap_or_default(), message.unwrap_or_default());
    assert_eq!(told, BODY_TIMED_OUT);
    assert_eq!(table.count(), 0);
    is_well(&client);
}

#[test]
fn a_body_that_stops_is_cut_off() {
    let client = site().client();
    let table = client.table();
    let text = small(&table);
    for cut in [text.len() - 1, text.find("\r\n\r\n").expect("a body") + 4] {
        refused_with(&client, &[408], &text.as_bytes()[..cut]);
    }
    assert_eq!(table.count(), 0);
}
