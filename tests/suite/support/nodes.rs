//! A Citus cluster for tests: that of `CITUS_URL`, its coordinator, or a private one of a local
//! installation that has the extension. `CITUS_PROGRAMS` names its folder of programs, if it is not
//! the installation that all other tests use. Tests use a private one as an ordinary role that owns
//! its databases; only what needs a superuser is done by one.

use std::path::PathBuf;
use std::process::Command;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Mutex, OnceLock, PoisonError};

use super::ports::free_port;
use super::postgres::{as_ordinary_user, execute, installation, list, text, with_database};
use super::shell::ClusterShell;

/// Workers of a cluster of ours.
pub const WORKERS: usize = 2;

/// User and password of the ordinary role, and of the superuser, in URLs of a private cluster.
const OWNER: &str = "rowhouse:rowhouse@";
const SUPERUSER: &str = "admin:admin@";

/// The URL with which a private cluster is administered. The role of another one may do everything.
pub fn as_superuser(url: &str) -> String {
    url.replacen(OWNER, SUPERUSER, 1)
}

/// A database on each node of a cluster.
#[derive(Debug, Clone)]
pub struct Nodes {
    /// Its URL on the coordinator.
    pub coordinator: String,
    /// Its URLs on the workers.
    pub workers: Vec<String>,
}

impl Nodes {
    /// An empty database on each node of the cluster that all tests of this process share; `None`
    /// where there is no Citus, which is said once.
    pub fn fresh() -> Option<Self> {
        static SHARED: OnceLock<Option<String>> = OnceLock::new();
        let coordinator = SHARED.get_or_init(|| {
            let given = std::env::var("CITUS_URL").ok().filter(|url| !url.is_empty());
            let found = given.or_else(|| PrivateCluster::start().map(PrivateCluster::keep));
            if found.is_none() {
                println!("there is no Citus here: set CITUS_URL or CITUS_PROGRAMS to test with one");
            }
            found
        });
        coordinator.as_deref().map(Self::of)
    }

    /// Migrates the database and distributes its tables.
    pub fn distribute(&self) {
        for command in ["migrate", "distribute"] {
            let mut program = Command::new(env!("CARGO_BIN_EXE_rowhouse"));
            let output =
                program.args([command, "--database-url", &self.coordinator]).output().expect("it runs");
            assert!(output.status.success(), "{command}: {output:?}");
        }
    }

    /// An empty database on each node of this coordinator's cluster.
    pub fn of(coordinator: &str) -> Self {
        static NUMBER: AtomicU32 = AtomicU32::new(0);
        // The server makes one copy of a template at a time.
        static ONE_BY_ONE: Mutex<()> = Mutex::new(());
        let _guard = ONE_BY_ONE.lock().unwrap_or_else(PoisonError::into_inner);
        let name = format!("rowhouse_test_{}_{}", std::process::id(), NUMBER.fetch_add(1, Ordering::Relaxed));
        let nodes = "SELECT nodename || ' ' || nodeport FROM pg_dist_node WHERE isactive ORDER BY groupid";
        let nodes: Vec<(String, String)> = list(coordinator, nodes)
            .iter()
            .map(|node| node.split_once(' ').expect("a name and a port"))
            .map(|(host, port)| (host.to_owned(), port.to_owned()))
            .collect();
        let urls: Vec<String> =
            nodes.iter().map(|(host, port)| with_database(&at(coordinator, host, port), &name)).collect();
        for ((host, port), url) in nodes.iter().zip(&urls) {
            let there = at(coordinator, host, port);
            let owner = text(&there, "SELECT quote_ident(current_user)");
            execute(&as_superuser(&there), &format!("CREATE DATABASE {name} OWNER {owner}"));
            execute(&as_superuser(url), "CREATE EXTENSION citus");
        }
        register(&urls[0], &nodes);
        Self { coordinator: urls[0].clone(), workers: urls[1..].to_vec() }
    }
}

fn register(coordinator: &str, nodes: &[(String, String)]) {
    let coordinator = &as_superuser(coordinator);
    let (host, port) = &nodes[0];
    execute(coordinator, &format!("SELECT citus_set_coordinator_host('{host}', {port})"));
    for (host, port) in &nodes[1..] {
        execute(coordinator, &format!("SELECT citus_add_node('{host}', {port})"));
    }
}

/// A URL with another host and port.
fn at(url: &str, host: &str, port: &str) -> String {
    let (head, rest) = url.split_once("://").expect("a URL");
    let (authority, path) = rest.split_once('/').expect("a URL with a database");
    let user = authority.rsplit_once('@').map_or(String::new(), |(user, _)| format!("{user}@"));
    format!("{head}://{user}{host}:{port}/{path}")
}

/// A cluster of this process, whose nodes tests may take away.
pub struct PrivateCluster {
    shell: ClusterShell,
    url: String,
}

impl PrivateCluster {
    /// Starts one, with its nodes registered in the database `postgres`; `None` where no
    /// installation has the extension.
    pub fn start() -> Option<Self> {
        let programs = programs()?;
        let ports: Vec<String> = (0..=WORKERS).map(|_| free_port().to_string()).collect();
        let mut command = as_ordinary_user();
        let script = concat!(include_str!("postmasters.sh"), include_str!("citus.sh"));
        command.args(["sh", "-c", script, "citus.sh"]).arg(&programs).args(&ports);
        let shell = ClusterShell::start(&mut command);
        // Citus makes certificates that TLS of ours refuses.
        let urls: Vec<String> = ports
            .iter()
            .map(|port| format!("postgres://{OWNER}127.0.0.1:{port}/postgres?sslmode=disable"))
            .collect();
        urls.iter().for_each(|url| execute(&as_superuser(url), "CREATE EXTENSION citus"));
        let nodes: Vec<(String, String)> =
            ports.iter().map(|port| ("127.0.0.1".to_owned(), port.clone())).collect();
        register(&urls[0], &nodes);
        Some(Self { shell, url: urls[0].clone() })
    }

    /// The URL of the database `postgres` on its coordinator.
    pub fn url(&self) -> &str {
        &self.url
    }

    /// Keeps it until the process ends; returns its URL.
    fn keep(self) -> String {
        static KEPT: OnceLock<Mutex<PrivateCluster>> = OnceLock::new();
        let url = self.url.clone();
        let _ = KEPT.set(Mutex::new(self));
        url
    }

    /// Ends all processes of a node with SIGKILL. Node 0 is the coordinator.
    pub fn kill(&mut self, node: usize) {
        self.shell.order(&format!("kill {node}"));
    }

    /// Starts a node again; returns once it has recovered.
    pub fn start_again(&mut self, node: usize) {
        self.shell.order(&format!("start {node}"));
    }

    /// Has a node refuse connections of the ordinary role, and ends those that are open.
    pub fn refuse(&mut self, node: usize) {
        self.shell.order(&format!("refuse {node}"));
    }

    /// Has a node accept connections again.
    pub fn admit(&mut self, node: usize) {
        self.shell.order(&format!("admit {node}"));
    }

    /// Stops a node, and starts it as a standby, with the rows that it has now.
    pub fn demote(&mut self, node: usize) {
        self.shell.order(&format!("stop {node}"));
        self.shell.order(&format!("recover {node}"));
    }

    /// Starts a synchronous standby of a node, as node 3; returns its port.
    pub fn shadow(&mut self, node: usize) -> u16 {
        let port = free_port();
        self.shell.order(&format!("shadow {node} {port}"));
        port
    }

    /// Makes a standby a primary.
    pub fn promote(&mut self, node: usize) {
        self.shell.order(&format!("promote {node}"));
    }

    /// Stops all processes of a node by SIGSTOP: its connections stay open, and nothing answers.
    pub fn freeze(&mut self, node: usize) {
        self.shell.order(&format!("freeze {node}"));
    }

    /// Lets them go on.
    pub fn thaw(&mut self, node: usize) {
        self.shell.order(&format!("thaw {node}"));
    }
}

/// The programs of a PostgreSQL that has the extension.
fn programs() -> Option<PathBuf> {
    let given = std::env::var_os("CITUS_PROGRAMS").map(PathBuf::from);
    let programs = given.or_else(|| installation(&["psql"]))?;
    let said = Command::new(programs.join("pg_config")).arg("--sharedir").output().ok()?;
    let shared = PathBuf::from(String::from_utf8_lossy(&said.stdout).trim());
    shared.join("extension/citus.control").is_file().then_some(programs)
}

/// An empty database whose tables are distributed; `None` where there is no Citus.
pub fn distributed() -> Option<Nodes> {
    let nodes = Nodes::fresh()?;
    nodes.distribute();
    Some(nodes)
}

/// Bytes of this table that a node has for itself.
pub fn local_bytes(url: &str, table: &str) -> i64 {
    text(url, &format!("SELECT pg_relation_size('{table}')::text")).parse().expect("a number")
}
