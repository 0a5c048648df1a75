//! A PostgreSQL with a synchronous standby, for each test that promotes it.

use crate::support::ports::free_port;
use crate::support::postgres::{as_ordinary_user, installation};
use crate::support::proxy::Proxy;
use crate::support::shell::ClusterShell;

/// Servers 0 and 1, of which 0 is the primary at first, each behind a road of its own.
pub struct Pair {
    shell: ClusterShell,
    pub roads: [Proxy; 2],
    ports: [String; 2],
}

impl Pair {
    /// Starts both; returns once the standby is synchronous.
    pub fn start() -> Self {
        let programs = installation(&["psql", "pg_basebackup", "pg_rewind"])
            .expect("tests that promote standbys need a local PostgreSQL");
        let ports = [(); 2].map(|()| free_port().to_string());
        let mut command = as_ordinary_user();
        let script = concat!(include_str!("../support/postmasters.sh"), include_str!("../support/pair.sh"));
        command.args(["sh", "-c", script, "pair.sh"]);
        command.arg(&programs).args(&ports);
        let shell = ClusterShell::start(&mut command);
        let roads =
            [0, 1].map(|server: usize| Proxy::to(&format!("postgres://127.0.0.1:{}/", ports[server])));
        Self { shell, roads, ports }
    }

    /// A URL that lists the servers in this order, and wants such sessions.
    pub fn url(&self, order: [usize; 2], wanted: &str) -> String {
        let [first, second] = order.map(|server| self.roads[server].port());
        let hosts = format!("127.0.0.1:{first},127.0.0.1:{second}");
        format!("postgres://rowhouse@{hosts}/postgres?target_session_attrs={wanted}")
    }

    /// A URL of one server, past its road.
    pub fn direct_url(&self, server: usize) -> String {
        format!("postgres://rowhouse@127.0.0.1:{}/postgres", self.ports[server])
    }

    /// Does something to a server: `kill`, `freeze`, `thaw`, `promote`, `restrict` to have its sessions only
    /// read, or `rewind` to have it follow the other one.
    pub fn order(&mut self, order: &str, server: usize) {
        self.shell.order(&format!("{order} {server}"));
    }
}
