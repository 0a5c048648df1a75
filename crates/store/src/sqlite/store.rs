//! The SQLite store and its two ways to run a read.

use std::sync::Arc;
use std::time::{Duration, Instant};

use rusqlite::Connection;

use super::connections::locks::CancelledBuilds;
use super::connections::open;
use super::connections::pool::Readers;
use super::connections::{Location, OpenError, SqliteOptions};
use super::writer::Writer;
use crate::contract::indexes::NarrowingMemory;
use crate::scan_limit::{ScanCounter, ScanLimit, ScanStep};
use crate::sqlite::checkpoint;
use crate::{Fault, StoreResult};

/// An open SQLite database.
pub struct SqliteStore {
    pub(crate) readers: Readers,
    pub(crate) writer: Writer,
    pub(crate) scan_limit: ScanLimit,
    pub(super) narrowing: Arc<NarrowingMemory>,
    pub(super) cancelled_builds: CancelledBuilds,
}

/// Maximum duration of a scan on the only connection of a database in memory.
const MEMORY_SCAN: Duration = Duration::from_millis(100);

impl SqliteStore {
    /// Runs statements on the writer's connection.
    #[cfg(any(test, feature = "testing"))]
    pub async fn execute(&self, statements: &'static str) {
        self.writer.submit(move |db| db.execute_batch(statements).map(Ok)).await.unwrap();
    }

    /// Opens the database, creates it if necessary, and applies the migrations.
    pub fn open(options: &SqliteOptions) -> Result<Self, OpenError> {
        let first = open::open(options)?;
        let (readers, writing) = Readers::new(options, first);
        let is_memory = options.location == Location::Memory;
        let scan_time = if is_memory { MEMORY_SCAN } else { Duration::MAX };
        Ok(Self::over(&options.location, readers, Writer::start(writing, options)?, scan_time))
    }

    /// Opens a read-only file. The file is neither created nor migrated, and writes are refused.
    pub fn open_to_read(options: &SqliteOptions) -> Result<Self, OpenError> {
        if options.location == Location::Memory {
            return Self::open(options);
        }
        let options = SqliteOptions { reads_only: true, ..options.clone() };
        let (readers, _) = Readers::new(&options, open::connect(&options)?);
        Ok(Self::over(&options.location, readers, Writer::refusing(&options), Duration::MAX))
    }

    fn over(location: &Location, readers: Readers, writer: Writer, scan_time: Duration) -> Self {
        Self {
            readers,
            writer,
            scan_limit: ScanLimit::new(scan_time),
            narrowing: Arc::default(),
            cancelled_builds: CancelledBuilds::new(location),
        }
    }

    /// Checkpoints the log, so that the file alone has all data. Waits at most a second for other users of the file.
    pub(crate) async fn close(&self) {
        if self.readers.are_read_only() {
            return;
        }
        // A failure was logged, and the WAL keeps the remaining pages.
        let _ = self.read_on_blocking_pool(|db| checkpoint::truncate_log(db).map(Ok)).await;
    }

    /// Runs a walk that takes at most `time`, including the wait for a permit, and returns its state.
    pub(super) async fn walk<S: Send + 'static, T: Send + 'static>(
        &self,
        state: S,
        time: Duration,
        walk: impl Fn(&Connection, &mut S, ScanCounter) -> rusqlite::Result<StoreResult<ScanStep<T>>>
        + Clone
        + Send
        + 'static,
    ) -> StoreResult<(S, T)> {
        let walk_once = |mut state: S, counted: ScanCounter| {
            let walk = walk.clone();
            self.read_on_blocking_pool(move |db| {
                Ok(walk(db, &mut state, counted)?.map(|walked| (state, walked)))
            })
        };
        let state = match walk_once(state, self.scan_limit.walk(time)).await? {
            (state, ScanStep::Done(found)) => return Ok((state, found)),
            (state, ScanStep::NeedsPermit) => state,
        };
        let arrived = Instant::now();
        let permit = self.scan_limit.wait(time).await?;
        let counted = self.scan_limit.walk_with(time.saturating_sub(arrived.elapsed()), permit);
        match Box::pin(walk_once(state, counted)).await? {
            (state, ScanStep::Done(found)) => Ok((state, found)),
            (_, ScanStep::NeedsPermit) => Err(Fault::Other.into()),
        }
    }

    /// Runs a potentially long read on the pool of blocking threads.
    pub(crate) async fn read_on_blocking_pool<T: Send + 'static>(
        &self,
        read: impl FnOnce(&mut Connection) -> rusqlite::Result<StoreResult<T>> + Send + 'static,
    ) -> StoreResult<T> {
        let readers = self.readers.clone();
        tokio::task::spawn_blocking(move || readers.with(read)).await.unwrap_or_else(|error| {
            tracing::error!(%error, "a read did not finish");
            Err(Fault::Other.into())
        })
    }
}
