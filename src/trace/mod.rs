//! Traces: what each request did and when, sent to a collector as OTLP over HTTP
//! in its JSON form.
//!
//! A request has one span, and each wait for the database one below it. Requests
//! hand their spans to a thread that sends them in batches; where the collector
//! is slow or away, spans are dropped and counted, and requests do not notice.

mod context;
mod export;

use std::sync::mpsc::{SyncSender, sync_channel};
use std::time::{Duration, Instant, SystemTime};

use uuid::Uuid;

use crate::metrics::METRICS;
use context::Parent;

/// Requests whose traces may wait to be sent.
const QUEUE: usize = 4096;
/// Time that is left at the end to send what waits.
const FLUSH: Duration = Duration::from_secs(3);

/// Where traces go.
#[derive(Clone, PartialEq)]
pub(crate) struct TraceSettings {
    /// The address of the collector; `/v1/traces` is added.
    pub endpoint: String,
    /// ValidatedProperties along, such as what the collector wants to know of us.
    pub headers: Vec<(String, String)>,
    pub service: String,
    /// Share of the requests without a trace of their own that are traced, 0 to 1.
    pub ratio: f64,
}

impl std::fmt::Debug for TraceSettings {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        // Headers may hold secrets.
        f.debug_struct("TraceSettings").field("service", &self.service).finish_non_exhaustive()
    }
}

/// Hands traces to the thread that sends them.
pub(crate) struct Tracer {
    queue: SyncSender<Message>,
    ratio: f64,
}

/// A request that is traced.
#[derive(Debug)]
pub(crate) struct Trace {
    id: [u8; 16],
    parent: Option<[u8; 8]>,
    span: [u8; 8],
    begun: Instant,
    /// The same moment on the clock on the wall.
    wall: SystemTime,
}

/// What a trace says of its request. No keys, no content, no query strings.
#[derive(Debug, Clone)]
pub(crate) struct SpanFields {
    pub operation: &'static str,
    pub method: &'static str,
    pub status: u16,
    /// Whether the server failed, be it inside the answer to a batch.
    pub failed: bool,
    /// The error code that the client saw, or nothing.
    pub error: &'static str,
    pub account: String,
    pub table: String,
    pub request_id: String,
    /// The waits for the database: when each began, and how long it took.
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

impl Tracer {
    /// Starts the thread that sends.
    ///
    /// # Errors
    /// Those of the operating system.
    pub(crate) fn start(settings: TraceSettings) -> std::io::Result<Self> {
        let (queue, waiting) = sync_channel(QUEUE);
        let ratio = settings.ratio;
        std::thread::Builder::new().name("otlp".into()).spawn(move || export::serve(&settings, &waiting))?;
        Ok(Self { queue, ratio })
    }

    /// Begins the trace of a request, if it is to be traced: as the client says
    /// in its `traceparent`, else for a share of them.
    pub(crate) fn begin(&self, traceparent: Option<&str>) -> Option<Trace> {
        let parent = traceparent.and_then(Parent::parse);
        let id = parent.as_ref().map_or_else(|| Uuid::new_v4().into_bytes(), |parent| parent.trace);
        let chosen = match &parent {
            Some(parent) => parent.is_sampled,
            None => share_of(&id) < self.ratio,
        };
        chosen.then(|| Trace {
            id,
            parent: parent.map(|parent| parent.span),
            span: half(Uuid::new_v4()),
            begun: Instant::now(),
            wall: SystemTime::now(),
        })
    }

    /// Ends the trace of a request. Never waits.
    pub(crate) fn finish(&self, trace: Trace, facts: SpanFields) {
        let duration = trace.begun.elapsed();
        let finished = Box::new(Finished { trace, duration, facts });
        if self.queue.try_send(Message::Finished(finished)).is_err() {
            METRICS.traces.dropped.one();
        }
    }

    /// Waits until what was handed over is sent, but not for long.
    pub(crate) fn flush(&self) {
        let (done, waiting) = sync_channel(1);
        if self.queue.try_send(Message::Flush(done)).is_ok() {
            let _ = waiting.recv_timeout(FLUSH);
        }
    }
}

fn half(id: Uuid) -> [u8; 8] {
    id.as_u64_pair().0.to_be_bytes()
}

/// Where an identifier is among all that there are, 0 to 1.
fn share_of(id: &[u8; 16]) -> f64 {
    let [a, b, c, d, ..] = *id;
    f64::from(u32::from_be_bytes([a, b, c, d])) / (f64::from(u32::MAX) + 1.0)
}
