//! A PostgreSQL of its own for each test that takes it away.

use std::io::{BufRead, BufReader, Write};
use std::net::TcpListener;
use std::process::{Child, ChildStdin, ChildStdout, Stdio};

use crate::support::postgres::{as_ordinary_user, installation};

/// A private cluster with the durability that PostgreSQL has by default. It goes
/// with this value, or with the process.
pub struct Cluster {
    shell: Child,
    orders: Option<ChildStdin>,
    reports: BufReader<ChildStdout>,
    url: String,
}

impl Cluster {
    /// Starts one.
    pub fn start() -> Self {
        let programs = installation().expect(
            "tests that kill PostgreSQL need a local installation (Debian, Ubuntu: apt-get install \
             postgresql; Fedora: dnf install postgresql-server; macOS: brew install postgresql)",
        );
        let listener = TcpListener::bind("127.0.0.1:0").expect("a free port");
        let port = listener.local_addr().expect("it listens").port();
        drop(listener);
        let mut command = as_ordinary_user();
        command.args(["sh", "-c", include_str!("../support/crashable.sh"), "crashable.sh"]);
        command.arg(&programs).arg(port.to_string());
        let mut shell = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().expect("a shell");
        let orders = shell.stdin.take();
        let mut reports = BufReader::new(shell.stdout.take().expect("the output is piped"));
        let mut folder = String::new();
        reports.read_line(&mut folder).expect("the cluster's folder");
        assert!(!folder.is_empty(), "the cluster did not start");
        let url = format!("postgres://rowhouse@127.0.0.1:{port}/postgres");
        Self { shell, orders, reports, url }
    }

    /// Its URL, the same after each start.
    pub fn url(&self) -> &str {
        &self.url
    }

    /// Ends all its processes with SIGKILL.
    pub fn kill(&mut self) {
        self.order("kill");
    }

    /// Shuts it down in an orderly way, open sessions included.
    pub fn stop(&mut self) {
        self.order("stop");
    }

    /// Starts it again; returns once it has recovered.
    pub fn start_again(&mut self) {
        self.order("start");
    }

    fn order(&mut self, order: &str) {
        let orders = self.orders.as_mut().expect("the shell runs");
        writeln!(orders, "{order}").expect("the shell runs");
        let mut report = String::new();
        self.reports.read_line(&mut report).expect("the shell reports");
        assert_eq!(report, "done\n", "{order} failed");
    }
}

impl Drop for Cluster {
    fn drop(&mut self) {
        drop(self.orders.take());
        let _ = self.shell.wait();
    }
}
