//! Heads that are too much, or not enough.

use super::*;

fn get(client: &Client, headers: &str) -> String {
    format!("GET {} HTTP/1.1\r\nHost: {}\r\n{headers}\r\n", client.target("/Tables"), client.host())
}

#[test]
fn a_head_that_is_too_long_is_refused() {
    let client = site().client();
    for headers in [
        format!("X: {}\r\n", "y".repeat(200_000)),
        format!("{}: x\r\n", "y".repeat(200_000)),
        "X: y\r\n".repeat(97),
        "X: y\r\n".repeat(20_000),
        format!("Authorization: {}\r\n", "y".repeat(140_000)),
    ] {
        refused_with(&client, &[400, 431], get(&client, &headers).as_bytes());
    }
    let long = format!("GET /{} HTTP/1.1\r\nHost: x\r\n\r\n", "a".repeat(200_000));
    refused_with(&client, &[400, 414, 431], long.as_bytes());
}

#[test]
fn as_many_headers_as_the_table_service_takes_are_no_bomb() {
    let client = site().client();
    let raw = answer_to(&client, get(&client, &"X: y\r\n".repeat(90)).as_bytes());
    assert!(matches!(raw.status, 401 | 403 | 404), "{raw:?}");
}

#[test]
fn lines_that_are_no_headers_are_refused() {
    let client = site().client();
    for line in [
        "no colon\r\n",
        ": no name\r\n",
        "a b: c\r\n",
        "X : y\r\n",
        "X: a\0b\r\n",
        " folded: x\r\n",
        "X: y\r\n folded\r\n",
        "X\u{e9}: y\r\n",
    ] {
        refused_with(&client, &[400], get(&client, line).as_bytes());
    }
}

#[test]
fn no_host_and_several_are_refused() {
    let client = site().client();
    let host = client.host();
    for hosts in
        ["", &format!("Host: {host}\r\nHost: {host}\r\n"), &format!("Host: {host}\r\nX: y\r\nhost: b\r\n")]
    {
        let text = format!("GET {} HTTP/1.1\r\n{hosts}\r\n", client.target("/Tables"));
        refused_with(&client, &[400], text.as_bytes());
    }
}

#[test]
fn a_host_that_is_none_harms_nobody() {
    let client = site().client();
    for host in ["", "a b", "@", "x:y:z", "[::1", "evil.example/../x", "\u{fe}\u{ff}", "a,b"] {
        let text = format!("GET {} HTTP/1.1\r\nHost: {host}\r\n\r\n", client.target("/Tables"));
        refused_with(&client, &[400, 401, 403, 404], text.as_bytes());
    }
}

#[test]
fn versions_of_old_and_of_nowhere() {
    let client = site().client();
    let table = client.table();
    let old = small(&table).replacen("HTTP/1.1", "HTTP/1.0", 1);
    assert_eq!(answer_to(&client, old.as_bytes()).status, 201);
    for version in ["HTTP/0.9", "HTTP/2.0", "HTTP/1.2", "HTTP/11", "http/1.1", "HTTQ/1.1", ""] {
        let text = format!("GET /x {version}\r\nHost: x\r\n\r\n");
        refused_with(&client, &[400, 505], text.as_bytes());
    }
    refused_with(&client, &[400], b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n");
}

#[test]
fn methods_that_nobody_knows_are_refused() {
    let client = site().client();
    for method in ["FROB", "get", "CONNECT", "TRACE", "A".repeat(5000).as_str(), "G\u{e9}T", "GE T"] {
        let text = format!("{method} {} HTTP/1.1\r\nHost: x\r\n\r\n", client.target("/Tables"));
        refused_with(&client, &[400, 401, 403, 404, 405, 501], text.as_bytes());
    }
}

/// To whoever is let in too, and at once, though actix would wait for more.
#[test]
fn an_upgrade_that_is_not_followed_ends_the_connection() {
    let client = site().client();
    let t = client.table();
    t.seed_one(json!({ "A": 1 }));
    for (connection, upgrade) in
        [("Upgrade", "websocket"), ("keep-alive", "WebSocket "), ("Upgrade, HTTP2-Settings", "h2c")]
    {
        let request = t.on("GET", "p", "r").also("Connection", connection).also("Upgrade", upgrade);
        let request = request.also("HTTP2-Settings", "AAMAAABkAARAAAAAAAIAAAAA");
        let answer = request.send().expect(200);
        assert_eq!(answer.json()["A"], 1);
        assert_eq!(answer.header("Connection"), Some("close"), "{upgrade} {answer}");
    }
    // No protocol that actix knows: the body is one.
    let put = t.on("PUT", "p", "r").also("Upgrade", "h2c, websocket").json(&json!({ "A": 2 }));
    put.send().expect_no_content();
    assert_eq!(t.properties(), json!({ "A": 2 }));
    let connect = client.request("CONNECT", &t.path("p", "r")).unchecked().send();
    assert_eq!(connect.status, 405, "{connect}");
    is_well(&client);
}

#[test]
fn an_upgrade_is_not_followed() {
    let client = site().client();
    for headers in [
        "Connection: Upgrade\r\nUpgrade: websocket\r\n",
        "Connection: Upgrade, HTTP2-Settings\r\nUpgrade: h2c\r\nHTTP2-Settings: AAMAAABkAARAAAAAAAIAAAAA\r\n",
        "Expect: 200-maybe\r\n",
    ] {
        refused_with(&client, &[400, 401, 403, 404, 417], get(&client, headers).as_bytes());
    }
}
