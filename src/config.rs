//! Settings, and where they come from: flags, environment variables and a
//! `.env` file, in that order of precedence. All three are alike.

use std::net::{SocketAddr, ToSocketAddrs};
use std::path::PathBuf;
use std::time::Duration;

use clap::{Args, ValueEnum};

use crate::admin::Token;
use crate::auth::AccountSet;
use crate::auth::accounts::AccountError;
use crate::auth::bearer::{Assignment, AssignmentError, Trust};
use crate::codec::uri::percent_decode;
use crate::http::{Limits, TlsFiles};
use crate::store::postgres::PgOptions;
use crate::store::sqlite::{Location, SqliteOptions};
use crate::trace::TraceSettings;

/// How to run the server.
#[derive(Debug, Clone, Args)]
pub struct Settings {
    /// Address and port to listen on; port 0 takes a free one
    #[arg(long, env = "ROWHOUSE_LISTEN", default_value = "127.0.0.1:10002")]
    pub listen: String,

    /// PEM file with the certificate chain for HTTPS, read again when it changes
    #[arg(long, env = "ROWHOUSE_TLS_CERT")]
    pub tls_cert: Option<PathBuf>,

    /// PEM file with the certificate's key
    #[arg(long, env = "ROWHOUSE_TLS_KEY")]
    pub tls_key: Option<PathBuf>,

    /// sqlite://FILE, sqlite::memory: or postgres://…
    #[arg(long, env = "DATABASE_URL", default_value = "sqlite://rowhouse.db", hide_env_values = true)]
    pub database_url: String,

    /// name:base64key[:base64key2], several separated by ';' [default: the well-known development account]
    #[arg(long, env = "ROWHOUSE_ACCOUNTS", hide_env_values = true)]
    pub accounts: Option<String>,

    /// Suffixes of host names whose first label is an account, separated by ','
    #[arg(long, env = "ROWHOUSE_HOST_SUFFIX", value_delimiter = ',')]
    pub host_suffix: Vec<String>,

    /// postgres://… to run migrations through, if not the database URL
    #[arg(long, env = "ROWHOUSE_MIGRATE_URL", hide_env_values = true)]
    pub migrate_url: Option<String>,

    /// postgres://… of a read replica, which answers what is addressed to {account}-secondary
    #[arg(long, env = "ROWHOUSE_SECONDARY_DATABASE_URL", hide_env_values = true)]
    pub secondary_database_url: Option<String>,

    /// Address and port for operators: probes, metrics, statistics [default: none]
    #[arg(long, env = "ROWHOUSE_ADMIN_LISTEN")]
    pub admin_listen: Option<String>,

    /// What operators show as a bearer token; needed where --admin-listen is no loopback address
    #[arg(long, env = "ROWHOUSE_ADMIN_TOKEN", hide_env_values = true)]
    pub admin_token: Option<String>,

    /// A file that holds the admin token
    #[arg(long, env = "ROWHOUSE_ADMIN_TOKEN_FILE")]
    pub admin_token_file: Option<PathBuf>,

    /// Buckets that a new table is spread over; more than 1 only on a sharded PostgreSQL
    #[arg(long, env = "ROWHOUSE_TABLE_SPREAD", default_value_t = 1, value_parser = clap::value_parser!(u16).range(1..=64))]
    pub table_spread: u16,

    /// Connections to PostgreSQL at most
    #[arg(long, env = "ROWHOUSE_MAX_CONNECTIONS", default_value_t = 32, value_parser = clap::value_parser!(u32).range(1..=10_000))]
    pub max_connections: u32,

    /// MiB of a SQLite file that are read through a memory map at most; 0 for none
    #[arg(long, env = "ROWHOUSE_SQLITE_MAP_MIB", default_value_t = 2047, value_parser = clap::value_parser!(u32).range(0..=2047))]
    pub sqlite_map_mib: u32,

    /// Threads that serve requests [default: one for each core]
    #[arg(long, env = "ROWHOUSE_WORKERS", value_parser = clap::value_parser!(u16).range(1..=1024))]
    pub workers: Option<u16>,

    /// Client connections at most, for each thread
    #[arg(long, env = "ROWHOUSE_MAX_CLIENTS", default_value_t = 10_000, value_parser = clap::value_parser!(u32).range(1..=1_000_000))]
    pub max_clients: u32,

    /// OpenID Connect issuer whose bearer tokens are accepted
    #[arg(long, env = "ROWHOUSE_OIDC_ISSUER")]
    pub oidc_issuer: Option<String>,

    /// Audience that tokens must be meant for
    #[arg(long, env = "ROWHOUSE_OIDC_AUDIENCE", default_value = "https://storage.azure.com")]
    pub oidc_audience: String,

    /// principal=reader|contributor[@account[/table]], several separated by ';'
    #[arg(long, env = "ROWHOUSE_OIDC_ROLES", default_value = "")]
    pub oidc_roles: String,

    /// Accept tokens over plain HTTP: for development, or behind a proxy that ends TLS
    #[arg(long, env = "ROWHOUSE_OIDC_OVER_HTTP")]
    pub oidc_over_http: bool,

    /// Comparisons in one $filter at most
    #[arg(long, env = "ROWHOUSE_MAX_FILTER_COMPARISONS", default_value_t = 1000, value_parser = clap::value_parser!(u32).range(1..=10_000))]
    pub max_filter_comparisons: u32,

    /// Seconds that the head of a request may take to arrive
    #[arg(long, env = "ROWHOUSE_HEAD_SECONDS", default_value_t = 20, value_parser = clap::value_parser!(u16).range(1..=300))]
    pub head_seconds: u16,

    /// Seconds that the body of a request may take to arrive, or the next bytes of an answer to be taken
    #[arg(long, env = "ROWHOUSE_BODY_SECONDS", default_value_t = 25, value_parser = clap::value_parser!(u16).range(1..=29))]
    pub body_seconds: u16,

    /// MiB that the bodies of all requests may take at once, past the first 64 KiB of each
    #[arg(long, env = "ROWHOUSE_MAX_BODY_MEMORY", default_value_t = 256, value_parser = clap::value_parser!(u32).range(4..=1_048_576))]
    pub max_body_memory: u32,

    /// Seconds that requests in flight may take to finish at shutdown
    #[arg(long, env = "ROWHOUSE_SHUTDOWN_SECONDS", default_value_t = 30, value_parser = clap::value_parser!(u16).range(0..=3600))]
    pub shutdown_seconds: u16,

    /// Collector that traces are sent to, as OTLP over HTTP in JSON [default: none]
    #[arg(long, env = "OTEL_EXPORTER_OTLP_ENDPOINT")]
    pub otlp_endpoint: Option<String>,

    /// Headers for the collector: name=value, several separated by ','
    #[arg(
        long,
        env = "OTEL_EXPORTER_OTLP_HEADERS",
        default_value = "",
        hide_env_values = true,
        hide_default_value = true
    )]
    pub otlp_headers: String,

    /// Name under which traces are sent
    #[arg(long, env = "OTEL_SERVICE_NAME", default_value = "rowhouse")]
    pub otlp_service_name: String,

    /// Share of the requests that are traced, 0 to 1, of those whose client does not say
    #[arg(long, env = "OTEL_TRACES_SAMPLER_ARG", default_value_t = 1.0)]
    pub trace_ratio: f64,

    /// Milliseconds after which a request is logged as slow
    #[arg(long, env = "ROWHOUSE_SLOW_REQUEST_MS", default_value_t = 1000, value_parser = clap::value_parser!(u32).range(1..=3_600_000))]
    pub slow_request_ms: u32,

    /// Log why requests are refused: which text should have been signed, which field failed
    #[arg(long, env = "ROWHOUSE_EXPLAIN_ERRORS")]
    pub explain_errors: bool,

    /// Least severe messages to log: error, warn, info, debug, trace, or a tracing filter
    #[arg(long, env = "ROWHOUSE_LOG", default_value = "info")]
    pub log: String,

    /// How to print log messages
    #[arg(long, env = "ROWHOUSE_LOG_FORMAT", value_enum, default_value_t = LogFormat::Text)]
    pub log_format: LogFormat,
}

/// Forms of log output.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum LogFormat {
    Text,
    Json,
}

/// Settings that were understood.
#[derive(Debug, Clone)]
pub struct Config {
    pub listen: SocketAddr,
    /// What connections are encrypted with, if they are.
    pub tls: Option<TlsFiles>,
    pub database: Database,
    /// Where operators ask, if anywhere.
    pub admin: Option<AdminAddress>,
    pub accounts: AccountSet,
    /// Whether the accounts are the well-known one that everybody can open.
    pub is_development: bool,
    /// Whose tokens are trusted, if any are.
    pub trust: Option<Trust>,
    pub workers: Option<u16>,
    pub max_clients: u32,
    pub max_filter_comparisons: usize,
    pub limits: Limits,
    pub shutdown_seconds: u16,
    /// Requests that take longer are logged as slow.
    pub slow_request: Duration,
    /// Where traces go, if anywhere.
    pub traces: Option<TraceSettings>,
}

/// Where operators ask, and what they have to know.
#[derive(Debug, Clone)]
pub struct AdminAddress {
    pub listen: SocketAddr,
    /// Always there where the address is not this machine's alone.
    pub token: Option<Token>,
}

/// Where entities are kept.
#[derive(Debug, Clone)]
pub enum Database {
    Sqlite(SqliteOptions),
    Postgres {
        options: PgOptions,
        /// The read replica, which has the same limits.
        replica: Option<PgOptions>,
    },
}

/// A setting that makes no sense, for whoever starts the server.
#[derive(Debug, thiserror::Error)]
pub enum ConfigError {
    #[error("--listen {0}: not an address with a port, such as 127.0.0.1:10002")]
    Listen(String),
    #[error("--tls-cert, --tls-key: give both or none")]
    Tls,
    #[error("--otlp-endpoint: must begin with http:// or https://")]
    OtlpEndpoint,
    #[error("--otlp-headers: must be name=value, several separated by ','")]
    OtlpHeaders,
    #[error("--trace-ratio: must be 0 to 1")]
    TraceRatio,
    #[error("--admin-listen {0}: not an address with a port, such as 127.0.0.1:10003")]
    AdminListen(String),
    #[error("--admin-listen {0}: others can reach this address, so it needs --admin-token")]
    AdminToken(SocketAddr),
    #[error("--admin-token: must have 16 characters or more, and no spaces")]
    WeakToken,
    #[error("--admin-token-file: {0}")]
    TokenFile(String),
    #[error("--database-url: must begin with sqlite: or postgres:")]
    DatabaseUrl,
    #[error("--secondary-database-url: must begin with postgres:, as must --database-url beside it")]
    SecondaryUrl,
    #[error("--oidc-issuer: must begin with https:, or with http: together with --oidc-over-http")]
    Issuer,
    #[error("--oidc-roles: {0}")]
    Roles(#[from] AssignmentError),
    #[error("--accounts: {0}")]
    Accounts(#[from] AccountError),
}

impl Settings {
    /// Reads the settings that are more than numbers.
    ///
    /// # Errors
    /// [`ConfigError`] for the first that makes no sense.
    pub fn read(&self) -> Result<Config, ConfigError> {
        let listen = address(&self.listen);
        let suffixes: Vec<String> =
            self.host_suffix.iter().map(|s| s.trim().trim_start_matches('.').to_owned()).collect();
        let given = self.accounts.as_deref().filter(|accounts| !accounts.trim().is_empty());
        let accounts = match given {
            Some(text) => AccountSet::parse(text, suffixes)?,
            None => AccountSet::development(suffixes),
        };
        Ok(Config {
            listen: listen.ok_or_else(|| ConfigError::Listen(self.listen.clone()))?,
            tls: self.tls()?,
            database: self.database()?,
            admin: self.admin()?,
            accounts,
            is_development: given.is_none(),
            trust: self.trust()?,
            workers: self.workers,
            max_clients: self.max_clients,
            max_filter_comparisons: self.max_filter_comparisons as usize,
            limits: Limits {
                head: Duration::from_secs(self.head_seconds.into()),
                body: Duration::from_secs(self.body_seconds.into()),
                body_memory: self.max_body_memory as usize * 1024 * 1024,
            },
            shutdown_seconds: self.shutdown_seconds,
            traces: self.traces()?,
            slow_request: Duration::from_millis(u64::from(self.slow_request_ms)),
        })
    }

    fn traces(&self) -> Result<Option<TraceSettings>, ConfigError> {
        let Some(endpoint) = self.otlp_endpoint.as_deref().map(str::trim).filter(|text| !text.is_empty())
        else {
            return Ok(None);
        };
        if !(endpoint.starts_with("http://") || endpoint.starts_with("https://")) {
            return Err(ConfigError::OtlpEndpoint);
        }
        if !(0.0..=1.0).contains(&self.trace_ratio) {
            return Err(ConfigError::TraceRatio);
        }
        let pairs = self.otlp_headers.split(',').map(str::trim).filter(|pair| !pair.is_empty());
        let headers = pairs.map(|pair| {
            let (name, value) = pair.split_once('=')?;
            Some((name.trim().to_owned(), percent_decode(value.trim())?.into_owned()))
        });
        Ok(Some(TraceSettings {
            endpoint: endpoint.to_owned(),
            headers: headers.collect::<Option<_>>().ok_or(ConfigError::OtlpHeaders)?,
            service: self.otlp_service_name.clone(),
            ratio: self.trace_ratio,
        }))
    }

    fn tls(&self) -> Result<Option<TlsFiles>, ConfigError> {
        let given = |path: &Option<PathBuf>| path.clone().filter(|path| !path.as_os_str().is_empty());
        match (given(&self.tls_cert), given(&self.tls_key)) {
            (None, None) => Ok(None),
            (Some(certificate), Some(key)) => Ok(Some(TlsFiles { certificate, key })),
            _ => Err(ConfigError::Tls),
        }
    }

    fn admin(&self) -> Result<Option<AdminAddress>, ConfigError> {
        let Some(given) = self.admin_listen.as_deref().map(str::trim).filter(|text| !text.is_empty()) else {
            return Ok(None);
        };
        let listen = address(given).ok_or_else(|| ConfigError::AdminListen(given.to_owned()))?;
        let token = self.admin_token()?;
        if token.is_none() && !listen.ip().is_loopback() {
            return Err(ConfigError::AdminToken(listen));
        }
        Ok(Some(AdminAddress { listen, token }))
    }

    fn admin_token(&self) -> Result<Option<Token>, ConfigError> {
        let text = match (&self.admin_token, &self.admin_token_file) {
            (Some(_), Some(_)) => {
                return Err(ConfigError::TokenFile("give --admin-token or this, not both".into()));
            }
            (Some(text), None) if text.is_empty() => return Ok(None),
            (Some(text), None) => text.clone(),
            (None, Some(path)) => std::fs::read_to_string(path)
                .map_err(|error| ConfigError::TokenFile(format!("{}: {error}", path.display())))?,
            (None, None) => return Ok(None),
        };
        Token::new(text.trim()).map(Some).ok_or(ConfigError::WeakToken)
    }

    fn trust(&self) -> Result<Option<Trust>, ConfigError> {
        let Some(issuer) = self.oidc_issuer.as_deref().map(str::trim).filter(|i| !i.is_empty()) else {
            return Ok(None);
        };
        let plain = issuer.starts_with("http://") && self.oidc_over_http;
        if !(plain || issuer.starts_with("https://")) {
            return Err(ConfigError::Issuer);
        }
        Ok(Some(Trust {
            issuer: issuer.to_owned(),
            audience: self.oidc_audience.clone(),
            assignments: Assignment::parse_list(&self.oidc_roles)?,
            over_http: self.oidc_over_http,
        }))
    }

    fn database(&self) -> Result<Database, ConfigError> {
        let url = self.database_url.trim();
        let secondary = self.secondary_database_url.as_deref().map(str::trim).filter(|url| !url.is_empty());
        if secondary.is_some_and(|url| !is_postgres(url)) {
            return Err(ConfigError::SecondaryUrl);
        }
        if let Some(rest) = url.strip_prefix("sqlite:") {
            let location = Location::parse(rest).ok_or(ConfigError::DatabaseUrl)?;
            let options = SqliteOptions { map_mib: self.sqlite_map_mib, ..SqliteOptions::new(location) };
            return secondary.is_none().then_some(Database::Sqlite(options)).ok_or(ConfigError::SecondaryUrl);
        }
        if is_postgres(url) {
            let mut options = PgOptions::new(url);
            options.migrate_url = self.migrate_url.clone().filter(|url| !url.is_empty());
            options.spread = self.table_spread;
            options.max_connections = self.max_connections;
            let replica = secondary.map(|url| PgOptions { url: url.to_owned(), ..options.clone() });
            return Ok(Database::Postgres { options, replica });
        }
        Err(ConfigError::DatabaseUrl)
    }
}

fn address(text: &str) -> Option<SocketAddr> {
    text.to_socket_addrs().ok().and_then(|mut found| found.next())
}

fn is_postgres(url: &str) -> bool {
    url.starts_with("postgres://") || url.starts_with("postgresql://")
}

impl Database {
    /// The database as it may be shown: without its password.
    pub fn shown(&self) -> String {
        match self {
            Database::Sqlite(options) => match &options.location {
                Location::Memory => "sqlite::memory:".into(),
                Location::File(path) => format!("sqlite://{}", path.display()),
            },
            Database::Postgres { options, .. } => without_password(&options.url),
        }
    }
}

fn without_password(url: &str) -> String {
    let (scheme, rest) = url.split_once("://").unwrap_or(("postgres", url));
    let rest = rest.split_once('?').map_or(rest, |(address, _)| address);
    match rest.rsplit_once('@') {
        Some((user, host)) => {
            format!("{scheme}://{}@{host}", user.split_once(':').map_or(user, |(name, _)| name))
        }
        None => format!("{scheme}://{rest}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::Parser;

    #[derive(Parser)]
    struct Line {
        #[command(flatten)]
        settings: Settings,
    }

    fn read(arguments: &[&str]) -> Result<Config, String> {
        let line = Line::try_parse_from([&["rowhouse"], arguments].concat()).map_err(|e| e.to_string())?;
        line.settings.read().map_err(|e| e.to_string())
    }

    #[test]
    fn databases_are_told_by_their_scheme() {
        let shown = |url| read(&["--database-url", url]).map(|c| c.database.shown());
        assert_eq!(shown("sqlite://a.db").as_deref(), Ok("sqlite://a.db"));
        assert_eq!(shown("sqlite::memory:").as_deref(), Ok("sqlite::memory:"));
        assert_eq!(shown("postgres://u:secret@h:1/d?x=secret").as_deref(), Ok("postgres://u@h:1/d"));
        assert_eq!(shown("postgresql:///d").as_deref(), Ok("postgresql:///d"));
        assert!(shown("mysql://x").is_err() && shown("").is_err() && shown("sqlite:").is_err());
    }

    #[test]
    fn mistakes_are_named_by_their_flag() {
        for (arguments, part) in [
            (["--listen", "nonsense"], "--listen nonsense"),
            (["--accounts", "a"], "--accounts: account number 1"),
            (["--table-spread", "0"], "--table-spread"),
            (["--workers", "x"], "--workers"),
            (["--tls-cert", "x"], "--tls-cert, --tls-key"),
            (["--tls-key", "x"], "--tls-cert, --tls-key"),
            (["--otlp-endpoint", "x"], "--otlp-endpoint"),
        ] {
            let message = read(&arguments).unwrap_err();
            assert!(message.contains(part), "{message}");
        }
    }

    #[test]
    fn what_others_can_reach_needs_a_token() {
        let admin = |more: &[&str]| {
            let listen = ["--admin-listen", more[0]];
            read(&[&listen, &more[1..]].concat()).map(|config| config.admin.is_some())
        };
        let token = "0123456789abcdef";
        assert_eq!(read(&[]).map(|config| config.admin.is_some()), Ok(false));
        assert_eq!(admin(&[""]), Ok(false));
        assert_eq!(admin(&["127.0.0.1:1"]), Ok(true));
        assert_eq!(admin(&["[::1]:1", "--admin-token", token]), Ok(true));
        assert_eq!(admin(&["0.0.0.0:1", "--admin-token", token]), Ok(true));
        for (arguments, words) in [
            (&["0.0.0.0:1"][..], "--admin-token"),
            (&["0.0.0.0:1", "--admin-token", ""], "--admin-token"),
            (&["127.0.0.1:1", "--admin-token", "short"], "16 characters"),
            (&["nowhere"], "--admin-listen nowhere"),
            (&["127.0.0.1:1", "--admin-token-file", "/nonexistent"], "--admin-token-file: /nonexistent"),
            (&["127.0.0.1:1", "--admin-token", token, "--admin-token-file", "x"], "not both"),
        ] {
            let message = admin(arguments).unwrap_err();
            assert!(message.contains(words) && !message.contains(token), "{message}");
        }
    }

    #[test]
    fn a_replica_stands_beside_postgres_alone() {
        let database = |url, secondary| {
            let config = read(&["--database-url", url, "--secondary-database-url", secondary])?;
            match config.database {
                Database::Postgres { replica, .. } => Ok(replica.map(|options| options.url)),
                Database::Sqlite(_) => Ok(None),
            }
        };
        let primary = "postgres://h/d";
        assert_eq!(database(primary, "postgresql://r/d"), Ok(Some("postgresql://r/d".into())));
        assert_eq!(database(primary, " "), Ok(None));
        assert_eq!(database("sqlite://a.db", ""), Ok(None));
        for (url, secondary) in [("sqlite://a.db", primary), (primary, "sqlite://a.db"), (primary, "x")] {
            let message: String = database(url, secondary).unwrap_err();
            assert!(message.starts_with("--secondary-database-url: "), "{message}");
        }
    }

    #[test]
    fn without_accounts_there_is_the_well_known_one() {
        assert!(read(&["--accounts", ""]).unwrap().is_development);
        assert!(!read(&["--accounts", "abc:AAAA"]).unwrap().is_development);
    }
}
