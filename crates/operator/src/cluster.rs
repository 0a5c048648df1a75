//! The nodes of a Citus cluster, as the admin listener prints them.

use schemars::JsonSchema;
use serde::Serialize;

use crate::store::contract::cluster::{Cluster, ClusterNode};

/// The nodes of a cluster, each asked now.
#[derive(Debug, Serialize, JsonSchema)]
#[schemars(rename = "Cluster")]
pub struct ClusterReport {
    /// The version of the extension.
    citus: String,
    /// Active primaries, the coordinator first.
    nodes: Vec<NodeReport>,
    /// Standbys, and nodes that were disabled.
    unused: Vec<String>,
    /// How this server uses the nodes.
    server: ClusterUse,
}

#[derive(Debug, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
#[schemars(inline)]
struct NodeReport {
    address: String,
    /// The number of the node; 0 is the coordinator.
    group: i32,
    role: &'static str,
    /// Whether the node may hold shards.
    holds_shards: bool,
    answers: bool,
    /// Why the node did not answer.
    #[serde(skip_serializing_if = "Option::is_none")]
    reason: Option<String>,
    #[serde(flatten)]
    facts: Option<NodeState>,
}

/// Facts about a node that answers.
#[derive(Debug, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
#[schemars(inline)]
struct NodeState {
    /// Whether the node refuses writes.
    in_recovery: bool,
    standbys: i64,
    shards: i64,
    bytes: i64,
    /// By the statistics of PostgreSQL.
    entities_about: i64,
}

/// How a server uses the nodes of a cluster.
#[derive(Debug, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
#[schemars(inline)]
pub struct ClusterUse {
    /// Nodes that do not answer: the server refuses requests that need their buckets.
    pub silent_nodes: i64,
    /// Lanes on a node other than the one that has their buckets.
    pub substituted_lanes: i64,
    /// When the server last read which node has which buckets.
    pub bucket_map_read: Option<String>,
}

impl ClusterReport {
    pub fn new(cluster: &Cluster, server: ClusterUse) -> Self {
        Self {
            citus: cluster.version.clone(),
            nodes: cluster.nodes.iter().map(NodeReport::new).collect(),
            unused: cluster.unused.clone(),
            server,
        }
    }
}

impl NodeReport {
    fn new(node: &ClusterNode) -> Self {
        Self {
            address: node.address.clone(),
            group: node.group,
            role: node.role(),
            holds_shards: node.holds_shards,
            answers: node.answer.is_ok(),
            reason: node.answer.as_ref().err().cloned(),
            facts: node.answer.as_ref().ok().map(|facts| NodeState {
                in_recovery: facts.is_standby,
                standbys: facts.standbys,
                shards: facts.shards,
                bytes: facts.bytes,
                entities_about: facts.entities,
            }),
        }
    }
}
