//! A shell that runs a private PostgreSQL, and takes orders on its standard input.

use std::io::{BufRead, BufReader, Write};
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};

/// The shell. What it runs goes with this value, or with the process.
pub struct ClusterShell {
    shell: Child,
    orders: Option<ChildStdin>,
    reports: BufReader<ChildStdout>,
}

impl ClusterShell {
    /// Starts the command; returns once the shell has named the folder of the cluster.
    pub fn start(command: &mut Command) -> Self {
        let mut shell = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().expect("a shell");
        let orders = shell.stdin.take();
        let reports = BufReader::new(shell.stdout.take().expect("the output is piped"));
        let mut started = Self { shell, orders, reports };
        assert!(!started.report().is_empty(), "the cluster did not start");
        started
    }

    /// Gives an order; returns once it is done.
    pub fn order(&mut self, order: &str) {
        let orders = self.orders.as_mut().expect("the shell runs");
        writeln!(orders, "{order}").expect("the shell runs");
        assert_eq!(self.report(), "done\n", "{order} failed");
    }

    fn report(&mut self) -> String {
        let mut report = String::new();
        self.reports.read_line(&mut report).expect("the shell reports");
        report
    }
}

impl Drop for ClusterShell {
    fn drop(&mut self) {
        drop(self.orders.take());
        let _ = self.shell.wait();
    }
}
