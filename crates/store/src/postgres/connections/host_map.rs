//! Maps the addresses of cluster nodes, as the nodes know each other, to addresses that servers can reach.

use std::collections::BTreeMap;
use std::fmt;

use crate::postgres::connections::host_list::{split_port, with_address};

const MAX_PAIRS: usize = 256;
/// Maximum length of a pair in messages, in characters.
const SHOWN: usize = 80;

#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct NodeAddress {
    pub host: String,
    pub port: u16,
}

impl NodeAddress {
    /// Reads `host:port` or `[address]:port`.
    pub(crate) fn parse(text: &str) -> Option<Self> {
        let (host, port) = split_port(text.trim()).ok()?;
        let port = port?.parse().ok().filter(|port| *port != 0)?;
        (!host.is_empty() && !host.contains(char::is_whitespace))
            .then(|| Self { host: host.to_owned(), port })
    }
}

impl NodeAddress {
    /// Returns the URL of the server at this address, with the user, database and parameters of `other`.
    pub(crate) fn url_like(&self, other: &str) -> String {
        with_address(other, &self.host, self.port)
    }
}

impl fmt::Display for NodeAddress {
    /// Formats the address as the server name in metrics and logs.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}", self.host, self.port)
    }
}

/// Addresses of nodes that servers cannot reach by their names in the Citus catalogue.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct HostMap(BTreeMap<NodeAddress, NodeAddress>);

impl HostMap {
    /// Parses comma-separated pairs `name:port=address:port`. Empty text gives an empty map.
    pub fn parse(text: &str) -> Result<Self, String> {
        let mut map = BTreeMap::new();
        for pair in text.split(',').filter(|_| !text.trim().is_empty()) {
            let shown = || pair.chars().take(SHOWN).collect::<String>();
            let ends =
                pair.split_once('=').map(|(name, to)| (NodeAddress::parse(name), NodeAddress::parse(to)));
            let Some((Some(name), Some(to))) = ends else {
                return Err(format!("{:?} is not name:port=address:port", shown()));
            };
            if map.insert(name, to).is_some() {
                return Err(format!("{:?} names a node a second time", shown()));
            }
        }
        match map.len() <= MAX_PAIRS {
            true => Ok(Self(map)),
            false => Err(format!("at most {MAX_PAIRS} nodes may be named")),
        }
    }

    /// Returns the reachable address of the node that the catalogue lists at `address`.
    pub(crate) fn resolve<'a>(&'a self, address: &'a NodeAddress) -> &'a NodeAddress {
        self.0.get(address).unwrap_or(address)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn address(host: &str, port: u16) -> NodeAddress {
        NodeAddress { host: host.into(), port }
    }

    #[test]
    fn named_nodes_are_reached_elsewhere_and_others_where_they_are() {
        let map = HostMap::parse("worker-1:5432=10.0.0.7:6001, worker-2:5432=[::1]:6002").expect("a map");
        assert_eq!(map.resolve(&address("worker-1", 5432)), &address("10.0.0.7", 6001));
        assert_eq!(map.resolve(&address("worker-2", 5432)), &address("::1", 6002));
        assert_eq!(map.resolve(&address("worker-1", 5433)), &address("worker-1", 5433));
        assert_eq!(HostMap::parse(" "), Ok(HostMap::default()));
    }

    #[test]
    fn another_form_is_refused() {
        for text in [
            "worker",
            "worker:5432",
            "worker=other",
            "worker:5432=other",
            "worker:5432=other:0",
            "worker:5432=other:65536",
            "worker:5432=:5432",
            "worker:5432=a b:5432",
            "worker:5432=::1:5432",
            "worker:5432=[::1]",
            "worker:5432=other:5432,",
            "=",
        ] {
            let refused = HostMap::parse(text).expect_err(text);
            assert!(refused.contains("name:port=address:port"), "{text}: {refused}");
        }
        assert!(HostMap::parse("a:1=b:2,a:1=c:2").expect_err("twice").contains("second time"));
        let many: Vec<String> = (1..=MAX_PAIRS + 1).map(|n| format!("a:{n}=b:{n}")).collect();
        assert!(HostMap::parse(&many.join(",")).expect_err("too many").contains("at most 256"));
        assert!(HostMap::parse(&"x".repeat(1000)).expect_err("long").len() < 200);
    }
}
