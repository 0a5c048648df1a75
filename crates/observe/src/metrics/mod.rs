//! Metrics of the server, and their output.
//!
//! There is one global set, [`METRICS`]. Counting a request costs a few uncontended additions: each
//! thread adds to a shard of its own, the sets of labels are fixed, nothing is locked or allocated.
//! [`text::print`] adds up the shards.

pub(crate) mod cells;
pub mod database_time;
pub mod process;
pub mod requests;
pub mod scans;
pub mod text;
pub mod warning_limiter;

use std::collections::BTreeMap;
use std::sync::{Arc, Weak};

use cells::{Counter, Gauge, Histogram};
use parking_lot::Mutex;
pub use requests::Ending;
use requests::Requests;
use scans::{FilterMetrics, ScanCosts};

/// Bucket bounds for the number of requests that share a round trip.
pub(crate) const ROUNDS: [u64; 9] = [1, 2, 4, 8, 16, 32, 64, 128, 256];

/// The metrics of this process.
pub static METRICS: Metrics = Metrics::new();

/// All metrics.
pub struct Metrics {
    pub requests: Requests,
    /// Requests that were refused because of the limit of their account.
    pub throttled: Counter,
    /// The pool of PostgreSQL connections that each serve one request at a time.
    pub shared_pool: PoolMetrics,
    /// Shared connections, on which point reads (here) or single writes (below) share round trips.
    pub read_lanes: PoolMetrics,
    pub write_lanes: PoolMetrics,
    /// The connection that probes whether the database answers.
    pub probe_pool: PoolMetrics,
    pub read_rounds: Rounds,
    pub write_rounds: Rounds,
    /// Writes per commit of SQLite's writer.
    pub sqlite_rounds: Rounds,
    /// Nodes of clusters that answer nobody, and what was refused because of them.
    pub open_breakers: Gauge,
    pub refused_by_breakers: Counter,
    /// Lanes that use another node than the one that has their buckets.
    pub substituted_lanes: Gauge,
    /// When the map of buckets was read last, in seconds since 1970; 0 if there is none.
    pub bucket_map_read: Gauge,
    /// Writes whose shared statement failed, so that each was retried alone.
    pub retried_alone: Counter,
    /// Deleted tables whose rows are not purged yet.
    pub purge_backlog: Gauge,
    /// Entities that were deleted because they had expired.
    pub expired: Counter,
    /// Tables whose entities expire.
    pub expiry_tables: Gauge,
    /// Seconds since the pass over the table that is most behind should have begun.
    pub expiry_lag: Gauge,
    pub tls: TlsMetrics,
    pub traces: Traces,
    /// Rows that filtered pages examined.
    pub filters: FilterMetrics,
    /// Filters that an index could narrow.
    pub scan_costs: ScanCosts,
}

/// Export of traces.
#[derive(Debug, Default)]
pub struct Traces {
    pub sent: Counter,
    /// Traces that the collector did not accept in time, or at all.
    pub dropped: Counter,
}

/// Connections to PostgreSQL.
#[derive(Debug, Default)]
pub struct PoolMetrics {
    pub in_use: Gauge,
    pub idle: Gauge,
    /// Waits for a connection, and how many of them timed out.
    pub waits: Counter,
    pub timeouts: Counter,
    pub opened: Counter,
    /// Attempts to connect that failed.
    pub failures: Counter,
}

/// Histogram of the number of requests per shared round trip.
pub type Rounds = Histogram<{ ROUNDS.len() }>;

/// Encrypted connections.
#[derive(Debug, Default)]
pub struct TlsMetrics {
    pub handshakes: Counter,
    pub failed_handshakes: Counter,
    /// Changed certificate files that were loaded, and those that could not be.
    pub reloads: Counter,
    pub failed_reloads: Counter,
    /// When the certificate in use expires, in seconds since 1970; 0 without one.
    pub certificate_end: Gauge,
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
            open_breakers: Gauge::new(),
            refused_by_breakers: Counter::new(),
            substituted_lanes: Gauge::new(),
            bucket_map_read: Gauge::new(),
            retried_alone: Counter::new(),
            purge_backlog: Gauge::new(),
            expired: Counter::new(),
            expiry_tables: Gauge::new(),
            expiry_lag: Gauge::new(),
            filters: FilterMetrics::new(),
            scan_costs: ScanCosts::new(),
            tls: TlsMetrics {
                handshakes: Counter::new(),
                failed_handshakes: Counter::new(),
                reloads: Counter::new(),
                failed_reloads: Counter::new(),
                certificate_end: Gauge::new(),
            },
            traces: Traces { sent: Counter::new(), dropped: Counter::new() },
        }
    }
}

/// The PostgreSQL servers that stores are given or find in the catalogue of their cluster. A server that is left goes
/// with its last connection. The map is locked only when a server is added and when metrics are printed.
static NODES: Mutex<BTreeMap<String, Weak<NodeMetrics>>> = Mutex::new(BTreeMap::new());

/// One server, by all its connections.
#[derive(Debug, Default)]
pub struct NodeMetrics {
    pub connections: Gauge,
    pub opened: Counter,
    /// Attempts to connect that failed.
    pub failures: Counter,
    /// Waits for a connection.
    pub waits: Counter,
    /// Connections that broke under a statement.
    pub lost: Counter,
    /// Statements that failed because this server could not reach another one.
    pub unreachable: Counter,
}

/// Returns the metrics of a server: `host:port`, or the folder of its socket.
pub fn of_node(name: &str) -> Arc<NodeMetrics> {
    let mut nodes = NODES.lock();
    if let Some(known) = nodes.get(name).and_then(Weak::upgrade) {
        return known;
    }
    nodes.retain(|_, metrics| metrics.strong_count() > 0);
    let metrics = Arc::default();
    nodes.insert(name.to_owned(), Arc::downgrade(&metrics));
    metrics
}

/// Returns all servers with their names, in order.
pub(crate) fn nodes() -> Vec<(String, Arc<NodeMetrics>)> {
    let nodes = NODES.lock();
    nodes.iter().filter_map(|(name, metrics)| Some((name.clone(), metrics.upgrade()?))).collect()
}

/// Counts a connection until it is dropped.
pub struct CountedConnection(Arc<NodeMetrics>);

impl CountedConnection {
    pub fn new(node: &Arc<NodeMetrics>) -> Self {
        node.connections.add(1);
        Self(Arc::clone(node))
    }
}

impl Drop for CountedConnection {
    fn drop(&mut self) {
        self.0.connections.add(-1);
    }
}
