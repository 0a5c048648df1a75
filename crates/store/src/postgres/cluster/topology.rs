//! The nodes in use, the known bucket owners, and probes of the owners.
//!
//! A statement cannot distinguish a frozen server from a slow one. A probe therefore asks a suspected server through a
//! new connection and, concurrently, through a statement that another node forwards. If neither gets an answer, the
//! server's breaker opens and probes repeat until the server answers.

use std::sync::{Arc, Weak};
use std::time::Duration;

use arc_swap::ArcSwap;
use tokio::runtime::Handle;
use tokio::sync::mpsc;
use tokio::time::timeout;

use crate::contract::cluster::COORDINATOR;
use crate::postgres::cluster::node::Node;
use crate::postgres::cluster::owners::ServerNumber;
use crate::postgres::cluster::owners::{BucketOwner, Owners};
use crate::postgres::connections::breaker::Breaker;
use crate::postgres::fault::Effect;
use crate::postgres::statements;

/// A wait for a server triggers a probe after this fraction of the connection timeout.
const PATIENCE: u32 = 5;
/// Timeout of a probe, as a fraction of the connection timeout.
const PROBE: u32 = 4;
/// Pause before a server that did not answer is probed again.
const PAUSE: Duration = Duration::from_millis(500);

/// Cluster state that is read again every few seconds.
pub(crate) struct Topology {
    pub used: ArcSwap<UsedNodes>,
    pub owners: ArcSwap<Owners>,
    /// The breaker for statements that need all bucket owners. It is open while any owner's breaker is open.
    pub breaker_of_all: Arc<Breaker>,
}

impl Topology {
    /// Opens or closes [`Topology::breaker_of_all`] according to the owners' breakers.
    pub(crate) fn update_breaker_of_all(&self) {
        self.breaker_of_all.set_open(self.owners.load().iter().any(|owner| owner.breaker.is_open()));
    }

    pub(crate) fn is_any_used(&self, is_like_this: impl Fn(&Node) -> bool) -> bool {
        self.used.load().0.iter().any(|node| is_like_this(node))
    }
}

/// The nodes that statements use; at least one.
pub(crate) struct UsedNodes(pub Vec<Arc<Node>>);

impl UsedNodes {
    /// Returns candidate nodes that may be reachable and can forward to the owner: the owner first, then nodes that
    /// answered the last check.
    pub(crate) fn in_order(&self, server: Option<ServerNumber>) -> impl Iterator<Item = &Arc<Node>> {
        // Statements that hang on the coordinator hold locks, which would keep it from recording a new address for the
        // owner.
        let is_wanted =
            move |node: &Node| !node.is_drained() && (server.is_none() || node.number() != Some(COORDINATOR));
        let rank = move |node: &Node| match node.answers() {
            true if server.is_some() && server == node.number() => 0,
            true if is_wanted(node) => 1,
            true => 2,
            false => 3,
        };
        let of = move |wanted: u8| self.0.iter().filter(move |node| rank(node) == wanted);
        (0..=3).flat_map(of).filter(move |node| !node.is_away() && node.serves(server))
    }

    /// Returns the reachable node with this server number.
    pub(crate) fn owner(&self, server: ServerNumber) -> Option<&Arc<Node>> {
        self.in_order(Some(server)).next().filter(|node| node.answers() && node.number() == Some(server))
    }

    /// Returns the node with this server number, reachable or not.
    pub(crate) fn of_number(&self, server: ServerNumber) -> Option<&Arc<Node>> {
        self.0.iter().find(|node| node.number() == Some(server))
    }
}

/// Creates the initial topology, before the catalogue is read. A long wait for all servers triggers a probe of each.
pub(crate) fn new_topology(used: UsedNodes, acquire_timeout: Duration) -> Arc<Topology> {
    let (breaker, suspicions) = Breaker::new(acquire_timeout / PATIENCE);
    let topology = Arc::new(Topology {
        used: ArcSwap::from_pointee(used),
        owners: ArcSwap::default(),
        breaker_of_all: Arc::new(breaker),
    });
    if let Ok(runtime) = Handle::try_current() {
        runtime.spawn(suspect_each(Arc::downgrade(&topology), suspicions));
    }
    topology
}

async fn suspect_each(topology: Weak<Topology>, mut suspicions: mpsc::Receiver<()>) {
    while suspicions.recv().await.is_some() {
        let Some(topology) = topology.upgrade() else { return };
        topology.owners.load().iter().for_each(|owner| owner.breaker.suspect());
    }
}

/// Creates a bucket owner. A long wait for the owner triggers a probe.
pub(crate) fn watched_owner(
    topology: &Arc<Topology>,
    number: ServerNumber,
    max_routed: usize,
    acquire_timeout: Duration,
) -> Arc<BucketOwner> {
    let (breaker, suspicions) = Breaker::new(acquire_timeout / PATIENCE);
    let owner = Arc::new(BucketOwner::new(number, breaker, max_routed));
    let of = (Arc::downgrade(topology), Arc::downgrade(&owner));
    tokio::spawn(probe_if_suspected(of, suspicions, acquire_timeout / PROBE));
    owner
}

/// Handles each suspicion: probes the server until it answers.
async fn probe_if_suspected(
    (topology, owner): (Weak<Topology>, Weak<BucketOwner>),
    mut suspicions: mpsc::Receiver<()>,
    limit: Duration,
) {
    while suspicions.recv().await.is_some() {
        loop {
            let (Some(topology), Some(owner)) = (topology.upgrade(), owner.upgrade()) else { return };
            let answers = topology.answers(owner.number, limit).await;
            if owner.note(answers) {
                report(owner.number, answers);
                topology.update_breaker_of_all();
            }
            if answers {
                break;
            }
            drop((topology, owner));
            tokio::time::sleep(PAUSE).await;
        }
    }
}

fn report(server: ServerNumber, answers: bool) {
    if answers {
        tracing::info!(server, "a node of the cluster answers again");
    } else {
        tracing::warn!(
            server,
            "a node of the cluster does not answer; requests that need it are rejected until it answers"
        );
    }
}

impl Topology {
    /// Whether a server answers within a limit, directly or through another node. Both are tested, because the direct
    /// result decides how statements are routed.
    async fn answers(&self, server: ServerNumber, limit: Duration) -> bool {
        let routed = timeout(limit, self.answers_through_another(server));
        let (direct, routed) = tokio::join!(self.answers_directly(server, limit), routed);
        direct || routed.unwrap_or(false)
    }

    /// Opens a connection. If that fails, statements are routed through other nodes.
    async fn answers_directly(&self, server: ServerNumber, limit: Duration) -> bool {
        let used = self.used.load_full();
        let Some(node) = used.of_number(server) else { return false };
        let answers = node.connector().is_reachable(limit).await;
        node.set_answers(answers);
        answers
    }

    /// Requests a row through another node. An error also counts as an answer.
    async fn answers_through_another(&self, server: ServerNumber) -> bool {
        let Some(bucket) = self.owners.load().bucket_on(server) else { return false };
        let used = self.used.load_full();
        let Some(other) = used.in_order(Some(server)).find(|node| node.number() != Some(server)) else {
            return false;
        };
        let Ok(mut lease) = other.pool.acquire().await else { return false };
        let asked = lease.row(sqlx::query(statements::HAS_BUCKET).bind(bucket), Effect::Undone).await;
        asked.is_ok() || lease.is_open()
    }
}
