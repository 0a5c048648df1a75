//! Building, measuring and removing property indexes.

use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};

use rusqlite::{Connection, OptionalExtension};

use crate::protocol::model::Ticks;
use crate::protocol::plan::index::PropertyIndex;
use crate::store::BuiltIndex;
use crate::store::contract::indexes::removable_until;
use crate::store::sqlite::catalog::{entries, indexes};
use crate::store::sqlite::rows::Sqlite;

/// Instructions of SQLite between two looks at whether a build is cancelled.
const STEPS: i32 = 10_000;

/// The number of the index whose build was cancelled last. Its build, if one is under way, ends early.
#[derive(Debug, Clone, Default)]
pub(crate) struct CancelledBuild(Arc<AtomicI64>);

impl CancelledBuild {
    /// Cancels the build of an index.
    pub(crate) fn set(&self, index_no: i64) {
        self.0.store(index_no, Ordering::SeqCst);
    }

    /// Whether the build of this index was cancelled last.
    pub(crate) fn is(&self, index_no: i64) -> bool {
        self.0.load(Ordering::SeqCst) == index_no
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
