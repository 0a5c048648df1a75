//! Which nodes a cluster has, by the catalogues of those that answer.
//!
//! Each node has a copy of the catalogue. When a standby is promoted, the coordinator's catalogue gets its
//! address. The copies may stay old: that of the server that it replaced, which may come back with the number
//! that it had, and while a node hangs those of all workers, the promoted one included.

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

/// What the catalogue calls a server that is no standby.
const PRIMARY: &str = "primary";

/// A primary, as the catalogue has it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct NodeRow {
    pub address: NodeAddress,
    pub is_active: bool,
    pub holds_shards: bool,
}

/// The primaries by their numbers.
pub(crate) type Catalogue = BTreeMap<ServerNumber, NodeRow>;

/// What a server knows of the cluster, and itself.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct ClusterView {
    /// Its own number.
    pub server: ServerNumber,
    pub catalogue: Catalogue,
    /// Whether it has all tables. While they are distributed, nodes lack some of them.
    pub is_complete: bool,
}

impl ClusterView {
    /// Asks a server.
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

    /// The active servers of a catalogue that it has elsewhere. What it passes on for them goes astray.
    pub(crate) fn strays(&self, catalogue: &Catalogue) -> BTreeSet<ServerNumber> {
        let active = catalogue.iter().filter(|(_, row)| row.is_active);
        let strays = active.filter(|(number, row)| self.names(**number) != Some(&row.address));
        strays.map(|(number, _)| *number).collect()
    }

    /// The address that it has for a server.
    fn names(&self, server: ServerNumber) -> Option<&NodeAddress> {
        self.catalogue.get(&server).map(|row| &row.address)
    }
}

/// A server that a row names, if it names one that can be connected to.
fn node(row: &PgRow) -> Result<Option<(ServerNumber, NodeRow)>, sqlx::Error> {
    let Some(number) = row.try_get::<Option<ServerNumber>, _>("number")? else { return Ok(None) };
    let Ok(port) = u16::try_from(row.try_get::<i32, _>("port")?) else { return Ok(None) };
    let address = NodeAddress { host: row.try_get("host")?, port };
    let (is_active, holds_shards) = (row.try_get("is_active")?, row.try_get("holds_shards")?);
    Ok(Some((number, NodeRow { address, is_active, holds_shards })))
}

/// The catalogue to follow: that of the coordinator, or the one that most have, of those who are not
/// outvoted. `None` if nobody names himself.
pub(crate) fn believed(views: &[Option<ClusterView>]) -> Option<&Catalogue> {
    let known: Vec<&ClusterView> =
        views.iter().flatten().filter(|view| view.names(view.server).is_some()).collect();
    let heard: Vec<_> = known.iter().filter(|view| !is_outvoted(view, &known)).collect();
    let copies = |wanted: &Catalogue| heard.iter().filter(|view| view.catalogue == *wanted).count();
    let rank = |view: &&&&ClusterView| (view.server == COORDINATOR, copies(&view.catalogue));
    // The first of those with the highest rank.
    heard.iter().rev().max_by_key(rank).map(|view| &view.catalogue)
}

/// Whether more servers with other numbers name another address for the number of this one, or none, than
/// name the one that it names itself.
fn is_outvoted(view: &ClusterView, known: &[&ClusterView]) -> bool {
    let others = || known.iter().filter(|other| other.server != view.server);
    let agree = others().filter(|other| other.names(view.server) == view.names(view.server)).count();
    others().count() - agree > agree
}

/// Whether a server is the one that a catalogue has under its number: it is at that address, or knows itself
/// by it, and has another node in common. One of another cluster may be at an address such as `localhost` too.
fn is_of(view: &ClusterView, catalogue: &Catalogue, is_at: bool) -> bool {
    let own = catalogue.get(&view.server).map(|row| &row.address);
    let others = catalogue.iter().filter(|(number, _)| **number != view.server);
    let mut same = others.filter_map(|(number, row)| Some(view.names(*number)? == &row.address));
    own.is_some()
        && (is_at || own == view.names(view.server))
        && same.next().is_none_or(|first| first || same.any(|same| same))
}

/// A way to a server, and what is known of where it leads.
#[derive(Debug)]
pub(crate) struct Way<'v> {
    /// What the server there has just said; `None` if it did not answer.
    pub view: Option<&'v ClusterView>,
    /// The server that the catalogue has at the address that it connects to.
    pub to: Option<ServerNumber>,
    /// As which server, by which address, it was used last.
    pub was: Option<(ServerNumber, NodeAddress)>,
}

impl Way<'_> {
    /// Whether it leads to the server that the catalogue has under this number or, if it is silent, did so.
    fn leads_to(&self, server: ServerNumber, catalogue: &Catalogue) -> Option<Certainty> {
        match self.view {
            Some(view) => {
                let is_of = is_of(view, catalogue, self.to == Some(server));
                (view.server == server && is_of && view.is_complete).then_some(Certainty::Said)
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
    Said,
    Remembered,
}

/// The way to each active server of a catalogue that has one, with the number of the server. Of several,
/// the first whose server has just answered is taken. They are in the order of the ways.
pub(crate) fn ways_to_members(catalogue: &Catalogue, ways: &[Way<'_>]) -> Vec<(usize, ServerNumber)> {
    let active = catalogue.iter().filter(|(_, row)| row.is_active);
    let way = |(&server, _): (&ServerNumber, &NodeRow)| {
        let find = |certainty| ways.iter().position(|way| way.leads_to(server, catalogue) == Some(certainty));
        Some((find(Certainty::Said).or_else(|| find(Certainty::Remembered))?, server))
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

    /// A catalogue with these hosts for 0, 1 and 2.
    fn catalogue(hosts: [&str; 3]) -> Catalogue {
        let named = (0..).zip(hosts).filter(|(_, host)| !host.is_empty());
        let row = |host| NodeRow { address: address(host), is_active: true, holds_shards: true };
        named.map(|(number, host)| (number, row(host))).collect()
    }

    /// A server of this number, which has these hosts.
    fn view(server: ServerNumber, hosts: [&str; 3]) -> Option<ClusterView> {
        Some(ClusterView { server, catalogue: catalogue(hosts), is_complete: true })
    }

    const OLD: [&str; 3] = ["a", "b", "c"];
    const NEW: [&str; 3] = ["a", "z", "c"];

    /// The ways whose servers the believed catalogue has, of servers that were not used before.
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
        // The promoted one is reached as well, and the old one does not vote on itself.
        assert_eq!(members(&[view(1, OLD), view(1, NEW), view(2, NEW)]), [(1, 1), (2, 2)]);
        // One that was removed names nobody, or has a number that the others do not know.
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
        // Its number counts as well.
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
        // A node that was added or moved meanwhile makes no member a stranger.
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
        // Another way to the same server is better than silence.
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
