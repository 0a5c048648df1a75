//! Bodies that are well framed and meant ill.

use super::*;

#[track_caller]
fn body_is_refused(table: &Table, body: &str) {
    let request = table.client.request("POST", &table.set()).raw_json(body);
    let answer = request.send();
    assert!((400..500).contains(&answer.status), "{answer}");
}

fn entity(member: &str) -> String {
    format!("{{\"PartitionKey\":\"p\",\"RowKey\":\"r\",{member}}}")
}

#[test]
fn text_that_is_no_text_is_refused() {
    let client = site().client();
    let table = client.table();
    for text in [
        r"\ud800",
        r"\udc00",
        r"\ud800\ud800",
        r"\udc00\ud800",
        r"\ud800x",
        r"\u12",
        r"\x41",
        "\u{1}",
        "\u{0}",
    ] {
        body_is_refused(&table, &entity(&format!("\"A\":\"{text}\"")));
        body_is_refused(&table, &entity(&format!("\"A{text}\":1")));
        body_is_refused(&table, &format!("{{\"PartitionKey\":\"p{text}\",\"RowKey\":\"r\"}}"));
    }
    // NUL in a value is text like any; in a key or a name it is not.
    body_is_refused(&table, &entity(r#""A\u0000":1"#));
    body_is_refused(&table, r#"{"PartitionKey":"p\u0000","RowKey":"r"}"#);
    assert_eq!(table.count(), 0);
    table.insert(&with_keys("p", "r", json!({ "A": "a\u{0}b" }))).expect(201);
    assert_eq!(table.properties(), json!({ "A": "a\u{0}b" }));
    is_well(&client);
}

#[test]
fn numbers_beyond_all_types_are_refused_or_kept() {
    let client = site().client();
    let table = client.table();
    let digits = "9".repeat(100_000);
    for number in [digits.as_str(), "1e999999999", "-1e400", "1E+99999", "--1", "01", ".5", "NaN", "Infinity"]
    {
        body_is_refused(&table, &entity(&format!("\"A\":{number}")));
    }
    for (kind, value) in [
        ("Edm.Int64", "9223372036854775808"),
        ("Edm.Int32", "2147483648"),
        ("Edm.DateTime", "99999-01-01T00:00:00Z"),
        ("Edm.Guid", "0"),
        ("Edm.Binary", "="),
        ("Edm.Frob", "1"),
    ] {
        body_is_refused(&table, &entity(&format!("\"A@odata.type\":\"{kind}\",\"A\":\"{value}\"")));
    }
    assert_eq!(table.count(), 0);
    is_well(&client);
}

#[test]
fn batches_that_make_no_sense_are_refused() {
    let client = site().client();
    let table = client.table();
    let good = Batch::new().insert(&table, &with_keys("p", "r", json!({}))).body();
    let bodies = [
        String::new(),
        "--".repeat(100_000),
        "--batch_b\r\n".repeat(100_000),
        "--batch_b\r\nContent-Type: multipart/mixed; boundary=batch_b\r\n\r\n".repeat(10_000),
        good.replace("--changeset_c--", ""),
        good.replace("HTTP/1.1\n", "HTTP/9.9\n"),
        good.replace("Content-Transfer-Encoding: binary", "Content-Length: +5"),
        good.replace("http://", "gopher://elsewhere.example/\u{0}"),
        good.replacen("boundary=changeset_c", &format!("boundary={}", "c".repeat(100_000)), 1),
    ];
    for body in bodies {
        let answer = crate::support::batch::post(&client, body.clone()).unchecked().send();
        let text = String::from_utf8_lossy(&answer.body);
        // 501 is what an operation gets that there is none of.
        let inner =
            answer.status == 202 && !text.contains("HTTP/1.1 500 ") && !text.contains("HTTP/1.1 503 ");
        assert!(inner || (400..500).contains(&answer.status), "{answer}");
    }
    for kind in
        ["multipart/mixed", "multipart/mixed; boundary=", "multipart/mixed; boundary=\"", "text/plain", ""]
    {
        let request = client.request("POST", "/$batch").header("Content-Type", kind).body(good.as_str());
        let answer = request.unchecked().send();
        assert!(answer.status < 500, "{answer}");
    }
    is_well(&client);
}
