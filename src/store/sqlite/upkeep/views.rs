//! SQL views of tables, in the file of the database.

use rusqlite::{Connection, ErrorCode, OptionalExtension, Row, params};

use crate::error::Code;
use crate::protocol::model::{TableRef, Ticks};
use crate::store::bucket::bucket;
use crate::store::quoting::identifier;
use crate::store::sqlite::SqliteStore;
use crate::store::sqlite::catalog::tables::SPREAD;
use crate::store::sqlite::rows::{Sqlite, ticks};
use crate::store::sqlite::upkeep::view_text;
use crate::store::{SqlView, SqlViews, StoreResult, UntidyView, ViewDefinition, ViewFailure};

/// What was done, or what SQLite says about the definition.
type Defined<T> = Result<T, String>;

impl SqlViews for SqliteStore {
    async fn put_view(
        &self,
        table: TableRef<'_>,
        view: &ViewDefinition,
        now: Ticks,
    ) -> Result<(), ViewFailure> {
        let (table, view) = (table.into_owned(), view.clone());
        let put = move |db: &Connection| {
            let Some(table_no) = number(db, table.as_ref())? else {
                return Ok(Err(Code::TableNotFound.into()));
            };
            Ok(Ok(in_savepoint(db, || put(db, table_no, &view, now))?))
        };
        self.writer.submit(put).await?.map_err(ViewFailure::Message)
    }

    async fn drop_view(&self, table: TableRef<'_>) -> Result<bool, ViewFailure> {
        let table = table.into_owned();
        let drop = move |db: &Connection| {
            let Some(table_no) = number(db, table.as_ref())? else {
                return Ok(Err(Code::TableNotFound.into()));
            };
            drop_recorded(db, table_no).map(Ok)
        };
        Ok(self.writer.submit(drop).await?)
    }

    async fn views(&self, account: Option<&str>) -> StoreResult<Vec<SqlView>> {
        self.readers.with(|db| {
            db.prepare_cached(
                "SELECT t.account, t.name, v.schema_name, v.name, v.columns, v.grants, v.refreshed, v.seen, v.is_full
                 FROM sql_views AS v JOIN tables AS t ON t.table_no = v.table_no
                 WHERE t.account = coalesce(?1, t.account) ORDER BY t.account, t.name_lower",
            )?
            .query_map([account], view)?
            .collect::<Sqlite<_>>()
            .map(Ok)
        })
    }

    async fn tidy_views(&self) -> StoreResult<Vec<UntidyView>> {
        const ORPHANS: &str =
            "SELECT v.table_no FROM sql_views AS v WHERE v.table_no NOT IN (SELECT table_no FROM tables)";
        let read = |db: &Connection| {
            db.prepare_cached(ORPHANS)?.query_map([], |row| row.get(0))?.collect::<Sqlite<Vec<i64>>>()
        };
        for table_no in self.readers.with_statement(|db| read(db).map(Ok))? {
            self.writer.submit(move |db| drop_orphan(db, table_no).map(Ok)).await?;
        }
        Ok(Vec::new())
    }
}

fn number(db: &Connection, table: TableRef<'_>) -> Sqlite<Option<i64>> {
    db.prepare_cached("SELECT table_no FROM tables WHERE account = ?1 AND name_lower = ?2")?
        .query_row(params![table.account, table.name.lower()], |row| row.get(0))
        .optional()
}

/// Runs definitions of which all or none are made, in a transaction that others share. SQLite
/// reports with its general error what it does not accept of them.
fn in_savepoint<T>(db: &Connection, work: impl FnOnce() -> Sqlite<T>) -> Sqlite<Defined<T>> {
    db.execute_batch("SAVEPOINT defining")?;
    let done = work();
    if done.is_err() {
        db.execute_batch("ROLLBACK TO defining")?;
    }
    db.execute_batch("RELEASE defining")?;
    match done {
        Ok(done) => Ok(Ok(done)),
        Err(rusqlite::Error::SqliteFailure(error, Some(text))) if error.code == ErrorCode::Unknown => {
            Ok(Err(text))
        }
        Err(rusqlite::Error::SqlInputError { msg, .. }) => Ok(Err(msg)),
        Err(error) => Err(error),
    }
}

fn put(db: &Connection, table_no: i64, view: &ViewDefinition, now: Ticks) -> Sqlite<()> {
    drop_recorded(db, table_no)?;
    db.execute_batch(&view_text::create(view, table_no, bucket(table_no, SPREAD, "")))?;
    // SQLite looks at a view's columns only when it is read.
    db.prepare(&format!("SELECT * FROM {} LIMIT 0", identifier(&view.name)))?;
    let json = |value| serde_json::to_string(value).map_err(|_| rusqlite::Error::InvalidQuery);
    let grants = serde_json::to_string(&view.grants).map_err(|_| rusqlite::Error::InvalidQuery)?;
    db.prepare_cached(
        "INSERT INTO sql_views (table_no, schema_name, name, columns, grants, refreshed, seen, is_full)
         VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8)",
    )?
    .execute(params![
        table_no,
        view.schema,
        view.name,
        json(&view.columns)?,
        grants,
        now.raw(),
        view.seen.cast_signed(),
        view.is_full,
    ])
    .map(drop)
}

/// Drops the view of a table, and its record. Somebody may have dropped it, and made another one of its name,
/// which stays.
fn drop_recorded(db: &Connection, table_no: i64) -> Sqlite<bool> {
    let name: Option<String> = db
        .prepare_cached("SELECT name FROM sql_views WHERE table_no = ?1")?
        .query_row([table_no], |row| row.get(0))
        .optional()?;
    let Some(name) = name else { return Ok(false) };
    let text: Option<String> = db
        .prepare_cached("SELECT sql FROM sqlite_schema WHERE type = 'view' AND name = ?1 COLLATE NOCASE")?
        .query_row([&name], |row| row.get(0))
        .optional()?;
    if text.is_some_and(|text| text.contains(&view_text::of_table(table_no))) {
        db.execute_batch(&format!("DROP VIEW IF EXISTS {}", identifier(&name)))?;
    }
    db.prepare_cached("DELETE FROM sql_views WHERE table_no = ?1")?.execute([table_no])?;
    Ok(true)
}

/// Drops the view of a deleted table, unless the table has come back.
fn drop_orphan(db: &Connection, table_no: i64) -> Sqlite<()> {
    if !db.prepare_cached("SELECT 1 FROM tables WHERE table_no = ?1")?.exists([table_no])? {
        drop_recorded(db, table_no)?;
    }
    Ok(())
}

fn view(row: &Row<'_>) -> Sqlite<SqlView> {
    let broken = |column, error: serde_json::Error| {
        rusqlite::Error::FromSqlConversionFailure(column, rusqlite::types::Type::Text, Box::new(error))
    };
    let (columns, grants): (String, String) = (row.get(4)?, row.get(5)?);
    Ok(SqlView {
        account: row.get(0)?,
        table: row.get(1)?,
        definition: ViewDefinition {
            schema: row.get(2)?,
            name: row.get(3)?,
            columns: serde_json::from_str(&columns).map_err(|error| broken(4, error))?,
            grants: serde_json::from_str(&grants).map_err(|error| broken(5, error))?,
            seen: row.get::<_, i64>(7)?.cast_unsigned(),
            is_full: row.get(8)?,
        },
        refreshed: ticks(row, 6)?,
    })
}
