//! The settings of the store, and those of every session.

use std::borrow::Cow;
use std::fmt;
use std::str::FromStr;
use std::time::Duration;

use sqlx::migrate::MigrateError;
use sqlx::postgres::PgConnectOptions;
use sqlx::{AssertSqlSafe, ConnectOptions, Executor as _, PgConnection};

use crate::postgres::connections::host_map::HostMap;
use crate::postgres::fault::has_code;
use crate::postgres::statements;

/// Maximum buckets of a new table. Each one adds an index scan to a scan of the whole table.
pub(crate) const MAX_SPREAD: u16 = 64;
/// The longest allowed timeout of statements. The purge relies on no transaction lasting longer than its
/// grace period.
pub(crate) const MAX_OPERATION_TIMEOUT: Duration = Duration::from_secs(120);
/// Maximum prepared statements of a connection: the fixed ones, and those with short filters.
const MAX_PREPARED: usize = 64;

/// Settings of a [`crate::postgres::PgStore`].
#[derive(Debug, Clone)]
pub struct PgOptions {
    /// `postgres://…`. For a Unix socket, its folder is the percent-encoded host, or `?host=`. Of Citus, one or
    /// several nodes, separated by commas, from whose catalogue the others are known.
    pub url: String,
    /// The URL for migrations, if it differs: the coordinator of a sharded database, or the database behind
    /// a connection pooler.
    pub migrate_url: Option<String>,
    /// How nodes of Citus are reached that have other addresses among themselves.
    pub cluster_hosts: HostMap,
    /// Maximum connections; at least 1.
    pub max_connections: u32,
    /// Buckets of new tables; 1 to `MAX_SPREAD`. More than 1 is for sharded databases only.
    pub spread: u16,
    /// How long a request waits for its turn, and how long for a new connection, before it fails as `Busy`.
    pub acquire_timeout: Duration,
    /// Timeout of one statement; at most `MAX_OPERATION_TIMEOUT`.
    pub operation_timeout: Duration,
    /// After this time idle connections are closed, except for a few.
    pub idle_timeout: Duration,
    /// Connections are closed when they are this old, or up to a quarter older.
    pub max_lifetime: Duration,
    /// Whether concurrent requests share statements. Each worker thread then has two more connections, one
    /// for point reads and one for single writes; up to eight of each where Citus spreads the entities over
    /// several servers.
    pub coalesce: bool,
}

impl PgOptions {
    /// Returns the defaults.
    pub fn new(url: impl Into<String>) -> Self {
        Self {
            url: url.into(),
            migrate_url: None,
            cluster_hosts: HostMap::default(),
            max_connections: 32,
            spread: 1,
            acquire_timeout: Duration::from_secs(5),
            operation_timeout: Duration::from_secs(30),
            idle_timeout: Duration::from_secs(120),
            max_lifetime: Duration::from_secs(1800),
            coalesce: true,
        }
    }

    /// The URLs of the listed servers. A comma that no URL follows belongs to the one before.
    pub fn urls(&self) -> Vec<&str> {
        listed(&self.url)
    }

    /// Where migrations run: the first listed server, unless another is given.
    pub(crate) fn migration_url(&self) -> &str {
        self.migrate_url.as_deref().unwrap_or_else(|| self.first_url())
    }

    /// The first listed server.
    pub(crate) fn first_url(&self) -> &str {
        self.urls().first().copied().unwrap_or_default()
    }

    pub(crate) fn check(&self) -> Result<(), StartError> {
        let refuse = |text: &str| Err(StartError::Options(text.into()));
        if self.max_connections == 0 {
            return refuse("at least one connection is needed");
        }
        if !(1..=MAX_SPREAD).contains(&self.spread) {
            return refuse("the spread must be between 1 and 64");
        }
        if self.operation_timeout.is_zero() || self.operation_timeout > MAX_OPERATION_TIMEOUT {
            return refuse("the operation timeout must be more than 0 and at most 120 seconds");
        }
        Ok(())
    }

    pub(crate) fn connect_options(url: &str) -> Result<PgConnectOptions, StartError> {
        let options = PgConnectOptions::from_str(&with_host(url)).map_err(StartError::Url)?;
        // A connection pooler refuses start-up parameters that it does not know.
        Ok(options
            .extra_float_digits(None)
            .application_name("rowhouse")
            .statement_cache_capacity(MAX_PREPARED)
            .disable_statement_logging())
    }

    /// The timeout of a statement's wait for a locked row.
    pub(crate) fn lock_timeout(&self) -> Duration {
        Duration::from_millis((self.operation_timeout.as_millis().div_ceil(3)).try_into().unwrap_or(u64::MAX))
    }

    /// Returns the statements that each session starts with. Plans are generic and use indexes: otherwise
    /// a plan that was made while a table was small would stay a full scan. The database detects within a
    /// minute that this server is unreachable, and ends its abandoned sessions.
    pub fn session(&self) -> String {
        let operation = self.operation_timeout.as_millis();
        format!(
            "SET plan_cache_mode = force_generic_plan; SET jit = off; SET enable_seqscan = off; \
             SET enable_bitmapscan = off; SET enable_hashjoin = off; SET enable_mergejoin = off; \
             SET standard_conforming_strings = on; \
             SET default_transaction_isolation = 'read committed'; \
             SET statement_timeout = {operation}; SET idle_in_transaction_session_timeout = {operation}; SET tcp_keepalives_idle = 30; \
             SET tcp_keepalives_interval = 10; SET tcp_keepalives_count = 3; {DURABLE}; {NO_TRANSACTION_TIMEOUT}"
        )
    }
}

/// A commit waits for the disk, and for what the standbys have applied where the database is set so.
const DURABLE: &str = "SELECT set_config('synchronous_commit', \
     CASE current_setting('synchronous_commit') WHEN 'remote_apply' THEN 'remote_apply' ELSE 'on' END, false)";

/// Timeouts of statements are enough. This one, which PostgreSQL 17 and newer have, would end a session in the middle
/// of a page, a purge, a migration or the build of an index.
pub(crate) const NO_TRANSACTION_TIMEOUT: &str = "SELECT set_config('transaction_timeout', '0', false) \
     WHERE current_setting('transaction_timeout', true) IS NOT NULL";

/// How often the database looks whether the client of a long command is still there.
pub(crate) const CLIENT_CHECK: Duration = Duration::from_secs(2);

/// Has the database end the statements of a session within this time after their client has gone. Not every system
/// that PostgreSQL runs on can notice that.
pub(crate) async fn end_if_abandoned(db: &mut PgConnection, within: Duration) -> Result<(), sqlx::Error> {
    // A fixed text that contains only our own number.
    let check = format!("SET client_connection_check_interval = {}", within.as_millis());
    match db.execute(sqlx::raw_sql(AssertSqlSafe(check))).await {
        Ok(_) | Err(sqlx::Error::Database(_)) => Ok(()),
        Err(error) => Err(error),
    }
}

/// A URL with a host after the user, where libpq takes that of the parameters.
fn with_host(url: &str) -> Cow<'_, str> {
    let authority = url.find("://").map_or(0, |at| at + 3);
    let end = url[authority..].find(['/', '?']).map_or(url.len(), |at| authority + at);
    if !url[authority..end].ends_with('@') {
        return url.into();
    }
    format!("{}localhost{}", &url[..end], &url[end..]).into()
}

/// The URLs of a list.
fn listed(list: &str) -> Vec<&str> {
    let is_start = |at: &usize| {
        let rest = &list[at + 1..];
        rest.starts_with("postgres://") || rest.starts_with("postgresql://")
    };
    let mut urls = Vec::new();
    let mut start = 0;
    for end in list.match_indices(',').map(|(at, _)| at).filter(is_start) {
        urls.push(&list[start..end]);
        start = end + 1;
    }
    urls.push(&list[start..]);
    urls
}

/// Why a store could not be opened, for the operator who starts the server.
#[derive(Debug, thiserror::Error)]
pub enum StartError {
    #[error("invalid database settings: {0}")]
    Options(String),
    #[error("invalid database URL: {0}")]
    Url(#[source] sqlx::Error),
    #[error("cannot connect: {}", database_message(.0))]
    Connect(#[source] sqlx::Error),
    #[error("the role of the database URL may not do this: {}", database_message(.0))]
    Forbidden(#[source] sqlx::Error),
    #[error("the database did not answer within {0:?}")]
    ConnectTimeout(Duration),
    #[error("cannot migrate the database: {}", message_of_migration(.0))]
    Migrate(#[source] MigrateError),
    #[error(
        "the database is a worker of a Citus cluster, and its schema is not current; migrations run \
         through the coordinator: give the coordinator's URL as --migrate-url"
    )]
    Worker,
    #[error(
        "the schemas {0} on the search_path of the role all have tables of Rowhouse with data; choose one \
         of them: ALTER ROLE … SET search_path = …"
    )]
    Schemas(String),
    #[error(
        "a connection pooler before the database shares sessions among connections, so settings of sessions \
         are lost, such as synchronous_commit; give each connection its own session (PgBouncer: pool_mode = \
         session)"
    )]
    SharedSessions,
    #[error(
        "the schema {schema} has a table {table} of another program; give Rowhouse a schema of its own: CREATE SCHEMA \
         rowhouse; ALTER ROLE … SET search_path = rowhouse"
    )]
    Foreign { schema: String, table: &'static str },
    #[error(
        "the encoding of the database is {0}, which cannot store every text; create a database with ENCODING 'UTF8' \
         TEMPLATE template0"
    )]
    Encoding(String),
    #[error("the database has no tables of Rowhouse; see that the URL names the right database")]
    NoTables,
    #[error(
        "the database has schema version {0}, which this program cannot read: run `rowhouse migrate` first"
    )]
    Outdated(i64),
    #[error("cannot distribute tables that were added: {0}")]
    Distribute(String),
}

/// How TLS reports a certificate of X.509 version 1, whether or not certificates are verified.
const OLD_CERTIFICATE: &str = "UnsupportedCertVersion";

/// The failure of a statement on a connection that was opened.
impl From<sqlx::Error> for StartError {
    fn from(error: sqlx::Error) -> Self {
        if has_code(&error, &["42501"]) { StartError::Forbidden(error) } else { StartError::Connect(error) }
    }
}

impl StartError {
    /// What to do, where that is known of this error.
    pub fn advice(&self) -> Option<&'static str> {
        match self {
            StartError::Forbidden(_) => {
                Some("grant the role what the message names, or give the URL of a role that has it")
            }
            StartError::SharedSessions => Some("change the pooler, or give the URL of the database itself"),
            StartError::Foreign { .. } | StartError::Encoding(_) => {
                Some("do as the message says, or give another URL")
            }
            StartError::Connect(error) if error_code(error).as_deref() == Some(NO_DATABASE) => {
                Some("create it with `createdb`, or correct its name in the URL")
            }
            StartError::Connect(error)
                if error_code(error).is_some_and(|code| code.starts_with(REFUSED_LOGIN)) =>
            {
                Some(
                    "see that the user and the password of the URL are right, and that pg_hba.conf lets the user in",
                )
            }
            StartError::Connect(error @ sqlx::Error::Io(_)) if !has_old_certificate(error) => {
                Some("see that PostgreSQL runs there, and that the host and the port of the URL are right")
            }
            StartError::Connect(error) if has_old_certificate(error) => Some(
                "give every node a certificate of version 3 (ssl_cert_file, ssl_key_file), or add ?sslmode=disable to \
                 the URL if the network is trusted",
            ),
            StartError::Connect(sqlx::Error::Tls(_)) => Some(
                "see that ?sslrootcert= names the file of the CA that signed the database's certificate, and that the \
                 certificate names the host",
            ),
            _ => None,
        }
    }
}

/// The error codes of PostgreSQL for a database that does not exist, and the class of those for a refused login.
const NO_DATABASE: &str = "3D000";
const REFUSED_LOGIN: &str = "28";

fn error_code(error: &sqlx::Error) -> Option<String> {
    error.as_database_error().and_then(|error| error.code()).map(|code| code.into_owned())
}

fn has_old_certificate(error: &sqlx::Error) -> bool {
    matches!(error, sqlx::Error::Io(_) | sqlx::Error::Tls(_)) && error.to_string().contains(OLD_CERTIFICATE)
}

/// Returns the message of PostgreSQL, without the line of its source that sqlx adds.
pub(crate) fn database_message(error: &sqlx::Error) -> String {
    if has_old_certificate(error) {
        return "the database's certificate is of X.509 version 1, which TLS refuses; Citus makes such by itself".into();
    }
    match error {
        sqlx::Error::Io(error) => error.to_string(),
        error => {
            error.as_database_error().map_or_else(|| error.to_string(), |error| error.message().to_owned())
        }
    }
}

fn message_of_migration(error: &MigrateError) -> String {
    match error {
        MigrateError::Execute(inner) => {
            format!("{}{}", database_message(inner), hint(error_code(inner).as_deref()))
        }
        other => other.to_string(),
    }
}

/// Advice for errors of PostgreSQL whose cause is not obvious: with shared sessions, prepared statements
/// are missing, or belong to others.
fn hint(code: Option<&str>) -> &'static str {
    match code {
        Some("26000" | "42P05") => {
            "; a connection pooler must give each connection a session of its own (PgBouncer: pool_mode = session)"
        }
        Some("25006") => "; the URL leads to a standby, or to sessions that only read",
        _ => "",
    }
}

/// Connections besides those of requests: one for readiness probes, one that cancels statements, one that builds or
/// removes indexes, and briefly one that checks whether the database still answers and one that looks what a build
/// waits for.
const BESIDES: u32 = 5;
/// Lanes of each thread: one for point reads, one for single writes.
const LANES: u32 = 2;

impl PgOptions {
    /// Returns the maximum number of connections that a server with this many threads opens.
    pub fn most_connections(&self, threads: u32) -> u32 {
        let lanes = if self.coalesce { LANES.saturating_mul(threads) } else { 0 };
        self.max_connections.saturating_add(lanes).saturating_add(BESIDES)
    }
}

/// The connections that a server may open, compared with those that its database allows.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ConnectionDemand {
    /// Maximum connections of one server.
    pub most: u32,
    /// Maximum connections of all servers together.
    pub allowed: u32,
}

impl ConnectionDemand {
    /// What to do if there are too few for one server.
    pub const ADVICE: &str = "lower --max-connections or --workers, or raise max_connections of PostgreSQL, or \
                              the limit of the role or the database";

    /// Whether there are enough for one server.
    pub const fn fits(self) -> bool {
        self.most <= self.allowed
    }
}

impl fmt::Display for ConnectionDemand {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { most, allowed } = self;
        write!(f, "a server opens up to {most} connections, and the database allows {allowed}, ")?;
        match allowed / (*most).max(1) {
            0 => f.write_str("too few for one server"),
            1 => f.write_str("enough for 1 server"),
            servers => write!(f, "enough for {servers} servers"),
        }
    }
}

/// Returns how many connections the database allows this role, including those in use.
pub(crate) async fn allowed_connections(db: &mut PgConnection) -> Result<u32, sqlx::Error> {
    sqlx::query_scalar(statements::ALLOWED_CONNECTIONS).fetch_one(db).await.map(connections_of)
}

pub(crate) fn connections_of(allowed: i32) -> u32 {
    u32::try_from(allowed).unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_certificate_of_the_first_version_is_named() {
        let refused =
            |text: &str| StartError::Connect(sqlx::Error::Io(std::io::Error::other(text.to_owned())));
        let old = refused("invalid peer certificate: Other(OtherError(UnsupportedCertVersion))");
        assert!(old.to_string().contains("X.509 version 1"), "{old}");
        assert!(old.advice().is_some_and(|advice| advice.contains("sslmode=disable")));
        assert!(
            refused("connection refused")
                .advice()
                .is_some_and(|advice| advice.contains("the port of the URL"))
        );
        assert_eq!(StartError::Worker.advice(), None);
    }

    #[test]
    fn the_host_may_stand_in_the_parameters() {
        let options = PgOptions::connect_options("postgres://user:pw@/db?host=/run/postgresql").unwrap();
        assert_eq!(
            options.get_socket().map(|folder| folder.display().to_string()).as_deref(),
            Some("/run/postgresql")
        );
        assert_eq!(options.get_username(), "user");
        assert_eq!(with_host("postgres://a:b@h/db"), "postgres://a:b@h/db");
        assert_eq!(with_host("postgres://a@?host=h"), "postgres://a@localhost?host=h");
    }

    #[test]
    fn a_list_is_split_where_a_url_begins() {
        assert_eq!(listed("postgres://u:a,b@h/d"), ["postgres://u:a,b@h/d"]);
        assert_eq!(listed("postgres://h/a,postgresql://i/b"), ["postgres://h/a", "postgresql://i/b"]);
        assert_eq!(listed("postgres://h,x,postgres://i"), ["postgres://h,x", "postgres://i"]);
    }

    #[test]
    fn a_pooler_that_shares_sessions_is_named_where_statements_go_astray() {
        for (code, is_told) in [("26000", true), ("42P05", true), ("42501", false)] {
            assert_eq!(hint(Some(code)).contains("PgBouncer"), is_told, "{code}");
        }
        assert!(hint(Some("25006")).contains("standby"));
        assert_eq!(hint(None), "");
    }

    #[test]
    fn threads_and_probes_count() {
        let options = PgOptions::new("postgres://h/d");
        assert_eq!(options.most_connections(2), 32 + 4 + 5);
        let text = |allowed| ConnectionDemand { most: 40, allowed }.to_string();
        assert!(text(97).ends_with("enough for 2 servers") && text(40).ends_with("enough for 1 server"));
        assert!(text(39).ends_with("too few for one server"));
        assert_eq!(PgOptions { coalesce: false, ..options }.most_connections(2), 32 + 5);
    }
}
