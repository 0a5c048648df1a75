//! Replays whole sessions of the service, each into an account of its own: of .NET, of other
//! SDKs since 2014, and of the retired SDK for Go.

use super::recording::*;
use super::session::Session;
use super::{Player, assert_alike, replay};
use crate::support::server::Backend;
use crate::support::*;

const FILES: [(&str, usize); 3] =
    [("service-net.jsonl", 42), ("service-others.jsonl", 168), ("service-2018.jsonl", 117)];

const VERSION: &str = "x-ms-version is sent with every answer";
const STALE: &str = "the service had not followed its own change yet";

/// What differs of exchanges, by file and line, and why. One that no longer differs has to
/// leave the list.
const DIFFERENT: [(&str, usize, &str, &str); 5] = [
    ("service-net.jsonl", 39, "body", STALE),
    ("service-others.jsonl", 31, "x-ms-version", VERSION),
    ("service-others.jsonl", 32, "x-ms-version", VERSION),
    ("service-others.jsonl", 161, "x-ms-version", VERSION),
    ("service-others.jsonl", 162, "x-ms-version", VERSION),
];

/// The credentials of an exchange that was refused for them.
fn credentials(exchange: &Exchange) -> Option<Auth> {
    let body = exchange.request.body.as_deref().unwrap_or_default();
    if body.contains("sig=REDACTED") {
        return Some(Auth::None);
    }
    if exchange.response.status != 401 {
        return None;
    }
    Some(match exchange.speaks_of("NoAuthenticationInformation") {
        true => Auth::None,
        false => Auth::Header("Bearer e30.e30.e30".into()),
    })
}

/// Some recorders wrote down the usual reason of a status instead of the one that was sent,
/// and another tenant's challenge.
fn with_reasons_sent(exchange: &Exchange) -> Exchange {
    let mut exchange = exchange.clone();
    let reason = &mut exchange.response.reason;
    if reason.as_deref().is_some_and(|reason| matches!(reason, "Unauthorized" | "Bad Request")) {
        *reason = None;
    }
    if let Some(challenge) = exchange.response.headers.get_mut("www-authenticate") {
        *challenge = challenge.replace("00000000-0000-0000-0000-000000000000", "common");
    }
    exchange
}

/// Sets the properties that a session shows but did not set itself.
fn set_properties(client: &Client, exchange: &Exchange) {
    let shown = exchange.answer_text().trim_start_matches('\u{feff}');
    let has_rules = |name| exchange.response.headers.contains_key(name);
    let rules = match exchange.request.method.as_str() {
        "GET" if exchange.test.contains("trace_through") && shown.contains("<CorsRule>") => shown.to_owned(),
        "GET" if exchange.test.contains("setGetProperties") => return,
        "GET" if has_rules("access-control-allow-origin") => cors_rule("*"),
        "GET" if has_rules("vary") => cors_rule("http://a"),
        _ => return,
    };
    let request = client.request("PUT", "/?restype=service&comp=properties");
    request.header("Accept", "application/xml").body(rules).send().expect(202);
}

/// Makes the tables that a session did not make itself: identical exchanges were kept once.
fn make_tables(client: &Client, exchange: &Exchange) {
    let path = exchange.path().split('?').next().unwrap_or_default();
    let body = exchange.request.body.as_deref().unwrap_or_default();
    let is_service = exchange.path().contains("restype=");
    let is_there = !is_service && !exchange.answer_text().contains("TableNotFound");
    let wanted: Vec<String> = match path {
        "/" | "/Tables" if exchange.response.status != 409 => Vec::new(),
        "/Tables" => {
            let named: serde_json::Value = serde_json::from_str(body).expect("a recorded table");
            vec![named["TableName"].as_str().expect("a recorded name").to_owned()]
        }
        "/$batch" => inner_operations(body).iter().map(|operation| table_of(&operation.path)).collect(),
        _ if path.starts_with("/Tables(") => {
            let named = path.replace("%27", "'");
            let name = named.split('\'').nth(1).expect("a recorded name");
            if exchange.response.status < 400 { vec![name.to_owned()] } else { Vec::new() }
        }
        _ => vec![table_of(path)],
    };
    for table in wanted.iter().filter(|table| is_there && !table.is_empty()) {
        client.create_table(table);
    }
}

fn table_of(path: &str) -> String {
    let name = path.trim_start_matches('/');
    name.split(['(', '/', '?', '%']).next().unwrap_or_default().to_owned()
}

struct Played(Session);

impl Player for Played {
    fn new(client: Client) -> Self {
        Self(Session::new(client))
    }

    fn step(&mut self, exchange: &Exchange) -> Vec<String> {
        let session = &mut self.0;
        make_tables(&session.client, exchange);
        set_properties(&session.client, exchange);
        let ours = session.send(exchange, credentials(exchange));
        let found = session.differences(&OF_THE_SERVICE, &with_reasons_sent(exchange), &ours);
        session.learn_from(exchange, &ours);
        found
    }
}

fn the_service_is_answered_alike(backend: Backend) {
    for (file, count) in FILES {
        assert_eq!(recordings_of(file).len(), count, "an exchange of {file} is missing");
        let found = replay::<Played>(backend, file);
        let is_listed = |(line, found): &(usize, String)| {
            let mut known = DIFFERENT.iter().filter(|(of, at, ..)| (*of, at) == (file, line));
            known.any(|(_, _, part, _)| found.contains(&format!(": {part}\n")))
        };
        let (listed, others): (Vec<_>, Vec<_>) = found.into_iter().partition(is_listed);
        assert_alike(&others);
        let expected = DIFFERENT.iter().filter(|(of, ..)| *of == file).count();
        assert_eq!(listed.len(), expected, "a listed difference is none any more");
    }
}

replays!(the_service_is_answered_alike);
