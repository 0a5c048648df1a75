//! A PostgreSQL server for tests: `DATABASE_URL`, or a private cluster of the programs in `POSTGRES_PROGRAMS` or of a
//! local installation.

use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Mutex, OnceLock, PoisonError};
use std::time::{SystemTime, UNIX_EPOCH};

use rowhouse_store::postgres::{PgOptions, PgStore};
use sqlx::{Connection, Executor, PgConnection, Row};

use super::ports::free_port;

/// How many sessions of a database wait for locks. Other tests have databases of their own.
pub const LOCK_WAITERS: &str = "SELECT count(*)::text FROM pg_stat_activity \
                                WHERE datname = current_database() AND wait_event_type = 'Lock'";
const PREFIX: &str = "rowhouse_test_";
/// Databases of runs that began this long ago are left-overs.
const LEFT_OVER: u64 = 3600;

/// URL of a database of the server that all tests of this process share. The
/// server ends with the process, however that ends.
pub fn server_url() -> &'static str {
    static URL: OnceLock<String> = OnceLock::new();
    URL.get_or_init(|| {
        if let Ok(url) = std::env::var("DATABASE_URL") {
            drop_left_overs(&url);
            return url;
        }
        local().unwrap_or_else(|| {
            panic!(
                "these tests need PostgreSQL 14 or newer: set DATABASE_URL, or install it \
                 (Debian, Ubuntu: apt-get install postgresql; Fedora: dnf install postgresql-server; \
                 macOS: brew install postgresql)"
            )
        })
    })
}

/// Creates an empty database and returns its URL.
pub fn fresh_database() -> String {
    static NUMBER: AtomicU32 = AtomicU32::new(0);
    // The server makes one copy of a template at a time.
    static ONE_BY_ONE: Mutex<()> = Mutex::new(());
    let url = server_url();
    let _guard = ONE_BY_ONE.lock().unwrap_or_else(PoisonError::into_inner);
    let number = NUMBER.fetch_add(1, Ordering::Relaxed);
    let name = format!("{PREFIX}{}_{}_{number}", now(), std::process::id());
    execute(url, &format!("CREATE DATABASE {name}"));
    with_database(url, &name)
}

/// Migrates a database and replaces its `entities` by one that is partitioned
/// by hash, as a sharded database would hold it.
pub fn partition_entities(url: &str) {
    migrate(url);
    let mut script = String::from(
        "DROP TABLE entities; CREATE TABLE entities (bucket bigint NOT NULL, pk text COLLATE \"C\" NOT NULL, \
         rk text COLLATE \"C\" NOT NULL, modified bigint NOT NULL, properties jsonb NOT NULL, \
         PRIMARY KEY (bucket, pk, rk)) PARTITION BY HASH (bucket);",
    );
    for n in 0..8 {
        script.push_str(&format!(
            "CREATE TABLE entities_{n} PARTITION OF entities FOR VALUES WITH (MODULUS 8, REMAINDER {n});"
        ));
    }
    execute(url, &script);
}

/// Brings the schema of a database up to date.
pub fn migrate(url: &str) {
    let options = PgOptions::new(url);
    on_a_runtime(async move { PgStore::connect(options).await.map(drop) }).expect("migrations");
}

/// Runs a script on its own connection, from any context.
pub fn execute(url: &str, script: &str) {
    try_execute(url, script).unwrap_or_else(|error| panic!("{script}: {error}"));
}

/// Whether a database has a table of this name.
pub fn has_table(url: &str, name: &str) -> bool {
    count(url, &format!("SELECT count(*) FROM pg_class WHERE relname = '{name}'")) > 0
}

/// The URL with which sessions have the privileges of a role, whatever the way in to the server is.
pub fn as_role(url: &str, role: &str) -> String {
    let mark = if url.contains('?') { '&' } else { '?' };
    format!("{url}{mark}options=-c%20role%3D{role}")
}

/// A role that logs in, reads and writes rows of the tables that are there, and owns and creates nothing.
pub struct Writer {
    owner: String,
    pub role: String,
    /// The database, as this role.
    pub url: String,
}

impl Writer {
    /// Of a database that was migrated.
    pub fn of(owner: &str) -> Self {
        static NUMBER: AtomicU32 = AtomicU32::new(0);
        let role = format!("writer_{}_{}", std::process::id(), NUMBER.fetch_add(1, Ordering::Relaxed));
        let script = format!(
            "CREATE ROLE {role} LOGIN PASSWORD 'p'; REVOKE CREATE ON SCHEMA public FROM public; \
             GRANT SELECT, INSERT, UPDATE, DELETE ON ALL TABLES IN SCHEMA public TO {role}; \
             REVOKE INSERT, UPDATE, DELETE ON _sqlx_migrations FROM {role}"
        );
        execute(owner, &script);
        let rest = owner.split_once("://").expect("a URL").1;
        let place = rest.split_once('@').map_or(rest, |(_, place)| place);
        let url = format!("postgres://{role}:p@{place}");
        Self { owner: owner.to_owned(), role, url }
    }
}

impl Drop for Writer {
    fn drop(&mut self) {
        let role = &self.role;
        // Sessions of servers that were killed may still be there.
        let _ = try_execute(&self.owner, &format!("DROP OWNED BY {role}; DROP ROLE {role}"));
    }
}

/// A session that looks like one of a server or of a command, until it is dropped.
pub struct OpenSession {
    _connection: PgConnection,
    _runtime: tokio::runtime::Runtime,
}

impl OpenSession {
    /// Opens it.
    pub fn of(url: &str) -> Self {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime");
        let connection = runtime.block_on(async {
            let mut connection = PgConnection::connect(url).await.expect("a connection");
            connection.execute("SET application_name = 'rowhouse'").await.expect("a name");
            connection
        });
        Self { _connection: connection, _runtime: runtime }
    }
}

/// The one text that a query returns.
pub fn text(url: &str, query: &str) -> String {
    list(url, query).into_iter().next().expect("a row")
}

/// The one number that a query returns.
pub fn count(url: &str, query: &str) -> i64 {
    text(url, &format!("SELECT ({query})::text")).parse().expect("a number")
}

/// The texts that a query returns.
pub fn list(url: &str, query: &str) -> Vec<String> {
    let (url, query) = (url.to_owned(), query.to_owned());
    on_a_runtime(async move {
        let mut connection = PgConnection::connect(&url).await.expect("a connection");
        let rows = sqlx::query(sqlx::AssertSqlSafe(query)).fetch_all(&mut connection).await.expect("rows");
        rows.iter().map(|row| row.get(0)).collect()
    })
}

/// As [`execute`], and it may fail.
pub fn try_execute(url: &str, script: &str) -> Result<(), sqlx::Error> {
    let (url, script) = (url.to_owned(), script.to_owned());
    on_a_runtime(async move {
        let mut connection = PgConnection::connect(&url).await?;
        connection.execute(sqlx::raw_sql(sqlx::AssertSqlSafe(script))).await?;
        connection.close().await
    })
}

/// A thread of its own, since a caller may be inside a runtime.
fn on_a_runtime<T: Send + 'static>(work: impl Future<Output = T> + Send + 'static) -> T {
    let run = || tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap().block_on(work);
    std::thread::spawn(run).join().expect("database helper")
}

/// The URL of another database of the same server.
pub fn with_database(url: &str, name: &str) -> String {
    let (head, query) = url.split_once('?').map_or((url, ""), |(head, query)| (head, query));
    let authority = head.find("://").map_or(0, |at| at + 3);
    let end = head[authority..].find('/').map_or(head.len(), |at| authority + at);
    let mark = if query.is_empty() { "" } else { "?" };
    format!("{}/{name}{mark}{query}", &head[..end])
}

fn now() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |d| d.as_secs())
}

fn drop_left_overs(url: &str) {
    let names = format!("SELECT datname::text FROM pg_database WHERE starts_with(datname::text, '{PREFIX}')");
    for name in list(url, &names) {
        let made = name[PREFIX.len()..].split('_').next().and_then(|text| text.parse::<u64>().ok());
        if made.is_some_and(|made| made + LEFT_OVER < now()) {
            // Another run may be dropping it as well.
            let _ = try_execute(url, &format!("DROP DATABASE IF EXISTS {name}"));
        }
    }
}

fn local() -> Option<String> {
    let programs = installation(&[])?;
    let port = free_port();
    let mut command = as_ordinary_user();
    command.args(["sh", "-c", include_str!("cluster.sh"), "cluster.sh"]);
    command.arg(&programs).arg(port.to_string());
    let mut child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().ok()?;
    let mut folder = String::new();
    BufReader::new(child.stdout.take()?).read_line(&mut folder).ok()?;
    let folder = folder.trim_end();
    if folder.is_empty() {
        return None;
    }
    static KEPT: OnceLock<Child> = OnceLock::new();
    let _ = KEPT.set(child);
    Some(format!("postgres://rowhouse@localhost:{port}/postgres?host={folder}"))
}

/// The folder that `POSTGRES_PROGRAMS` names.
pub fn named_programs() -> Option<PathBuf> {
    std::env::var_os("POSTGRES_PROGRAMS").filter(|folder| !folder.is_empty()).map(PathBuf::from)
}

/// A folder with `initdb`, `pg_ctl` and these programs: that of `POSTGRES_PROGRAMS`, what `pg_config` says,
/// the newest of Debian's folders, or a folder of PATH.
pub fn installation(also: &[&str]) -> Option<PathBuf> {
    let said = Command::new("pg_config").arg("--bindir").output().ok();
    let said = said.map(|out| PathBuf::from(String::from_utf8_lossy(&out.stdout).trim()));
    let mut packaged: Vec<PathBuf> = std::fs::read_dir("/usr/lib/postgresql")
        .map(|dir| dir.flatten().map(|entry| entry.path().join("bin")).collect())
        .unwrap_or_default();
    packaged.sort_by_key(|path| {
        let version = path.parent().and_then(Path::file_name).and_then(|name| name.to_str());
        std::cmp::Reverse(version.and_then(|name| name.parse::<u32>().ok()))
    });
    let path = std::env::var_os("PATH").unwrap_or_default();
    let needed = [&["initdb", "pg_ctl"], also].concat();
    let folders =
        named_programs().into_iter().chain(said).chain(packaged).chain(std::env::split_paths(&path));
    folders.into_iter().find(|dir| needed.iter().all(|program| dir.join(program).is_file()))
}

/// The client program, of whichever version.
pub fn psql() -> Command {
    Command::new(installation(&["psql"]).map_or_else(|| "psql".into(), |folder| folder.join("psql")))
}

/// A command for an ordinary user, since PostgreSQL refuses to run as root.
pub fn as_ordinary_user() -> Command {
    let root = Command::new("id").arg("-u").output().is_ok_and(|out| out.stdout.trim_ascii() == b"0");
    if !root {
        return Command::new("env");
    }
    let has = |program: &str| {
        let path = std::env::var_os("PATH").unwrap_or_default();
        std::env::split_paths(&path).any(|dir| dir.join(program).is_file())
    };
    let words: &[&str] = if has("setpriv") {
        &["setpriv", "--reuid=postgres", "--regid=postgres", "--init-groups"]
    } else {
        &["runuser", "-u", "postgres", "--"]
    };
    let mut command = Command::new(words[0]);
    command.args(&words[1..]);
    command
}
