//! PostgreSQL, for any number of stateless replicas over one database.

mod catalog;
mod connections;
mod fault;
mod reads;
mod retry;
mod rows;
pub mod statements;
mod upkeep;
mod writes;

use std::sync::Arc;
use std::time::Duration;

use sqlx::postgres::PgConnectOptions;

use catalog::tables::TableCache;
pub(crate) use connections::ConnectionDemand;
use connections::connector::Connector;
pub(crate) use connections::distribution::{DistributionError, DistributionEvent, DistributionStep};
use connections::lane::Lanes;
use connections::nodes::Nodes;
use connections::pool::Pool;
use connections::schema;
use connections::search_path::SearchPath;
pub(crate) use connections::unknown_parameter;
pub use connections::{PgOptions, StartError};
#[cfg(fuzzing)]
pub use reads::filter::sql_of;
use reads::shared::Reads;
use reads::{pages, point};
use retry::retry;
use upkeep::purge::PurgeProgress;
pub(crate) use upkeep::respread::{self, RespreadError, RespreadEvent, RespreadRequest, RespreadSummary};
use upkeep::size;
pub(crate) use upkeep::{DistributionRequest, distribute, inspect};
use writes::row_queues::RowQueues;
use writes::shared::Writes;
use writes::{single, transaction};

use crate::error::Code;
use crate::observe::metrics::METRICS;
use crate::protocol::model::{Key, Stored, TableName, Ticks};
use crate::protocol::plan::index::{IndexKind, PropertyIndex};
use crate::protocol::plan::{PageEnd, Scan, TableEntry, TablePage, TableScan, Write, Written};
use crate::store::contract::indexes::NarrowingMemory;
use crate::store::{
    AccountChange, AccountOptions, AddedIndex, Backend, BuiltIndex, ChangeCounts, Collect, Failure,
    IndexFigures, Load, LoadMark, Rewind, StoreResult, StoreSnapshot, StoredAccount, StoredIndex, TableSize,
};

/// A store in PostgreSQL. Statements check everything that it caches, so any number of stores may share
/// one database.
pub struct PgStore {
    nodes: Arc<Nodes>,
    /// One connection for readiness probes, so that they work however busy the others are.
    probe: Pool,
    /// One connection that keeps the snapshots of test suites, opened for the first one.
    snapshots: Pool,
    /// The lanes of point reads and single writes; `None` if requests do not share statements.
    reads: Option<Lanes<Reads>>,
    writes: Option<Lanes<Writes>>,
    /// The queues of writes whose row is locked.
    row_queues: RowQueues,
    table_cache: TableCache,
    purge_progress: PurgeProgress,
    spread: u16,
    /// Timeout of a statement.
    operation_timeout: Duration,
    narrowing: NarrowingMemory,
    /// How to reach the database for definitions.
    definer: PgConnectOptions,
    search_path: SearchPath,
    /// One connection for definitions that a worker of Citus refuses, if their URL is given.
    definitions: Option<Pool>,
}

impl PgStore {
    /// Migrates the database and opens the store.
    ///
    /// # Errors
    /// [`StartError`], to be shown to the operator who starts the server.
    pub async fn connect(options: PgOptions) -> Result<Self, StartError> {
        options.check()?;
        let path = schema::prepare(&options).await?;
        let nodes = Nodes::new(&options, &path, false)?;
        if options.urls().len() > 1
            && let Err(error) = nodes.refresh().await
        {
            tracing::debug!(?error, "the map of buckets was not read");
        }
        let lanes =
            options.coalesce.then(|| (Lanes::new(Arc::clone(&nodes)), Lanes::new(Arc::clone(&nodes))));
        let (reads, writes) = lanes.unzip();
        Self::over(nodes, path, reads, writes, &options)
    }

    /// Opens the store of a database that is only read: it is not migrated, and its sessions are read-only.
    ///
    /// # Errors
    /// [`StartError`], to be shown to the operator.
    pub async fn open_to_read(options: &PgOptions) -> Result<Self, StartError> {
        options.check()?;
        Self::read_only(schema::find(options).await?, options, options.coalesce)
    }

    /// Creates the store of a read replica. It is neither migrated nor purged, and its sessions are
    /// read-only. It connects on first use, so that an unreachable replica does not keep its primary from
    /// being served.
    ///
    /// # Errors
    /// [`StartError`] for options that cannot work.
    pub fn replica(&self, options: &PgOptions) -> Result<Self, StartError> {
        options.check()?;
        Self::read_only(self.search_path.clone(), options, self.reads.is_some())
    }

    fn read_only(path: SearchPath, options: &PgOptions, coalesce: bool) -> Result<Self, StartError> {
        let nodes = Nodes::new(options, &path, true)?;
        let reads = coalesce.then(|| Lanes::new(Arc::clone(&nodes)));
        Self::over(nodes, path, reads, None, options)
    }

    fn over(
        nodes: Arc<Nodes>,
        search_path: SearchPath,
        reads: Option<Lanes<Reads>>,
        writes: Option<Lanes<Writes>>,
        options: &PgOptions,
    ) -> Result<Self, StartError> {
        Ok(Self {
            reads,
            writes,
            probe: Pool::new(nodes.first().clone(), 1, &METRICS.probe_pool),
            snapshots: Pool::new(nodes.first().clone(), 1, &METRICS.shared_pool),
            nodes,
            row_queues: RowQueues::new(options.max_connections as usize, options.acquire_timeout),
            table_cache: TableCache::default(),
            purge_progress: PurgeProgress::default(),
            spread: options.spread,
            operation_timeout: options.operation_timeout,
            narrowing: NarrowingMemory::default(),
            definer: PgOptions::connect_options(options.migration_url())?,
            definitions: options
                .migrate_url
                .as_deref()
                .map(|url| Connector::new(options, &search_path, url))
                .transpose()?
                .map(|connector| Pool::new(connector, 1, &METRICS.shared_pool)),
            search_path,
        })
    }
}

impl Backend for PgStore {
    async fn create_table(&self, account: &str, table: &TableName, now: Ticks) -> StoreResult<()> {
        retry(|| self.try_create(account, table, now)).await
    }

    async fn delete_table(&self, account: &str, table: &TableName, now: Ticks) -> StoreResult<()> {
        retry(|| self.try_delete(account, table, now)).await
    }

    async fn get_table(&self, account: &str, table: &TableName) -> StoreResult<Option<TableEntry>> {
        retry(|| self.entry(account, table)).await
    }

    async fn list_tables(&self, account: &str, scan: &TableScan) -> StoreResult<TablePage> {
        retry(|| self.table_page(account, scan)).await
    }

    async fn get(&self, account: &str, table: &TableName, key: &Key) -> StoreResult<Option<Stored>> {
        self.with_table(account, table, &mut point::Get { key }).await
    }

    async fn page<C: Collect>(
        &self,
        account: &str,
        table: &TableName,
        scan: &Scan,
        mut into: C,
    ) -> StoreResult<(C, PageEnd)> {
        let end = self.with_table(account, table, &mut pages::Query::new(scan, &mut into)).await?;
        Ok((into, end))
    }

    async fn write(
        &self,
        account: &str,
        table: &TableName,
        write: &Write,
        now: Ticks,
    ) -> StoreResult<Written> {
        self.with_table(account, table, &mut single::One { write, now }).await
    }

    async fn transact(
        &self,
        account: &str,
        table: &TableName,
        writes: &[Write],
        now: Ticks,
    ) -> StoreResult<Vec<Written>> {
        let result = self.with_table(account, table, &mut transaction::Group { writes, now }).await;
        result.map_err(|failure| match failure {
            Failure::Refused(error) if error.code == Code::TableNotFound => Failure::Refused(error.at(0)),
            other => other,
        })
    }

    async fn load(&self, account: &str, table: &TableName, load: &Arc<Load>) -> StoreResult<bool> {
        self.load_all(account, table, load).await
    }

    async fn marks(&self, copy: &str) -> StoreResult<Vec<LoadMark>> {
        self.read_marks(copy).await
    }

    async fn forget_marks(&self, copy: &str) -> StoreResult<()> {
        retry(|| self.remove_marks(copy)).await
    }

    async fn policies(&self, account: &str, table: &TableName) -> StoreResult<Option<String>> {
        retry(|| self.read_policies(account, table)).await
    }

    async fn set_policies(&self, account: &str, table: &TableName, policies: &str) -> StoreResult<()> {
        retry(|| self.write_policies(account, table, policies)).await
    }

    async fn properties(&self, account: &str) -> StoreResult<Option<String>> {
        retry(|| self.read_properties(account)).await
    }

    async fn set_properties(&self, account: &str, members: &str) -> StoreResult<()> {
        retry(|| self.merge_properties(account, members)).await
    }

    async fn current_until(&self, now: Ticks) -> StoreResult<Option<Ticks>> {
        retry(|| self.replayed_until(now)).await
    }

    async fn backlog(&self) -> StoreResult<u64> {
        retry(|| self.count_doomed()).await
    }

    async fn answers(&self) -> StoreResult<()> {
        self.probe().await
    }

    async fn size(&self, account: &str, table: &TableName, most: u32) -> StoreResult<TableSize> {
        self.with_table(account, table, &mut size::Measure { most }).await
    }

    async fn account_changes(&self) -> StoreResult<ChangeCounts> {
        retry(|| self.count_account_changes()).await
    }

    async fn accounts(&self) -> StoreResult<Vec<StoredAccount>> {
        retry(|| self.read_accounts()).await
    }

    async fn account_options(&self) -> StoreResult<Vec<AccountOptions>> {
        retry(|| self.read_account_options()).await
    }

    async fn change_account(&self, change: &AccountChange) -> StoreResult<bool> {
        retry(|| self.try_change_account(change)).await
    }

    async fn indexes(&self) -> StoreResult<Vec<StoredIndex>> {
        retry(|| self.read_indexes()).await
    }

    async fn add_index(
        &self,
        account: &str,
        table: &TableName,
        property: &str,
        kind: IndexKind,
        now: Ticks,
    ) -> StoreResult<AddedIndex> {
        retry(|| self.try_add_index(account, table, property, kind, now)).await
    }

    async fn build_index(&self, index: &PropertyIndex, now: Ticks) -> StoreResult<BuiltIndex> {
        retry(|| self.try_build_index(index, now)).await
    }

    async fn drop_index(&self, index_no: i64, now: Ticks) -> StoreResult<bool> {
        let is_dropped = retry(|| self.mark_dropped(index_no, now)).await?;
        if is_dropped {
            retry(|| self.cancel_build(index_no)).await?;
        }
        Ok(is_dropped)
    }

    async fn remove_index(&self, now: Ticks) -> StoreResult<bool> {
        retry(|| self.try_remove_index(now)).await
    }

    async fn index_figures(&self, index: &PropertyIndex) -> StoreResult<IndexFigures> {
        retry(|| self.read_index_figures(index)).await
    }

    async fn purge(&self, now: Ticks) -> StoreResult<bool> {
        retry(|| self.try_purge(now)).await
    }
}

impl Rewind for PgStore {
    async fn reset(&self, account: Option<&str>, now: Ticks) -> StoreResult<()> {
        retry(|| self.try_reset(account, now)).await
    }

    async fn take_snapshot(&self, name: &str, account: Option<&str>, now: Ticks) -> StoreResult<bool> {
        retry(|| self.try_take(name, account, now)).await
    }

    async fn restore_snapshot(&self, name: &str, now: Ticks) -> StoreResult<bool> {
        retry(|| self.try_restore(name, now)).await
    }

    async fn drop_snapshot(&self, name: &str) -> StoreResult<bool> {
        retry(|| self.try_discard(name)).await
    }

    async fn snapshots(&self) -> StoreResult<Vec<StoreSnapshot>> {
        retry(|| self.read_snapshots()).await
    }
}
