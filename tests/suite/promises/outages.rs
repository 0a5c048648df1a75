//! The server outlives its database, and never guesses what became of a write.

use serde_json::json;

use super::cluster::Cluster;
use super::line::{Fate, Line};
use super::respread::hold_in_the_middle;
use super::site::Site;
use crate::support::batch::post;
use crate::support::client::Request;
use crate::support::http::Raw;
use crate::support::postgres::fresh_database;
use crate::support::proxy::{Break, Proxy};
use crate::support::*;

/// More than the wait for a connection, seconds.
const WAIT: u32 = 12;

/// The answer that a request must have.
pub fn answer(line: &mut Line, request: &Request) -> Raw {
    match line.ask(request) {
        Fate::Answered(raw) => raw,
        other => panic!("no answer: {other:?}"),
    }
}

/// One of each kind of request. The server's own clock makes one that takes
/// longer than so many seconds a 500.
pub fn all_kinds<'a>(table: &Table<'a>, seconds: u32) -> Vec<(&'static str, Request<'a>)> {
    let client = table.client;
    let path = |path: String| {
        let mark = if path.contains('?') { '&' } else { '?' };
        format!("{path}{mark}timeout={seconds}")
    };
    let one = path(table.path("p", "r"));
    let entity = with_keys("p", "s", json!({ "A": 1 }));
    let group = Batch::new().insert(table, &with_keys("q", "1", json!({}))).write(
        "PUT",
        table,
        ("q", "2"),
        &json!({ "A": 1 }),
        None,
    );
    vec![
        ("get", client.request("GET", &one)),
        ("query", client.request("GET", &path(format!("/{}()?$top=2", table.name)))),
        ("insert", client.request("POST", &path(table.set())).json(&entity)),
        ("upsert", client.request("PUT", &one).json(&json!({ "A": 2 }))),
        ("merge", client.request("MERGE", &one).json(&json!({ "A": 2 })).if_match(Some("*"))),
        ("delete", client.request("DELETE", &one).if_match(Some("*"))),
        ("transaction", post(client, group.body())),
        ("tables", client.request("GET", &path("/Tables".into()))),
        (
            "new table",
            client.request("POST", &path("/Tables".into())).json(&json!({ "TableName": fresh_name() })),
        ),
        ("drop", client.request("DELETE", &path(format!("/Tables('{}')", table.name)))),
        ("policies", client.request("GET", &path(format!("/{}?comp=acl", table.name)))),
        ("properties", client.request("GET", &path("/?restype=service&comp=properties".into()))),
    ]
}

/// Whether an answer says that nothing was done, and when to ask again.
pub fn is_busy(raw: &Raw) -> bool {
    let text = String::from_utf8_lossy(&raw.body);
    // A failed change set is a 202 with the failure in it.
    let inner = raw.status == 202 && text.contains("HTTP/1.1 503 ") && text.contains("ServerBusy");
    let outer = raw.status == 503 && text.contains("ServerBusy") && raw.header("Retry-After").is_some();
    inner || outer
}

/// Whether an answer says that nothing was done, or that this is not known.
pub fn is_refused(raw: &Raw) -> bool {
    is_busy(raw) || String::from_utf8_lossy(&raw.body).contains("OperationTimedOut")
}

/// Asks until the first success. A write on a connection that went while it rested cannot know.
pub fn until_well(line: &mut Line, request: &Request) {
    let raw = until_some("a success", || Some(answer(line, request)).filter(|raw| !is_refused(raw)));
    assert!(raw.status < 300 && !String::from_utf8_lossy(&raw.body).contains("odata.error"), "{raw:?}");
}

/// Asks requests of every kind while the database is away.
fn all_are_busy(line: &mut Line, table: &Table) {
    for round in 0..2 {
        for (name, request) in all_kinds(table, WAIT) {
            let raw = answer(line, &request);
            // The first write on a connection that was cut cannot know.
            let unknown = round == 0 && String::from_utf8_lossy(&raw.body).contains("OperationTimedOut");
            assert!(is_busy(&raw) || unknown, "{name}, round {round}: {raw:?}");
        }
    }
}

/// A database and a server.
fn start() -> (Cluster, Site) {
    let cluster = Cluster::start();
    let site = Site::start(cluster.url(), &[]);
    (cluster, site)
}

#[test]
fn a_server_without_its_database_is_busy_and_recovers_by_itself() {
    let (mut cluster, site) = start();
    let client = site.client();
    let table = client.table();
    table.seed_one(json!({ "A": 1 }));
    let mut line = Line::new(&site.address);
    for _ in 0..2 {
        // Connections of every kind are open when they are cut.
        let _ = (answer(&mut line, &table.on("GET", "p", "r")), table.count());
        cluster.stop();
        all_are_busy(&mut line, &table);
        // A stranger learns nothing of it, and takes no connection.
        let forged =
            Sas::table(&table.name, "r").with_policy("x").query_signed(&format!("{}=", "A".repeat(43)));
        client.bearing(&forged).get(&format!("/{}()", table.name)).turned_away(NOT_AUTHENTICATED);
        cluster.start_again();
        until_well(&mut line, &table.on("GET", "p", "r"));
        // Nothing of what was refused has happened, and the server is whole.
        assert_eq!((table.count(), table.properties()), (1, json!({ "A": 1 })));
        let replace = table.on("PUT", "p", "r").json(&json!({ "A": 1 })).if_match(Some("*"));
        until_well(&mut line, &replace);
        let group = Batch::new().write("PUT", &table, ("p", "r"), &json!({ "A": 1 }), None);
        until_well(&mut line, &post(&client, group.body()));
    }
}

/// What a standby has may be older than what was acknowledged.
#[test]
fn a_standby_in_the_place_of_the_database_answers_nothing() {
    let (mut cluster, site) = start();
    let client = site.client();
    let table = client.table();
    table.seed_one(json!({ "A": 1 }));
    let mut line = Line::new(&site.address);
    let _ = (answer(&mut line, &table.on("GET", "p", "r")), table.count());
    cluster.demote();
    all_are_busy(&mut line, &table);
    assert_eq!(answer(&mut line, &client.request("GET", "/readyz")).status, 503);
    cluster.promote();
    until_well(&mut line, &table.on("GET", "p", "r"));
    assert_eq!((table.count(), table.properties()), (1, json!({ "A": 1 })));
    until_well(&mut line, &table.on("PUT", "p", "r").json(&json!({ "A": 2 })).if_match(Some("*")));
}

/// A write of the given row, and whether it shows afterwards.
struct Case {
    name: &'static str,
    /// What ends the transaction, if its only statement does not.
    mark: Option<&'static str>,
    request: for<'a> fn(&Table<'a>, &str, &str) -> Request<'a>,
    is_done: fn(&Table, &str) -> bool,
}

fn has(table: &Table, row: &str, value: Option<u64>) -> bool {
    let found = table.get("p", row);
    let shown = (found.status == 200).then(|| found.json()["A"].as_u64().unwrap_or(0));
    shown == value
}

fn in_a_group<'a>(table: &Table<'a>, row: &str, etag: &str) -> Request<'a> {
    let batch = Batch::new()
        .write("PUT", table, ("p", row), &json!({ "A": 2 }), Some(etag))
        .insert(table, &with_keys("p", &format!("{row}-beside"), json!({})));
    post(table.client, batch.body())
}

fn only_inserts<'a>(table: &Table<'a>, row: &str, _: &str) -> Request<'a> {
    let entity = |end: &str| with_keys("p", &format!("{row}-{end}"), json!({}));
    post(table.client, Batch::new().insert(table, &entity("x")).insert(table, &entity("y")).body())
}

static CASES: [Case; 6] = [
    Case {
        name: "insert",
        mark: None,
        request: |t, row, _| t.inserting(&with_keys("p", &format!("{row}-new"), json!({ "A": 2 }))),
        is_done: |t, row| has(t, &format!("{row}-new"), Some(2)),
    },
    Case {
        name: "upsert",
        mark: None,
        request: |t, row, _| t.on("PUT", "p", row).json(&json!({ "A": 2 })),
        is_done: |t, row| has(t, row, Some(2)),
    },
    Case {
        name: "replace",
        mark: None,
        request: |t, row, etag| t.on("PUT", "p", row).json(&json!({ "A": 2 })).if_match(Some(etag)),
        is_done: |t, row| has(t, row, Some(2)),
    },
    Case {
        name: "delete",
        mark: None,
        request: |t, row, etag| t.on("DELETE", "p", row).if_match(Some(etag)),
        is_done: |t, row| has(t, row, None),
    },
    Case {
        name: "transaction",
        mark: Some("COMMIT"),
        request: in_a_group,
        is_done: |t, row| {
            let (one, other) = (has(t, row, Some(2)), has(t, &format!("{row}-beside"), Some(0)));
            assert_eq!(one, other, "half a transaction");
            one
        },
    },
    Case {
        name: "transaction of inserts",
        mark: None,
        request: only_inserts,
        is_done: |t, row| {
            let [one, other] = ["x", "y"].map(|end| has(t, &format!("{row}-{end}"), Some(0)));
            assert_eq!(one, other, "half a transaction");
            one
        },
    },
];

/// Each case, by its number, and where its connection is lost.
fn all_losses() -> impl Iterator<Item = (usize, &'static Case, Break)> {
    let places = [Break::Before, Break::After];
    CASES.iter().enumerate().flat_map(move |(number, case)| places.map(|place| (number, case, place)))
}

#[test]
fn a_connection_lost_in_a_commit_is_an_unknown_outcome() {
    let database = fresh_database();
    let proxy = Proxy::to(&database);
    let site = Site::start(&proxy.url(&database), &["--workers", "1"]);
    let client = site.client();
    let table = client.table();
    let mut line = Line::new(&site.address);
    for is_respread in [false, true] {
        if is_respread {
            hold_in_the_middle(&database, &table.name);
        }
        for (number, case, place) in all_losses() {
            let row = format!("row{number}{place:?}{is_respread}");
            let etag = table.seed(with_keys("p", &row, json!({ "A": 1 })));
            // Each write of a table that is being respread is a transaction of several statements.
            proxy.arm(&row, if is_respread { Some("COMMIT") } else { case.mark }, place);
            let raw = answer(&mut line, &(case.request)(&table, &row, &etag));
            assert!(proxy.has_struck(), "{}: the trap did not close", case.name);
            let text = String::from_utf8_lossy(&raw.body);
            let unknown = matches!(raw.status, 500 | 202) && text.contains("OperationTimedOut");
            assert!(unknown, "{} lost {place:?} the commit: {raw:?}", case.name);
            assert_eq!((case.is_done)(&table, &row), place == Break::After, "{} {place:?}", case.name);
        }
    }
}
