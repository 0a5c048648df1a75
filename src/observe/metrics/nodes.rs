//! Metrics of each PostgreSQL server that a store is given.
//!
//! Their number is that of the URLs in the settings. They are locked only when a store is opened and
//! when metrics are printed.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};

use super::cells::{Counter, Gauge};

static NODES: Mutex<BTreeMap<String, Arc<NodeMetrics>>> = Mutex::new(BTreeMap::new());

/// One server, by all its connections.
#[derive(Debug, Default)]
pub(crate) struct NodeMetrics {
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
pub(crate) fn of_node(name: &str) -> Arc<NodeMetrics> {
    let mut nodes = NODES.lock().unwrap_or_else(PoisonError::into_inner);
    Arc::clone(nodes.entry(name.to_owned()).or_default())
}

/// All servers with their names, in order.
pub(super) fn all() -> Vec<(String, Arc<NodeMetrics>)> {
    let nodes = NODES.lock().unwrap_or_else(PoisonError::into_inner);
    nodes.iter().map(|(name, metrics)| (name.clone(), Arc::clone(metrics))).collect()
}

/// Counts a connection as long as it is there.
pub(crate) struct CountedConnection(Arc<NodeMetrics>);

impl CountedConnection {
    pub(crate) fn new(node: &Arc<NodeMetrics>) -> Self {
        node.connections.add(1);
        Self(Arc::clone(node))
    }
}

impl Drop for CountedConnection {
    fn drop(&mut self) {
        self.0.connections.add(-1);
    }
}
