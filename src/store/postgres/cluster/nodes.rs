//! The servers that the database can be reached by.
//!
//! Most databases are one server. Citus spreads the entities over several, and each of them
//! answers every statement; it is only cheaper to ask the one that has the bucket. So a
//! statement goes to the owner of its bucket if that is listed, and otherwise to the first
//! server that can be reached. A server that the others have replaced, by a promoted standby for
//! example, is not used, even if it still answers. A server that hangs must not take all connections with it: where
//! statements reach it through another one, they take at most half of that one's.

use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, AtomicI32, Ordering};
use std::sync::{Arc, Mutex, PoisonError, RwLock};
use std::time::Duration;

use futures_util::future::join_all;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::time::timeout;

use crate::observe::metrics::METRICS;
use crate::store::Fault;
use crate::store::postgres::cluster::primaries::{ClusterView, replaced};
use crate::store::postgres::cluster::shards::{ServerNumber, ShardMap};
use crate::store::postgres::connections::connector::Connector;
use crate::store::postgres::connections::lease::Lease;
use crate::store::postgres::connections::options::{PgOptions, StartError};
use crate::store::postgres::connections::placement::Placement;
use crate::store::postgres::connections::pool::Pool;
use crate::store::postgres::connections::search_path::SearchPath;
use crate::store::postgres::connections::sessions::LockWait;
use crate::store::postgres::fault::StatementError;

/// How often the map of buckets is read again, and each listed server is asked.
const REFRESH: Duration = Duration::from_secs(5);
/// Lanes of a thread and kind, shared out among the servers that have buckets.
const LANES_IN_ALL: usize = 8;
/// The part of a server's connections that statements for one other server may take.
const PART: usize = 2;
/// The number of a server that has not said it yet.
const UNKNOWN: ServerNumber = -1;

/// The listed servers, and what is known of them.
pub(crate) struct Nodes {
    listed: Vec<Node>,
    map: RwLock<ShardMap>,
    /// Limits the statements for a server that are routed through another one.
    routing_permits: Mutex<HashMap<ServerNumber, Arc<Semaphore>>>,
    max_routed: usize,
    acquire_timeout: Duration,
}

/// One listed server.
struct Node {
    connector: Connector,
    pool: Pool,
    number: AtomicI32,
    /// Whether it was in reach when it was last asked.
    answers: AtomicBool,
    /// Whether the other servers name another one in its place.
    is_replaced: AtomicBool,
}

/// The lane of a request: requests of one lane share a connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) struct LaneKey {
    /// The owner of the buckets; `None` where there is only one, or it is not known.
    server: Option<ServerNumber>,
    slot: u8,
}

impl LaneKey {
    /// Whether its buckets have a known owner.
    pub(crate) const fn has_owner(self) -> bool {
        self.server.is_some()
    }
}

impl Nodes {
    /// Of the servers that the settings list.
    ///
    /// # Errors
    /// [`StartError`] for a URL that cannot work.
    pub(crate) fn new(
        options: &PgOptions,
        path: &SearchPath,
        is_read_only: bool,
    ) -> Result<Arc<Self>, StartError> {
        let connections = options.max_connections as usize;
        let node = |url: &str| -> Result<Node, StartError> {
            let connector = Connector::new(options, path, url)?;
            let connector = if is_read_only { connector.read_only() } else { connector };
            connector.close_unused(options.idle_timeout);
            let pool = Pool::new(connector.clone(), connections, &METRICS.shared_pool);
            Ok(Node {
                connector,
                pool,
                number: AtomicI32::new(UNKNOWN),
                answers: AtomicBool::new(true),
                is_replaced: AtomicBool::new(false),
            })
        };
        let nodes = Arc::new(Self {
            listed: options.urls().into_iter().map(node).collect::<Result<_, _>>()?,
            map: RwLock::default(),
            routing_permits: Mutex::default(),
            max_routed: (connections / PART).max(1),
            acquire_timeout: options.acquire_timeout,
        });
        nodes.follow();
        Ok(nodes)
    }

    /// The connector of the first listed server.
    pub(crate) fn first(&self) -> &Connector {
        &self.listed[0].connector
    }

    /// Whether the entities are distributed, as far as is known.
    pub(crate) fn is_distributed(&self) -> bool {
        self.listed.iter().any(|node| node.connector.placement().get() == Placement::Distributed)
    }

    /// Whether the database allows more connections, as far as is known.
    pub(crate) fn may_open(&self) -> bool {
        self.listed.iter().any(|node| node.pool.may_open())
    }

    /// A connection to any server, for statements that wait this long for locks; `None` for
    /// statements that take none.
    ///
    /// # Errors
    /// As [`Pool::acquire_for`], of the last server that was tried.
    pub(crate) async fn acquire_for(&self, wait: Option<LockWait>) -> Result<Lease<'_>, StatementError> {
        self.acquire_of(None, wait).await
    }

    /// As [`Nodes::acquire_for`], for statements that lock nothing.
    ///
    /// # Errors
    /// As [`Nodes::acquire_for`].
    pub(crate) async fn acquire(&self) -> Result<Lease<'_>, StatementError> {
        self.acquire_for(None).await
    }

    /// As [`Nodes::acquire_for`], for statements that wait for locks as long as an operation may.
    ///
    /// # Errors
    /// As [`Nodes::acquire_for`].
    pub(crate) async fn acquire_to_lock(&self) -> Result<Lease<'_>, StatementError> {
        self.acquire_for(Some(LockWait::Long)).await
    }

    /// A connection for statements about one bucket: to the server that has it, if that is listed.
    ///
    /// # Errors
    /// As [`Nodes::acquire_for`], and [`Fault::Busy`] if too many statements for that server
    /// wait on others.
    pub(crate) async fn acquire_at(
        &self,
        bucket: i64,
        wait: Option<LockWait>,
    ) -> Result<Lease<'_>, StatementError> {
        let Some(server) = self.server_of(bucket) else { return self.acquire_for(wait).await };
        if self.owner(server).is_some() {
            return self.acquire_of(Some(server), wait).await;
        }
        let permit = self.routing_permit(server).await?;
        let mut lease = self.acquire_of(Some(server), wait).await?;
        lease.hold_permit(permit);
        Ok(lease)
    }

    /// The lane of requests for a bucket.
    pub(crate) fn lane_of(&self, bucket: i64) -> LaneKey {
        if !self.is_distributed() {
            return LaneKey { server: None, slot: 0 };
        }
        let map = self.map.read().unwrap_or_else(PoisonError::into_inner);
        let slots = (LANES_IN_ALL / map.servers().max(1)).max(1) as u64;
        // The share is in the low bits, the random table number above.
        let mixed = bucket as u64 ^ (bucket as u64 >> 16);
        LaneKey { server: map.server_of(bucket), slot: (mixed % slots) as u8 }
    }

    /// The connector that a lane should use now.
    pub(crate) fn connector_of(&self, lane: LaneKey) -> Connector {
        self.in_order(lane.server).next().unwrap_or(&self.listed[0]).connector.clone()
    }

    /// Whether a lane that uses another server should end, because the owner of its buckets is there.
    pub(crate) fn is_owner_back(&self, lane: LaneKey, used: &Connector) -> bool {
        let owner = lane.server.and_then(|server| self.owner(server));
        owner.is_some_and(|owner| !owner.connector.is_same(used))
    }

    async fn acquire_of(
        &self,
        server: Option<ServerNumber>,
        wait: Option<LockWait>,
    ) -> Result<Lease<'_>, StatementError> {
        let mut last = StatementError::Fault(Fault::Unavailable);
        let all = self.in_order(server).chain(self.listed.iter().take(1));
        for (tried, node) in all.enumerate() {
            match node.pool.acquire_for(wait).await {
                Err(error) if node.is_away() && tried < self.listed.len() => last = error,
                acquired => return acquired,
            }
        }
        Err(last)
    }

    /// The listed servers that may be in reach: the owner of these buckets first, then those that
    /// answered when they were last asked.
    fn in_order(&self, server: Option<ServerNumber>) -> impl Iterator<Item = &Node> {
        let rank = move |node: &Node| match node.answers() {
            true if server.is_some() && server == node.number() => 0,
            true => 1,
            false => 2,
        };
        let of = move |wanted: u8| self.listed.iter().filter(move |node| rank(node) == wanted);
        (0..=2).flat_map(of).filter(|node| !node.is_away())
    }

    fn server_of(&self, bucket: i64) -> Option<ServerNumber> {
        if !self.is_distributed() {
            return None;
        }
        self.map.read().unwrap_or_else(PoisonError::into_inner).server_of(bucket)
    }

    /// The listed server of this number, if it is in reach.
    fn owner(&self, server: ServerNumber) -> Option<&Node> {
        self.in_order(Some(server)).next().filter(|node| node.answers() && node.number() == Some(server))
    }

    /// A permit to route a statement for a server through another one.
    async fn routing_permit(&self, server: ServerNumber) -> Result<OwnedSemaphorePermit, StatementError> {
        let permits = {
            let mut routing_permits = self.routing_permits.lock().unwrap_or_else(PoisonError::into_inner);
            Arc::clone(
                routing_permits.entry(server).or_insert_with(|| Arc::new(Semaphore::new(self.max_routed))),
            )
        };
        let permit = timeout(self.acquire_timeout, permits.acquire_owned()).await;
        permit.map_err(|_| Fault::Busy)?.map_err(|_| Fault::Unavailable.into())
    }

    /// Refreshes the map of buckets periodically, where there is Citus, until the store is dropped.
    fn follow(self: &Arc<Self>) {
        let nodes = Arc::downgrade(self);
        let Ok(runtime) = tokio::runtime::Handle::try_current() else { return };
        runtime.spawn(async move {
            loop {
                let Some(nodes) = nodes.upgrade() else { return };
                let is_known =
                    nodes.listed.iter().any(|node| node.connector.placement().may_be_distributed());
                // Requests report faults; this task only logs them.
                if is_known && let Err(error) = nodes.refresh().await {
                    tracing::debug!(?error, "the map of buckets was not read");
                }
                drop(nodes);
                tokio::time::sleep(REFRESH).await;
            }
        });
    }

    /// Looks again where the entities are.
    ///
    /// # Errors
    /// As those of a read.
    pub(crate) async fn refresh(&self) -> Result<(), StatementError> {
        let mut lease = self.acquire().await?;
        lease.look_at_placement().await?;
        if !self.is_distributed() {
            return Ok(());
        }
        let map = ShardMap::read(&mut lease).await?;
        drop(lease);
        if self.listed.len() > 1 {
            self.ask_each().await;
        }
        *self.map.write().unwrap_or_else(PoisonError::into_inner) = map;
        Ok(())
    }

    /// Asks each listed server what it knows of the cluster, and itself. One that hangs delays no other.
    async fn ask_each(&self) {
        let views = join_all(self.listed.iter().map(Node::view)).await;
        for (node, (view, is_replaced)) in self.listed.iter().zip(views.iter().zip(replaced(&views))) {
            let Some(view) = view else { continue };
            node.number.store(view.server, Ordering::Relaxed);
            if is_replaced && !node.is_replaced.swap(is_replaced, Ordering::Relaxed) {
                tracing::warn!(
                    server = %node.connector.name(),
                    "the cluster has another server in the place of this one, which is not used any more"
                );
            }
            node.is_replaced.store(is_replaced, Ordering::Relaxed);
        }
    }
}

impl Node {
    fn number(&self) -> Option<ServerNumber> {
        Some(self.number.load(Ordering::Relaxed)).filter(|number| *number != UNKNOWN)
    }

    fn answers(&self) -> bool {
        self.answers.load(Ordering::Relaxed)
    }

    /// Whether it was found to be out of reach just now, or must not be used.
    fn is_away(&self) -> bool {
        self.is_replaced.load(Ordering::Relaxed)
            || self.connector.is_silent()
            || self.connector.sessions().is_away()
    }

    /// What the server knows; `None` if it does not answer.
    async fn view(&self) -> Option<ClusterView> {
        let view = match self.pool.acquire().await {
            Ok(mut lease) => ClusterView::read(&mut lease).await.ok(),
            Err(_) => None,
        };
        // Without a free connection, nothing is known.
        self.answers.store(view.is_some() || !self.is_away(), Ordering::Relaxed);
        view
    }
}
