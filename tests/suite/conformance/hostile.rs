//! Bad input gets the service's own refusal, changes nothing, and leaves the
//! server well.

use std::io::Write;

use crate::support::batch::{post, query_batch};
use crate::support::http::read_answer;
use crate::support::*;
use serde_json::json;

cases! {
    still_well, poison_in_values_is_only_text, poison_in_keys_is_only_text,
    poison_in_property_names_is_refused, poison_in_filters_is_refused_or_finds_nothing,
    poison_in_table_names_is_refused, poison_in_select_is_only_a_name, poison_in_table_filters_finds_nothing,
    poison_in_etags_and_ids_is_only_text, deep_json_is_refused, deep_json_in_an_ignored_member_is_ignored,
    a_deep_filter_is_refused, too_many_comparisons_are_refused, what_each_entity_of_a_page_repeats_is_short,
    invalid_utf8_in_a_body_is_refused, invalid_utf8_in_an_address_is_refused, bad_percent_encoding_is_refused,
    noise_is_refused, paths_that_climb_are_not_followed, an_error_tells_nothing_about_the_inside,
}

/// Text that means something to a database, a shell or a parser.
const POISON: [&str; 16] = [
    "'; DROP TABLE entities; --",
    "' OR '1'='1",
    "\" OR \"\"=\"",
    "x') OR 1=1 --",
    "'); DELETE FROM tables; --",
    "$1",
    "$$; SELECT pg_sleep(10); $$",
    "?1",
    ":name",
    "%s%n",
    "{{7*7}}",
    "${jndi:ldap://x}",
    "<script>alert(1)</script>",
    "COPY x TO PROGRAM 'id'",
    "\u{202e}txt",
    "NULL",
];

/// Demands that the server still does its work.
#[track_caller]
fn still_well(client: &Client) {
    let t = client.table();
    t.seed_one(json!({ "A": 1 }));
    assert_eq!(t.properties(), json!({ "A": 1 }));
    client.delete_table(&t.name).expect(204);
}

/// Sends bytes; the status of the answer, or `None` if the server hung up.
fn raw(client: &Client, bytes: &[u8]) -> Option<u16> {
    let mut stream = client.wire().connect();
    let _ = stream.write_all(bytes);
    read_answer(&mut stream, "GET").map(|(raw, _)| raw.status)
}

fn poison_in_values_is_only_text(client: &Client) {
    let t = client.table();
    t.seed_rows("witness", ["r"]);
    for (i, text) in POISON.iter().enumerate() {
        let row = format!("{i:02}");
        t.seed(with_keys("p", &row, json!({ "S": text })));
        assert_eq!(t.entity("p", &row)["S"], json!(text));
        let literal = text.replace('\'', "''");
        assert_eq!(t.matching_rows(&format!("PartitionKey eq 'p' and S eq '{literal}'")), row, "{text}");
    }
    assert_eq!(t.count(), POISON.len() + 1);
}

fn poison_in_keys_is_only_text(client: &Client) {
    let t = client.table();
    for text in POISON.iter().filter(|t| !t.contains(['/', '\\', '#', '?'])) {
        t.seed(with_keys(text, text, json!({ "S": text })));
        assert_eq!(t.entity(text, text)["S"], json!(text));
        let literal = text.replace('\'', "''");
        assert_eq!(t.matches(&format!("PartitionKey eq '{literal}' and RowKey ge '{literal}'")).len(), 1);
        t.merge(text, text, &json!({ "A": 1 }), Some("*")).expect(204);
        t.delete(text, text, Some("*")).expect(204);
    }
    assert_eq!(t.count(), 0);
}

fn poison_in_property_names_is_refused(client: &Client) {
    let t = client.table();
    for name in POISON.iter().filter(|n| **n != "NULL") {
        t.insert(&with_keys("p", "r", json!({ *name: 1 }))).refused(NAME_INVALID);
    }
    assert_eq!(t.count(), 0);
    still_well(client);
}

fn poison_in_filters_is_refused_or_finds_nothing(client: &Client) {
    let t = client.table();
    t.seed_rows("p", ["1", "2"]);
    for text in POISON {
        t.filter(&format!("S eq 'x{text}")).expect_error_code(400, "InvalidInput");
        let literal = text.replace('\'', "''");
        assert_eq!(t.matching_rows(&format!("PartitionKey eq '{literal}'")), "", "{text}");
        assert_eq!(t.matching_rows(&format!("S eq '{literal}'")), "", "{text}");
    }
    assert_eq!(t.count(), 2);
}

fn poison_in_table_names_is_refused(client: &Client) {
    for name in POISON.iter().filter(|n| (3..=63).contains(&n.chars().count()) && **n != "NULL") {
        client.create_table(name).refused(TABLE_NAME);
    }
    still_well(client);
}

fn poison_in_select_is_only_a_name(client: &Client) {
    let t = client.table();
    t.seed_one(json!({ "A": 1 }));
    for text in POISON {
        let answer = t.query(&format!("?$select=A,{}", escape(text)));
        let items = rows(answer.expect_json());
        assert_eq!(items[0]["A"], 1, "{text}");
    }
}

fn poison_in_table_filters_finds_nothing(client: &Client) {
    for text in POISON {
        let filter = format!("TableName eq '{}'", text.replace('\'', "''"));
        let items = rows(client.get(&format!("/Tables?$filter={}", escape(&filter))).expect_json());
        assert!(items.is_empty(), "{text}");
    }
}

fn poison_in_etags_and_ids_is_only_text(client: &Client) {
    let t = client.table();
    t.seed_one(json!({ "A": 1 }));
    for text in POISON.iter().filter(|t| t.is_ascii() && !t.contains('"')) {
        t.replace("p", "r", &json!({}), Some(&format!("W/\"{text}\""))).refused(CONDITION_NOT_MET);
        let request = t.on("GET", "p", "r").header("x-ms-client-request-id", text);
        assert_eq!(request.send().expect(200).need("x-ms-client-request-id"), *text);
    }
    assert_eq!(t.properties(), json!({ "A": 1 }));
}

fn deep_json_is_refused(client: &Client) {
    let t = client.table();
    let deep = format!("{}1{}", "[".repeat(100_000), "]".repeat(100_000));
    for body in [
        "[".repeat(100_000),
        "{\"a\":".repeat(100_000),
        format!("{{\"PartitionKey\":\"p\",\"RowKey\":\"r\",\"A\":{deep}}}"),
    ] {
        client.request("POST", &t.set()).raw_json(body).send().expect_error_code(400, "InvalidInput");
    }
    assert_eq!(t.count(), 0);
    still_well(client);
}

fn deep_json_in_an_ignored_member_is_ignored(client: &Client) {
    let t = client.table();
    let deep = format!("{}1{}", "[".repeat(100_000), "]".repeat(100_000));
    let body = format!("{{\"PartitionKey\":\"p\",\"RowKey\":\"r\",\"odata.x\":{deep},\"A\":1}}");
    client.request("POST", &t.set()).raw_json(body).send().expect(201);
    assert_eq!(t.properties(), json!({ "A": 1 }));
}

fn a_deep_filter_is_refused(client: &Client) {
    let t = client.table();
    t.seed_one(json!({ "I": 1 }));
    for depth in [5_000, 15_000] {
        let filter = format!("{}I eq 1{}", "(".repeat(depth), ")".repeat(depth));
        let answer = t.query(&format!("?$filter={}", filter.replace(' ', "+")));
        answer.expect_error_code(400, "InvalidInput");
        let answer = t.query(&format!("?$filter={}I", "not+".repeat(depth / 2)));
        answer.expect_error_code(400, "InvalidInput");
    }
    still_well(client);
}

fn too_many_comparisons_are_refused(client: &Client) {
    let t = client.table();
    t.seed_one(json!({ "I": 1 }));
    let filter = vec!["I+eq+1"; 1500].join("+or+");
    t.query(&format!("?$filter={filter}")).expect_error_code(400, "InvalidInput");
    still_well(client);
}

fn what_each_entity_of_a_page_repeats_is_short(client: &Client) {
    let t = client.table();
    t.seed_one(json!({}));
    let names = vec!["x".repeat(10_000); 2].join(",");
    let selected = client.url(&format!("/{}()?$select={names}", t.name));
    let batch = BatchAnswer::of(post(client, query_batch(&selected)).send());
    assert_eq!(batch.parts[0].status, 400, "{}", batch.outer);
    let request = format!("GET {} HTTP/1.1\r\nHost: {}\r\n\r\n", client.target("/Tables"), "h".repeat(1000));
    assert_eq!(raw(client, request.as_bytes()), Some(400));
    still_well(client);
}

fn invalid_utf8_in_a_body_is_refused(client: &Client) {
    let t = client.table();
    for bytes in [&b"\xff"[..], b"\xc3\x28", b"\xed\xa0\x80", b"\xf4\x90\x80\x80", b"\xc0\xaf"] {
        let body = [b"{\"PartitionKey\":\"p\",\"RowKey\":\"r\",\"A\":\"", bytes, b"\"}"].concat();
        client.request("POST", &t.set()).raw_json(body).send().expect_error_code(400, "InvalidInput");
    }
    assert_eq!(t.count(), 0);
}

fn invalid_utf8_in_an_address_is_refused(client: &Client) {
    let t = client.table();
    t.seed_one(json!({}));
    for key in ["%FF", "%C3%28", "%ED%A0%80", "%ED%B0%80", "%F4%90%80%80", "%C0%AF", "a%80"] {
        let answer = client.get(&format!("/{}(PartitionKey='{key}',RowKey='r')", t.name));
        answer.expect_error_code(400, "InvalidInput");
        t.query(&format!("?$filter=PartitionKey%20eq%20'{key}'")).refused(QUERY_VALUE);
    }
}

fn bad_percent_encoding_is_refused(client: &Client) {
    let t = client.table();
    for key in ["%", "%2", "%GG", "%u0041", "%%", "%%30"] {
        let answer = client.get(&format!("/{}(PartitionKey='{key}',RowKey='r')", t.name));
        answer.expect_error_code(400, "InvalidInput");
    }
    assert_eq!(t.count(), 0);
}

fn noise_is_refused(client: &Client) {
    for bytes in [
        &b"\x16\x03\x01\x02\x00\x01\x00"[..],
        b"HELO x\r\n\r\n",
        b"GET\r\n\r\n",
        b"\r\n\r\n\r\n\r\nx\r\n\r\n",
        b"GET / HTTP/9.9\r\n\r\n",
    ] {
        assert_eq!(raw(client, bytes), Some(400), "{bytes:?}");
    }
    still_well(client);
}

fn paths_that_climb_are_not_followed(client: &Client) {
    for (path, refusal) in [
        ("/../../etc/passwd", TABLE_NAME_LENGTH),
        ("/%2e%2e/%2e%2e/etc/passwd", TABLE_NAME_LENGTH),
        ("/..%2f..%2fetc%2fpasswd", TABLE_NAME_LENGTH),
        ("///etc/passwd", QUERY_SYNTAX),
        ("/Tables/../../x", INVALID_INPUT),
    ] {
        client.request("GET", path).send().refused(refusal);
    }
    still_well(client);
}

fn an_error_tells_nothing_about_the_inside(client: &Client) {
    let t = client.table();
    let answers = [
        t.filter("A eq"),
        t.insert(&json!({ "PartitionKey": "p" })),
        client.request("POST", &t.set()).raw_json("{").send(),
        t.get("p", "gone"),
        client.request("GET", &t.set()).auth(Auth::None).send(),
    ];
    for answer in answers {
        let text = answer.text().to_lowercase();
        for word in ["sqlite", "postgres", "sqlx", "panicked", "src/", ".rs:", "actix", "serde", "select "] {
            assert!(!text.contains(word), "{word} in {answer}");
        }
    }
}
