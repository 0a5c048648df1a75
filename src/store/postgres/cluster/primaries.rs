//! Which of the listed servers the cluster still counts on.
//!
//! When a standby is promoted, the catalogue gets its address. The old server may come back, with the
//! number that it had, and its own catalogue names it still.

use std::collections::BTreeMap;

use sqlx::Row;
use sqlx::postgres::PgRow;

use crate::store::Fault;
use crate::store::postgres::cluster::shards::ServerNumber;
use crate::store::postgres::connections::lease::Lease;
use crate::store::postgres::fault::{Effect, StatementError};
use crate::store::postgres::rows::broken_row;
use crate::store::postgres::statements;

/// What the catalogue calls a server that is no standby.
const PRIMARY: &str = "primary";

/// The host and the port of a server.
type NodeAddress = (String, i32);

/// What a server knows of the cluster, and itself.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct ClusterView {
    /// Its own number.
    pub server: ServerNumber,
    addresses: BTreeMap<ServerNumber, NodeAddress>,
}

impl ClusterView {
    /// Asks a server.
    pub(crate) async fn read(lease: &mut Lease<'_>) -> Result<Self, StatementError> {
        let ask = sqlx::query(statements::CLUSTER_VIEW).bind(PRIMARY);
        let rows = lease.rows(ask, Effect::Undone).await?;
        let server = rows.first().ok_or(Fault::Other)?.try_get("server").map_err(broken_row)?;
        let addresses = rows.iter().filter_map(|row| address(row).map_err(broken_row).transpose());
        Ok(Self { server, addresses: addresses.collect::<Result<_, StatementError>>()? })
    }
}

/// A server that a row names, if it names one.
fn address(row: &PgRow) -> Result<Option<(ServerNumber, NodeAddress)>, sqlx::Error> {
    let number: Option<ServerNumber> = row.try_get("number")?;
    number.map(|number| Ok((number, (row.try_get("host")?, row.try_get("port")?)))).transpose()
}

/// Which of these servers have been replaced or removed. Those that are counted on name themselves. More
/// of them, with other numbers, name another address for the number of the server, or none, than name the
/// one that the server itself names; or the server names nobody.
pub(crate) fn replaced(views: &[Option<ClusterView>]) -> Vec<bool> {
    let known: Vec<_> =
        views.iter().flatten().filter(|view| view.addresses.contains_key(&view.server)).collect();
    let is_replaced = |view: &ClusterView| {
        let named = view.addresses.get(&view.server);
        let others = || known.iter().filter(|other| other.server != view.server);
        let agree = others().filter(|other| other.addresses.get(&view.server) == named).count();
        others().count() - agree > agree || (view.addresses.is_empty() && !known.is_empty())
    };
    views.iter().map(|view| view.as_ref().is_some_and(is_replaced)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A server of this number, which names these addresses for 1, 2 and 3.
    fn view(server: ServerNumber, named: [&str; 3]) -> Option<ClusterView> {
        let addresses = (1..).zip(named).filter(|(_, address)| !address.is_empty());
        Some(ClusterView {
            server,
            addresses: addresses.map(|(n, host)| (n, (host.to_owned(), 5432))).collect(),
        })
    }

    #[test]
    fn a_server_in_whose_place_the_others_name_another_is_replaced() {
        let (old, new) = (["a", "b", "c"], ["z", "b", "c"]);
        assert_eq!(replaced(&[view(1, old), view(2, old), view(3, old)]), [false; 3]);
        assert_eq!(replaced(&[view(1, old), view(2, new), view(3, new)]), [true, false, false]);
        assert_eq!(replaced(&[view(1, old), view(2, new)]), [true, false]);
        // The promoted one is listed as well, and the old one does not vote on itself.
        assert_eq!(replaced(&[view(1, old), view(1, new), view(2, new)]), [true, false, false]);
        // One that was removed names nobody, or has a number that the others do not know.
        assert_eq!(replaced(&[view(0, ["", "", ""]), view(2, ["", "b", "c"])]), [true, false]);
        assert_eq!(replaced(&[view(1, old), view(2, ["", "b", "c"])]), [true, false]);
    }

    #[test]
    fn a_server_that_was_replaced_does_not_outvote_the_others() {
        // Both 1 and 2 have been replaced, and the old 1 comes back.
        let (old, new) = (["a", "b", "c"], ["z", "y", "c"]);
        assert_eq!(replaced(&[view(1, old), view(2, new), view(3, new)]), [true, false, false]);
        assert_eq!(replaced(&[view(1, old), None, view(3, new)]), [true, false, false]);
        assert_eq!(replaced(&[None, None]), [false; 2]);
        assert_eq!(replaced(&[view(0, [""; 3]), None]), [false; 2], "a cluster without nodes");
    }
}
