//! Replays what .NET clients sent to this server, session by session, each into an
//! account of its own. It guards the form in which those clients frame requests, as
//! they cannot run where the tests do.
//!
//! What is compared is what `tests/fixtures/clients-net.jsonl` is evidence for: statuses,
//! error codes, the presence of ETags, `Preference-Applied`, and the names, types and
//! values of properties. Where a recording of the service differs, the service is right.

use std::collections::{BTreeMap, HashMap};

use serde_json::Value;

use crate::support::batch::{Part, split};
use crate::support::recording::*;
use crate::support::server::Backend;
use crate::support::*;

const SECONDARY_HOST: &str = "https://acct-secondary.table.example";
/// Members of an answer that differ from server to server.
const OF_THE_SERVER: [&str; 5] = ["odata.metadata", "odata.etag", "odata.id", "odata.type", "Timestamp"];

/// A session under way: one client of one program.
struct Session {
    client: Client,
    /// The ETags of the recording, and those that stand for them here.
    etags: HashMap<String, String>,
}

impl Session {
    fn step(&mut self, exchange: &Exchange) -> Vec<String> {
        let answer = self.send(exchange);
        let (theirs, ours) = (&exchange.response, Seen::of(&answer));
        let recorded = Seen {
            status: theirs.status,
            etag: theirs.headers.get("etag").cloned(),
            preference: theirs.headers.get("preference-applied").cloned(),
            body: with_defaults_of_now(exchange, far_future(exchange.answer_text())),
        };
        let mut differences = Vec::new();
        self.compare(&recorded, &ours, &mut differences);
        // The recording is of a server that left it out; the service sends it.
        if answer.status == 204 && answer.header("content-length") != Some("0") {
            differences.push("no Content-Length: 0".to_owned());
        }
        differences
    }

    /// The request as it was recorded, with the addresses, ETags and signatures of now.
    fn send(&self, exchange: &Exchange) -> Answer {
        let recorded = &exchange.request;
        let host = if exchange.on_secondary() { self.client.secondary() } else { self.client.same() };
        let (client, path) = signed_afresh(host, exchange.path());
        let mut request = client.request(&recorded.method, &path);
        for name in ["DataServiceVersion", "Accept"] {
            request = request.without(name);
        }
        for (name, value) in &recorded.headers {
            request = request.header(name, self.of_now(value));
        }
        if let Some(body) = &recorded.body {
            request = request.body(self.of_now(&far_future(body)));
        }
        request.send()
    }

    /// A text of the recording with the addresses and ETags of now.
    fn of_now(&self, text: &str) -> String {
        let text = text.replace(SECONDARY_HOST, &self.client.secondary().url(""));
        let text = text.replace(RECORDED_HOST, &self.client.url(""));
        self.etags.iter().fold(text, |text, (theirs, ours)| text.replace(theirs.as_str(), ours))
    }

    fn compare(&mut self, theirs: &Seen, ours: &Seen, differences: &mut Vec<String>) {
        let mut differ = |what: &str, theirs: String, ours: String| {
            if theirs != ours {
                differences.push(format!("{what}\n   recorded: {theirs}\n   ours:     {ours}"));
            }
        };
        differ("status", theirs.status.to_string(), ours.status.to_string());
        differ("ETag", theirs.etag.is_some().to_string(), ours.etag.is_some().to_string());
        differ("preference", format!("{:?}", theirs.preference), format!("{:?}", ours.preference));
        self.learn(theirs.etag.as_deref(), ours.etag.as_deref());
        if theirs.body.starts_with("--") {
            self.compare_parts(&theirs.body, &ours.body, differences);
            return;
        }
        if let (Ok(theirs), Ok(ours)) = (serde_json::from_str(&theirs.body), serde_json::from_str(&ours.body))
        {
            self.learn_from_entities(&theirs, &ours);
            differ("body", plain(&theirs).to_string(), plain(&ours).to_string());
        } else {
            differ("body", without_times(&theirs.body), without_times(&ours.body));
        }
    }

    fn compare_parts(&mut self, theirs: &str, ours: &str, differences: &mut Vec<String>) {
        let (theirs, ours) = (parts(theirs), parts(ours));
        if theirs.len() != ours.len() {
            differences.push(format!("parts\n   recorded: {}\n   ours:     {}", theirs.len(), ours.len()));
        }
        for (theirs, ours) in theirs.iter().zip(&ours) {
            self.compare(&Seen::of_part(theirs), &Seen::of_part(ours), differences);
        }
    }

    fn learn(&mut self, theirs: Option<&str>, ours: Option<&str>) {
        if let (Some(theirs), Some(ours)) = (theirs, ours) {
            self.etags.insert(theirs.to_owned(), ours.to_owned());
        }
    }

    fn learn_from_entities(&mut self, theirs: &Value, ours: &Value) {
        let etag = |entity: &Value| entity["odata.etag"].as_str().map(str::to_owned);
        self.learn(etag(theirs).as_deref(), etag(ours).as_deref());
        if let (Value::Array(theirs), Value::Array(ours)) = (&theirs["value"], &ours["value"]) {
            theirs.iter().zip(ours).for_each(|(theirs, ours)| self.learn_from_entities(theirs, ours));
        }
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

/// A client, and the path for it, that have a signature of now where one was recorded.
fn signed_afresh(client: Client, path: &str) -> (Client, String) {
    let Some((path, query)) = path.split_once('?').filter(|(_, query)| query.contains("sig=")) else {
        return (client, path.to_owned());
    };
    let is_signed = |pair: &&str| !pair.starts_with("api-version=");
    let (signed, rest): (Vec<&str>, Vec<&str>) = query.split('&').partition(is_signed);
    let fields = signed.into_iter().filter_map(|pair| pair.split_once('='));
    let bearer = Sas::from_fields(fields.filter(|(name, _)| *name != "sig")).of(&client);
    (bearer, format!("{path}?{}", rest.join("&")))
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

/// Policies of the recording have expired by now.
fn far_future(text: &str) -> String {
    text.replace("<Expiry>2026-", "<Expiry>2999-")
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
    let mut sessions: HashMap<String, Session> = HashMap::new();
    let mut differences = Vec::new();
    for exchange in recordings_of("clients-net.jsonl") {
        let session = sessions
            .entry(exchange.test.clone())
            .or_insert_with(|| Session { client: backend.client(), etags: HashMap::new() });
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
