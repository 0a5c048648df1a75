//! Update and Merge, with If-Match (protocol §3.10).

use crate::support::*;
use serde_json::json;

cases! {
    replace_sets_exactly_what_was_sent, replace_with_keys_only_leaves_the_system_properties,
    replace_takes_null_for_absent, merge_keeps_what_was_not_sent, merge_ignores_null, merge_changes_types,
    merge_of_nothing_is_a_write, updates_answer_with_the_new_etag_and_nothing_else,
    updates_of_a_missing_entity_find_nothing, keys_in_the_body_of_an_update_do_not_matter,
    a_timestamp_in_an_update_is_ignored, a_round_tripped_entity_is_accepted_at_every_level,
    an_empty_body_is_refused, concurrent_updates_under_one_etag_succeed_once,
}

const MERGES: [&str; 2] = ["MERGE", "PATCH"];

fn replace_sets_exactly_what_was_sent(client: &Client) {
    let t = client.table();
    t.seed_one(json!({ "A": 1, "B": 2 }));
    t.replace("p", "r", &with_keys("p", "r", json!({ "B": 3, "C": 4 })), Some("*")).expect_no_content();
    assert_eq!(t.properties(), json!({ "B": 3, "C": 4 }));
}

fn replace_with_keys_only_leaves_the_system_properties(client: &Client) {
    let t = client.table();
    t.seed_one(json!({ "A": 1 }));
    t.replace("p", "r", &with_keys("p", "r", json!({})), Some("*")).expect(204);
    assert_eq!(t.properties(), json!({}));
}

fn replace_takes_null_for_absent(client: &Client) {
    let t = client.table();
    t.seed_one(json!({ "A": 1, "B": 2 }));
    t.replace("p", "r", &json!({ "A": null, "B": 3 }), Some("*")).expect(204);
    assert_eq!(t.properties(), json!({ "B": 3 }));
}

fn merge_keeps_what_was_not_sent(client: &Client) {
    for verb in MERGES {
        let t = client.table();
        t.seed_one(json!({ "A": 1, "B": 2 }));
        let request = t.on(verb, "p", "r").json(&json!({ "B": 3, "C": 4 })).if_match(Some("*"));
        request.send().expect_no_content();
        assert_eq!(t.properties(), json!({ "A": 1, "B": 3, "C": 4 }), "{verb}");
    }
}

fn merge_ignores_null(client: &Client) {
    // UNVERIFIED 25
    let t = client.table();
    t.seed_one(json!({ "A": 1, "B": 2 }));
    t.merge("p", "r", &json!({ "A": null, "B": 3 }), Some("*")).expect(204);
    assert_eq!(t.properties(), json!({ "A": 1, "B": 3 }));
}

fn merge_changes_types(client: &Client) {
    let t = client.table();
    t.seed_one(json!({ "A": 1, "B": "5", "B@odata.type": "Edm.Int64" }));
    t.merge("p", "r", &json!({ "A": "text", "B": true }), Some("*")).expect(204);
    assert_eq!(t.properties(), json!({ "A": "text", "B": true }));
    let typed = json!({ "A": "6", "A@odata.type": "Edm.Int64" });
    t.merge("p", "r", &typed, Some("*")).expect(204);
    assert_eq!(t.properties(), json!({ "A@odata.type": "Edm.Int64", "A": "6", "B": true }));
}

fn merge_of_nothing_is_a_write(client: &Client) {
    let t = client.table();
    let before = t.seed_one(json!({ "A": 1 }));
    let answer = t.merge("p", "r", &json!({}), Some("*")).expect(204);
    assert_ne!(answer.need("ETag"), before);
    assert_eq!(t.properties(), json!({ "A": 1 }));
}

fn updates_answer_with_the_new_etag_and_nothing_else(client: &Client) {
    let t = client.table();
    t.seed_one(json!({ "A": 1 }));
    for verb in ["PUT", "MERGE", "PATCH"] {
        let request = t.on(verb, "p", "r").json(&json!({ "A": 2 })).if_match(Some("*"));
        let answer = request.send().expect_no_content();
        assert_eq!(answer.need("ETag"), t.get("p", "r").need("ETag"), "{verb}");
        assert_eq!(answer.need("Cache-Control"), "no-cache");
        for absent in ["Location", "DataServiceId", "Preference-Applied"] {
            assert_eq!(answer.header(absent), None, "{verb}: {answer}");
        }
    }
}

fn updates_of_a_missing_entity_find_nothing(client: &Client) {
    let t = client.table();
    let tag = "W/\"datetime'2020-01-01T00%3A00%3A00Z'\"";
    for verb in ["PUT", "MERGE", "PATCH"] {
        for etag in ["*", tag] {
            let request = t.on(verb, "p", "r").json(&json!({ "A": 2 })).if_match(Some(etag));
            request.send().refused(NOT_FOUND);
        }
    }
    assert_eq!(t.count(), 0);
}

fn keys_in_the_body_of_an_update_do_not_matter(client: &Client) {
    // Settles UNVERIFIED 5: a recorded PATCH whose body names other keys than
    // its address is carried out on the address.
    let t = client.table();
    t.seed_one(json!({ "A": 1 }));
    for verb in ["PUT", "MERGE", "PATCH"] {
        for (partition, row) in [("x", "r"), ("p", "x"), ("P", "r"), ("p", "")] {
            let request = t.on(verb, "p", "r").json(&with_keys(partition, row, json!({ "A": verb })));
            request.if_match(Some("*")).send().expect(204);
        }
        assert_eq!(t.properties(), json!({ "A": verb }));
    }
    assert_eq!(t.count(), 1);
}

fn a_timestamp_in_an_update_is_ignored(client: &Client) {
    let t = client.table();
    t.seed_one(json!({}));
    for verb in ["PUT", "MERGE", "PATCH"] {
        let body =
            json!({ "Timestamp@odata.type": "Edm.DateTime", "Timestamp": "1999-01-01T00:00:00Z", "A": 1 });
        t.on(verb, "p", "r").json(&body).if_match(Some("*")).send().expect(204);
        assert!(t.entity("p", "r")["Timestamp"].as_str().is_some_and(|time| time > "2020"));
    }
}

fn a_round_tripped_entity_is_accepted_at_every_level(client: &Client) {
    let t = client.table();
    let properties = json!({
        "S": "x", "I": 1, "D": 1.5, "N@odata.type": "Edm.Double", "N": "NaN", "B": true,
        "L@odata.type": "Edm.Int64", "L": "9007199254740993",
        "G@odata.type": "Edm.Guid", "G": "c9da6455-213d-42c9-9a79-3e9149a57833",
    });
    t.seed_one(properties.clone());
    for level in ["fullmetadata", "minimalmetadata"] {
        let read = t.on("GET", "p", "r").level(level).send().expect_json();
        t.replace("p", "r", &read, Some("*")).expect(204);
        assert_eq!(t.properties(), properties, "{level}");
        t.merge("p", "r", &read, Some("*")).expect(204);
        assert_eq!(t.properties(), properties, "{level}");
    }
}

fn an_empty_body_is_refused(client: &Client) {
    let t = client.table();
    t.seed_one(json!({ "A": 1 }));
    for verb in ["PUT", "MERGE", "PATCH"] {
        let request = t.on(verb, "p", "r").raw_json("").if_match(Some("*"));
        request.send().expect_error_code(400, "InvalidInput");
    }
    assert_eq!(t.properties(), json!({ "A": 1 }));
}

fn concurrent_updates_under_one_etag_succeed_once(client: &Client) {
    let t = client.table();
    let etag = t.seed_one(json!({ "N": 0 }));
    let statuses: Vec<u16> = std::thread::scope(|scope| {
        let (t, etag) = (&t, etag.as_str());
        let update = move |i: i32| t.replace("p", "r", &json!({ "N": i }), Some(etag)).status;
        let threads: Vec<_> = (1..=8).map(|i| scope.spawn(move || update(i))).collect();
        threads.into_iter().map(|thread| thread.join().expect("no update panics")).collect()
    });
    assert_eq!(statuses.iter().filter(|s| **s == 204).count(), 1, "{statuses:?}");
    assert_eq!(statuses.iter().filter(|s| **s == 412).count(), 7, "{statuses:?}");
}
