//! The contents of a Citus cluster's catalogue as plain data, with rules derived from it.

use std::collections::BTreeMap;

/// The coordinator's group number in the catalogue.
pub(crate) const COORDINATOR: i32 = 0;

/// A Citus cluster, as seen by one of its nodes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Cluster {
    /// Version of the Citus extension.
    pub version: String,
    /// Whether this node is the coordinator. Tables can only be created and changed through the coordinator.
    pub is_coordinator: bool,
    /// This node's group number, which identifies its address in the catalogue.
    pub group: i32,
    /// This node's address in its own catalogue.
    pub address: Option<String>,
    /// Active primaries, the coordinator first.
    pub nodes: Vec<ClusterNode>,
    /// Other addresses in the catalogue: standbys and disabled nodes.
    pub unused: Vec<String>,
    pub tables: Vec<PlacedTable>,
    /// Key columns of `entities` for which the planner keeps statistics. The list must be empty: see
    /// [`Cluster::keeps_statistics`].
    pub columns_with_statistics: Vec<String>,
    /// Schemas, other than the tables' own, that contain SQL views of tables.
    pub view_schemas: Vec<String>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ClusterNode {
    /// `host:port`.
    pub address: String,
    /// Group number; 0 is the coordinator. A promoted standby takes over the number of its primary.
    pub group: i32,
    /// Whether the node may hold shards of distributed tables.
    pub holds_shards: bool,
    /// The node's facts, or the reason why it did not answer.
    pub answer: Result<NodeFacts, String>,
}

impl ClusterNode {
    /// The node's role in reports: `coordinator` or `worker`.
    pub const fn role(&self) -> &'static str {
        if self.group == COORDINATOR { "coordinator" } else { "worker" }
    }
}

/// Facts that a node reports about itself.
#[derive(Debug, Clone, PartialEq, Eq, serde::Deserialize)]
pub struct NodeFacts {
    /// Maximum connections of clients and other nodes together.
    pub connections: u32,
    /// `max_worker_processes`.
    pub processes: u32,
    /// Number of databases for which Citus may need a process.
    pub databases: u32,
    /// `lock_timeout` in the settings of the servers' role; `None` if not set there.
    pub lock_timeout: Option<String>,
    /// `statement_timeout` in the settings of the servers' role; `None` if not set there.
    pub statement_timeout: Option<String>,
    /// Addresses in the node's catalogue, by group number.
    pub addresses: BTreeMap<i32, String>,
    /// Whether the node is a standby, which is read-only.
    pub is_standby: bool,
    /// Number of connected standbys and other receivers of the node's write-ahead log.
    pub standbys: i64,
    /// Number of shards of `entities` on the node.
    pub shards: i64,
    /// Size of these shards in bytes, including their indexes.
    pub bytes: i64,
    /// Number of entities in these shards, as estimated by PostgreSQL's statistics.
    pub entities: i64,
}

/// Processes that a node needs to move shards, in addition to one per database: the launcher of logical replication,
/// the executor of the background task, and the workers that apply the changes.
const PROCESSES_OF_A_MOVE: u32 = 4;

impl NodeFacts {
    /// Minimum `max_worker_processes`. With fewer processes, shard moves may wait forever.
    pub const fn needed_processes(&self) -> u32 {
        self.databases.saturating_add(PROCESSES_OF_A_MOVE)
    }
}

/// A table of Rowhouse's schema.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PlacedTable {
    pub name: &'static str,
    pub placement: TablePlacement,
    /// Size in bytes of the table on this node itself. After distribution, these bytes are a copy that is never read.
    pub local_bytes: i64,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub enum TablePlacement {
    /// The table does not exist on this node.
    Missing,
    /// The table is on this node only.
    Local,
    /// Every node has a full copy.
    Reference,
    /// The table is sharded by the hash of a column. Tables of one colocation group keep shards with the same keys on
    /// the same nodes.
    ByHash { column: String, group: i32 },
    /// A placement that Rowhouse does not use.
    Other,
}

/// Tables that are colocated by the hash of [`DISTRIBUTION_COLUMN`]. The others follow `entities`.
pub(crate) const COLOCATED: [&str; 3] = ["entities", "buckets", "respread_changes"];
/// The column by which these tables are distributed.
pub(crate) const DISTRIBUTION_COLUMN: &str = "bucket";
/// Reference tables: small, seldom written tables of which every node has a copy.
pub(crate) const REFERENCE: [&str; 16] = [
    "tables",
    "doomed",
    "deleted_tables",
    "service_properties",
    "accounts",
    "account_changes",
    "account_limits",
    "account_option_changes",
    "account_queries",
    "expiry",
    "upkeep_lease",
    "copy_marks",
    "property_indexes",
    "property_index_changes",
    "respreads",
    "_sqlx_migrations",
];

impl Cluster {
    fn placement(&self, name: &str) -> &TablePlacement {
        let found = self.tables.iter().find(|table| table.name == name);
        found.map_or(&TablePlacement::Missing, |table| &table.placement)
    }

    /// Whether entities are distributed over the nodes.
    pub fn is_distributed(&self) -> bool {
        matches!(self.placement(COLOCATED[0]), TablePlacement::ByHash { .. })
    }

    /// Whether a distribution has started but has not reached the entities.
    pub fn has_begun(&self) -> bool {
        !self.is_distributed() && REFERENCE.iter().any(|name| self.is_in_place(name))
    }

    /// Whether this table has the right placement for a cluster with distributed entities.
    pub(crate) fn is_in_place(&self, name: &str) -> bool {
        match (self.placement(name), self.placement(COLOCATED[0])) {
            (TablePlacement::Reference, _) => REFERENCE.contains(&name),
            (TablePlacement::ByHash { column, group }, TablePlacement::ByHash { group: first, .. }) => {
                COLOCATED.contains(&name) && column == DISTRIBUTION_COLUMN && group == first
            }
            _ => false,
        }
    }

    /// Tables with the wrong placement.
    pub fn misplaced(&self) -> Vec<&'static str> {
        let names = self.tables.iter().map(|table| table.name);
        names.filter(|name| !self.is_in_place(name)).collect()
    }

    /// Whether the planner keeps statistics of keys. Workers plan each statement anew for its values. If the
    /// statistics do not include a new bucket, the plan reads the whole bucket for one entity.
    pub fn keeps_statistics(&self) -> bool {
        !self.columns_with_statistics.is_empty()
    }

    /// Nodes whose catalogue lacks this node's address or has a different one, because this node was removed or
    /// replaced by a promoted standby.
    pub fn which_do_not_name_it(&self) -> Vec<&str> {
        let others = self.answers().filter(|(node, _)| self.address.as_ref() != Some(&node.address));
        let differ = others.filter(|(_, facts)| facts.addresses.get(&self.group) != self.address.as_ref());
        differ.map(|(node, _)| node.address.as_str()).collect()
    }

    /// Nodes that answered, with their facts.
    pub fn answers(&self) -> impl Iterator<Item = (&ClusterNode, &NodeFacts)> {
        self.nodes.iter().filter_map(|node| node.answer.as_ref().ok().map(|facts| (node, facts)))
    }

    /// Nodes that did not answer, with the reason.
    pub(crate) fn silent(&self) -> impl Iterator<Item = (&ClusterNode, &String)> {
        self.nodes.iter().filter_map(|node| node.answer.as_ref().err().map(|reason| (node, reason)))
    }
}

#[cfg(any(test, feature = "testing"))]
pub mod fixture {
    use super::*;

    /// A cluster whose first node, at the first address, is the coordinator. All nodes hold shards, and all tables are
    /// local.
    pub fn cluster(addresses: &[&str]) -> Cluster {
        let facts = NodeFacts {
            connections: 97,
            processes: 8,
            databases: 2,
            lock_timeout: None,
            statement_timeout: None,
            addresses: (1..).zip(addresses).map(|(group, address)| (group, (*address).to_owned())).collect(),
            is_standby: false,
            standbys: 0,
            shards: 0,
            bytes: 0,
            entities: 0,
        };
        let node = |(group, address): (i32, &&str)| ClusterNode {
            address: (*address).to_owned(),
            group,
            holds_shards: true,
            answer: Ok(facts.clone()),
        };
        let local =
            |name: &&'static str| PlacedTable { name, placement: TablePlacement::Local, local_bytes: 0 };
        Cluster {
            version: "13.2-1".into(),
            is_coordinator: true,
            group: 1,
            address: addresses.first().map(|address| (*address).to_owned()),
            nodes: (1..).zip(addresses).map(node).collect(),
            unused: Vec::new(),
            tables: REFERENCE.iter().chain(&COLOCATED).map(local).collect(),
            columns_with_statistics: vec!["bucket".into()],
            view_schemas: Vec::new(),
        }
    }

    /// The cluster after a complete distribution.
    pub fn placed(mut cluster: Cluster) -> Cluster {
        for table in &mut cluster.tables {
            table.placement = match COLOCATED.contains(&table.name) {
                true => TablePlacement::ByHash { column: DISTRIBUTION_COLUMN.into(), group: 1 },
                false => TablePlacement::Reference,
            };
        }
        cluster.columns_with_statistics.clear();
        for facts in cluster.nodes.iter_mut().filter_map(|node| node.answer.as_mut().ok()) {
            facts.lock_timeout = Some("10000ms".into());
        }
        cluster
    }

    pub fn table<'c>(cluster: &'c mut Cluster, name: &str) -> &'c mut PlacedTable {
        cluster.tables.iter_mut().find(|table| table.name == name).expect("a table")
    }
}
