//! Faults that test suites order of a server in test mode.

use std::io::Read as _;
use std::io::Write as _;
use std::time::{Duration, Instant};

use serde_json::{Value, json};

use crate::operators::{TOKEN, admin_of, ask, client, json_of, refused, server};
use crate::support::batch::{post, query_batch};
use crate::support::client::Request;
use crate::support::http::{Raw, Wire};
use crate::support::postgres::fresh_database;
use crate::support::server::{Process, account, fresh_folder};
use crate::support::*;
use crate::tls;

const PATH: &str = "/test/faults";

fn databases() -> [String; 2] {
    ["sqlite::memory:".to_owned(), fresh_database()]
}

fn put_at(admin: &Wire, path: &str, rules: &Value) -> Raw {
    let (host, body) = (admin.address(), rules.to_string());
    let length = body.len();
    let request = format!("PUT {path} HTTP/1.1\r\nHost: {host}\r\nContent-Length: {length}\r\n\r\n{body}");
    admin.exchange("PUT", request.as_bytes())
}

/// Sets these rules in place of all others.
#[track_caller]
fn put(admin: &Wire, rules: Value) {
    let raw = put_at(admin, PATH, &rules);
    assert_eq!(raw.status, 200, "{raw:?}");
    assert_eq!(json_of(&raw), json_of(&ask(admin, "GET", PATH, "")), "the answer lists them");
}

/// Matches and hits of each rule.
#[track_caller]
fn counts(admin: &Wire) -> Vec<(u64, u64)> {
    let raw = ask(admin, "GET", PATH, "");
    assert_eq!(raw.status, 200, "{raw:?}");
    let listed = json_of(&raw);
    let number = |rule: &Value, name: &str| rule[name].as_u64().expect("a count");
    let rules = listed["rules"].as_array().expect("a list");
    rules.iter().map(|rule| (number(rule, "matched"), number(rule, "hits"))).collect()
}

/// Demands that the connection ends without a byte of an answer.
#[track_caller]
pub fn drops(client: &Client, request: &Request) {
    let mut stream = client.wire().connect();
    stream.write_all(&request.bytes()).expect("the server listens");
    let mut rest = Vec::new();
    // An orderly end or a reset.
    let _ = stream.read_to_end(&mut rest);
    assert!(rest.is_empty(), "{}", String::from_utf8_lossy(&rest));
}

fn entity(row: &str) -> Value {
    with_keys("p", row, json!({}))
}

/// Three inserts and an update of `p`, `r`.
fn change_set(t: &Table) -> Batch {
    let batch = ["a", "b", "c"].iter().fold(Batch::new(), |batch, row| batch.insert(t, &entity(row)));
    batch.write("PUT", t, ("p", "r"), &json!({ "N": 2 }), Some("*"))
}

/// What must be the same in an error however it came about.
fn form(answer: &Answer) -> (u16, Vec<(String, String)>, String) {
    let varying = ["date", "x-ms-request-id", "x-ms-client-request-id"];
    let varies = |name: &str| varying.contains(&name.to_ascii_lowercase().as_str());
    let mut headers = answer.headers.clone();
    headers.retain(|(name, _)| !varies(name));
    let body = answer.text().split("RequestId:").next().unwrap_or_default().to_owned();
    (answer.status, headers, body)
}

/// A rule for one operation.
fn on(operation: &str, then: Value) -> Value {
    json!({ "operation": operation, "then": then })
}

/// A server in test mode, its admin listener and a client, for each store.
fn servers() -> [(Process, Wire, Client); 2] {
    databases().map(|database| {
        let (server, admin) = server(&database, &["--test-mode"]);
        let client = client(&server);
        (server, admin, client)
    })
}

#[test]
fn ordered_errors_are_those_of_the_service() {
    for (_server, admin, client) in servers() {
        let t = client.table();
        let etag = t.seed_one(json!({ "N": 1 }));
        let stale = "W/\"datetime'2012-06-15T22%3A51%3A44.9662825Z'\"";
        let missing = Table::new(&client, "missing");
        // What the service answers by itself, and a request that only a rule fails.
        type Asking<'a> = Box<dyn Fn() -> Request<'a> + 'a>;
        let cases: Vec<(&str, &str, Asking, Asking)> = vec![
            (
                "InsertEntity",
                "EntityAlreadyExists",
                Box::new(|| t.inserting(&entity("r"))),
                Box::new(|| t.inserting(&entity("new"))),
            ),
            (
                "InsertEntity",
                "TableNotFound",
                Box::new(|| missing.inserting(&entity("r"))),
                Box::new(|| t.inserting(&entity("new"))),
            ),
            (
                "UpdateEntity",
                "UpdateConditionNotSatisfied",
                Box::new(|| t.on("PUT", "p", "r").json(&json!({})).if_match(Some(stale))),
                Box::new(|| t.on("PUT", "p", "r").json(&json!({})).if_match(Some(&etag))),
            ),
            (
                "DeleteEntity",
                "ResourceNotFound",
                Box::new(|| t.on("DELETE", "p", "none").if_match(Some("*"))),
                Box::new(|| t.on("DELETE", "p", "r").if_match(Some("*"))),
            ),
            (
                "GetEntity",
                "ResourceNotFound",
                Box::new(|| t.on("GET", "p", "none").level("fullmetadata")),
                Box::new(|| t.on("GET", "p", "r").level("fullmetadata")),
            ),
            (
                "QueryEntities",
                "AuthenticationFailed",
                Box::new(|| {
                    client.request("GET", &t.set()).auth(Auth::Header("SharedKey acct0001:AAAA".into()))
                }),
                Box::new(|| client.request("GET", &t.set())),
            ),
        ];
        for (operation, code, real, ordered) in cases {
            put(&admin, json!([on(operation, json!({ "error": code }))]));
            let found = form(&ordered().send());
            assert_eq!(counts(&admin), [(1, 1)], "{operation} {code}");
            assert_eq!(found, form(&real().send()), "{operation}");
        }
        t.get("p", "new").refused(NOT_FOUND);
        assert_eq!(t.properties(), json!({ "N": 1 }));

        put(&admin, json!([on("CreateTable", json!({ "error": "TableBeingDeleted" }))]));
        let name = fresh_name();
        client.create_table(&name).refused(TABLE_BEING_DELETED);
        client.create_table(&name).expect(201);
        put(&admin, json!([{ "times": 3, "then": { "error": "ServerBusy" } }]));
        let busy = t.insert(&entity("new")).refused(BUSY);
        assert_eq!(busy.need("Retry-After"), "1");
        let properties = client.request("GET", "/?restype=service&comp=properties");
        let xml = properties.header("Accept", "application/xml").send().refused_in_xml(BUSY);
        assert_eq!(xml.need("Retry-After"), "1");
        client.secondary().get("/Tables").refused(BUSY);
        client.get("/Tables").expect(200);
        assert_eq!(counts(&admin), [(4, 3)]);
    }
}

#[test]
fn rules_count_what_they_match_and_skip_what_they_shall() {
    for (_server, admin, client) in servers() {
        let t = client.table();
        let other = client.table();
        let rule = json!({
            "account": client.account.name,
            "operation": "InsertEntity",
            "table": t.name.to_uppercase(),
            "partition": "p",
            "row": "a",
            "skip": 1,
            "times": 2,
            "then": { "error": "InternalError" },
        });
        put(&admin, json!([rule]));
        other.insert(&entity("a")).expect(201);
        t.insert(&entity("b")).expect(201);
        t.insert(&with_keys("q", "a", json!({}))).expect(201);
        t.replace("p", "a", &json!({}), None).expect(204);
        assert_eq!(counts(&admin), [(0, 0)]);
        t.insert(&entity("a")).refused(ENTITY_EXISTS);
        assert_eq!(counts(&admin), [(1, 0)]);
        t.insert(&entity("a")).refused(INTERNAL);
        t.insert(&entity("a")).refused(INTERNAL);
        t.insert(&entity("a")).refused(ENTITY_EXISTS);
        assert_eq!(counts(&admin), [(4, 2)]);
    }
}

#[test]
fn the_first_error_or_drop_ends_a_request_and_delays_do_not() {
    for (_server, admin, client) in servers() {
        let t = client.table();
        put(
            &admin,
            json!([
                { "operation": "InsertEntity", "times": 9, "then": { "delay": 400 } },
                { "operation": "InsertEntity", "then": { "error": "ServerBusy" } },
                { "operation": "InsertEntity", "times": 9, "then": { "error": "InternalError" } },
            ]),
        );
        let begun = Instant::now();
        t.insert(&entity("a")).refused(BUSY);
        assert!(begun.elapsed() >= Duration::from_millis(400), "{:?}", begun.elapsed());
        t.insert(&entity("a")).refused(INTERNAL);
        assert_eq!(counts(&admin), [(2, 2), (2, 1), (1, 1)]);
        // A delay takes of the time that the client allows.
        put(&admin, json!([{ "then": { "delay": 30_000 } }]));
        let begun = Instant::now();
        client
            .request("POST", &format!("{}?timeout=1", t.set()))
            .json(&entity("a"))
            .send()
            .refused(TIMED_OUT);
        assert!(begun.elapsed() < Duration::from_secs(29), "{:?}", begun.elapsed());
        t.get("p", "a").refused(NOT_FOUND);
    }
}

#[test]
fn queries_have_the_keys_that_their_filter_fixes() {
    for (_server, admin, client) in servers() {
        let t = client.table();
        t.seed_one(json!({}));
        let rule = |row: Option<&str>| {
            json!([{
                "operation": "QueryEntities", "partition": "p", "row": row, "times": 9,
                "then": { "error": "ServerBusy" },
            }])
        };
        put(&admin, rule(None));
        for (filter, is_hit) in [
            ("PartitionKey eq 'p'", true),
            ("PartitionKey eq 'p' and RowKey ge 'a'", true),
            ("PartitionKey eq 'p' and N eq 1", true),
            ("PartitionKey eq 'q'", false),
            ("PartitionKey ge 'p'", false),
            ("PartitionKey eq 'p' or PartitionKey eq 'q'", false),
            ("N eq 1", false),
        ] {
            assert_eq!(t.filter(filter).status == 503, is_hit, "{filter}");
        }
        put(&admin, rule(Some("r")));
        t.filter("PartitionKey eq 'p'").expect(200);
        t.filter("PartitionKey eq 'p' and RowKey eq 'r'").refused(BUSY);
        client
            .secondary()
            .get(&format!("/{}()?$filter={}", t.name, escape("PartitionKey eq 'p' and RowKey eq 'r'")))
            .refused(BUSY);
        assert_eq!(counts(&admin), [(2, 2)]);
    }
}

#[test]
fn a_fault_in_a_transaction_is_that_of_its_operation_and_nothing_is_stored() {
    for (_server, admin, client) in servers() {
        let t = client.table();
        t.seed_one(json!({ "N": 1 }));
        put(
            &admin,
            json!([{ "operation": "InsertEntity", "row": "c", "then": { "error": "EntityAlreadyExists" } }]),
        );
        change_set(&t).send(&client).refused(2, ENTITY_EXISTS);
        assert_eq!(t.count(), 1);
        // Counted by operations: the third insert, whatever its keys.
        put(
            &admin,
            json!([{ "operation": "InsertEntity", "skip": 2, "then": { "error": "OperationTimedOut" } }]),
        );
        change_set(&t).send(&client).refused(2, TIMED_OUT);
        assert_eq!(counts(&admin), [(3, 1)]);
        put(&admin, json!([on("UpdateEntity", json!({ "error": "UpdateConditionNotSatisfied" }))]));
        change_set(&t).send(&client).refused(3, CONDITION_FAILED);
        // Alone, it has no index, as ever.
        put(&admin, json!([on("InsertEntity", json!({ "error": "EntityAlreadyExists" }))]));
        Batch::new().insert(&t, &entity("a")).send(&client).refused_alone(ENTITY_EXISTS);
        // These say of the whole batch that nothing was begun.
        for (code, status) in [("ServerBusy", 503), ("RequestTimedOut", 408)] {
            put(&admin, json!([{ "operation": "InsertEntity", "row": "b", "then": { "error": code } }]));
            post(&client, change_set(&t).body()).send().expect_error_code(status, code);
        }
        put(&admin, json!([on("InsertEntity", json!({ "error": "AuthenticationFailed" }))]));
        post(&client, change_set(&t).body()).send().turned_away(NOT_AUTHENTICATED);
        assert_eq!((t.count(), t.properties()), (1, json!({ "N": 1 })));
        change_set(&t).commit(&client);
        assert_eq!((t.count(), t.properties()), (4, json!({ "N": 2 })));
    }
}

#[test]
fn a_batch_as_a_whole_is_one_request() {
    for (_server, admin, client) in servers() {
        let t = client.table();
        t.seed_one(json!({ "N": 1 }));
        let in_table = |rule: Value| json!([{ "table": t.name, "partition": "p", "then": rule }]);
        // A rule without operation and row.
        put(&admin, in_table(json!({ "error": "InternalError" })));
        post(&client, change_set(&t).body()).send().refused(INTERNAL);
        assert_eq!(counts(&admin), [(1, 1)]);
        put(&admin, json!([on("EntityGroupTransaction", json!({ "error": "OperationTimedOut" }))]));
        t.get("p", "r").expect(200);
        post(&client, change_set(&t).body()).send().refused(TIMED_OUT);
        assert_eq!(t.count(), 1);
        // A query in a batch.
        let query = || post(&client, query_batch(&client.url(&t.path("p", "r")))).send();
        put(&admin, json!([on("QueryBatch", json!({ "error": "InternalError" }))]));
        query().refused(INTERNAL);
        put(&admin, json!([on("GetEntity", json!({ "error": "ResourceNotFound" }))]));
        BatchAnswer::of(query()).refused(0, NOT_FOUND);
        put(&admin, json!([on("GetEntity", json!({ "error": "ServerBusy" }))]));
        query().refused(BUSY);
        assert_eq!(BatchAnswer::of(query()).parts[0].status, 200);
        drops_all(&admin, &client, &t);
    }
}

fn drops_all(admin: &Wire, client: &Client, t: &Table) {
    let before = t.count();
    put(admin, json!([{ "operation": "InsertEntity", "row": "b", "then": { "drop": "before" } }]));
    drops(client, &post(client, change_set(t).body()));
    assert_eq!(t.count(), before);
    put(admin, json!([{ "operation": "InsertEntity", "row": "b", "then": { "drop": "after" } }]));
    drops(client, &post(client, change_set(t).body()));
    assert_eq!(t.count(), before + 3);
    change_set(t).send(client).refused(0, ENTITY_EXISTS);
}

#[test]
fn a_drop_before_stores_nothing_and_a_drop_after_everything() {
    for (server, admin, client) in servers() {
        let t = client.table();
        put(&admin, json!([on("InsertEntity", json!({ "drop": "before" }))]));
        drops(&client, &t.inserting(&entity("a")));
        t.get("p", "a").refused(NOT_FOUND);
        put(&admin, json!([on("InsertEntity", json!({ "drop": "after" }))]));
        drops(&client, &t.inserting(&entity("a")));
        t.get("p", "a").expect(200);
        t.insert(&entity("a")).refused(ENTITY_EXISTS);
        // A write that fails is not made to succeed.
        put(&admin, json!([on("InsertEntity", json!({ "drop": "after" }))]));
        drops(&client, &t.inserting(&entity("a")));
        put(&admin, json!([on("GetEntity", json!({ "drop": "after" }))]));
        drops(&client, &t.on("GET", "p", "a"));
        put(&admin, json!([on("SetServiceProperties", json!({ "drop": "after" }))]));
        let body = "<StorageServiceProperties><Cors/></StorageServiceProperties>";
        let request = client.request("PUT", "/?restype=service&comp=properties").body(body);
        drops(&client, &request.header("Accept", "application/xml"));
        assert!(!server.log().contains("ERROR"), "{}", server.log());
    }
}

#[test]
fn answers_that_come_before_a_drop_on_the_same_connection_arrive() {
    let (server, admin) = server("sqlite::memory:", &["--test-mode"]);
    let client = client(&server);
    let t = client.table();
    put(&admin, json!([{ "operation": "InsertEntity", "skip": 1, "then": { "drop": "after" } }]));
    let pipelined = ["a", "b"].map(|row| t.inserting(&entity(row)).bytes()).concat();
    let mut stream = client.wire().connect();
    stream.write_all(&pipelined).expect("the server listens");
    let mut rest = Vec::new();
    let _ = stream.read_to_end(&mut rest);
    let text = String::from_utf8_lossy(&rest);
    assert_eq!(text.matches("HTTP/1.1 ").count(), 1, "{text}");
    assert!(text.starts_with("HTTP/1.1 201 Created\r\n"), "{text}");
    assert_eq!(t.count(), 2);
}

#[tokio::test]
async fn encrypted_connections_are_dropped_and_streams_of_http_2_reset() {
    let more = ["--admin-listen", "127.0.0.1:0", "--test-mode"];
    let (server, _) = tls::server(&more);
    let (admin, client) = (admin_of(&server), tls::client(&server));
    let t = client.table();
    put(&admin, json!([{ "operation": "InsertEntity", "times": 2, "then": { "drop": "after" } }]));
    let mut stream = client.wire().connect_tls(client.wire().tls().expect("it is encrypted"));
    stream.write_all(&t.inserting(&entity("a")).bytes()).expect("the server listens");
    let mut rest = Vec::new();
    let _ = stream.read_to_end(&mut rest);
    assert!(rest.is_empty(), "{}", String::from_utf8_lossy(&rest));

    let sender = tls::connect(&server).await;
    let (head, body) = tls::as_http_2(&t.inserting(&entity("b")).bytes());
    let (answer, mut out) = sender.clone().send_request(head, false).expect("a request");
    out.send_data(body, true).expect("a body");
    let error = answer.await.expect_err("no answer");
    assert_eq!(error.reason(), Some(h2::Reason::INTERNAL_ERROR), "{error}");
    // The other streams of the connection go on.
    let (head, _) = tls::as_http_2(&t.on("GET", "p", "b").bytes());
    let (answer, _) = sender.ready().await.expect("a stream").send_request(head, true).expect("a request");
    assert_eq!(answer.await.expect("an answer").status(), 200);
    assert_eq!(t.count(), 2);
}

#[test]
fn concurrent_requests_meet_exactly_the_ordered_faults() {
    for (_server, admin, client) in servers() {
        let t = client.table();
        put(
            &admin,
            json!([{ "operation": "InsertEntity", "skip": 30, "times": 50, "then": { "error": "ServerBusy" } }]),
        );
        let busy = std::thread::scope(|scope| {
            let insert = |thread: usize| {
                let t = &t;
                scope.spawn(move || {
                    let same = t.client.same();
                    let t = Table::new(&same, t.name.clone());
                    let statuses = (0..25).map(|n| t.insert(&entity(&format!("{thread}-{n}"))).status);
                    statuses.filter(|status| *status == 503).count()
                })
            };
            let threads: Vec<_> = (0..8).map(insert).collect();
            threads.into_iter().map(|thread| thread.join().expect("no panic")).sum::<usize>()
        });
        assert_eq!(busy, 50);
        assert_eq!(t.count(), 150);
        assert_eq!(counts(&admin), [(200, 50)]);
    }
}

#[test]
fn what_is_wrong_with_a_rule_is_said_and_changes_nothing() {
    let (_server, admin) = server("sqlite::memory:", &["--test-mode"]);
    let error = || json!({ "error": "ServerBusy" });
    put(&admin, json!([{ "then": error() }]));
    let listed = ask(&admin, "GET", PATH, "").body;
    let with = |name: &str, value: Value| {
        let mut rule = json!({ "then": error() });
        rule[name] = value;
        rule
    };
    let wrong = [
        (with("account", json!("nobody")), "no account"),
        (with("operation", json!("Insert")), "no operation"),
        (with("operation", json!("Unknown")), "no operation"),
        (with("operation", json!("Preflight")), "no operation"),
        (with("table", json!("a-b")), "no table"),
        (with("skip", json!(-1)), "-1"),
        (with("skip", json!(1_000_001)), "skip is 0 to 1000000"),
        (with("times", json!(0)), "times is 1 to 1000000"),
        (with("times", json!(1.5)), "1.5"),
        (with("chance", json!(0.5)), "chance"),
        (with("then", json!({ "error": "Nonsense" })), "Nonsense"),
        (with("then", json!({ "error": "TableNotFound" })), "every operation cannot"),
        (with("then", json!({ "delay": 0 })), "delay is 1 to 30000"),
        (with("then", json!({ "delay": 30_001 })), "delay is 1 to 30000"),
        (with("then", json!({ "drop": "sometimes" })), "sometimes"),
        (with("then", json!({ "delay": 1, "drop": "after" })), "then"),
        (with("then", json!({})), "then"),
        (json!({ "operation": "GetEntity" }), "then"),
        (json!({ "operation": "QueryTables", "table": "abc", "then": error() }), "QueryTables has no table"),
        (json!({ "operation": "DeleteTable", "partition": "p", "then": error() }), "has no partition"),
        (json!({ "operation": "EntityGroupTransaction", "row": "r", "then": error() }), "has no row"),
        (
            on("GetEntity", json!({ "error": "EntityAlreadyExists" })),
            "GetEntity cannot fail with EntityAlreadyExists",
        ),
        (on("InsertOrReplaceEntity", json!({ "error": "UpdateConditionNotSatisfied" })), "cannot"),
    ];
    for (rule, words) in wrong {
        let raw = put_at(&admin, PATH, &json!([{ "then": error() }, rule]));
        refused(&raw, 400, "BadRequest");
        let message = json_of(&raw)["error"]["message"].as_str().expect("a message").to_owned();
        assert!(message.contains(words) || words == "then", "{words}: {message}");
    }
    for body in [json!({ "rules": [] }), json!("all"), json!(null)] {
        refused(&put_at(&admin, PATH, &body), 400, "BadRequest");
    }
    let many = |count: usize| Value::Array(vec![json!({ "then": error() }); count]);
    refused(&put_at(&admin, PATH, &many(101)), 400, "BadRequest");
    refused(&put_at(&admin, PATH, &json!([with("row", json!("x".repeat(300_000)))])), 413, "BodyTooLarge");
    for query in ["?acount=acct0001", "?account=nobody"] {
        let raw = put_at(&admin, &format!("{PATH}{query}"), &json!([]));
        assert!([400, 404].contains(&raw.status), "{raw:?}");
    }
    assert_eq!(ask(&admin, "GET", PATH, "").body, listed);
    put(&admin, many(100));
    put(&admin, json!([]));
    assert!(counts(&admin).is_empty());
}

#[test]
fn resets_remove_rules_and_accounts_have_their_own() {
    for database in databases() {
        let two = format!("{};{}", account(1).setting(), account(2).setting());
        let arguments = ["serve", "--listen", "127.0.0.1:0", "--admin-listen", "127.0.0.1:0", "--test-mode"];
        let arguments = [&arguments[..], &["--database-url", &database, "--accounts", &two]].concat();
        let server = Process::spawn(fresh_folder(), &arguments, &[]);
        let admin = admin_of(&server);
        let names = || {
            let listed = json_of(&ask(&admin, "GET", PATH, ""));
            let accounts =
                listed["rules"].as_array().expect("a list").iter().map(|rule| rule["account"].clone());
            Value::Array(accounts.collect())
        };
        let rules = |account: Value| json!([{ "account": account, "then": { "error": "ServerBusy" } }]);
        let of = |number: usize| format!("{PATH}?account={}", account(number).name);
        let (one, other) = (account(1).name, account(2).name);
        let all = || {
            put(&admin, rules(Value::Null));
            assert_eq!(put_at(&admin, &of(1), &rules(Value::Null)).status, 200);
            assert_eq!(put_at(&admin, &of(2), &rules(json!(other))).status, 200);
            assert_eq!(names(), json!([null, one, other]));
        };
        all();
        refused(&put_at(&admin, &of(1), &rules(json!(other))), 400, "BadRequest");
        assert_eq!(names(), json!([null, one, other]));
        let reset = |query: &str| {
            let raw = ask(&admin, "POST", &format!("/test/reset{query}"), "Content-Length: 0\r\n");
            assert_eq!(raw.status, 200, "{raw:?}");
        };
        let of_one = json_of(&ask(&admin, "GET", &of(1), ""));
        assert_eq!(of_one["rules"].as_array().map(Vec::len), Some(1), "{of_one}");
        let taken = ask(&admin, "POST", "/test/snapshots", "Content-Length: 0\r\n");
        let restore =
            format!("/test/snapshots/{}/restore", json_of(&taken)["name"].as_str().expect("a name"));
        assert_eq!(ask(&admin, "POST", &restore, "Content-Length: 0\r\n").status, 200);
        assert_eq!(names(), json!([null, one, other]), "a restore leaves them");
        reset(&format!("?account={one}"));
        assert_eq!(names(), json!([null, other]));
        assert_eq!(ask(&admin, "DELETE", &of(2), "").status, 200);
        assert_eq!(names(), json!([null]));
        reset("");
        assert_eq!(names(), json!([]));
        all();
        assert_eq!(json_of(&ask(&admin, "DELETE", PATH, "")), json!({ "rules": [] }));
        let client = Client::path_style(server.address(), account(1));
        client.get("/Tables").expect(200);
    }
}

#[test]
fn operators_see_what_is_stored_whatever_is_ordered() {
    let (server, admin) = server("sqlite::memory:", &["--test-mode", "--admin-token", TOKEN]);
    let client = client(&server);
    let (host, bearer) = (admin.address(), format!("Authorization: Bearer {TOKEN}\r\n"));
    let body = json!([{ "times": 9, "then": { "drop": "before" } }]).to_string();
    let request = format!(
        "PUT {PATH} HTTP/1.1\r\nHost: {host}\r\n{bearer}Content-Length: {}\r\n\r\n{body}",
        body.len()
    );
    refused(&put_at(&admin, PATH, &json!([])), 401, "Unauthorized");
    assert_eq!(admin.exchange("PUT", request.as_bytes()).status, 200);
    assert!(server.log().contains("PUT /test/faults"), "it is audited: {}", server.log());
    let seen =
        ask(&admin, "GET", "/service/acct0001/Tables", &format!("{bearer}Accept: application/json\r\n"));
    assert_eq!(seen.status, 200, "{seen:?}");
    drops(&client, &client.request("GET", "/Tables"));
    let listed = json_of(&ask(&admin, "GET", PATH, &bearer));
    assert_eq!(listed["rules"][0]["matched"], 1, "{listed}");
}

#[test]
fn there_are_no_faults_outside_test_mode() {
    let (server, admin) = server("sqlite::memory:", &[]);
    for verb in ["GET", "DELETE"] {
        refused(&ask(&admin, verb, PATH, ""), 404, "NotFound");
    }
    refused(&put_at(&admin, PATH, &json!([{ "then": { "error": "ServerBusy" } }])), 404, "NotFound");
    client(&server).get("/Tables").expect(200);
}

/// The code of a recipe is that of a test: whatever it is indented by, line by line.
#[test]
fn recipes_are_what_the_tests_of_the_clients_do() {
    let page = include_str!("../../docs/how-to/test-suites.md");
    let recipes = page.split("#### Recipes\n").nth(1).expect("the recipes");
    let lines = |text: &str| -> Vec<String> {
        text.lines().map(|line| line.trim().to_owned()).filter(|line| !line.is_empty()).collect()
    };
    let clients = [
        ("python", include_str!("../clients/python/tests/test_faults.py")),
        ("javascript", include_str!("../clients/javascript/tests/faults.test.js")),
        ("go", include_str!("../clients/go/faults_test.go")),
        ("java", include_str!("../clients/java/src/test/java/rowhouse/FaultsTest.java")),
    ];
    for (language, test) in clients {
        let (_, rest) = recipes.split_once(&format!("```{language}\n")).expect("a recipe");
        let recipe = rest.split("```").next().unwrap_or_default();
        let tested = lines(test);
        for part in recipe.split("\n\n").map(lines) {
            assert!(!part.is_empty() && tested.windows(part.len()).any(|window| window == part), "{part:?}");
        }
    }
}
