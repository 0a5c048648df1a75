//! Metrics of the server, and their output.
//!
//! There is one global set, [`METRICS`]. Counting a request takes only a few additions, without locks, allocations or
//! contention, because each thread adds to its own shard and the labels are fixed. [`text::print`] adds up the shards.

pub(crate) mod cells;
pub mod database_time;
pub mod process;
pub mod requests;
pub mod scans;
pub mod text;
pub mod warning_limiter;

use std::collections::BTreeMap;
use std::sync::{Arc, Weak};

use cells::{Counter, Gauge, Histogram, metrics};
use parking_lot::Mutex;
pub use requests::Ending;
use requests::Requests;
use scans::{FilterMetrics, ScanCosts};

/// Bucket bounds for the number of requests that share a round trip.
pub(crate) const ROUNDS: [u64; 9] = [1, 2, 4, 8, 16, 32, 64, 128, 256];

/// Histogram of the number of requests per shared round trip.
pub type Rounds = Histogram<{ ROUNDS.len() }>;

/// The metrics of this process.
pub static METRICS: Metrics = Metrics::new();

metrics! {
    /// All metrics.
    pub struct Metrics {
        requests: Requests = Requests::new(),
        /// The pool of PostgreSQL connections that each serve one request at a time.
        shared_pool: PoolMetrics = PoolMetrics::new(),
        /// Shared connections, on which point reads (here) or single writes (below) share round trips.
        read_lanes: PoolMetrics = PoolMetrics::new(),
        write_lanes: PoolMetrics = PoolMetrics::new(),
        /// The connection that probes whether the database answers.
        probe_pool: PoolMetrics = PoolMetrics::new(),
        read_rounds: Rounds = Histogram::new(&ROUNDS),
        write_rounds: Rounds = Histogram::new(&ROUNDS),
        /// Writes per commit of SQLite's writer.
        sqlite_rounds: Rounds = Histogram::new(&ROUNDS),
        /// Rows that filtered pages examined.
        filters: FilterMetrics = FilterMetrics::new(),
        /// Filters that an index could narrow.
        scan_costs: ScanCosts = ScanCosts::new(),
        tls: TlsMetrics = TlsMetrics::new(),
        traces: Traces = Traces::new(),
    } {
        throttled: Counter, "rowhouse_requests_throttled",
            "Requests refused because of the limit of their account.";
        retried_alone: Counter, "rowhouse_writes_handed_back",
            "Writes whose shared statement failed, each then retried alone.";
        open_breakers: Gauge, "rowhouse_circuit_breakers_open",
            "Nodes of a cluster that do not answer, so that requests that need them are refused.";
        refused_by_breakers: Counter, "rowhouse_circuit_breaker_refusals",
            "Round trips that were not begun because a node does not answer.";
        substituted_lanes: Gauge, "rowhouse_substituted_lanes",
            "Lanes on another node of a cluster than the one that has their buckets.";
        bucket_map_read: Gauge, "rowhouse_bucket_map_timestamp_seconds",
            "When the map of buckets of a cluster was read last, in seconds since 1970; 0 without a cluster.";
        purge_backlog: Gauge, "rowhouse_purge_backlog_tables",
            "Deleted tables whose rows are not purged yet.";
        expired: Counter, "rowhouse_expired_entities",
            "Entities that this server deleted as expired.";
        expiry_tables: Gauge, "rowhouse_expiry_tables",
            "Tables whose entities expire.";
        expiry_lag: Gauge, "rowhouse_expiry_lag_seconds",
            "Time since the pass over the table that is most behind should have begun; 0 if none is.";
    }
}

metrics! {
    /// Connections to PostgreSQL.
    pub struct PoolMetrics {
        in_use: Gauge = Gauge::new(),
        idle: Gauge = Gauge::new(),
    } {
        waits: Counter, "rowhouse_postgres_connection_waits",
            "Waits for a connection.";
        timeouts: Counter, "rowhouse_postgres_connection_timeouts",
            "Waits for a connection that timed out.";
        opened: Counter, "rowhouse_postgres_connections_opened",
            "Connections opened.";
        failures: Counter, "rowhouse_postgres_connection_failures",
            "Attempts to connect that failed.";
    }
}

metrics! {
    /// Encrypted connections.
    pub struct TlsMetrics {} {
        handshakes: Counter, "rowhouse_tls_handshakes",
            "Encrypted connections.";
        failed_handshakes: Counter, "rowhouse_tls_handshake_failures",
            "Handshakes that failed.";
        reloads: Counter, "rowhouse_tls_reloads",
            "Changed certificates that were loaded.";
        failed_reloads: Counter, "rowhouse_tls_reload_failures",
            "Changed certificates that could not be loaded.";
        certificate_end: Gauge, "rowhouse_tls_certificate_expiry_timestamp_seconds",
            "When the certificate in use expires, in seconds since 1970; 0 without a certificate.";
    }
}

metrics! {
    /// Export of traces.
    pub struct Traces {} {
        sent: Counter, "rowhouse_traces_sent",
            "Traces that the collector accepted.";
        dropped: Counter, "rowhouse_traces_dropped",
            "Traces that the collector did not accept in time, or at all.";
    }
}

metrics! {
    /// All connections to one PostgreSQL server.
    #[derive(Debug)]
    pub struct NodeMetrics {} {
        connections: Gauge, "rowhouse_postgres_node_connections",
            "Connections to a server.";
        opened: Counter, "rowhouse_postgres_node_connections_opened",
            "Connections opened.";
        failures: Counter, "rowhouse_postgres_node_connection_failures",
            "Attempts to connect that failed.";
        waits: Counter, "rowhouse_postgres_node_connection_waits",
            "Waits for a connection.";
        lost: Counter, "rowhouse_postgres_node_connections_lost",
            "Connections that broke under a statement.";
        unreachable: Counter, "rowhouse_postgres_node_unreachable",
            "Statements for which a server did not reach another.";
    }
}

/// The PostgreSQL servers in the URLs of the stores and in the catalogues of their clusters. A server that is no longer
/// used is removed with its last connection. The map is locked only when a server is added and when metrics are
/// printed.
static NODES: Mutex<BTreeMap<String, Weak<NodeMetrics>>> = Mutex::new(BTreeMap::new());

/// Returns the metrics of a server: `host:port`, or the folder of its socket.
pub fn of_node(name: &str) -> Arc<NodeMetrics> {
    let mut nodes = NODES.lock();
    if let Some(known) = nodes.get(name).and_then(Weak::upgrade) {
        return known;
    }
    nodes.retain(|_, metrics| metrics.strong_count() > 0);
    let metrics = Arc::new(NodeMetrics::new());
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
