//! Builds, measures and removes property indexes.

use std::time::{Duration, Instant};

use rusqlite::{Connection, OptionalExtension};

use crate::protocol::model::Ticks;
use crate::protocol::plan::index::PropertyIndex;
use crate::sql::sql;
use crate::sqlite::catalog::entries;
use crate::sqlite::connections::locks::CancelledBuilds;
use crate::sqlite::{Sqlite, SqliteStore};
use crate::{BuiltIndex, Failure, Fault, IndexFigures, StoreResult, StoredIndex};

const BUILD_LIMIT: Duration = Duration::from_secs(24 * 3600);
/// SQLite instructions between two checks for a cancelled build.
const STEPS: i32 = 10_000;
/// Timeout of a drop that waits for the end of a build. A build cannot be cancelled while SQLite sorts the entries.
const DROP_LIMIT: Duration = Duration::from_secs(60);
const DROP_PAUSE: Duration = Duration::from_millis(100);

impl SqliteStore {
    pub(crate) async fn build(&self, index: &PropertyIndex, now: Ticks) -> StoreResult<BuiltIndex> {
        let (index, cancelled) = (index.clone(), self.cancelled_builds.clone());
        let build = move |db: &mut Connection| build(db, &index, now, &cancelled).map(Ok);
        match self.writer.submit_within(BUILD_LIMIT, build).await {
            // The cancellation rolled back the build's transaction.
            Err(Failure::Fault(Fault::Busy)) => Ok(BuiltIndex::Busy),
            built => built,
        }
    }

    /// Cancels the build of an index until the index is dropped.
    pub(crate) async fn cancel_until_done<F>(&self, index_no: i64, drop: impl Fn() -> F) -> StoreResult<bool>
    where
        F: Future<Output = StoreResult<bool>>,
    {
        let begun = Instant::now();
        loop {
            let _cancellation = self.cancelled_builds.cancel(index_no);
            match drop().await {
                // A build has the lock of the file, or the queue is full of writes that wait for the build.
                Err(Failure::Fault(Fault::NotBegun | Fault::Busy)) if begun.elapsed() < DROP_LIMIT => {}
                dropped => return dropped,
            }
            tokio::time::sleep(DROP_PAUSE).await;
        }
    }

    /// Removes an unused index.
    pub(crate) async fn remove(&self, index_no: i64) -> StoreResult<bool> {
        let remove = move |db: &mut Connection| {
            db.execute_batch(&entries::removal(index_no))?;
            sql(StoredIndex::FORGET).bind(index_no).run(db)?;
            Ok(Ok(true))
        };
        self.writer.submit_within(BUILD_LIMIT, remove).await
    }

    pub(crate) async fn figures(&self, index: &PropertyIndex) -> StoreResult<IndexFigures> {
        let index_no = index.index_no;
        let bytes = self.read_on_blocking_pool(move |db| bytes(db, index_no).map(Ok)).await?;
        Ok(IndexFigures { bytes, uses: self.narrowing.uses.of(index_no), progress: None })
    }
}

/// Builds an index in the writer's transaction. Reads continue; writes wait.
fn build(
    db: &Connection,
    index: &PropertyIndex,
    now: Ticks,
    cancelled: &CancelledBuilds,
) -> Sqlite<BuiltIndex> {
    let index_no = index.index_no;
    if sql(StoredIndex::WANTED).bind(index_no).run(db)?.is_empty() {
        return Ok(BuiltIndex::Gone);
    }
    if cancelled.has(index_no) {
        return Ok(BuiltIndex::Busy);
    }
    db.progress_handler(STEPS, Some(cancelled.watch(index_no)))?;
    let built = db.execute_batch(&entries::definition(index));
    db.progress_handler(0, None::<fn() -> bool>)?;
    // A cancellation rolls back the whole transaction, and the other writes of its group then run one by one.
    built?;
    sql(StoredIndex::COMPLETE).bind(index_no).bind(now).run(db)?;
    Ok(BuiltIndex::Ready)
}

fn bytes(db: &Connection, index_no: i64) -> Sqlite<Option<u64>> {
    let bytes: Option<Option<i64>> = db
        .prepare_cached("SELECT pgsize FROM dbstat WHERE name = ?1 AND aggregate = TRUE")?
        .query_row([entries::name(index_no)], |row| row.get(0))
        .optional()?;
    Ok(bytes.flatten().map(i64::cast_unsigned))
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc::sync_channel;

    use super::*;
    use crate::protocol::model::TableName;
    use crate::protocol::plan::index::IndexKind;
    use crate::sqlite::{Location, SqliteOptions};
    use crate::{AddIndexOutcome, Indexes as _, NewIndex, Tables as _};

    async fn with_table(location: Location) -> SqliteStore {
        let store = SqliteStore::open(&SqliteOptions::new(location)).unwrap();
        let name = TableName::parse("People").unwrap();
        store.create_table(name.in_account("account"), Ticks::now()).await.unwrap();
        store
    }

    async fn added(store: &SqliteStore, property: &str) -> PropertyIndex {
        let name = TableName::parse("People").unwrap();
        let index = NewIndex { table: name.in_account("account"), property, kind: IndexKind::Number };
        assert!(matches!(store.add_index(index, Ticks::now()).await, Ok(AddIndexOutcome::Added(_))));
        let listed = store.indexes().await.unwrap();
        listed.into_iter().map(|stored| stored.index).find(|index| index.property == property).unwrap()
    }

    async fn build_now(store: &SqliteStore, index: &PropertyIndex) -> BuiltIndex {
        store.build_index(index, Ticks::now()).await.unwrap()
    }

    #[tokio::test]
    async fn an_index_whose_drop_fails_is_built() {
        let store = with_table(Location::Memory).await;
        let index = added(&store, "N").await;
        let refuse = "CREATE TRIGGER refuse BEFORE UPDATE ON property_indexes WHEN NEW.state = 2
                      BEGIN SELECT RAISE(ABORT, 'refused'); END";
        store.execute(refuse).await;
        assert_eq!(store.drop_index(index.index_no, Ticks::now()).await, Err(Fault::Other.into()));
        assert_eq!(build_now(&store, &index).await, BuiltIndex::Ready);
    }

    #[tokio::test]
    async fn an_index_whose_drop_nobody_waits_for_is_built() {
        let store = with_table(Location::Memory).await;
        let index = added(&store, "N").await;
        let (go_on, wait) = sync_channel(1);
        let block = store.writer.submit(move |_| {
            wait.recv().unwrap();
            Ok(Ok(()))
        });
        let give_up = async {
            let dropping = store.drop_index(index.index_no, Ticks::now());
            assert!(futures_util::FutureExt::now_or_never(dropping).is_none(), "it has to wait");
            go_on.send(()).unwrap();
        };
        tokio::join!(block, give_up).0.unwrap();
        assert_eq!(build_now(&store, &index).await, BuiltIndex::Ready);
    }

    #[tokio::test]
    async fn of_two_indexes_that_are_dropped_none_is_built_meanwhile() {
        let store = with_table(Location::Memory).await;
        let (first, second) = (added(&store, "N").await, added(&store, "M").await);
        let (go_on, wait) = sync_channel(1);
        let block = store.writer.submit(move |_| {
            wait.recv().unwrap();
            Ok(Ok(()))
        });
        let now = Ticks::now();
        let (_, built, dropped, other, ()) = tokio::join!(
            block,
            store.build_index(&first, now),
            store.drop_index(first.index_no, now),
            store.drop_index(second.index_no, now),
            async { go_on.send(()).unwrap() },
        );
        assert_eq!((built, dropped, other), (Ok(BuiltIndex::Busy), Ok(true), Ok(true)));
        assert_eq!(build_now(&store, &first).await, BuiltIndex::Gone);
    }

    #[tokio::test]
    async fn an_index_is_not_built_while_another_process_waits_to_drop_it() {
        let folder = tempfile::tempdir().unwrap();
        let location = Location::File(folder.path().join("a.db"));
        let store = with_table(location.clone()).await;
        let index = added(&store, "N").await;
        let other = SqliteStore::open(&SqliteOptions::new(location)).unwrap();
        let waiting = other.cancelled_builds.cancel(index.index_no);
        assert_eq!(build_now(&store, &index).await, BuiltIndex::Busy);
        drop(waiting);
        assert_eq!(build_now(&store, &index).await, BuiltIndex::Ready);
        assert_eq!(other.drop_index(index.index_no, Ticks::now()).await, Ok(true));
    }
}
