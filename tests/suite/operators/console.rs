//! The server's part of the console: its files, who may use it, the Table service
//! for operators, and what it shows of requests.

use super::*;

const ON: [&str; 2] = ["--admin-token", TOKEN];

/// A server with a console and a token, beside a client of its account.
pub fn console(database: &str, more: &[&str]) -> (Process, Wire, Client) {
    let (server, admin) = server(database, &[&ON[..], more].concat());
    let client = server.client();
    (server, admin, client)
}

/// Asks as the page does.
fn asked(admin: &Wire, verb: &str, path: &str, headers: &str, body: &str) -> Raw {
    let host = admin.address();
    let head = format!("{verb} {path} HTTP/1.1\r\nHost: {host}\r\nAuthorization: Bearer {TOKEN}\r\n");
    let head = format!("{head}Origin: http://{host}\r\nAccept: application/json\r\n{headers}");
    admin.exchange(verb, format!("{head}Content-Length: {}\r\n\r\n{body}", body.len()).as_bytes())
}

fn json_asked(admin: &Wire, verb: &str, path: &str, headers: &str, body: &Value) -> Raw {
    let headers = format!("Content-Type: application/json\r\n{headers}");
    asked(admin, verb, path, &headers, &body.to_string())
}

#[track_caller]
fn header<'r>(raw: &'r Raw, name: &str) -> &'r str {
    let found = raw.headers.iter().find(|(n, _)| n.eq_ignore_ascii_case(name));
    found.map_or_else(|| panic!("{name} in {raw:?}"), |(_, value)| value)
}

fn both() -> [String; 2] {
    ["sqlite::memory:".to_owned(), fresh_database()]
}

#[test]
fn the_files_are_open_and_strict_about_what_a_page_may_do() {
    let (_server, admin, _) = console("sqlite::memory:", &[]);
    let moved = get(&admin, "/console");
    assert_eq!((moved.status, header(&moved, "location")), (308, "console/"));
    let page = get(&admin, "/console/");
    assert_eq!((page.status, header(&page, "content-type")), (200, "text/html; charset=utf-8"));
    assert_eq!(header(&page, "x-content-type-options"), "nosniff");
    assert_eq!(header(&page, "referrer-policy"), "no-referrer");
    let policy = header(&page, "content-security-policy");
    for part in ["default-src 'none'", "script-src 'self'", "frame-ancestors 'none'", "base-uri 'none'"] {
        assert!(policy.contains(part), "{policy}");
    }
    assert!(!policy.contains("unsafe"), "{policy}");
    assert!(!page.headers.iter().any(|(name, _)| name == "set-cookie"), "{page:?}");
    let known = format!("If-None-Match: {}\r\n", header(&page, "etag"));
    let same = ask(&admin, "GET", "/console/", &known);
    assert_eq!((same.status, same.body.len()), (304, 0));
    assert_eq!(ask(&admin, "HEAD", "/console/", "").status, 200);
    for path in ["/console/nothing.js", "/console/../Cargo.toml", "/console/%2e%2e/src/main.rs", "/console//"]
    {
        let raw = get(&admin, path);
        assert!([401, 404].contains(&raw.status), "{path}: {raw:?}");
    }
    refused(&ask(&admin, "POST", "/console/", "Content-Length: 0\r\n"), 405, "MethodNotAllowed");
}

#[test]
fn everything_but_the_files_needs_the_token() {
    let (server, admin, _) = console("sqlite::memory:", &[]);
    let account = &account(1).name;
    for path in ["/console/api/session", "/requests", "/history", &format!("/service/{account}/Tables")] {
        let raw = get(&admin, path);
        refused(&raw, 401, "Unauthorized");
        assert!(!header(&raw, "x-ms-request-id").is_empty());
    }
    for path in ["/explain", "/sas", "/sas/inspect"] {
        refused(&ask(&admin, "POST", path, "Content-Length: 0\r\n"), 401, "Unauthorized");
    }
    // With the token, but from a page of another site, or under another name.
    for origin in ["https://evil.example", "null", "http://127.0.0.1:1"] {
        let headers = format!("Authorization: Bearer {TOKEN}\r\nOrigin: {origin}\r\n");
        refused(&ask(&admin, "GET", &format!("/service/{account}/Tables"), &headers), 403, "Forbidden");
    }
    let session = done(&call(&admin, "GET", "/console/api/session", ""), 200);
    assert_eq!((&session["readOnly"], &session["testMode"]), (&json!(false), &json!(false)));
    assert_eq!(session["tablesEndpoint"], format!("http://{}", server.address()));
    let shown =
        json!([{ "name": account, "origin": "settings", "disabled": false, "extendedQueries": false }]);
    assert_eq!(session["accounts"], shown);
    drop(server);
    // The server has generated a token, which the console needs, unlike programs that read metrics.
    let (_server, admin) = super::server("sqlite::memory:", &[]);
    for path in ["/console/api/session", &format!("/service/{account}/Tables"), "/requests"] {
        refused(&get(&admin, path), 401, "Unauthorized");
    }
    assert_eq!(get(&admin, "/metrics").status, 200);
    refused(&call(&admin, "GET", "/metrics", ""), 401, "Unauthorized");
}

#[test]
fn a_console_that_is_off_is_not_there() {
    let (_server, admin, _) = console("sqlite::memory:", &["--console", "off"]);
    for path in ["/console", "/console/", "/requests", "/history", "/service/abc/Tables"] {
        refused(&call(&admin, "GET", path, ""), 404, "NotFound");
    }
    refused(&get(&admin, "/console/"), 401, "Unauthorized");
    assert_eq!(call(&admin, "GET", "/version", "").status, 200);
}

#[test]
fn operators_use_the_service_as_clients_do() {
    for database in both() {
        let (server, admin, client) = console(&database, &["--max-requests-per-second", "1000"]);
        let name = fresh_name();
        let at = |path: &str| format!("/service/{}/{path}", client.account.name);
        let created = json_asked(&admin, "POST", &at("Tables"), "", &json!({ "TableName": name }));
        assert_eq!(created.status, 201, "{created:?}");
        let location = header(&created, "location");
        let expected = format!("http://{}/{}/Tables('{name}')", server.address(), client.account.name);
        assert_eq!(location, expected);
        let entity = json!({ "PartitionKey": "p&'", "RowKey": "ü", "N": 1 });
        let inserted = json_asked(&admin, "POST", &at(&name), "Prefer: return-no-content\r\n", &entity);
        assert_eq!((inserted.status, header(&inserted, "preference-applied")), (204, "return-no-content"));
        let key = at(&format!("{name}(PartitionKey='p%26%27%27',RowKey='%C3%BC')"));
        let read = asked(&admin, "GET", &key, "", "");
        assert_eq!((read.status, json_of(&read)["N"].clone()), (200, json!(1)), "{read:?}");
        assert_eq!(header(&read, "cache-control"), "no-store");
        let etag = header(&read, "etag").to_owned();
        let matching = format!("If-Match: {etag}\r\n");
        assert_eq!(json_asked(&admin, "PATCH", &key, &matching, &json!({ "N": 2 })).status, 204);
        let stale = json_asked(&admin, "PUT", &key, &matching, &json!({ "N": 3 }));
        assert_eq!(stale.status, 412, "{stale:?}");
        assert!(!header(&stale, "x-ms-request-id").is_empty());
        let found = asked(&admin, "GET", &at(&format!("{name}()?$filter=N%20eq%202&$top=5")), "", "");
        assert_eq!(json_of(&found)["value"].as_array().map(Vec::len), Some(1), "{found:?}");
        // A batch, with the account in its addresses.
        let inner = format!(
            "--b\r\nContent-Type: multipart/mixed; boundary=c\r\n\r\n--c\r\nContent-Type: application/http\r\n\
             Content-Transfer-Encoding: binary\r\n\r\nPOST /{}/{name} HTTP/1.1\r\nContent-Type: application/json\r\n\r\n\
             {{\"PartitionKey\":\"b\",\"RowKey\":\"1\"}}\r\n--c--\r\n--b--\r\n",
            client.account.name
        );
        let batch = "Content-Type: multipart/mixed; boundary=b\r\n";
        let answer = asked(&admin, "POST", &at("$batch"), batch, &inner);
        let text = String::from_utf8_lossy(&answer.body).into_owned();
        assert!(answer.status == 202 && text.contains("201 Created"), "{text}");
        assert_eq!(asked(&admin, "DELETE", &key, "If-Match: *\r\n", "").status, 204);
        // Errors are the service's own.
        let missing = asked(&admin, "GET", &at("Nothing()"), "", "");
        assert_eq!(
            (missing.status, json_of(&missing)["odata.error"]["code"].clone()),
            (404, json!("TableNotFound"))
        );
        assert_eq!(asked(&admin, "GET", "/service/nobody/Tables", "", "").status, 404);
        assert_eq!(asked(&admin, "GET", &at("%zz"), "", "").status, 400);
        // Both see the same tables, and credentials of the admin listener are none of the service.
        assert_eq!(client.get(&format!("/Tables('{name}')")).status, 200);
        let stranger = client.request("GET", "/Tables").auth(Auth::Header(format!("Bearer {TOKEN}")));
        assert!([401, 403].contains(&stranger.send().status));
        let log = server.log();
        let actions =
            ["CreateTable", "InsertEntity", "MergeEntity", "EntityGroupTransaction", "DeleteEntity"];
        for action in actions {
            let parts = ["audit", action, "admin token", &name];
            assert!(
                log.lines().any(|line| parts.iter().all(|part| line.contains(part))),
                "{action} in {log}"
            );
        }
        assert!(!log.contains("QueryEntities"), "what reads is not audited: {log}");
        assert!(!log.contains(TOKEN) && !log.contains("p&'"), "{log}");
    }
}

#[test]
fn a_read_only_console_changes_nothing() {
    let (server, admin, client) = console("sqlite::memory:", &["--console", "read-only"]);
    let name = fresh_name();
    client.create_table(&name).expect(201);
    let at = |path: &str| format!("/service/{}/{path}", client.account.name);
    assert_eq!(done(&call(&admin, "GET", "/console/api/session", ""), 200)["readOnly"], true);
    let other = fresh_name();
    let key = format!("{name}(PartitionKey='p',RowKey='r')");
    let raw = json_asked(&admin, "POST", &at("Tables"), "", &json!({ "TableName": other }));
    assert_eq!(raw.status, 403, "{raw:?}");
    assert_eq!(json_of(&raw)["odata.error"]["code"], "AuthorizationPermissionMismatch");
    assert_eq!(asked(&admin, "DELETE", &at(&format!("Tables('{name}')")), "", "").status, 403);
    // Tunnelled.
    let tunnel = "X-HTTP-Method: MERGE\r\n";
    assert_eq!(json_asked(&admin, "POST", &at(&key), tunnel, &json!({})).status, 403);
    assert_eq!(asked(&admin, "GET", &at(&format!("{name}()")), "", "").status, 200);
    let grant = json!({ "account": client.account.name, "table": name, "permissions": "r", "expiry": "1h" });
    refused(&call(&admin, "POST", "/sas", &grant.to_string()), 403, "ReadOnly");
    // Accounts are changed by programs only, not from a browser.
    refused(&json_asked(&admin, "POST", "/accounts", "", &json!({ "name": "abc" })), 403, "ReadOnly");
    let log = server.log();
    let is_told = |line: &str| line.contains("audit") && line.contains("POST /accounts");
    let told = log.lines().find(|line| is_told(line)).unwrap_or_else(|| panic!("no line in {log}"));
    assert!(told.contains("status=403") && told.contains("ReadOnly"), "{told}");
    refused(&call(&admin, "POST", "/accounts", r#"{"name":"abc"}"#), 409, "NoMasterKey");
    let tables = client.get("/Tables").expect_json().to_string();
    assert!(tables.contains(&name) && !tables.contains(&other), "{tables}");
}

#[test]
fn bodies_are_limited_as_on_the_tables_port() {
    let (_server, admin, client) = console("sqlite::memory:", &[]);
    let name = fresh_name();
    client.create_table(&name).expect(201);
    let path = format!("/service/{}/{name}", client.account.name);
    let text = "x".repeat(32 * 1024);
    let mut entity = json!({ "PartitionKey": "p", "RowKey": "r" });
    for at in 0..12 {
        entity[format!("P{at}")] = json!(text);
    }
    // More than other routes take.
    assert!(entity.to_string().len() > 256 * 1024);
    assert_eq!(json_asked(&admin, "POST", &path, "", &entity).status, 201);
    refused(&call(&admin, "POST", "/explain", &"x".repeat(256 * 1024 + 1)), 413, "BodyTooLarge");
}

#[test]
fn the_last_requests_are_shown_without_secrets() {
    let (_server, admin, client) = console("sqlite::memory:", &[]);
    let name = fresh_name();
    // Before an operator looks, only requests that were refused are kept.
    client.create_table(&fresh_name()).expect(201);
    assert_eq!(done(&call(&admin, "GET", "/requests", ""), 200)["requests"], json!([]));
    client.create_table(&name).expect(201);
    client.get(&format!("/{name}(PartitionKey='p',RowKey='none')")).expect(404);
    let token = Sas::table(&name, "r").query(&client.account);
    let changed = token.replace("sp=r", "sp=ra");
    client.bearing(&changed).get(&format!("/{name}()")).expect(403);
    let shown = done(&call(&admin, "GET", "/requests", ""), 200);
    let requests = shown["requests"].as_array().expect("requests");
    let [created, missing, forged] = &requests[..] else { panic!("{shown}") };
    assert_eq!((&created["operation"], &created["table"]), (&json!("CreateTable"), &json!(name)));
    assert_eq!((&missing["status"], &missing["error"]), (&json!(404), &json!("ResourceNotFound")));
    assert_eq!((&missing["table"], &missing["account"]), (&json!(name), &json!(client.account.name)));
    assert!(missing["milliseconds"].as_f64() >= missing["storeMilliseconds"].as_f64(), "{missing}");
    assert_eq!(forged["error"], "AuthenticationFailed");
    assert!(forged["reason"].as_str().is_some_and(|why| why.contains("fits none of the keys")));
    let signature = changed.rsplit("sig=").next().expect("a signature");
    let text = shown.to_string();
    assert!(!text.contains(signature) && !text.contains(&client.account.keys[0]), "{text}");
    // Only what is new.
    let last = shown["last"].as_u64().expect("a number");
    client.get("/Tables").expect(200);
    assert_eq!(call(&admin, "GET", &format!("/service/{}/Tables", client.account.name), "").status, 200);
    let more = done(&call(&admin, "GET", &format!("/requests?after={last}"), ""), 200);
    let [by_client, by_operator] = [0, 1].map(|at: usize| &more["requests"][at]);
    assert_eq!((&by_client["operation"], &by_client["fromOperator"]), (&json!("QueryTables"), &json!(false)));
    assert_eq!((&by_operator["fromOperator"], &more["last"]), (&json!(true), &json!(last + 2)));
    // As of a server before a restart.
    let far = done(&call(&admin, "GET", "/requests?after=1000000", ""), 200);
    assert_eq!((&far["requests"], &far["last"]), (&json!([]), &json!(last + 2)));
    for query in ["after=x", "limit=0", "limit=501", "after=-1", "limit=%zz"] {
        refused(&call(&admin, "GET", &format!("/requests?{query}"), ""), 400, "BadRequest");
    }
}

#[test]
fn the_history_has_a_point_for_every_ten_seconds() {
    let (_server, admin, client) = console("sqlite::memory:", &[]);
    let name = fresh_name();
    client.create_table(&name).expect(201);
    client.get("/Nothing()").expect(404);
    let sizes = format!("/tables?account={}", client.account.name);
    assert_eq!(call(&admin, "GET", &sizes, "").status, 200);
    let shown = until_some("a point", || {
        let shown = done(&call(&admin, "GET", "/history", ""), 200);
        Some(shown).filter(|shown| shown["points"].as_array().is_some_and(|points| !points.is_empty()))
    });
    let point = &shown["points"][0];
    assert_eq!((&point["requests"], &point["errors"]["client"]), (&json!(2), &json!(1)), "{point}");
    assert!(point["p50"].as_f64() <= point["p99"].as_f64() && point["p50"].is_number(), "{point}");
    let table = &shown["tables"][0];
    assert_eq!((&table["table"], &table["points"][0]["entities"]), (&json!(name), &json!(0)), "{shown}");
}

/// Each measured, with what it reads and what the server then does.
#[test]
fn a_query_is_explained_and_measured() {
    let (_server, admin, client) = console("sqlite::memory:", &[]);
    let (account, table) = (client.account.name.as_str(), client.table());
    // More entries than a page looks up.
    let indexed = |row: usize| json!({ "N": row, "S": format!("s{row}"), "M": row });
    table.seed_many((0..4100).map(|row| with_keys("p", &format!("{row:06}"), indexed(row))));
    table.seed_many((0..10).map(|row| with_keys("q", &format!("{row:06}"), json!({ "M": row }))));
    for (property, kind) in [("N", "number"), ("S", "text")] {
        let wanted = json!({ "account": account, "table": table.name, "property": property, "kind": kind });
        done(&call(&admin, "POST", "/indexes", &wanted.to_string()), 201);
    }
    until("the indexes", || {
        let listed = done(&call(&admin, "GET", "/indexes", ""), 200);
        (0..2).all(|at: usize| listed[at]["state"] == "ready")
    });
    let explain = |more: Value| {
        let mut body = json!({ "account": account, "table": table.name, "measure": true });
        more.as_object().expect("members").iter().for_each(|(name, value)| body[name] = value.clone());
        call(&admin, "POST", "/explain", &body.to_string())
    };
    let (number, text) =
        (json!({ "property": "N", "kind": "number" }), json!({ "property": "S", "kind": "text" }));
    let (none, by_n, by_both) = (Value::Null, json!([number]), json!([number, text]));
    for (filter, access, index, passed_over, cost) in [
        ("PartitionKey eq 'q' and RowKey eq '000001'", "point", &none, &none, Some((1, 1))),
        ("PartitionKey eq 'q' and M lt 3", "partition", &none, &none, Some((10, 3))),
        ("PartitionKey gt 'p'", "range", &none, &none, Some((10, 10))),
        ("PartitionKey eq 'a' and PartitionKey eq 'b'", "nothing", &none, &none, Some((0, 0))),
        ("N eq 7 or S eq 's9'", "index", &by_both, &none, Some((4, 2))),
        ("N ge 0", "scan", &none, &by_n, None),
        ("M eq 7", "scan", &none, &none, None),
    ] {
        let before = read_by_index(&admin);
        let shown = done(&explain(json!({ "filter": filter })), 200);
        let found = (&shown["access"], &shown["index"], &shown["indexPassedOver"]);
        assert_eq!(found, (&json!(access), index, passed_over), "{filter}: {shown}");
        if let Some(cost) = cost {
            let rows = ["rowsLookedAt", "rowsReturned"].map(|name| shown["cost"][name].clone());
            assert_eq!(rows, [cost.0, cost.1], "{filter}: {shown}");
        }
        assert_eq!(read_by_index(&admin), before, "explaining is no query of a client");
        table.filter(filter).expect(200);
        assert_eq!(
            read_by_index(&admin) > before,
            access == "index",
            "the server does as it was said: {filter}"
        );
    }
    assert_eq!(done(&explain(json!({ "filter": "M eq 7" })), 200)["residual"], "M eq 7");
    let descending = "PartitionKey desc,RowKey desc";
    let newest = json!({ "filter": "PartitionKey ge 'p' and M lt 9", "orderby": descending, "top": 2 });
    let shown = done(&explain(newest), 200);
    assert!(shown["summary"].as_str().expect("words").contains("descending"), "{shown}");
    // 9 is passed over, 8 and 7 are returned.
    let cost = &shown["cost"];
    assert_eq!((&cost["rowsLookedAt"], &cost["rowsReturned"]), (&json!(3), &json!(2)), "{cost}");
    for (wrong, status, code) in [
        (json!({ "filter": "N eq" }), 400, "InvalidInput"),
        (json!({ "table": "x", "filter": "" }), 400, "OutOfRangeInput"),
        (json!({ "account": "nobody" }), 404, "AccountNotFound"),
        (json!({ "table": fresh_name() }), 404, "TableNotFound"),
        (json!({ "unknown": 1 }), 400, "BadRequest"),
        (json!({ "top": 1001 }), 400, "InvalidInput"),
        (json!({ "filter": vec!["N eq 1"; 1001].join(" or ") }), 400, "InvalidInput"),
    ] {
        refused(&explain(wrong), status, code);
    }
}
