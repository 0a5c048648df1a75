//! What the server counts of itself, and how that is printed.
//!
//! There is one set of counts, [`METRICS`], as there is one process. Whatever is
//! counted for every request costs a few uncontended additions: each thread adds
//! to a copy of its own, sets of labels are fixed, nothing is locked or
//! allocated. Sums are made when somebody asks for [`text::print`].

pub(crate) mod cells;
pub(crate) mod database_time;
pub(crate) mod operation;
pub(crate) mod process;
pub(crate) mod requests;
pub(crate) mod text;
pub(crate) mod warning_limiter;

use cells::{Counter, Gauge, Histogram};
pub(crate) use operation::{OperationLabel, Scheme};
pub(crate) use requests::Ending;
use requests::Requests;

/// Upper ends of the steps of requests that share a round trip.
pub(crate) const ROUNDS: [u64; 9] = [1, 2, 4, 8, 16, 32, 64, 128, 256];

/// The counts of this process.
pub(crate) static METRICS: Metrics = Metrics::new();

/// Everything that is counted.
pub(crate) struct Metrics {
    pub requests: Requests,
    /// Requests past what their account may ask for.
    pub throttled: Counter,
    /// Connections to PostgreSQL that requests take turns with.
    pub shared_pool: PoolMetrics,
    /// Those on which point reads, or single writes, share round trips.
    pub read_lanes: PoolMetrics,
    pub write_lanes: PoolMetrics,
    /// The one that asks whether the database answers.
    pub probe_pool: PoolMetrics,
    pub read_rounds: Rounds,
    pub write_rounds: Rounds,
    /// Commits of SQLite's writer.
    pub sqlite_rounds: Rounds,
    /// Writes whose shared statement failed, each then tried by itself.
    pub handed_back: Counter,
    /// Deleted tables whose rows are still to be removed.
    pub purge_backlog: Gauge,
    pub tls: TlsMetrics,
    pub traces: Traces,
}

/// Traces of requests.
#[derive(Debug, Default)]
pub(crate) struct Traces {
    pub sent: Counter,
    /// Those that the collector did not take, or not in time.
    pub dropped: Counter,
}

/// Connections to PostgreSQL.
#[derive(Debug, Default)]
pub(crate) struct PoolMetrics {
    pub in_use: Gauge,
    pub idle: Gauge,
    /// Times that somebody had to wait for one, and waited in vain.
    pub waits: Counter,
    pub timeouts: Counter,
    pub opened: Counter,
    /// Attempts to connect that failed.
    pub failures: Counter,
}

/// Requests that share round trips, for each round trip.
pub(crate) type Rounds = Histogram<{ ROUNDS.len() }>;

/// Encrypted connections.
#[derive(Debug, Default)]
pub(crate) struct TlsMetrics {
    pub handshakes: Counter,
    pub failed_handshakes: Counter,
    /// Times that changed certificate files were taken up, or could not be.
    pub reloads: Counter,
    pub failed_reloads: Counter,
}

impl PoolMetrics {
    const fn new() -> Self {
        Self {
            in_use: Gauge::new(),
            idle: Gauge::new(),
            waits: Counter::new(),
            timeouts: Counter::new(),
            opened: Counter::new(),
            failures: Counter::new(),
        }
    }
}

impl Metrics {
    const fn new() -> Self {
        Self {
            requests: Requests::new(),
            throttled: Counter::new(),
            shared_pool: PoolMetrics::new(),
            read_lanes: PoolMetrics::new(),
            write_lanes: PoolMetrics::new(),
            probe_pool: PoolMetrics::new(),
            read_rounds: Histogram::new(&ROUNDS),
            write_rounds: Histogram::new(&ROUNDS),
            sqlite_rounds: Histogram::new(&ROUNDS),
            handed_back: Counter::new(),
            purge_backlog: Gauge::new(),
            tls: TlsMetrics {
                handshakes: Counter::new(),
                failed_handshakes: Counter::new(),
                reloads: Counter::new(),
                failed_reloads: Counter::new(),
            },
            traces: Traces { sent: Counter::new(), dropped: Counter::new() },
        }
    }
}
