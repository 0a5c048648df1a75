//! Get Entity (protocol §3.8).

use crate::support::batch::{post, query_batch};
use crate::support::*;
use serde_json::json;

cases! {
    get_answers_with_etag_and_entity, get_of_a_missing_entity_finds_nothing,
    get_of_an_overlong_key_finds_nothing, get_selects_properties, get_selects_what_is_missing_as_null,
    get_honours_format, get_ignores_top, get_finds_only_what_the_filter_admits,
    a_filter_of_a_get_that_cannot_be_parsed_is_refused, get_without_metadata_still_has_the_etag_header,
    get_takes_no_notice_of_if_match, get_carries_no_continuation,
}

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

fn get_ignores_top(client: &Client) {
    // UNVERIFIED 10
    let t = client.table();
    t.seed_one(json!({ "A": 1 }));
    for options in ["?$top=0", "?$top=x", "?$top="] {
        let answer = client.get(&format!("{}{options}", t.path("p", "r")));
        assert_eq!(custom(answer.expect_json()), json!({ "A": 1 }), "{options}");
    }
}

fn get_finds_only_what_the_filter_admits(client: &Client) {
    let t = client.table();
    let etag = t.seed_one(json!({ "A": 1, "S": "x" }));
    let get = |filter: &str| client.get(&format!("{}?$filter={}", t.path("p", "r"), escape(filter)));
    for filter in ["A eq 1", "S ge 'x' and not (A gt 1)", "PartitionKey eq 'p' and RowKey eq 'r'", "", " "] {
        let answer = get(filter).expect(200);
        assert_eq!(answer.need("ETag"), etag, "{filter}");
        assert_eq!(custom(answer.expect_json()), json!({ "A": 1, "S": "x" }), "{filter}");
    }
    for filter in ["A eq 2", "Missing eq 1", "RowKey eq 's'", "S lt 'x' or A ne 1"] {
        let answer = get(filter).refused(NOT_FOUND);
        assert_eq!(answer.need("Cache-Control"), "no-cache");
    }
    // Also of a part of a batch, and where there is nothing.
    let batch = query_batch(&client.url(&format!("{}?$filter=A%20eq%202", t.path("p", "r"))));
    BatchAnswer::of(post(client, batch).send()).refused(0, NOT_FOUND);
    client.get(&format!("{}?$filter=A%20eq%201", t.path("p", "none"))).refused(NOT_FOUND);
    client
        .get(&format!("/{}(PartitionKey='p',RowKey='r')?$filter=A%20eq%201", fresh_name()))
        .refused(NO_TABLE);
    // The columns of the answer need not be those of the filter.
    let answer = client.get(&format!("{}?$select=S&$filter=A%20eq%201", t.path("p", "r")));
    assert_eq!(custom(answer.expect_json()), json!({ "S": "x" }));
}

fn a_filter_of_a_get_that_cannot_be_parsed_is_refused(client: &Client) {
    let t = client.table();
    t.seed_one(json!({ "A": 1 }));
    for filter in [")))", "A eq", "PartitionKey eq 1", "startswith(A,'x')", "A eq not B"] {
        let of_read = client.get(&format!("{}?$filter={}", t.path("p", "r"), escape(filter)));
        let of_query = t.filter(filter);
        assert!(of_query.status >= 400, "{of_query}");
        let message = |answer: &Answer| answer.json()["odata.error"]["message"]["value"].to_string();
        let first_line = |answer: &Answer| message(answer).split("\\n").next().map(str::to_owned);
        assert_eq!(
            (of_read.status, first_line(&of_read)),
            (of_query.status, first_line(&of_query)),
            "{filter}"
        );
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

fn get_carries_no_continuation(client: &Client) {
    let t = client.table();
    t.seed_rows("p", ["1", "2"]);
    let answer = client.get(&format!("{}?$top=1", t.path("p", "1"))).expect(200);
    assert!(
        answer.headers.iter().all(|(n, _)| !n.to_lowercase().starts_with("x-ms-continuation")),
        "{answer}"
    );
}
