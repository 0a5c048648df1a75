//! Settings of the store and of each database session.

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

/// Maximum number of buckets of a new table. Each bucket adds an index scan to a full-table scan.
pub(crate) const MAX_SPREAD: u16 = 64;
/// Maximum statement timeout. The purge relies on every transaction being shorter than its grace period.
pub(crate) const MAX_OPERATION_TIMEOUT: Duration = Duration::from_secs(120);
/// Maximum number of prepared statements per connection: the fixed ones, and those with short filters.
const MAX_PREPARED: usize = 64;

/// Settings of a [`crate::postgres::PgStore`].
#[derive(Debug, Clone)]
pub struct PgOptions {
    /// `postgres://…`. For a Unix socket, the socket's folder is the percent-encoded host or `?host=`. For Citus, one
    /// or several nodes, separated by commas; the remaining nodes are read from their catalogue.
    pub url: String,
    /// The URL for migrations, if different: the coordinator of a sharded database, or the database behind a
    /// connection pooler.
    pub migrate_url: Option<String>,
    /// Reachable addresses of Citus nodes that use other addresses among themselves.
    pub cluster_hosts: HostMap,
    /// Maximum number of connections; at least 1.
    pub max_connections: u32,
    /// Number of buckets of new tables, from 1 to `MAX_SPREAD`. More than 1 is for sharded databases only.
    pub spread: u16,
    /// Timeout for waiting in the queue, and for opening a connection, before a request fails as `Busy`.
    pub acquire_timeout: Duration,
    /// Timeout of one statement; at most `MAX_OPERATION_TIMEOUT`.
    pub operation_timeout: Duration,
    /// Idle connections are closed after this time, except for a few.
    pub idle_timeout: Duration,
    /// Connections are closed at this age, or up to a quarter later.
    pub max_lifetime: Duration,
    /// Whether concurrent requests share statements. Each worker thread then has two extra connections: one for point
    /// reads and one for single writes. If Citus distributes the entities over several servers, each thread has up to
    /// eight of each.
    pub coalesce: bool,
}

impl PgOptions {
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

    /// Returns the URLs of the listed servers. A comma that is not followed by a URL belongs to the preceding URL.
    pub fn urls(&self) -> Vec<&str> {
        listed(&self.url)
    }

    /// Returns the migration URL, or the URL of the first listed server if there is none.
    pub(crate) fn migration_url(&self) -> &str {
        self.migrate_url.as_deref().unwrap_or_else(|| self.first_url())
    }

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
        // A connection pooler rejects unknown startup parameters.
        Ok(options
            .extra_float_digits(None)
            .application_name("rowhouse")
            .statement_cache_capacity(MAX_PREPARED)
            .disable_statement_logging())
    }

    /// Returns the lock timeout of a statement.
    pub(crate) fn lock_timeout(&self) -> Duration {
        Duration::from_millis((self.operation_timeout.as_millis().div_ceil(3)).try_into().unwrap_or(u64::MAX))
    }

    /// Returns the statements that initialize each session. Plans are generic and use indexes; otherwise a plan made
    /// while a table was small would remain a full scan. If this server becomes unreachable, the database detects that
    /// within a minute and ends its abandoned sessions.
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

/// A commit waits for the disk, and for standbys to apply it if the database is configured with `remote_apply`.
const DURABLE: &str = "SELECT set_config('synchronous_commit', \
     CASE current_setting('synchronous_commit') WHEN 'remote_apply' THEN 'remote_apply' ELSE 'on' END, false)";

/// Disables the transaction timeout of PostgreSQL 17 and newer, because it would end a session in the middle of a
/// page, a purge, a migration or an index build. Statement timeouts are sufficient.
pub(crate) const NO_TRANSACTION_TIMEOUT: &str = "SELECT set_config('transaction_timeout', '0', false) \
     WHERE current_setting('transaction_timeout', true) IS NOT NULL";

/// Interval at which the database checks whether the client of a long command is still connected.
pub(crate) const CLIENT_CHECK: Duration = Duration::from_secs(2);

/// Makes the database end a session's statements within this time after the client disconnects. Some platforms of
/// PostgreSQL cannot detect a disconnect.
pub(crate) async fn end_if_abandoned(db: &mut PgConnection, within: Duration) -> Result<(), sqlx::Error> {
    // The statement text contains only a number from this program.
    let check = format!("SET client_connection_check_interval = {}", within.as_millis());
    match db.execute(sqlx::raw_sql(AssertSqlSafe(check))).await {
        Ok(_) | Err(sqlx::Error::Database(_)) => Ok(()),
        Err(error) => Err(error),
    }
}

/// Adds a host after the user if the URL has none there; libpq takes the host from the parameters in that case.
fn with_host(url: &str) -> Cow<'_, str> {
    let authority = url.find("://").map_or(0, |at| at + 3);
    let end = url[authority..].find(['/', '?']).map_or(url.len(), |at| authority + at);
    if !url[authority..end].ends_with('@') {
        return url.into();
    }
    format!("{}localhost{}", &url[..end], &url[end..]).into()
}

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

/// Why a store could not be opened, as reported to the operator who starts the server.
#[derive(Debug, thiserror::Error)]
pub enum StartError {
    #[error("invalid database settings: {0}")]
    Options(String),
    #[error("invalid database URL: {0}")]
    Url(#[source] sqlx::Error),
    #[error("cannot connect: {}", database_message(.0))]
    Connect(#[source] sqlx::Error),
    #[error("the role of the database URL lacks a privilege: {}", database_message(.0))]
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
        "a connection pooler in front of the database shares sessions among connections, so session settings \
         such as synchronous_commit are lost; give each connection its own session (PgBouncer: pool_mode = \
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
    #[error("the database has no tables of Rowhouse; check that the URL names the right database")]
    NoTables,
    #[error(
        "the database has schema version {0}, which this program cannot read: run `rowhouse migrate` first"
    )]
    Outdated(i64),
    #[error("cannot distribute tables that were added: {0}")]
    Distribute(String),
}

/// TLS error for an X.509 version 1 certificate, with and without certificate verification.
const OLD_CERTIFICATE: &str = "UnsupportedCertVersion";

/// Classifies a failed statement on an open connection.
impl From<sqlx::Error> for StartError {
    fn from(error: sqlx::Error) -> Self {
        if has_code(&error, &["42501"]) { StartError::Forbidden(error) } else { StartError::Connect(error) }
    }
}

impl StartError {
    /// Returns advice for the operator, if this error has any.
    pub fn advice(&self) -> Option<&'static str> {
        match self {
            StartError::Forbidden(_) => {
                Some("grant the missing privilege to the role, or use the URL of a role that has it")
            }
            StartError::SharedSessions => Some("change the pooler, or give the URL of the database itself"),
            StartError::Foreign { .. } | StartError::Encoding(_) => {
                Some("follow the message, or use a different URL")
            }
            StartError::Connect(error) if error_code(error).as_deref() == Some(NO_DATABASE) => {
                Some("create it with `createdb`, or correct its name in the URL")
            }
            StartError::Connect(error)
                if error_code(error).is_some_and(|code| code.starts_with(REFUSED_LOGIN)) =>
            {
                Some("check the user and the password of the URL, and that pg_hba.conf admits the user")
            }
            StartError::Connect(error @ sqlx::Error::Io(_)) if !has_old_certificate(error) => {
                Some("see that PostgreSQL runs there, and that the host and the port of the URL are right")
            }
            StartError::Connect(error) if has_old_certificate(error) => Some(
                "give every node a certificate of version 3 (ssl_cert_file, ssl_key_file), or add ?sslmode=disable to \
                 the URL if the network is trusted",
            ),
            StartError::Connect(sqlx::Error::Tls(_)) => Some(
                "check that ?sslrootcert= names the file of the CA that signed the database's certificate, and that \
                 the certificate names the host",
            ),
            _ => None,
        }
    }
}

/// PostgreSQL error codes: the code for a missing database, and the class of codes for a rejected login.
const NO_DATABASE: &str = "3D000";
const REFUSED_LOGIN: &str = "28";

fn error_code(error: &sqlx::Error) -> Option<String> {
    error.as_database_error().and_then(|error| error.code()).map(|code| code.into_owned())
}

fn has_old_certificate(error: &sqlx::Error) -> bool {
    matches!(error, sqlx::Error::Io(_) | sqlx::Error::Tls(_)) && error.to_string().contains(OLD_CERTIFICATE)
}

/// Returns PostgreSQL's message without the source line that sqlx adds.
pub(crate) fn database_message(error: &sqlx::Error) -> String {
    if has_old_certificate(error) {
        return "the database's certificate uses X.509 version 1, as Citus creates it; TLS rejects that"
            .into();
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

/// Returns advice for PostgreSQL errors with a non-obvious cause. If connections share sessions, prepared statements
/// are missing or belong to other connections.
fn hint(code: Option<&str>) -> &'static str {
    match code {
        Some("26000" | "42P05") => {
            "; a connection pooler must give each connection a session of its own (PgBouncer: pool_mode = session)"
        }
        Some("25006") => "; the URL leads to a standby or to read-only sessions",
        _ => "",
    }
}

/// Connections in addition to those for requests: one each for readiness probes, statement cancellation, and building
/// or removing indexes; and two short-lived ones, which check whether the database still answers and what an index
/// build is waiting for.
const BESIDES: u32 = 5;
/// Lanes per thread: one for point reads and one for single writes.
const LANES: u32 = 2;

impl PgOptions {
    /// Returns the maximum number of connections that a server with this many threads opens.
    pub fn most_connections(&self, threads: u32) -> u32 {
        let lanes = if self.coalesce { LANES.saturating_mul(threads) } else { 0 };
        self.max_connections.saturating_add(lanes).saturating_add(BESIDES)
    }
}

/// The connections that a server may open, compared with the limit of its database.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ConnectionDemand {
    /// Maximum connections of one server.
    pub most: u32,
    /// Maximum connections of all servers together.
    pub allowed: u32,
}

impl ConnectionDemand {
    /// Advice for a limit that is too low for one server.
    pub const ADVICE: &str = "lower --max-connections or --workers, or raise max_connections of PostgreSQL, or \
                              the limit of the role or the database";

    /// Whether the limit is high enough for one server.
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

/// Returns the number of connections that the database allows this role, including those in use.
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
