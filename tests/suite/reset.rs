//! What test suites ask of a server in test mode.

use serde_json::{Value, json};

use crate::operators::{admin_of, ask, json_of, refused, server};
use crate::support::http::{Raw, Wire};
use crate::support::postgres::fresh_database;
use crate::support::server::{Process, account, fresh_folder};
use crate::support::*;

fn databases() -> [String; 3] {
    ["sqlite::memory:".to_owned(), "sqlite://data.db".to_owned(), fresh_database()]
}

fn post(admin: &Wire, path: &str) -> Raw {
    ask(admin, "POST", path, "Content-Length: 0\r\n")
}

#[track_caller]
fn done(raw: &Raw) -> Value {
    assert_eq!(raw.status, 200, "{raw:?}");
    json_of(raw)
}

#[track_caller]
fn snapshot(admin: &Wire, query: &str) -> String {
    let taken = done(&post(admin, &format!("/test/snapshots{query}")));
    taken["name"].as_str().expect("a name").to_owned()
}

/// Everything, as clients see it.
fn seen(client: &Client) -> Vec<Value> {
    let tables = client.get("/Tables").expect_json();
    let names = tables["value"].as_array().expect("tables").iter().filter_map(|t| t["TableName"].as_str());
    let each = names.map(|name| {
        let t = Table::new(client, name);
        let policies = client.request("GET", &format!("{}?comp=acl", t.set()));
        let entities = client.request("GET", &t.set()).level("fullmetadata").send().expect_json();
        json!({
            "table": name,
            "entities": entities["value"],
            "policies": policies.header("Accept", "application/xml").send().expect_xml(),
        })
    });
    let properties = client.request("GET", "/?restype=service&comp=properties");
    let properties = properties.header("Accept", "application/xml").send().expect_xml();
    each.chain([json!(properties)]).collect()
}

fn set_policy(t: &Table, id: &str) {
    let request =
        t.client.request("PUT", &format!("{}?comp=acl", t.set())).header("Accept", "application/xml");
    let policy =
        format!("<SignedIdentifiers><SignedIdentifier><Id>{id}</Id></SignedIdentifier></SignedIdentifiers>");
    request.header("Content-Type", "application/xml").body(policy).send().expect(204);
}

/// Whether pages of this origin may read the list of tables.
fn is_allowed(client: &Client, origin: &str) -> bool {
    let answer = client.request("GET", "/Tables").header("Origin", origin).send().expect(200);
    answer.header("Access-Control-Allow-Origin").is_some()
}

#[test]
fn what_is_stored_comes_back_and_nothing_stale_is_served() {
    for database in databases() {
        let (server, admin) = server(&database, &["--test-mode"]);
        let client = server.client();
        let t = client.table();
        t.insert(&with_keys("p", "r", json!({ "N": 1, "L@odata.type": "Edm.Int64", "L": "2" }))).expect(201);
        t.seed_rows("q", ["a", "b", "c"]);
        set_policy(&t, "before");
        client.allow_origin("http://before");
        let before = seen(&client);
        let name = snapshot(&admin, "");
        for _ in 0..2 {
            t.merge("p", "r", &json!({ "N": 2 }), Some("*")).expect(204);
            client.delete_table(&t.name).expect(204);
            client.create_table(&t.name).expect(201);
            client.table().seed_rows("p", ["x"]);
            t.seed_rows("p", ["new"]);
            set_policy(&t, "after");
            client.allow_origin("http://after");
            assert!(is_allowed(&client, "http://after") && !is_allowed(&client, "http://before"));
            let restored = done(&post(&admin, &format!("/test/snapshots/{name}/restore")));
            assert_eq!(restored, json!({ "status": "restored" }));
            // What was remembered of tables and rules is of no use any more.
            assert!(is_allowed(&client, "http://before") && !is_allowed(&client, "http://after"));
            t.get("p", "new").expect(404);
            assert_eq!(seen(&client), before);
        }
        assert_eq!(done(&post(&admin, "/test/reset")), json!({ "status": "reset" }));
        assert!(!is_allowed(&client, "http://before"));
        t.get("p", "r").refused(NO_TABLE);
        assert_eq!(seen(&client).len(), 1, "no table, and service properties as in the beginning");
        client.create_table(&t.name).expect(201);
        assert_eq!(t.count(), 0);
        // A snapshot outlives what it was taken of.
        done(&post(&admin, &format!("/test/snapshots/{name}/restore")));
        assert_eq!(seen(&client), before);
        let log = server.log();
        assert!(log.lines().any(|line| line.contains("WARN") && line.contains("TEST MODE")), "{log}");
        assert!(!log.contains("ERROR"), "{log}");
    }
}

#[test]
fn accounts_are_told_apart() {
    let two = format!("{};{}", account(1).setting(), account(2).setting());
    let arguments = ["serve", "--listen", "127.0.0.1:0", "--admin-listen", "127.0.0.1:0", "--test-mode"];
    let more = ["--database-url", "sqlite::memory:", "--accounts", &two];
    let server = Process::spawn(fresh_folder(), &[&arguments[..], &more].concat(), &[]);
    let admin = admin_of(&server);
    let [one, other] = [1, 2].map(|n| Client::path_style(server.address(), account(n)));
    [&one, &other].iter().for_each(|client| client.table().seed_rows("p", ["a"]));
    let (first, second) = (seen(&one), seen(&other));
    let name = snapshot(&admin, "?account=acct0001");
    done(&post(&admin, "/test/reset?account=acct0001"));
    assert_eq!((seen(&one).len(), seen(&other)), (1, second.clone()));
    done(&post(&admin, &format!("/test/snapshots/{name}/restore")));
    assert_eq!((seen(&one), seen(&other)), (first.clone(), second.clone()));
    for path in ["/test/reset?account=nobody", "/test/snapshots?account=nobody"] {
        refused(&post(&admin, path), 404, "AccountNotFound");
    }
    for query in ["acount=acct0001", "Account=acct0001", "account=acct0001&account=acct0002", "x"] {
        for path in ["/test/reset", "/test/snapshots"] {
            refused(&post(&admin, &format!("{path}?{query}")), 400, "BadRequest");
        }
    }
    assert_eq!((seen(&one), seen(&other)), (first, second), "a slip resets nothing");
    done(&post(&admin, "/test/reset"));
    assert_eq!((seen(&one).len(), seen(&other).len()), (1, 1));
}

#[test]
fn snapshots_are_listed_bounded_and_deleted() {
    let (_server, admin) = server("sqlite::memory:", &["--test-mode"]);
    let list =
        || done(&ask(&admin, "GET", "/test/snapshots", ""))["snapshots"].as_array().expect("a list").clone();
    assert_eq!(list(), [] as [Value; 0]);
    let names: Vec<String> = (0..64).map(|_| snapshot(&admin, "")).collect();
    refused(&post(&admin, "/test/snapshots"), 409, "TooManySnapshots");
    let listed: Vec<Value> = list().iter().map(|found| found["name"].clone()).collect();
    assert_eq!(listed, names);
    assert!(list()[0]["taken"].as_str().is_some_and(answer::is_canonical_time), "{}", list()[0]);
    assert_eq!(list()[0]["account"], Value::Null);
    let path = format!("/test/snapshots/{}", names[7]);
    assert_eq!(done(&ask(&admin, "DELETE", &path, "")), json!({ "status": "deleted" }));
    for raw in [ask(&admin, "DELETE", &path, ""), post(&admin, &format!("{path}/restore"))] {
        refused(&raw, 404, "SnapshotNotFound");
    }
    assert_eq!(list().len(), 63);
    snapshot(&admin, "");
    refused(&ask(&admin, "GET", "/test/reset", ""), 405, "MethodNotAllowed");
}

#[test]
fn without_test_mode_there_is_nothing_of_it() {
    let (server, admin) = server("sqlite::memory:", &[]);
    let client = server.client();
    let t = client.table();
    for (verb, path) in [
        ("POST", "/test/reset"),
        ("GET", "/test/reset"),
        ("GET", "/test/snapshots"),
        ("POST", "/test/snapshots"),
        ("POST", "/test/snapshots/a/restore"),
        ("DELETE", "/test/snapshots/a"),
        ("GET", "/test/faults"),
        ("PUT", "/test/faults"),
        ("DELETE", "/test/faults"),
    ] {
        refused(&ask(&admin, verb, path, "Content-Length: 0\r\n"), 404, "NotFound");
    }
    assert_eq!(t.count(), 0, "the table is still there");
    assert!(!server.log().contains("TEST MODE"));
    let arguments = ["serve", "--listen", "127.0.0.1:0", "--test-mode"];
    let refusal = Process::try_spawn(fresh_folder(), &arguments, &[]).err().expect("it does not start");
    assert!(refusal.contains("--test-mode: needs --admin-listen"), "{refusal}");
}

#[test]
fn pages_of_others_and_those_without_the_token_cannot_reset() {
    let token = "a-token-that-only-operators-know";
    let (locked, admin) = server("sqlite::memory:", &["--test-mode", "--admin-token", token]);
    let client = locked.client();
    let t = client.table();
    refused(&post(&admin, "/test/reset"), 401, "Unauthorized");
    assert_eq!(t.count(), 0);
    let shown = format!("Content-Length: 0\r\nAuthorization: Bearer {token}\r\n");
    done(&ask(&admin, "POST", "/test/reset", &shown));
    t.query("").refused(NO_TABLE);
    let (_open, admin) = server("sqlite::memory:", &["--test-mode"]);
    let foreign = "Content-Length: 0\r\nOrigin: https://evil.example\r\n";
    refused(&ask(&admin, "POST", "/test/reset", foreign), 403, "Forbidden");
}
