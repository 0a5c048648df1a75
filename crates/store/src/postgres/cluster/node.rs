//! One node of a cluster, by one of the ways that lead to it: a URL of the settings, or the address that
//! the catalogue has.

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

/// The number of a server that is not known.
const UNKNOWN: ServerNumber = -1;
/// A server is waited for this long when it is asked what it knows.
const LIMIT: Duration = Duration::from_secs(2);
/// A connection to a member that may hang is waited for this long, because that delays what the others say.
const BRIEF: Duration = Duration::from_secs(1);
/// What a server said counts this long while it is silent.
const MEMORY: Duration = Duration::from_secs(60);
/// One that did not answer is asked again after 1, 2, 4 … refreshes, but at least after so many.
const PATIENCE: u32 = 4;

/// One node.
pub(crate) struct Node {
    pub pool: Pool,
    /// Its number, if it is a member.
    number: AtomicI32,
    /// Whether it was in reach when it was last asked.
    answers: AtomicBool,
    /// Whether its shards are to be taken from it.
    is_drained: AtomicBool,
    /// As which server, by which address of the catalogue, it was used last.
    was: Mutex<Option<(ServerNumber, NodeAddress)>>,
    /// What it said when it answered last.
    said: Mutex<Option<(Instant, ClusterView)>>,
    /// The servers that its copy of the catalogue has elsewhere.
    strays: ArcSwap<BTreeSet<ServerNumber>>,
    /// Refreshes without an answer, while it was no member.
    silences: AtomicU32,
}

impl Node {
    /// Of a URL of the settings, which is used until the catalogue is read.
    pub(crate) fn listed(connector: Arc<Connector>, connections: usize) -> Self {
        Self {
            pool: Pool::new(connector, connections, &METRICS.shared_pool),
            number: AtomicI32::new(UNKNOWN),
            answers: AtomicBool::new(true),
            is_drained: AtomicBool::new(false),
            was: Mutex::default(),
            said: Mutex::default(),
            strays: ArcSwap::default(),
            silences: AtomicU32::new(0),
        }
    }

    /// Of the catalogue, to be asked who it is before it is used.
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

    /// Has statements go to it, or through others.
    pub(crate) fn set_answers(&self, answers: bool) {
        self.answers.store(answers, Ordering::Relaxed);
    }

    /// Whether only statements of the buckets that it still has should go there.
    pub(crate) fn is_drained(&self) -> bool {
        self.is_drained.load(Ordering::Relaxed)
    }

    /// Whether it passes on statements for this server, or for all, to where the catalogue has it.
    pub(crate) fn serves(&self, server: Option<ServerNumber>) -> bool {
        match server {
            Some(server) => self.number() == Some(server) || !self.strays.load().contains(&server),
            None => self.strays.load().is_empty(),
        }
    }

    /// Whether it was found to be out of reach just now.
    pub(crate) fn is_away(&self) -> bool {
        self.connector().is_silent() || self.connector().sessions().is_away()
    }

    /// As which server, by which address of the catalogue, it was used last.
    pub(crate) fn was(&self) -> Option<(ServerNumber, NodeAddress)> {
        self.was.lock().clone()
    }

    /// What it said when it answered last, if that counts still.
    pub(crate) fn said(&self) -> Option<ClusterView> {
        let said = self.said.lock().clone();
        said.filter(|(when, _)| when.elapsed() < MEMORY).map(|(_, view)| view)
    }

    /// What the server knows; `None` if it does not answer.
    pub(crate) async fn view(&self) -> Option<ClusterView> {
        if !self.connector().is_member() {
            return self.view_of_outsider().await;
        }
        let is_there = self.answers() || self.connector().is_reachable(BRIEF).await;
        let view = if is_there { self.ask().await } else { None };
        // It may have had no free connection.
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
            tracing::info!(%server, "a server that would be a node does not answer: others pass on what it has");
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
        *self.said.lock() = Some((Instant::now(), view.clone()));
        Some(view)
    }

    /// Uses it as the server of this number in the catalogue, or leaves it. `has_answered`: whether it just has.
    pub(crate) fn set_role(&self, number: Option<ServerNumber>, catalogue: &Catalogue, has_answered: bool) {
        let role = number.and_then(|number| Some((number, catalogue.get(&number)?)));
        if self.connector().is_member() != role.is_some() {
            let server = self.connector().name();
            match role {
                Some((number, _)) => tracing::info!(%server, number, "a node of the cluster is used"),
                None if has_answered => {
                    tracing::warn!(%server, "the cluster has another server in the place of this one, or none: it is left");
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
            if let Some((_, view)) = &*self.said.lock() {
                self.strays.store(Arc::new(view.strays(catalogue)));
            }
        }
        self.number.store(role.map_or(UNKNOWN, |(number, _)| number), Ordering::Relaxed);
        self.connector().set_member(role.is_some());
    }
}
