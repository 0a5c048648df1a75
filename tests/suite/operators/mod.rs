//! What operators ask of a running server, and what they read in its log.

pub mod accounts;
mod audit;
mod console;
mod console_sas;
mod crowd;
mod deleted;
mod extended_queries;
mod indexes;
mod ordered_queries;
mod quiet;
mod throttle;

use std::collections::HashSet;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::Output;
use std::time::{Duration, Instant};

use serde_json::{Value, json};

use crate::commands::{failed, printed};
use crate::process::run;
use crate::support::http::{Raw, Wire, read_answer};
use crate::support::postgres::{execute, fresh_database, server_url};
use crate::support::server::{Process, account, fresh_folder};
use crate::support::*;

pub const TOKEN: &str = "a-token-that-only-operators-know";

/// A server with an admin listener, and that listener's address.
pub fn server(database: &str, more: &[&str]) -> (Process, Wire) {
    let process = Process::serve(database, &[&["--admin-listen", "127.0.0.1:0"], more].concat());
    let admin = admin_of(&process);
    (process, admin)
}

/// Where a server answers operators.
pub fn admin_of(server: &Process) -> Wire {
    let log = server.log();
    let (_, rest) = log.split_once("operators are answered at http://").expect("the address is logged");
    Wire::new(rest.lines().next().expect("a line").trim())
}

pub fn ask(admin: &Wire, verb: &str, path: &str, headers: &str) -> Raw {
    let host = admin.address();
    admin.exchange(verb, format!("{verb} {path} HTTP/1.1\r\nHost: {host}\r\n{headers}\r\n").as_bytes())
}

/// Asks for a page.
pub fn get(admin: &Wire, path: &str) -> Raw {
    ask(admin, "GET", path, "")
}

/// Asks as an operator who has the token.
pub fn call(admin: &Wire, verb: &str, path: &str, body: &str) -> Raw {
    let headers = format!("Authorization: Bearer {TOKEN}\r\nContent-Length: {}\r\n", body.len());
    let head = format!("{verb} {path} HTTP/1.1\r\nHost: {}\r\n{headers}\r\n", admin.address());
    admin.exchange(verb, format!("{head}{body}").as_bytes())
}

/// Demands an answer with this status, and returns its JSON.
#[track_caller]
pub fn done(raw: &Raw, status: u16) -> Value {
    assert_eq!(raw.status, status, "{}", String::from_utf8_lossy(&raw.body));
    json_of(raw)
}

pub fn json_of(raw: &Raw) -> Value {
    serde_json::from_slice(&raw.body).unwrap_or_else(|e| panic!("{e}: {raw:?}"))
}

#[track_caller]
pub fn refused(raw: &Raw, status: u16, code: &str) {
    assert_eq!(raw.status, status, "{raw:?}");
    let body = json_of(raw);
    assert_eq!(body["error"]["code"], code);
    assert!(body["error"]["message"].as_str().is_some_and(|text| !text.is_empty()), "{body}");
}

/// Demands a line of the audit of an action that ended with such a status.
#[track_caller]
pub fn audits(server: &Process, action: &str, status: &str, subject: &str) {
    let (log, status) = (server.log(), format!("status={status}"));
    let subject = format!("subject=\"{subject}\"").to_lowercase();
    let is_it = |line: &str| line.contains("audit") && line.contains(action) && line.contains(&status);
    let found = log.lines().find(|line| is_it(line)).unwrap_or_else(|| panic!("{action}: {log}"));
    assert!(found.to_lowercase().contains(&subject), "{found}");
}

/// The page of metrics.
pub fn metrics(admin: &Wire) -> String {
    let raw = get(admin, "/metrics");
    assert_eq!(raw.status, 200);
    String::from_utf8(raw.body).expect("text")
}

/// The value of a sample, given up to its value.
pub fn sample(metrics: &str, name: &str) -> f64 {
    let line = metrics.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(' '));
    line.unwrap_or_else(|| panic!("{name} in\n{metrics}")).parse().expect("a number")
}

/// A sample that an operator with the token is shown.
pub fn metric(admin: &Wire, name: &str) -> f64 {
    sample(&String::from_utf8_lossy(&call(admin, "GET", "/metrics", "").body), name)
}

/// Rows and entries that clients' queries have read by an index.
pub fn read_by_index(admin: &Wire) -> f64 {
    metric(admin, "rowhouse_filter_rows_examined_total{by=\"index\"}")
}

/// Asks until the probe answers with this status.
#[track_caller]
pub fn turns(admin: &Wire, status: u16) -> Raw {
    until_some(&format!("readiness {status}"), || {
        Some(get(admin, "/readyz")).filter(|raw| raw.status == status)
    })
}

#[test]
fn what_there_is_is_answered_and_what_there_is_not_is_refused() {
    let (_server, admin) = server("sqlite::memory:", &[]);
    assert_eq!(json_of(&get(&admin, "/livez")), json!({ "status": "live" }));
    assert_eq!(json_of(&get(&admin, "/readyz")), json!({ "status": "ready" }));
    assert_eq!(ask(&admin, "HEAD", "/readyz", "").status, 200);
    let version = json_of(&get(&admin, "/version"));
    assert_eq!(version["version"], env!("CARGO_PKG_VERSION"));
    assert_eq!(version["database"], "sqlite");
    refused(&get(&admin, "/nothing"), 404, "NotFound");
    let wrong = ask(&admin, "DELETE", "/metrics", "");
    refused(&wrong, 405, "MethodNotAllowed");
    assert!(wrong.headers.contains(&("Allow".into(), "GET".into())), "{wrong:?}");
    let foreign = "GET /metrics HTTP/1.1\r\nHost: rebound.example\r\n\r\n";
    refused(&admin.exchange("GET", foreign.as_bytes()), 403, "Forbidden");
    refused(&ask(&admin, "GET", "/metrics", "Origin: https://evil.example\r\n"), 403, "Forbidden");
    let (plain, open) = ("text/plain; version=0.0.4", "application/openmetrics-text; version=1.0.0");
    let prometheus =
        "application/openmetrics-text;version=1.0.0;q=0.5,text/plain;version=0.0.4;q=0.2,*/*;q=0.1";
    for (accept, expected) in [("", plain), ("text/plain", plain), (prometheus, open)] {
        let raw = ask(&admin, "GET", "/metrics", &format!("Accept: {accept}\r\n"));
        assert_eq!(raw.header("content-type"), Some(&*format!("{expected}; charset=utf-8")), "{accept}");
        assert_eq!(raw.body.ends_with(b"# EOF\n"), expected == open, "{accept}");
    }
    let document = json_of(&get(&admin, "/openapi.json"));
    let paths = document["paths"].as_object().expect("paths");
    for path in paths.iter().filter(|(_, methods)| methods["get"].is_object()).map(|(path, _)| path) {
        let raw = get(&admin, path);
        let described = &document["paths"][path]["get"]["responses"][raw.status.to_string()];
        assert!(described.is_object(), "{path}: {}", raw.status);
    }
}

#[test]
fn a_token_opens_everything_but_the_probes() {
    let folder = fresh_folder();
    let file = folder.join("token");
    std::fs::write(&file, format!("{TOKEN}\n")).expect("the folder is writable");
    let file = file.to_str().expect("a path");
    for setting in [["--admin-token", TOKEN], ["--admin-token-file", file]] {
        let (server, admin) = server("sqlite::memory:", &setting);
        for path in ["/metrics", "/version", "/openapi.json", "/tables", "/accounts", "/nothing"] {
            refused(&get(&admin, path), 401, "Unauthorized");
        }
        for path in ["/livez", "/readyz"] {
            assert_eq!(get(&admin, path).status, 200);
            refused(&ask(&admin, "POST", path, "Content-Length: 0\r\n"), 405, "MethodNotAllowed");
        }
        refused(&ask(&admin, "POST", "/metrics", "Content-Length: 0\r\n"), 401, "Unauthorized");
        let shown = |token: &str| {
            ask(&admin, "GET", "/version", &format!("Authorization: Bearer {token}\r\n")).status
        };
        assert_eq!((shown(TOKEN), shown("a-token-that-only-operators-knew")), (200, 401));
        assert!(!server.log().contains(TOKEN));
    }
    std::fs::remove_dir_all(folder).expect("the folder can go");
}

#[test]
fn requests_are_counted_by_operation_status_and_error() {
    for database in ["sqlite::memory:".to_owned(), fresh_database()] {
        let (server, admin) = server(&database, &[]);
        let client = server.client();
        let t = client.table();
        t.insert(&with_keys("p", "a", json!({ "A": 1 }))).expect(201);
        t.insert(&with_keys("p", "b", json!({ "A": 1 }))).expect(201);
        t.insert(&with_keys("p", "a", json!({}))).expect(409);
        t.get("p", "a").expect(200);
        t.get("p", "c").expect(404);
        assert_eq!(t.query("").expect_json()["value"].as_array().map(Vec::len), Some(2));
        Batch::new().insert(&t, &with_keys("p", "a", json!({}))).send(&client);
        client.request("GET", "/Tables").auth(Auth::Header("SharedKey acct0001:AAAA".into())).send();
        client.bearing("sv=2019-02-02&ss=t&srt=sco&sp=r&se=2999-01-01&sig=AAAA").get("/Tables");
        let text = metrics(&admin);
        let count = |labels: &str| sample(&text, &format!("rowhouse_requests_total{{{labels}}}"));
        for (labels, expected) in [
            ("operation=\"CreateTable\",status=\"201\",error=\"\"", 1.0),
            ("operation=\"InsertEntity\",status=\"201\",error=\"\"", 2.0),
            ("operation=\"InsertEntity\",status=\"409\",error=\"EntityAlreadyExists\"", 1.0),
            ("operation=\"GetEntity\",status=\"404\",error=\"ResourceNotFound\"", 1.0),
            ("operation=\"QueryEntities\",status=\"200\",error=\"\"", 1.0),
            ("operation=\"EntityGroupTransaction\",status=\"409\",error=\"EntityAlreadyExists\"", 1.0),
            ("operation=\"Unknown\",status=\"403\",error=\"AuthenticationFailed\"", 2.0),
        ] {
            assert_eq!(count(labels), expected, "{labels}");
        }
        for (name, expected) in [
            ("rowhouse_requests_in_flight", 0.0),
            ("rowhouse_pages_returned_total", 1.0),
            ("rowhouse_entities_returned_total", 3.0),
            ("rowhouse_request_duration_seconds_count{operation=\"InsertEntity\"}", 3.0),
        ] {
            assert_eq!(sample(&text, name), expected, "{name}");
        }
        for scheme in ["shared_key", "sas"] {
            let labels = format!("scheme=\"{scheme}\",status=\"403\",error=\"AuthenticationFailed\"");
            assert_eq!(sample(&text, &format!("rowhouse_authentication_failures_total{{{labels}}}")), 1.0);
        }
        for positive in [
            "rowhouse_received_bytes_total",
            "rowhouse_sent_bytes_total",
            "rowhouse_request_database_seconds_total{operation=\"InsertEntity\"}",
        ] {
            assert!(sample(&text, positive) > 0.0, "{positive}");
        }
        let kinds: &[&str] =
            if database.starts_with("sqlite") { &["sqlite_write"] } else { &["read", "write"] };
        for kind in kinds {
            assert!(sample(&text, &format!("rowhouse_round_requests_count{{kind=\"{kind}\"}}")) >= 2.0);
        }
        if !database.starts_with("sqlite") {
            assert!(sample(&text, "rowhouse_postgres_connections{pool=\"write\",state=\"idle\"}") >= 1.0);
            // But for what works in the background.
            let in_use = "rowhouse_postgres_connections{pool=\"shared\",state=\"in_use\"}";
            until("nothing is in use", || sample(&metrics(&admin), in_use) == 0.0);
        }
    }
}

/// Ends all sessions of a database, and allows no more until the returned function is called.
fn cut_off(url: &str) -> impl Fn() {
    let name = url.split('?').next().and_then(|url| url.rsplit('/').next()).expect("a name").to_owned();
    execute(server_url(), &format!("ALTER DATABASE {name} ALLOW_CONNECTIONS false"));
    let cut = format!("SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE datname = '{name}'");
    execute(server_url(), &cut);
    move || execute(server_url(), &format!("ALTER DATABASE {name} ALLOW_CONNECTIONS true"))
}

#[test]
fn the_server_is_not_ready_while_its_database_is_away() {
    let url = fresh_database();
    let (server, admin) = server(&url, &[]);
    turns(&admin, 200);
    assert_eq!(printed(&health(&server, &admin))["status"], 200);
    let allow_again = cut_off(&url);
    refused(&turns(&admin, 503), 503, "DatabaseUnavailable");
    failed(&health(&server, &admin), &[admin.address(), "not ready", "503"]);
    assert_eq!(get(&admin, "/livez").status, 200, "the process is well");
    allow_again();
    turns(&admin, 200);
    assert_eq!(printed(&health(&server, &admin))["status"], 200);
}

/// What the health check says, where the server answers clients and operators.
fn health(server: &Process, admin: &Wire) -> Output {
    let variables = [("ROWHOUSE_LISTEN", server.address()), ("ROWHOUSE_ADMIN_LISTEN", admin.address())];
    run(&fresh_folder(), &["healthcheck", "--json", "--timeout", "60"], &variables)
}

#[test]
fn the_health_check_needs_no_port_of_clients_where_operators_are_answered() {
    let (server, admin) = server("sqlite::memory:", &[]);
    // As in a container whose server was given another port by a flag.
    let elsewhere = [("ROWHOUSE_LISTEN", "127.0.0.1:1"), ("ROWHOUSE_ADMIN_LISTEN", admin.address())];
    let folder = fresh_folder();
    let ask = ["healthcheck", "--json", "--timeout", "60"];
    let healthy = printed(&run(&folder, &ask, &elsewhere));
    assert_eq!(healthy["address"], format!("http://{}", admin.address()));
    // Where nobody answers operators, clients' port has to do.
    for nobody in ["127.0.0.1:1", "127.0.0.1:0", ""] {
        let variables = [("ROWHOUSE_LISTEN", server.address()), ("ROWHOUSE_ADMIN_LISTEN", nobody)];
        let healthy = printed(&run(&folder, &ask, &variables));
        assert_eq!(healthy["address"], format!("http://{}", server.address()), "{nobody}");
    }
    let nonsense = run(&folder, &["healthcheck", "--admin-listen", "nonsense"], &[]);
    failed(&nonsense, &["--admin-listen nonsense"]);
}

#[test]
fn the_server_is_not_ready_while_it_stops() {
    let (server, admin) = server("sqlite::memory:", &[]);
    let client = server.client();
    let t = client.table();
    let (mut stream, tail) = t.half_inserted(&with_keys("p", "r", json!({ "A": 1 })));
    let in_flight = || sample(&metrics(&admin), "rowhouse_requests_in_flight");
    until("it is in flight", || in_flight() == 1.0);
    server.signal("TERM");
    refused(&turns(&admin, 503), 503, "Stopping");
    stream.write_all(&tail).expect("the server still listens to this request");
    assert_eq!(read_answer(&mut stream, "POST").expect("an answer").0.status, 201);
    drop(stream);
    server.ends_well();
}

#[test]
fn tables_are_measured_up_to_a_bound() {
    let (server, admin) = server("sqlite::memory:", &[]);
    let client = server.client();
    for name in ["Bbb", "Aaa", "Ccc"] {
        client.create_table(name).expect(201);
    }
    let t = Table::new(&client, "Bbb");
    for row in ["a", "b"] {
        t.insert(&with_keys("p", row, json!({ "A": "x".repeat(100) }))).expect(201);
    }
    let found = json_of(&get(&admin, "/tables?account=acct0001"));
    assert_eq!([0, 1, 2].map(|at: usize| found["tables"][at]["name"].clone()), ["Aaa", "Bbb", "Ccc"]);
    let measured = &found["tables"][1];
    assert_eq!((&measured["entities"], &measured["complete"]), (&json!(2), &json!(true)));
    assert!((200..600).contains(&measured["bytes"].as_u64().expect("a number")), "{measured}");
    assert_eq!(found["tables"][0]["entities"], 0);
    assert!(found["method"].as_str().is_some_and(|method| method.contains("10000")), "{found}");
    assert_eq!(found["next"], Value::Null);
    let first = json_of(&get(&admin, "/tables?account=acct0001&limit=2"));
    assert_eq!(first["next"], "Ccc");
    let rest = json_of(&get(&admin, "/tables?account=acct0001&from=Ccc"));
    assert_eq!(rest["tables"][0]["name"], "Ccc");
    for wrong in ["", "?account=acct0001&limit=0", "?account=%zz", "?account=acct0001&from=%00"] {
        refused(&get(&admin, &format!("/tables{wrong}")), 400, "BadRequest");
    }
    refused(&get(&admin, "/indexes?account=acct0001&table=%00"), 400, "BadRequest");
    refused(&get(&admin, "/tables/%00"), 404, "NotFound");
    refused(&get(&admin, "/tables?account=nobody"), 404, "AccountNotFound");
}

#[test]
fn logs_name_requests_but_never_secrets_or_content() {
    for (database, format) in [("sqlite::memory:".to_owned(), "json"), (fresh_database(), "text")] {
        let more = ["--log", "debug", "--log-format", format, "--slow-request-ms", "3600000"];
        let (server, _admin) = server(&database, &more);
        let client = server.client();
        let t = client.table();
        t.insert(&with_keys("secretPartition", "secretRow", json!({ "P": "secretContent" }))).expect(201);
        let sas = Sas::table(&t.name, "ra");
        let signature = sas.signature(&client.account);
        let bearer = Table::new(&client, t.name.clone());
        sas.of(&client).get(&bearer.path("secretPartition", "secretRow")).expect(200);
        sas.of(&client).get(&format!("/{}()?$filter=P%20eq%20'secretContent'", t.name)).expect(200);
        let wrong = sas.query_signed("secretSignature");
        client.bearing(&wrong).get(&bearer.path("secretPartition", "secretRow")).expect(403);
        t.insert(&with_keys("secretPartition", "secretRow", json!({ "P": "secretContent" }))).expect(409);
        let token = Auth::Header("Bearer secretToken".into());
        client.request("GET", "/Tables").auth(token).unchecked().send();
        let log = server.log();
        assert!(log.contains("InsertEntity") && log.contains(&t.name) && log.contains("acct0001"), "{log}");
        assert!(log.contains("EntityAlreadyExists") && log.contains("database_micros"), "{log}");
        let keys = client.account.keys.clone();
        let secrets =
            ["secret", "sig=", "SharedKey ", signature.as_str(), keys[0].as_str(), keys[1].as_str()];
        for secret in secrets {
            let line = log.lines().find(|line| line.contains(secret));
            assert_eq!(line, None, "{secret}");
        }
        if format == "json" {
            let lines: Vec<Value> =
                log.lines().map(|line| serde_json::from_str(line).expect("JSON on each line")).collect();
            let line =
                lines.iter().find(|line| line["fields"]["operation"] == "InsertEntity").expect("a line");
            let fields = &line["fields"];
            assert_eq!((&fields["status"], &fields["table"]), (&json!(201), &json!(t.name)));
            assert!(fields["request_id"].as_str().is_some_and(|id| id.len() == 36), "{fields}");
            assert!(fields["micros"].as_u64() >= fields["database_micros"].as_u64(), "{fields}");
        }
    }
}

#[test]
fn slow_and_failed_requests_are_warnings() {
    let url = fresh_database();
    let (server, admin) = server(&url, &["--slow-request-ms", "1"]);
    let client = server.client();
    // Creating a table waits for a commit.
    for _ in 0..20 {
        client.table();
    }
    let t = client.table();
    t.seed_one(json!({ "A": 1 }));
    execute(&url, "UPDATE entities SET properties = '[]'");
    t.get("p", "r").refused(INTERNAL);
    let log = server.log();
    let line = |words: [&str; 3]| log.lines().any(|l| words.iter().all(|word| l.contains(word)));
    assert!(line(["WARN", "slow request", "CreateTable"]), "{log}");
    assert!(line(["WARN", "request failed", "InternalError"]), "{log}");
    assert!(!log.contains("operation=\"GetEntity\" table=\"\""), "the table is named: {log}");
    assert!(sample(&metrics(&admin), "rowhouse_requests_slow_total") >= 1.0);
}

/// The names under which Prometheus keeps what is exported; or under which people
/// speak of it, who leave out the parts of a histogram.
fn exported(metrics: &str, for_people: bool) -> HashSet<String> {
    let mut names = HashSet::new();
    for line in metrics.lines().filter_map(|line| line.strip_prefix("# TYPE ")) {
        let (name, kind) = line.split_once(' ').expect("a name and a kind");
        let ends: &[&str] = match kind {
            "histogram" if !for_people => &["_bucket", "_sum", "_count"],
            _ => &[""],
        };
        names.extend(ends.iter().map(|end| format!("{name}{end}")));
    }
    names
}

/// Words that can only be names of metrics.
fn named(text: &str) -> HashSet<String> {
    let words = text.split(|c: char| !c.is_ascii_alphanumeric() && c != '_');
    let ours = words.filter(|word| word.starts_with("rowhouse_") || word.starts_with("process_"));
    ours.map(str::to_owned).collect()
}

#[test]
fn alerts_dashboard_and_manual_name_what_is_exported() {
    let (_server, admin) = server("sqlite::memory:", &[]);
    let metrics = metrics(&admin);
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let files =
        ["deploy/prometheus/rowhouse.rules.yml", "deploy/grafana/rowhouse.json", "docs/how-to/observe.md"];
    for file in files {
        let text = std::fs::read_to_string(root.join(file)).expect("the file is there");
        let (named, exported) = (named(&text), exported(&metrics, file.ends_with(".md")));
        assert!(named.len() > 5, "{file}: {named:?}");
        let unknown: Vec<_> = named.difference(&exported).collect();
        assert!(unknown.is_empty(), "{file}: {unknown:?}");
        if file.ends_with(".json") {
            let document: Value = serde_json::from_str(&text).expect("JSON");
            assert!(document["panels"].as_array().is_some_and(|panels| !panels.is_empty()));
        }
    }
    let manual = named(&std::fs::read_to_string(root.join("docs/how-to/observe.md")).expect("the manual"));
    let exported = exported(&metrics, true);
    let forgotten: Vec<_> = exported.difference(&manual).collect();
    assert!(forgotten.is_empty(), "the manual does not explain {forgotten:?}");
}

/// A program of Prometheus: installed, or where `.ci/run` puts it.
fn promtool() -> Option<PathBuf> {
    let built = Path::new(env!("CARGO_BIN_EXE_rowhouse")).ancestors().nth(2)?.join("promtool");
    let path = std::env::var_os("PATH").unwrap_or_default();
    let installed = std::env::split_paths(&path).map(|folder| folder.join("promtool"));
    installed.chain([built]).find(|program| program.is_file())
}

#[test]
fn prometheus_finds_nothing_wrong_with_metrics_and_alerts() {
    let Some(promtool) = promtool() else {
        return eprintln!("promtool is not installed: metrics are not checked");
    };
    let (_server, admin) = server("sqlite::memory:", &[]);
    let page = fresh_folder().join("metrics");
    std::fs::write(&page, metrics(&admin)).expect("a file");
    let rules = Path::new(env!("CARGO_MANIFEST_DIR")).join("deploy/prometheus/rowhouse.rules.yml");
    for (arguments, input) in
        [(vec!["metrics"], page), (vec!["rules", rules.to_str().expect("text")], "/dev/null".into())]
    {
        let input = std::fs::File::open(input).expect("the input");
        let mut check = std::process::Command::new(&promtool);
        let found = check.arg("check").args(&arguments).stdin(input).output().expect("promtool runs");
        let said = String::from_utf8_lossy(&found.stderr);
        assert!(found.status.success() && said.is_empty(), "{arguments:?}: {said}");
    }
}

/// Several databases may be in one Prometheus, and a server has 0 for what it has not measured yet.
#[test]
fn no_other_database_and_no_new_server_hides_what_an_alert_is_about() {
    let file = Path::new(env!("CARGO_MANIFEST_DIR")).join("deploy/prometheus/rowhouse.rules.yml");
    let text = std::fs::read_to_string(file).expect("the file is there");
    let alerts: Vec<_> = text.split("- alert: ").skip(1).collect();
    assert!(alerts.len() > 5, "{text}");
    for alert in alerts {
        for whole in ["sum(", "min(", "max(", "avg(", "count(", "min by"] {
            assert!(!alert.contains(whole), "{whole} in {alert}");
        }
    }
}
