//! Runs catalog statements on either database.

use futures_util::FutureExt as _;
use rusqlite::Connection;

use crate::postgres::PgStore;
use crate::postgres::connections::lease::Lease;
use crate::postgres::fault::Effect;
use crate::postgres::retry::retry;
use crate::postgres::state::table_ids::cache_key;
use crate::protocol::model::TableRef;
use crate::sql::{Sql, SqlRow, SqlText, sql};
use crate::sqlite::SqliteStore;
use crate::{Failure, Fault, StoreResult};

/// The number and the spread of a table. A negative spread marks a respread in progress.
pub(super) const TABLE_NO: &str =
    "SELECT table_no, spread FROM tables WHERE account = $1 AND name_lower = $2";
/// Locks a table in PostgreSQL, so that the table keeps its number until the end of the transaction.
pub(super) const LOCK_TABLE_SHARED: SqlText = SqlText::each(
    "SELECT table_no, spread FROM tables WHERE account = $1 AND name_lower = $2 FOR SHARE",
    TABLE_NO,
);

/// The database of a store. Futures of PostgreSQL are boxed, because those of SQLite would be as large otherwise.
#[derive(Clone, Copy)]
pub enum Backend<'a> {
    Postgres(&'a PgStore),
    Sqlite(&'a SqliteStore),
}

/// A store with a catalog.
pub trait CatalogStore: Send + Sync {
    fn backend(&self) -> Backend<'_>;
}

impl CatalogStore for PgStore {
    fn backend(&self) -> Backend<'_> {
        Backend::Postgres(self)
    }
}

impl CatalogStore for SqliteStore {
    fn backend(&self) -> Backend<'_> {
        Backend::Sqlite(self)
    }
}

impl Backend<'_> {
    pub(crate) async fn rows(self, sql: impl Into<Sql>) -> StoreResult<Vec<SqlRow>> {
        let sql = sql.into();
        match self {
            Backend::Postgres(store) => {
                Box::pin(retry(|| async {
                    let mut lease = store.nodes.acquire().await?;
                    let rows = lease.rows(sql.for_postgres(), Effect::Undone).await?;
                    Ok(rows.into_iter().map(SqlRow::Postgres).collect())
                }))
                .await
            }
            Backend::Sqlite(store) => store.readers.with_statement(|db| sql.run(db).map(Ok)),
        }
    }

    /// Like [`Backend::rows`], for at most one row.
    pub(crate) async fn row(self, sql: impl Into<Sql>) -> StoreResult<Option<SqlRow>> {
        Ok(self.rows(sql).await?.pop())
    }

    /// Like [`Backend::row`], for a statement that always returns a row.
    pub(crate) async fn only_row(self, sql: impl Into<Sql>) -> StoreResult<SqlRow> {
        Ok(self.row(sql).await?.ok_or(Fault::Other)?)
    }

    /// Runs a write of one statement, and returns whether it changed a row.
    pub(crate) async fn write(self, sql: impl Into<Sql>) -> StoreResult<bool> {
        let sql = sql.into();
        match self {
            Backend::Postgres(store) => {
                Box::pin(retry(|| async {
                    let mut lease = store.nodes.acquire_for_all_nodes().await?;
                    Ok(lease.row(sql.for_postgres(), Effect::Unknown).await?.is_some())
                }))
                .await
            }
            Backend::Sqlite(store) => {
                store.writer.submit(move |db| sql.run(db).map(|rows| Ok(!rows.is_empty()))).await
            }
        }
    }

    /// Evicts the number of a deleted table from the cache.
    pub(super) fn forget_table_id(self, table: TableRef<'_>) {
        if let Backend::Postgres(store) = self {
            store.table_cache.remove(&cache_key(table));
        }
    }

    /// Runs statements in one transaction. On SQLite, statements that refuse the operation must have changed nothing.
    pub(crate) async fn transact<T: Send + 'static>(
        self,
        work: impl AsyncFn(&mut SqlSession<'_>) -> StoreResult<T> + Send + 'static,
    ) -> StoreResult<T> {
        match self {
            Backend::Postgres(store) => {
                Box::pin(retry(|| async {
                    let mut lease = store.nodes.acquire_for_all_nodes().await?;
                    lease.begin().await?;
                    let done = work(&mut SqlSession::Postgres(&mut lease)).await;
                    match &done {
                        Ok(_) => lease.commit().await?,
                        Err(Failure::Refused(_)) => lease.roll_back().await,
                        // The lease closes its session.
                        Err(Failure::Fault(_)) => {}
                    }
                    done
                }))
                .await
            }
            Backend::Sqlite(store) => store.writer.submit(move |db| run_now(db, &work)).await,
        }
    }
}

/// Runs work synchronously on a SQLite database. A failure rolls back.
pub(super) fn run_now<T>(
    db: &mut Connection,
    work: &impl AsyncFn(&mut SqlSession<'_>) -> StoreResult<T>,
) -> rusqlite::Result<StoreResult<T>> {
    let mut session = SqlSession::Sqlite(db, None);
    let done = work(&mut session).now_or_never().unwrap_or(Err(Fault::Other.into()));
    match (done, session) {
        (_, SqlSession::Sqlite(_, Some(error))) => Err(error),
        (Err(Failure::Fault(_)), _) => Err(rusqlite::Error::InvalidQuery),
        (done, _) => Ok(done),
    }
}

/// Runs statements in sequence.
pub(crate) enum SqlSession<'s> {
    Postgres(&'s mut Lease),
    /// Includes the error of a failed statement.
    Sqlite(&'s mut Connection, Option<rusqlite::Error>),
}

impl SqlSession<'_> {
    pub(crate) async fn rows(&mut self, sql: impl Into<Sql>) -> StoreResult<Vec<SqlRow>> {
        let sql = sql.into();
        match self {
            SqlSession::Postgres(lease) => {
                let rows = lease.rows(sql.for_postgres(), Effect::Undone).await?;
                Ok(rows.into_iter().map(SqlRow::Postgres).collect())
            }
            SqlSession::Sqlite(db, failed) => sql.run(db).map_err(|error| {
                *failed = Some(error);
                Fault::Other.into()
            }),
        }
    }

    /// Runs a statement that returns at most one row.
    pub(crate) async fn row(&mut self, sql: impl Into<Sql>) -> StoreResult<Option<SqlRow>> {
        let SqlSession::Postgres(lease) = self else { return Ok(self.rows(sql).await?.pop()) };
        let effect = if lease.is_in_transaction() { Effect::Undone } else { Effect::Unknown };
        Ok(lease.row(sql.into().for_postgres(), effect).await?.map(SqlRow::Postgres))
    }

    /// Like [`SqlSession::row`], for a statement that always returns a row.
    pub(crate) async fn only_row(&mut self, sql: impl Into<Sql>) -> StoreResult<SqlRow> {
        Ok(self.row(sql).await?.ok_or(Fault::Other)?)
    }

    /// Runs a statement and returns whether it has a row. A change returns the rows that it changed.
    pub(crate) async fn has_row(&mut self, sql: impl Into<Sql>) -> StoreResult<bool> {
        Ok(self.row(sql).await?.is_some())
    }

    /// The number of a table, valid until the end of the transaction.
    pub(crate) async fn table_no(&mut self, table: TableRef<'_>) -> StoreResult<Option<i64>> {
        let row = self.row(sql(LOCK_TABLE_SHARED).bind(table.account).bind(table.name.lower())).await?;
        row.map(|row| row.get(0)).transpose()
    }
}
