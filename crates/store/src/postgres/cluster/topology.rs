//! Which nodes statements go to, and which of them has which buckets, as far as is known.

use std::sync::Arc;

use arc_swap::ArcSwap;

use crate::contract::cluster::COORDINATOR;
use crate::postgres::cluster::node::Node;
use crate::postgres::cluster::owners::Owners;
use crate::postgres::cluster::shards::ServerNumber;
use crate::postgres::connections::breaker::Breaker;

/// What is read again every few seconds.
pub(crate) struct Topology {
    pub used: ArcSwap<UsedNodes>,
    pub owners: ArcSwap<Owners>,
    /// That of statements which need all servers with buckets: open while that of any is.
    pub breaker_of_all: Arc<Breaker>,
}

impl Topology {
    /// Opens or closes the breaker of all.
    pub(crate) fn update_breaker_of_all(&self) {
        self.breaker_of_all.set_open(self.owners.load().iter().any(|owner| owner.breaker.is_open()));
    }

    /// Whether any of the nodes in use is like this.
    pub(crate) fn is_any_used(&self, is_like_this: impl Fn(&Node) -> bool) -> bool {
        self.used.load().0.iter().any(|node| is_like_this(node))
    }
}

/// The nodes that statements go to; at least one.
pub(crate) struct UsedNodes(pub Vec<Arc<Node>>);

impl UsedNodes {
    /// Those that may be in reach and know the way: the owner of these buckets first, then those that answered
    /// when they were last asked.
    pub(crate) fn in_order(&self, server: Option<ServerNumber>) -> impl Iterator<Item = &Arc<Node>> {
        // What hangs on the coordinator, with its locks, would keep it from naming another server for the owner.
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

    /// The node of this number, if it is in reach.
    pub(crate) fn owner(&self, server: ServerNumber) -> Option<&Arc<Node>> {
        self.in_order(Some(server)).next().filter(|node| node.answers() && node.number() == Some(server))
    }

    /// The node of this number, in reach or not.
    pub(crate) fn of_number(&self, server: ServerNumber) -> Option<&Arc<Node>> {
        self.0.iter().find(|node| node.number() == Some(server))
    }
}
