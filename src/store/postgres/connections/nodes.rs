//! The servers that the database can be reached by.
//!
//! Most databases are one server. Citus spreads the entities over several, and each of them
//! answers every statement; it is only cheaper to ask the one that has the bucket. So a
//! statement goes to the owner of its bucket if that is listed, and otherwise to the first
//! server that can be reached. A server that hangs must not take all connections with it: where
//! statements reach it through another one, they take at most half of that one's.

use std::collections::HashMap;
use std::sync::atomic::{AtomicI32, Ordering};
use std::sync::{Arc, Mutex, PoisonError, RwLock};
use std::time::Duration;

use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::time::timeout;

use crate::metrics::METRICS;
use crate::store::Fault;
use crate::store::postgres::connections::connector::Connector;
use crate::store::postgres::connections::lease::Lease;
use crate::store::postgres::connections::options::{PgOptions, StartError};
use crate::store::postgres::connections::placement::Placement;
use crate::store::postgres::connections::pool::Pool;
use crate::store::postgres::connections::search_path::SearchPath;
use crate::store::postgres::connections::sessions::LockWait;
use crate::store::postgres::connections::shards::{ServerNumber, ShardMap};
use crate::store::postgres::fault::{Effect, StatementError};
use crate::store::postgres::rows::broken_row;
use crate::store::postgres::statements;

/// How often the map of buckets is read again.
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
    /// For statements that pass through a server on their way to this one.
    passages: Mutex<HashMap<ServerNumber, Arc<Semaphore>>>,
    passage: usize,
    acquire_timeout: Duration,
}

/// One listed server.
struct Node {
    connector: Connector,
    pool: Pool,
    number: AtomicI32,
}

/// The lane of a request: requests of one lane share a connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) struct LaneKey {
    /// The owner of the buckets; `None` where there is only one, or it is not known.
    server: Option<ServerNumber>,
    slot: u8,
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
            Ok(Node { connector, pool, number: AtomicI32::new(UNKNOWN) })
        };
        let nodes = Arc::new(Self {
            listed: options.urls().into_iter().map(node).collect::<Result<_, _>>()?,
            map: RwLock::default(),
            passages: Mutex::default(),
            passage: (connections / PART).max(1),
            acquire_timeout: options.acquire_timeout,
        });
        nodes.follow();
        Ok(nodes)
    }

    /// The connector of the first listed server.
    pub(crate) fn first(&self) -> &Connector {
        &self.listed[0].connector
    }

    /// Where the entities are, as far as is known.
    pub(crate) fn placement(&self) -> Placement {
        let is_distributed = |node: &Node| node.connector.placement().get() == Placement::Distributed;
        if self.listed.iter().any(is_distributed) { Placement::Distributed } else { Placement::Single }
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
        if self.is_listed(server) {
            return self.acquire_of(Some(server), wait).await;
        }
        let passage = self.pass(server).await?;
        let mut lease = self.acquire_for(wait).await?;
        lease.passes(passage);
        Ok(lease)
    }

    /// The lane of requests for a bucket.
    pub(crate) fn lane_of(&self, bucket: i64) -> LaneKey {
        if self.placement() == Placement::Single {
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
        let node = self.in_order(lane.server).find(|node| !node.is_away());
        node.unwrap_or(&self.listed[0]).connector.clone()
    }

    async fn acquire_of(
        &self,
        server: Option<ServerNumber>,
        wait: Option<LockWait>,
    ) -> Result<Lease<'_>, StatementError> {
        let mut last = StatementError::Fault(Fault::Unavailable);
        let reachable = self.in_order(server).filter(|node| !node.is_away());
        let all = reachable.chain(self.listed.iter().take(1));
        for (tried, node) in all.enumerate() {
            match node.pool.acquire_for(wait).await {
                Err(error) if node.is_away() && tried < self.listed.len() => last = error,
                acquired => return acquired,
            }
        }
        Err(last)
    }

    /// The listed servers, this one first.
    fn in_order(&self, server: Option<ServerNumber>) -> impl Iterator<Item = &Node> {
        let is_first = move |node: &&Node| server.is_some() && server == node.number();
        let others = move |node: &&Node| !(server.is_some() && server == node.number());
        self.listed.iter().filter(is_first).chain(self.listed.iter().filter(others))
    }

    fn server_of(&self, bucket: i64) -> Option<ServerNumber> {
        if self.placement() == Placement::Single {
            return None;
        }
        self.map.read().unwrap_or_else(PoisonError::into_inner).server_of(bucket)
    }

    fn is_listed(&self, server: ServerNumber) -> bool {
        self.listed.iter().any(|node| node.number() == Some(server))
    }

    /// The right to send a statement for a server through another one.
    async fn pass(&self, server: ServerNumber) -> Result<OwnedSemaphorePermit, StatementError> {
        let passage = {
            let mut passages = self.passages.lock().unwrap_or_else(PoisonError::into_inner);
            Arc::clone(passages.entry(server).or_insert_with(|| Arc::new(Semaphore::new(self.passage))))
        };
        let permit = timeout(self.acquire_timeout, passage.acquire_owned()).await;
        permit.map_err(|_| Fault::Busy)?.map_err(|_| Fault::Unavailable.into())
    }

    /// Reads the map of buckets by turns, where there is Citus, as long as the store is there.
    fn follow(self: &Arc<Self>) {
        let nodes = Arc::downgrade(self);
        let Ok(runtime) = tokio::runtime::Handle::try_current() else { return };
        runtime.spawn(async move {
            loop {
                let Some(nodes) = nodes.upgrade() else { return };
                let is_known =
                    nodes.listed.iter().any(|node| node.connector.placement().may_be_distributed());
                // Whoever uses the database learns of its faults.
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
        if self.placement() == Placement::Single {
            return Ok(());
        }
        let map = ShardMap::read(&mut lease).await?;
        drop(lease);
        for node in self.listed.iter().filter(|node| node.number().is_none() && self.listed.len() > 1) {
            node.learn_number().await?;
        }
        *self.map.write().unwrap_or_else(PoisonError::into_inner) = map;
        Ok(())
    }
}

impl Node {
    fn number(&self) -> Option<ServerNumber> {
        Some(self.number.load(Ordering::Relaxed)).filter(|number| *number != UNKNOWN)
    }

    /// Whether it was found to be out of reach just now.
    fn is_away(&self) -> bool {
        self.connector.is_silent() || self.connector.sessions().is_away()
    }

    async fn learn_number(&self) -> Result<(), StatementError> {
        if self.is_away() {
            return Ok(());
        }
        // The others are asked all the same.
        let Ok(mut lease) = self.pool.acquire().await else { return Ok(()) };
        let row = lease.row(sqlx::query(statements::SERVER_NUMBER), Effect::Undone).await?;
        if let Some(row) = row {
            let number = sqlx::Row::try_get(&row, "server").map_err(broken_row)?;
            self.number.store(number, Ordering::Relaxed);
        }
        Ok(())
    }
}
