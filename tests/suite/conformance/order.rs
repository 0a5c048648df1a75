//! Which of two things that are wrong is reported (protocol §5.9), and in what
//! order a request is looked at before its body.

use serde_json::json;

use crate::support::*;

cases! {
    of_two_faults_of_a_body_the_earlier_is_reported, a_change_set_reports_the_first_operation_that_is_wrong,
    the_head_comes_before_the_body, who_may_comes_before_what_is_there,
}

/// A fault of an insert, in the order of the checks, and what it does to the
/// parts of a body.
struct Fault {
    refusal: Refusal,
    apply: fn(&mut Body),
}

/// An insert under construction.
#[derive(Default)]
struct Body {
    members: Vec<String>,
    broken: bool,
    without_row: bool,
    bad_key: bool,
    missing_table: bool,
    exists: bool,
}

const KEY_OUT_OF_RANGE: Refusal =
    (400, "OutOfRangeInput", "The 'PartitionKey' parameter of value 'a#b' is out of range.");

const FAULTS: [Fault; 10] = [
    Fault { refusal: BAD_BODY, apply: |b| b.broken = true },
    Fault { refusal: NEED_VALUE, apply: |b| b.without_row = true },
    Fault { refusal: KEY_OUT_OF_RANGE, apply: |b| b.bad_key = true },
    Fault {
        refusal: TOO_MANY_PROPERTIES,
        apply: |b| b.members.extend((0..253).map(|i| format!("\"Many{i}\":1"))),
    },
    Fault { refusal: NAME_INVALID, apply: |b| b.members.push("\"a b\":1".into()) },
    Fault {
        refusal: BAD_BODY,
        apply: |b| b.members.push("\"Int@odata.type\":\"Edm.Int32\",\"Int\":\"x\"".into()),
    },
    Fault {
        refusal: ENTITY_TOO_LARGE,
        apply: |b| b.members.extend((0..20).map(|i| format!("\"Big{i}\":\"{}\"", "x".repeat(32_000)))),
    },
    Fault {
        refusal: VALUE_TOO_LARGE,
        apply: |b| b.members.push(format!("\"Long\":\"{}\"", "x".repeat(40_000))),
    },
    Fault { refusal: NO_TABLE, apply: |b| b.missing_table = true },
    Fault { refusal: ENTITY_EXISTS, apply: |b| b.exists = true },
];

impl Body {
    fn of(faults: &[&Fault]) -> Self {
        let mut body = Self::default();
        faults.iter().for_each(|fault| (fault.apply)(&mut body));
        body
    }

    fn text(&self) -> String {
        let partition = if self.bad_key { "a#b" } else { "p" };
        let mut members = vec![format!("\"PartitionKey\":\"{partition}\"")];
        if !self.without_row {
            members.push(format!("\"RowKey\":\"{}\"", if self.exists { "there" } else { "new" }));
        }
        members.extend(self.members.iter().cloned());
        format!("{{{}{}", members.join(","), if self.broken { "" } else { "}" })
    }
}

fn of_two_faults_of_a_body_the_earlier_is_reported(client: &Client) {
    let t = client.table();
    t.seed_rows("p", ["there"]);
    let missing = format!("/{}", fresh_name());
    let sent = |body: &Body| {
        let set = if body.missing_table { missing.clone() } else { t.set() };
        client.request("POST", &set).raw_json(body.text()).send()
    };
    sent(&Body::of(&[])).expect(201);
    for (at, fault) in FAULTS.iter().enumerate() {
        sent(&Body::of(&[fault])).refused(fault.refusal);
        for later in &FAULTS[at + 1..] {
            sent(&Body::of(&[fault, later])).refused(fault.refusal);
        }
    }
    // All at once: the first of them.
    sent(&Body::of(&FAULTS.iter().collect::<Vec<_>>())).refused(FAULTS[0].refusal);
    assert_eq!(t.count(), 2);
}

fn a_change_set_reports_the_first_operation_that_is_wrong(client: &Client) {
    let t = client.table();
    t.seed_rows("p", ["there"]);
    let kind = ["Content-Type: application/json", "Accept: application/json;odata=minimalmetadata"];
    let url = client.url(&t.set());
    let operation = |batch: Batch, body: &Body| batch.operation("POST", &url, &kind, &body.text());
    // What needs no table is found before what does, whatever the order of operations.
    let (value, entity, size) = (&FAULTS[5], &FAULTS[6], &FAULTS[7]);
    for (first, second) in [(value, size), (size, value), (entity, size), (size, entity), (entity, value)] {
        let batch = operation(operation(Batch::new(), &Body::of(&[first])), &Body::of(&[second]));
        batch.send(client).refused(0, first.refusal);
    }
    for later in [entity, size] {
        let batch = operation(operation(Batch::new(), &Body::of(&[&FAULTS[9]])), &Body::of(&[later]));
        batch.send(client).refused(1, later.refusal);
    }
    let batch = operation(operation(Batch::new(), &Body::of(&[&FAULTS[9]])), &Body::of(&[value]));
    batch.send(client).refused(1, value.refusal);
    assert_eq!(t.count(), 1);
}

fn the_head_comes_before_the_body(client: &Client) {
    let t = client.table();
    let bad = || client.request("POST", &t.set()).raw_json("{");
    // Address, version, credentials, options, verb, condition, content type, body.
    let strange = client.request("POST", "/T(").version("x").raw_json("{").auth(Auth::None);
    strange.send().refused(QUERY_SYNTAX);
    bad().version("x").auth(Auth::None).send().is_no_version();
    let forged = || Auth::Header(format!("SharedKey {}:AAAA", client.account.name));
    let options = |query: &str| client.request("POST", &format!("{}?{query}", t.set())).raw_json("{");
    options("$skip=1").auth(forged()).send().turned_away(NOT_AUTHENTICATED);
    options("$skip=1").header("X-HTTP-Method", "FROB").send().refused(NOT_IMPLEMENTED);
    bad().header("X-HTTP-Method", "FROB").send().refused(TUNNEL_UNKNOWN);
    let merge = || t.on("MERGE", "p", "r").header("If-Match", "*").header("If-None-Match", "*");
    merge().header("Content-Type", "text/plain").body("{").send().refused(BOTH_CONDITIONS);
    bad().header("Content-Type", "text/plain").send().refused(MEDIA_TYPE);
    bad().send().refused(BAD_BODY);
}

fn who_may_comes_before_what_is_there(client: &Client) {
    let missing = Table::new(client, fresh_name());
    let bearer = Sas::table(&missing.name, "r").of(client);
    let there = Table::new(&bearer, missing.name.clone());
    there.insert(&with_keys("p", "r", json!({}))).refused(PERMISSION);
    there.get("p", "r").refused(NO_TABLE);
    // But what makes no sense is said to anyone who is known.
    there.insert(&json!({ "PartitionKey": "p" })).refused(NEED_VALUE);
    let secondary = client.secondary();
    Table::new(&secondary, missing.name.clone()).delete("p", "r", Some("*")).refused(WRITE_ON_SECONDARY);
}
