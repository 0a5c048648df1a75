//! Authorization has one door: every credential tries every operation on every
//! kind of resource, and does exactly what this table says.

use serde_json::{Value, json};

use crate::support::batch::post;
use crate::support::client::{Account, Request};
use crate::support::sas::time;
use crate::support::server::account;
use crate::support::*;

cases! {
    every_credential_does_what_the_table_says, no_byte_of_a_signed_request_may_change,
}

/// What can be done to an entity; each has a row of its own.
const ENTITY: [&str; 12] = [
    "get",
    "query",
    "insert",
    "replace",
    "merge",
    "upsert",
    "upsert-merge",
    "delete",
    "batch-insert",
    "batch-merge",
    "batch-upsert",
    "batch-delete",
];
const TABLE: [&str; 4] = ["table", "read-acl", "write-acl", "drop"];
const SERVICE: [&str; 4] = ["list", "create", "read-service", "write-service"];

/// A credential, and the operations that it may do on an entity in its range, on
/// one outside, on one of another table; on its table, another table, the service.
struct Row {
    name: &'static str,
    make: fn(&Client, &str) -> Client,
    inside: &'static str,
    outside: &'static str,
    other: &'static str,
    own_table: &'static str,
    other_table: &'static str,
    service: &'static str,
}

const NONE: Row = Row {
    name: "",
    make: |client, _| client.same(),
    inside: "",
    outside: "",
    other: "",
    own_table: "",
    other_table: "",
    service: "",
};

const ALL: &str = "get query insert replace merge upsert upsert-merge delete batch-insert batch-merge batch-upsert \
                   batch-delete";
const ADD: &str = "insert batch-insert";
const UPDATE: &str = "replace merge batch-merge";
const ADD_UPDATE: &str = "insert replace merge upsert upsert-merge batch-insert batch-merge batch-upsert";
const DELETE: &str = "delete batch-delete";

fn in_range(sas: Sas) -> Sas {
    sas.range((Some("inside"), None), (Some("inside"), None))
}

fn table_sas(client: &Client, table: &str, permissions: &str) -> Client {
    in_range(Sas::table(table, permissions)).of(client)
}

fn account_sas(client: &Client, types: &str, permissions: &str) -> Client {
    Sas::account(types, permissions).of(client)
}

fn with_keys_of(client: &Client, keys: [String; 2]) -> Client {
    let account = Account { name: client.account.name.clone(), keys };
    Client::path_style(client.wire().address(), account)
}

/// A token that the keys of another account have signed.
fn signed_elsewhere(client: &Client, sas: &Sas) -> Client {
    let stranger = Account { name: client.account.name.clone(), keys: account(999).keys };
    client.bearing(&sas.query(&stranger))
}

const OWNER: Row = Row {
    inside: ALL,
    outside: ALL,
    other: ALL,
    own_table: "table read-acl write-acl drop",
    other_table: "table read-acl write-acl drop",
    service: "list create read-service write-service",
    ..NONE
};

const ROWS: [Row; 31] = [
    Row { name: "first key", ..OWNER },
    Row {
        name: "second key",
        make: |client, _| {
            let [first, second] = client.account.keys.clone();
            with_keys_of(client, [second, first])
        },
        ..OWNER
    },
    Row { name: "no credential", make: |client, _| client.bearing(""), ..NONE },
    Row { name: "key of another account", make: |client, _| with_keys_of(client, account(999).keys), ..NONE },
    Row { name: "table r", make: |c, t| table_sas(c, t, "r"), inside: "get query", ..NONE },
    Row { name: "table a", make: |c, t| table_sas(c, t, "a"), inside: ADD, ..NONE },
    Row { name: "table u", make: |c, t| table_sas(c, t, "u"), inside: UPDATE, ..NONE },
    Row { name: "table d", make: |c, t| table_sas(c, t, "d"), inside: DELETE, ..NONE },
    Row { name: "table au", make: |c, t| table_sas(c, t, "au"), inside: ADD_UPDATE, ..NONE },
    Row { name: "table raud", make: |c, t| table_sas(c, t, "raud"), inside: ALL, ..NONE },
    Row {
        name: "table raud without a range",
        make: |c, t| Sas::table(t, "raud").of(c),
        inside: ALL,
        outside: ALL,
        ..NONE
    },
    Row { name: "expired", make: |c, t| in_range(Sas::table(t, "raud")).set("se", &time(-1)).of(c), ..NONE },
    Row {
        name: "too early",
        make: |c, t| in_range(Sas::table(t, "raud")).set("st", &time(600)).of(c),
        ..NONE
    },
    Row { name: "https only", make: |c, t| Sas::table(t, "raud").set("spr", "https").of(c), ..NONE },
    Row { name: "from elsewhere", make: |c, t| Sas::table(t, "raud").set("sip", "10.0.0.1").of(c), ..NONE },
    Row { name: "policy that is none", make: |c, t| Sas::table(t, "raud").with_policy("none").of(c), ..NONE },
    Row { name: "signed elsewhere", make: |c, t| signed_elsewhere(c, &Sas::table(t, "raud")), ..NONE },
    Row {
        name: "account signed elsewhere",
        make: |c, _| signed_elsewhere(c, &Sas::account("sco", "rwdlacu")),
        ..NONE
    },
    Row {
        name: "account expired",
        make: |c, _| Sas::account("sco", "rwdlacu").set("se", &time(-1)).of(c),
        ..NONE
    },
    Row {
        name: "account of blobs",
        make: |c, _| Sas::account("sco", "rwdlacu").set("ss", "b").of(c),
        ..NONE
    },
    entities("account o r", |c, _| account_sas(c, "o", "r"), "get query"),
    entities("account o a", |c, _| account_sas(c, "o", "a"), ADD),
    entities("account o u", |c, _| account_sas(c, "o", "u"), UPDATE),
    entities("account o d", |c, _| account_sas(c, "o", "d"), DELETE),
    entities("account o au", |c, _| account_sas(c, "o", "au"), ADD_UPDATE),
    entities("account o rwdlacup", |c, _| account_sas(c, "o", "rwdlacup"), ALL),
    entities("account o wlcp", |c, _| account_sas(c, "o", "wlcp"), ""),
    Row {
        name: "account c rwdlacup",
        make: |c, _| account_sas(c, "c", "rwdlacup"),
        own_table: "table drop",
        other_table: "table drop",
        service: "list create",
        ..entities("", |c, _| c.same(), "query")
    },
    Row {
        name: "account c l",
        make: |c, _| account_sas(c, "c", "l"),
        own_table: "table",
        other_table: "table",
        service: "list",
        ..NONE
    },
    Row {
        name: "account s rwdlacup",
        make: |c, _| account_sas(c, "s", "rwdlacup"),
        service: "read-service write-service",
        ..NONE
    },
    Row {
        name: "account sco rwdlacup",
        make: |c, _| account_sas(c, "sco", "rwdlacup"),
        own_table: "table drop",
        other_table: "table drop",
        service: "list create read-service write-service",
        ..entities("", |c, _| c.same(), ALL)
    },
];

/// Whoever may do this to all entities of the account, and nothing else.
const fn entities(name: &'static str, make: fn(&Client, &str) -> Client, may: &'static str) -> Row {
    Row { name, make, inside: may, outside: may, other: may, ..NONE }
}

fn every_credential_does_what_the_table_says(client: &Client) {
    for row in &ROWS {
        let (own, other) = (client.table(), client.table());
        let bearer = (row.make)(client, &own.name);
        let tried = |table: &Table, partition| on_entities(&bearer, table, partition);
        assert_eq!(tried(&own, "inside"), row.inside, "{}, inside", row.name);
        assert_eq!(tried(&own, "outside"), row.outside, "{}, outside", row.name);
        assert_eq!(tried(&other, "inside"), row.other, "{}, another table", row.name);
        assert_eq!(on_service(&bearer, client), row.service, "{}, the service", row.name);
        assert_eq!(on_table(&bearer, &own), row.own_table, "{}, its table", row.name);
        assert_eq!(on_table(&bearer, &other), row.other_table, "{}, another table", row.name);
    }
}

/// Whether an operation was done. One that was not has been refused as such.
#[track_caller]
fn is_done(name: &str, answer: &Answer) -> bool {
    let text = String::from_utf8_lossy(&answer.body);
    let part = text.split("HTTP/1.1 ").nth(1).and_then(|rest| rest.get(..3)?.parse().ok());
    let status = if answer.status == 202 { part.unwrap_or(202) } else { answer.status };
    assert!(status < 300 || matches!(status, 401 | 403 | 404), "{name}: {answer}");
    status < 300
}

/// Tries each operation on entities; names those that were done, and demands
/// that no other has left a trace.
#[track_caller]
fn on_entities(bearer: &Client, table: &Table, partition: &str) -> String {
    let needs_row = |name: &&&str| !name.contains("insert") && !name.contains("upsert");
    let seed = ENTITY.iter().filter(needs_row).fold(Batch::new(), |batch, name| {
        batch.insert(table, &with_keys(partition, name, json!({ "A": 1 })))
    });
    seed.commit(table.client);
    let there = Table::new(bearer, &table.name);
    let mut done = Vec::new();
    for name in ENTITY {
        let answer = entity_request(&there, partition, name).send();
        let said = is_done(name, &answer);
        let found = table.get(partition, name);
        let value = (found.status == 200).then(|| found.json()["A"].as_i64().unwrap_or_default());
        let happened = match name {
            "get" => answer.text().contains("\"A\":1"),
            "query" => answer.text().contains("\"RowKey\":\"query\""),
            "delete" | "batch-delete" => value.is_none(),
            _ => value == Some(2),
        };
        // A query outside of the range succeeds and finds nothing.
        assert!(said == happened || name == "query", "{name} said {said}, but {happened}: {answer}");
        if happened {
            done.push(name);
        }
    }
    done.join(" ")
}

fn entity_request<'a>(table: &Table<'a>, partition: &str, name: &str) -> Request<'a> {
    let new = json!({ "A": 2 });
    let whole = with_keys(partition, name, new.clone());
    let on = |verb: &str| table.on(verb, partition, name);
    let batch = |batch: Batch| post(table.client, batch.body());
    let write = |verb: &str, etag: Option<&str>| {
        batch(Batch::new().write(verb, table, (partition, name), &new, etag))
    };
    match name {
        "get" => on("GET"),
        "query" => {
            let filter = escape(&format!("PartitionKey eq '{partition}'"));
            table.client.request("GET", &format!("/{}()?$filter={filter}", table.name))
        }
        "insert" => table.inserting(&whole),
        "replace" => on("PUT").json(&new).if_match(Some("*")),
        "merge" => on("MERGE").json(&new).if_match(Some("*")),
        "upsert" => on("PUT").json(&new),
        "upsert-merge" => on("MERGE").json(&new),
        "delete" => on("DELETE").if_match(Some("*")),
        "batch-insert" => batch(Batch::new().insert(table, &whole)),
        "batch-merge" => write("MERGE", Some("*")),
        "batch-upsert" => write("PUT", None),
        "batch-delete" => batch(Batch::new().delete(table, partition, name, "*")),
        _ => unreachable!("{name}"),
    }
}

#[track_caller]
fn on_table(bearer: &Client, table: &Table) -> String {
    let acl = format!("/{}?comp=acl", table.name);
    let there = format!("/Tables('{}')", table.name);
    let identifiers = "<?xml version=\"1.0\" encoding=\"utf-8\"?><SignedIdentifiers />";
    let requests = [
        bearer.request("GET", &there),
        bearer.request("GET", &acl).header("Accept", "application/xml"),
        bearer
            .request("PUT", &acl)
            .header("Accept", "application/xml")
            .header("Content-Type", "application/xml")
            .body(identifiers),
        bearer.request("DELETE", &there),
    ];
    let done = tried(&TABLE, requests);
    let is_there = table.client.get(&there).status == 200;
    assert_eq!(is_there, !done.contains("drop"), "{done}");
    done
}

#[track_caller]
fn on_service(bearer: &Client, owner: &Client) -> String {
    let service = "/?restype=service&comp=properties";
    let name = fresh_name();
    let requests = [
        bearer.request("GET", "/Tables"),
        bearer.request("POST", "/Tables").json(&json!({ "TableName": name })),
        bearer.request("GET", service),
        bearer.request("PUT", service).body("<StorageServiceProperties><Cors/></StorageServiceProperties>"),
    ];
    let done = tried(&SERVICE, requests);
    let is_there = owner.get(&format!("/Tables('{name}')")).status == 200;
    assert_eq!(is_there, done.contains("create"), "{done}");
    done
}

#[track_caller]
fn tried(names: &[&'static str; 4], requests: [Request; 4]) -> String {
    let outcomes =
        names.iter().zip(requests).filter(|(name, request)| is_done(name, &request.clone().send()));
    outcomes.map(|(name, _)| *name).collect::<Vec<_>>().join(" ")
}

/// Another byte of the same kind, so that what is changed stays readable.
const fn other(byte: u8) -> u8 {
    match byte {
        b'0'..=b'8' | b'a'..=b'y' | b'A'..=b'Y' => byte + 1,
        b'9' => b'0',
        b'z' => b'a',
        b'Z' => b'A',
        _ => b'x',
    }
}

/// Sends bytes on a connection of their own and demands a refusal.
#[track_caller]
fn is_refused(client: &Client, request: &[u8]) {
    use std::io::Write;
    let mut stream = client.wire().connect();
    stream.write_all(request).expect("the server listens");
    let raw = super::line::read(&mut stream);
    let status = raw.map(|raw| raw.status);
    let shown = String::from_utf8_lossy(request);
    assert!(matches!(status, Some(400..=404)), "{status:?} for {shown}");
}

fn no_byte_of_a_signed_request_may_change(client: &Client) {
    let t = client.table();
    t.seed_one(json!({ "A": 1 }));
    let signed = t.on("GET", "p", "r").bytes();
    let text = String::from_utf8(signed.clone()).expect("plain text");
    let place = |from: &str, to: &str| {
        let start = text.find(from).expect("it is there") + from.len();
        start..start + text[start..].find(to).expect("it ends")
    };
    let places = [place("GET ", " HTTP"), place("x-ms-date: ", "\r\n"), place("Authorization: ", "\r\n")];
    for at in places.into_iter().flatten() {
        let mut changed = signed.clone();
        changed[at] = other(changed[at]);
        is_refused(client, &changed);
    }
    let sas =
        Sas::table(&t.name, "r").set("st", &time(-60)).range((Some("p"), Some("a")), (Some("p"), Some("z")));
    for sas in [sas, Sas::account("o", "r").set("spr", "https,http")] {
        let token = sas.query(&client.account);
        client.bearing(&token).request("GET", &t.path("p", "r")).send().expect(200);
        for at in 0..token.len() {
            let mut changed = token.clone().into_bytes();
            changed[at] = other(changed[at]);
            let changed = String::from_utf8(changed).expect("plain text");
            is_refused(client, &client.bearing(&changed).request("GET", &t.path("p", "r")).bytes());
        }
        // The last letter of base64 has bits that mean nothing.
        let signature = sas.signature(&client.account);
        let (kept, last) = signature.split_at(signature.len() - 2);
        for letter in
            ('A'..='Z').chain('a'..='z').chain('0'..='9').filter(|letter| !last.starts_with(*letter))
        {
            let token = sas.query_signed(&format!("{kept}{letter}="));
            is_refused(client, &client.bearing(&token).request("GET", &t.path("p", "r")).bytes());
        }
    }
    let properties: Value = t.properties();
    assert_eq!(properties, json!({ "A": 1 }));
}
