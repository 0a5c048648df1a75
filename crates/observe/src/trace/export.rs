//! Sends traces to the collector in batches.

use std::sync::mpsc::{Receiver, RecvTimeoutError, SyncSender};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use serde_json::{Value, json};
use ureq::http::Response;
use ureq::tls::{RootCerts, TlsConfig};
use ureq::{Agent, Body};
use uuid::Uuid;

use super::context::hex;
use crate::metrics::METRICS;

/// Maximum bytes of an answer of the collector.
const MAX_ANSWER: u64 = 4 * 1024;

/// The settings of traces.
#[derive(Clone, PartialEq)]
pub struct TraceSettings {
    /// The address of the collector; `/v1/traces` is added.
    pub endpoint: String,
    /// Headers that are sent with each batch, such as the credentials for the collector.
    pub headers: Vec<(String, String)>,
    pub service: String,
    /// Share of the requests without a `traceparent` that are traced, 0 to 1.
    pub ratio: f64,
}

impl std::fmt::Debug for TraceSettings {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        // Headers may hold secrets.
        f.debug_struct("TraceSettings").field("service", &self.service).finish_non_exhaustive()
    }
}

/// A request that is traced.
#[derive(Debug)]
pub struct Trace {
    pub(super) id: [u8; 16],
    pub(super) parent: Option<[u8; 8]>,
    pub(super) span: [u8; 8],
    pub(super) begun: Instant,
    /// The same moment in wall-clock time.
    pub(super) wall: SystemTime,
}

/// The data of a request in its trace. No keys, no content, no query strings.
#[derive(Debug, Clone)]
pub struct SpanFields {
    pub operation: &'static str,
    pub method: &'static str,
    pub status: u16,
    /// Whether the server failed, even if only inside the answer to a batch.
    pub failed: bool,
    /// The error code that the client saw, or the empty text.
    pub error: &'static str,
    pub account: String,
    pub table: String,
    pub request_id: String,
    /// Start and duration of each wait for the database.
    pub waits: Vec<(Instant, Duration)>,
}

pub(super) struct Finished {
    pub(super) trace: Trace,
    pub(super) duration: Duration,
    pub(super) facts: SpanFields,
}

pub(super) enum Message {
    Finished(Box<Finished>),
    Flush(SyncSender<()>),
}

/// Maximum number of requests in one batch.
const BATCH: usize = 512;
/// Maximum time that a trace waits for its batch.
const PAUSE: Duration = Duration::from_secs(2);
/// Timeout for sending one batch.
const TIMEOUT: Duration = Duration::from_secs(5);
/// Kinds of spans, as OTLP numbers them.
const SERVER: u8 = 2;
const CLIENT: u8 = 3;

/// Sends batches until the [`Tracer`](super::Tracer) is dropped.
pub(crate) fn run(settings: &TraceSettings, waiting: &Receiver<Message>) {
    let tls = TlsConfig::builder().root_certs(RootCerts::PlatformVerifier).build();
    // To follow a redirect would turn the POST into a GET.
    let config = Agent::config_builder().timeout_global(Some(TIMEOUT)).max_redirects(0).tls_config(tls);
    let agent: Agent = config.build().into();
    let mut sender = Sender { settings, agent, failing: false };
    let mut batch = Vec::new();
    let mut due = None;
    loop {
        let wait = due.map_or(PAUSE, |due: Instant| due.saturating_duration_since(Instant::now()));
        let mut flush: Option<SyncSender<()>> = None;
        match waiting.recv_timeout(wait) {
            Ok(Message::Finished(finished)) => {
                due.get_or_insert_with(|| Instant::now() + PAUSE);
                batch.push(*finished);
                if batch.len() < BATCH && due.is_none_or(|due| Instant::now() < due) {
                    continue;
                }
            }
            Ok(Message::Flush(done)) => flush = Some(done),
            Err(RecvTimeoutError::Timeout) => {}
            Err(RecvTimeoutError::Disconnected) => return sender.send(std::mem::take(&mut batch)),
        }
        sender.send(std::mem::take(&mut batch));
        due = None;
        if let Some(done) = flush {
            let _ = done.send(());
        }
    }
}

struct Sender<'a> {
    settings: &'a TraceSettings,
    agent: Agent,
    /// Whether the last batch could not be sent. Only the first failure in a row is logged.
    failing: bool,
}

impl Sender<'_> {
    fn send(&mut self, batch: Vec<Finished>) {
        if batch.is_empty() {
            return;
        }
        let address = format!("{}/v1/traces", self.settings.endpoint.trim_end_matches('/'));
        let mut request = self.agent.post(&address);
        for (name, value) in &self.settings.headers {
            request = request.header(name, value);
        }
        let sent = request.send_json(document(self.settings, &batch)).map_err(|error| error.to_string());
        match sent.and_then(|mut answer| match answer.status() {
            status if status.is_success() => accepted(&mut answer),
            status => Err(format!("the answer is {status}")),
        }) {
            Ok(()) => {
                METRICS.traces.sent.add(batch.len() as u64);
                self.failing = false;
            }
            Err(error) => {
                METRICS.traces.dropped.add(batch.len() as u64);
                if !std::mem::replace(&mut self.failing, true) {
                    tracing::warn!(error, "traces cannot be sent");
                }
            }
        }
    }
}

/// Reads the answer of a collector, so that its connection can be used again.
fn accepted(answer: &mut Response<Body>) -> Result<(), String> {
    let text = answer.body_mut().with_config().limit(MAX_ANSWER).read_to_string().unwrap_or_default();
    let partial = serde_json::from_str::<Value>(&text).map(|mut read| read["partialSuccess"].take());
    let partial = partial.unwrap_or_default();
    // 64-bit numbers are texts in the JSON of OTLP.
    let refused = &partial["rejectedSpans"];
    let refused = refused.as_u64().or_else(|| refused.as_str()?.parse().ok()).unwrap_or_default();
    match refused {
        0 => Ok(()),
        // As Debug, so that it cannot forge a line of the log.
        _ => Err(format!(
            "spans were refused: {refused}, {:?}",
            partial["errorMessage"].as_str().unwrap_or("")
        )),
    }
}

fn document(settings: &TraceSettings, batch: &[Finished]) -> Value {
    let spans: Vec<Value> = batch.iter().flat_map(spans).collect();
    let resource =
        [text("service.name", &settings.service), text("service.version", env!("CARGO_PKG_VERSION"))];
    json!({ "resourceSpans": [{
        "resource": { "attributes": resource },
        "scopeSpans": [{ "scope": { "name": "rowhouse" }, "spans": spans }],
    }] })
}

fn spans(finished: &Finished) -> Vec<Value> {
    let Finished { trace, duration, facts } = finished;
    let (id, own) = (hex(&trace.id), hex(&trace.span));
    let mut attributes = vec![
        text("http.request.method", facts.method),
        json!({ "key": "http.response.status_code", "value": { "intValue": facts.status.to_string() } }),
        text("rowhouse.request_id", &facts.request_id),
    ];
    let named =
        [("error.type", facts.error), ("rowhouse.account", &facts.account), ("rowhouse.table", &facts.table)];
    attributes
        .extend(named.iter().filter(|(_, value)| !value.is_empty()).map(|(key, value)| text(key, value)));
    let mut request = json!({
        "traceId": id, "spanId": own, "name": facts.operation, "kind": SERVER,
        "startTimeUnixNano": nanos(trace.wall), "endTimeUnixNano": nanos(trace.wall + *duration),
        "attributes": attributes,
        // 2 is an error. Errors of the client are not errors of this span.
        "status": if facts.failed { json!({ "code": 2 }) } else { json!({}) },
    });
    if let Some(parent) = &trace.parent {
        request["parentSpanId"] = hex(parent).into();
    }
    let waits = facts.waits.iter().map(|(begun, took)| {
        let start = trace.wall + begun.saturating_duration_since(trace.begun);
        json!({
            "traceId": id, "spanId": hex(&half(Uuid::new_v4())), "parentSpanId": own,
            "name": "database", "kind": CLIENT,
            "startTimeUnixNano": nanos(start), "endTimeUnixNano": nanos(start + *took),
        })
    });
    std::iter::once(request).chain(waits).collect()
}

fn text(key: &str, value: &str) -> Value {
    json!({ "key": key, "value": { "stringValue": value } })
}

/// Prints nanoseconds since 1970 as a string, which OTLP requires for 64-bit numbers in JSON.
fn nanos(at: SystemTime) -> String {
    at.duration_since(UNIX_EPOCH).map_or(0, |since| since.as_nanos()).to_string()
}

pub(super) fn half(id: Uuid) -> [u8; 8] {
    id.as_u64_pair().0.to_be_bytes()
}
