//! Replays what .NET clients sent to this server, session by session, each into an
//! account of its own. It guards the form in which those clients frame requests, as
//! they cannot run where the tests do.
//!
//! What is compared is what `tests/fixtures/clients-net.jsonl` is evidence for: statuses,
//! error codes, the presence of ETags, `Preference-Applied`, and the names, types and
//! values of properties. Where a recording of the service differs, the service is right.

use std::collections::{BTreeMap, HashMap};

use serde_json::Value;

use crate::support::Answer;
use crate::support::batch::{Part, split};
use crate::support::recording::*;
use crate::support::server::Backend;
use crate::support::session::{Session, far_future};

/// Members of an answer that differ from server to server.
const OF_THE_SERVER: [&str; 5] = ["odata.metadata", "odata.etag", "odata.id", "odata.type", "Timestamp"];

/// A client of one program, and what differed.
struct Replay {
    session: Session,
}

impl Replay {
    fn step(&mut self, exchange: &Exchange) -> Vec<String> {
        let answer = self.session.send(exchange, None);
        let (theirs, ours) = (&exchange.response, Seen::of(&answer));
        let recorded = Seen {
            status: theirs.status,
            etag: theirs.headers.get("etag").cloned(),
            preference: theirs
                .headers
                .get("preference-applied")
                .filter(|_| !is_out_of_range(exchange))
                .cloned(),
            body: with_defaults_of_now(exchange, far_future(exchange.answer_text())),
        };
        let mut differences = Vec::new();
        compare(&recorded, &ours, &mut differences);
        self.session.learn(recorded.etag.as_deref(), ours.etag.as_deref());
        self.session.learn_from_bodies(&recorded.body, &ours.body);
        // The recording is of a server that left it out; the service sends it.
        if answer.status == 204 && answer.header("content-length") != Some("0") {
            differences.push("no Content-Length: 0".to_owned());
        }
        differences
    }
}

fn compare(theirs: &Seen, ours: &Seen, differences: &mut Vec<String>) {
    let mut differ = |what: &str, theirs: String, ours: String| {
        if theirs != ours {
            differences.push(format!("{what}\n   recorded: {theirs}\n   ours:     {ours}"));
        }
    };
    differ("status", theirs.status.to_string(), ours.status.to_string());
    differ("ETag", theirs.etag.is_some().to_string(), ours.etag.is_some().to_string());
    differ("preference", format!("{:?}", theirs.preference), format!("{:?}", ours.preference));
    if theirs.body.starts_with("--") {
        compare_parts(&theirs.body, &ours.body, differences);
        return;
    }
    if let (Ok(theirs), Ok(ours)) = (serde_json::from_str(&theirs.body), serde_json::from_str(&ours.body)) {
        differ("body", plain(&theirs).to_string(), plain(&ours).to_string());
    } else {
        differ("body", without_times(&theirs.body), without_times(&ours.body));
    }
}

fn compare_parts(theirs: &str, ours: &str, differences: &mut Vec<String>) {
    let (theirs, ours) = (parts(theirs), parts(ours));
    if theirs.len() != ours.len() {
        differences.push(format!("parts\n   recorded: {}\n   ours:     {}", theirs.len(), ours.len()));
    }
    for (theirs, ours) in theirs.iter().zip(&ours) {
        compare(&Seen::of_part(theirs), &Seen::of_part(ours), differences);
    }
}

/// What is compared of an answer, or of a part of one.
struct Seen {
    status: u16,
    etag: Option<String>,
    preference: Option<String>,
    body: String,
}

impl Seen {
    fn of(answer: &Answer) -> Self {
        let header = |name| answer.header(name).map(str::to_owned);
        let (etag, preference) = (header("etag"), header("preference-applied"));
        Self { status: answer.status, etag, preference, body: answer.text().to_owned() }
    }

    fn of_part(part: &Part) -> Self {
        let header = |name| part.headers.iter().find(|(n, _)| n == name).map(|(_, value)| value.clone());
        let (etag, preference) = (header("ETag"), header("Preference-Applied"));
        Self { status: part.status, etag, preference, body: part.body.clone() }
    }
}

/// Whether a key in a body was refused. The recordings are of a server that still confirmed a preference
/// there, which the service does not.
fn is_out_of_range(exchange: &Exchange) -> bool {
    exchange.response.status == 400 && exchange.answer_text().contains("\"OutOfRangeInput\"")
}

/// What an account shows that nobody set: the recordings are of a server that did not have
/// the service's defaults yet.
const DEFAULT_HOURS: [&str; 2] = [
    "<HourMetrics><Version>1.0</Version><Enabled>false</Enabled><RetentionPolicy><Enabled>false</Enabled>\
     </RetentionPolicy></HourMetrics>",
    "<HourMetrics><Version>1.0</Version><Enabled>true</Enabled><IncludeAPIs>true</IncludeAPIs>\
     <RetentionPolicy><Enabled>true</Enabled><Days>7</Days></RetentionPolicy></HourMetrics>",
];
/// The exchanges that show it.
const SHOW_DEFAULTS: [(&str, usize); 2] = [("net.tables", 161), ("net.cosmos", 87)];

fn with_defaults_of_now(exchange: &Exchange, body: String) -> String {
    if !SHOW_DEFAULTS.contains(&(exchange.test.as_str(), exchange.n)) {
        return body;
    }
    let [before, now] = DEFAULT_HOURS;
    assert!(body.contains(before), "{} {} does not show defaults", exchange.test, exchange.n);
    body.replace(before, now)
}

fn without_times(xml: &str) -> String {
    let (open, close) = ("<LastSyncTime>", "</LastSyncTime>");
    match (xml.find(open), xml.find(close)) {
        (Some(from), Some(to)) => format!("{}{}", &xml[..from], &xml[to..]),
        _ => xml.to_owned(),
    }
}

/// Names and values without what is different every time; of an error its code.
fn plain(json: &Value) -> Value {
    if let Some(code) = json.pointer("/odata.error/code") {
        return code.clone();
    }
    let Value::Object(members) = json else { return json.clone() };
    let kept = members.iter().filter(|(name, _)| !OF_THE_SERVER.contains(&name.as_str()));
    let kept = kept.map(|(name, value)| match value {
        Value::Array(entities) => (name.clone(), entities.iter().map(plain).collect()),
        value => (name.clone(), value.clone()),
    });
    // In the order of their names.
    let sorted: BTreeMap<String, Value> = kept.collect();
    sorted.into_iter().collect()
}

fn parts(body: &str) -> Vec<Part> {
    let boundary = body.strip_prefix("--").and_then(|text| text.split("\r\n").next()).unwrap_or_default();
    split(body, boundary).map(|(_, parts)| parts).unwrap_or_default()
}

fn replay_all(backend: Backend) {
    let mut sessions: HashMap<String, Replay> = HashMap::new();
    let mut differences = Vec::new();
    for exchange in recordings_of("clients-net.jsonl") {
        let session = sessions
            .entry(exchange.test.clone())
            .or_insert_with(|| Replay { session: Session::new(backend.client()) });
        for difference in session.step(&exchange) {
            let Exchange { test, n, request, .. } = &exchange;
            differences.push(format!("{test} {n}: {} {}: {difference}", request.method, exchange.path()));
        }
    }
    assert_eq!(sessions.len(), 103, "a session is missing");
    assert!(differences.is_empty(), "{} differences\n{}", differences.len(), differences.join("\n"));
}

#[test]
fn dotnet_clients_are_answered_as_before_on_sqlite() {
    replay_all(Backend::Sqlite);
}

#[test]
fn dotnet_clients_are_answered_as_before_on_postgres() {
    replay_all(Backend::Postgres);
}

#[test]
fn dotnet_clients_are_answered_as_before_on_partitions() {
    replay_all(Backend::Partitioned);
}
