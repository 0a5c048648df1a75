//! Traces, as a collector receives them.

use std::sync::{Arc, Mutex};

use serde_json::{Value, json};

use crate::support::postgres::{execute, fresh_database};
use crate::support::scripted::{answer, scripted};
use crate::support::server::Process;
use crate::support::*;

const TRACE: &str = "0af7651916cd43dd8448eb211c80319c";
const PARENT: &str = "b7ad6b7169203331";

/// A collector, as far as taking traces is concerned.
struct Collector {
    address: String,
    /// Heads and bodies of what came.
    came: Arc<Mutex<Vec<(String, Value)>>>,
}

impl Collector {
    fn start() -> Self {
        Self::answering("{}")
    }

    fn answering(body_of_answer: &'static str) -> Self {
        let came: Arc<Mutex<Vec<(String, Value)>>> = Arc::default();
        let kept = Arc::clone(&came);
        let address = scripted(move |request| {
            let text = String::from_utf8_lossy(request);
            let (head, body) = text.split_once("\r\n\r\n").expect("a body");
            let sent = (head.to_lowercase(), serde_json::from_str(body).expect("JSON"));
            kept.lock().expect("the list").push(sent);
            Some(answer("200 OK", body_of_answer))
        });
        Self { address: format!("http://{address}"), came }
    }

    /// All spans that came.
    fn spans(&self) -> Vec<Value> {
        let came = self.came.lock().expect("the list");
        let lists = came.iter().map(|(_, body)| &body["resourceSpans"][0]["scopeSpans"][0]["spans"]);
        lists.flat_map(|spans| spans.as_array().expect("spans").clone()).collect()
    }
}

fn server(more: &[&str]) -> Process {
    Process::serve("sqlite::memory:", more)
}

fn ends(server: &Process) {
    server.signal("TERM");
    server.ends_well();
}

fn attribute<'a>(span: &'a Value, key: &str) -> &'a Value {
    let all = span["attributes"].as_array().expect("attributes");
    all.iter().find(|pair| pair["key"] == key).map_or(&Value::Null, |pair| &pair["value"])
}

#[test]
fn each_request_is_a_span_with_its_waits_below_it() {
    let collector = Collector::start();
    let more = ["--otlp-endpoint", &collector.address, "--otlp-headers", "api-key=some%20secret"];
    let server = server(&more);
    let client = server.client();
    let t = client.table();
    t.insert(&with_keys("secretPartition", "secretRow", json!({ "P": "secretContent" }))).expect(201);
    let traceparent = format!("00-{TRACE}-{PARENT}-01");
    let read = client.request("GET", &t.path("secretPartition", "none")).header("traceparent", traceparent);
    let read = read.send().expect(404);
    // What is on its way is sent before the end.
    ends(&server);
    let (head, body) = collector.came.lock().expect("the list")[0].clone();
    assert!(head.starts_with("post /v1/traces ") && head.contains("api-key: some secret"), "{head}");
    let service = &body["resourceSpans"][0]["resource"]["attributes"][0];
    assert_eq!(service, &json!({ "key": "service.name", "value": { "stringValue": "rowhouse" } }));
    let spans = collector.spans();
    let span = spans.iter().find(|span| span["name"] == "GetEntity").expect("the read");
    assert_eq!((&span["traceId"], &span["parentSpanId"]), (&json!(TRACE), &json!(PARENT)));
    assert_eq!(attribute(span, "http.response.status_code")["intValue"], "404");
    assert_eq!(attribute(span, "error.type")["stringValue"], "ResourceNotFound");
    assert_eq!(attribute(span, "rowhouse.table")["stringValue"], t.name);
    assert_eq!(attribute(span, "rowhouse.request_id")["stringValue"], read.need("x-ms-request-id"));
    let wait = spans.iter().find(|wait| wait["parentSpanId"] == span["spanId"]).expect("a wait");
    assert_eq!((&wait["name"], &wait["traceId"]), (&json!("database"), &json!(TRACE)));
    let time = |span: &Value, key: &str| -> u128 {
        span[key].as_str().and_then(|text| text.parse().ok()).expect("nanoseconds")
    };
    assert!(time(span, "startTimeUnixNano") <= time(wait, "startTimeUnixNano"));
    assert!(time(wait, "endTimeUnixNano") <= time(span, "endTimeUnixNano"));
    let insert = spans.iter().find(|span| span["name"] == "InsertEntity").expect("the insert");
    assert_eq!(insert["parentSpanId"], Value::Null);
    assert_ne!(insert["traceId"], span["traceId"]);
    assert!(!body.to_string().contains("secret"), "{body}");
    assert!(!server.log().contains("secret"), "{}", server.log());
}

#[test]
fn the_span_of_a_group_that_fails_inside_has_failed() {
    let collector = Collector::start();
    let url = fresh_database();
    let server = Process::serve(&url, &["--otlp-endpoint", &collector.address]);
    let client = server.client();
    let t = client.table();
    t.seed_one(json!({ "A": 1 }));
    execute(&url, "UPDATE entities SET properties = '[]'");
    let merge = Batch::new().write("MERGE", &t, ("p", "r"), &json!({ "B": 1 }), Some("*"));
    merge.send(&client).refused(0, INTERNAL);
    ends(&server);
    let spans = collector.spans();
    let span = spans.iter().find(|span| span["name"] == "EntityGroupTransaction").expect("the group");
    assert_eq!(span["status"], json!({ "code": 2 }));
    assert_eq!(attribute(span, "http.response.status_code")["intValue"], "202", "as it was sent");
    assert_eq!(attribute(span, "error.type")["stringValue"], "InternalError");
    assert_eq!(attribute(span, "rowhouse.table")["stringValue"], t.name);
}

#[test]
fn the_client_says_whether_a_request_is_traced_else_the_ratio_does() {
    let collector = Collector::start();
    let server = server(&["--otlp-endpoint", &collector.address, "--trace-ratio", "0"]);
    let client = server.client();
    client.get("/Tables").expect(200);
    for flags in ["00", "01"] {
        let traceparent = format!("00-{TRACE}-{PARENT}-{flags}");
        client.request("GET", "/Tables").header("traceparent", traceparent).send().expect(200);
    }
    ends(&server);
    let requests = collector.spans().iter().filter(|span| span["name"] == "QueryTables").count();
    assert_eq!(requests, 1, "only the one that the client records");
}

#[test]
fn a_collector_that_is_away_costs_a_warning() {
    let server = server(&["--otlp-endpoint", "http://127.0.0.1:1"]);
    let client = server.client();
    for _ in 0..3 {
        client.table();
    }
    ends(&server);
    assert_eq!(server.log().matches("traces cannot be sent").count(), 1, "{}", server.log());
}

#[test]
fn what_the_collector_refuses_with_a_success_is_told() {
    let refusal = r#"{"partialSuccess":{"rejectedSpans":"2","errorMessage":"too\nmuch"}}"#;
    let collector = Collector::answering(refusal);
    let server = server(&["--otlp-endpoint", &collector.address]);
    let client = server.client();
    client.get("/Tables").expect(200);
    ends(&server);
    let log = server.log();
    let told = log.lines().find(|line| line.contains("traces cannot be sent"));
    let told = told.unwrap_or_else(|| panic!("no line in {log}"));
    assert!(told.contains("spans were refused: 2") && told.contains("much"), "{told}");
}
