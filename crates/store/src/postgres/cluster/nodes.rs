//! The nodes of a database, and the choice of a node for each statement.
//!
//! Most databases are one server. Citus distributes the entities over several servers, each of which answers every
//! statement; the owner of a bucket answers statements for that bucket fastest. A statement therefore goes to the
//! bucket's owner if the owner is reachable, and otherwise to the first reachable node. A hung node must not occupy
//! all connections of another node. Statements routed to it through another node use at most half of the other node's
//! connections.
//!
//! The URLs of the settings are seeds. The cluster's catalogue determines the nodes and is read again every few
//! seconds. A node with a URL is reached by that URL; other nodes are reached by their catalogue address. Failed reads
//! and unreachable addresses change nothing. A node forwards statements for the servers whose address in its catalogue
//! copy is correct.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use futures_util::future::join_all;

use crate::Fault;
use crate::observe::metrics::METRICS;
use crate::postgres::cluster::catalogue::{Catalogue, ClusterView, NodeRow, Way, believed, ways_to_members};
use crate::postgres::cluster::node::Node;
use crate::postgres::cluster::owners::{BucketOwner, Owners};
use crate::postgres::cluster::owners::{ServerNumber, ShardMap};
use crate::postgres::cluster::topology::{Topology, UsedNodes};
use crate::postgres::cluster::topology::{new_topology, watched_owner};
use crate::postgres::connections::breaker::Breaker;
use crate::postgres::connections::connector::Connector;
use crate::postgres::connections::lease::Lease;
use crate::postgres::connections::options::{PgOptions, StartError};
use crate::postgres::connections::placement::Placement;
use crate::postgres::connections::search_path::SearchPath;
use crate::postgres::connections::sessions::LockWait;
use crate::postgres::fault::StatementError;

/// Interval between reads of the bucket map and the catalogue.
const REFRESH: Duration = Duration::from_secs(5);
/// Interval between reads of the catalogue while a bucket owner does not answer, because a standby may replace the
/// owner.
const PROMPT: Duration = Duration::from_secs(1);
/// Lanes per thread and kind, divided among the bucket owners.
const LANES_IN_ALL: usize = 8;
/// Statements for one other server may use this fraction (1 / `PART`) of a server's connections.
const PART: usize = 2;
/// Maximum number of nodes that are reached by catalogue address. Other nodes forward statements for the rest.
const MAX_NAMED: usize = 256;

pub(crate) struct Nodes {
    /// Nodes from the settings.
    seeds: Vec<Arc<Node>>,
    /// Nodes from the catalogue without a URL, in use or not. The lock's holder refreshes them.
    named: tokio::sync::Mutex<Vec<Arc<Node>>>,
    topology: Arc<Topology>,
    /// Maximum number of statements for one server that are routed through other nodes.
    max_routed: usize,
    options: PgOptions,
    path: SearchPath,
    is_read_only: bool,
}

/// Identifies a lane. Requests of one lane share a connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct LaneKey {
    /// The owner of the buckets; `None` if the database is a single server or the owner is unknown.
    server: Option<ServerNumber>,
    slot: u8,
}

impl LaneKey {
    /// The server that owns the lane's buckets.
    pub(crate) const fn server(self) -> Option<ServerNumber> {
        self.server
    }
}

impl Nodes {
    /// Creates the nodes of the servers in the settings.
    pub(crate) fn new(
        options: &PgOptions,
        path: &SearchPath,
        is_read_only: bool,
    ) -> Result<Arc<Self>, StartError> {
        let connections = options.max_connections as usize;
        let seed = |url: &str| -> Result<Arc<Node>, StartError> {
            let connector = connector(options, path, url, is_read_only)?;
            Ok(Arc::new(Node::listed(connector, connections)))
        };
        let seeds = options.urls().into_iter().map(seed).collect::<Result<Vec<_>, _>>()?;
        let nodes = Arc::new(Self {
            topology: new_topology(UsedNodes(seeds.clone()), options.acquire_timeout),
            seeds,
            named: tokio::sync::Mutex::default(),
            max_routed: (connections / PART).max(1),
            options: options.clone(),
            path: path.clone(),
            is_read_only,
        });
        nodes.follow();
        Ok(nodes)
    }

    pub(crate) const fn options(&self) -> &PgOptions {
        &self.options
    }

    /// The connector of the first listed server.
    pub(crate) fn first(&self) -> &Arc<Connector> {
        self.seeds[0].connector()
    }

    /// Whether the entities are distributed, according to the last read of the catalogue.
    pub(crate) fn is_distributed(&self) -> bool {
        self.topology.is_any_used(|node| node.connector().placement().get() == Placement::Distributed)
    }

    /// Whether the database allows more connections, according to the last attempt.
    pub(crate) fn may_open(&self) -> bool {
        self.topology.is_any_used(|node| node.pool.may_open())
    }

    /// Leases a connection to any server, with the given lock timeout; `None` keeps the session's current one.
    pub(crate) async fn acquire_for(&self, wait: Option<LockWait>) -> Result<Lease, StatementError> {
        self.acquire_of(None, wait).await
    }

    /// Same as [`Nodes::acquire_for`], with the long lock timeout.
    pub(crate) async fn acquire(&self) -> Result<Lease, StatementError> {
        self.acquire_for(Some(LockWait::Long)).await
    }

    /// Same as [`Nodes::acquire`], for writes to reference tables, which need all nodes.
    ///
    /// # Errors
    /// Those of [`Nodes::acquire_for`], and [`Fault::Unavailable`] while a bucket owner does not answer.
    pub(crate) async fn acquire_for_all_nodes(&self) -> Result<Lease, StatementError> {
        if !self.is_distributed() {
            return self.acquire().await;
        }
        Lease::guarded(&self.topology.breaker_of_all, self.acquire()).await
    }

    /// Leases a connection for statements on one bucket: to the bucket's owner, if the owner is reachable.
    ///
    /// # Errors
    /// Those of [`Nodes::acquire_for`], [`Fault::Busy`] if too many statements for the owner are routed through other
    /// nodes, and [`Fault::Unavailable`] if the owner does not answer.
    pub(crate) async fn acquire_at(
        &self,
        bucket: i64,
        wait: Option<LockWait>,
    ) -> Result<Lease, StatementError> {
        if !self.is_distributed() {
            return self.acquire_for(wait).await;
        }
        let owner = self.topology.owners.load().of_bucket(bucket).map(Arc::clone);
        let Some(owner) = owner else { return self.acquire_for(wait).await };
        Lease::guarded(&owner.breaker, self.acquire_of_owner(&owner, wait)).await
    }

    async fn acquire_of_owner(
        &self,
        owner: &BucketOwner,
        wait: Option<LockWait>,
    ) -> Result<Lease, StatementError> {
        if self.topology.used.load().owner(owner.number).is_some() {
            return self.acquire_of(Some(owner.number), wait).await;
        }
        let permit = owner.routing_permit(self.options.acquire_timeout).await?;
        let mut lease = self.acquire_of(Some(owner.number), wait).await?;
        lease.permit = Some(permit);
        Ok(lease)
    }

    pub(crate) fn lane_of(&self, bucket: i64) -> LaneKey {
        if !self.is_distributed() {
            return LaneKey { server: None, slot: 0 };
        }
        let owners = self.topology.owners.load();
        let slots = (LANES_IN_ALL / owners.len().max(1)).max(1) as u64;
        // The share is in the low bits, below the random table number.
        let mixed = bucket as u64 ^ (bucket as u64 >> 16);
        LaneKey { server: owners.server_of(bucket), slot: (mixed % slots) as u8 }
    }

    /// Returns the node that a lane should use now, and whether that node is a substitute for the owner.
    pub(crate) fn node_of(&self, lane: LaneKey) -> (Arc<Node>, bool) {
        let used = self.topology.used.load();
        let node = used.in_order(lane.server).next().unwrap_or(&used.0[0]);
        (Arc::clone(node), lane.server.is_some() && node.number() != lane.server)
    }

    /// Returns the breaker of the lane's bucket owner, if the owner is known.
    pub(crate) fn breaker_of(&self, lane: LaneKey) -> Option<Arc<Breaker>> {
        let owners = self.topology.owners.load();
        owners.get(lane.server?).map(|owner| Arc::clone(&owner.breaker))
    }

    /// Whether a lane that uses another server should switch because its bucket owner is reachable.
    pub(crate) fn is_owner_back(&self, lane: LaneKey, used_by_lane: &Arc<Node>) -> bool {
        let used = self.topology.used.load();
        let owner = lane.server.and_then(|server| used.owner(server));
        owner.is_some_and(|owner| !Arc::ptr_eq(owner, used_by_lane))
    }

    async fn acquire_of(
        &self,
        server: Option<ServerNumber>,
        wait: Option<LockWait>,
    ) -> Result<Lease, StatementError> {
        let used = self.topology.used.load_full();
        let mut last = StatementError::Fault(Fault::Unavailable);
        let all = used.in_order(server).chain(used.0.iter().find(|node| node.serves(server)));
        for (tried, node) in all.enumerate() {
            match node.pool.acquire_for(wait).await {
                Err(error) if node.is_away() && tried < used.0.len() => last = error,
                acquired => return acquired,
            }
        }
        Err(last)
    }

    /// On a Citus database, starts a task that refreshes the bucket map and the nodes periodically, until the store is
    /// dropped.
    fn follow(self: &Arc<Self>) {
        let nodes = Arc::downgrade(self);
        let Ok(runtime) = tokio::runtime::Handle::try_current() else { return };
        runtime.spawn(async move {
            loop {
                let Some(nodes) = nodes.upgrade() else { return };
                let may_be_distributed = |node: &Node| node.connector().placement().may_be_distributed();
                let is_known = nodes.topology.is_any_used(may_be_distributed);
                // Requests report faults; this task only logs them.
                if is_known && let Err(error) = nodes.refresh().await {
                    tracing::debug!(?error, "the map of buckets was not read");
                }
                let pause = if nodes.topology.breaker_of_all.is_open() { PROMPT } else { REFRESH };
                drop(nodes);
                tokio::time::sleep(pause).await;
            }
        });
    }

    /// Reads the placement, the bucket map and the nodes again.
    pub(crate) async fn refresh(&self) -> Result<(), StatementError> {
        let read = self.read_map().await;
        if self.is_distributed() {
            self.follow_catalogue().await;
        }
        read
    }

    async fn read_map(&self) -> Result<(), StatementError> {
        let mut lease = self.acquire().await?;
        lease.refresh_placement().await?;
        if self.is_distributed() {
            let map = ShardMap::read(&mut lease).await?;
            let new =
                |number| watched_owner(&self.topology, number, self.max_routed, self.options.acquire_timeout);
            METRICS.bucket_map_read.set(chrono::Utc::now().timestamp());
            self.topology.owners.rcu(|known| Owners::of_map(map.clone(), known, new));
            self.topology.update_breaker_of_all();
        }
        Ok(())
    }

    /// Reads every node's view of the cluster concurrently, and updates the nodes. A hung node delays no other node.
    async fn follow_catalogue(&self) {
        let mut named = self.named.lock().await;
        let mut nodes: Vec<Arc<Node>> = self.seeds.iter().chain(named.iter()).cloned().collect();
        let mut views = ask(&nodes).await;
        let last_views: Vec<_> = nodes.iter().map(|node| node.last_view()).collect();
        let Some(catalogue) = believed(&last_views) else { return };
        let new = self.without_way(catalogue, &nodes, &views);
        views.extend(ask(&new).await);
        nodes.extend(new);
        let members = self.members(catalogue, &nodes, &views);
        if members.is_empty() {
            return;
        }
        let set_roles = |of_members: bool| {
            let all = nodes.iter().enumerate();
            for (at, node) in all.filter(|(at, _)| members.contains_key(at) == of_members) {
                node.set_role(members.get(&at).copied(), catalogue, views[at].is_some());
            }
        };
        // This order keeps statements from reaching a wrong address or a node that is no longer used.
        set_roles(true);
        let used = members.keys().map(|at| Arc::clone(&nodes[*at])).collect();
        self.topology.used.store(Arc::new(UsedNodes(used)));
        set_roles(false);
        let missing = self.ways(&missing(catalogue, &members));
        let is_wanted = |(at, node): &(usize, Arc<Node>)| {
            members.contains_key(at) || missing.contains_key(&node.connector().name())
        };
        let named_now = nodes.into_iter().enumerate().skip(self.seeds.len()).filter(is_wanted);
        *named = named_now.map(|(_, node)| node).collect();
    }

    /// Creates nodes for catalogue servers that no current node reaches, or will reach when it answers.
    fn without_way(
        &self,
        catalogue: &Catalogue,
        nodes: &[Arc<Node>],
        views: &[Option<ClusterView>],
    ) -> Vec<Arc<Node>> {
        // A read-only store uses standbys, and catalogue addresses belong to primaries.
        if self.is_read_only {
            return Vec::new();
        }
        let missing = missing(catalogue, &self.members(catalogue, nodes, views));
        let is_new = |name: &String| nodes.iter().all(|node| node.connector().name() != *name);
        let ways = self.ways(&missing).into_iter().filter(|(name, _)| is_new(name));
        let room = (self.seeds.len() + MAX_NAMED).saturating_sub(nodes.len());
        let node = |(name, url): (String, String)| {
            let connector = connector(&self.options, &self.path, &url, false)
                .inspect_err(|error| tracing::warn!(%error, server = %name, "cannot reach a node"));
            Some(Arc::new(Node::named(connector.ok()?, self.options.max_connections as usize)))
        };
        ways.take(room).filter_map(node).collect()
    }

    /// Returns the members of a cluster: node index and server number.
    fn members(
        &self,
        catalogue: &Catalogue,
        nodes: &[Arc<Node>],
        views: &[Option<ClusterView>],
    ) -> BTreeMap<usize, ServerNumber> {
        let resolved = |row: &NodeRow| self.options.cluster_hosts.resolve(&row.address).to_string();
        let numbers: BTreeMap<String, ServerNumber> =
            catalogue.iter().map(|(number, row)| (resolved(row), *number)).collect();
        let to = |node: &Node| numbers.get(&node.connector().name()).copied();
        let pairs = nodes.iter().zip(views);
        let ways: Vec<_> =
            pairs.map(|(node, view)| Way { view: view.as_ref(), to: to(node), was: node.was() }).collect();
        ways_to_members(catalogue, &ways).into_iter().collect()
    }

    /// Returns the URL of each of these servers, by server name.
    fn ways(&self, servers: &[&NodeRow]) -> BTreeMap<String, String> {
        let way = |row: &&NodeRow| {
            let address = self.options.cluster_hosts.resolve(&row.address);
            (address.to_string(), address.url_like(self.options.first_url()))
        };
        servers.iter().map(way).collect()
    }
}

fn connector(
    options: &PgOptions,
    path: &SearchPath,
    url: &str,
    is_read_only: bool,
) -> Result<Arc<Connector>, StartError> {
    let connector = Connector::new(options, path, url)?;
    let connector = if is_read_only { connector.read_only() } else { connector };
    let connector = Arc::new(connector);
    connector.close_unused(options.idle_timeout);
    Ok(connector)
}

async fn ask(nodes: &[Arc<Node>]) -> Vec<Option<ClusterView>> {
    join_all(nodes.iter().map(|node| node.view())).await
}

/// Returns the active servers of a catalogue that are not among the members.
fn missing<'c>(catalogue: &'c Catalogue, members: &BTreeMap<usize, ServerNumber>) -> Vec<&'c NodeRow> {
    let is_missing = |number: &ServerNumber| members.values().all(|member| member != number);
    catalogue.iter().filter(|(number, row)| row.is_active && is_missing(number)).map(|(_, row)| row).collect()
}
