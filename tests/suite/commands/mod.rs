//! The commands besides `serve`, as an operator runs them.

mod accounts;
mod all_accounts;
mod asking;
mod backing_up;
mod checking;
mod copying;
mod cosmos_proxy;
mod cutting_over;
mod deleting_extra;
mod distances;
mod distributing;
mod document;
mod doubles;
mod doubtful_files;
mod dumping;
mod endless_sources;
mod expiring;
mod explaining;
mod faulty_proxy;
mod files;
mod following;
mod index_builds;
pub mod indexing;
mod least_privileges;
mod locking;
mod messages;
mod moving;
mod piping;
mod read_only;
mod reading_files;
mod resealing;
mod resuming;
mod sas;
mod terminal;
mod totals;
mod undeleting;
mod undoing;
mod unexpected_answers;
mod viewing;

use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output};
use std::time::Duration;

use serde_json::Value;

use crate::process::run;
use crate::support::client::Account;
use crate::support::postgres::{execute, fresh_database};
use crate::support::server::{Process, fresh_folder};
use crate::support::*;

/// 32 bytes in base64.
pub const MASTER: &str = "MDEyMzQ1Njc4OTAxMjM0NTY3ODkwMTIzNDU2Nzg5MDE=";
pub const OTHER_MASTER: &str = "YWJjZGVmZ2hpamtsbW5vcHFyc3R1dnd4eXphYmNkZWY=";

/// The number of migrations, which is the version of the schema.
fn migrations() -> usize {
    let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/crates/store/migrations/postgres");
    std::fs::read_dir(folder).expect("the migrations").count()
}

/// A database and a folder to run commands in.
pub struct Site {
    pub folder: PathBuf,
    pub url: String,
}

impl Site {
    pub fn sqlite() -> Self {
        let folder = fresh_folder();
        let url = format!("sqlite://{}", folder.join("tables.db").display());
        Self { folder, url }
    }

    pub fn postgres() -> Self {
        Self { folder: fresh_folder(), url: fresh_database() }
    }

    pub fn both() -> [Self; 2] {
        [Self::sqlite(), Self::postgres()]
    }

    /// Runs a command with the database and the master key in its environment.
    pub fn run(&self, arguments: &[&str]) -> Output {
        self.run_with(arguments, &[("ROWHOUSE_MASTER_KEY", MASTER)])
    }

    pub fn run_with(&self, arguments: &[&str], variables: &[(&str, &str)]) -> Output {
        let variables = [&[("DATABASE_URL", self.url.as_str())], variables].concat();
        run(&self.folder, arguments, &variables)
    }

    /// The JSON that a command prints when it succeeds.
    #[track_caller]
    pub fn json(&self, arguments: &[&str]) -> Value {
        printed(&self.run(&[arguments, &["--json"]].concat()))
    }

    /// Demands that a command fails with one line that holds these words.
    #[track_caller]
    pub fn fails(&self, arguments: &[&str], words: &[&str]) {
        failed(&self.run(arguments), words);
    }

    /// Demands that a command ends with this status and says these words, on either output.
    #[track_caller]
    pub fn ends(&self, arguments: &[&str], status: i32, words: &[&str]) -> Output {
        let output = self.run(arguments);
        assert_eq!(output.status.code(), Some(status), "{output:?}");
        let said = [&output.stderr[..], &output.stdout].concat();
        let said = String::from_utf8_lossy(&said);
        words.iter().for_each(|word| assert!(said.contains(word), "{word:?} in {said:?}"));
        output
    }

    /// Writes a file to its folder.
    pub fn write(&self, file: impl AsRef<Path>, content: impl AsRef<[u8]>) {
        let path = self.folder.join(file);
        std::fs::create_dir_all(path.parent().expect("a folder")).expect("a folder");
        std::fs::write(path, content).expect("a file");
    }

    /// The text of a file of its folder.
    pub fn read(&self, file: impl AsRef<Path>) -> String {
        std::fs::read_to_string(self.folder.join(file)).expect("a file")
    }

    pub fn is_sqlite(&self) -> bool {
        self.url.starts_with("sqlite")
    }

    /// Runs statements in its database.
    pub fn execute(&self, script: &str) {
        match self.url.strip_prefix("sqlite://") {
            Some(file) => {
                let database = rusqlite::Connection::open(file).expect("the file opens");
                database.execute_batch(script).expect("the statements run");
            }
            None => execute(&self.url, script),
        }
    }

    /// A server on a free port, with the accounts of the database.
    pub fn server(&self, more: &[&str]) -> Process {
        let arguments = ["serve", "--listen", "127.0.0.1:0", "--database-url", &self.url];
        let master = ["--master-key", MASTER];
        Process::spawn(fresh_folder(), &[&arguments[..], &master, more].concat(), &[])
    }

    /// A server with account 1 beside those of the database, and a client of that account.
    pub fn served(&self, more: &[&str]) -> (Process, Client) {
        let server = self.server(&[&["--accounts", &server::account(1).setting()], more].concat());
        let client = server.client();
        (server, client)
    }
}

impl Drop for Site {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.folder);
    }
}

/// The messages of a command, without the progress that it reports every few seconds.
fn messages(output: &Output) -> String {
    let said = String::from_utf8_lossy(&output.stderr);
    said.split_inclusive('\n').filter(|line| !line.contains(" tables read, ")).collect()
}

#[track_caller]
pub fn printed(output: &Output) -> Value {
    assert!(output.status.success(), "{output:?}");
    assert_eq!(messages(output), "");
    serde_json::from_slice(&output.stdout).unwrap_or_else(|error| panic!("{error}: {output:?}"))
}

#[track_caller]
pub fn failed(output: &Output, words: &[&str]) {
    let said = messages(output);
    assert_eq!(output.status.code(), Some(1), "{output:?}");
    assert_eq!(said.lines().count(), 1, "one line is enough: {said}");
    for word in words {
        assert!(said.contains(word), "{word:?} in {said:?}");
    }
}

/// Demands that a server does not start, for a reason that is its last line.
#[track_caller]
pub fn not_started(output: &Output, words: &[&str]) {
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    let last = said.lines().last().unwrap_or_default();
    assert_eq!(output.status.code(), Some(1), "{output:?}");
    assert!(words.iter().all(|word| last.contains(word)), "{words:?} in {last:?}");
}

/// The account that a command has printed.
pub fn account_of(printed: &Value) -> Account {
    let key = |at: usize| printed["keys"][at].as_str().expect("a key").to_owned();
    Account { name: printed["name"].as_str().expect("a name").into(), keys: [key(0), key(1)] }
}

/// The status of a small request that is signed with one of the keys.
pub fn status(server: &Process, account: &Account, key: usize) -> u16 {
    let client = Client::path_style(server.address(), account.clone());
    let auth = if key == 0 { Auth::SharedKey } else { Auth::SecondKey };
    client.request("GET", "/Tables").auth(auth).unchecked().send().status
}

/// A shell that runs a script with `rowhouse` in its path, and ends at the first command that fails.
fn bash(folder: &Path, script: &str) -> Command {
    let programs = Path::new(env!("CARGO_BIN_EXE_rowhouse")).parent().expect("a folder");
    let path = format!("{}:{}", programs.display(), std::env::var("PATH").unwrap_or_default());
    let mut command = Command::new("bash");
    command.args(["-ec", script]).current_dir(folder).env_clear().env("PATH", path);
    command
}

/// A command line of the binary in a folder, where no file may grow beyond so many blocks of 512 bytes, as on a disk
/// without room; the signal for it is ignored.
fn without_room(folder: &Path, blocks: u32, arguments: &[&str]) -> Command {
    let limited = format!("trap '' XFSZ; ulimit -f {blocks}; exec \"$@\"");
    let mut command = Command::new("sh");
    command.args(["-c", &limited, "sh", env!("CARGO_BIN_EXE_rowhouse")]).args(arguments).current_dir(folder);
    command
}

/// Sends a signal to a process.
fn signal(child: &Child, name: &str) {
    let sent = Command::new("kill").args(["-s", name, &child.id().to_string()]).status();
    assert!(sent.expect("kill").success());
}

/// Whether some file of a folder holds these bytes.
pub fn holds(folder: &Path, bytes: &[u8]) -> bool {
    let files = std::fs::read_dir(folder).expect("a folder");
    files
        .flatten()
        .filter_map(|file| std::fs::read(file.path()).ok())
        .any(|content| content.windows(bytes.len()).any(|window| window == bytes))
}
