//! A PostgreSQL of its own for each test that takes it away.

use crate::support::ports::free_port;
use crate::support::postgres::{as_ordinary_user, installation};
use crate::support::shell::ClusterShell;

/// A private cluster with the durability that PostgreSQL has by default. It goes
/// with this value, or with the process.
pub struct Cluster {
    shell: ClusterShell,
    url: String,
}

impl Cluster {
    /// Starts one.
    pub fn start() -> Self {
        let programs = installation(&[]).expect(
            "tests that kill PostgreSQL need a local installation (Debian, Ubuntu: apt-get install \
             postgresql; Fedora: dnf install postgresql-server; macOS: brew install postgresql)",
        );
        let port = free_port();
        let mut command = as_ordinary_user();
        let script =
            concat!(include_str!("../support/postmasters.sh"), include_str!("../support/crashable.sh"));
        command.args(["sh", "-c", script, "crashable.sh"]);
        command.arg(&programs).arg(port.to_string());
        let url = format!("postgres://rowhouse@127.0.0.1:{port}/postgres");
        Self { shell: ClusterShell::start(&mut command), url }
    }

    /// Its URL, the same after each start.
    pub fn url(&self) -> &str {
        &self.url
    }

    /// Ends all its processes with SIGKILL.
    pub fn kill(&mut self) {
        self.shell.order("kill");
    }

    /// Shuts it down in an orderly way, open sessions included.
    pub fn stop(&mut self) {
        self.shell.order("stop");
    }

    /// Starts it again as a standby, which follows nobody.
    pub fn demote(&mut self) {
        self.shell.order("demote");
    }

    /// Makes the standby a primary.
    pub fn promote(&mut self) {
        self.shell.order("promote");
    }

    /// Starts it again; returns once it has recovered.
    pub fn start_again(&mut self) {
        self.shell.order("start");
    }
}
