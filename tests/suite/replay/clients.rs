//! Replays what .NET clients sent to this server, session by session, each into an
//! account of its own. It guards the form in which those clients frame requests, as
//! they cannot run where the tests do.
//!
//! What is compared is what `tests/fixtures/clients-net.jsonl` is evidence for: statuses,
//! error codes, the presence of ETags, `Preference-Applied`, and the names, types and
//! values of properties. Where a recording of the service differs, the service is right.

use std::collections::BTreeMap;

use serde_json::Value;

use super::recording::*;
use super::session::{Session, far_future};
use super::{Player, assert_alike, replay};
use crate::support::batch::{Part, split};
use crate::support::server::Backend;
use crate::support::{Answer, Client};

const FILE: &str = "clients-net.jsonl";

/// Members of an answer that differ from server to server.
const OF_THE_SERVER: [&str; 5] = ["odata.metadata", "odata.etag", "odata.id", "odata.type", "Timestamp"];

/// A client of one program.
struct Replay {
    session: Session,
}

impl Player for Replay {
    fn new(client: Client) -> Self {
        Self { session: Session::new(client) }
    }

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

fn dotnet_clients_are_answered_as_before(backend: Backend) {
    assert_eq!(recordings_of(FILE).len(), 1316, "an exchange is missing");
    assert_alike(&replay::<Replay>(backend, FILE));
}

replays!(dotnet_clients_are_answered_as_before);
