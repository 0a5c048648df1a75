//! Removes the rows of deleted tables in small steps.

use rusqlite::{Connection, OptionalExtension, params};

use crate::protocol::model::Ticks;
use crate::sqlite::catalog::tables::SPREAD;
use crate::sqlite::{Sqlite, SqliteStore};
use crate::{StoreResult, Upkeep, bucket};

/// Maximum number of rows per purge step. A long step delays writes; a short one invalidates reader caches more often.
const PURGE_ROWS: i64 = 500;

impl Upkeep for SqliteStore {
    async fn current_until(&self, now: Ticks) -> StoreResult<Option<Ticks>> {
        Ok(Some(now))
    }

    async fn clock(&self) -> StoreResult<Option<Ticks>> {
        Ok(None)
    }

    async fn backlog(&self) -> StoreResult<u64> {
        self.readers.with(|db| backlog(db).map(Ok))
    }

    async fn answers(&self) -> StoreResult<()> {
        // A file system that hangs must not block a worker thread.
        self.read_on_blocking_pool(|db| probe(db).map(Ok)).await
    }

    async fn purge(&self, _now: Ticks) -> StoreResult<bool> {
        self.writer.submit(|db| purge(db).map(Ok)).await
    }
}

/// Returns how many deleted tables are not completely purged.
fn backlog(db: &Connection) -> Sqlite<u64> {
    let count = db.prepare_cached("SELECT count(*) FROM doomed")?.query_row([], |row| row.get(0));
    count.map(i64::cast_unsigned)
}

/// Removes some entities of one deleted table; `false` if no deleted table is left.
fn purge(db: &Connection) -> Sqlite<bool> {
    let doomed: Option<i64> = db
        .prepare_cached("SELECT table_no FROM doomed ORDER BY due LIMIT 1")?
        .query_row([], |row| row.get(0))
        .optional()?;
    let Some(no) = doomed else { return Ok(false) };
    let removed = db
        .prepare_cached(
            "DELETE FROM entities WHERE rowid IN
             (SELECT rowid FROM entities WHERE bucket = ?1 LIMIT ?2)",
        )?
        .execute(params![bucket::bucket(no, SPREAD, ""), PURGE_ROWS])?;
    if removed == 0 {
        db.prepare_cached("DELETE FROM doomed WHERE table_no = ?1")?.execute([no])?;
    }
    Ok(true)
}

/// Checks whether reads work.
fn probe(db: &Connection) -> Sqlite<()> {
    db.prepare_cached("SELECT count(*) FROM (SELECT 1 FROM tables LIMIT 1)")?.query_row([], |_| Ok(()))
}
