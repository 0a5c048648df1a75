//! Building, measuring and removing property indexes.

use rusqlite::{Connection, OptionalExtension};

use crate::protocol::model::Ticks;
use crate::protocol::plan::index::PropertyIndex;
use crate::store::contract::indexes::removable_until;
use crate::store::sqlite::SqliteStore;
use crate::store::sqlite::catalog::{entries, indexes};
use crate::store::sqlite::rows::Sqlite;
use crate::store::sqlite::store::CancelledBuild;
use crate::store::{
    AddedIndex, BuiltIndex, Failure, IndexFigures, Indexes, NewIndex, StoreResult, StoredIndex,
};
use std::time::Duration;

/// Instructions of SQLite between two looks at whether a build is cancelled.
/// How long an index may take to be built.
const BUILD_LIMIT: Duration = Duration::from_secs(24 * 3600);
const STEPS: i32 = 10_000;

impl Indexes for SqliteStore {
    async fn indexes(&self) -> StoreResult<Vec<StoredIndex>> {
        self.readers.with(|db| indexes::list(db).map(Ok))
    }

    async fn add_index(&self, index: NewIndex<'_>, now: Ticks) -> StoreResult<AddedIndex> {
        let NewIndex { table, property, kind } = index;
        let (table, property) = (table.into_owned(), property.to_owned());
        let add = move |db: &Connection| indexes::add(db, table.as_ref(), &property, kind, now);
        self.writer.submit(add).await
    }

    async fn build_index(&self, index: &PropertyIndex, now: Ticks) -> StoreResult<BuiltIndex> {
        let (index, cancelled) = (index.clone(), self.cancelled_build.clone());
        let index_no = index.index_no;
        let build = move |db: &Connection| build(db, &index, now, &cancelled).map(Ok);
        match self.writer.submit_within(BUILD_LIMIT, build).await {
            // The cancellation has rolled the transaction of the build back.
            Err(Failure::Fault(_)) if self.cancelled_build.is(index_no) => Ok(BuiltIndex::Gone),
            built => built,
        }
    }

    async fn drop_index(&self, index_no: i64, now: Ticks) -> StoreResult<bool> {
        self.cancelled_build.set(index_no);
        self.writer.submit(move |db| indexes::drop(db, index_no, now).map(Ok)).await
    }

    async fn remove_index(&self, now: Ticks) -> StoreResult<bool> {
        // Writers have nothing to do with the question.
        if !self.readers.with(|db| is_any_removable(db, now).map(Ok))? {
            return Ok(false);
        }
        self.writer.submit_within(BUILD_LIMIT, move |db| remove(db, now).map(Ok)).await
    }

    async fn index_figures(&self, index: &PropertyIndex) -> StoreResult<IndexFigures> {
        let index_no = index.index_no;
        let bytes = self.read_apart(move |db| bytes(db, index_no).map(Ok)).await?;
        Ok(IndexFigures { bytes, uses: self.narrowing.uses.of(index_no), progress: None })
    }
}

/// Builds an index in the transaction of the writer. Readers go on; writes wait.
pub(crate) fn build(
    db: &Connection,
    index: &PropertyIndex,
    now: Ticks,
    cancelled: &CancelledBuild,
) -> Sqlite<BuiltIndex> {
    let index_no = index.index_no;
    if cancelled.is(index_no) || !indexes::is_wanted(db, index_no)? {
        return Ok(BuiltIndex::Gone);
    }
    let cancelled = cancelled.clone();
    db.progress_handler(STEPS, Some(move || cancelled.is(index_no)))?;
    let built = db.execute_batch(&entries::definition(index));
    db.progress_handler(0, None::<fn() -> bool>)?;
    // A cancellation rolls back the whole transaction; the other writes of its group are then tried one by one.
    built?;
    indexes::complete(db, index_no, now)?;
    Ok(BuiltIndex::Ready)
}

/// Whether an index is left that nothing uses any more.
pub(crate) fn is_any_removable(db: &Connection, now: Ticks) -> Sqlite<bool> {
    Ok(indexes::removable(db, removable_until(now))?.is_some())
}

/// Removes one index that nothing uses any more; returns whether there was one.
pub(crate) fn remove(db: &Connection, now: Ticks) -> Sqlite<bool> {
    let Some(index_no) = indexes::removable(db, removable_until(now))? else { return Ok(false) };
    db.execute_batch(&entries::removal(index_no))?;
    indexes::forget(db, index_no)?;
    Ok(true)
}

/// Returns the size of an index.
pub(crate) fn bytes(db: &Connection, index_no: i64) -> Sqlite<Option<u64>> {
    let bytes: Option<Option<i64>> = db
        .prepare_cached("SELECT pgsize FROM dbstat WHERE name = ?1 AND aggregate = TRUE")?
        .query_row([entries::name(index_no)], |row| row.get(0))
        .optional()?;
    Ok(bytes.flatten().map(i64::cast_unsigned))
}
