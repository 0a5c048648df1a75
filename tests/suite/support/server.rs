//! One running server per backend and test process.

use std::io::{BufRead, BufReader};
use std::path::PathBuf;
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};
use std::sync::OnceLock;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use sha2::{Digest, Sha256};

use super::client::{Account, Client};
use super::nodes::distributed;
use super::postgres::{fresh_database, partition_entities};
use super::until_some;

/// Accounts that a server knows: more than there are cases, so that each case
/// has one to itself.
pub const ACCOUNTS: usize = 1300;

/// Accounts with extended queries, numbered from 1 on.
pub const EXTENDED: usize = 8;

/// How long a server may take to come up.
const START: Duration = Duration::from_secs(60);

/// Where a case runs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Backend {
    Sqlite,
    Postgres,
    /// PostgreSQL that Citus distributes or, where there is no Citus, with `entities` partitioned by
    /// hash. Tables are spread over as many buckets as `ROWHOUSE_TEST_SPREAD` says, 8 unless told.
    Partitioned,
    /// Another server, named by `ROWHOUSE_TEST_ENDPOINT`.
    #[cfg(feature = "external-tests")]
    External,
}

impl Backend {
    /// A client of a fresh account on this backend's server.
    pub fn client(self) -> Client {
        match self {
            Backend::Sqlite => {
                static SERVER: OnceLock<Server> = OnceLock::new();
                SERVER.get_or_init(|| Server::start("sqlite://tables.db", "1")).fresh_client()
            }
            Backend::Postgres => {
                static SERVER: OnceLock<Server> = OnceLock::new();
                SERVER.get_or_init(|| Server::start(&fresh_database(), "1")).fresh_client()
            }
            Backend::Partitioned => {
                static SERVER: OnceLock<Server> = OnceLock::new();
                SERVER.get_or_init(|| Server::start(&partitioned_database(), &spread())).fresh_client()
            }
            #[cfg(feature = "external-tests")]
            Backend::External => external(),
        }
    }
}

fn partitioned_database() -> String {
    if let Some(nodes) = distributed() {
        return nodes.coordinator;
    }
    println!("there is no Citus here: a database that is partitioned by hash stands in");
    let url = fresh_database();
    partition_entities(&url);
    url
}

fn spread() -> String {
    std::env::var("ROWHOUSE_TEST_SPREAD").unwrap_or_else(|_| "8".into())
}

/// A server of our own with its accounts.
pub struct Server {
    process: Process,
    next: AtomicUsize,
}

impl Server {
    fn start(url: &str, spread: &str) -> Self {
        let numbered = (1..=ACCOUNTS).map(account);
        let extended: Vec<Account> = (1..=EXTENDED).map(extended).collect();
        let names: Vec<&str> = extended.iter().map(|account| account.name.as_str()).collect();
        let names = names.join(",");
        let all = numbered.chain([development()]).chain(extended.iter().cloned());
        let accounts: Vec<String> = all.map(|a| a.setting()).collect();
        let accounts = accounts.join(";");
        let address = ["serve", "--listen", "127.0.0.1:0", "--database-url", url];
        let rest = ["--table-spread", spread, "--accounts", &accounts, "--extended-queries", &names];
        let process = Process::spawn(fresh_folder(), &[&address[..], &rest].concat(), &[]);
        Self { process, next: AtomicUsize::new(1) }
    }

    fn fresh_client(&self) -> Client {
        let number = self.next.fetch_add(1, Ordering::Relaxed);
        assert!(number <= ACCOUNTS, "more cases than accounts: raise ACCOUNTS");
        Client::path_style(self.process.address(), account(number))
    }
}

/// The numbered account with its two keys, derived so that every process
/// computes the same.
pub fn account(number: usize) -> Account {
    keyed(format!("acct{number:04}"), &number.to_string())
}

/// An account that has extended queries; tests share them.
pub fn extended(number: usize) -> Account {
    keyed(format!("extended{number:04}"), &format!("extended {number}"))
}

/// The development account, with keys of its own.
pub fn development() -> Account {
    keyed("devstoreaccount1".to_owned(), "development")
}

fn keyed(name: String, seed: &str) -> Account {
    let key = |which: &str| STANDARD.encode(Sha256::digest(format!("{which} key of account {seed}")));
    Account { name, keys: [key("first"), key("second")] }
}

/// A new folder of its own under the system's temporary folder.
pub fn fresh_folder() -> PathBuf {
    tempfile::Builder::new().prefix("rowhouse-suite-").tempdir().expect("a temporary folder").keep()
}

#[cfg(feature = "external-tests")]
fn external() -> Client {
    let need = |name: &str| std::env::var(name).unwrap_or_else(|_| panic!("{name} must be set"));
    let key = need("ROWHOUSE_TEST_KEY");
    let second = std::env::var("ROWHOUSE_TEST_KEY2").unwrap_or_else(|_| key.clone());
    let account = Account { name: need("ROWHOUSE_TEST_ACCOUNT"), keys: [key, second] };
    let endpoint = need("ROWHOUSE_TEST_ENDPOINT");
    let rest = endpoint.strip_prefix("http://").expect("ROWHOUSE_TEST_ENDPOINT begins with http://");
    let (host, root) = rest.split_at(rest.find('/').unwrap_or(rest.len()));
    let port = if host.contains(':') { "" } else { ":80" };
    Client::new(format!("{host}{port}"), host.to_owned(), root.trim_end_matches('/').to_owned(), account)
}

/// A child that cannot outlive this process: a shell waits on a pipe that we
/// hold, and when the pipe closes, for whatever reason, kills the child and
/// removes its folder.
pub struct Process {
    shell: Child,
    leash: Option<ChildStdin>,
    folder: PathBuf,
    /// Lines of standard output up to and including the ones that announce
    /// the address and, unless the program was named Azurite, the connection string.
    pub announced: Vec<String>,
    address: String,
    /// Process id of the server itself.
    pub pid: u32,
    /// Kept open, so that the server never writes into a closed pipe.
    output: BufReader<ChildStdout>,
}

const LEASH: &str = r#"
trap : INT TERM HUP
# A test may bound the size of files, which is then an error and no signal.
trap '' XFSZ
folder=$1; shift
cd "$folder" && rm -f status pid || exit 1
(
  sh -c 'echo $$ >pid; echo "pid $$"; exec "$@"' sh "$@" 2>log </dev/null
  echo $? >status
) &
exec >&-
cat >/dev/null
[ -e status ] || kill -KILL "$(cat pid)" 2>/dev/null
wait
[ -e keep ] || rm -rf "$folder"
"#;

impl Process {
    /// Starts the binary with nothing but the given arguments and variables in
    /// its environment and the folder as its working folder; waits until it
    /// announces its address. There is no admin listener unless they have one.
    pub fn spawn(folder: PathBuf, arguments: &[&str], variables: &[(&str, &str)]) -> Self {
        match Self::try_spawn(folder, arguments, variables) {
            Ok(process) => process,
            Err(log) => panic!("the server did not come up; its log:\n{log}"),
        }
    }

    /// As [`Process::spawn`], but a server that ends instead of coming up
    /// leaves its log.
    pub fn try_spawn(
        folder: PathBuf,
        arguments: &[&str],
        variables: &[(&str, &str)],
    ) -> Result<Self, String> {
        let mut shell = Command::new("sh")
            .args(["-c", LEASH, "sh"])
            .arg(&folder)
            .arg(env!("CARGO_BIN_EXE_rowhouse"))
            .args(arguments)
            .env_clear()
            .env("PATH", std::env::var_os("PATH").unwrap_or_default())
            .env("ROWHOUSE_ADMIN_LISTEN", "")
            .envs(variables.iter().copied())
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::inherit())
            .spawn()
            .expect("a shell starts");
        let leash = shell.stdin.take();
        let output = BufReader::new(shell.stdout.take().expect("the output is piped"));
        let (announced, address) = (Vec::new(), String::new());
        let mut process = Self { shell, leash, folder, announced, address, pid: 0, output };
        match process.read_announcement() {
            Some(address) => process.address = address,
            None => return Err(process.log()),
        }
        Ok(process)
    }

    /// Reads lines until one names the address; `None` if none does in time.
    fn read_announcement(&mut self) -> Option<String> {
        let deadline = Instant::now() + START;
        loop {
            let mut line = String::new();
            if self.output.read_line(&mut line).unwrap_or(0) == 0 || Instant::now() > deadline {
                return None;
            }
            if let Some(number) = line.strip_prefix("pid ") {
                self.pid = number.trim().parse().expect("the shell prints a process id");
                continue;
            }
            self.announced.push(line.trim_end().to_owned());
            if let Some(address) = address_in(&line) {
                if line.starts_with("Rowhouse is ready") {
                    let connection_string = self.next_line();
                    self.announced.push(connection_string);
                }
                return Some(address);
            }
        }
    }

    /// The next line of standard output.
    pub fn next_line(&mut self) -> String {
        let mut line = String::new();
        self.output.read_line(&mut line).expect("a line of the server");
        line.trim_end().to_owned()
    }

    /// A server over a database, with account 1 and these further arguments.
    pub fn serve(database: &str, more: &[&str]) -> Self {
        Self::serve_in(fresh_folder(), database, more)
    }

    /// The same in this folder.
    pub fn serve_in(folder: PathBuf, database: &str, more: &[&str]) -> Self {
        let accounts = account(1).setting();
        let fixed = ["serve", "--listen", "127.0.0.1:0", "--database-url", database, "--accounts", &accounts];
        Self::spawn(folder, &[&fixed[..], more].concat(), &[])
    }

    /// A client of account 1.
    pub fn client(&self) -> Client {
        Client::path_style(self.address(), account(1))
    }

    /// `127.0.0.1:port`.
    pub fn address(&self) -> &str {
        &self.address
    }

    /// What the server has written to standard error so far.
    pub fn log(&self) -> String {
        std::fs::read_to_string(self.folder.join("log")).unwrap_or_default()
    }

    /// Sends a signal by name to the server.
    pub fn signal(&self, name: &str) {
        let status = Command::new("kill").args(["-s", name, &self.pid.to_string()]).status();
        assert!(status.is_ok_and(|s| s.success()), "signal {name} was not delivered");
    }

    /// Waits for the end of the server, whose exit status must be that of success.
    #[track_caller]
    pub fn ends_well(&self) {
        let status = until_some("the end of the server", || {
            std::fs::read_to_string(self.folder.join("status")).ok()?.trim().parse::<i32>().ok()
        });
        assert_eq!(status, 0, "{}", self.log());
    }

    /// Kills the server, but leaves its folder.
    pub fn kill(self) -> PathBuf {
        let folder = self.folder.clone();
        std::fs::write(folder.join("keep"), "").expect("the folder is writable");
        drop(self);
        std::fs::remove_file(folder.join("keep")).expect("the folder is writable");
        folder
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        drop(self.leash.take());
        let _ = self.shell.wait();
    }
}

/// The `127.0.0.1:port` of the line that says where the server listens.
fn address_in(line: &str) -> Option<String> {
    let at = line.find("://127.0.0.1:")? + "://".len();
    let address: String =
        line[at..].chars().take_while(|c| c.is_ascii_digit() || ".:".contains(*c)).collect();
    Some(address.trim_end_matches(['.', ':']).to_owned())
}
