//! Inspects a database for its operator. These statements serve no clients and touch no entities.

use chrono::{DateTime, Utc};
use sqlx::postgres::PgRow;
use sqlx::{Connection, PgConnection, Row};

use crate::contract::cluster::{COLOCATED, REFERENCE};
use crate::postgres::cluster::distribution::{cluster, is_worker};
use crate::postgres::connections::hosts::Hosts;
use crate::postgres::connections::schema::refuse_shared_sessions;
use crate::postgres::connections::{PgOptions, StartError, allowed_connections, schema};
use crate::postgres::statements::{self, indexes, view};
use crate::sql::SqlRow;
use crate::{HostsFound, IndexState, Inspection, MigrationObstacle, StoredAccount, StoredIndex};

/// The privileges that a server needs on its tables.
const PRIVILEGES: [&str; 4] = ["SELECT", "INSERT", "UPDATE", "DELETE"];
/// The table, and the privilege on it, that a server needs to find the schema version.
const VERSION_NEEDS: (&str, &str) = ("_sqlx_migrations", "SELECT");

const SERVER: &str = "SELECT version() AS version, pg_is_in_recovery() AS is_standby, \
     current_setting('transaction_read_only')::bool AS reads_only";
const MISSING: &str = "SELECT p.name || ' on ' || t.name AS missing \
     FROM unnest($1::text[]) AS t (name) CROSS JOIN unnest($2::text[]) AS p (name) \
     WHERE NOT has_table_privilege(to_regclass(t.name), p.name) ORDER BY 1";
const MAY_CREATE: &str = "SELECT current_user::text AS role, current_schema()::text AS schema, \
     coalesce(has_schema_privilege(current_schema(), 'CREATE'), false) AS may_create";

/// Views with a comment that matches $1.
const VIEWS_WITH_COMMENT: &str = "SELECT n.nspname::text AS schema, c.relname::text AS name FROM pg_class AS c \
     JOIN pg_namespace AS n ON n.oid = c.relnamespace \
     WHERE c.relkind = 'v' AND obj_description(c.oid, 'pg_class') ~ $1 ORDER BY 1, 2";

/// Inspects the database and checks whether migrations could run.
pub async fn inspect(options: &PgOptions) -> Result<Inspection, StartError> {
    options.check()?;
    let limit = options.acquire_timeout + options.operation_timeout;
    let inspected = tokio::time::timeout(limit, look(options)).await;
    inspected.map_err(|_| StartError::ConnectTimeout(limit))?
}

async fn look(options: &PgOptions) -> Result<Inspection, StartError> {
    let hosts = Hosts::of(options.first_url(), options.acquire_timeout)?;
    refuse_shared_sessions(options).await?;
    let (mut connection, path) = schema::connect_by(options, &hosts).await?;
    let db = &mut connection;
    schema::refuse_foreign_tables(db, &path).await?;
    let mut found = table_id(db).await?;
    found.hidden_schemas = path.empty;
    match &options.migrate_url {
        None => {
            let (table, privilege) = VERSION_NEEDS;
            let hidden = missing(db, &[table], &[privilege]).await?;
            found.missing.extend(hidden);
            find_obstacle(db, &mut found).await?;
        }
        Some(url) => match schema::connect_to(options, url).await {
            Ok((mut other, _)) => {
                find_obstacle(&mut other, &mut found).await?;
            }
            Err(error) => {
                find_version(db, &mut found).await?;
                found.migration_obstacle = Some(MigrationObstacle::Away(error.to_string()));
            }
        },
    }
    if hosts.are_several() {
        let (used, take_any) = (hosts.name(), hosts.take_any());
        found.hosts = Some(HostsFound { used, take_any, listed: hosts.ask_each().await });
    }
    found.cluster = cluster(&mut connection, hosts.role()).await?;
    connection.close().await.map_err(StartError::Connect)?;
    Ok(found)
}

async fn table_id(db: &mut PgConnection) -> Result<Inspection, sqlx::Error> {
    let server = sqlx::query(SERVER).fetch_one(&mut *db).await?;
    let (asked, row) = (Utc::now(), sqlx::query(statements::CLOCK).fetch_one(&mut *db).await?);
    // The database's answer is assumed to come from the middle of the round trip.
    let middle = asked + (Utc::now() - asked) / 2;
    let theirs = DateTime::from_timestamp_micros(row.try_get("micros")?);
    let missing = missing(db, &server_tables(), &PRIVILEGES).await?;
    let accounts = if missing.is_empty() && has_table(db, "accounts").await? {
        let rows: Vec<PgRow> = sqlx::query(StoredAccount::LIST).fetch_all(&mut *db).await?;
        rows.into_iter().filter_map(|row| StoredAccount::read(&SqlRow::Postgres(row)).ok()).collect()
    } else {
        Vec::new()
    };
    let abandoned_respreads =
        if missing.is_empty() { find_abandoned_respreads(db).await? } else { Vec::new() };
    let missing_indexes = if missing.is_empty() { missing_indexes(db).await? } else { Vec::new() };
    let old_views = find_old_views(db).await?;
    let allowed_connections = Some(allowed_connections(db).await?);
    let product: String = server.try_get("version")?;
    Ok(Inspection {
        product: product.split_whitespace().take(2).collect::<Vec<_>>().join(" "),
        known_schema: schema::known(),
        encoding: Some(schema::encoding(db).await?),
        allowed_connections,
        is_standby: server.try_get("is_standby")?,
        reads_only: server.try_get("reads_only")?,
        missing,
        skew: theirs.map(|theirs| theirs - middle),
        abandoned_respreads,
        missing_indexes,
        old_views,
        accounts,
        ..Inspection::default()
    })
}

async fn find_version(db: &mut PgConnection, found: &mut Inspection) -> Result<(), sqlx::Error> {
    (found.schema, found.is_schema_hidden) = match schema::version(db).await {
        Ok(version) => (version, false),
        Err(sqlx::Error::Database(_)) => (None, true),
        Err(error) => return Err(error),
    };
    Ok(())
}

/// The privileges on existing tables that the role lacks.
async fn missing(
    db: &mut PgConnection,
    tables: &[&str],
    privileges: &[&str],
) -> Result<Vec<String>, sqlx::Error> {
    let rows = sqlx::query(MISSING).bind(tables).bind(privileges).fetch_all(db).await?;
    rows.iter().map(|row| row.try_get("missing")).collect()
}

/// Tables with an unfinished respread whose command died or was interrupted.
async fn find_abandoned_respreads(db: &mut PgConnection) -> Result<Vec<String>, sqlx::Error> {
    if !has_table(db, "respreads").await? {
        return Ok(Vec::new());
    }
    let rows = sqlx::query(statements::respread::ABANDONED).fetch_all(db).await?;
    let name = |row: &PgRow| {
        let (account, table): (String, String) = (row.try_get("account")?, row.try_get("name")?);
        Ok(format!("{account}/{table}"))
    };
    rows.iter().map(name).collect()
}

/// Indexes that the catalogue lists as ready but that the database lacks.
async fn missing_indexes(db: &mut PgConnection) -> Result<Vec<String>, sqlx::Error> {
    if !has_table(db, "property_indexes").await? {
        return Ok(Vec::new());
    }
    let rows = sqlx::query(StoredIndex::LIST).fetch_all(&mut *db).await?;
    let (entities, kind) = indexes::ENTITIES;
    let mut missing = Vec::new();
    for index in rows.into_iter().filter_map(|row| StoredIndex::read(&SqlRow::Postgres(row)).ok().flatten()) {
        let prefix = indexes::prefix(index.index.index_no);
        let look = sqlx::query(indexes::IS_COMPLETE).bind(entities).bind(kind).bind(prefix).bind(1_i16);
        let is_there: bool = look.fetch_one(&mut *db).await?.try_get("found")?;
        if index.state == IndexState::Ready && !is_there {
            missing.push(index.named());
        }
    }
    Ok(missing)
}

async fn find_old_views(db: &mut PgConnection) -> Result<Vec<String>, sqlx::Error> {
    let rows = sqlx::query(VIEWS_WITH_COMMENT).bind(view::ABANDONED_VIEW_COMMENT).fetch_all(db).await?;
    rows.iter().map(|row| Ok(view::qualified(Some(row.try_get("schema")?), row.try_get("name")?))).collect()
}

/// The tables that a server uses: all except those of the migrations.
fn server_tables() -> Vec<&'static str> {
    let all = COLOCATED.iter().chain(&REFERENCE).copied();
    all.filter(|name| !name.starts_with('_')).collect()
}

async fn has_table(db: &mut PgConnection, name: &str) -> Result<bool, sqlx::Error> {
    sqlx::query(statements::HAS_RELATION).bind(name).fetch_one(db).await?.try_get("found")
}

/// Finds the schema version at the migration server, and the obstacle to a required migration.
async fn find_obstacle(db: &mut PgConnection, found: &mut Inspection) -> Result<(), sqlx::Error> {
    find_version(db, found).await?;
    if !found.is_schema_hidden && found.schema < Some(found.known_schema) {
        found.migration_obstacle = obstacle(db).await?;
    }
    Ok(())
}

async fn obstacle(db: &mut PgConnection) -> Result<Option<MigrationObstacle>, sqlx::Error> {
    if is_worker(db).await? {
        return Ok(Some(MigrationObstacle::OnWorker));
    }
    let row = sqlx::query(MAY_CREATE).fetch_one(db).await?;
    if row.try_get("may_create")? {
        return Ok(None);
    }
    let (role, schema): (String, Option<String>) = (row.try_get("role")?, row.try_get("schema")?);
    Ok(Some(MigrationObstacle::Forbidden(match schema {
        Some(schema) => format!("the role {role} may not create tables in the schema {schema}"),
        None => format!("the role {role} has no schema on its search_path"),
    })))
}
