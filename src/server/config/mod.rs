//! Settings from flags, environment variables and a `.env` file, in this order of precedence. Every setting can come
//! from any of the three, except `--until-stdin-closes`, because only the parent process knows the server's standard
//! input.

mod identity;
mod idle;
mod mistakes;
mod operators;
mod storage;

use std::net::{SocketAddr, ToSocketAddrs};
use std::path::PathBuf;
use std::time::Duration;

use clap::{ArgAction, Args, ValueEnum};
pub(crate) use identity::{
    AccountSettings, DEFAULT_AUDIENCE, Identities, MasterKeySettings, QuerySettings, TrustSettings,
};
pub(crate) use mistakes::{Mistakes, secret};
pub(crate) use operators::AdminAddress;
pub(crate) use storage::{DatabaseSettings, DatabaseUrl, StorageSettings};
use tracing_subscriber::EnvFilter;
use ureq::http::Uri;

use crate::observe::trace::TraceSettings;
use crate::operator::durations;
use crate::protocol::auth::AccountSet;
use crate::protocol::auth::bearer::Trust;
use crate::protocol::auth::key_encryption::MasterKeys;
use crate::server::admin::ConsoleMode;
use crate::server::http::{Proxies, TlsFiles};
use crate::service::Limits;
use crate::store::database::Database;

/// The settings of a server, as given.
#[derive(Debug, Clone, Args)]
pub(crate) struct Settings {
    #[command(flatten)]
    pub listen: ListenSettings,

    /// PEM file with the certificate chain for HTTPS, reloaded when it changes
    #[arg(help_heading = "Network", long, env = "ROWHOUSE_TLS_CERT")]
    pub tls_cert: Option<PathBuf>,

    /// PEM file with the certificate's key
    #[arg(help_heading = "Network", long, env = "ROWHOUSE_TLS_KEY")]
    pub tls_key: Option<PathBuf>,

    /// Trust X-Forwarded-For and X-Forwarded-Proto from these proxies: addresses and ranges, separated by ','
    #[arg(help_heading = "Network", long, env = "ROWHOUSE_TRUSTED_PROXIES", value_delimiter = ',')]
    pub trusted_proxies: Vec<String>,

    #[command(flatten)]
    pub storage: StorageSettings,

    #[command(flatten)]
    pub accounts: AccountSettings,

    #[command(flatten)]
    pub queries: QuerySettings,

    /// Serve the well-known development account even on an address that other machines can reach
    #[arg(help_heading = "Accounts", long, env = "ROWHOUSE_ALLOW_DEVELOPMENT_ACCOUNT")]
    pub allow_development_account: bool,

    /// Host name suffixes, separated by ','; with tables.example.com, the account myaccount is also served at
    /// myaccount.tables.example.com
    #[arg(help_heading = "Network", long, env = "ROWHOUSE_HOST_SUFFIX", value_delimiter = ',')]
    pub host_suffix: Vec<String>,

    /// Address and port of the admin listener, which serves the console, probes and metrics; '' disables it
    /// [default: 127.0.0.1:10003, or another port if that port is in use; none with --console off]
    #[arg(help_heading = "Operators", long, env = "ROWHOUSE_ADMIN_LISTEN")]
    pub admin_listen: Option<String>,

    /// Bearer token of the admin listener, at least 16 characters; required unless --admin-listen is a
    /// loopback address [default: a new token at each start]
    #[arg(help_heading = "Operators", long, env = "ROWHOUSE_ADMIN_TOKEN", hide_env_values = true)]
    pub admin_token: Option<String>,

    /// File that holds the admin token
    #[arg(help_heading = "Operators", long, env = "ROWHOUSE_ADMIN_TOKEN_FILE")]
    pub admin_token_file: Option<PathBuf>,

    /// Let every client of the admin listener delete and replace all stored data; for test suites, never for
    /// data that matters
    #[arg(help_heading = "Operators", long, env = "ROWHOUSE_TEST_MODE")]
    pub test_mode: bool,

    /// Serve the console, a page for browsers, on the admin listener
    #[arg(help_heading = "Operators", long, env = "ROWHOUSE_CONSOLE", value_enum, default_value_t = ConsoleMode::On)]
    pub console: ConsoleMode,

    #[command(flatten)]
    pub serving: ServingSettings,

    #[command(flatten)]
    pub trust: TrustSettings,

    /// How long `rowhouse table undelete` can restore a deleted table, such as 12h, 7d or 4w; 0 for not at
    /// all
    #[arg(
        help_heading = "Tables",
        long,
        env = "ROWHOUSE_KEEP_DELETED",
        default_value = "0",
        value_name = "TIME"
    )]
    pub keep_deleted: String,

    #[command(flatten)]
    pub shutdown: ShutdownSettings,

    /// URL of the collector that receives traces, as OTLP over HTTP in JSON [default: none]
    #[arg(help_heading = "Logs and traces", long, env = "OTEL_EXPORTER_OTLP_ENDPOINT")]
    pub otlp_endpoint: Option<String>,

    /// Headers for the collector: name=value, separated by ','
    #[arg(
        help_heading = "Logs and traces",
        long,
        env = "OTEL_EXPORTER_OTLP_HEADERS",
        default_value = "",
        hide_env_values = true,
        hide_default_value = true
    )]
    pub otlp_headers: String,

    /// Service name in traces
    #[arg(help_heading = "Logs and traces", long, env = "OTEL_SERVICE_NAME", default_value = "rowhouse")]
    pub otlp_service_name: String,

    /// Share of requests to trace, from 0 to 1; it applies to requests without a traceparent header
    #[arg(help_heading = "Logs and traces", long, env = "OTEL_TRACES_SAMPLER_ARG", default_value_t = 1.0)]
    pub trace_ratio: f64,

    /// Milliseconds after which the server logs a request as slow
    #[arg(help_heading = "Logs and traces", long, env = "ROWHOUSE_SLOW_REQUEST_MS", default_value_t = 1000, value_parser = clap::value_parser!(u32).range(1..=3_600_000))]
    pub slow_request_ms: u32,

    /// Log why the server refuses requests, such as the text that should have been signed; for development,
    /// as the log then contains keys of entities
    #[arg(help_heading = "Logs and traces", long, env = "ROWHOUSE_EXPLAIN_ERRORS")]
    pub explain_errors: bool,

    /// Lowest level of messages to log (error, warn, info, debug, trace), or a filter such as
    /// info,rowhouse=debug
    #[arg(help_heading = "Logs and traces", long, env = "ROWHOUSE_LOG", default_value = "info")]
    pub log: String,

    /// Format of log messages
    #[arg(help_heading = "Logs and traces", long, env = "ROWHOUSE_LOG_FORMAT", value_enum, default_value_t = LogFormat::Text)]
    pub log_format: LogFormat,
}

/// The address to listen on.
#[derive(Debug, Clone, Args)]
#[command(next_help_heading = "Network")]
pub(crate) struct ListenSettings {
    /// Address and port to listen on; port 0 takes a free port
    #[arg(long, env = "ROWHOUSE_LISTEN", default_value = "127.0.0.1:10002")]
    pub listen: String,
}

impl ListenSettings {
    pub(crate) fn address(&self) -> Result<SocketAddr, Mistakes> {
        let problem = "not an address with a port, such as 127.0.0.1:10002";
        resolve(&self.listen).ok_or_else(|| format!("--listen {}: {problem}", self.listen).into())
    }
}

/// The threads that serve requests, and the limits for clients.
#[derive(Debug, Clone, Copy, Args)]
#[command(next_help_heading = "Performance and limits")]
pub(crate) struct ServingSettings {
    /// Number of threads that serve requests [default: one per core]
    #[arg(long, env = "ROWHOUSE_WORKERS", value_parser = clap::value_parser!(u16).range(1..=512))]
    pub workers: Option<u16>,

    /// Busy-poll instead of sleeping between the requests of a single client; this lowers latency, and uses
    /// up to one core while the client sends requests
    #[arg(long, env = "ROWHOUSE_BUSY_POLL", default_value_t = true, action = ArgAction::Set, value_name = "BOOL")]
    pub busy_poll: bool,

    /// Maximum number of client connections per thread
    #[arg(long, env = "ROWHOUSE_MAX_CLIENTS", default_value_t = 10_000, value_parser = clap::value_parser!(u32).range(1..=1_000_000))]
    pub max_clients: u32,

    /// Maximum number of comparisons in one $filter
    #[arg(long, env = "ROWHOUSE_MAX_FILTER_COMPARISONS", default_value_t = 1000, value_parser = clap::value_parser!(u32).range(1..=10_000))]
    pub max_filter_comparisons: u32,

    /// Seconds that the head of a request may take to arrive
    #[arg(long, env = "ROWHOUSE_HEAD_SECONDS", default_value_t = 20, value_parser = clap::value_parser!(u16).range(1..=300))]
    pub head_seconds: u16,

    /// Seconds that the body of a request may take to arrive, or that a client may take to receive
    /// the next bytes of an answer
    #[arg(long, env = "ROWHOUSE_BODY_SECONDS", default_value_t = 25, value_parser = clap::value_parser!(u16).range(1..=29))]
    pub body_seconds: u16,

    /// Maximum MiB of the bodies of all requests together, without the first 64 KiB of each body
    #[arg(long, env = "ROWHOUSE_MAX_BODY_MEMORY", default_value_t = 256, value_parser = clap::value_parser!(u32).range(4..=1_048_576))]
    pub max_body_memory: u32,

    /// Maximum requests per second of one account; each server counts by itself [default: no limit]
    #[arg(long, env = "ROWHOUSE_MAX_REQUESTS_PER_SECOND", value_parser = clap::value_parser!(u32).range(1..=1_000_000))]
    pub max_requests_per_second: Option<u32>,
}

impl ServingSettings {
    pub(crate) fn limits(&self) -> Limits {
        Limits {
            head: Duration::from_secs(self.head_seconds.into()),
            body: Duration::from_secs(self.body_seconds.into()),
        }
    }
}

/// The settings of a shutdown, as given.
#[derive(Debug, Clone, Copy, Args)]
#[command(next_help_heading = "Shutdown")]
pub(crate) struct ShutdownSettings {
    /// Seconds after SIGTERM during which the server still answers every request, while /readyz is 503 and
    /// the server asks clients to connect elsewhere
    #[arg(long, env = "ROWHOUSE_DRAIN_SECONDS", default_value_t = 0, value_parser = clap::value_parser!(u16).range(0..=3600))]
    pub drain_seconds: u16,

    /// Seconds that requests in flight may take to finish during shutdown
    #[arg(long, env = "ROWHOUSE_SHUTDOWN_SECONDS", default_value_t = 30, value_parser = clap::value_parser!(u16).range(0..=3600))]
    pub shutdown_seconds: u16,

    /// Stop when standard input closes, as it does when the process at the other end of the pipe ends; input
    /// is ignored
    #[arg(long)]
    pub until_stdin_closes: bool,
}

/// Formats of log messages.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum LogFormat {
    Text,
    Json,
}

/// The parsed and validated settings of a server.
#[derive(Debug, Clone)]
pub(crate) struct Config {
    pub listen: SocketAddr,
    /// The certificate and key, if connections are encrypted.
    pub tls: Option<TlsFiles>,
    /// Proxies whose forwarding headers are trusted.
    pub proxies: Proxies,
    pub database: Database,
    /// The admin listener, if there is one.
    pub admin: Option<AdminAddress>,
    pub accounts: AccountSet,
    /// Whether the only account is the well-known development account.
    pub is_development: bool,
    /// The keys that decrypt the account keys in the database. Without them, accounts in the database are not served.
    pub master_key: Option<MasterKeys>,
    /// The trusted issuer of bearer tokens, if there is one.
    pub trust: Option<Trust>,
    /// How long deleted tables can be restored, in ticks; 0 if they cannot.
    pub keep_deleted: i64,
    pub serving: ServingSettings,
    pub shutdown: ShutdownSettings,
    /// The duration beyond which requests are logged as slow.
    pub slow_request: Duration,
    /// The trace collector, if there is one.
    pub traces: Option<TraceSettings>,
}

impl Settings {
    /// Parses and checks the settings.
    pub(crate) fn read(&self) -> Result<Config, Mistakes> {
        let mut mistakes = Mistakes::default();
        let listen = mistakes.record(self.listen.address());
        let database = self.storage.read(&mut mistakes);
        let suffixes = mistakes.record(self.parse_host_suffixes()).unwrap_or_default();
        let mut identities = self.accounts.read(suffixes, &mut mistakes);
        if let Some(Identities { accounts, .. }) = &mut identities {
            mistakes.record(self.queries.apply(accounts));
        }
        let trust = mistakes.record(self.trust.read());
        mistakes.record(self.log_filter(&self.log));
        let keep_deleted = mistakes.record(self.parse_keep_deleted());
        let tls = mistakes.record(self.parse_tls());
        let proxies = mistakes.record(
            Proxies::parse(&self.trusted_proxies).map_err(|error| format!("--trusted-proxies: {error}")),
        );
        let admin = mistakes.record(self.parse_admin());
        let traces = mistakes.record(self.parse_traces());
        if let Some(listen) = listen {
            let is_development = identities.as_ref().is_some_and(|found| found.is_development);
            mistakes.record(check_admin_port(listen, admin.as_ref().and_then(Option::as_ref)));
            mistakes.record(self.check_development_account(listen, is_development));
        }
        let config = || {
            let Identities { accounts, is_development, master_key } = identities?;
            Some(Config {
                listen: listen?,
                tls: tls?,
                proxies: proxies?,
                database: database?,
                admin: admin?,
                accounts,
                is_development,
                master_key,
                trust: trust?,
                keep_deleted: keep_deleted?,
                serving: self.serving,
                shutdown: self.shutdown,
                traces: traces?,
                slow_request: Duration::from_millis(u64::from(self.slow_request_ms)),
            })
        };
        let config = config();
        mistakes.into_result(config)
    }

    /// Parses a log filter: the filter of the settings, or an extension of it.
    pub(crate) fn log_filter(&self, extended: &str) -> Result<EnvFilter, String> {
        EnvFilter::try_new(extended).map_err(|_| {
            format!(
                "--log {}: must be a level (error, warn, info, debug, trace) or a filter such as info,rowhouse=debug",
                self.log
            )
        })
    }

    /// Returns how long deleted tables are kept, in ticks.
    fn parse_keep_deleted(&self) -> Result<i64, String> {
        match self.keep_deleted.trim() {
            "0" | "" => Ok(0),
            time => durations::parse(time).map_err(|_| {
                format!(
                    "--keep-deleted {time}: must be 0, or a number of seconds, minutes, hours, days or weeks such as 7d"
                )
            }),
        }
    }

    /// Refuses to serve the development account to other machines, unless the operator allows it.
    fn check_development_account(&self, listen: SocketAddr, is_development: bool) -> Result<(), String> {
        if is_development && !self.allow_development_account && !listen.ip().to_canonical().is_loopback() {
            return Err(format!(
                "--listen {listen}: other machines can reach this address, and could use the well-known development \
                 account, because no other account is set; set --accounts (ROWHOUSE_ACCOUNTS) or --master-key, or \
                 allow it with --allow-development-account (ROWHOUSE_ALLOW_DEVELOPMENT_ACCOUNT=true)"
            ));
        }
        Ok(())
    }

    fn parse_host_suffixes(&self) -> Result<Vec<String>, String> {
        let given = self.host_suffix.iter().map(|text| text.trim().trim_start_matches('.'));
        let named = given.filter(|text| !text.is_empty()).map(|text| match is_host_name(text) {
            true => Ok(text.to_owned()),
            false => Err(format!(
                "--host-suffix {text}: must be a name such as tables.example.com, without a port"
            )),
        });
        named.collect()
    }

    fn parse_tls(&self) -> Result<Option<TlsFiles>, String> {
        let given = |path: &Option<PathBuf>| path.clone().filter(|path| !path.as_os_str().is_empty());
        match (given(&self.tls_cert), given(&self.tls_key)) {
            (None, None) => Ok(None),
            (Some(certificate), Some(key)) => Ok(Some(TlsFiles { certificate, key })),
            _ => Err("--tls-cert, --tls-key: give both or none".into()),
        }
    }
}

/// Returns the first address of a host name or IP address with a port.
pub(crate) fn resolve(text: &str) -> Option<SocketAddr> {
    text.to_socket_addrs().ok().and_then(|mut found| found.next())
}

/// Refuses the same port for both listeners.
fn check_admin_port(listen: SocketAddr, admin: Option<&AdminAddress>) -> Result<(), String> {
    match admin {
        Some(admin) if admin.is_chosen && collide(listen, admin.listen) => {
            Err(format!("--admin-listen {}: --listen uses this port too; choose another port", admin.listen))
        }
        _ => Ok(()),
    }
}

/// Returns whether two listeners would conflict.
fn collide(one: SocketAddr, other: SocketAddr) -> bool {
    let is_everywhere = one.ip().is_unspecified() || other.ip().is_unspecified();
    one.port() == other.port() && one.port() != 0 && (one.ip() == other.ip() || is_everywhere)
}

/// Returns whether a text can be a host name in a `Host` header.
fn is_host_name(text: &str) -> bool {
    let is_label = |label: &str| {
        !label.is_empty() && label.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"-_".contains(&byte))
    };
    text.split('.').all(is_label)
}

/// Returns whether a text is a URL with a host and one of these schemes.
fn is_url(text: &str, schemes: &[&str]) -> bool {
    let named = text.parse::<Uri>().ok().filter(|uri| uri.host().is_some_and(|host| !host.is_empty()));
    named.is_some_and(|uri| uri.scheme_str().is_some_and(|scheme| schemes.contains(&scheme)))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::protocol::model::ticks::TICKS_PER_SECOND;
    use crate::protocol::request::target::Accounts as _;
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
    fn the_url_scheme_selects_the_database() {
        let displayed = |url| read(&["--database-url", url]).map(|c| c.database.display());
        assert_eq!(displayed("sqlite://a.db").as_deref(), Ok("sqlite://a.db"));
        assert_eq!(displayed("sqlite::memory:").as_deref(), Ok("sqlite::memory:"));
        assert_eq!(
            displayed("postgres://u:secret@h:1/d?password=secret").as_deref(),
            Ok("postgres://u@h:1/d")
        );
        assert_eq!(displayed("postgresql:///d").as_deref(), Ok("postgresql:///d"));
        assert!(displayed("mysql://x").is_err() && displayed("").is_err() && displayed("sqlite:").is_err());
    }

    #[test]
    fn mistakes_name_their_flag() {
        for (arguments, part) in [
            (["--listen", "nonsense"], "--listen nonsense"),
            (["--accounts", "a"], "--accounts: account number 1"),
            (["--extended-queries", "devstoreaccount1,nobody"], "--extended-queries \"nobody\""),
            (["--table-spread", "0"], "--table-spread"),
            (["--workers", "x"], "--workers"),
            (["--tls-cert", "x"], "--tls-cert, --tls-key"),
            (["--tls-key", "x"], "--tls-cert, --tls-key"),
            (["--trusted-proxies", "10.0.0.1,x"], "--trusted-proxies: x is neither"),
            (["--trusted-proxies", "0.0.0.0/0"], "--trusted-proxies: 0.0.0.0/0 is everybody"),
            (["--otlp-endpoint", "x"], "--otlp-endpoint"),
            (["--otlp-endpoint", "http://"], "--otlp-endpoint"),
            (["--otlp-endpoint", "http://a b"], "--otlp-endpoint"),
            (["--oidc-issuer", "https://"], "--oidc-issuer"),
            (["--oidc-issuer", "https://user:password@issuer"], "--oidc-issuer"),
            (["--oidc-issuer", "http://issuer"], "--oidc-issuer"),
            (["--host-suffix", "a.example,*.example.com"], "--host-suffix *.example.com"),
            (["--host-suffix", "https://example.com"], "--host-suffix https://example.com"),
            (["--host-suffix", "example.com:10002"], "--host-suffix example.com:10002"),
            (["--host-suffix", "example..com"], "--host-suffix example..com"),
            (["--admin-listen", "127.0.0.1:10002"], "--admin-listen 127.0.0.1:10002"),
        ] {
            let message = read(&arguments).unwrap_err();
            assert!(message.contains(part), "{message}");
        }
        let suffixes = read(&["--host-suffix", ".a.example, ,b_c.example"]).unwrap();
        assert_eq!(suffixes.accounts.host_suffixes(), ["a.example", "b_c.example"]);
        let everywhere = ["--listen", "127.0.0.1:9", "--admin-token", "0123456789abcdef", "--admin-listen"];
        assert!(read(&[&everywhere[..], &["0.0.0.0:9"]].concat()).unwrap_err().contains("--listen uses"));
        assert!(read(&[&everywhere[..], &["127.0.0.2:9"]].concat()).is_ok());
        assert!(read(&["--listen", "127.0.0.1:0", "--admin-listen", "127.0.0.1:0"]).is_ok());
    }

    #[test]
    fn invalid_headers_for_the_collector_are_refused() {
        let headers = |text| read(&["--otlp-endpoint", "http://c:4318/x", "--otlp-headers", text]);
        let sent = headers("api-key=a%20b, x=").unwrap().traces.unwrap().headers;
        assert_eq!(sent, [("api-key".into(), "a b".into()), ("x".into(), String::new())]);
        for wrong in ["x", "=x", "a b=x", "ä=x", "a=x%0Ay", "a=%FF"] {
            let message = headers(wrong).unwrap_err();
            assert!(message.starts_with("--otlp-headers: ") && !message.contains(wrong), "{message}");
        }
    }

    #[test]
    fn an_admin_address_that_others_can_reach_needs_a_token() {
        let admin = |more: &[&str]| {
            let listen = ["--admin-listen", more[0]];
            read(&[&listen, &more[1..]].concat()).map(|config| config.admin.is_some())
        };
        let token = "0123456789abcdef";
        assert_eq!(read(&[]).map(|config| config.admin.is_some()), Ok(true));
        assert_eq!(read(&["--console", "off"]).map(|config| config.admin.is_some()), Ok(false));
        assert!(read(&["--listen", "127.0.0.1:10003"]).is_ok(), "the console takes another port");
        assert_eq!(admin(&[""]), Ok(false));
        assert_eq!(admin(&["127.0.0.1:1"]), Ok(true));
        assert_eq!(admin(&["[::1]:1", "--admin-token", token]), Ok(true));
        assert_eq!(admin(&["0.0.0.0:1", "--admin-token", token]), Ok(true));
        assert_eq!(admin(&["127.0.0.1:1", "--test-mode"]), Ok(true));
        for (arguments, words) in [
            (&["", "--test-mode"][..], "--test-mode: needs --admin-listen"),
            (&["0.0.0.0:1"], "--admin-token"),
            (&["0.0.0.0:1", "--admin-token", ""], "--admin-token"),
            (&["127.0.0.1:1", "--admin-token", "short"], "16 characters"),
            (&["nowhere"], "--admin-listen nowhere"),
            (&["127.0.0.1:1", "--admin-token", ""], "16 characters"),
            (&["127.0.0.1:1", "--admin-token", " \t"], "16 characters"),
            (&["127.0.0.1:1", "--admin-token-file", "/nonexistent"], "--admin-token-file /nonexistent"),
            (&["127.0.0.1:1", "--admin-token-file", "/dev/null"], "the file is empty"),
            (&["127.0.0.1:1", "--admin-token", "", "--admin-token-file", "/dev/null"], "the file is empty"),
            (&["127.0.0.1:1", "--admin-token", token, "--admin-token-file", "x"], "give one of the two"),
        ] {
            let message = admin(arguments).unwrap_err();
            assert!(message.contains(words) && !message.contains(token), "{message}");
        }
    }

    #[test]
    fn invalid_cluster_hosts_are_refused() {
        let url = "postgres://h/d";
        let with = |hosts| read(&["--database-url", url, "--cluster-hosts", hosts]).map(drop);
        assert_eq!(with("a:1=b:2,c:3=[::1]:4"), Ok(()));
        let refused = with("a=b").expect_err("no ports");
        assert!(refused.contains("--cluster-hosts: \"a=b\" is not name:port=address:port"), "{refused}");
    }

    #[test]
    fn only_postgres_has_a_replica() {
        let database = |url, secondary| {
            let config = read(&["--database-url", url, "--secondary-database-url", secondary])?;
            match config.database {
                Database::Postgres { replica, .. } => Ok(replica.map(|options| options.url.clone())),
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
    fn all_mistakes_are_reported_at_once() {
        let message = read(&[
            "--listen",
            "x",
            "--accounts",
            "a",
            "--database-url",
            "x",
            "--master-key",
            "x",
            "--log",
            "a=b=c",
        ]);
        let message = message.unwrap_err();
        let flags: Vec<&str> = message.lines().filter_map(|line| line.split([' ', ':']).next()).collect();
        assert_eq!(flags, ["--listen", "--database-url", "--master-key", "--accounts", "--log"]);
    }

    #[test]
    fn settings_without_effect_are_reported() {
        let idle = |arguments: &[&str]| {
            let line = Line::try_parse_from([&["rowhouse"], arguments].concat()).unwrap();
            line.settings.list_idle(&line.settings.read().unwrap())
        };
        let token = ["--admin-token", "0123456789abcdef", "--console", "off"];
        let postgres = ["--database-url", "postgres://h/d"];
        let issuer = ["--oidc-issuer", "https://i"];
        for (setting, needed) in [
            (&token[..], &["--admin-listen", "127.0.0.1:1"][..]),
            (&["--admin-token-file", "/nonexistent", "--console", "off"], &[]),
            (&["--console", "read-only", "--admin-listen", ""], &[]),
            (&["--migrate-url", "postgres://h/d"], &postgres),
            (&["--migrate-url-file", "Cargo.toml"], &postgres),
            (&["--table-spread", "2"], &postgres),
            (&["--oidc-roles", "a=reader"], &issuer),
            (&["--oidc-over-http"], &[&issuer[..], &["--oidc-roles", "a=reader"]].concat()),
            (&["--oidc-audience", "x"], &[&issuer[..], &["--oidc-roles", "a=reader"]].concat()),
            (&issuer, &["--oidc-roles", "a=reader"]),
            (&["--otlp-headers", "a=b"], &["--otlp-endpoint", "http://c"]),
        ] {
            let warnings = idle(setting);
            assert_eq!(warnings.len(), 1, "{warnings:?}");
            assert!(warnings[0].starts_with(setting[0].trim_end_matches("-file")), "{warnings:?}");
            if !needed.is_empty() {
                assert_eq!(idle(&[setting, needed].concat()), [""; 0], "{setting:?}");
            }
        }
        let blank = ["--admin-token", " ", "--oidc-roles", "", "--otlp-headers", " ", "--migrate-url", ""];
        assert_eq!(idle(&blank), [""; 0]);
        assert_eq!(idle(&[&postgres[..], &["--table-spread", "1"]].concat()), [""; 0]);
    }

    #[test]
    fn the_development_account_is_not_served_to_other_machines() {
        for (listen, kept) in [
            ("127.0.0.1:1", false),
            ("[::1]:1", false),
            ("127.9.9.9:1", false),
            ("0.0.0.0:1", true),
            ("[::]:1", true),
        ] {
            assert_eq!(read(&["--listen", listen]).is_err(), kept, "{listen}");
            assert!(read(&["--listen", listen, "--allow-development-account"]).is_ok());
            assert!(read(&["--listen", listen, "--accounts", "abc:AAAA"]).is_ok());
        }
        let master = ["--master-key", "AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA="];
        let config = read(&[&["--listen", "0.0.0.0:1"][..], &master].concat()).unwrap();
        assert!(!config.is_development && config.accounts.sample().is_none());
    }

    #[test]
    fn secrets_can_come_from_files() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("accounts");
        let file = path.to_str().unwrap();
        assert!(read(&["--accounts-file", file]).unwrap_err().starts_with("--accounts-file"));
        std::fs::write(&path, "\n").unwrap();
        assert!(read(&["--accounts-file", file]).unwrap_err().contains("empty"));
        std::fs::write(&path, "abc:AAAA\nabd:AQID\n").unwrap();
        assert!(read(&["--accounts-file", file]).unwrap().accounts.keys("abd").is_some());
        let endless = read(&["--accounts-file", "/dev/zero"]).unwrap_err();
        assert_eq!(endless, "--accounts-file /dev/zero: the file has more than 4 MiB");
        let both = read(&["--accounts-file", file, "--accounts", "abc:AAAA"]).unwrap_err();
        assert_eq!(both, "--accounts and --accounts-file: give one of the two");
    }

    #[test]
    fn the_time_for_deleted_tables_is_parsed() {
        let day = 86_400 * TICKS_PER_SECOND;
        for (time, ticks) in [("0", 0), ("0s", 0), ("", 0), ("7d", 7 * day), ("24h", day)] {
            assert_eq!(read(&["--keep-deleted", time]).unwrap().keep_deleted, ticks, "{time:?}");
        }
        for wrong in ["7", "-1d", "for ever"] {
            let message = read(&[&format!("--keep-deleted={wrong}")]).unwrap_err();
            assert!(message.starts_with(&format!("--keep-deleted {wrong}: must be")), "{message}");
        }
    }

    #[test]
    fn extended_queries_are_turned_on_by_account_name() {
        let config = read(&["--accounts", "abc:AAAA;abd:AQID;abe:AQID", "--extended-queries", "abd, ,abe"]);
        let accounts = config.unwrap().accounts;
        assert_eq!(
            ["abc", "abd", "abe"].map(|name| accounts.has_extended_queries(name)),
            [false, true, true]
        );
        let development = read(&["--extended-queries", "devstoreaccount1"]).unwrap().accounts;
        assert!(development.has_extended_queries("devstoreaccount1"));
        assert!(
            !read(&["--extended-queries", ""]).unwrap().accounts.has_extended_queries("devstoreaccount1")
        );
    }

    #[test]
    fn the_development_account_is_served_if_no_account_is_set() {
        assert!(read(&["--accounts", ""]).unwrap().is_development);
        assert!(!read(&["--accounts", "abc:AAAA"]).unwrap().is_development);
    }
}
