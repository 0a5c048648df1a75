//! Settings of the database.

use std::path::{Path, PathBuf};

use clap::Args;

use super::{ConfigError, Mistakes, secret};
use crate::store::postgres::{HostMap, PgOptions, mistake_in};
use crate::store::sqlite::{Location, MAX_MAP_MIB, SqliteOptions};

pub(super) const DEFAULT_MAX_CONNECTIONS: u32 = 32;
/// The default database.
const DEFAULT_URL: &str = "sqlite://rowhouse.db";

/// The URL of a database.
#[derive(Debug, Clone, Default, Args)]
#[command(next_help_heading = "Database")]
pub(crate) struct DatabaseUrl {
    /// URL of the database: sqlite://FILE, sqlite::memory: or postgres://…; for a Citus cluster, the URLs of
    /// several nodes, separated by ',' [default: sqlite://rowhouse.db]
    #[arg(long, env = "DATABASE_URL", hide_env_values = true)]
    pub database_url: Option<String>,

    /// File that holds the database URL
    #[arg(long, env = "DATABASE_URL_FILE")]
    pub database_url_file: Option<PathBuf>,
}

/// A database, and how to reach it.
#[derive(Debug, Clone, Default, Args)]
#[command(next_help_heading = "Database")]
pub(crate) struct DatabaseSettings {
    #[command(flatten)]
    pub url: DatabaseUrl,

    /// PostgreSQL only: a different URL for migrations, such as one that bypasses a connection pooler
    /// [default: the database URL]
    #[arg(long, env = "ROWHOUSE_MIGRATE_URL", hide_env_values = true)]
    pub migrate_url: Option<String>,

    /// File that holds the URL for migrations
    #[arg(long, env = "ROWHOUSE_MIGRATE_URL_FILE")]
    pub migrate_url_file: Option<PathBuf>,

    /// Addresses of Citus nodes, if only the cluster itself can reach the addresses in its catalogue:
    /// NAME:PORT=ADDRESS:PORT, separated by ','
    #[arg(long, env = "ROWHOUSE_CLUSTER_HOSTS", default_value = "", hide_default_value = true)]
    pub cluster_hosts: String,
}

/// The database of a server, and how the server uses it.
#[derive(Debug, Clone, Args)]
#[command(next_help_heading = "Database")]
pub(crate) struct StorageSettings {
    #[command(flatten)]
    pub database: DatabaseSettings,

    /// PostgreSQL only: URL of a read replica, which answers requests to {account}-secondary [default: the
    /// database URL]
    #[arg(long, env = "ROWHOUSE_SECONDARY_DATABASE_URL", hide_env_values = true)]
    pub secondary_database_url: Option<String>,

    /// File that holds the read replica's URL
    #[arg(long, env = "ROWHOUSE_SECONDARY_DATABASE_URL_FILE")]
    pub secondary_database_url_file: Option<PathBuf>,

    /// Number of buckets of a new table, 1 to 64; use more than 1 only on a sharded PostgreSQL
    #[arg(long, env = "ROWHOUSE_TABLE_SPREAD", default_value_t = 1, value_parser = clap::value_parser!(u16).range(1..=64))]
    pub table_spread: u16,

    /// Maximum number of connections to PostgreSQL
    #[arg(long, env = "ROWHOUSE_MAX_CONNECTIONS", default_value_t = DEFAULT_MAX_CONNECTIONS, value_parser = clap::value_parser!(u32).range(1..=10_000))]
    pub max_connections: u32,

    /// Maximum MiB of a SQLite file that the server reads through a memory map; 0 for none
    #[arg(long, env = "ROWHOUSE_SQLITE_MAP_MIB", default_value_t = MAX_MAP_MIB, value_parser = clap::value_parser!(u32).range(0..=i64::from(MAX_MAP_MIB)))]
    pub sqlite_map_mib: u32,
}

/// The database that stores the entities.
#[derive(Debug, Clone)]
pub(crate) enum Database {
    Sqlite(SqliteOptions),
    Postgres {
        options: PgOptions,
        /// The read replica, with the same limits as the primary.
        replica: Option<Box<PgOptions>>,
    },
}

impl DatabaseSettings {
    /// Reads the settings. Records a mistake and returns `None`.
    pub(crate) fn read(&self, mistakes: &mut Mistakes) -> Option<Database> {
        StorageSettings::new(self.clone(), DEFAULT_MAX_CONNECTIONS, MAX_MAP_MIB).read(mistakes)
    }
}

impl StorageSettings {
    /// Reads the settings. Records a mistake and returns `None`.
    pub(crate) fn read(&self, mistakes: &mut Mistakes) -> Option<Database> {
        let DatabaseSettings { url, migrate_url, migrate_url_file, .. } = &self.database;
        let secrets = [
            ("--database-url", &url.database_url, &url.database_url_file),
            ("--migrate-url", migrate_url, migrate_url_file),
            ("--secondary-database-url", &self.secondary_database_url, &self.secondary_database_url_file),
        ];
        let read = secrets.map(|(flag, value, file)| mistakes.note(secret(flag, value, file)));
        let [Some(given), Some(migrate_url), Some(secondary)] = read else { return None };
        let url = match (given, &url.database_url) {
            (Some(url), _) => url,
            (None, None) => DEFAULT_URL.to_owned(),
            (None, Some(_)) => return mistakes.note(Err(database_url_mistake(""))),
        };
        mistakes.note(self.database(&url, migrate_url, secondary.as_deref()))
    }

    /// Returns the database at a URL, with the default limits.
    pub(crate) fn of_url(url: &str) -> Result<Database, String> {
        // The memory map counts as memory of the process, and copies read everything only once.
        let settings = Self::with_limits(url, DEFAULT_MAX_CONNECTIONS, 0);
        settings.database(url, None, None).map_err(|error| error.to_string())
    }

    /// Returns the settings for a single database.
    pub(crate) fn with_limits(url: &str, max_connections: u32, sqlite_map_mib: u32) -> Self {
        let url = DatabaseUrl { database_url: Some(url.to_owned()), database_url_file: None };
        Self::new(DatabaseSettings { url, ..DatabaseSettings::default() }, max_connections, sqlite_map_mib)
    }

    const fn new(database: DatabaseSettings, max_connections: u32, sqlite_map_mib: u32) -> Self {
        Self {
            database,
            secondary_database_url: None,
            secondary_database_url_file: None,
            table_spread: 1,
            max_connections,
            sqlite_map_mib,
        }
    }

    fn database(
        &self,
        url: &str,
        migrate_url: Option<String>,
        secondary: Option<&str>,
    ) -> Result<Database, ConfigError> {
        if secondary.is_some_and(|url| !is_postgres(url)) {
            return Err(ConfigError::SecondaryUrl);
        }
        check_url("--migrate-url", migrate_url.as_deref())?;
        check_url("--secondary-database-url", secondary)?;
        if let Some(rest) = url.strip_prefix("sqlite:") {
            // URL parameters, which other programs accept, would become part of the file name.
            let location = Location::parse(rest).filter(|_| !rest.contains('?'));
            let location = location.ok_or_else(|| database_url_mistake(url))?;
            let options = SqliteOptions { map_mib: self.sqlite_map_mib, ..SqliteOptions::new(location) };
            let alone = secondary.is_none().then_some(Database::Sqlite(options));
            return alone.ok_or(ConfigError::SecondaryUrl);
        }
        if is_postgres(url) {
            let mut options = PgOptions::new(url);
            options.urls().iter().try_for_each(|url| check_url("--database-url", Some(url)))?;
            options.migrate_url = migrate_url;
            options.cluster_hosts =
                HostMap::parse(&self.database.cluster_hosts).map_err(ConfigError::ClusterHosts)?;
            options.spread = self.table_spread;
            options.max_connections = self.max_connections;
            let replica = secondary.map(|url| Box::new(PgOptions { url: url.to_owned(), ..options.clone() }));
            return Ok(Database::Postgres { options, replica });
        }
        Err(database_url_mistake(url))
    }
}

/// Describes the mistake in a database URL. Repeats the URL only if it cannot contain a password.
fn database_url_mistake(url: &str) -> ConfigError {
    let shown = if url.contains('@') { "" } else { url.trim() };
    let reason = if let Some(rest) = url.strip_prefix("sqlite:") {
        match rest.contains('?') {
            true => "a SQLite URL has no parameters; remove `?` and the text after it".to_owned(),
            false => "names no file; write sqlite://rowhouse.db, or sqlite::memory:".to_owned(),
        }
    } else if url.ends_with(".db") || url.ends_with(".sqlite") {
        format!("must begin with sqlite: or postgres:; did you mean sqlite://{shown}?")
    } else {
        "must begin with sqlite: or postgres:".to_owned()
    };
    ConfigError::DatabaseUrl { shown: shown.to_owned(), reason }
}

fn check_url(flag: &'static str, url: Option<&str>) -> Result<(), ConfigError> {
    let mistake = url.and_then(mistake_in);
    mistake.map_or(Ok(()), |mistake| Err(ConfigError::Url(flag, mistake)))
}

fn is_postgres(url: &str) -> bool {
    url.starts_with("postgres://") || url.starts_with("postgresql://")
}

impl Database {
    /// Returns whether the database is in memory, so that its contents end with the process.
    pub(crate) fn is_in_memory(&self) -> bool {
        matches!(self, Database::Sqlite(options) if options.location == Location::Memory)
    }

    /// Returns the path of the SQLite file if it does not exist yet.
    pub(crate) fn missing_file(&self) -> Option<&Path> {
        match self {
            Database::Sqlite(SqliteOptions { location: Location::File(path), .. }) if !path.exists() => {
                Some(path)
            }
            _ => None,
        }
    }

    /// Returns the database URL without its password and parameters, for messages.
    pub(crate) fn display(&self) -> String {
        match self {
            Database::Sqlite(options) => match &options.location {
                Location::Memory => "sqlite::memory:".into(),
                Location::File(path) => format!("sqlite://{}", path.display()),
            },
            Database::Postgres { options, .. } => display_postgres(options),
        }
    }
}

/// Returns PostgreSQL URLs without their passwords and parameters, for messages.
pub(crate) fn display_postgres(options: &PgOptions) -> String {
    options.urls().into_iter().map(without_password).collect::<Vec<_>>().join(",")
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
