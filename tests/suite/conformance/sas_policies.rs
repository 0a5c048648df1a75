//! Signatures that rely on a stored policy (protocol §10.5).

use serde_json::json;

use crate::support::sas::time;
use crate::support::*;

cases! {
    a_policy_says_what_the_signature_leaves_out, changed_policies_take_effect, removed_policies_take_effect,
    a_policy_that_does_not_hold_now_or_not_alone_refuses, unknown_policies_are_refused,
    ids_are_compared_with_case, what_is_in_both_is_refused, the_signature_may_add_what_the_policy_leaves_out,
    ranges_hold_under_a_policy, policies_are_those_of_their_table, a_policy_does_not_survive_its_table,
}

/// The parts of an access policy.
fn parts(start: Option<&str>, expiry: Option<&str>, permission: Option<&str>) -> String {
    let part =
        |name: &str, value: Option<&str>| value.map(|v| format!("<{name}>{v}</{name}>")).unwrap_or_default();
    part("Start", start) + &part("Expiry", expiry) + &part("Permission", permission)
}

fn full(permission: &str) -> String {
    parts(Some("2020-01-01"), Some(&time(3600)), Some(permission))
}

/// Stores one policy.
fn store(t: &Table, id: &str, parts: &str) {
    let body = format!(
        "<SignedIdentifiers><SignedIdentifier><Id>{id}</Id><AccessPolicy>{parts}</AccessPolicy>\
         </SignedIdentifier></SignedIdentifiers>"
    );
    let request = t.client.request("PUT", &format!("{}?comp=acl", t.set()));
    request.header("Accept", "application/xml").body(body).send().expect(204);
}

fn seeded(client: &Client) -> Table<'_> {
    let t = client.table();
    t.seed_one(json!({ "A": 1 }));
    t
}

fn bearer(t: &Table, id: &str) -> Client {
    Sas::table(&t.name, "").with_policy(id).of(t.client)
}

fn a_policy_says_what_the_signature_leaves_out(client: &Client) {
    let t = seeded(client);
    store(&t, "reader", &full("r"));
    let bearer = bearer(&t, "reader");
    let there = Table::new(&bearer, &t.name);
    there.get("p", "r").expect(200);
    assert_eq!(there.count(), 1);
    there.insert(&json!({ "PartitionKey": "p", "RowKey": "2" })).refused(PERMISSION);
}

fn changed_policies_take_effect(client: &Client) {
    let t = seeded(client);
    store(&t, "id", &full("r"));
    let bearer = bearer(&t, "id");
    let there = Table::new(&bearer, &t.name);
    there.get("p", "r").expect(200);
    store(&t, "id", &full("a"));
    there.get("p", "r").refused(PERMISSION);
    there.insert(&json!({ "PartitionKey": "p", "RowKey": "2" })).expect(201);
    store(&t, "id", &parts(None, Some(&time(-5)), Some("raud")));
    there.get("p", "r").turned_away(NOT_AUTHENTICATED);
}

fn removed_policies_take_effect(client: &Client) {
    let t = seeded(client);
    store(&t, "id", &full("r"));
    let bearer = bearer(&t, "id");
    Table::new(&bearer, &t.name).get("p", "r").expect(200);
    store(&t, "other", &full("r"));
    Table::new(&bearer, &t.name).get("p", "r").turned_away(NOT_AUTHENTICATED);
    store(&t, "id", &full("r"));
    Table::new(&bearer, &t.name).get("p", "r").expect(200);
    let clear = client.request("PUT", &format!("{}?comp=acl", t.set()));
    clear.header("Accept", "application/xml").send().expect(204);
    Table::new(&bearer, &t.name).get("p", "r").turned_away(NOT_AUTHENTICATED);
}

fn a_policy_that_does_not_hold_now_or_not_alone_refuses(client: &Client) {
    let t = seeded(client);
    let (soon, later) = (time(60), time(3600));
    for stored in [
        parts(Some("2020-01-01"), Some(&time(-2)), Some("r")),
        parts(Some(&soon), Some(&later), Some("r")),
        parts(None, None, Some("r")),
        parts(None, Some(&later), None),
        String::new(),
    ] {
        store(&t, "id", &stored);
        Table::new(&bearer(&t, "id"), &t.name).get("p", "r").turned_away(NOT_AUTHENTICATED);
    }
}

fn unknown_policies_are_refused(client: &Client) {
    let t = seeded(client);
    Table::new(&bearer(&t, "none"), &t.name).get("p", "r").turned_away(NOT_AUTHENTICATED);
    let sas = Sas::table(&t.name, "raud").set("si", "none");
    Table::new(&sas.of(client), &t.name).get("p", "r").turned_away(NOT_AUTHENTICATED);
    let gone = Table::new(client, fresh_name());
    Table::new(&bearer(&gone, "id"), &gone.name).get("p", "r").turned_away(NOT_AUTHENTICATED);
}

fn ids_are_compared_with_case(client: &Client) {
    let t = seeded(client);
    store(&t, "Id &amp; 1", &full("r"));
    Table::new(&bearer(&t, "Id & 1"), &t.name).get("p", "r").expect(200);
    Table::new(&bearer(&t, "id & 1"), &t.name).get("p", "r").turned_away(NOT_AUTHENTICATED);
}

fn what_is_in_both_is_refused(client: &Client) {
    let t = seeded(client);
    store(&t, "id", &full("r"));
    let sas = Sas::table(&t.name, "").with_policy("id");
    for (name, value) in [("sp", "r"), ("se", time(3600).as_str()), ("st", "2020-01-01")] {
        let bearer = sas.clone().set(name, value).of(client);
        Table::new(&bearer, &t.name).get("p", "r").turned_away(NOT_AUTHENTICATED);
    }
}

fn the_signature_may_add_what_the_policy_leaves_out(client: &Client) {
    let t = seeded(client);
    let sas = Sas::table(&t.name, "").with_policy("id");
    let end = time(3600);
    for (stored, own) in [
        (parts(None, None, None), vec![("se", end.as_str()), ("sp", "r"), ("st", "2020-01-01")]),
        (parts(None, Some(&end), None), vec![("sp", "r")]),
        (parts(None, None, Some("r")), vec![("se", end.as_str())]),
    ] {
        store(&t, "id", &stored);
        let sas = own.iter().fold(sas.clone(), |sas, (name, value)| sas.set(name, value));
        Table::new(&sas.of(client), &t.name).get("p", "r").expect(200);
    }
}

fn ranges_hold_under_a_policy(client: &Client) {
    let t = seeded(client);
    t.seed_rows("q", ["r"]);
    store(&t, "id", &full("raud"));
    let sas = Sas::table(&t.name, "").with_policy("id");
    let bearer = sas.range((Some("p"), None), (Some("p"), None)).of(client);
    let there = Table::new(&bearer, &t.name);
    assert_eq!(there.count(), 1);
    there.get("q", "r").refused(NOT_FOUND);
    there.delete("q", "r", Some("*")).refused(OUTSIDE);
}

fn policies_are_those_of_their_table(client: &Client) {
    let (t, other) = (seeded(client), seeded(client));
    store(&t, "id", &full("r"));
    Table::new(&bearer(&other, "id"), &other.name).get("p", "r").turned_away(NOT_AUTHENTICATED);
    let reach = Table::new(&bearer(&t, "id"), &other.name).get("p", "r");
    assert_eq!(reach.status, 403, "{reach}");
}

fn a_policy_does_not_survive_its_table(client: &Client) {
    let t = seeded(client);
    store(&t, "id", &full("r"));
    let bearer = bearer(&t, "id");
    client.delete_table(&t.name).expect(204);
    client.create_table(&t.name).expect(201);
    Table::new(&bearer, &t.name).query("").turned_away(NOT_AUTHENTICATED);
}
