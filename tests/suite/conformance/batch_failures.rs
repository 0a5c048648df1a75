//! Atomicity and the one failing part (protocol §8.4).

use crate::support::batch::post;
use crate::support::*;
use serde_json::json;

cases! {
    one_failure_in_storage_fails_the_whole_set, the_first_failure_is_the_one_reported,
    a_roll_back_restores_values_and_etags, a_lone_storage_failure_has_no_index,
    a_lone_validation_failure_has_index_zero, a_value_too_large_alone_has_no_index,
    forbidden_characters_in_addresses_fail_with_an_index, addresses_of_no_entity_fail_as_recorded,
    what_makes_no_sense_fails_at_its_index, a_bad_entity_fails_at_its_index, validation_comes_before_storage,
    the_failing_part_speaks_the_format_it_was_asked_in, readers_see_all_of_a_change_set_or_nothing,
    a_batch_that_is_not_authentic_is_turned_away_whole,
}

/// Two good inserts around which cases place a bad one.
fn good(t: &Table) -> Batch {
    Batch::new().insert(t, &with_keys("p", "new1", json!({}))).insert(t, &with_keys("p", "new2", json!({})))
}

fn one_failure_in_storage_fails_the_whole_set(client: &Client) {
    let t = client.table();
    let old = t.seed_one(json!({ "A": 1 }));
    t.merge("p", "r", &json!({ "A": 2 }), Some("*")).expect(204);
    good(&t).insert(&t, &with_keys("p", "r", json!({ "A": 3 }))).send(client).refused(2, ENTITY_EXISTS);
    for (row, etag, refusal) in [("gone", "*", NOT_FOUND), ("r", old.as_str(), CONDITION_FAILED)] {
        for verb in ["PUT", "MERGE", "PATCH"] {
            let batch = good(&t).write(verb, &t, ("p", row), &json!({ "A": 3 }), Some(etag));
            batch.send(client).refused(2, refusal);
        }
        good(&t).delete(&t, "p", row, etag).send(client).refused(2, refusal);
    }
    assert_eq!((t.count(), t.properties()), (1, json!({ "A": 2 })));
}

fn the_first_failure_is_the_one_reported(client: &Client) {
    let t = client.table();
    t.seed_one(json!({}));
    let answer =
        good(&t).delete(&t, "p", "gone", "*").insert(&t, &with_keys("p", "r", json!({}))).send(client);
    answer.refused(2, NOT_FOUND);
}

fn a_roll_back_restores_values_and_etags(client: &Client) {
    let t = client.table();
    let a = t.seed(with_keys("p", "a", json!({ "N": 1 })));
    let b = t.seed(with_keys("p", "b", json!({ "N": 2 })));
    let answer = Batch::new()
        .write("MERGE", &t, ("p", "a"), &json!({ "N": 10 }), Some(&a))
        .delete(&t, "p", "b", &b)
        .insert(&t, &with_keys("p", "c", json!({})))
        .write("PUT", &t, ("p", "gone"), &json!({}), Some("*"))
        .send(client);
    answer.refused(3, NOT_FOUND);
    assert_eq!((t.get("p", "a").need("ETag"), t.get("p", "b").need("ETag")), (a.as_str(), b.as_str()));
    assert_eq!(t.entity("p", "a")["N"], 1);
    assert_eq!(t.count(), 2);
}

fn a_lone_storage_failure_has_no_index(client: &Client) {
    let t = client.table();
    let old = t.seed_one(json!({ "A": 1 }));
    t.merge("p", "r", &json!({ "A": 2 }), Some("*")).expect(204);
    let entity = with_keys("p", "r", json!({}));
    Batch::new().insert(&t, &entity).send(client).refused_alone(ENTITY_EXISTS);
    Batch::new()
        .write("PUT", &t, ("p", "r"), &json!({}), Some(&old))
        .send(client)
        .refused_alone(CONDITION_FAILED);
    Batch::new().write("MERGE", &t, ("p", "x"), &json!({}), Some("*")).send(client).refused_alone(NOT_FOUND);
    Batch::new().delete(&t, "p", "x", "*").send(client).refused_alone(NOT_FOUND);
}

fn a_lone_validation_failure_has_index_zero(client: &Client) {
    let t = client.table();
    let missing = Table::new(client, fresh_name());
    let entity = with_keys("p", "r", json!({}));
    Batch::new().insert(&missing, &entity).send(client).refused(0, NO_TABLE);
    let big = with_keys("p", "r", json!({ "S": "x".repeat(32 * 1024 + 1) }));
    Batch::new()
        .insert(&t, &big)
        .insert(&t, &with_keys("p", "s", json!({})))
        .send(client)
        .refused(0, VALUE_TOO_LARGE);
    let no_key = json!({ "PartitionKey": "p" });
    Batch::new().insert(&t, &no_key).send(client).refused(0, NEED_VALUE);
    assert_eq!(t.count(), 0);
}

fn a_value_too_large_alone_has_no_index(client: &Client) {
    let t = client.table();
    let big = json!({ "S": "x".repeat(32 * 1024 + 1) });
    Batch::new().insert(&t, &with_keys("p", "r", big.clone())).send(client).refused_alone(VALUE_TOO_LARGE);
    for verb in ["PUT", "MERGE"] {
        Batch::new().write(verb, &t, ("p", "r"), &big, None).send(client).refused_alone(VALUE_TOO_LARGE);
    }
    assert_eq!(t.count(), 0);
}

fn forbidden_characters_in_addresses_fail_with_an_index(client: &Client) {
    let t = client.table();
    for (key, refusal) in
        [("a%2Fb", QUERY_SYNTAX), ("a%5Cb", QUERY_SYNTAX), ("a%23b", OUT_OF_RANGE), ("a%3Fb", OUT_OF_RANGE)]
    {
        let url = client.url(&format!("/{}(PartitionKey='p',RowKey='{key}')", t.name));
        let batch = Batch::new().operation("PUT", &url, &["Content-Type: application/json"], "{}");
        batch.send(client).refused(0, refusal);
    }
    assert_eq!(t.count(), 0);
}

fn addresses_of_no_entity_fail_as_recorded(client: &Client) {
    let t = client.table();
    let send = |verb, url: &str| {
        let batch = Batch::new().operation(verb, url, &["Content-Type: application/json"], "{}");
        batch.send(client)
    };
    let below = client.url("/a%2F%2F(PartitionKey='p',RowKey='r')");
    send("PUT", &below).expect_failure_code(400, "OutOfRangeInput", 0);
    for root in [client.url(""), client.url("/")] {
        let answer = send("POST", &root);
        let part = answer.refused(0, METHOD_NOT_ALLOWED).as_answer(&answer.outer);
        assert_eq!(part.header("Cache-Control"), None, "{part}");
    }
    let below = client.url(&format!("/{0}/Tables('{0}')", t.name));
    send("PUT", &below).refused(0, NOT_IMPLEMENTED);
}

fn what_makes_no_sense_fails_at_its_index(client: &Client) {
    let t = client.table();
    t.seed_one(json!({ "A": 1 }));
    let (set, entity) = (client.url(&t.set()), client.url(&t.path("p", "r")));
    for (verb, url, header, body) in [
        ("POST", &set, "X-None: 1", "{"),
        ("POST", &set, "X-None: 1", "[]"),
        ("POST", &set, "X-None: 1", r#"{"PartitionKey":"p","RowKey":"s","A":{}}"#),
        ("PUT", &entity, "If-Match: \"strong\"", "{}"),
        ("DELETE", &entity, "X-None: 1", ""),
    ] {
        let headers = ["Content-Type: application/json", "Accept: application/json", header];
        let batch = good(&t).operation(verb, url, &headers, body);
        batch.send(client).expect_failure_code(400, "InvalidInput", 2);
    }
    assert_eq!((t.count(), t.properties()), (1, json!({ "A": 1 })));
}

fn a_bad_entity_fails_at_its_index(client: &Client) {
    let t = client.table();
    let wide: serde_json::Map<_, _> = (0..253).map(|i| (format!("P{i}"), json!(1))).collect();
    for (properties, refusal) in [
        (json!({ "bad name": 1 }), NAME_INVALID),
        (json!({ "n".repeat(256): 1 }), NAME_TOO_LONG),
        (serde_json::Value::Object(wide), TOO_MANY_PROPERTIES),
    ] {
        good(&t).insert(&t, &with_keys("p", "r", properties)).send(client).refused(2, refusal);
    }
    assert_eq!(t.count(), 0);
}

fn validation_comes_before_storage(client: &Client) {
    let t = client.table();
    t.seed_one(json!({}));
    let answer = Batch::new()
        .insert(&t, &with_keys("p", "r", json!({})))
        .insert(&t, &with_keys("q", "1", json!({})))
        .send(client);
    answer.refused(1, PARTITIONS_DIFFER);
}

fn the_failing_part_speaks_the_format_it_was_asked_in(client: &Client) {
    let t = client.table();
    t.seed_one(json!({}));
    let headers = ["Content-Type: application/json", "Accept: application/json;odata=nometadata"];
    let entity = with_keys("p", "r", json!({})).to_string();
    let answer = Batch::new().operation("POST", &client.url(&t.set()), &headers, &entity).send(client);
    let kind = "application/json;odata=nometadata;streaming=true;charset=utf-8";
    assert_eq!(answer.parts[0].need("Content-Type"), kind);
    assert_eq!(answer.parts[0].status, 409);
}

fn readers_see_all_of_a_change_set_or_nothing(client: &Client) {
    let t = client.table();
    let batch = |n: i32| {
        (0..20).fold(Batch::new(), |b, i| b.write("PUT", &t, ("p", &i.to_string()), &json!({ "N": n }), None))
    };
    batch(0).commit(client);
    std::thread::scope(|scope| {
        scope.spawn(|| (1..=15).for_each(|n| drop(batch(n).commit(client))));
        scope.spawn(|| {
            for _ in 0..30 {
                let seen = t.matches("PartitionKey eq 'p'");
                assert_eq!(seen.len(), 20);
                assert!(seen.windows(2).all(|w| w[0]["N"] == w[1]["N"]), "a torn read: {seen:?}");
            }
        });
    });
}

fn a_batch_that_is_not_authentic_is_turned_away_whole(client: &Client) {
    let t = client.table();
    let request =
        post(client, good(&t).body()).auth(Auth::Header(format!("SharedKey {}:AAAA", client.account.name)));
    request.send().turned_away(NOT_AUTHENTICATED);
    assert_eq!(t.count(), 0);
}
