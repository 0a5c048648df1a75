//! Changes through `/service` that end before their answer, or before the service has read them.

use std::net::TcpStream;

use rustix::net::sockopt::set_socket_linger;
use sqlx::{Connection as _, Executor as _, PgConnection};

use super::console::console;
use super::*;
use crate::support::postgres::{LOCK_WAITERS, text};

/// The requests that the service answers for operators at once.
const PERMITS: usize = 16;

/// Sends a request of an operator whose body may be shorter than its length.
fn begun(admin: &Wire, verb: &str, path: &str, length: usize, body: &str) -> TcpStream {
    let mut stream = TcpStream::connect(admin.address()).expect("the listener accepts");
    let host = admin.address();
    let head = format!("{verb} {path} HTTP/1.1\r\nHost: {host}\r\nAuthorization: Bearer {TOKEN}\r\n");
    let head = format!("{head}Content-Type: application/json\r\nContent-Length: {length}\r\n\r\n{body}");
    stream.write_all(head.as_bytes()).expect("it listens");
    stream
}

/// Resets a connection: its request is not answered any more.
fn cut(stream: TcpStream) {
    set_socket_linger(&stream, Some(Duration::ZERO)).expect("a socket");
    drop(stream);
}

fn in_flight(admin: &Wire) -> f64 {
    metric(admin, "rowhouse_requests_in_flight")
}

/// The line of the audit that has all of this.
fn audited(server: &Process, parts: &[&str]) -> Option<String> {
    let log = server.log();
    let is_it =
        |line: &&str| line.contains("rowhouse::audit") && parts.iter().all(|part| line.contains(part));
    log.lines().find(is_it).map(str::to_owned)
}

#[tokio::test(flavor = "multi_thread")]
async fn a_change_that_is_cut_off_is_audited() {
    let url = fresh_database();
    let (server, admin, client) = console(&url, &[]);
    let t = client.table();
    t.seed_one(json!({ "N": 1 }));
    let at = format!("/service/{}/{}(PartitionKey='p',RowKey='r')", client.account.name, t.name);
    let named = [t.name.as_str(), client.account.name.as_str(), "CutOff", "status=0"];
    // Its body has not arrived, so its operation is not known.
    let stream = begun(&admin, "PUT", &at, 9, "");
    until("the request is received", || in_flight(&admin) == 1.0);
    cut(stream);
    let line = [&named[..], &["PUT /service/{account}/{path...}"]].concat();
    until("a request that was cut off", || audited(&server, &line).is_some());
    // It waits for a row.
    let mut holder = PgConnection::connect(&url).await.expect("a session");
    holder.execute("BEGIN; SELECT * FROM entities FOR UPDATE").await.expect("a lock");
    let body = json!({ "N": 2 }).to_string();
    let stream = begun(&admin, "PATCH", &at, body.len(), &body);
    until("the change waits", || tokio::task::block_in_place(|| text(&url, LOCK_WAITERS)) != "0");
    cut(stream);
    let line = [&named[..], &["MergeEntity"]].concat();
    until("a change that was cut off", || audited(&server, &line).is_some());
    holder.execute("ROLLBACK").await.expect("the lock goes");
    // What reads is not audited, however it ends.
    let stream = begun(&admin, "GET", &at, 9, "");
    until("the request is received", || in_flight(&admin) == 1.0);
    cut(stream);
    until("it is given up", || in_flight(&admin) == 0.0);
    assert_eq!(audited(&server, &["GET"]), None);
}

#[test]
fn a_change_of_the_listener_itself_is_audited_before_its_body_has_arrived() {
    let (server, admin, _) = console("sqlite::memory:", &[]);
    until("a request that was cut off", || {
        // Reset at once, it may not be read.
        cut(begun(&admin, "POST", "/accounts", 9, ""));
        audited(&server, &["POST /accounts", "CutOff", "status=0"]).is_some()
    });
}

/// The service itself takes all the time that a stop has, and the operator's change goes on.
#[tokio::test(flavor = "multi_thread")]
async fn a_change_that_a_stop_cuts_off_is_audited() {
    let url = fresh_database();
    let (server, admin, client) = console(&url, &["--shutdown-seconds", "3"]);
    let [name, other] = std::array::from_fn(|_| {
        let t = client.table();
        t.seed_one(json!({ "N": 1 }));
        t.name.clone()
    });
    let account = client.account.name.clone();
    let at = format!("/service/{account}/{name}(PartitionKey='p',RowKey='r')");
    let mut holder = PgConnection::connect(&url).await.expect("a session");
    holder.execute("BEGIN; SELECT * FROM entities FOR UPDATE").await.expect("a lock");
    let body = json!({ "N": 2 }).to_string();
    let _stream = begun(&admin, "PATCH", &at, body.len(), &body);
    let path = format!("/{other}(PartitionKey='p',RowKey='r')");
    let waiting = move || client.request("PUT", &path).json(&json!({ "N": 3 })).send();
    // Its connection ends without an answer.
    let waiting = std::thread::spawn(waiting);
    let waiters = || tokio::task::block_in_place(|| text(&url, LOCK_WAITERS));
    until("both wait", || waiters() == "2");
    server.signal("TERM");
    tokio::task::block_in_place(|| server.ends_well());
    let line = [name.as_str(), account.as_str(), "CutOff", "status=0", "MergeEntity"];
    assert!(audited(&server, &line).is_some(), "{}", server.log());
    assert!(waiting.join().is_err(), "it was not answered");
    holder.execute("ROLLBACK").await.expect("the lock goes");
}

#[test]
fn a_change_that_is_refused_before_it_is_read_is_audited() {
    let (server, admin, client) = console("sqlite::memory:", &[]);
    let name = fresh_name();
    let path = format!("/service/{}/{name}", client.account.name);
    let declared = format!("Authorization: Bearer {TOKEN}\r\nContent-Length: 4194305\r\n");
    assert_eq!(ask(&admin, "POST", &path, &declared).status, 413);
    let action = "POST /service/{account}/{path...}";
    let named = [name.as_str(), client.account.name.as_str(), action];
    let line = [&named[..], &["status=413", "RequestBodyTooLarge"]].concat();
    assert!(audited(&server, &line).is_some(), "{}", server.log());
    // As many as are answered at once have sent no body. They are given up after a while.
    let refused = loop {
        let _held: Vec<_> = (0..PERMITS).map(|_| begun(&admin, "POST", &path, 9, "")).collect();
        until("they are received", || in_flight(&admin) >= PERMITS as f64);
        let raw = call(&admin, "DELETE", &format!("{path}(PartitionKey='secret',RowKey='r')"), "");
        if raw.status == 503 {
            break raw;
        }
    };
    let (_, id) = refused.headers.iter().find(|(name, _)| name == "x-ms-request-id").expect("an id");
    let action = "DELETE /service/{account}/{path...}";
    let line = [name.as_str(), client.account.name.as_str(), action, "status=503", "ServerBusy", id.as_str()];
    assert!(audited(&server, &line).is_some(), "{}", server.log());
    assert!(!server.log().contains("secret"), "{}", server.log());
}
