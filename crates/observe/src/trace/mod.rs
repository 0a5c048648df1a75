//! Traces of requests, sent to a collector as OTLP/HTTP in JSON.
//!
//! A request has one span, and each wait for the database has a child span. Requests hand their
//! spans to a thread that sends them in batches. If the collector is slow or unreachable, spans are
//! dropped and counted, and requests are not delayed.

mod context;
mod export;

use std::sync::mpsc::{SyncSender, sync_channel};
use std::time::{Duration, Instant, SystemTime};

use uuid::Uuid;

use crate::metrics::METRICS;
use context::Parent;
use export::{Finished, Message, half};
pub use export::{SpanFields, Trace, TraceSettings};

/// Maximum number of requests whose traces wait to be sent.
const QUEUE: usize = 4096;
/// Maximum time to send the waiting traces at shutdown.
const FLUSH: Duration = Duration::from_secs(3);

/// Hands traces to the thread that sends them.
pub struct Tracer {
    queue: SyncSender<Message>,
    ratio: f64,
}

impl Tracer {
    /// Starts the thread that sends traces.
    pub fn start(settings: TraceSettings) -> std::io::Result<Self> {
        let (queue, waiting) = sync_channel(QUEUE);
        let ratio = settings.ratio;
        std::thread::Builder::new().name("otlp".into()).spawn(move || export::run(&settings, &waiting))?;
        Ok(Self { queue, ratio })
    }

    /// Begins the trace of a request, if it is sampled: the client's `traceparent` decides, or else
    /// the sampling ratio.
    pub fn begin(&self, traceparent: Option<&str>) -> Option<Trace> {
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
            let _ = waiting.recv_timeout(FLUSH);
        }
    }
}

/// Maps an identifier evenly to a number from 0 to 1, for sampling.
fn share_of(id: &[u8; 16]) -> f64 {
    let [a, b, c, d, ..] = *id;
    f64::from(u32::from_be_bytes([a, b, c, d])) / (f64::from(u32::MAX) + 1.0)
}
