//! Get Entity (protocol §3.8).

use crate::support::*;
use serde_json::json;

cases![
    get_answers_with_etag_and_entity,
    get_of_a_missing_entity_finds_nothing,
    get_of_an_overlong_key_finds_nothing,
    get_selects_properties,
    get_selects_what_is_missing_as_null,
    get_honours_format,
    get_ignores_filter_and_top,
    get_without_metadata_still_has_the_etag_header,
    get_takes_no_notice_of_if_match,
    a_read_sees_the_last_write,
    get_carries_no_continuation,
];

fn get_answers_with_etag_and_entity(client: &Client) {
    let t = client.table();
    let etag = t.seed_one(json!({ "A": 1 }));
    let answer = t.get("p", "r").expect(200);
    assert_eq!(answer.need("ETag"), etag);
    assert_eq!(answer.need("Cache-Control"), "no-cache");
    assert_eq!(answer.header("Location"), None);
    let json = answer.expect_json();
    assert_eq!(json["odata.etag"], json!(etag));
    assert_eq!(json["Timestamp"], json!(timestamp_of(&etag)));
}

fn get_of_a_missing_entity_finds_nothing(client: &Client) {
    let t = client.table();
    t.seed_one(json!({}));
    for (partition, row) in [("p", "x"), ("x", "r"), ("", ""), ("P", "r"), ("p", "R"), ("p ", "r")] {
        let answer = t.get(partition, row).refused(NOT_FOUND);
        assert_eq!(answer.need("Cache-Control"), "no-cache");
    }
}

fn get_of_an_overlong_key_finds_nothing(client: &Client) {
    let t = client.table();
    t.get("p", &"x".repeat(2000)).refused(NOT_FOUND);
}

fn get_selects_properties(client: &Client) {
    let t = client.table();
    let etag = t.seed_one(json!({ "A": 1, "B": 2, "C": 3 }));
    let answer = client.get(&format!("{}?$select=B,A", t.path("p", "r"))).expect(200);
    assert_eq!(answer.need("ETag"), etag);
    let json = answer.expect_json();
    assert_eq!(
        json,
        json!({
            "odata.metadata": client.url(&format!("/$metadata#{}/@Element&$select=B,A", t.name)),
            "odata.etag": etag, "A": 1, "B": 2,
        })
    );
}

fn get_selects_what_is_missing_as_null(client: &Client) {
    let t = client.table();
    t.seed_one(json!({ "A": 1 }));
    let answer = client.get(&format!("{}?$select=A,Missing", t.path("p", "r"))).expect_json();
    assert_eq!(custom(answer), json!({ "A": 1, "Missing": null }));
}

fn get_honours_format(client: &Client) {
    let t = client.table();
    t.seed_one(json!({ "A": 1 }));
    let path = format!("{}?$format=application%2Fjson%3Bodata%3Dnometadata", t.path("p", "r"));
    let json = client.get(&path).expect_json();
    assert_eq!(json.get("odata.etag"), None);
    assert_eq!(json["A"], 1);
}

fn get_ignores_filter_and_top(client: &Client) {
    // UNVERIFIED 10
    let t = client.table();
    t.seed_one(json!({ "A": 1 }));
    for options in ["?$filter=A%20eq%202", "?$top=0", "?$filter=)))", "?$top=x"] {
        let answer = client.get(&format!("{}{options}", t.path("p", "r")));
        assert_eq!(custom(answer.expect_json()), json!({ "A": 1 }), "{options}");
    }
}

fn get_without_metadata_still_has_the_etag_header(client: &Client) {
    let t = client.table();
    let etag = t.seed_one(json!({ "A": 1 }));
    let answer = t.on("GET", "p", "r").level("nometadata").send().expect(200);
    assert_eq!(answer.need("ETag"), etag);
    assert_eq!(answer.json().get("odata.etag"), None);
}

fn get_takes_no_notice_of_if_match(client: &Client) {
    let t = client.table();
    t.seed_one(json!({ "A": 1 }));
    t.on("GET", "p", "r").header("If-Match", "*").send().expect(200);
}

fn a_read_sees_the_last_write(client: &Client) {
    let t = client.table();
    t.seed_one(json!({ "N": 0 }));
    for n in 1..=30 {
        t.replace("p", "r", &json!({ "N": n }), Some("*")).expect(204);
        assert_eq!(t.properties(), json!({ "N": n }));
    }
}

fn get_carries_no_continuation(client: &Client) {
    let t = client.table();
    t.seed_rows("p", ["1", "2"]);
    let answer = client.get(&format!("{}?$top=1", t.path("p", "1"))).expect(200);
    assert!(
        answer.headers.iter().all(|(n, _)| !n.to_lowercase().starts_with("x-ms-continuation")),
        "{answer}"
    );
}
