//! The embedded store: one SQLite file, or memory for tests.
//!
//! Reads have connections of their own, and point reads run on the calling thread. All writes go through
//! one thread, whose group commit takes everything that waits.

mod catalog;
mod connections;
mod fault;
mod reads;
mod rows;
mod upkeep;
mod writes;

use std::sync::Arc;
use std::time::{Duration, Instant};

use rusqlite::Connection;

use super::contract::indexes::NarrowingMemory;
use super::{
    AccountChange, AccountOptions, AddedIndex, Backend, BuiltIndex, ChangeCounts, Collect, Failure, Fault,
    IndexFigures, Inspection, Load, LoadMark, Rewind, StoreResult, StoreSnapshot, StoredAccount, StoredIndex,
    TableSize,
};
use crate::protocol::model::{Key, Stored, TableName, Ticks};
use crate::protocol::plan::index::{IndexKind, PropertyIndex};
use crate::protocol::plan::{PageEnd, Scan, TableEntry, TablePage, TableScan, Write, Written};
use catalog::{accounts, service, tables};
use connections::open;
use connections::pool::Readers;
use connections::scan_limit::{ScanCounter, ScanLimit, ScanStep};
pub use connections::{Location, OpenError, SqliteOptions};
pub(crate) use connections::{MAX_MAP_MIB, ServerLock, obstacle};
use reads::{pages, point};
use upkeep::indexes::CancelledBuild;
pub(crate) use upkeep::{Backup, Copied};
use upkeep::{checkpoint, inspect, purge, rewind, size};
use writes::load as loading;
use writes::thread::Writer;
use writes::transaction::transact;

/// An open SQLite database.
pub struct SqliteStore {
    readers: Readers,
    writer: Writer,
    scan_limit: ScanLimit,
    narrowing: Arc<NarrowingMemory>,
    cancelled_build: CancelledBuild,
}

/// Maximum time of a scan on the only connection of a database in memory.
const MEMORY_SCAN: Duration = Duration::from_millis(100);
/// How long an index may take to be built.
const BUILD_LIMIT: Duration = Duration::from_secs(24 * 3600);

impl SqliteStore {
    /// Opens the database, creates it if it does not exist, and applies the migrations.
    ///
    /// # Errors
    /// What SQLite says about the file.
    pub fn open(options: &SqliteOptions) -> Result<Self, OpenError> {
        let first = open::open(options)?;
        let (readers, writing) = Readers::new(options, first);
        let is_memory = options.location == Location::Memory;
        let scan_time = if is_memory { MEMORY_SCAN } else { Duration::MAX };
        Ok(Self::over(readers, Writer::start(writing, options)?, scan_time))
    }

    /// Opens a file that is only read: it is neither created nor migrated, and writes are refused.
    ///
    /// # Errors
    /// What SQLite says about the file.
    pub fn open_to_read(options: &SqliteOptions) -> Result<Self, OpenError> {
        if options.location == Location::Memory {
            return Self::open(options);
        }
        let options = SqliteOptions { reads_only: true, ..options.clone() };
        let (readers, _) = Readers::new(&options, open::connect(&options)?);
        Ok(Self::over(readers, Writer::refusing(&options), Duration::MAX))
    }

    fn over(readers: Readers, writer: Writer, scan_time: Duration) -> Self {
        Self {
            readers,
            writer,
            scan_limit: ScanLimit::new(scan_time),
            narrowing: Arc::default(),
            cancelled_build: CancelledBuild::default(),
        }
    }

    /// Inspects a database without changing or creating it.
    ///
    /// # Errors
    /// What SQLite says about the file.
    pub(crate) fn inspect(location: &Location) -> Result<Inspection, OpenError> {
        inspect::inspect(location)
    }

    /// Checkpoints the log, so that the file alone has all data; waits at most a second for other users of
    /// the file.
    pub(crate) async fn close(&self) {
        if self.readers.are_read_only() {
            return;
        }
        // A failure was logged, and what was not checkpointed stays in the WAL.
        let _ = self.read_apart(|db| checkpoint::carry_over_all(db).map(Ok)).await;
    }

    /// Runs a walk that takes at most `time`, including the wait for a permit, and returns its state.
    async fn walk<S: Send + 'static, T: Send + 'static>(
        &self,
        mut state: S,
        time: Duration,
        walk: impl Fn(&Connection, &mut S, ScanCounter) -> rusqlite::Result<StoreResult<ScanStep<T>>>
        + Clone
        + Send
        + 'static,
    ) -> StoreResult<(S, T)> {
        let counted = self.scan_limit.walk(time, None);
        let first = walk.clone();
        let read = move |db: &Connection| Ok(first(db, &mut state, counted)?.map(|walked| (state, walked)));
        match self.read_apart(read).await? {
            (state, ScanStep::Done(found)) => Ok((state, found)),
            (state, ScanStep::NeedsPermit) => Box::pin(self.walk_with_permit(state, time, walk)).await,
        }
    }

    async fn walk_with_permit<S: Send + 'static, T: Send + 'static>(
        &self,
        mut state: S,
        time: Duration,
        walk: impl Fn(&Connection, &mut S, ScanCounter) -> rusqlite::Result<StoreResult<ScanStep<T>>>
        + Send
        + 'static,
    ) -> StoreResult<(S, T)> {
        let arrived = Instant::now();
        // Some of the time is left for the walk itself.
        let permit = self.scan_limit.wait(time.mul_f32(0.8)).await?;
        let counted = self.scan_limit.walk(time.saturating_sub(arrived.elapsed()), Some(permit));
        let read = move |db: &Connection| Ok(walk(db, &mut state, counted)?.map(|walked| (state, walked)));
        match self.read_apart(read).await? {
            (state, ScanStep::Done(found)) => Ok((state, found)),
            (_, ScanStep::NeedsPermit) => Err(Fault::Other.into()),
        }
    }

    /// Runs a read that may take long on the pool of blocking threads.
    async fn read_apart<T: Send + 'static>(
        &self,
        read: impl FnOnce(&Connection) -> rusqlite::Result<StoreResult<T>> + Send + 'static,
    ) -> StoreResult<T> {
        let readers = self.readers.clone();
        tokio::task::spawn_blocking(move || readers.with(read)).await.unwrap_or_else(|error| {
            tracing::error!(%error, "a read did not finish");
            Err(Fault::Other.into())
        })
    }
}

impl Backend for SqliteStore {
    async fn create_table(&self, account: &str, table: &TableName, now: Ticks) -> StoreResult<()> {
        let (account, table) = (account.to_owned(), table.clone());
        self.writer.submit(move |db| tables::create(db, &account, &table, now)).await
    }

    async fn delete_table(&self, account: &str, table: &TableName, now: Ticks) -> StoreResult<()> {
        let (account, table) = (account.to_owned(), table.clone());
        self.writer.submit(move |db| tables::delete(db, &account, &table, now)).await
    }

    async fn get_table(&self, account: &str, table: &TableName) -> StoreResult<Option<TableEntry>> {
        self.readers.with(|db| tables::get(db, account, table).map(Ok))
    }

    async fn list_tables(&self, account: &str, scan: &TableScan) -> StoreResult<TablePage> {
        let (account, scan) = (account.to_owned(), scan.clone());
        let time = scan.time;
        let walk = move |db: &Connection, (): &mut (), walk| tables::list(db, &account, &scan, walk);
        Ok(Box::pin(self.walk((), time, walk)).await?.1)
    }

    async fn get(&self, account: &str, table: &TableName, key: &Key) -> StoreResult<Option<Stored>> {
        self.readers.with_statement(|db| point::get(db, account, table, key))
    }

    async fn page<C: Collect>(
        &self,
        account: &str,
        table: &TableName,
        scan: &Scan,
        into: C,
    ) -> StoreResult<(C, PageEnd)> {
        let (account, table, scan) = (account.to_owned(), table.clone(), scan.clone());
        let time = scan.time;
        let memory = Arc::clone(&self.narrowing);
        let walk = move |db: &Connection, into: &mut C, walk| {
            pages::entities(db, &account, &table, (&scan, &memory), walk, into)
        };
        Box::pin(self.walk(into, time, walk)).await
    }

    async fn write(
        &self,
        account: &str,
        table: &TableName,
        write: &Write,
        now: Ticks,
    ) -> StoreResult<Written> {
        let (account, table, writes) = (account.to_owned(), table.clone(), [write.clone()]);
        let outcome = self.writer.submit(move |db| transact(db, &account, &table, &writes, now)).await;
        match outcome {
            Ok(written) => written.first().copied().ok_or(Failure::Fault(Fault::Other)),
            Err(Failure::Refused(mut error)) => {
                error.index = None;
                Err(error.into())
            }
            Err(fault) => Err(fault),
        }
    }

    async fn transact(
        &self,
        account: &str,
        table: &TableName,
        writes: &[Write],
        now: Ticks,
    ) -> StoreResult<Vec<Written>> {
        let (account, table, writes) = (account.to_owned(), table.clone(), writes.to_vec());
        self.writer.submit(move |db| transact(db, &account, &table, &writes, now)).await
    }

    async fn load(&self, account: &str, table: &TableName, load: &Arc<Load>) -> StoreResult<bool> {
        let (account, table, load) = (account.to_owned(), table.clone(), Arc::clone(load));
        self.writer.submit(move |db| loading::load(db, &account, &table, &load)).await
    }

    async fn marks(&self, copy: &str) -> StoreResult<Vec<LoadMark>> {
        let copy = copy.to_owned();
        self.read_apart(move |db| loading::marks(db, &copy).map(Ok)).await
    }

    async fn forget_marks(&self, copy: &str) -> StoreResult<()> {
        let copy = copy.to_owned();
        self.writer.submit(move |db| loading::forget_marks(db, &copy).map(Ok)).await
    }

    async fn policies(&self, account: &str, table: &TableName) -> StoreResult<Option<String>> {
        self.readers.with(|db| service::read_policies(db, account, table))
    }

    async fn set_policies(&self, account: &str, table: &TableName, policies: &str) -> StoreResult<()> {
        let (account, table, policies) = (account.to_owned(), table.clone(), policies.to_owned());
        self.writer.submit(move |db| service::write_policies(db, &account, &table, &policies)).await
    }

    async fn properties(&self, account: &str) -> StoreResult<Option<String>> {
        self.readers.with(|db| service::read_properties(db, account).map(Ok))
    }

    async fn set_properties(&self, account: &str, members: &str) -> StoreResult<()> {
        let (account, members) = (account.to_owned(), members.to_owned());
        self.writer.submit(move |db| service::merge_properties(db, &account, &members)).await
    }

    async fn current_until(&self, now: Ticks) -> StoreResult<Option<Ticks>> {
        Ok(Some(now))
    }

    async fn backlog(&self) -> StoreResult<u64> {
        self.readers.with(|db| purge::backlog(db).map(Ok))
    }

    async fn answers(&self) -> StoreResult<()> {
        // A file system that hangs must not block a worker thread.
        self.read_apart(|db| size::probe(db).map(Ok)).await
    }

    async fn size(&self, account: &str, table: &TableName, most: u32) -> StoreResult<TableSize> {
        let (account, table) = (account.to_owned(), table.clone());
        self.read_apart(move |db| size::size(db, &account, &table, most)).await
    }

    async fn account_changes(&self) -> StoreResult<ChangeCounts> {
        self.readers.with(|db| accounts::changes(db).map(Ok))
    }

    async fn accounts(&self) -> StoreResult<Vec<StoredAccount>> {
        self.readers.with(|db| accounts::list(db).map(Ok))
    }

    async fn account_options(&self) -> StoreResult<Vec<AccountOptions>> {
        self.readers.with(|db| accounts::options(db).map(Ok))
    }

    async fn change_account(&self, change: &AccountChange) -> StoreResult<bool> {
        let change = change.clone();
        self.writer.submit(move |db| accounts::change(db, &change).map(Ok)).await
    }

    async fn indexes(&self) -> StoreResult<Vec<StoredIndex>> {
        self.readers.with(|db| catalog::indexes::list(db).map(Ok))
    }

    async fn add_index(
        &self,
        account: &str,
        table: &TableName,
        property: &str,
        kind: IndexKind,
        now: Ticks,
    ) -> StoreResult<AddedIndex> {
        let (account, table, property) = (account.to_owned(), table.clone(), property.to_owned());
        let add = move |db: &Connection| catalog::indexes::add(db, &account, &table, &property, kind, now);
        self.writer.submit(add).await
    }

    async fn build_index(&self, index: &PropertyIndex, now: Ticks) -> StoreResult<BuiltIndex> {
        let (index, cancelled) = (index.clone(), self.cancelled_build.clone());
        let index_no = index.index_no;
        let build = move |db: &Connection| upkeep::indexes::build(db, &index, now, &cancelled).map(Ok);
        match self.writer.submit_within(BUILD_LIMIT, build).await {
            // The cancellation has rolled the transaction of the build back.
            Err(Failure::Fault(_)) if self.cancelled_build.is(index_no) => Ok(BuiltIndex::Gone),
            built => built,
        }
    }

    async fn drop_index(&self, index_no: i64, now: Ticks) -> StoreResult<bool> {
        self.cancelled_build.set(index_no);
        self.writer.submit(move |db| catalog::indexes::drop(db, index_no, now).map(Ok)).await
    }

    async fn remove_index(&self, now: Ticks) -> StoreResult<bool> {
        // Writers have nothing to do with the question.
        if !self.readers.with(|db| upkeep::indexes::is_any_removable(db, now).map(Ok))? {
            return Ok(false);
        }
        self.writer.submit_within(BUILD_LIMIT, move |db| upkeep::indexes::remove(db, now).map(Ok)).await
    }

    async fn index_figures(&self, index: &PropertyIndex) -> StoreResult<IndexFigures> {
        let index_no = index.index_no;
        let bytes = self.read_apart(move |db| upkeep::indexes::bytes(db, index_no).map(Ok)).await?;
        Ok(IndexFigures { bytes, uses: self.narrowing.uses.of(index_no), progress: None })
    }

    async fn purge(&self, _now: Ticks) -> StoreResult<bool> {
        self.writer.submit(|db| purge::purge(db).map(Ok)).await
    }
}

impl Rewind for SqliteStore {
    async fn reset(&self, account: Option<&str>, now: Ticks) -> StoreResult<()> {
        let account = account.map(str::to_owned);
        self.writer.submit(move |db| rewind::reset(db, account.as_deref(), now).map(Ok)).await
    }

    async fn take_snapshot(&self, name: &str, account: Option<&str>, now: Ticks) -> StoreResult<bool> {
        let (name, account) = (name.to_owned(), account.map(str::to_owned));
        self.writer.submit(move |db| rewind::take(db, &name, account.as_deref(), now).map(Ok)).await
    }

    async fn restore_snapshot(&self, name: &str, now: Ticks) -> StoreResult<bool> {
        let name = name.to_owned();
        self.writer.submit(move |db| rewind::restore(db, &name, now).map(Ok)).await
    }

    async fn drop_snapshot(&self, name: &str) -> StoreResult<bool> {
        let name = name.to_owned();
        self.writer.submit(move |db| rewind::discard(db, &name).map(Ok)).await
    }

    async fn snapshots(&self) -> StoreResult<Vec<StoreSnapshot>> {
        self.writer.submit(|db| rewind::list(db).map(Ok)).await
    }
}
