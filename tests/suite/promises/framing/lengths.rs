//! Where a body ends, according to whom.

use std::io::Write;

use super::super::line::read_next;
use super::*;

/// The insert with other headers of its length.
fn with_length(table: &Table, headers: &str) -> String {
    let text = small(table);
    let start = text.find("Content-Length: ").expect("it has a length");
    let end = start + text[start..].find("\r\n").expect("a line ends") + 2;
    format!("{}{headers}{}", &text[..start], &text[end..])
}

#[test]
fn a_length_that_is_no_plain_number_is_refused() {
    let client = site().client();
    let table = client.table();
    let length = small(&table).split_once("\r\n\r\n").expect("a body").1.len();
    for value in
        ["+5", "-1", "0x10", "5 5", "5,5", "5, 5", "five", "", "1e1", "99999999999999999999999", "\u{ff15}"]
    {
        let text = with_length(&table, &format!("Content-Length: {value}\r\n"));
        refused_with(&client, &[400], text.as_bytes());
    }
    let plus = with_length(&table, &format!("Content-Length: +{length}\r\n"));
    refused_with(&client, &[400], plus.as_bytes());
    assert_eq!(table.count(), 0);
}

#[test]
fn several_lengths_are_refused_even_if_they_agree() {
    let client = site().client();
    let table = client.table();
    let length = small(&table).split_once("\r\n\r\n").expect("a body").1.len();
    for headers in [
        format!("Content-Length: {length}\r\nContent-Length: {length}\r\n"),
        format!("Content-Length: {length}\r\nContent-Length: 0\r\n"),
        format!("Content-Length: 0\r\nContent-Length: {length}\r\n"),
        format!("Content-Length: {length}\r\nTransfer-Encoding: chunked\r\n"),
        format!("Transfer-Encoding: chunked\r\nContent-Length: {length}\r\n"),
        format!("Content-Length: {length}\r\nTransfer-Encoding: identity\r\n"),
    ] {
        refused_with(&client, &[400], with_length(&table, &headers).as_bytes());
    }
    assert_eq!(table.count(), 0);
}

#[test]
fn encodings_that_nobody_speaks_are_refused() {
    let client = site().client();
    let table = client.table();
    for value in ["gzip", "chunked, gzip", "chunked, chunked", "xchunked", "chunked;q=1", "\"chunked\"", ""] {
        let text = with_length(&table, &format!("Transfer-Encoding: {value}\r\n"));
        refused_with(&client, &[400, 408], text.as_bytes());
    }
    assert_eq!(table.count(), 0);
}

/// The insert with a chunked body of these bytes.
fn chunked(table: &Table, body: &str) -> String {
    let text = with_length(table, "Transfer-Encoding: chunked\r\n");
    let (head, _) = text.split_once("\r\n\r\n").expect("a body");
    format!("{head}\r\n\r\n{body}")
}

#[test]
fn chunks_that_make_no_sense_are_refused() {
    let client = site().client();
    let table = client.table();
    for body in [
        "x\r\n{}\r\n0\r\n\r\n",
        "-1\r\n{}\r\n0\r\n\r\n",
        "+2\r\n{}\r\n0\r\n\r\n",
        "ffffffffffffffffff\r\n{}\r\n0\r\n\r\n",
        "2\r\n{}xx\r\n0\r\n\r\n",
        "\r\n\r\n",
        "2 2\r\n{}\r\n0\r\n\r\n",
    ] {
        refused_with(&client, &[400], chunked(&table, body).as_bytes());
    }
    assert_eq!(table.count(), 0);
}

/// Sends a body in chunks without end; the answer, after which the server has to
/// hang up, since it is the only one who can put an end to this.
fn without_end(client: &Client, head: &str) -> Raw {
    let mut stream = client.wire().connect();
    stream.write_all(head.as_bytes()).expect("the server listens");
    let chunk = [b"10000\r\n".as_slice(), &[b' '; 0x10000], b"\r\n"].concat();
    let mut reader = stream.try_clone().expect("a socket");
    let answer = std::thread::spawn(move || answer_on(&mut reader, b"a body without end"));
    let mut sent = 0_u64;
    while stream.write_all(&chunk).is_ok() {
        sent += 0x10000;
        assert!(sent < 16 << 30, "the server reads on and on");
    }
    answer.join().expect("an answer")
}

#[test]
fn a_body_without_end_is_refused_and_its_connection_closed() {
    let client = site().client();
    let table = client.table();
    assert_eq!(without_end(&client, &chunked(&table, "")).status, 413);
    let stranger =
        chunked(&table, "").replacen("Authorization: SharedKey", "Authorization: SharedKeyLite", 1);
    assert_eq!(without_end(&client, &stranger).status, 403);
    is_well(&client);
}

#[test]
fn what_follows_a_body_is_the_next_request_and_no_more() {
    let client = site().client();
    let table = client.table();
    // The smuggled request stands behind a body that ends before it.
    let inner = insert(&table, &with_keys("p", "smuggled", json!({})));
    let first = insert(&table, &with_keys("p", "r", json!({ "A": 1 })));
    let mut stream = client.wire().connect();
    stream.write_all(format!("{first}{inner}").as_bytes()).expect("the server listens");
    let mut buffer = Vec::new();
    for _ in 0..2 {
        let raw = read_next(&mut stream, &mut buffer).expect("two answers");
        assert_eq!(raw.status, 201, "{raw:?}");
    }
    assert_eq!(table.count(), 2);
    // Both lengths at once: nothing of what follows is taken for a request.
    let other = insert(&table, &with_keys("p", "hidden", json!({})));
    let text = with_length(&table, "Content-Length: 5\r\nTransfer-Encoding: chunked\r\n");
    let (head, _) = text.split_once("\r\n\r\n").expect("a body");
    let mut stream = client.wire().connect();
    stream.write_all(format!("{head}\r\n\r\n0\r\n\r\n{other}").as_bytes()).expect("the server listens");
    assert_eq!(answer_on(&mut stream, b"both lengths").status, 400);
    assert!(read(&mut stream).is_none(), "the connection is closed");
    assert_eq!(table.count(), 2);
}

#[test]
fn a_body_that_breaks_off_is_as_if_it_had_never_come() {
    let client = site().client();
    let table = client.table();
    let text = small(&table);
    let head = text.find("\r\n\r\n").expect("a body") + 4;
    for cut in [10, head - 2, head, head + 1, text.len() - 1] {
        let mut stream = client.wire().connect();
        stream.write_all(&text.as_bytes()[..cut]).expect("the server listens");
        stream.shutdown(std::net::Shutdown::Write).expect("the socket is open");
        // The client has gone, so that an answer is not owed, but none may be a success.
        if let Some(raw) = read(&mut stream) {
            assert!((400..500).contains(&raw.status), "{raw:?} after {cut} bytes");
        }
    }
    assert_eq!(table.count(), 0);
    is_well(&client);
}
