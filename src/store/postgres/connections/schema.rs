//! The schema and its migrations, which are compiled into the program.

use sqlx::migrate::Migrator;
use sqlx::{Connection, PgConnection};

use crate::store::postgres::connections::options::{PgOptions, StartError};
use crate::store::postgres::statements;

/// The extension that distributes tables over several servers.
const SHARDING: &str = "citus";

fn migrator() -> Migrator {
    let mut migrator = sqlx::migrate!("./migrations/postgres");
    migrator.set_ignore_missing(true);
    migrator
}

/// The schema version of this program.
pub(crate) fn known() -> i64 {
    migrator().iter().map(|migration| migration.version).max().unwrap_or(0)
}

/// Migrates the schema, one process at a time. A schema that is newer than this program is left as
/// it is: migrations only ever add, so that replicas of two versions can run side by side. Returns
/// whether an extension may have distributed the tables over several servers.
pub(crate) async fn migrate(options: &PgOptions) -> Result<bool, StartError> {
    let url = options.migrate_url.as_ref().unwrap_or(&options.url);
    let connect = PgOptions::connect_options(url)?;
    let connected = tokio::time::timeout(options.acquire_timeout, PgConnection::connect_with(&connect)).await;
    let mut connection = connected
        .map_err(|_| StartError::ConnectTimeout(options.acquire_timeout))?
        .map_err(StartError::Connect)?;
    let migrator = migrator();
    // `run` cannot be used because its future is not `Send`.
    migrator.run_direct(None, &mut connection, false).await.map_err(StartError::Migrate)?;
    let sharded = sqlx::query(statements::HAS_EXTENSION).bind(SHARDING).fetch_optional(&mut connection);
    let sharded = sharded.await.map_err(StartError::Connect)?.is_some();
    connection.close().await.map_err(StartError::Connect)?;
    Ok(sharded)
}
