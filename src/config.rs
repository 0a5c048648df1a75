//! Settings, and where they come from: flags, environment variables and a
//! `.env` file, in that order of precedence. All three are alike.

mod identity;
mod storage;

use std::net::SocketAddr;
use std::path::PathBuf;

use clap::{Args, ValueEnum};
pub use identity::{AccountSettings, Keyholders, ListenSettings, MasterKeySettings};
pub use storage::{Database, StorageSettings};
use tracing_subscriber::EnvFilter;

use crate::auth::AccountSet;
use crate::auth::accounts::AccountError;
use crate::auth::bearer::{Assignment, AssignmentError, Trust};
use crate::auth::seal::MasterKey;

/// How to run the server.
#[derive(Debug, Clone, Args)]
pub struct Settings {
    #[command(flatten)]
    pub listen: ListenSettings,

    #[command(flatten)]
    pub storage: StorageSettings,

    #[command(flatten)]
    pub accounts: AccountSettings,

    /// Serve the well-known development account on an address that others can reach
    #[arg(long, env = "ROWHOUSE_ALLOW_DEVELOPMENT_ACCOUNT")]
    pub allow_development_account: bool,

    /// Suffixes of host names whose first label is an account, separated by ','
    #[arg(long, env = "ROWHOUSE_HOST_SUFFIX", value_delimiter = ',')]
    pub host_suffix: Vec<String>,

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

    /// Seconds that requests in flight may take to finish at shutdown
    #[arg(long, env = "ROWHOUSE_SHUTDOWN_SECONDS", default_value_t = 30, value_parser = clap::value_parser!(u16).range(0..=3600))]
    pub shutdown_seconds: u16,

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
    pub database: Database,
    pub accounts: AccountSet,
    /// Whether the accounts are the well-known one that everybody can open.
    pub is_development: bool,
    /// Opens the accounts of the database, which are served if it is given.
    pub master_key: Option<MasterKey>,
    /// Whose tokens are trusted, if any are.
    pub trust: Option<Trust>,
    pub workers: Option<u16>,
    pub max_clients: u32,
    pub max_filter_comparisons: usize,
    pub shutdown_seconds: u16,
}

/// A setting that makes no sense, for whoever starts the server.
#[derive(Debug, thiserror::Error)]
pub enum ConfigError {
    #[error("--listen {0}: not an address with a port, such as 127.0.0.1:10002")]
    Listen(String),
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
    #[error("--master-key: not 32 bytes in base64; `openssl rand -base64 32` makes one")]
    MasterKey,
    #[error(
        "--listen {0}: others can reach this address, and without accounts of your own they could use the \
         well-known development account; set --accounts (ROWHOUSE_ACCOUNTS) or --master-key, or accept it \
         with --allow-development-account (ROWHOUSE_ALLOW_DEVELOPMENT_ACCOUNT=true)"
    )]
    Development(SocketAddr),
    #[error("--log {0}: not a level or a tracing filter")]
    Log(String),
    #[error("{0} and {0}-file: give one of the two")]
    Both(&'static str),
    #[error("{flag}-file {}: {reason}", path.display())]
    File { flag: &'static str, path: PathBuf, reason: String },
}

/// Every setting that makes no sense, a line each.
#[derive(Debug, Default, thiserror::Error)]
pub struct Mistakes(Vec<ConfigError>);

impl std::fmt::Display for Mistakes {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let lines: Vec<String> = self.0.iter().map(ToString::to_string).collect();
        f.write_str(&lines.join("\n"))
    }
}

impl From<ConfigError> for Mistakes {
    fn from(error: ConfigError) -> Self {
        Self(vec![error])
    }
}

impl Mistakes {
    /// The value, or `None` for a mistake, which is kept.
    pub fn note<T>(&mut self, result: Result<T, ConfigError>) -> Option<T> {
        result.map_err(|mistake| self.0.push(mistake)).ok()
    }

    /// The value, unless there are mistakes.
    ///
    /// # Errors
    /// The mistakes.
    pub fn unless<T>(self, value: Option<T>) -> Result<T, Self> {
        match value {
            Some(value) if self.0.is_empty() => Ok(value),
            _ => Err(self),
        }
    }
}

/// A secret that is given in place or in a file; blank in place is none.
///
/// # Errors
/// [`ConfigError`] for one given twice, and for a file that is empty or cannot
/// be read.
pub fn secret(
    flag: &'static str,
    value: &Option<String>,
    file: &Option<PathBuf>,
) -> Result<Option<String>, ConfigError> {
    let value = value.as_deref().map(str::trim).filter(|text| !text.is_empty());
    let file = file.as_ref().filter(|path| !path.as_os_str().is_empty());
    let (path, text) = match (value, file) {
        (Some(_), Some(_)) => return Err(ConfigError::Both(flag)),
        (value, None) => return Ok(value.map(str::to_owned)),
        (None, Some(path)) => (path, std::fs::read_to_string(path)),
    };
    let wrong = |reason: String| ConfigError::File { flag, path: path.clone(), reason };
    let text = text.map_err(|error| wrong(error.to_string()))?;
    // Not the same as none: it would open the door to the development account.
    if text.trim().is_empty() {
        return Err(wrong("the file is empty".into()));
    }
    Ok(Some(text.trim().to_owned()))
}

impl Settings {
    /// Reads the settings that are more than numbers.
    ///
    /// # Errors
    /// All [`Mistakes`] at once.
    pub fn read(&self) -> Result<Config, Mistakes> {
        let mut mistakes = Mistakes::default();
        let listen = mistakes.note(self.listen.address());
        let database = self.storage.read(&mut mistakes);
        let suffixes = self.host_suffix.iter().map(|s| s.trim().trim_start_matches('.').to_owned());
        let keyholders = self.accounts.read(suffixes.collect(), &mut mistakes);
        let trust = mistakes.note(self.trust());
        let filter = EnvFilter::try_new(&self.log).map_err(|_| ConfigError::Log(self.log.clone()));
        mistakes.note(filter);
        if let (Some(address), Some(keyholders)) = (listen, &keyholders)
            && keyholders.is_development
            && !self.allow_development_account
            && !address.ip().to_canonical().is_loopback()
        {
            mistakes.note::<()>(Err(ConfigError::Development(address)));
        }
        let config = || {
            let Keyholders { accounts, is_development, master_key } = keyholders?;
            Some(Config {
                listen: listen?,
                database: database?,
                accounts,
                is_development,
                master_key,
                trust: trust?,
                workers: self.workers,
                max_clients: self.max_clients,
                max_filter_comparisons: self.max_filter_comparisons as usize,
                shutdown_seconds: self.shutdown_seconds,
            })
        };
        let config = config();
        mistakes.unless(config)
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
        ] {
            let message = read(&arguments).unwrap_err();
            assert!(message.contains(part), "{message}");
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
    fn all_mistakes_are_told_at_once() {
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
    fn the_development_account_is_kept_from_others() {
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
    fn secrets_may_stand_in_files() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("accounts");
        let file = path.to_str().unwrap();
        assert!(read(&["--accounts-file", file]).unwrap_err().starts_with("--accounts-file"));
        std::fs::write(&path, "\n").unwrap();
        assert!(read(&["--accounts-file", file]).unwrap_err().contains("empty"));
        std::fs::write(&path, "abc:AAAA\nabd:AQID\n").unwrap();
        assert!(read(&["--accounts-file", file]).unwrap().accounts.keys("abd").is_some());
        let both = read(&["--accounts-file", file, "--accounts", "abc:AAAA"]).unwrap_err();
        assert_eq!(both, "--accounts and --accounts-file: give one of the two");
    }

    #[test]
    fn without_accounts_there_is_the_well_known_one() {
        assert!(read(&["--accounts", ""]).unwrap().is_development);
        assert!(!read(&["--accounts", "abc:AAAA"]).unwrap().is_development);
    }
}
