//! Faults that test suites order of a server in test mode.

use std::io::Read as _;
use std::io::Write as _;
use std::time::{Duration, Instant};

use serde_json::{Value, json};

use crate::operators::{TOKEN, admin_of, ask, json_of, refused, server};
use crate::support::batch::{post, query_batch};
use crate::support::client::Request;
use crate::support::http::{Raw, Wire};
use crate::support::postgres::fresh_database;
use crate::support::server::Process;
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
fn on(operation: &str, fault: Value) -> Value {
    with(fault, "operation", json!(operation))
}

fn with(mut rule: Value, name: &str, value: Value) -> Value {
    rule[name] = value;
    rule
}

/// A server in test mode, its admin listener and a client, for each store.
fn servers() -> [(Process, Wire, Client); 2] {
    databases().map(|database| {
        let (server, admin) = server(&database, &["--test-mode"]);
        let client = server.client();
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
        let update = |etag| t.on("PUT", "p", "r").json(&json!({})).if_match(Some(etag));
        let delete = |row| t.on("DELETE", "p", row).if_match(Some("*"));
        let read = |row| t.on("GET", "p", row).level("fullmetadata");
        let query = || client.request("GET", &t.set());
        let forged = Auth::Header("SharedKey acct0001:AAAA".into());
        let new = || t.inserting(&entity("new"));
        let cases = [
            ("InsertEntity", "EntityAlreadyExists", t.inserting(&entity("r")), new()),
            ("InsertEntity", "TableNotFound", missing.inserting(&entity("r")), new()),
            ("UpdateEntity", "UpdateConditionNotSatisfied", update(stale), update(&etag)),
            ("DeleteEntity", "ResourceNotFound", delete("none"), delete("r")),
            ("GetEntity", "ResourceNotFound", read("none"), read("r")),
            ("QueryEntities", "AuthenticationFailed", query().auth(forged), query()),
        ];
        for (operation, code, real, ordered) in cases {
            put(&admin, json!([on(operation, json!({ "error": code }))]));
            let found = form(&ordered.send());
            assert_eq!(counts(&admin), [(1, 1)], "{operation} {code}");
            assert_eq!(found, form(&real.send()), "{operation}");
        }
        t.get("p", "new").refused(NOT_FOUND);
        assert_eq!(t.properties(), json!({ "N": 1 }));

        put(&admin, json!([on("CreateTable", json!({ "error": "TableBeingDeleted" }))]));
        let name = fresh_name();
        client.create_table(&name).refused(TABLE_BEING_DELETED);
        client.create_table(&name).expect(201);
        put(&admin, json!([{ "times": 3, "error": "ServerBusy" }]));
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
fn rules_count_what_they_match_and_begin_and_end_as_they_say() {
    for (_server, admin, client) in servers() {
        let t = client.table();
        let other = client.table();
        let rule = json!({
            "operation": "InsertEntity",
            "table": t.name.to_uppercase(),
            "after": 1,
            "times": 2,
            "error": "InternalError",
        });
        put(&admin, json!([rule]));
        other.insert(&entity("a")).expect(201);
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
fn the_first_error_or_disconnect_ends_a_request_and_delays_do_not() {
    for (_server, admin, client) in servers() {
        let t = client.table();
        put(
            &admin,
            json!([
                { "operation": "InsertEntity", "times": 9, "delay": 400 },
                { "operation": "InsertEntity", "error": "ServerBusy" },
                { "operation": "InsertEntity", "times": 9, "error": "InternalError" },
            ]),
        );
        let begun = Instant::now();
        t.insert(&entity("a")).refused(BUSY);
        assert!(begun.elapsed() >= Duration::from_millis(400), "{:?}", begun.elapsed());
        t.insert(&entity("a")).refused(INTERNAL);
        assert_eq!(counts(&admin), [(2, 2), (2, 1), (1, 1)]);
        // A delay takes of the time that the client allows.
        put(&admin, json!([{ "delay": 30_000 }]));
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

/// The rows of each page of a query, as a client that follows tokens sees them.
fn pages(t: &Table, options: &str) -> Vec<String> {
    t.pages(options).iter().map(|page| row_keys(page)).collect()
}

#[test]
fn pages_are_as_short_as_a_rule_says_and_tokens_lead_to_the_rest() {
    for (_server, admin, client) in servers() {
        let (t, other) = (client.table(), client.table());
        for (partition, rows) in [("p", ["a", "b", "c"]), ("q", ["d", "e", "f"])] {
            t.seed_rows(partition, rows);
            other.seed_rows(partition, rows);
        }
        let rule = json!({ "operation": "QueryEntities", "table": t.name, "page": 2, "times": 99 });
        put(&admin, json!([rule]));
        assert_eq!(pages(&t, ""), ["a,b", "c,d", "e,f"]);
        assert_eq!(pages(&other, ""), ["a,b,c,d,e,f"]);
        let filter = |text: &str| format!("$filter={}", escape(text));
        assert_eq!(pages(&t, &filter("RowKey ne 'b'")), ["a,c", "d,e", "f"]);
        assert_eq!(pages(&t, &filter("PartitionKey eq 'q'")), ["d,e", "f"]);
        // The smaller of the two wins.
        assert_eq!(pages(&t, "$top=1"), ["a", "b", "c", "d", "e", "f"]);
        assert_eq!(pages(&t, "$top=5&$select=RowKey"), ["a,b", "c,d", "e,f"]);
        assert_eq!(counts(&admin), [(17, 17)]);
        // Other faults go with it, and the smallest of several pages.
        let busy = json!({ "operation": "QueryEntities", "after": 1, "error": "ServerBusy" });
        put(&admin, json!([{ "page": 3, "times": 2 }, rule, { "page": 4 }, busy]));
        let first = t.query("").expect(200);
        assert_eq!(row_keys(&rows(first.json())), "a,b");
        let rest = format!("?{}", next_page(&first).expect("a token"));
        t.query(&rest).refused(BUSY);
        assert_eq!(row_keys(&rows(t.query(&rest).expect_json())), "c,d");
        assert_eq!(counts(&admin), [(3, 2), (3, 3), (3, 1), (3, 1)]);
    }
}

#[test]
fn lists_of_tables_and_queries_in_batches_have_short_pages_too() {
    for (_server, admin, client) in servers() {
        let tables: Vec<Table> = (0..3).map(|_| client.table()).collect();
        tables[0].seed_rows("p", ["a", "b", "c"]);
        // What a rule without an operation means: all queries, and nothing else.
        put(&admin, json!([{ "page": 1, "times": 99 }]));
        let mut names: Vec<String> = tables.iter().map(|table| table.name.clone()).collect();
        names.sort();
        let range = format!("TableName ge '{}' and TableName le '{}'", names[0], names[2]);
        let (mut found, mut next) = (Vec::new(), String::new());
        loop {
            let answer = client.get(&format!("/Tables?$filter={}{next}", escape(&range))).expect(200);
            let page = rows(answer.json());
            assert_eq!(page.len(), 1, "{page:?}");
            found.push(page[0]["TableName"].as_str().expect("a name").to_owned());
            let Some(token) = answer.header("x-ms-continuation-NextTableName") else { break };
            next = format!("&NextTableName={}", escape(token));
        }
        assert_eq!(found, names);
        tables[0].get("p", "a").expect(200);
        assert_eq!(counts(&admin), [(3, 3)]);
        let query = post(&client, query_batch(&client.url(&tables[0].set()))).send();
        let inner = BatchAnswer::of(query);
        let page: Value = serde_json::from_str(&inner.parts[0].body).expect("JSON");
        assert_eq!(row_keys(&rows(page)), "a");
        assert!(!inner.parts[0].need("x-ms-continuation-NextRowKey").is_empty());
        assert_eq!(counts(&admin), [(4, 4)]);
    }
}

#[test]
fn a_fault_in_a_transaction_is_that_of_its_operation_and_nothing_is_stored() {
    for (_server, admin, client) in servers() {
        let t = client.table();
        t.seed_one(json!({ "N": 1 }));
        put(&admin, json!([{ "operation": "InsertEntity", "after": 2, "error": "EntityAlreadyExists" }]));
        change_set(&t).send(&client).refused(2, ENTITY_EXISTS);
        assert_eq!(t.count(), 1);
        // Counted by operations, in the batch and among batches.
        put(&admin, json!([{ "operation": "InsertEntity", "after": 2, "error": "OperationTimedOut" }]));
        change_set(&t).send(&client).refused(2, TIMED_OUT);
        assert_eq!(counts(&admin), [(3, 1)]);
        put(&admin, json!([on("UpdateEntity", json!({ "error": "UpdateConditionNotSatisfied" }))]));
        change_set(&t).send(&client).refused(3, CONDITION_FAILED);
        // Alone, it has no index, as ever.
        put(&admin, json!([on("InsertEntity", json!({ "error": "EntityAlreadyExists" }))]));
        Batch::new().insert(&t, &entity("a")).send(&client).refused_alone(ENTITY_EXISTS);
        // These say of the whole batch that nothing was begun.
        for (code, status) in [("ServerBusy", 503), ("RequestTimedOut", 408)] {
            put(&admin, json!([{ "operation": "InsertEntity", "after": 1, "error": code }]));
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
        // A rule without an operation.
        put(&admin, json!([{ "table": t.name, "error": "InternalError" }]));
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
        disconnects_in_batch(&admin, &client, &t);
    }
}

fn disconnects_in_batch(admin: &Wire, client: &Client, t: &Table) {
    let before = t.count();
    put(admin, json!([{ "operation": "InsertEntity", "after": 1, "disconnect": "before" }]));
    drops(client, &post(client, change_set(t).body()));
    assert_eq!(t.count(), before);
    put(admin, json!([{ "operation": "InsertEntity", "after": 1, "disconnect": "after" }]));
    drops(client, &post(client, change_set(t).body()));
    assert_eq!(t.count(), before + 3);
    change_set(t).send(client).refused(0, ENTITY_EXISTS);
}

#[test]
fn a_disconnect_before_stores_nothing_and_one_after_everything() {
    for (server, admin, client) in servers() {
        let t = client.table();
        put(&admin, json!([on("InsertEntity", json!({ "disconnect": "before" }))]));
        drops(&client, &t.inserting(&entity("a")));
        t.get("p", "a").refused(NOT_FOUND);
        put(&admin, json!([on("InsertEntity", json!({ "disconnect": "after" }))]));
        drops(&client, &t.inserting(&entity("a")));
        t.get("p", "a").expect(200);
        t.insert(&entity("a")).refused(ENTITY_EXISTS);
        // A write that fails is not made to succeed.
        put(&admin, json!([on("InsertEntity", json!({ "disconnect": "after" }))]));
        drops(&client, &t.inserting(&entity("a")));
        put(&admin, json!([on("GetEntity", json!({ "disconnect": "after" }))]));
        drops(&client, &t.on("GET", "p", "a"));
        put(&admin, json!([on("SetServiceProperties", json!({ "disconnect": "after" }))]));
        let body = "<StorageServiceProperties><Cors/></StorageServiceProperties>";
        let request = client.request("PUT", "/?restype=service&comp=properties").body(body);
        drops(&client, &request.header("Accept", "application/xml"));
        assert!(!server.log().contains("ERROR"), "{}", server.log());
    }
}

#[test]
fn answers_that_come_before_a_disconnect_on_the_same_connection_arrive() {
    let (server, admin) = server("sqlite::memory:", &["--test-mode"]);
    let client = server.client();
    let t = client.table();
    put(&admin, json!([{ "operation": "InsertEntity", "after": 1, "disconnect": "after" }]));
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

#[test]
fn encrypted_connections_are_dropped() {
    let more = ["--admin-listen", "127.0.0.1:0", "--test-mode"];
    let (server, _) = tls::server(&more);
    let (admin, client) = (admin_of(&server), tls::client(&server));
    let t = client.table();
    put(&admin, json!([{ "operation": "InsertEntity", "times": 1, "disconnect": "after" }]));
    let mut stream = client.wire().connect_tls(client.wire().tls().expect("it is encrypted"));
    stream.write_all(&t.inserting(&entity("a")).bytes()).expect("the server listens");
    let mut rest = Vec::new();
    let _ = stream.read_to_end(&mut rest);
    assert!(rest.is_empty(), "{}", String::from_utf8_lossy(&rest));
    assert_eq!(t.count(), 1);
}

#[test]
fn concurrent_requests_meet_exactly_the_ordered_faults() {
    for (_server, admin, client) in servers() {
        let t = client.table();
        put(
            &admin,
            json!([{ "operation": "InsertEntity", "after": 30, "times": 50, "error": "ServerBusy" }]),
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
    put(&admin, json!([error()]));
    let listed = ask(&admin, "GET", PATH, "").body;
    let wrong = [
        (with(error(), "operation", json!("Insert")), "no operation"),
        (with(error(), "operation", json!("Unknown")), "no operation"),
        (with(error(), "operation", json!("Preflight")), "no operation"),
        (with(error(), "table", json!("a-b")), "no table"),
        (with(error(), "after", json!(-1)), "-1"),
        (with(error(), "after", json!(1_000_001)), "after is 0 to 1000000, not 1000001"),
        (with(error(), "times", json!(0)), "times is 1 to 1000000"),
        (with(error(), "times", json!(1.5)), "1.5"),
        (with(error(), "chance", json!(0.5)), "chance"),
        (with(error(), "account", json!("acct0001")), "account"),
        (json!({ "error": "Nonsense" }), "Nonsense"),
        (json!({ "error": "NotImplemented" }), "NotImplemented"),
        (json!({ "delay": 0 }), "delay is 1 to 30000"),
        (json!({ "delay": 30_001 }), "delay is 1 to 30000"),
        (json!({ "page": 0 }), "page is 1 to 1000"),
        (json!({ "page": 1001 }), "page is 1 to 1000"),
        (on("GetEntity", json!({ "page": 1 })), "GetEntity has no page"),
        (json!({ "disconnect": "sometimes" }), "sometimes"),
        (json!({ "delay": 1, "disconnect": "after" }), "exactly one of"),
        (with(error(), "page", json!(1)), "exactly one of"),
        (json!({}), "exactly one of"),
        (json!({ "operation": "GetEntity" }), "exactly one of"),
        (with(on("QueryTables", error()), "table", json!("abc")), "QueryTables has no table"),
    ];
    for (rule, words) in wrong {
        let raw = put_at(&admin, PATH, &json!([error(), rule]));
        refused(&raw, 400, "BadRequest");
        let message = json_of(&raw)["error"]["message"].as_str().expect("a message").to_owned();
        assert!(message.contains(words), "{words}: {message}");
    }
    for body in [json!({ "rules": [] }), json!("all"), json!(null)] {
        refused(&put_at(&admin, PATH, &body), 400, "BadRequest");
    }
    let many = |count: usize| Value::Array(vec![error(); count]);
    refused(&put_at(&admin, PATH, &many(101)), 400, "BadRequest");
    refused(
        &put_at(&admin, PATH, &json!([with(error(), "table", json!("x".repeat(300_000)))])),
        413,
        "BodyTooLarge",
    );
    refused(&put_at(&admin, &format!("{PATH}?account=acct0001"), &json!([])), 400, "BadRequest");
    refused(&ask(&admin, "DELETE", &format!("{PATH}?account=acct0001"), ""), 400, "BadRequest");
    assert_eq!(ask(&admin, "GET", PATH, "").body, listed);
    put(&admin, many(100));
    put(&admin, json!([]));
    assert!(counts(&admin).is_empty());
}

#[test]
fn a_reset_of_all_accounts_removes_rules_and_a_restore_does_not() {
    for (_server, admin, client) in servers() {
        let post = |path: &str| {
            let raw = ask(&admin, "POST", path, "Content-Length: 0\r\n");
            assert_eq!(raw.status, 200, "{raw:?}");
            raw
        };
        put(&admin, json!([{ "error": "ServerBusy" }]));
        let taken = json_of(&post("/test/snapshots"));
        post(&format!("/test/snapshots/{}/restore", taken["name"].as_str().expect("a name")));
        post(&format!("/test/reset?account={}", client.account.name));
        assert_eq!(counts(&admin), [(0, 0)]);
        post("/test/reset");
        assert_eq!(counts(&admin), []);
        put(&admin, json!([{ "error": "ServerBusy" }]));
        assert_eq!(json_of(&ask(&admin, "DELETE", PATH, "")), json!({ "rules": [] }));
        client.get("/Tables").expect(200);
    }
}

#[test]
fn operators_see_what_is_stored_whatever_is_ordered() {
    let (server, admin) = server("sqlite::memory:", &["--test-mode", "--admin-token", TOKEN]);
    let client = server.client();
    let (host, bearer) = (admin.address(), format!("Authorization: Bearer {TOKEN}\r\n"));
    let body = json!([{ "times": 9, "disconnect": "before" }]).to_string();
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
