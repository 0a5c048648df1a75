//! Which schema has the tables.
//!
//! PostgreSQL looks for tables in each schema of the search path, `"$user", public` by default. A schema
//! that is made later and stands before the one with the tables would hide them, and migrations would make
//! a second, empty set. So the schema is found once, and is then the only one on the path of each session.

use sqlx::{AssertSqlSafe, Executor as _, PgConnection};

use crate::postgres::connections::options::StartError;
use crate::postgres::statements;
use crate::quoting::identifier;

/// Tables that no other program has together.
const OURS: [&str; 3] = ["_sqlx_migrations", "entities", "tables"];
/// Those with rows in every database that is in use. Older schemas have no accounts.
const CONTENTS: [&str; 2] = ["tables", "accounts"];

/// The schema with the tables, and how sessions are confined to it.
#[derive(Debug, Clone, Default)]
pub(crate) struct SearchPath {
    /// The schema with the tables, or the one in which migrations will make them; `None` if there is none.
    pub schema: Option<String>,
    /// Whether it has the tables.
    pub is_migrated: bool,
    /// Other schemas with tables of this program, which are empty.
    pub empty: Vec<String>,
}

impl SearchPath {
    /// Finds the schema in a session that still has the path of its role, and confines it.
    ///
    /// # Errors
    /// [`StartError::Schemas`] if several schemas hold data.
    pub(crate) async fn confine(db: &mut PgConnection) -> Result<Self, StartError> {
        let found = Self::find(db).await?;
        db.execute(sqlx::raw_sql(AssertSqlSafe(found.statement()))).await.map_err(StartError::Connect)?;
        Ok(found)
    }

    /// The statement that confines a session.
    pub(crate) fn statement(&self) -> String {
        let set = |schema: &String| format!("SET search_path = {}", identifier(schema));
        self.schema.as_ref().map(set).unwrap_or_default()
    }

    /// Whether a schema on the path of the session has the tables by now.
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

/// The schemas on the path that have our tables.
async fn names(db: &mut PgConnection) -> Result<Vec<String>, sqlx::Error> {
    sqlx::query_scalar(statements::SCHEMAS_WITH).bind(&OURS[..]).fetch_all(db).await
}

/// Whether there is a relation of this name.
pub(crate) async fn has_relation(db: &mut PgConnection, name: &str) -> Result<bool, sqlx::Error> {
    sqlx::query_scalar(statements::HAS_RELATION).bind(name).fetch_one(db).await
}

/// Whether no table was created in a schema, and no account added.
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
