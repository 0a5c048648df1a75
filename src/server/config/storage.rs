//! Settings of the database.

use std::path::PathBuf;

use clap::Args;

use super::mistakes::{Mistakes, secret};
use crate::store::database::{DEFAULT_MAX_CONNECTIONS, Database, DatabaseOptions, database_url_mistake};
use crate::store::sqlite::MAX_MAP_MIB;

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

impl DatabaseSettings {
    /// Reads the settings. If they are invalid, records the mistakes and returns `None`.
    pub(crate) fn read(&self, mistakes: &mut Mistakes) -> Option<Database> {
        StorageSettings::new(self.clone(), DEFAULT_MAX_CONNECTIONS, MAX_MAP_MIB).read(mistakes)
    }
}

impl StorageSettings {
    /// Reads the settings. If they are invalid, records the mistakes and returns `None`.
    pub(crate) fn read(&self, mistakes: &mut Mistakes) -> Option<Database> {
        let DatabaseSettings { url, migrate_url, migrate_url_file, .. } = &self.database;
        let secrets = [
            ("--database-url", &url.database_url, &url.database_url_file),
            ("--migrate-url", migrate_url, migrate_url_file),
            ("--secondary-database-url", &self.secondary_database_url, &self.secondary_database_url_file),
        ];
        let read = secrets.map(|(flag, value, file)| mistakes.record(secret(flag, value, file)));
        let [Some(given), Some(migrate_url), Some(secondary)] = read else { return None };
        let url = match (given, &url.database_url) {
            (Some(url), _) => url,
            (None, None) => DEFAULT_URL.to_owned(),
            (None, Some(_)) => return mistakes.record(Err(database_url_mistake(""))),
        };
        let options = DatabaseOptions {
            migrate_url,
            secondary: secondary.as_deref(),
            cluster_hosts: &self.database.cluster_hosts,
            table_spread: self.table_spread,
            max_connections: self.max_connections,
            sqlite_map_mib: self.sqlite_map_mib,
        };
        mistakes.record(Database::of_url(&url, options))
    }

    /// Returns the settings for a single database.
    pub(crate) const fn new(database: DatabaseSettings, max_connections: u32, sqlite_map_mib: u32) -> Self {
        Self {
            database,
            secondary_database_url: None,
            secondary_database_url_file: None,
            table_spread: 1,
            max_connections,
            sqlite_map_mib,
        }
    }
}
