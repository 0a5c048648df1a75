//! Limits, each on its edge (protocol §5.5 to §5.7, §13.1).

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;

use crate::support::*;
use serde_json::{Value, json};

cases! {
    an_entity_holds_252_properties, the_union_of_a_merge_holds_252_properties,
    nulls_do_not_count_as_properties, a_property_name_has_255_characters, a_string_has_32768_utf16_units,
    a_binary_has_65536_bytes, a_key_has_1024_utf16_units, an_entity_has_one_mebibyte,
    an_entity_too_large_is_that_because_of_one_property_too,
    a_merge_is_judged_by_what_was_sent_before_the_union, a_body_over_four_mebibytes_is_refused,
    a_chunked_body_over_four_mebibytes_is_refused, a_filter_may_hold_many_comparisons,
    table_names_have_63_characters,
}

fn numbered(range: std::ops::Range<usize>) -> Value {
    Value::Object(range.map(|i| (format!("P{i:03}"), json!(i))).collect())
}

fn binary(bytes: usize) -> String {
    STANDARD.encode(vec![7u8; bytes])
}

fn an_entity_holds_252_properties(client: &Client) {
    let t = client.table();
    t.insert(&with_keys("p", "r", numbered(0..252))).expect(201);
    assert_eq!(t.properties(), numbered(0..252));
    t.insert(&with_keys("p", "s", numbered(0..253))).refused(TOO_MANY_PROPERTIES);
    t.replace("p", "s", &numbered(0..253), None).refused(TOO_MANY_PROPERTIES);
    assert_eq!(t.count(), 1);
}

fn the_union_of_a_merge_holds_252_properties(client: &Client) {
    let t = client.table();
    t.seed_one(numbered(0..200));
    t.merge("p", "r", &numbered(150..252), Some("*")).expect(204);
    t.merge("p", "r", &numbered(252..253), Some("*")).refused(TOO_MANY_PROPERTIES);
    t.merge("p", "r", &numbered(252..253), None).refused(TOO_MANY_PROPERTIES);
    assert_eq!(t.properties(), numbered(0..252));
}

fn nulls_do_not_count_as_properties(client: &Client) {
    let t = client.table();
    let mut properties = numbered(0..252);
    for i in 0..50 {
        properties[format!("N{i}")] = Value::Null;
    }
    t.insert(&with_keys("p", "r", properties)).expect(201);
}

fn a_property_name_has_255_characters(client: &Client) {
    let t = client.table();
    t.insert(&with_keys("p", "1", json!({ "n".repeat(255): 1 }))).expect(201);
    t.insert(&with_keys("p", "2", json!({ "n".repeat(256): 1 }))).refused(NAME_TOO_LONG);
    t.insert(&with_keys("p", "3", json!({ "é".repeat(255): 1 }))).expect(201);
    t.insert(&with_keys("p", "4", json!({ "é".repeat(256): 1 }))).refused(NAME_TOO_LONG);
    assert_eq!(t.count(), 2);
}

fn a_string_has_32768_utf16_units(client: &Client) {
    let t = client.table();
    for (i, text) in ["x".repeat(32_768), "é".repeat(32_768), "😀".repeat(16_384)].iter().enumerate() {
        let row = i.to_string();
        t.insert(&with_keys("p", &row, json!({ "S": text }))).expect(201);
        assert_eq!(t.entity("p", &row)["S"], json!(text));
        let longer = json!({ "S": format!("{text}x") });
        t.insert(&with_keys("q", &row, longer.clone())).refused(VALUE_TOO_LARGE);
        t.merge("p", &row, &longer, Some("*")).refused(VALUE_TOO_LARGE);
    }
    assert_eq!(t.count(), 3);
}

fn a_binary_has_65536_bytes(client: &Client) {
    let t = client.table();
    let property = |bytes| json!({ "B@odata.type": "Edm.Binary", "B": binary(bytes) });
    t.insert(&with_keys("p", "r", property(65_536))).expect(201);
    assert_eq!(t.properties(), property(65_536));
    t.insert(&with_keys("p", "s", property(65_537))).refused(VALUE_TOO_LARGE);
}

fn a_key_has_1024_utf16_units(client: &Client) {
    // UNVERIFIED 6
    let t = client.table();
    for key in ["k".repeat(1024), "é".repeat(1024), "😀".repeat(512)] {
        t.insert(&with_keys(&key, &key, json!({ "A": 1 }))).expect(201);
        assert_eq!(t.entity(&key, &key)["A"], 1);
        let longer = format!("{key}k");
        t.insert(&with_keys(&longer, "r", json!({}))).refused(VALUE_TOO_LARGE);
        t.insert(&with_keys("p", &longer, json!({}))).refused(VALUE_TOO_LARGE);
    }
    assert_eq!(t.count(), 3);
}

/// Properties that fill an entity under `p`, `r` to exactly this many counted
/// bytes: 4 for the entity, 2 for each character of the keys, and for each
/// binary 8, 2 for each character of its name, its bytes and 4.
fn filling(total: usize) -> Value {
    let mut left = total - 4 - 2 * 2;
    let mut properties = json!({});
    let mut i = 0;
    while left > 0 {
        let overhead = 8 + 2 * 3 + 4;
        let bytes = (left - overhead).min(60_000);
        let bytes = if left - overhead - bytes < overhead && left - overhead > bytes {
            bytes - overhead
        } else {
            bytes
        };
        properties[format!("B{i:02}@odata.type")] = json!("Edm.Binary");
        properties[format!("B{i:02}")] = json!(binary(bytes));
        left -= overhead + bytes;
        i += 1;
    }
    properties
}

fn an_entity_has_one_mebibyte(client: &Client) {
    let t = client.table();
    t.insert(&with_keys("p", "r", filling(1024 * 1024))).expect(201);
    let over = filling(1024 * 1024 + 1);
    t.insert(&with_keys("p", "s", over.clone())).refused(ENTITY_TOO_LARGE);
    t.replace("p", "r", &over, Some("*")).refused(ENTITY_TOO_LARGE);
    t.replace("p", "s", &over, None).refused(ENTITY_TOO_LARGE);
    assert_eq!(t.properties(), filling(1024 * 1024));
}

fn an_entity_too_large_is_that_because_of_one_property_too(client: &Client) {
    let t = client.table();
    t.seed_one(json!({ "A": 1 }));
    let bytes = json!({ "B@odata.type": "Edm.Binary", "B": binary(1024 * 1024) });
    for over in [bytes, json!({ "S": "x".repeat(512 * 1024) })] {
        let entity = with_keys("p", "r", over.clone());
        t.insert(&with_keys("p", "s", over.clone())).refused(ENTITY_TOO_LARGE);
        for condition in [None, Some("*")] {
            t.replace("p", "r", &over, condition).refused(ENTITY_TOO_LARGE);
            t.merge("p", "r", &over, condition).refused(ENTITY_TOO_LARGE);
        }
        for verb in ["POST", "PUT", "MERGE"] {
            let batch = Batch::new().insert(&t, &with_keys("p", "1", json!({})));
            let batch = match verb {
                "POST" => batch.insert(&t, &entity),
                verb => batch.write(verb, &t, ("p", "r"), &over, Some("*")),
            };
            batch.send(client).refused(1, ENTITY_TOO_LARGE);
        }
    }
    assert_eq!((t.count(), t.properties()), (1, json!({ "A": 1 })));
}

fn a_merge_is_judged_by_what_was_sent_before_the_union(client: &Client) {
    let t = client.table();
    t.seed_one(filling(1024 * 1024 - 100_000));
    let long = json!({ "Straw@odata.type": "Edm.Binary", "Straw": binary(65_537) });
    t.merge("p", "r", &long, Some("*")).refused(VALUE_TOO_LARGE);
    t.replace("p", "r", &filling(1024 * 1024), Some("*")).expect(204);
    t.merge("p", "r", &long, Some("*")).refused(VALUE_TOO_LARGE);
    for condition in [None, Some("*")] {
        t.merge("p", "r", &json!({ "Straw": 1 }), condition).refused(ENTITY_TOO_LARGE);
    }
    let batch = Batch::new().insert(&t, &with_keys("p", "1", json!({})));
    let batch = batch.write("MERGE", &t, ("p", "r"), &json!({ "Straw": 1 }), Some("*"));
    batch.send(client).refused(1, ENTITY_TOO_LARGE);
    assert_eq!((t.count(), t.properties()), (1, filling(1024 * 1024)));
}

fn a_body_over_four_mebibytes_is_refused(client: &Client) {
    let t = client.table();
    let body =
        format!("{{\"PartitionKey\":\"p\",\"RowKey\":\"r\",\"A\":\"{}\"}}", "x".repeat(4 * 1024 * 1024));
    client.request("POST", &t.set()).raw_json(body.clone()).send().turned_away(BODY_TOO_LARGE);
    t.on("PUT", "p", "r").raw_json(body).send().turned_away(BODY_TOO_LARGE);
    assert_eq!(t.count(), 0);
}

fn a_chunked_body_over_four_mebibytes_is_refused(client: &Client) {
    let t = client.table();
    let chunk = format!("10000\r\n{}\r\n", "x".repeat(0x10000));
    let body = chunk.repeat(70) + "0\r\n\r\n";
    let request = client.request("POST", &t.set()).raw_json(body).header("Transfer-Encoding", "chunked");
    request.send().turned_away(BODY_TOO_LARGE);
    assert_eq!(t.count(), 0);
}

fn a_filter_may_hold_many_comparisons(client: &Client) {
    // UNVERIFIED 9
    let t = client.table();
    t.seed_rows("p", ["a", "b"]);
    let filter = |n: usize| (0..n).map(|i| format!("N eq {i}")).collect::<Vec<_>>().join(" or ");
    assert_eq!(t.matching_rows(&filter(16)), "");
    assert_eq!(t.matching_rows(&format!("{} or RowKey eq 'b'", filter(100))), "b");
    assert_eq!(t.matching_rows(&format!("{} or RowKey eq 'b'", filter(999))), "b");
}

fn table_names_have_63_characters(client: &Client) {
    let stem = fresh_name();
    let longest = format!("{stem}{}", "x".repeat(63 - stem.len()));
    client.create_table(&longest).expect(201);
    client.create_table(&format!("{longest}x")).refused(TABLE_NAME_LENGTH);
    client.delete_table(&longest).expect(204);
}
