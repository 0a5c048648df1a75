//! Headers of requests and answers, time-outs and tunnelled verbs (protocol
//! §2, §3.9).

use std::io::{Read, Write};

use crate::support::client::Request;
use crate::support::*;
use serde_json::json;

cases! {
    each_answer_has_a_request_id_of_its_own, the_client_request_id_is_echoed_to_the_letter,
    no_client_request_id_is_not_echoed, reasons_of_status_lines_are_the_standard_ones,
    headers_of_curious_clients_are_ignored, header_names_are_read_in_any_case, a_timeout_is_accepted,
    a_timeout_that_is_no_number_is_refused, a_tunnelled_verb_is_executed, a_tunnel_needs_post,
    a_tunnel_needs_a_known_verb, a_head_request_has_no_body, an_answer_without_content_has_a_length_of_zero,
    continuations_are_named_to_the_letter, answers_on_one_connection_are_named_to_the_letter,
}

fn each_answer_has_a_request_id_of_its_own(client: &Client) {
    let t = client.table();
    let mut ids: Vec<String> =
        (0..20).map(|_| client.get(&t.set()).need("x-ms-request-id").to_owned()).collect();
    ids.sort();
    ids.dedup();
    assert_eq!(ids.len(), 20);
}

fn the_client_request_id_is_echoed_to_the_letter(client: &Client) {
    let t = client.table();
    for id in [
        "a",
        "some id with spaces",
        "ÄÖ".escape_unicode().to_string().as_str(),
        "x".repeat(1024).as_str(),
        "\"';<>",
    ] {
        let answer = client.request("GET", &t.set()).header("x-ms-client-request-id", id).send().expect(200);
        assert_eq!(answer.need("x-ms-client-request-id"), id);
        let missing = t.on("GET", "p", "gone").header("x-ms-client-request-id", id).send().refused(NOT_FOUND);
        assert_eq!(missing.need("x-ms-client-request-id"), id);
    }
}

fn no_client_request_id_is_not_echoed(client: &Client) {
    let t = client.table();
    let answer = client.request("GET", &t.set()).without("x-ms-client-request-id").send().expect(200);
    assert_eq!(answer.header("x-ms-client-request-id"), None);
}

fn reasons_of_status_lines_are_the_standard_ones(client: &Client) {
    let t = client.table();
    t.seed_one(json!({}));
    for (answer, reason) in [
        (client.get(&t.set()), "OK"),
        (t.insert(&with_keys("p", "2", json!({}))), "Created"),
        (t.merge("p", "2", &json!({}), None), "No Content"),
        (t.get("p", "gone"), "Not Found"),
        (t.insert(&with_keys("p", "r", json!({}))), "Conflict"),
        (t.delete("p", "r", Some("W/\"x\"")), "Precondition Failed"),
        (t.insert(&json!({})), "Bad Request"),
    ] {
        assert_eq!(answer.reason, reason, "{answer}");
    }
}

fn headers_of_curious_clients_are_ignored(client: &Client) {
    let t = client.table();
    let request = client.request("GET", &t.set());
    let request = request.header("Accept-Charset", "UTF-8").header("Accept-Encoding", "gzip, deflate, br");
    let request =
        request.header("User-Agent", "curious/1.0 (é)".replace('é', "e")).header("x-ms-useragent", "x");
    let request = request.header("traceparent", "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01");
    request
        .header("x-ms-return-client-request-id", "true")
        .header("sec-fetch-mode", "cors")
        .send()
        .expect(200);
}

fn header_names_are_read_in_any_case(client: &Client) {
    let t = client.table();
    t.seed_one(json!({ "A": 1 }));
    let request = t.on("PUT", "p", "r").body("{\"A\":2}").also("CONTENT-TYPE", "application/json");
    request.also("IF-MATCH", "*").send().expect(204);
    let request = t.inserting(&with_keys("p", "2", json!({}))).also("PREFER", "return-no-content");
    request.send().expect(204);
}

fn a_timeout_is_accepted(client: &Client) {
    let t = client.table();
    for timeout in ["1", "30", "90", "3600"] {
        t.query(&format!("?timeout={timeout}")).expect(200);
    }
}

fn a_timeout_that_is_no_number_is_refused(client: &Client) {
    // UNVERIFIED 21
    let t = client.table();
    for timeout in ["abc", "1.5", "-1"] {
        t.query(&format!("?timeout={timeout}")).refused(QUERY_VALUE);
    }
}

fn a_tunnelled_verb_is_executed(client: &Client) {
    let t = client.table();
    t.seed_one(json!({ "A": 1 }));
    let tunnel = |verb: &str| t.on("POST", "p", "r").header("X-HTTP-Method", verb).if_match(Some("*"));
    tunnel("MERGE").json(&json!({ "B": 2 })).send().expect(204);
    assert_eq!(t.properties(), json!({ "A": 1, "B": 2 }));
    tunnel("PATCH").json(&json!({ "C": 3 })).send().expect(204);
    assert_eq!(t.properties(), json!({ "A": 1, "B": 2, "C": 3 }));
    tunnel("PUT").json(&json!({ "D": 4 })).send().expect(204);
    assert_eq!(t.properties(), json!({ "D": 4 }));
    tunnel("DELETE").send().expect(204);
    assert_eq!(t.count(), 0);
    t.on("POST", "p", "r").header("X-HTTP-Method", "MERGE").json(&json!({ "A": 1 })).send().expect(204);
    assert_eq!(t.properties(), json!({ "A": 1 }), "an upsert");
}

fn a_tunnel_needs_post(client: &Client) {
    let t = client.table();
    t.seed_one(json!({ "A": 1 }));
    for verb in ["GET", "PUT", "MERGE"] {
        let request = t.on(verb, "p", "r").header("X-HTTP-Method", "DELETE").if_match(Some("*"));
        let request = if verb == "GET" { request } else { request.json(&json!({})) };
        request.send().refused(TUNNEL_NOT_POST);
    }
    assert_eq!(t.properties(), json!({ "A": 1 }));
}

fn a_tunnel_needs_a_known_verb(client: &Client) {
    let t = client.table();
    t.seed_one(json!({ "A": 1 }));
    for verb in ["FROB", "", "POST POST"] {
        let request = t.on("POST", "p", "r").header("X-HTTP-Method", verb).if_match(Some("*"));
        request.json(&json!({})).send().refused(TUNNEL_UNKNOWN);
    }
}

fn a_head_request_has_no_body(client: &Client) {
    let t = client.table();
    t.seed_one(json!({}));
    let read = t.on("GET", "p", "r").send().expect(200);
    let head = t.on("HEAD", "p", "r").send().expect(200);
    assert!(head.body.is_empty(), "{head}");
    assert_eq!(head.need("etag"), read.need("etag"));
    assert_eq!(head.need("content-length"), read.body.len().to_string());
    let etag = read.need("etag");
    let unchanged = t.on("HEAD", "p", "r").header("If-None-Match", etag).send().expect(304);
    assert_eq!((unchanged.need("etag"), unchanged.body.len()), (etag, 0), "{unchanged}");
    let missing = t.on("HEAD", "p", "other").unchecked().send();
    assert_eq!((missing.status, missing.body.len()), (404, 0), "{missing}");
    let table = client.request("HEAD", &t.set()).unchecked().send();
    assert_eq!((table.status, table.body.len()), (405, 0), "{table}");
}

/// Reads heads of answers without bodies, as many as are asked for.
fn read_heads(stream: &mut impl Read, count: usize) -> Vec<String> {
    let mut text = String::new();
    while text.matches("\r\n\r\n").count() < count {
        let mut bytes = [0; 4096];
        let length = stream.read(&mut bytes).expect("an answer");
        assert_ne!(length, 0, "the connection ended: {text}");
        text.push_str(std::str::from_utf8(&bytes[..length]).expect("plain text"));
    }
    text.split_inclusive("\r\n\r\n").map(str::to_owned).collect()
}

fn an_answer_without_content_has_a_length_of_zero(client: &Client) {
    let t = client.table();
    t.seed_one(json!({}));
    let write = |verb: &str, row: &str, condition| {
        t.on(verb, "p", row).json(&json!({ "A": 1 })).if_match(condition).bytes()
    };
    let silent = |request: Request<'_>| request.header("Prefer", "return-no-content").bytes();
    let acl = format!("{}?comp=acl", t.set());
    let requests = [
        silent(client.request("POST", "/Tables").json(&json!({ "TableName": fresh_name() }))),
        silent(t.inserting(&with_keys("p", "inserted", json!({})))),
        write("PUT", "r", Some("*")),
        write("PUT", "put", None),
        write("MERGE", "r", Some("*")),
        write("MERGE", "merged", None),
        write("PATCH", "r", Some("*")),
        write("PATCH", "patched", None),
        t.on("DELETE", "p", "r").if_match(Some("*")).bytes(),
        client.request("PUT", &acl).header("Accept", "application/xml").bytes(),
        client.request("DELETE", &format!("/Tables('{}')", t.name)).bytes(),
    ];
    let (last, alone) = requests.split_last().expect("requests");
    // One after the other on one connection, then all that can be repeated at once.
    let mut stream = client.wire().connect();
    let mut heads = Vec::new();
    for request in alone {
        stream.write_all(request).expect("the connection is kept");
        heads.extend(read_heads(&mut stream, 1));
    }
    let repeated = [&requests[3], &requests[5], &requests[7], &requests[9], last];
    stream.write_all(&repeated.map(Vec::as_slice).concat()).expect("the connection is kept");
    heads.extend(read_heads(&mut stream, repeated.len()));
    for head in &heads {
        assert!(head.starts_with("HTTP/1.1 204 No Content\r\n"), "{head}");
        assert_eq!(head.matches("\r\nContent-Length: 0\r\n").count(), 1, "{head}");
        assert_eq!(head.to_ascii_lowercase().matches("length").count(), 1, "{head}");
    }
    assert_eq!(heads.len(), alone.len() + repeated.len());
}

fn continuations_are_named_to_the_letter(client: &Client) {
    // Every other name is compared for every answer of these tests.
    let t = client.table();
    t.seed_rows("p", ["1", "2"]);
    let other = client.table();
    let names = |answer: Answer| -> Vec<String> {
        answer.expect(200).headers.into_iter().map(|(n, _)| n).filter(|n| n.contains("ontinuation")).collect()
    };
    let mut entities = names(t.query("?$top=1"));
    entities.sort();
    assert_eq!(entities, ["x-ms-continuation-NextPartitionKey", "x-ms-continuation-NextRowKey"]);
    assert_eq!(names(client.get("/Tables?$top=1")), ["x-ms-continuation-NextTableName"]);
    client.delete_table(&other.name).expect(204);
}

fn answers_on_one_connection_are_named_to_the_letter(client: &Client) {
    let t = client.table();
    let text = "HTTP/1.1 200 OK\r\nx-ms-continuation-nextrowkey: 1\r\n\r\n";
    let long = text.repeat(300);
    t.seed(with_keys("p", "1", json!({ "Text": text, "Long": long })));
    t.seed_rows("q", ["2"]);
    let head = t.on("HEAD", "p", "1").bytes();
    let write = t.on("PUT", "q", "2").json(&json!({})).header("Expect", "100-continue").bytes();
    let page = || client.request("GET", &format!("{}?$top=1", t.set()));
    let mut stream = client.wire().connect();
    for request in [head, write, page().bytes(), page().header("Connection", "close").bytes()] {
        stream.write_all(&request).expect("requests can be written ahead");
    }
    let mut answers = String::new();
    stream.read_to_string(&mut answers).expect("the server ends the connection");
    let count = |part: &str| answers.matches(part).count();
    assert_eq!(count("HTTP/1.1 204 "), 1, "{answers}");
    assert_eq!(count("\r\nx-ms-continuation-NextPartitionKey: "), 2, "{answers}");
    assert_eq!(count("\r\nx-ms-continuation-nextpartitionkey: "), 0, "{answers}");
    for (name, times) in [("x-ms-version", 4), ("Content-Length", 4), ("ETag", 2), ("Date", 4)] {
        assert_eq!(count(&format!("\r\n{name}: ")), times, "{name} in {answers}");
    }
    // Text in bodies is not a header.
    assert_eq!(count("x-ms-continuation-nextrowkey: 1"), 2 * 301, "{answers}");
}
