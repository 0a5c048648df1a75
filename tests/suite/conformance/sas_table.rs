//! Signatures for one table: versions, permissions, times (protocol §10.5).

use serde_json::json;

use crate::support::batch::{post, query_batch};
use crate::support::sas::time;
use crate::support::*;

cases! {
    a_signature_may_name_the_version_of_the_request, every_operation_needs_its_own_permission_alone,
    upserts_need_both_a_and_u, every_part_of_a_batch_needs_its_own_permission, a_query_in_a_batch_needs_r,
    tables_are_out_of_reach, policies_and_the_service_are_out_of_reach, other_tables_are_out_of_reach,
    other_tables_are_out_of_reach_inside_a_batch, the_case_of_the_table_name_does_not_matter, both_keys_sign,
    times_may_be_dates_and_may_have_fractions, signatures_that_cannot_hold_now_are_refused,
}

/// A table with one entity, and a client with these permissions on it.
fn table_and<'a>(client: &'a Client, permissions: &str) -> (Table<'a>, Client) {
    let t = client.table();
    t.seed_one(json!({ "A": 1 }));
    let bearer = Sas::table(&t.name, permissions).of(client);
    (t, bearer)
}

fn a_signature_may_name_the_version_of_the_request(client: &Client) {
    let t = client.table();
    t.seed_one(json!({ "A": 1 }));
    let get = |sas: Sas| sas.of(client).request("GET", &t.path("p", "r")).without("x-ms-version").send();
    let sas = Sas::table(&t.name, "r").set("sv", "2018-03-28");
    assert_eq!(get(sas.clone()).expect(200).need("x-ms-version"), "2018-03-28");
    let answer = get(sas.set("api-version", "2017-04-17")).expect(200);
    assert_eq!(answer.need("x-ms-version"), "2017-04-17");
}

/// Statuses of reading, querying, inserting, replacing, merging, deleting.
fn outcomes(client: &Client, permissions: &str) -> [u16; 6] {
    let (t, bearer) = table_and(client, permissions);
    let there = Table::new(&bearer, &t.name);
    let answers = [
        there.get("p", "r"),
        there.query(""),
        there.insert(&json!({ "PartitionKey": "p", "RowKey": "new" })),
        there.replace("p", "r", &json!({}), Some("*")),
        there.merge("p", "r", &json!({}), Some("*")),
        there.delete("p", "r", Some("*")),
    ];
    for answer in answers.iter().filter(|answer| answer.status == 403) {
        answer.clone().refused(PERMISSION);
    }
    answers.map(|answer| answer.status)
}

fn every_operation_needs_its_own_permission_alone(client: &Client) {
    for (permissions, expected) in [
        ("r", [200, 200, 403, 403, 403, 403]),
        ("aud", [403, 403, 201, 204, 204, 204]),
        ("a", [403, 403, 201, 403, 403, 403]),
        ("rud", [200, 200, 403, 204, 204, 204]),
        ("u", [403, 403, 403, 204, 204, 403]),
        ("rad", [200, 200, 201, 403, 403, 204]),
        ("d", [403, 403, 403, 403, 403, 204]),
        ("rau", [200, 200, 201, 204, 204, 403]),
    ] {
        assert_eq!(outcomes(client, permissions), expected, "{permissions}");
    }
}

fn upserts_need_both_a_and_u(client: &Client) {
    for (permissions, status) in [("a", 403), ("u", 403), ("rad", 403), ("rud", 403), ("au", 204)] {
        let (t, bearer) = table_and(client, permissions);
        let there = Table::new(&bearer, &t.name);
        for row in ["r", "new"] {
            let answers = [
                there.replace("p", row, &json!({}), None),
                there.merge("p", row, &json!({}), None),
                there.on("PATCH", "p", row).json(&json!({})).send(),
            ];
            for answer in answers {
                assert_eq!(answer.status, status, "{permissions} {answer}");
            }
        }
    }
}

fn every_part_of_a_batch_needs_its_own_permission(client: &Client) {
    for (permissions, allowed) in [("a", 1), ("u", 2), ("d", 3), ("r", 0), ("au", 4)] {
        let (t, bearer) = table_and(client, permissions);
        let new = json!({ "PartitionKey": "p", "RowKey": "new" });
        let attempts = [
            Batch::new().insert(&t, &new),
            Batch::new().write("MERGE", &t, ("p", "r"), &json!({}), Some("*")),
            Batch::new().delete(&t, "p", "r", "*"),
            Batch::new().write("PUT", &t, ("p", "upsert"), &json!({}), None),
        ];
        for (at, batch) in attempts.iter().enumerate() {
            let within = allowed == at + 1 || allowed == 4 && at < 2;
            let answer = batch.send(&bearer);
            assert_eq!(answer.parts[0].status == 403, !within, "{permissions} {}", answer.outer);
        }
    }
    let (t, bearer) = table_and(client, "a");
    let batch = Batch::new().insert(&t, &json!({ "PartitionKey": "p", "RowKey": "1" }));
    let batch = batch.write("MERGE", &t, ("p", "r"), &json!({ "A": 2 }), Some("*"));
    batch.send(&bearer).refused(1, PERMISSION);
    assert_eq!(t.matching_rows("A eq 1"), "r", "the whole batch is refused");
    t.get("p", "1").refused(NOT_FOUND);
}

fn a_query_in_a_batch_needs_r(client: &Client) {
    let (t, bearer) = table_and(client, "r");
    let query = query_batch(&client.url(&t.path("p", "r")));
    let answer = BatchAnswer::of(post(&bearer, query.clone()).send());
    assert_eq!(answer.parts[0].status, 200, "{}", answer.outer);
    let blind = Sas::table(&t.name, "aud").of(client);
    let answer = BatchAnswer::of(post(&blind, query).send());
    answer.refused(0, PERMISSION);
}

fn tables_are_out_of_reach(client: &Client) {
    let (t, bearer) = table_and(client, "raud");
    let other = fresh_name();
    bearer.get("/Tables").refused(OUTSIDE);
    bearer.get(&format!("/Tables('{}')", t.name)).refused(OUTSIDE);
    bearer.create_table(&other).refused(OUTSIDE);
    bearer.delete_table(&t.name).refused(OUTSIDE);
    client.get(&format!("/Tables('{}')", t.name)).expect(200);
    client.get(&format!("/Tables('{other}')")).refused(NOT_FOUND);
}

fn policies_and_the_service_are_out_of_reach(client: &Client) {
    let (t, bearer) = table_and(client, "raud");
    let properties = "/?restype=service&comp=properties";
    for path in [format!("{}?comp=acl", t.set()), properties.into()] {
        bearer.get(&path).refused_in_xml(OUTSIDE);
        let put = bearer.request("PUT", &path).header("Accept", "application/xml");
        let body = if path == properties {
            "<StorageServiceProperties><Cors/></StorageServiceProperties>"
        } else {
            ""
        };
        put.body(body).send().refused_in_xml(OUTSIDE);
    }
    let secondary = client.secondary().bearing(&Sas::table(&t.name, "raud").query(&client.account));
    secondary.get("/?restype=service&comp=stats").refused_in_xml(OUTSIDE);
    Table::new(&secondary, &t.name).get("p", "r").expect(200);
}

fn other_tables_are_out_of_reach(client: &Client) {
    let (_, bearer) = table_and(client, "raud");
    let other = client.table();
    other.seed_one(json!({ "Secret": 1 }));
    let there = Table::new(&bearer, &other.name);
    for answer in [
        there.get("p", "r"),
        there.query(""),
        there.insert(&json!({ "PartitionKey": "p", "RowKey": "2" })),
        there.delete("p", "r", Some("*")),
        Table::new(&bearer, "nosuchtable").get("p", "r"),
    ] {
        let answer = answer.turned_away(NOT_AUTHENTICATED);
        assert!(!answer.text().contains("Secret"), "{answer}");
    }
    assert_eq!(other.count(), 1);
}

fn other_tables_are_out_of_reach_inside_a_batch(client: &Client) {
    let (_, bearer) = table_and(client, "raud");
    let other = client.table();
    other.seed_one(json!({ "Secret": 1 }));
    let answer = Batch::new().delete(&other, "p", "r", "*").send(&bearer);
    assert_eq!(answer.parts[0].status, 403, "{}", answer.outer);
    let query = query_batch(&client.url(&other.path("p", "r")));
    let answer = BatchAnswer::of(post(&bearer, query).send());
    assert_eq!(answer.parts[0].status, 403, "{}", answer.outer);
    assert_eq!(other.count(), 1);
}

fn the_case_of_the_table_name_does_not_matter(client: &Client) {
    let t = client.table();
    t.seed_one(json!({}));
    for name in [t.name.to_uppercase(), t.name.to_lowercase()] {
        let bearer = Sas::table(&name, "r").of(client);
        Table::new(&bearer, &t.name).get("p", "r").expect(200);
        Table::new(&bearer, t.name.to_uppercase()).get("p", "r").expect(200);
    }
}

fn both_keys_sign(client: &Client) {
    let t = client.table();
    t.seed_one(json!({}));
    let sas = Sas::table(&t.name, "r");
    for sas in [sas.clone(), sas.clone().with_second_key()] {
        Table::new(&sas.of(client), &t.name).get("p", "r").expect(200);
    }
    if let Some(neighbour) = client.neighbour() {
        let foreign = client.bearing(&sas.query(&neighbour.account));
        Table::new(&foreign, &t.name).get("p", "r").turned_away(NOT_AUTHENTICATED);
    }
}

/// The answer to a read under a signature changed so.
fn read_with(client: &Client, change: impl Fn(Sas) -> Sas) -> Answer {
    let t = client.table();
    t.seed_one(json!({}));
    Table::new(&change(Sas::table(&t.name, "r")).of(client), &t.name).get("p", "r")
}

fn times_may_be_dates_and_may_have_fractions(client: &Client) {
    for (start, expiry) in [
        ("2020-01-01", "2099-01-01"),
        ("2020-01-01T00:00Z", "2099-01-01T00:00Z"),
        ("2020-01-01T00:00:00.1234567Z", "2099-01-01T00:00:00.1Z"),
        ("2020-01-01T00:00:00+02:00", "2099-01-01T00:00:00-02:00"),
    ] {
        read_with(client, |sas| sas.set("st", start).set("se", expiry)).expect(200);
    }
}

fn signatures_that_cannot_hold_now_are_refused(client: &Client) {
    let refuse = |what: &str, change: &dyn Fn(Sas) -> Sas| {
        assert_eq!(read_with(client, change).turned_away(NOT_AUTHENTICATED).status, 403, "{what}");
    };
    for ago in [-1, -60, -86_400 * 400] {
        refuse("expired", &|sas| sas.set("se", &time(ago)));
    }
    refuse("ends before it starts", &|sas| sas.set("st", &time(100)).set("se", &time(50)));
    refuse("not begun", &|sas| sas.set("st", &time(60)));
    read_with(client, |sas| sas.set("st", &time(-1))).expect(200);
    for text in ["x", "2099", "01/01/2099", "2099-13-01", "2099-01-01T00:00:00", "2099-01-01 00:00:00Z"] {
        refuse(text, &|sas| sas.set("se", text));
    }
    refuse("a start of no form", &|sas| sas.set("st", "x"));
    for name in ["se", "sp", "sv"] {
        refuse(name, &|sas| sas.without(name));
    }
    for text in ["ar", "rr", "rx", "rw", "R"] {
        refuse(text, &|sas| sas.set("sp", text));
    }
}
