//! Opens the database in the settings.

use std::thread::available_parallelism;

use crate::server::config::{Config, Database, display_postgres};
use crate::store::postgres::{
    self, ConnectionDemand, DistributionError, PgOptions, PgStore, RespreadError, StartError,
};
use crate::store::sqlite::{Location, OpenError, ServerLock, SqliteOptions, SqliteStore};
use crate::store::{Inspection, Store};

/// The reason why an operation on the database failed, in one line.
#[derive(Debug, thiserror::Error)]
pub(crate) enum DatabaseError {
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
    /// Returns advice, if there is any for this error.
    pub(crate) fn advice(&self) -> Option<&'static str> {
        match self {
            DatabaseError::Postgres { error, .. } => error.advice(),
            _ => None,
        }
    }
}

/// Opens the database without its replica, and migrates the schema.
pub(crate) async fn open_primary(database: &Database) -> Result<Store, DatabaseError> {
    Ok(open(database).await?.0)
}

/// Opens the database like [`open_primary`], but does not create a missing file, whose name may be misspelt.
pub(crate) async fn open_existing(database: &Database) -> Result<Store, DatabaseError> {
    match database.missing_file() {
        Some(path) => Err(DatabaseError::Missing(path.display().to_string())),
        None => open_primary(database).await,
    }
}

/// Opens the database for reading only. The database is neither created nor migrated, and nothing is written.
pub(crate) async fn open_to_read(database: &Database) -> Result<Store, DatabaseError> {
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
pub(crate) async fn inspect_primary(database: &Database) -> Result<Inspection, DatabaseError> {
    Ok(match database {
        Database::Sqlite(options) => SqliteStore::inspect(&options.location)?,
        Database::Postgres { options, .. } => {
            postgres::inspect(options).await.map_err(|error| failed(options, error))?
        }
    })
}

/// Inspects the read replica, if there is one.
pub(crate) async fn inspect_replica(database: &Database) -> Option<Result<Inspection, DatabaseError>> {
    match database {
        Database::Postgres { replica: Some(options), .. } => {
            Some(postgres::inspect(options).await.map_err(|error| failed(options, error)))
        }
        _ => None,
    }
}

/// Compares the number of connections that a server with these settings may open with the number `allowed`.
/// Returns `None` for SQLite.
pub(crate) fn connection_demand(config: &Config, allowed: u32) -> Option<ConnectionDemand> {
    let Database::Postgres { options, .. } = &config.database else { return None };
    let threads = match config.workers {
        Some(workers) => u32::from(workers),
        None => available_parallelism().map_or(1, |threads| u32::try_from(threads.get()).unwrap_or(u32::MAX)),
    };
    Some(ConnectionDemand { most: options.most_connections(threads), allowed })
}

/// Logs how many connections this server may open, and how many the database allows.
pub(crate) async fn log_connections(config: &Config, store: &Store) {
    let Store::Postgres(store) = store else { return };
    let demand = match store.allowed_connections().await {
        Ok(allowed) => connection_demand(config, allowed),
        Err(failure) => {
            return tracing::debug!(?failure, "the connection limit of the database could not be read");
        }
    };
    match demand {
        Some(demand) if demand.fits() => tracing::info!("{demand}"),
        Some(demand) => tracing::warn!("{demand}: {}", ConnectionDemand::ADVICE),
        None => {}
    }
}

/// Locks a SQLite file against other servers. Returns `None` for other databases.
///
/// # Errors
/// [`DatabaseError::Sqlite`] if a server holds the lock.
pub(crate) fn lock(database: &Database) -> Result<Option<ServerLock>, DatabaseError> {
    match database {
        Database::Sqlite(SqliteOptions { location: Location::File(path), .. }) => Ok(ServerLock::take(path)?),
        _ => Ok(None),
    }
}

/// Opens the database and, if there is one, its read replica.
pub(crate) async fn open(database: &Database) -> Result<(Store, Option<Store>), DatabaseError> {
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
