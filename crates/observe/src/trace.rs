//! Traces of requests, sent to a collector as OTLP/HTTP in JSON.
//!
//! A request has one span, and each wait for the database has a child span. Requests hand their
//! spans to a thread that sends them in batches. If the collector is slow or unreachable, spans are
//! dropped and counted, and requests are not delayed.

use std::sync::mpsc::{Receiver, RecvTimeoutError, SyncSender, sync_channel};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use serde_json::{Value, json};
use ureq::http::Response;
use ureq::tls::{RootCerts, TlsConfig};
use ureq::{Agent, Body};
use uuid::Uuid;

use crate::metrics::METRICS;

/// Maximum number of requests whose traces wait to be sent.
const MAX_QUEUED: usize = 4096;
/// Maximum time to send the waiting traces at shutdown.
const FLUSH_TIMEOUT: Duration = Duration::from_secs(3);
/// Maximum number of requests in one batch.
const MAX_BATCH: usize = 512;
/// Maximum time that a trace waits for its batch.
const MAX_DELAY: Duration = Duration::from_secs(2);
/// Timeout for sending one batch.
const TIMEOUT: Duration = Duration::from_secs(5);
/// Kinds of spans, as OTLP numbers them.
const SERVER: u8 = 2;
const CLIENT: u8 = 3;
/// Maximum bytes of an answer of the collector.
const MAX_ANSWER_BYTES: u64 = 4 * 1024;

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
    id: Uuid,
    parent: Option<u64>,
    span: u64,
    begun: Instant,
    /// The same moment in wall-clock time.
    wall: SystemTime,
}

/// The data of a request in its trace. It contains no keys, content or query strings.
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

struct Finished {
    trace: Trace,
    duration: Duration,
    facts: SpanFields,
}

enum Message {
    Finished(Box<Finished>),
    Flush(SyncSender<()>),
}

/// Hands traces to the thread that sends them.
pub struct Tracer {
    queue: SyncSender<Message>,
    ratio: f64,
}

impl Tracer {
    pub fn start(settings: TraceSettings) -> std::io::Result<Self> {
        let (queue, waiting) = sync_channel(MAX_QUEUED);
        let ratio = settings.ratio;
        std::thread::Builder::new().name("otlp".into()).spawn(move || run(&settings, &waiting))?;
        Ok(Self { queue, ratio })
    }

    /// Begins the trace of a request, if it is sampled: the client's `traceparent` decides, or else
    /// the sampling ratio.
    pub fn begin(&self, traceparent: Option<&str>) -> Option<Trace> {
        let parent = traceparent.and_then(Parent::parse);
        let (id, is_sampled) = match &parent {
            Some(parent) => (Uuid::from_u128(parent.trace), parent.is_sampled),
            None => {
                let id = Uuid::new_v4();
                // The first 32 bits are evenly distributed.
                (id, f64::from((id.as_u128() >> 96) as u32) / (f64::from(u32::MAX) + 1.0) < self.ratio)
            }
        };
        is_sampled.then(|| Trace {
            id,
            parent: parent.map(|parent| parent.span),
            span: new_span(),
            begun: Instant::now(),
            wall: SystemTime::now(),
        })
    }

    /// Ends the trace of a request. Never waits.
    pub fn finish(&self, trace: Trace, facts: SpanFields) {
        let duration = trace.begun.elapsed();
        let finished = Box::new(Finished { trace, duration, facts });
        if self.queue.try_send(Message::Finished(finished)).is_err() {
            METRICS.traces.dropped.one();
        }
    }

    /// Waits until all finished traces are sent, for 3 seconds at most.
    pub fn flush(&self) {
        let (done, waiting) = sync_channel(1);
        if self.queue.try_send(Message::Flush(done)).is_ok() {
            let _ = waiting.recv_timeout(FLUSH_TIMEOUT);
        }
    }
}

/// The caller's place in a trace, according to W3C Trace Context.
struct Parent {
    trace: u128,
    span: u64,
    /// Whether the caller records its own span.
    is_sampled: bool,
}

impl Parent {
    /// Parses a `traceparent` header; `None` if it is invalid and must be ignored.
    fn parse(text: &str) -> Option<Self> {
        let mut parts = text.trim().split('-');
        let mut next = |digits| parse_hex(parts.next()?, digits);
        let (version, trace, span, flags) = (next(2)?, next(32)?, next(16)?, next(2)?);
        // Version 0 has exactly these parts; later versions may add some.
        let fits = version != 0xff && (version != 0 || parts.next().is_none());
        let is_sampled = flags & 1 == 1;
        (fits && trace != 0 && span != 0).then_some(Self { trace, span: span as u64, is_sampled })
    }
}

/// Parses exactly this number of lower-case hexadecimal digits, at most 32.
fn parse_hex(text: &str, digits: usize) -> Option<u128> {
    let is_valid = text.len() == digits && text.bytes().all(|b| matches!(b, b'0'..=b'9' | b'a'..=b'f'));
    is_valid.then(|| u128::from_str_radix(text, 16).ok()).flatten()
}

fn span_id(id: u64) -> String {
    format!("{id:016x}")
}

fn new_span() -> u64 {
    Uuid::new_v4().as_u64_pair().0
}

/// Sends batches until the [`Tracer`] is dropped.
fn run(settings: &TraceSettings, waiting: &Receiver<Message>) {
    let tls = TlsConfig::builder().root_certs(RootCerts::PlatformVerifier).build();
    // Following a redirect would turn the POST into a GET.
    let config = Agent::config_builder().timeout_global(Some(TIMEOUT)).max_redirects(0).tls_config(tls);
    let agent: Agent = config.build().into();
    let mut sender = Sender { settings, agent, failing: false };
    let mut batch = Vec::new();
    let mut due = None;
    loop {
        let wait = due.map_or(MAX_DELAY, |due: Instant| due.saturating_duration_since(Instant::now()));
        let mut flush: Option<SyncSender<()>> = None;
        match waiting.recv_timeout(wait) {
            Ok(Message::Finished(finished)) => {
                due.get_or_insert_with(|| Instant::now() + MAX_DELAY);
                batch.push(*finished);
                if batch.len() < MAX_BATCH && due.is_none_or(|due| Instant::now() < due) {
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
            status if status.is_success() => check_accepted(&mut answer),
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

/// Checks that the collector accepted all spans. Reads the whole answer, so that the connection can be reused.
fn check_accepted(answer: &mut Response<Body>) -> Result<(), String> {
    let text = answer.body_mut().with_config().limit(MAX_ANSWER_BYTES).read_to_string().unwrap_or_default();
    let partial = serde_json::from_str::<Value>(&text).map(|mut read| read["partialSuccess"].take());
    let partial = partial.unwrap_or_default();
    // In the JSON of OTLP, 64-bit numbers are strings.
    let refused = &partial["rejectedSpans"];
    let refused = refused.as_u64().or_else(|| refused.as_str()?.parse().ok()).unwrap_or_default();
    match refused {
        0 => Ok(()),
        // The message is printed as `Debug`, so that it cannot forge a line of the log.
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
    let (id, own) = (trace.id.simple().to_string(), span_id(trace.span));
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
    if let Some(parent) = trace.parent {
        request["parentSpanId"] = span_id(parent).into();
    }
    let waits = facts.waits.iter().map(|(begun, took)| {
        let start = trace.wall + begun.saturating_duration_since(trace.begun);
        json!({
            "traceId": id, "spanId": span_id(new_span()), "parentSpanId": own,
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

#[cfg(test)]
mod tests {
    use super::*;

    const TRACE: &str = "0af7651916cd43dd8448eb211c80319c";
    const SPAN: &str = "b7ad6b7169203331";

    #[test]
    fn a_parent_is_read_and_anything_else_ignored() {
        let parse = |text: &str| {
            let parent = Parent::parse(text)?;
            Some((format!("{:032x}", parent.trace), span_id(parent.span), parent.is_sampled))
        };
        let expected = |sampled| Some((TRACE.to_owned(), SPAN.to_owned(), sampled));
        assert_eq!(parse(&format!("00-{TRACE}-{SPAN}-01")), expected(true));
        assert_eq!(parse(&format!("00-{TRACE}-{SPAN}-00")), expected(false));
        assert_eq!(parse(&format!("cc-{TRACE}-{SPAN}-03-more")), expected(true));
        for text in [
            String::new(),
            format!("ff-{TRACE}-{SPAN}-01"),
            format!("00-{TRACE}-{SPAN}-01-more"),
            format!("00-{TRACE}-{SPAN}"),
            format!("00-{}-{SPAN}-01", TRACE.to_uppercase()),
            format!("00-{}-{SPAN}-01", "0".repeat(32)),
            format!("00-{TRACE}-{}-01", "0".repeat(16)),
            format!("00-{TRACE}-é7ad6b716920333-01"),
        ] {
            assert_eq!(parse(&text), None, "{text}");
        }
    }
}
