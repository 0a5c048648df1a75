//! Signatures for accounts (protocol §10.6).

use serde_json::json;

use crate::support::batch::{post, query_batch};
use crate::support::sas::time;
use crate::support::*;

cases! {
    resource_types_are_entities_tables_and_the_service, each_permission_allows_its_operations,
    upserts_need_both_a_and_u, policies_are_out_of_reach, the_table_service_must_be_among_the_services,
    other_services_and_permissions_may_be_named_too, the_resource_may_repeat_the_resource_types,
    every_part_of_a_batch_is_checked, all_tables_are_in_reach, both_keys_sign,
    times_protocol_and_address_are_enforced, the_secondary_may_be_read_but_not_written,
}

const ALL: &str = "rwdlacup";

/// What each operation answers: read, query, insert, update, upsert, delete,
/// list tables, get table, create table, delete table, get and set
/// properties, get stats.
fn outcomes(client: &Client, types: &str, permissions: &str) -> Vec<(&'static str, Answer)> {
    let t = client.table();
    t.seed_one(json!({}));
    let bearer = Sas::account(types, permissions).of(client);
    let secondary = client.secondary();
    let secondary = Sas::account(types, permissions).of(&secondary);
    let there = Table::new(&bearer, &t.name);
    let doomed = client.table().name;
    let properties = "/?restype=service&comp=properties";
    let put = bearer
        .request("PUT", properties)
        .body("<StorageServiceProperties><Cors/></StorageServiceProperties>");
    vec![
        ("read", there.get("p", "r")),
        ("query", there.query("")),
        ("insert", there.insert(&json!({ "PartitionKey": "p", "RowKey": "new" }))),
        ("update", there.merge("p", "r", &json!({}), Some("*"))),
        ("upsert", there.replace("p", "other", &json!({}), None)),
        ("delete", there.delete("p", "r", Some("*"))),
        ("list", bearer.get("/Tables")),
        ("table", bearer.get(&format!("/Tables('{}')", t.name))),
        ("create", bearer.create_table(&fresh_name())),
        ("drop", bearer.delete_table(&doomed)),
        ("properties", bearer.get(properties)),
        ("set", put.send()),
        ("stats", secondary.get("/?restype=service&comp=stats")),
    ]
}

/// Names of the operations that succeeded, and that the others failed so.
#[track_caller]
fn allowed(client: &Client, types: &str, permissions: &str, refusals: &[&str]) -> String {
    let mut names = Vec::new();
    for (name, answer) in outcomes(client, types, permissions) {
        if answer.status < 300 {
            names.push(name);
            continue;
        }
        assert_eq!(answer.status, 403, "{name} {answer}");
        assert!(refusals.iter().any(|code| answer.text().contains(code)), "{name} {answer}");
    }
    names.join(",")
}

const ENTITIES: &str = "read,query,insert,update,upsert,delete";
const TABLES: &str = "list,table,create,drop";

fn resource_types_are_entities_tables_and_the_service(client: &Client) {
    assert_eq!(allowed(client, "o", ALL, &[RESOURCE_TYPE.1]), ENTITIES);
    // Queries of entities may count as containers: the emulator wants it so.
    assert_eq!(allowed(client, "c", ALL, &[RESOURCE_TYPE.1]).replace("query,", ""), TABLES);
    assert_eq!(allowed(client, "s", ALL, &[RESOURCE_TYPE.1]), "properties,set,stats");
    let all = allowed(client, "sco", ALL, &[]);
    assert_eq!(all, format!("{ENTITIES},{TABLES},properties,set,stats"));
}

fn each_permission_allows_its_operations(client: &Client) {
    for (permission, operations) in [
        ("r", "read,query,properties,stats"),
        ("w", "create,set"),
        ("d", "delete,drop"),
        ("l", "list,table"),
        ("a", "insert"),
        ("c", "create"),
        ("u", "update"),
        ("p", ""),
    ] {
        assert_eq!(allowed(client, "sco", permission, &[PERMISSION.1]), operations, "{permission}");
    }
}

fn upserts_need_both_a_and_u(client: &Client) {
    let t = client.table();
    for (permissions, status) in [("a", 403), ("u", 403), ("rwdlac", 403), ("au", 204)] {
        let bearer = Sas::account("o", permissions).of(client);
        let there = Table::new(&bearer, &t.name);
        assert_eq!(there.replace("p", "r", &json!({}), None).status, status, "{permissions}");
        assert_eq!(there.merge("p", "r", &json!({}), None).status, status, "{permissions}");
    }
}

fn policies_are_out_of_reach(client: &Client) {
    let t = client.table();
    let bearer = Sas::account("sco", ALL).of(client);
    let path = format!("{}?comp=acl", t.set());
    bearer.get(&path).refused_in_xml(PERMISSION);
    let put = bearer.request("PUT", &path).header("Accept", "application/xml");
    put.send().refused_in_xml(PERMISSION);
}

fn the_table_service_must_be_among_the_services(client: &Client) {
    let t = client.table();
    t.seed_one(json!({}));
    for services in ["b", "q", "f", "bqf"] {
        let bearer = Sas::account("sco", ALL).set("ss", services).of(client);
        let answer = Table::new(&bearer, &t.name).get("p", "r");
        assert_eq!(answer.status, 403, "{answer}");
        assert!(answer.text().contains(WRONG_SERVICE.1), "{answer}");
        assert!(answer.text().contains(WRONG_SERVICE.2), "{answer}");
    }
}

fn other_services_and_permissions_may_be_named_too(client: &Client) {
    let t = client.table();
    t.seed_one(json!({}));
    let bearer = Sas::account("sco", "rwdxylacuptfi").set("ss", "bfqt").of(client);
    Table::new(&bearer, &t.name).get("p", "r").expect(200);
}

fn the_resource_may_repeat_the_resource_types(client: &Client) {
    let t = client.table();
    t.seed_one(json!({}));
    let query = Sas::account("sco", ALL).query(&client.account);
    let get = |query: &str| Table::new(&client.bearing(query), &t.name).get("p", "r");
    get(&format!("{query}&sr=sco")).expect(200);
    for other in ["o", "b", ""] {
        get(&format!("{query}&sr={other}")).turned_away(NOT_AUTHENTICATED);
    }
}

fn every_part_of_a_batch_is_checked(client: &Client) {
    let t = client.table();
    t.seed_one(json!({ "A": 1 }));
    let insert = Batch::new().insert(&t, &json!({ "PartitionKey": "p", "RowKey": "1" }));
    let both = insert.clone().delete(&t, "p", "r", "*");
    let adds = Sas::account("o", "a").of(client);
    both.send(&adds).refused(1, PERMISSION);
    assert_eq!(t.count(), 1, "nothing of it was done");
    insert.send(&Sas::account("sc", ALL).of(client)).refused(0, RESOURCE_TYPE);
    insert.commit(&adds);
    let query = query_batch(&client.url(&t.path("p", "r")));
    BatchAnswer::of(post(&adds, query.clone()).send()).refused(0, PERMISSION);
    let reads = Sas::account("o", "r").of(client);
    assert_eq!(BatchAnswer::of(post(&reads, query).send()).parts[0].status, 200);
}

fn all_tables_are_in_reach(client: &Client) {
    let bearer = Sas::account("o", "r").of(client);
    for _ in 0..2 {
        let t = client.table();
        t.seed_one(json!({}));
        Table::new(&bearer, &t.name).get("p", "r").expect(200);
    }
    Table::new(&bearer, "nosuchtable").get("p", "r").refused(NO_TABLE);
}

fn both_keys_sign(client: &Client) {
    Sas::account("c", "l").with_second_key().of(client).get("/Tables").expect(200);
    if let Some(neighbour) = client.neighbour() {
        let foreign = client.bearing(&Sas::account("c", "l").query(&neighbour.account));
        foreign.get("/Tables").turned_away(NOT_AUTHENTICATED);
    }
}

fn times_protocol_and_address_are_enforced(client: &Client) {
    let with = |name: &str, value: &str| Sas::account("c", "l").set(name, value).of(client).get("/Tables");
    with("se", &time(-1)).turned_away(NOT_AUTHENTICATED);
    with("st", &time(60)).turned_away(NOT_AUTHENTICATED);
    assert!(with("spr", "https").expect(403).text().contains(WRONG_PROTOCOL.1));
    let answer = with("sip", "10.0.0.1-10.0.0.9").expect(403);
    assert!(answer.text().contains("AuthorizationSourceIPMismatch"), "{answer}");
    with("sip", "127.0.0.1").expect(200);
    for name in ["se", "sp"] {
        let bearer = Sas::account("c", "l").without(name).of(client);
        bearer.get("/Tables").turned_away(NOT_AUTHENTICATED);
    }
}

fn the_secondary_may_be_read_but_not_written(client: &Client) {
    let t = client.table();
    t.seed_one(json!({}));
    let secondary = client.secondary();
    let bearer = Sas::account("sco", ALL).of(&secondary);
    Table::new(&bearer, &t.name).get("p", "r").expect(200);
    Table::new(&bearer, &t.name).replace("p", "r", &json!({}), None).refused(WRITE_ON_SECONDARY);
}
