//! Schema migrations, compiled into the program.

use sqlx::{Connection, Executor as _};

use crate::contract::HostRole;
use crate::postgres::cluster::distribution::{add_tables, is_worker};
use crate::postgres::connections::hosts::role_of;
use crate::postgres::connections::options::{PgOptions, StartError};
use crate::postgres::connections::schema::{self, migrator};
use crate::postgres::connections::search_path::SearchPath;

/// Brings the schema up to date. If the migration server is unreachable, as a Citus coordinator may be, any listed
/// server with the current schema suffices.
pub(crate) async fn prepare(options: &PgOptions) -> Result<SearchPath, StartError> {
    let error = match migrate(options).await {
        Err(error @ (StartError::Connect(_) | StartError::ConnectTimeout(_))) => error,
        done => return done.inspect(warn_of_others),
    };
    for url in options.urls() {
        if let Ok(Some(path)) = schema::current(options, url).await {
            tracing::warn!(%error, "migrations cannot run, but the schema is current");
            return Ok(path);
        }
    }
    Err(error)
}

fn warn_of_others(path: &SearchPath) {
    let used = path.schema.as_deref().unwrap_or_default();
    for other in &path.empty {
        tracing::warn!(used, other, "another schema has empty tables of Rowhouse, which are not used");
    }
}

/// Migrates the schema, one process at a time. With a current schema, the role needs no right to create tables. A
/// newer schema stays unchanged: migrations only add, so replicas of two versions can run side by side. With Citus,
/// migrations also distribute the tables that they add.
async fn migrate(options: &PgOptions) -> Result<SearchPath, StartError> {
    let (mut connection, path) = schema::connect_to(options, options.migration_url()).await?;
    let db = &mut connection;
    schema::refuse_foreign_tables(db, &path).await?;
    let encoding = schema::encoding(db).await?;
    if encoding != "UTF8" {
        return Err(StartError::Encoding(encoding));
    }
    let is_current = schema::is_current(db).await?;
    if is_worker(db).await? {
        return if is_current { Ok(path) } else { Err(StartError::Worker) };
    }
    // A standby refuses the migrations, even with a current schema.
    if !is_current || role_of(db).await? != HostRole::Primary {
        // The role's timeout would abort the migration of a large table.
        db.execute("SET statement_timeout = 0").await?;
        // `run` cannot be used because its future is not `Send`.
        migrator().run_direct(None, db, false).await.map_err(StartError::Migrate)?;
    }
    add_tables(db).await.map_err(|error| StartError::Distribute(error.to_string()))?;
    connection.close().await.map_err(StartError::Connect)?;
    Ok(path)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The statements of a migration, without comments.
    fn statements_of(text: &str) -> Vec<String> {
        let lines = text.lines().filter(|line| !line.trim_start().starts_with("--"));
        let code = lines.collect::<Vec<_>>().join(" ");
        code.split(';').map(|part| part.trim().to_owned()).filter(|part| !part.is_empty()).collect()
    }

    /// The tables that the statements create.
    fn created(statements: &[String]) -> Vec<&str> {
        let names = statements.iter().filter_map(|text| text.strip_prefix("CREATE TABLE "));
        names.filter_map(|rest| rest.split_whitespace().next()).collect()
    }

    /// Whether a statement concerns a table that the same migration creates. Such a table is not distributed yet.
    fn is_about(statement: &str, created: &[&str]) -> bool {
        created.iter().any(|name| {
            statement.starts_with(&format!("CREATE TABLE {name} "))
                || statement.starts_with("CREATE INDEX ") && statement.contains(&format!(" ON {name} "))
        })
    }

    /// A migration is one message. Citus refuses some statements on distributed tables in multi-statement messages.
    #[test]
    fn a_migration_of_tables_that_are_there_is_a_single_statement() {
        for migration in migrator().iter() {
            let statements = statements_of(migration.sql.as_str());
            let created = created(&statements);
            let is_new = statements.iter().all(|statement| is_about(statement, &created));
            assert!(statements.len() == 1 || is_new, "{} {}", migration.version, migration.description);
        }
        let both = statements_of("-- a; b\nCREATE TABLE t (a int);\nALTER TABLE entities ADD b int;");
        assert!(both.len() == 2 && !is_about(&both[1], &created(&both)));
    }
}
