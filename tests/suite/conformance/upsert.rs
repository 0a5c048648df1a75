//! Insert Or Replace and Insert Or Merge, without If-Match (protocol §3.10).

use crate::support::*;
use serde_json::json;

cases! {
    an_upsert_creates_what_is_missing, insert_or_replace_replaces, insert_or_merge_merges,
    keys_in_the_body_of_an_upsert_do_not_matter, an_upsert_checks_the_length_of_keys,
}

const VERBS: [&str; 3] = ["PUT", "MERGE", "PATCH"];

fn an_upsert_creates_what_is_missing(client: &Client) {
    for verb in VERBS {
        let t = client.table();
        let answer = t.on(verb, "p", "r").json(&json!({ "A": 1 })).send().expect_no_content();
        assert_eq!(answer.need("ETag"), t.get("p", "r").need("ETag"), "{verb}");
        assert_eq!(answer.header("Location"), None, "{verb}: {answer}");
        assert_eq!(answer.header("DataServiceId"), None, "{verb}: {answer}");
        assert_eq!(t.properties(), json!({ "A": 1 }), "{verb}");
    }
}

fn insert_or_replace_replaces(client: &Client) {
    let t = client.table();
    t.seed_one(json!({ "A": 1, "B": 2 }));
    t.replace("p", "r", &json!({ "B": 3 }), None).expect(204);
    assert_eq!(t.properties(), json!({ "B": 3 }));
}

fn insert_or_merge_merges(client: &Client) {
    for verb in ["MERGE", "PATCH"] {
        let t = client.table();
        t.seed_one(json!({ "A": 1, "B": 2 }));
        t.on(verb, "p", "r").json(&json!({ "B": 3, "C": 4 })).send().expect(204);
        assert_eq!(t.properties(), json!({ "A": 1, "B": 3, "C": 4 }), "{verb}");
    }
}

fn keys_in_the_body_of_an_upsert_do_not_matter(client: &Client) {
    // Settles UNVERIFIED 5, as recorded: the address counts.
    let t = client.table();
    for verb in VERBS {
        t.on(verb, "p", "r").json(&with_keys("p", "r", json!({ "A": 1 }))).send().expect(204);
        t.on(verb, "p", "r").json(&with_keys("p", "x", json!({ "A": verb }))).send().expect(204);
        assert_eq!(t.properties(), json!({ "A": verb }));
    }
    assert_eq!(t.count(), 1);
}

fn an_upsert_checks_the_length_of_keys(client: &Client) {
    // UNVERIFIED 6
    let t = client.table();
    for verb in VERBS {
        t.on(verb, "p", &"x".repeat(1025)).json(&json!({})).send().refused(VALUE_TOO_LARGE);
        t.on(verb, "p", &"x".repeat(1024)).json(&json!({})).send().expect(204);
    }
}
