//! What the catalogue of a Citus cluster says, as plain data, and what is decided from it.

use std::collections::BTreeMap;

/// The number of the coordinator in the catalogue.
pub(crate) const COORDINATOR: i32 = 0;

/// A Citus cluster as one of its nodes knows it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Cluster {
    /// The version of the extension.
    pub version: String,
    /// Whether this node is the coordinator, the only one through which tables are created and
    /// changed.
    pub is_coordinator: bool,
    /// The number of this node, which is that of its address in the catalogue.
    pub group: i32,
    /// The address that this node's catalogue has for itself.
    pub address: Option<String>,
    /// Active primaries, the coordinator first.
    pub nodes: Vec<ClusterNode>,
    /// Addresses that the catalogue has besides: of standbys, and of nodes that were disabled.
    pub unused: Vec<String>,
    pub tables: Vec<PlacedTable>,
    /// Key columns of `entities` of which the planner keeps statistics. There must be none: see
    /// [`Cluster::keeps_statistics`].
    pub columns_with_statistics: Vec<String>,
    /// Schemas with SQL views of tables, beside that of the tables.
    pub view_schemas: Vec<String>,
}

/// A node of a cluster.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ClusterNode {
    /// `host:port`.
    pub address: String,
    /// Its number, which that of a promoted standby takes over; 0 is the coordinator.
    pub group: i32,
    /// Whether it may hold shards of distributed tables.
    pub holds_shards: bool,
    /// What it said of itself, or why it did not answer.
    pub answer: Result<NodeFacts, String>,
}

impl ClusterNode {
    /// Its role in reports.
    pub const fn role(&self) -> &'static str {
        if self.group == COORDINATOR { "coordinator" } else { "worker" }
    }
}

/// What a node says of itself.
#[derive(Debug, Clone, PartialEq, Eq, serde::Deserialize)]
pub struct NodeFacts {
    /// Connections that clients and other nodes may open together.
    pub connections: u32,
    /// `max_worker_processes`.
    pub processes: u32,
    /// Databases that Citus may need a process for.
    pub databases: u32,
    /// `lock_timeout` of sessions of the servers' role, as a setting of that role; `None` if it
    /// has none there.
    pub lock_timeout: Option<String>,
    /// `statement_timeout`, likewise.
    pub statement_timeout: Option<String>,
    /// The addresses that the node's catalogue has, by the number of the node.
    pub addresses: BTreeMap<i32, String>,
    /// Whether it is a standby, which writes nothing.
    pub is_standby: bool,
    /// Standbys and other receivers of its log that are connected.
    pub standbys: i64,
    /// Shards of `entities` that it has.
    pub shards: i64,
    /// Bytes of these, with their indexes.
    pub bytes: i64,
    /// Entities in these, as PostgreSQL's statistics count them.
    pub entities: i64,
}

/// Processes that a node needs beyond one for each database, to move shards: the launcher of
/// logical replication, the executor of the background task, and what applies the changes.
const PROCESSES_OF_A_MOVE: u32 = 4;

impl NodeFacts {
    /// How many processes must be allowed, or moves of shards may wait for ever.
    pub const fn needed_processes(&self) -> u32 {
        self.databases.saturating_add(PROCESSES_OF_A_MOVE)
    }
}

/// A table of the schema.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PlacedTable {
    pub name: &'static str,
    pub placement: TablePlacement,
    /// Bytes of the table in this node itself. After distribution they are a copy that nothing
    /// reads.
    pub local_bytes: i64,
}

/// Where a table is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum TablePlacement {
    /// It does not exist on this node.
    Missing,
    /// On this node only.
    Local,
    /// On every node, the same.
    Reference,
    /// In shards, by the hash of a column. Tables of one group have shards of the same keys on
    /// the same nodes.
    ByHash { column: String, group: i32 },
    /// In a way that is not used here.
    Other,
}

/// Tables whose rows stand beside each other, by the hash of this column: the first, and those
/// that follow it.
pub(crate) const COLOCATED: [&str; 3] = ["entities", "buckets", "respread_changes"];
/// The column by which they are distributed.
pub(crate) const DISTRIBUTION_COLUMN: &str = "bucket";
/// Tables that each node has a copy of: they are small, and seldom written.
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

    /// Whether a distribution has begun and has not come to the entities.
    pub fn has_begun(&self) -> bool {
        !self.is_distributed() && REFERENCE.iter().any(|name| self.is_in_place(name))
    }

    /// Whether this table is where it belongs, in a cluster that entities are distributed over.
    pub(crate) fn is_in_place(&self, name: &str) -> bool {
        match (self.placement(name), self.placement(COLOCATED[0])) {
            (TablePlacement::Reference, _) => REFERENCE.contains(&name),
            (TablePlacement::ByHash { column, group }, TablePlacement::ByHash { group: first, .. }) => {
                COLOCATED.contains(&name) && column == DISTRIBUTION_COLUMN && group == first
            }
            _ => false,
        }
    }

    /// Tables that are not where they belong.
    pub fn misplaced(&self) -> Vec<&'static str> {
        let names = self.tables.iter().map(|table| table.name);
        names.filter(|name| !self.is_in_place(name)).collect()
    }

    /// Whether the planner keeps statistics of keys. Workers plan each statement anew, by its
    /// values. If statistics do not know a new bucket yet, a plan reads all of it for one entity.
    pub fn keeps_statistics(&self) -> bool {
        !self.columns_with_statistics.is_empty()
    }

    /// The nodes whose catalogue has another address in the place of this one, or none: it was removed, or
    /// replaced by a promoted standby.
    pub fn which_do_not_name_it(&self) -> Vec<&str> {
        let others = self.answers().filter(|(node, _)| self.address.as_ref() != Some(&node.address));
        let differ = others.filter(|(_, facts)| facts.addresses.get(&self.group) != self.address.as_ref());
        differ.map(|(node, _)| node.address.as_str()).collect()
    }

    /// Nodes that could be asked.
    pub fn answers(&self) -> impl Iterator<Item = (&ClusterNode, &NodeFacts)> {
        self.nodes.iter().filter_map(|node| node.answer.as_ref().ok().map(|facts| (node, facts)))
    }

    /// Nodes that did not answer.
    pub(crate) fn silent(&self) -> impl Iterator<Item = (&ClusterNode, &String)> {
        self.nodes.iter().filter_map(|node| node.answer.as_ref().err().map(|reason| (node, reason)))
    }
}

/// Clusters for tests.
#[cfg(any(test, feature = "testing"))]
pub mod fixture {
    use super::*;

    /// A coordinator with a node at each of these addresses, which holds shards. All tables are local.
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

    /// The cluster after everything was distributed.
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
