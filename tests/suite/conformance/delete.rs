//! Delete Entity (protocol §3.11).

use crate::support::*;
use serde_json::json;

cases! {
    delete_removes_the_entity, delete_without_a_condition_is_refused,
    delete_of_a_missing_entity_finds_nothing, delete_does_not_check_the_length_of_keys,
    delete_ignores_the_format_of_the_answer, a_deleted_entity_can_be_inserted_again,
}

fn delete_removes_the_entity(client: &Client) {
    let t = client.table();
    t.seed_rows("p", ["r", "s"]);
    let answer = t.delete("p", "r", Some("*")).expect_no_content();
    assert_eq!(answer.header("ETag"), None);
    assert_eq!(answer.need("Cache-Control"), "no-cache");
    t.get("p", "r").refused(NOT_FOUND);
    assert_eq!(t.count(), 1);
}

fn delete_without_a_condition_is_refused(client: &Client) {
    // UNVERIFIED 4
    let t = client.table();
    t.seed_one(json!({}));
    t.delete("p", "r", None).expect_error_code(400, "InvalidInput");
    assert_eq!(t.count(), 1);
}

fn delete_of_a_missing_entity_finds_nothing(client: &Client) {
    let t = client.table();
    t.delete("p", "r", Some("*")).refused(NOT_FOUND);
    t.delete("p", "r", Some("W/\"datetime'2020-01-01T00%3A00%3A00Z'\"")).refused(NOT_FOUND);
}

fn delete_does_not_check_the_length_of_keys(client: &Client) {
    let t = client.table();
    t.delete("p", &"x".repeat(2048), Some("*")).refused(NOT_FOUND);
    t.delete(&"x".repeat(2048), "r", Some("*")).refused(NOT_FOUND);
}

fn delete_ignores_the_format_of_the_answer(client: &Client) {
    let t = client.table();
    for (row, accept) in [("1", "*/*"), ("2", "application/xml"), ("3", "application/json"), ("4", "")] {
        t.seed_rows("p", [row]);
        let request = t.on("DELETE", "p", row).header("If-Match", "*").header("Accept", accept);
        request.send().expect_no_content();
    }
}

fn a_deleted_entity_can_be_inserted_again(client: &Client) {
    let t = client.table();
    let first = t.seed_one(json!({ "A": 1 }));
    t.delete("p", "r", Some("*")).expect(204);
    let second = t.seed_one(json!({ "B": 2 }));
    assert_ne!(first, second, "an ETag names one version for ever");
    assert_eq!(t.properties(), json!({ "B": 2 }));
    t.delete("p", "r", Some(&first)).refused(CONDITION_FAILED);
}
