//! Finds the schema that contains the tables.
//!
//! PostgreSQL looks for tables in each schema of the search path, by default `"$user", public`. A schema that is
//! created later and precedes the one with the tables would hide them, and migrations would create a second, empty
//! set. The schema is therefore determined once and becomes the only one on each session's path.

use sqlx::{AssertSqlSafe, Executor as _, PgConnection};

use crate::postgres::connections::options::StartError;
use crate::postgres::statements;
use crate::quoting::identifier;

/// A combination of tables that no other program has.
const OURS: [&str; 3] = ["_sqlx_migrations", "entities", "tables"];
/// Tables that have rows in every database in use. Older schemas have no `accounts` table.
const CONTENTS: [&str; 2] = ["tables", "accounts"];

#[derive(Debug, Clone, Default)]
pub(crate) struct SearchPath {
    /// The schema with the tables, or the one in which migrations will create them; `None` if there is none.
    pub schema: Option<String>,
    /// Whether the schema contains the tables.
    pub is_migrated: bool,
    /// Other schemas with empty tables of this program.
    pub empty: Vec<String>,
}

impl SearchPath {
    /// Finds the schema through a session that still has its role's path, and restricts the session to that schema.
    ///
    /// # Errors
    /// [`StartError::Schemas`] if several schemas hold data.
    pub(crate) async fn confine(db: &mut PgConnection) -> Result<Self, StartError> {
        let found = Self::find(db).await?;
        db.execute(sqlx::raw_sql(AssertSqlSafe(found.statement()))).await.map_err(StartError::Connect)?;
        Ok(found)
    }

    /// Returns the statement that restricts a session to the schema.
    pub(crate) fn statement(&self) -> String {
        let set = |schema: &String| format!("SET search_path = {}", identifier(schema));
        self.schema.as_ref().map(set).unwrap_or_default()
    }

    /// Whether a schema on the session's path now contains the tables.
    pub(crate) async fn is_migrated(db: &mut PgConnection) -> Result<bool, sqlx::Error> {
        Ok(!names(db).await?.is_empty())
    }

    async fn find(db: &mut PgConnection) -> Result<Self, StartError> {
        let names = names(db).await.map_err(StartError::Connect)?;
        let [_, _, ..] = names.as_slice() else {
            let is_migrated = !names.is_empty();
            let schema = match names.into_iter().next() {
                None => {
                    let current = sqlx::query_scalar(statements::CURRENT_SCHEMA).fetch_one(&mut *db).await;
                    current.map_err(StartError::Connect)?
                }
                found => found,
            };
            return Ok(Self { schema, is_migrated, empty: Vec::new() });
        };
        let (mut used, mut empty) = (Vec::new(), Vec::new());
        for name in names {
            let is_empty = is_empty(db, &name).await.map_err(StartError::Connect)?;
            if is_empty { empty.push(name) } else { used.push(name) }
        }
        let schema = match used.len() {
            0 => empty.remove(0),
            1 => used.remove(0),
            _ => return Err(StartError::Schemas(used.join(" and "))),
        };
        Ok(Self { schema: Some(schema), is_migrated: true, empty })
    }
}

/// Returns the schemas on the path that contain this program's tables.
async fn names(db: &mut PgConnection) -> Result<Vec<String>, sqlx::Error> {
    sqlx::query_scalar(statements::SCHEMAS_WITH).bind(&OURS[..]).fetch_all(db).await
}

pub(crate) async fn has_relation(db: &mut PgConnection, name: &str) -> Result<bool, sqlx::Error> {
    sqlx::query_scalar(statements::HAS_RELATION).bind(name).fetch_one(db).await
}

/// Whether a schema contains no created tables and no added accounts.
async fn is_empty(db: &mut PgConnection, schema: &str) -> Result<bool, sqlx::Error> {
    for table in CONTENTS {
        let name = format!("{}.{}", identifier(schema), identifier(table));
        if !has_relation(db, &name).await? {
            continue;
        }
        let first = AssertSqlSafe(statements::first_row(&name));
        if sqlx::query(first).fetch_optional(&mut *db).await?.is_some() {
            return Ok(false);
        }
    }
    Ok(true)
}
