//! Parses database URLs and opens databases.

use std::path::Path;

use crate::postgres::{
    self, DistributionError, HostMap, PgOptions, PgStore, RespreadError, StartError, mistake_in,
};
use crate::sqlite::{self, Location, MAX_MAP_MIB, OpenError, ServerLock, SqliteOptions, SqliteStore};
use crate::{Inspection, Store};

/// The default limit on connections to PostgreSQL.
pub const DEFAULT_MAX_CONNECTIONS: u32 = 32;

/// The configured database.
#[derive(Debug, Clone)]
pub enum Database {
    Sqlite(SqliteOptions),
    Postgres {
        options: PgOptions,
        /// Options of the read replica, with the same limits as the primary.
        replica: Option<Box<PgOptions>>,
    },
}

/// Database options other than the URL. Some options apply only to one kind of database.
#[derive(Debug, Clone)]
pub struct DatabaseOptions<'a> {
    /// The URL for migrations, if different.
    pub migrate_url: Option<String>,
    /// The URL of the read replica, if any.
    pub secondary: Option<&'a str>,
    /// Reachable addresses of Citus nodes, in the format of [`HostMap::parse`].
    pub cluster_hosts: &'a str,
    /// Number of buckets of a new table.
    pub table_spread: u16,
    pub max_connections: u32,
    /// Maximum MiB of a SQLite file that are read through a memory map.
    pub sqlite_map_mib: u32,
}

impl Default for DatabaseOptions<'_> {
    fn default() -> Self {
        Self {
            migrate_url: None,
            secondary: None,
            cluster_hosts: "",
            table_spread: 1,
            max_connections: DEFAULT_MAX_CONNECTIONS,
            sqlite_map_mib: MAX_MAP_MIB,
        }
    }
}

const SECONDARY_URL: &str =
    "--secondary-database-url: must begin with postgres://, and so must --database-url";

/// Why a database operation failed, in one line.
#[derive(Debug, thiserror::Error)]
pub enum DatabaseError {
    #[error(
        "there is no file {0}; the first start of a server, `rowhouse migrate` or `rowhouse account add` \
         creates it"
    )]
    Missing(String),
    #[error("{0}")]
    Sqlite(#[from] OpenError),
    #[error("{place}: {error}")]
    Postgres {
        /// The URL without its password.
        place: String,
        error: StartError,
    },
    #[error("{0}")]
    Distribution(#[from] DistributionError),
    #[error("{0}")]
    Respread(#[from] RespreadError),
}

/// Adds the database to an error.
fn failed(options: &PgOptions, error: StartError) -> DatabaseError {
    DatabaseError::Postgres { place: display_postgres(options), error }
}

impl DatabaseError {
    /// Returns advice for the operator, if this error has any.
    pub fn advice(&self) -> Option<&'static str> {
        match self {
            DatabaseError::Postgres { error, .. } => error.advice(),
            _ => None,
        }
    }
}

/// Opens the database without its replica, and migrates the schema.
pub async fn open_primary(database: &Database) -> Result<Store, DatabaseError> {
    Ok(open(database).await?.0)
}

/// Same as [`open_primary`], but does not create a missing database file, because the name may be misspelt.
pub async fn open_existing(database: &Database) -> Result<Store, DatabaseError> {
    match database.missing_file() {
        Some(path) => Err(DatabaseError::Missing(path.display().to_string())),
        None => open_primary(database).await,
    }
}

/// Opens the database read-only. The database is neither created nor migrated.
pub async fn open_to_read(database: &Database) -> Result<Store, DatabaseError> {
    if let Some(path) = database.missing_file() {
        return Err(DatabaseError::Missing(path.display().to_string()));
    }
    Ok(match database {
        Database::Sqlite(options) => Store::Sqlite(SqliteStore::open_to_read(options)?),
        Database::Postgres { options, .. } => {
            let store = PgStore::open_to_read(options).await.map_err(|error| failed(options, error))?;
            Store::Postgres(Box::new(store))
        }
    })
}

/// Inspects the database without changing it.
pub async fn inspect_primary(database: &Database) -> Result<Inspection, DatabaseError> {
    Ok(match database {
        Database::Sqlite(options) => sqlite::inspect(&options.location)?,
        Database::Postgres { options, .. } => {
            postgres::inspect(options).await.map_err(|error| failed(options, error))?
        }
    })
}

/// Inspects the read replica, if there is one.
pub async fn inspect_replica(database: &Database) -> Option<Result<Inspection, DatabaseError>> {
    match database {
        Database::Postgres { replica: Some(options), .. } => {
            Some(postgres::inspect(options).await.map_err(|error| failed(options, error)))
        }
        _ => None,
    }
}

/// Locks a SQLite file against other servers; `None` for other databases.
///
/// # Errors
/// [`DatabaseError::Sqlite`] if another server holds the lock.
pub fn lock(database: &Database) -> Result<Option<ServerLock>, DatabaseError> {
    match database {
        Database::Sqlite(SqliteOptions { location: Location::File(path), .. }) => Ok(ServerLock::take(path)?),
        _ => Ok(None),
    }
}

/// Opens the database and its read replica, if any.
pub async fn open(database: &Database) -> Result<(Store, Option<Store>), DatabaseError> {
    Ok(match database {
        Database::Sqlite(options) => (Store::Sqlite(SqliteStore::open(options)?), None),
        Database::Postgres { options, replica } => {
            let primary = PgStore::connect(options.clone()).await.map_err(|error| failed(options, error))?;
            let open = |replica: &PgOptions| primary.replica(replica).map_err(|error| failed(replica, error));
            let replica = replica.as_deref().map(open).transpose()?;
            (Store::Postgres(Box::new(primary)), replica.map(|store| Store::Postgres(Box::new(store))))
        }
    })
}

impl Database {
    /// Parses a database URL and its options.
    ///
    /// # Errors
    /// The message names the invalid URL or option, with the server's flag.
    pub fn of_url(url: &str, options: DatabaseOptions<'_>) -> Result<Self, String> {
        let DatabaseOptions { migrate_url, secondary, .. } = options;
        if secondary.is_some_and(|url| !is_postgres(url)) {
            return Err(SECONDARY_URL.to_owned());
        }
        check_url("--migrate-url", migrate_url.as_deref())?;
        check_url("--secondary-database-url", secondary)?;
        if let Some(rest) = url.strip_prefix("sqlite:") {
            // Other programs accept URL parameters; here they would become part of the file name.
            let location = Location::parse(rest).filter(|_| !rest.contains('?'));
            let location = location.ok_or_else(|| database_url_mistake(url))?;
            let options = SqliteOptions { map_mib: options.sqlite_map_mib, ..SqliteOptions::new(location) };
            let alone = secondary.is_none().then_some(Database::Sqlite(options));
            return alone.ok_or_else(|| SECONDARY_URL.to_owned());
        }
        if is_postgres(url) {
            let mut postgres = PgOptions::new(url);
            postgres.urls().iter().try_for_each(|url| check_url("--database-url", Some(url)))?;
            postgres.migrate_url = migrate_url;
            postgres.cluster_hosts =
                HostMap::parse(options.cluster_hosts).map_err(|error| format!("--cluster-hosts: {error}"))?;
            postgres.spread = options.table_spread;
            postgres.max_connections = options.max_connections;
            let replica =
                secondary.map(|url| Box::new(PgOptions { url: url.to_owned(), ..postgres.clone() }));
            return Ok(Database::Postgres { options: postgres, replica });
        }
        Err(database_url_mistake(url))
    }

    /// Whether the database is in memory and therefore lost when the process ends.
    pub fn is_in_memory(&self) -> bool {
        matches!(self, Database::Sqlite(options) if options.location == Location::Memory)
    }

    /// Returns the path of the SQLite file if it does not exist yet.
    pub fn missing_file(&self) -> Option<&Path> {
        match self {
            Database::Sqlite(SqliteOptions { location: Location::File(path), .. }) if !path.exists() => {
                Some(path)
            }
            _ => None,
        }
    }

    /// Returns the database URL without its password and parameters, for messages.
    pub fn display(&self) -> String {
        match self {
            Database::Sqlite(options) => match &options.location {
                Location::Memory => "sqlite::memory:".into(),
                Location::File(path) => format!("sqlite://{}", path.display()),
            },
            Database::Postgres { options, .. } => display_postgres(options),
        }
    }
}

/// Describes a mistake in a database URL. The message repeats the URL only if it cannot contain a password.
pub fn database_url_mistake(url: &str) -> String {
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
    format!("--database-url{}{shown}: {reason}", if shown.is_empty() { "" } else { " " })
}

fn check_url(flag: &'static str, url: Option<&str>) -> Result<(), String> {
    let mistake = url.and_then(mistake_in);
    mistake.map_or(Ok(()), |mistake| Err(format!("{flag}: {mistake}")))
}

fn is_postgres(url: &str) -> bool {
    url.starts_with("postgres://") || url.starts_with("postgresql://")
}

/// Returns the URLs of a PostgreSQL database without passwords and parameters, for messages.
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
