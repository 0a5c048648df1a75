//! Determines the cluster's nodes from the catalogues of the nodes that answer.
//!
//! Each node has a copy of the catalogue. When a standby is promoted, the coordinator's catalogue gets its address.
//! Other copies may remain outdated. The replaced server may return with its old number and an old copy. While a node
//! hangs, the copies of all workers stay old, including that of the promoted worker.

use std::collections::{BTreeMap, BTreeSet};

use sqlx::Row;
use sqlx::postgres::PgRow;

use crate::Fault;
use crate::contract::cluster::{COLOCATED, COORDINATOR, REFERENCE};
use crate::postgres::cluster::owners::ServerNumber;
use crate::postgres::connections::host_map::NodeAddress;
use crate::postgres::connections::lease::Lease;
use crate::postgres::fault::{Effect, StatementError};
use crate::postgres::rows::broken_row;
use crate::postgres::statements;

/// The catalogue's name for the role of a primary.
const PRIMARY: &str = "primary";

/// The catalogue's entry for a primary.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct NodeRow {
    pub address: NodeAddress,
    pub is_active: bool,
    pub holds_shards: bool,
}

/// The primaries, by server number.
pub(crate) type Catalogue = BTreeMap<ServerNumber, NodeRow>;

/// A server's view of the cluster and of itself.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct ClusterView {
    pub server: ServerNumber,
    pub catalogue: Catalogue,
    /// Whether the server has all tables. During a distribution, nodes lack some of them.
    pub is_complete: bool,
}

impl ClusterView {
    pub(crate) async fn read(lease: &mut Lease) -> Result<Self, StatementError> {
        let tables: Vec<&str> = COLOCATED.iter().chain(&REFERENCE).copied().collect();
        let ask = sqlx::query(statements::CLUSTER_VIEW).bind(PRIMARY).bind(tables);
        let rows = lease.rows(ask, Effect::Undone).await?;
        let first = rows.first().ok_or(Fault::Other)?;
        let named = rows.iter().filter_map(|row| node(row).map_err(broken_row).transpose());
        Ok(Self {
            server: first.try_get("server").map_err(broken_row)?,
            catalogue: named.collect::<Result<_, StatementError>>()?,
            is_complete: first.try_get("is_complete").map_err(broken_row)?,
        })
    }

    /// Returns the active servers of `catalogue` for which this server has a different address. Statements that this
    /// server forwards to them reach the wrong address.
    pub(crate) fn strays(&self, catalogue: &Catalogue) -> BTreeSet<ServerNumber> {
        let active = catalogue.iter().filter(|(_, row)| row.is_active);
        let strays = active.filter(|(number, row)| self.names(**number) != Some(&row.address));
        strays.map(|(number, _)| *number).collect()
    }

    /// Returns the address that this server's catalogue has for `server`.
    fn names(&self, server: ServerNumber) -> Option<&NodeAddress> {
        self.catalogue.get(&server).map(|row| &row.address)
    }
}

/// Reads the server of a row, if the row has a usable address.
fn node(row: &PgRow) -> Result<Option<(ServerNumber, NodeRow)>, sqlx::Error> {
    let Some(number) = row.try_get::<Option<ServerNumber>, _>("number")? else { return Ok(None) };
    let Ok(port) = u16::try_from(row.try_get::<i32, _>("port")?) else { return Ok(None) };
    let address = NodeAddress { host: row.try_get("host")?, port };
    let (is_active, holds_shards) = (row.try_get("is_active")?, row.try_get("holds_shards")?);
    Ok(Some((number, NodeRow { address, is_active, holds_shards })))
}

/// Chooses the catalogue to follow, among servers that are not outvoted: the coordinator's, or the most common one.
/// `None` if no catalogue lists its own server.
pub(crate) fn believed(views: &[Option<ClusterView>]) -> Option<&Catalogue> {
    let known: Vec<&ClusterView> =
        views.iter().flatten().filter(|view| view.names(view.server).is_some()).collect();
    let credible: Vec<_> = known.iter().filter(|view| !is_outvoted(view, &known)).collect();
    let copies = |wanted: &Catalogue| credible.iter().filter(|view| view.catalogue == *wanted).count();
    let rank = |view: &&&&ClusterView| (view.server == COORDINATOR, copies(&view.catalogue));
    // Of equal ranks, the first view wins.
    credible.iter().rev().max_by_key(rank).map(|view| &view.catalogue)
}

/// Whether most other servers disagree with this server's address for itself.
fn is_outvoted(view: &ClusterView, known: &[&ClusterView]) -> bool {
    let others = || known.iter().filter(|other| other.server != view.server);
    let agree = others().filter(|other| other.names(view.server) == view.names(view.server)).count();
    others().count() - agree > agree
}

/// Whether a server is the one that a catalogue lists under its number. The server must be at the listed address or
/// know itself by it, and share another node's address with the catalogue. The second condition matters because a
/// server of a different cluster may use the same address, such as `localhost`.
fn is_of(view: &ClusterView, catalogue: &Catalogue, is_at: bool) -> bool {
    let own = catalogue.get(&view.server).map(|row| &row.address);
    let others = catalogue.iter().filter(|(number, _)| **number != view.server);
    let mut same = others.filter_map(|(number, row)| Some(view.names(*number)? == &row.address));
    own.is_some()
        && (is_at || own == view.names(view.server))
        && same.next().is_none_or(|first| first || same.any(|same| same))
}

/// A connection to a server, with evidence of which server it reaches.
#[derive(Debug)]
pub(crate) struct Way<'v> {
    /// The server's current view; `None` if the server did not answer.
    pub view: Option<&'v ClusterView>,
    /// The server that the catalogue lists at the address of this connection.
    pub to: Option<ServerNumber>,
    /// The server number and catalogue address under which the connection was last used.
    pub was: Option<(ServerNumber, NodeAddress)>,
}

impl Way<'_> {
    /// Whether the connection reaches the server that the catalogue lists under this number or, if the server does not
    /// answer, whether it last did.
    fn leads_to(&self, server: ServerNumber, catalogue: &Catalogue) -> Option<Certainty> {
        match self.view {
            Some(view) => {
                let is_of = is_of(view, catalogue, self.to == Some(server));
                (view.server == server && is_of && view.is_complete).then_some(Certainty::Confirmed)
            }
            None => {
                let address = &catalogue.get(&server)?.address;
                (self.was == Some((server, address.clone()))).then_some(Certainty::Remembered)
            }
        }
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Certainty {
    Confirmed,
    Remembered,
}

/// Returns a connection for each active server of a catalogue that has one, as index and server number, in ascending
/// order of index. A connection whose server has just answered is preferred, then the first one.
pub(crate) fn ways_to_members(catalogue: &Catalogue, ways: &[Way<'_>]) -> Vec<(usize, ServerNumber)> {
    let active = catalogue.iter().filter(|(_, row)| row.is_active);
    let way = |(&server, _): (&ServerNumber, &NodeRow)| {
        let find = |certainty| ways.iter().position(|way| way.leads_to(server, catalogue) == Some(certainty));
        Some((find(Certainty::Confirmed).or_else(|| find(Certainty::Remembered))?, server))
    };
    let mut found: Vec<_> = active.filter_map(way).collect();
    found.sort_unstable();
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    fn address(host: &str) -> NodeAddress {
        NodeAddress { host: host.into(), port: 5432 }
    }

    /// A catalogue with these hosts for servers 0, 1 and 2.
    fn catalogue(hosts: [&str; 3]) -> Catalogue {
        let named = (0..).zip(hosts).filter(|(_, host)| !host.is_empty());
        let row = |host| NodeRow { address: address(host), is_active: true, holds_shards: true };
        named.map(|(number, host)| (number, row(host))).collect()
    }

    /// The view of a server with this number, whose catalogue has these hosts.
    fn view(server: ServerNumber, hosts: [&str; 3]) -> Option<ClusterView> {
        Some(ClusterView { server, catalogue: catalogue(hosts), is_complete: true })
    }

    const OLD: [&str; 3] = ["a", "b", "c"];
    const NEW: [&str; 3] = ["a", "z", "c"];

    /// The connections to members of the believed catalogue, for servers that were not used before.
    fn members(views: &[Option<ClusterView>]) -> Vec<(usize, ServerNumber)> {
        let ways: Vec<_> =
            views.iter().map(|view| Way { view: view.as_ref(), to: None, was: None }).collect();
        ways_to_members(believed(views).unwrap_or(&Catalogue::new()), &ways)
    }

    #[test]
    fn a_server_in_whose_place_the_others_name_another_is_no_member() {
        assert_eq!(members(&[view(1, OLD), view(2, OLD), view(0, OLD)]), [(0, 1), (1, 2), (2, 0)]);
        assert_eq!(members(&[view(1, OLD), view(2, NEW), view(0, NEW)]), [(1, 2), (2, 0)]);
        assert_eq!(members(&[view(1, OLD), view(0, NEW)]), [(1, 0)]);
        // The promoted server is also reachable, and the old one does not vote on itself.
        assert_eq!(members(&[view(1, OLD), view(1, NEW), view(2, NEW)]), [(1, 1), (2, 2)]);
        // A removed server lists no servers, or has a number that the others do not know.
        assert_eq!(members(&[view(0, ["", "", ""]), view(2, ["", "b", "c"])]), [(1, 2)]);
        assert_eq!(
            members(&[view(1, OLD), view(2, ["", "", "c"]), view(0, ["a", "", "c"])]),
            [(1, 2), (2, 0)]
        );
    }

    #[test]
    fn a_promoted_server_with_an_old_copy_is_a_member_at_the_address_that_the_coordinator_has_for_it() {
        let (promoted, replaced, other) = (view(1, OLD), view(1, OLD), view(2, OLD));
        let at = |view, to| Way { view, to, was: None };
        let ways = [at(replaced.as_ref(), None), at(promoted.as_ref(), Some(1)), at(other.as_ref(), None)];
        assert_eq!(ways_to_members(&catalogue(NEW), &ways), [(1, 1), (2, 2)]);
        // The number must match as well.
        assert_eq!(ways_to_members(&catalogue(NEW), &[at(other.as_ref(), Some(1))]), [(0, 2)]);
    }

    #[test]
    fn what_an_old_copy_has_elsewhere_goes_astray() {
        let strays = |hosts, number| view(number, hosts).expect("a view").strays(&catalogue(NEW));
        assert_eq!(strays(NEW, 2), BTreeSet::new());
        assert_eq!(strays(OLD, 2), BTreeSet::from([1]));
        assert_eq!(strays(["a", "z", ""], 1), BTreeSet::from([2]));
    }

    #[test]
    fn a_server_that_was_replaced_does_not_outvote_the_others() {
        // Both 0 and 1 have been replaced, and the old 1 comes back.
        let new = ["y", "z", "c"];
        assert_eq!(members(&[view(1, OLD), view(0, new), view(2, new)]), [(1, 0), (2, 2)]);
        assert_eq!(members(&[view(1, OLD), None, view(2, new)]), [(2, 2)]);
        assert_eq!(believed(&[None, None]), None);
        assert_eq!(believed(&[view(0, [""; 3]), None]), None, "a cluster without nodes");
    }

    #[test]
    fn the_coordinator_is_believed_where_catalogues_differ() {
        let views = [view(1, ["a", "b", ""]), view(0, OLD), view(2, OLD)];
        assert_eq!(believed(&views), Some(&catalogue(OLD)));
        let without = [view(1, ["a", "b", ""]), view(1, ["a", "b", ""]), view(2, OLD)];
        assert_eq!(believed(&without), Some(&catalogue(["a", "b", ""])), "the one that most have");
    }

    #[test]
    fn a_server_of_another_cluster_is_no_member() {
        let (ours, other) = (["localhost", "b", "c"], ["localhost", "x", "y"]);
        let is_of = |number, hosts, wanted| {
            [true, false].map(|is_at| is_of(&view(number, hosts).expect("a view"), &catalogue(wanted), is_at))
        };
        assert_eq!(is_of(0, ours, ours), [true; 2]);
        assert_eq!(is_of(0, other, ours), [false; 2]);
        assert_eq!(is_of(0, ["localhost", "x", ""], ["localhost", "b", ""]), [false; 2]);
        // A node that was added or moved does not disqualify a member.
        assert_eq!(is_of(1, ["a", "b", ""], OLD), [true; 2]);
        assert_eq!(is_of(2, OLD, NEW), [true; 2]);
        assert_eq!(is_of(1, ["a", "b", ""], ["a", "z", ""]), [true, false]);
    }

    #[test]
    fn a_silent_server_stays_a_member_until_the_catalogue_has_another_address() {
        let silent = || Way { view: None, to: None, was: Some((1, address("b"))) };
        assert_eq!(ways_to_members(&catalogue(OLD), &[silent()]), [(0, 1)]);
        assert_eq!(ways_to_members(&catalogue(NEW), &[silent()]), []);
        assert_eq!(ways_to_members(&catalogue(["a", "", "c"]), &[silent()]), []);
        assert_eq!(ways_to_members(&catalogue(OLD), &[Way { was: None, ..silent() }]), [], "never used");
        // A connection that answers is preferred to one that does not.
        let answer = view(1, OLD);
        let ways = [silent(), Way { view: answer.as_ref(), ..silent() }];
        assert_eq!(ways_to_members(&catalogue(OLD), &ways), [(1, 1)]);
    }

    #[test]
    fn a_node_without_all_tables_is_no_member_but_is_heard() {
        let incomplete = view(1, NEW).map(|view| ClusterView { is_complete: false, ..view });
        assert_eq!(members(&[incomplete, view(0, NEW)]), [(1, 0)]);
        let views = [view(0, OLD), view(2, NEW).map(|view| ClusterView { is_complete: false, ..view })];
        assert_eq!(believed(&views), Some(&catalogue(OLD)));
    }

    #[test]
    fn an_inactive_node_is_no_member_and_the_first_of_two_ways_is_taken() {
        let (first, second) = (view(2, OLD), view(2, OLD));
        let way = |view| Way { view, to: None, was: None };
        let ways = [way(first.as_ref()), way(second.as_ref())];
        assert_eq!(ways_to_members(&catalogue(OLD), &ways), [(0, 2)]);
        let mut disabled = catalogue(OLD);
        disabled.entry(2).and_modify(|row| row.is_active = false);
        assert_eq!(ways_to_members(&disabled, &ways), []);
    }
}
