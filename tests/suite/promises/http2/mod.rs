//! What a client can take over one HTTP/2 connection: no more than over HTTP/1.1.

mod frames;

use std::collections::BTreeSet;
use std::time::Duration;

use serde_json::json;

use self::frames::*;
use super::overload::resident;
use crate::support::client::Request;
use crate::support::server::Process;
use crate::support::*;
use crate::tls;

/// What the server announces, and how many answers it makes that nobody takes.
const MAX_STREAMS: u32 = 100;
const MAX_UNREAD: usize = 32;
const WHOLE_WINDOW: u32 = (1 << 31) - 1;

/// The numbers of streams that a client opens.
fn streams(count: u32) -> impl Iterator<Item = u32> {
    (0..count).map(|n| 2 * n + 1)
}

/// A table whose pages are larger than what a connection holds for nothing.
fn large_table(client: &Client) -> Table<'_> {
    let table = client.table();
    for row in ["1", "2", "3", "4"] {
        table.seed(with_keys("p", row, json!({ "A": "x".repeat(30_000), "B": "x".repeat(30_000) })));
    }
    table
}

fn page<'a>(table: &Table<'a>) -> Request<'a> {
    table.client.request("GET", &format!("/{}()", table.name))
}

fn body_of(request: &Request<'_>) -> Vec<u8> {
    let mut bytes = request.bytes();
    let end = bytes.windows(4).position(|four| four == b"\r\n\r\n").expect("a head");
    bytes.split_off(end + 4)
}

/// Waits until the server has answered what was sent after all before.
fn wait_until_read(connection: &mut Connection) {
    connection.send(PING, 0, 0, b"are here");
    while connection.next().expect("a frame").kind != PING {}
}

/// Demands that another connection is answered, and that no thread has panicked.
#[track_caller]
fn is_well(server: &Process) {
    tls::client(server).get("/Tables?$top=1").expect(200);
    let log = server.log();
    assert!(!log.contains("panicked"), "{log}");
}

#[test]
fn streams_past_the_announced_limit_are_refused() {
    let (server, _) = tls::server(&[]);
    let client = tls::client(&server);
    let stranger = client.request("GET", "/Tables").auth(Auth::None);
    let mut connection = Connection::open(server.address(), &[(INITIAL_WINDOW_SIZE, 0)]);
    let announced = connection.next().expect("settings");
    assert_eq!((announced.kind, announced.setting(MAX_CONCURRENT_STREAMS)), (SETTINGS, Some(MAX_STREAMS)));
    for stream in streams(3 * MAX_STREAMS) {
        connection.ask(stream, &stranger);
    }
    let mut refused = BTreeSet::new();
    while refused.len() < 2 * MAX_STREAMS as usize {
        let frame = connection.next().expect("a frame");
        if frame.kind == RST_STREAM {
            assert_eq!(frame.reason(), REFUSED_STREAM, "{frame:?}");
            refused.insert(frame.stream);
        }
    }
    assert!(streams(MAX_STREAMS).all(|stream| !refused.contains(&stream)), "{refused:?}");
    is_well(&server);
}

#[test]
fn streams_without_end_take_no_memory() {
    let (server, _) = tls::server(&["--body-seconds", "2"]);
    is_well(&server);
    let client = tls::client(&server);
    let before = resident(server.pid);
    let stranger = block(&client.request("GET", "/Tables").auth(Auth::None));
    let mut connection = Connection::open(server.address(), &[(INITIAL_WINDOW_SIZE, 0)]);
    let opened = streams(30_000).take_while(|stream| connection.head(*stream, &stranger, true)).count();
    let after = resident(server.pid);
    println!("{opened} streams: from {before:?} to {after:?} KiB");
    assert!(before.zip(after).is_none_or(|(before, after)| after < before + 32 * 1024));
    is_well(&server);
}

/// Asks for `/Tables` with these headers; the status.
async fn status_with(server: &Process, headers: Vec<(String, String)>) -> u16 {
    let mut request = ::http::Request::builder().uri(format!("https://{}/x/Tables", server.address()));
    for (name, value) in headers {
        request = request.header(name, value);
    }
    let (answer, _) = tls::connect(server)
        .await
        .send_request(request.body(()).expect("a request"), true)
        .expect("a request");
    answer.await.expect("an answer").status().as_u16()
}

#[tokio::test]
async fn heads_have_the_limits_of_http_1() {
    let (server, _) = tls::server(&[]);
    let many = |count: usize| (0..count).map(|n| (format!("x{n}"), "y".to_owned())).collect();
    let long = |length: usize| vec![("x".to_owned(), "y".repeat(length))];
    assert_eq!(status_with(&server, many(90)).await, 404);
    assert_eq!(status_with(&server, many(97)).await, 431);
    assert_eq!(status_with(&server, many(2000)).await, 431);
    assert_eq!(status_with(&server, long(100_000)).await, 404);
    assert_eq!(status_with(&server, long(200_000)).await, 431);
}

#[tokio::test]
async fn an_answer_without_content_has_no_length() {
    let (server, _) = tls::server(&[]);
    let client = tls::client(&server);
    let table = client.table();
    let insert = table.inserting(&with_keys("p", "r", json!({}))).header("Prefer", "return-no-content");
    let (head, body) = tls::as_http_2(&insert.bytes());
    let (answer, mut out) = tls::connect(&server).await.send_request(head, false).expect("a request");
    out.send_data(body, true).expect("a body");
    let answer = answer.await.expect("an answer");
    assert_eq!(answer.status(), 204);
    let names: Vec<&str> = answer.headers().keys().map(::http::HeaderName::as_str).collect();
    assert!(names.contains(&"etag") && !names.iter().any(|name| name.contains("length")), "{names:?}");
}

#[test]
fn a_head_without_end_ends_the_connection() {
    let (server, _) = tls::server(&[]);
    let client = tls::client(&server);
    let start = block(&client.request("GET", "/Tables"));
    // An entry of HPACK's own table, again and again: a byte here, many there.
    let bomb = [start.clone(), vec![0x90; 400_000]].concat();
    let mut connection = Connection::open(server.address(), &[]);
    connection.head(1, &bomb, true);
    assert!(connection.rest().iter().any(|frame| frame.kind == GOAWAY));
    // Frames that add nothing, and never the last.
    let mut connection = Connection::open(server.address(), &[]);
    connection.send(HEADERS, END_STREAM, 1, &start);
    let sent = (0..100_000).take_while(|_| connection.send(CONTINUATION, 0, 1, &[])).count();
    println!("{sent} continuations");
    assert!(connection.rest().iter().any(|frame| frame.kind == GOAWAY) || sent < 100_000);
    is_well(&server);
}

#[test]
fn answers_that_nobody_takes_keep_others_from_being_made() {
    let (server, _) = tls::server(&["--body-seconds", "29"]);
    let client = tls::client(&server);
    let table = large_table(&client);
    let mut connection = Connection::open(server.address(), &[(INITIAL_WINDOW_SIZE, 0)]);
    for stream in streams(MAX_STREAMS) {
        connection.ask(stream, &page(&table));
    }
    let mut begun = 0;
    while begun < MAX_UNREAD {
        begun += usize::from(connection.next().expect("a frame").kind == HEADERS);
    }
    // Time in which more would come.
    std::thread::sleep(Duration::from_secs(1));
    connection.send(PING, 0, 0, b"to begin");
    loop {
        let frame = connection.next().expect("a frame");
        if frame.kind == PING {
            break;
        }
        assert_ne!(frame.kind, HEADERS, "more than {MAX_UNREAD} answers wait");
    }
    // Nothing is lost: those that waited for their turn are answered, too.
    connection.settings(&[(INITIAL_WINDOW_SIZE, WHOLE_WINDOW)]);
    connection.open_window(0, WHOLE_WINDOW - 65_535);
    let mut ended = 0;
    while ended < MAX_STREAMS {
        let frame = connection.next().expect("a frame");
        assert_ne!(frame.kind, RST_STREAM, "{frame:?}");
        ended += u32::from(frame.ends_stream());
    }
    is_well(&server);
}

#[test]
fn a_client_that_takes_nothing_loses_its_connection() {
    let (server, _) = tls::server(&["--body-seconds", "1"]);
    let client = tls::client(&server);
    let table = large_table(&client);
    let mut connection = Connection::open(server.address(), &[(INITIAL_WINDOW_SIZE, 0)]);
    for stream in streams(3) {
        connection.ask(stream, &page(&table));
    }
    let rest = connection.rest();
    let reset: Vec<u32> = rest.iter().filter(|f| f.kind == RST_STREAM).map(Frame::reason).collect();
    assert_eq!(reset, [CANCEL; 3]);
    assert!(rest.iter().any(|frame| frame.kind == GOAWAY));
    is_well(&server);
}

#[test]
fn a_client_that_takes_a_byte_at_a_time_loses_its_connection() {
    let (server, _) = tls::server(&["--body-seconds", "1"]);
    let client = tls::client(&server);
    let table = large_table(&client);
    let mut connection = Connection::open(server.address(), &[(INITIAL_WINDOW_SIZE, 0)]);
    connection.ask(1, &page(&table));
    let mut opened = 0;
    loop {
        match connection.next_within(Duration::from_millis(50)) {
            Came::End => break,
            Came::Frame(frame) => assert!(!frame.ends_stream()),
            Came::Nothing => {
                connection.open_window(1, 1);
                opened += 1;
                assert!(opened < 600, "a byte at a time is enough");
            }
        }
    }
    is_well(&server);
}

#[test]
fn an_answer_larger_than_the_window_is_sent_in_parts() {
    let (server, _) = tls::server(&[]);
    let client = tls::client(&server);
    let table = client.table();
    table.seed(with_keys("p", "r", json!({ "A": "x".repeat(30_000) })));
    let mut connection = Connection::open(server.address(), &[(INITIAL_WINDOW_SIZE, 1000)]);
    connection.ask(1, &table.on("GET", "p", "r"));
    let mut received = 0;
    loop {
        let frame = connection.next().expect("the answer goes on");
        assert_ne!(frame.kind, RST_STREAM);
        if frame.kind == DATA {
            received += frame.payload.len();
            connection.open_window(1, frame.payload.len() as u32);
        }
        if frame.ends_stream() {
            break;
        }
    }
    assert!(received > 30_000);
}

#[test]
fn a_client_that_expects_to_continue_is_told_to() {
    let (server, _) = tls::server(&[]);
    let client = tls::client(&server);
    let table = client.table();
    let insert = table.inserting(&with_keys("p", "r", json!({ "A": 1 }))).header("Expect", "100-continue");
    let body = body_of(&insert);
    let mut connection = Connection::open(server.address(), &[]);
    connection.head(1, &block(&insert), false);
    while connection.next().expect("a frame").kind != HEADERS {}
    connection.send(DATA, END_STREAM, 1, &body);
    while !connection.next().expect("a frame").ends_stream() {}
    assert_eq!(table.count(), 1);
}

#[test]
fn a_client_that_reads_nothing_loses_its_connection() {
    let (server, _) = tls::server(&["--body-seconds", "1"]);
    let client = tls::client(&server);
    let table = large_table(&client);
    let mut connection = Connection::open(server.address(), &[(INITIAL_WINDOW_SIZE, WHOLE_WINDOW)]);
    connection.open_window(0, WHOLE_WINDOW - 65_535);
    for stream in streams(MAX_STREAMS) {
        connection.ask(stream, &page(&table));
    }
    // Longer than the server waits, so that all that is left is what the systems hold.
    std::thread::sleep(Duration::from_secs(30));
    let ended = connection.rest().iter().filter(|frame| frame.ends_stream()).count();
    assert!(ended < MAX_STREAMS as usize, "the server waited for a client that read nothing");
    is_well(&server);
}

#[test]
fn a_connection_without_requests_is_closed() {
    let (server, _) = tls::server(&["--head-seconds", "5"]);
    assert!(!Connection::silent(server.address()).rest().iter().any(|frame| frame.kind == GOAWAY));
    assert!(Connection::open(server.address(), &[]).rest().iter().any(|frame| frame.kind == GOAWAY));
    // A head that is begun is no request.
    let client = tls::client(&server);
    let mut connection = Connection::open(server.address(), &[]);
    connection.send(HEADERS, END_STREAM, 1, &block(&client.request("GET", "/Tables")));
    connection.rest();
    is_well(&server);
}

#[test]
fn a_draining_server_answers_a_request_and_says_goodbye() {
    let (server, _) = tls::server(&["--drain-seconds", "3600"]);
    let client = tls::client(&server);
    let list = client.request("GET", "/Tables");
    let answered = |connection: &mut Connection, stream| {
        connection.ask(stream, &list);
        while !connection.next().expect("an answer").ends_stream() {}
    };
    let mut used = Connection::open(server.address(), &[]);
    answered(&mut used, 1);
    server.signal("TERM");
    // Though it is idle.
    while used.next().expect("a frame").kind != GOAWAY {}
    let mut fresh = Connection::open(server.address(), &[]);
    let head = fresh.next().expect("settings");
    assert_eq!(head.kind, SETTINGS, "{head:?}");
    fresh.ask(1, &list);
    let rest = fresh.rest();
    assert!(rest.iter().any(Frame::ends_stream) && rest.iter().any(|frame| frame.kind == GOAWAY), "{rest:?}");
    let plain = tls::client(&server).wire().exchange("GET", &list.bytes());
    assert_eq!((plain.status, plain.header("connection")), (200, Some("close")));
    server.signal("TERM");
    assert_eq!(server.exit_status(Duration::from_secs(60)), Some(0), "{}", server.log());
}

#[test]
fn a_body_that_comes_too_slowly_is_answered_408() {
    let (server, _) = tls::server(&["--body-seconds", "1"]);
    let client = tls::client(&server);
    let table = client.table();
    let insert = table.inserting(&with_keys("p", "r", json!({ "A": 1 })));
    let mut connection = Connection::open(server.address(), &[]);
    connection.head(1, &block(&insert), false);
    connection.send(DATA, 0, 1, b"{");
    let mut body = Vec::new();
    loop {
        let frame = connection.next().expect("an answer");
        if frame.kind == DATA {
            body.extend_from_slice(&frame.payload);
        }
        if frame.ends_stream() {
            break;
        }
    }
    let text = String::from_utf8_lossy(&body);
    assert!(text.contains("RequestTimedOut"), "{text}");
    assert_eq!(table.count(), 0);
    // The connection goes on.
    connection.ask(3, &table.client.request("GET", "/Tables"));
    assert!(std::iter::from_fn(|| connection.next()).any(|frame| frame.stream == 3 && frame.ends_stream()));
}

#[test]
fn streams_that_are_reset_at_once_harm_nobody() {
    let (server, _) = tls::server(&[]);
    let client = tls::client(&server);
    let table = large_table(&client);
    let before = resident(server.pid);
    let request = block(&page(&table));
    for _ in 0..3 {
        let mut connection = Connection::open(server.address(), &[]);
        let sent = streams(10_000)
            .take_while(|stream| {
                connection.head(*stream, &request, true)
                    && connection.send(RST_STREAM, 0, *stream, &CANCEL.to_be_bytes())
            })
            .count();
        println!("{sent} streams were reset");
    }
    let after = resident(server.pid);
    assert!(
        before.zip(after).is_none_or(|(before, after)| after < before + 128 * 1024),
        "{before:?} {after:?}"
    );
    is_well(&server);
}

#[test]
fn frames_that_ask_for_an_answer_are_no_bomb() {
    let (server, _) = tls::server(&["--body-seconds", "1"]);
    is_well(&server);
    let before = resident(server.pid);
    for kind in [PING, SETTINGS] {
        let payload: &[u8] = if kind == PING { b"01234567" } else { &[] };
        let mut connection = Connection::open(server.address(), &[]);
        let sent = (0..1_000_000).take_while(|_| connection.send(kind, 0, 0, payload)).count();
        println!("{sent} frames of kind {kind}");
        assert!(sent < 1_000_000, "the server goes on for a client that reads nothing");
    }
    let after = resident(server.pid);
    assert!(
        before.zip(after).is_none_or(|(before, after)| after < before + 64 * 1024),
        "{before:?} {after:?}"
    );
    is_well(&server);
}

/// A connection does not wait for the requests of others, nor they for it.
#[test]
fn a_server_that_stops_says_goodbye() {
    let (server, _) = tls::server(&["--head-seconds", "300"]);
    let _silent = Connection::silent(server.address());
    let client = tls::client(&server);
    let table = client.table();
    let insert = table.inserting(&with_keys("p", "r", json!({ "A": 1 })));
    let body = body_of(&insert);
    let mut idle = Connection::open(server.address(), &[]);
    let mut busy = Connection::open(server.address(), &[]);
    idle.ask(1, &client.request("GET", "/Tables"));
    while !idle.next().expect("a frame").ends_stream() {}
    busy.head(1, &block(&insert), false);
    busy.send(DATA, 0, 1, &body[..5]);
    [&mut idle, &mut busy].into_iter().for_each(wait_until_read);
    server.signal("TERM");
    let goodbye = idle.rest();
    assert!(goodbye.iter().any(|f| f.kind == GOAWAY && f.payload[4..8] == [0; 4]), "{goodbye:?}");
    busy.send(DATA, END_STREAM, 1, &body[5..]);
    let rest = busy.rest();
    assert!(rest.iter().any(|frame| frame.stream == 1 && frame.kind == HEADERS), "{rest:?}");
    assert!(rest.iter().any(Frame::ends_stream), "{rest:?}");
    assert_eq!(server.exit_status(Duration::from_secs(60)), Some(0));
}

/// A client that has not read that the server stops may repeat its request elsewhere.
#[test]
fn a_stream_that_comes_long_after_a_goodbye_is_refused() {
    let (server, _) = tls::server(&[]);
    let client = tls::client(&server);
    let table = client.table();
    let insert = table.inserting(&with_keys("p", "r", json!({ "A": 1 })));
    let body = body_of(&insert);
    let mut connection = Connection::open(server.address(), &[]);
    connection.head(1, &block(&insert), false);
    wait_until_read(&mut connection);
    server.signal("TERM");
    std::thread::sleep(Duration::from_secs(3));
    connection.ask(3, &client.request("GET", "/Tables"));
    connection.send(DATA, END_STREAM, 1, &body);
    let rest = connection.rest();
    let refused = rest.iter().find(|frame| frame.stream == 3).expect("it is answered");
    assert_eq!((refused.kind, refused.reason()), (RST_STREAM, REFUSED_STREAM), "{rest:?}");
    assert!(rest.iter().any(|frame| frame.stream == 1 && frame.ends_stream()), "{rest:?}");
    assert_eq!(server.exit_status(Duration::from_secs(60)), Some(0));
}

/// More than the buffers of a connection hold waits to be written when the last request is over.
#[test]
fn a_server_that_stops_writes_its_answers_to_the_end() {
    const STREAMS: u32 = 100;
    let (server, _) = tls::server(&[]);
    let client = tls::client(&server);
    let table = client.table();
    let text = "x".repeat(30_000);
    table.seed(with_keys("p", "r", json!({ "A": text, "B": text })));
    let get = table.on("GET", "p", "r");
    let mut slow = Connection::open(server.address(), &[(INITIAL_WINDOW_SIZE, 1 << 20)]);
    slow.open_window(0, 1 << 24);
    (0..STREAMS).for_each(|at| assert!(slow.ask(2 * at + 1, &get)));
    // It has read all of them when it answers what was sent after them.
    slow.send(PING, 0, 0, b"are here");
    let before: Vec<Frame> =
        std::iter::from_fn(|| slow.next()).take_while(|frame| frame.kind != PING).collect();
    server.signal("TERM");
    std::thread::sleep(Duration::from_secs(4));
    let ended = |frames: &[Frame]| frames.iter().filter(|frame| frame.ends_stream()).count();
    let (before, after) = (ended(&before), ended(&slow.rest()));
    println!("{before} answers before and {after} after the signal");
    assert_eq!(before + after, STREAMS as usize);
    assert_eq!(server.exit_status(Duration::from_secs(60)), Some(0), "{}", server.log());
}

#[test]
fn a_tunnel_is_refused() {
    let (server, _) = tls::server(&[]);
    let mut head = Vec::new();
    field(&mut head, ":method", b"CONNECT");
    field(&mut head, ":authority", b"127.0.0.1:1");
    let mut connection = Connection::open(server.address(), &[]);
    connection.head(1, &head, false);
    connection.send(DATA, 0, 1, b"anything");
    assert!(std::iter::from_fn(|| connection.next()).any(|frame| frame.stream == 1 && frame.ends_stream()));
    is_well(&server);
}
