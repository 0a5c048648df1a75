//! A cluster node, reached by a URL from the settings or by its address in the catalogue.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicI32, AtomicU32, Ordering};
use std::time::{Duration, Instant};

use arc_swap::ArcSwap;
use parking_lot::Mutex;
use tokio::time::timeout;

use crate::contract::cluster::COORDINATOR;
use crate::observe::metrics::METRICS;
use crate::postgres::cluster::catalogue::{Catalogue, ClusterView};
use crate::postgres::cluster::owners::ServerNumber;
use crate::postgres::connections::connector::Connector;
use crate::postgres::connections::host_map::NodeAddress;
use crate::postgres::connections::pool::Pool;

/// The server number of an unknown server.
const UNKNOWN: ServerNumber = -1;
/// Timeout for reading a server's view of the cluster.
const LIMIT: Duration = Duration::from_secs(2);
/// Timeout for connecting to a member that may hang. It is short because it delays the views of the other nodes.
const BRIEF: Duration = Duration::from_secs(1);
/// Maximum age of the last view of a server that does not answer.
const MEMORY: Duration = Duration::from_secs(60);
/// Backoff: a server that did not answer is asked again after 1, 2, 4 … refreshes, and at least every [`PATIENCE`]
/// refreshes.
const PATIENCE: u32 = 4;

pub(crate) struct Node {
    pub pool: Pool,
    /// The server number, if the node is a member.
    number: AtomicI32,
    /// Whether the node was reachable at the last check.
    answers: AtomicBool,
    /// Whether the node's shards are to be moved away.
    is_drained: AtomicBool,
    /// The server number and catalogue address under which the node was last used.
    was: Mutex<Option<(ServerNumber, NodeAddress)>>,
    /// The time and content of the last view that the server returned.
    last_view: Mutex<Option<(Instant, ClusterView)>>,
    /// The servers for which the node's copy of the catalogue has a wrong address.
    strays: ArcSwap<BTreeSet<ServerNumber>>,
    /// Refreshes without an answer while the node was not a member.
    silences: AtomicU32,
}

impl Node {
    /// Creates a node from a URL of the settings, which is used until the catalogue is read.
    pub(crate) fn listed(connector: Arc<Connector>, connections: usize) -> Self {
        Self {
            pool: Pool::new(connector, connections, &METRICS.shared_pool),
            number: AtomicI32::new(UNKNOWN),
            answers: AtomicBool::new(true),
            is_drained: AtomicBool::new(false),
            was: Mutex::default(),
            last_view: Mutex::default(),
            strays: ArcSwap::default(),
            silences: AtomicU32::new(0),
        }
    }

    /// Creates a node from a catalogue address. Its identity is verified before it is used.
    pub(crate) fn named(connector: Arc<Connector>, connections: usize) -> Self {
        connector.set_member(false);
        Self { answers: AtomicBool::new(false), ..Self::listed(connector, connections) }
    }

    pub(crate) const fn connector(&self) -> &Arc<Connector> {
        self.pool.connector()
    }

    pub(crate) fn number(&self) -> Option<ServerNumber> {
        Some(self.number.load(Ordering::Relaxed)).filter(|number| *number != UNKNOWN)
    }

    pub(crate) fn answers(&self) -> bool {
        self.answers.load(Ordering::Relaxed)
    }

    /// Sets whether statements go to the node directly or through other nodes.
    pub(crate) fn set_answers(&self, answers: bool) {
        self.answers.store(answers, Ordering::Relaxed);
    }

    /// Whether the node should only receive statements for the buckets it still has.
    pub(crate) fn is_drained(&self) -> bool {
        self.is_drained.load(Ordering::Relaxed)
    }

    /// Whether the node forwards statements for this server, or for all servers if `None`, to the address in the
    /// catalogue.
    pub(crate) fn serves(&self, server: Option<ServerNumber>) -> bool {
        match server {
            Some(server) => self.number() == Some(server) || !self.strays.load().contains(&server),
            None => self.strays.load().is_empty(),
        }
    }

    /// Whether the last check found the node unreachable.
    pub(crate) fn is_away(&self) -> bool {
        self.connector().is_silent() || self.connector().sessions().is_away()
    }

    /// Returns the server number and catalogue address under which the node was last used.
    pub(crate) fn was(&self) -> Option<(ServerNumber, NodeAddress)> {
        self.was.lock().clone()
    }

    /// Returns the last view, unless it is too old.
    pub(crate) fn last_view(&self) -> Option<ClusterView> {
        let last_view = self.last_view.lock().clone();
        last_view.filter(|(when, _)| when.elapsed() < MEMORY).map(|(_, view)| view)
    }

    /// Reads the server's view of the cluster; `None` if the server does not answer.
    pub(crate) async fn view(&self) -> Option<ClusterView> {
        if !self.connector().is_member() {
            return self.view_of_outsider().await;
        }
        let is_there = self.answers() || self.connector().is_reachable(BRIEF).await;
        let view = if is_there { self.ask().await } else { None };
        // The node may have had no free connection.
        self.set_answers(view.is_some() || is_there && self.connector().is_reachable(BRIEF).await);
        view
    }

    async fn view_of_outsider(&self) -> Option<ClusterView> {
        let silences = self.silences.load(Ordering::Relaxed);
        if silences != 0 && !silences.is_power_of_two() && !silences.is_multiple_of(PATIENCE) {
            self.silences.store(silences.saturating_add(1), Ordering::Relaxed);
            return None;
        }
        let view = self.ask().await;
        if view.is_none() && silences == 0 {
            let server = self.connector().name();
            tracing::info!(%server, "a prospective node does not answer; other nodes forward its statements");
        }
        let silences = if view.is_some() { 0 } else { silences.saturating_add(1) };
        self.silences.store(silences, Ordering::Relaxed);
        view
    }

    async fn ask(&self) -> Option<ClusterView> {
        let asked = timeout(LIMIT, async {
            let mut lease = self.pool.acquire().await.ok()?;
            ClusterView::read(&mut lease).await.ok()
        });
        let view = asked.await.ok().flatten()?;
        *self.last_view.lock() = Some((Instant::now(), view.clone()));
        Some(view)
    }

    /// Uses the node as the server with this number in the catalogue, or stops using it for `None`. `has_answered` is
    /// whether the node has just answered.
    pub(crate) fn set_role(&self, number: Option<ServerNumber>, catalogue: &Catalogue, has_answered: bool) {
        let role = number.and_then(|number| Some((number, catalogue.get(&number)?)));
        if self.connector().is_member() != role.is_some() {
            let server = self.connector().name();
            match role {
                Some((number, _)) => tracing::info!(%server, number, "started using a node of the cluster"),
                None if has_answered => {
                    tracing::warn!(%server, "the cluster has replaced or removed this server; stopped using it");
                }
                None => {
                    tracing::warn!(%server, "a server is not used until it answers as a node of the cluster")
                }
            }
            self.set_answers(has_answered);
        }
        if let Some((number, row)) = role {
            let is_drained = number != COORDINATOR && !row.holds_shards;
            self.is_drained.store(is_drained, Ordering::Relaxed);
            *self.was.lock() = Some((number, row.address.clone()));
            if let Some((_, view)) = &*self.last_view.lock() {
                self.strays.store(Arc::new(view.strays(catalogue)));
            }
        }
        self.number.store(role.map_or(UNKNOWN, |(number, _)| number), Ordering::Relaxed);
        self.connector().set_member(role.is_some());
    }
}
