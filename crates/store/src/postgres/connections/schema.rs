//! Database prerequisites: the schema version, its location, and sessions that connections do not share.

use sqlx::migrate::Migrator;
use sqlx::{AssertSqlSafe, Connection, Executor, PgConnection, Row as _};
use tokio::time::timeout;
use uuid::Uuid;

use crate::postgres::connections::hosts::Hosts;
use crate::postgres::connections::options::{NO_TRANSACTION_TIMEOUT, PgOptions, StartError};
use crate::postgres::connections::search_path::{SearchPath, has_relation};
use crate::postgres::connections::sessions::close;
use crate::postgres::statements;

const MIGRATIONS: &str = "_sqlx_migrations";
/// Tables that indicate another program's schema if some of this program's tables are missing, and a query that must
/// find rows in the table.
const FOREIGN: [(&str, Option<&str>); 3] =
    [("tables", None), ("entities", None), (MIGRATIONS, Some("SELECT 1 FROM _sqlx_migrations LIMIT 1"))];
/// The oldest schema version with all tables that read statements use.
const READABLE: i64 = 12;

pub(crate) fn migrator() -> Migrator {
    let mut migrator = sqlx::migrate!("./migrations/postgres");
    migrator.set_ignore_missing(true);
    migrator
}

pub(crate) fn known() -> i64 {
    migrator().iter().map(|migration| migration.version).max().unwrap_or(0)
}

/// Returns the schema version; `None` before the first migration.
pub(crate) async fn version(db: &mut PgConnection) -> Result<Option<i64>, sqlx::Error> {
    match has_relation(db, MIGRATIONS).await? {
        true => sqlx::query_scalar(statements::SCHEMA_VERSION).fetch_one(db).await,
        false => Ok(None),
    }
}

pub(crate) async fn encoding(db: &mut PgConnection) -> Result<String, sqlx::Error> {
    sqlx::query_scalar(statements::ENCODING).fetch_one(db).await
}

/// Whether the schema version is the one this program knows, or newer.
pub(crate) async fn is_current(db: &mut PgConnection) -> Result<bool, sqlx::Error> {
    Ok(version(db).await? >= Some(known()))
}

/// Returns the location of the tables; `None` if the schema is older than the one this program knows.
pub(crate) async fn current(options: &PgOptions, url: &str) -> Result<Option<SearchPath>, StartError> {
    let (mut connection, path) = connect_to(options, url).await?;
    let is_current = is_current(&mut connection).await?;
    connection.close().await.map_err(StartError::Connect)?;
    Ok(is_current.then_some(path))
}

/// Finds the tables for read-only use, through the first listed server that answers.
pub(crate) async fn find(options: &PgOptions) -> Result<SearchPath, StartError> {
    let mut connected = Err(StartError::ConnectTimeout(options.acquire_timeout));
    for url in options.urls() {
        connected = connect_to(options, url).await;
        if !matches!(connected, Err(StartError::Connect(_) | StartError::ConnectTimeout(_))) {
            break;
        }
    }
    let (mut connection, path) = connected?;
    if !path.is_migrated {
        return Err(StartError::NoTables);
    }
    let found = version(&mut connection).await;
    connection.close().await.map_err(StartError::Connect)?;
    match found {
        Ok(None) => Err(StartError::NoTables),
        Ok(Some(version)) if version < READABLE => Err(StartError::Outdated(version)),
        // A read-only role may lack permission to read the version.
        Ok(_) | Err(sqlx::Error::Database(_)) => Ok(path),
        Err(error) => Err(StartError::Connect(error)),
    }
}

/// Connects to the server on which migrations run.
pub(crate) async fn connect(options: &PgOptions) -> Result<PgConnection, StartError> {
    Ok(connect_to(options, options.migration_url()).await?.0)
}

/// Connects, and restricts the session to the schema that contains the tables.
pub(crate) async fn connect_to(
    options: &PgOptions,
    url: &str,
) -> Result<(PgConnection, SearchPath), StartError> {
    connect_by(options, &Hosts::of(url, options.acquire_timeout)?).await
}

/// Same as [`connect_to`], for the chosen one of these hosts.
pub(crate) async fn connect_by(
    options: &PgOptions,
    hosts: &Hosts,
) -> Result<(PgConnection, SearchPath), StartError> {
    let limit = options.acquire_timeout;
    let connected = timeout(limit, hosts.connect()).await;
    let (mut db, _) =
        connected.map_err(|_| StartError::ConnectTimeout(limit))?.map_err(StartError::Connect)?;
    let confined = async {
        db.execute(sqlx::raw_sql(NO_TRANSACTION_TIMEOUT)).await.map_err(StartError::Connect)?;
        SearchPath::confine(&mut db).await
    };
    let path = timeout(limit, confined).await;
    Ok((db, path.map_err(|_| StartError::ConnectTimeout(limit))??))
}

/// Rejects a schema in which another program has tables with the same names.
pub(crate) async fn refuse_foreign_tables(
    db: &mut PgConnection,
    path: &SearchPath,
) -> Result<(), StartError> {
    let Some(schema) = path.schema.as_ref().filter(|_| !path.is_migrated) else { return Ok(()) };
    for (table, probe) in FOREIGN {
        let mut is_foreign = has_relation(db, table).await?;
        if is_foreign && let Some(probe) = probe {
            let row = sqlx::query(probe).fetch_optional(&mut *db).await;
            is_foreign = row?.is_some();
        }
        if is_foreign {
            // Another server may have migrated since the path was found.
            let is_migrated = SearchPath::is_migrated(db).await?;
            let foreign = || StartError::Foreign { schema: schema.clone(), table };
            return if is_migrated { Ok(()) } else { Err(foreign()) };
        }
    }
    Ok(())
}

const MARK: &str = "SELECT current_setting('rowhouse.mark', true) AS mark";

/// Checks that a setting of one connection is not visible in another. The check passes if the database does not answer
/// two connections in time.
///
/// # Errors
/// [`StartError::SharedSessions`].
pub(crate) async fn refuse_shared_sessions(options: &PgOptions) -> Result<(), StartError> {
    let limit = options.acquire_timeout;
    let hosts = Hosts::of(options.first_url(), limit)?;
    match timeout(limit, are_sessions_shared(&hosts)).await {
        Ok(Ok(true)) => Err(StartError::SharedSessions),
        _ => Ok(()),
    }
}

async fn are_sessions_shared(hosts: &Hosts) -> Result<bool, sqlx::Error> {
    let ((mut marked, _), mark) = (hosts.connect().await?, Uuid::new_v4().to_string());
    sqlx::raw_sql(AssertSqlSafe(format!("SET rowhouse.mark = '{mark}'"))).execute(&mut marked).await?;
    let (mut other, _) = hosts.connect().await?;
    let seen: Option<String> = sqlx::raw_sql(MARK).fetch_one(&mut other).await?.try_get("mark")?;
    tokio::join!(close(other), close(marked));
    Ok(seen.as_ref() == Some(&mark))
}
