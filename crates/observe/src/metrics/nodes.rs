//! Metrics of each PostgreSQL server that a store is given or finds in the catalogue of its cluster.
//!
//! Those of a server that is left go with its last connection. They are locked only when a server is added
//! and when metrics are printed.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError, Weak};

use super::cells::{Counter, Gauge};

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

/// The metrics of a server: `host:port`, or the folder of its socket.
pub fn of_node(name: &str) -> Arc<NodeMetrics> {
    let mut nodes = NODES.lock().unwrap_or_else(PoisonError::into_inner);
    if let Some(known) = nodes.get(name).and_then(Weak::upgrade) {
        return known;
    }
    nodes.retain(|_, metrics| metrics.strong_count() > 0);
    let metrics = Arc::default();
    nodes.insert(name.to_owned(), Arc::downgrade(&metrics));
    metrics
}

/// All servers with their names, in order.
pub(super) fn all() -> Vec<(String, Arc<NodeMetrics>)> {
    let nodes = NODES.lock().unwrap_or_else(PoisonError::into_inner);
    nodes.iter().filter_map(|(name, metrics)| Some((name.clone(), metrics.upgrade()?))).collect()
}

/// Counts a connection as long as it is there.
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
