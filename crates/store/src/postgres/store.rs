//! The PostgreSQL store and its components.

use std::sync::Arc;
use std::time::Duration;

use super::batches::lane::Lanes;
use super::batches::reads::Reads;
use super::batches::writes::Writes;
use super::cluster::nodes::Nodes;
use super::connections::connector::Connector;
use super::connections::hosts::Hosts;
use super::connections::pool::Pool;
use super::connections::schema;
use super::connections::schema::refuse_shared_sessions;
use super::connections::search_path::SearchPath;
use super::connections::{PgOptions, StartError};
use super::migrations;
use super::state::purge_progress::PurgeProgress;
use super::state::row_locks::RowLocks;
use super::state::table_ids::TableCache;
use crate::UnrecordedSweeps;
use crate::contract::indexes::NarrowingMemory;
use crate::observe::metrics::METRICS;
use crate::scan_limit::ScanLimit;

/// A store in PostgreSQL. Statements check all cached data, so any number of stores may share one database.
pub struct PgStore {
    pub(crate) nodes: Arc<Nodes>,
    /// One connection for readiness probes, so that they work while the other connections are busy.
    pub(super) probe: Pool,
    /// One connection for the snapshots of test suites, opened on first use.
    pub(crate) snapshots: Pool,
    /// The lanes of point reads and single writes; `None` without adaptive batching.
    pub(super) reads: Option<Lanes<Reads>>,
    pub(super) writes: Option<Lanes<Writes>>,
    /// The queues of writes to locked rows.
    pub(super) row_locks: RowLocks,
    pub(crate) table_cache: TableCache,
    pub(super) purge_progress: PurgeProgress,
    /// Expiry sweeps that could not be recorded while a node of the cluster was unreachable.
    pub(crate) unrecorded_sweeps: UnrecordedSweeps,
    pub(super) spread: u16,
    pub(super) operation_timeout: Duration,
    pub(super) narrowing: NarrowingMemory,
    /// Permits to evaluate filters in this process.
    pub(super) scan_limit: ScanLimit,
    /// Permits to have PostgreSQL evaluate a filter for many rows.
    pub(super) pushed_scan_limit: ScanLimit,
    /// The hosts for DDL.
    pub(super) definer: Arc<Hosts>,
    pub(super) search_path: SearchPath,
}

impl PgStore {
    pub(crate) fn options(&self) -> &PgOptions {
        self.nodes.options()
    }

    /// Migrates the database and opens the store.
    ///
    /// # Errors
    /// [`StartError`], for display to the operator.
    pub async fn connect(options: PgOptions) -> Result<Self, StartError> {
        options.check()?;
        refuse_shared_sessions(&options).await?;
        let path = migrations::prepare(&options).await?;
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

    /// Opens the store of a read-only database. It is not migrated, and its sessions are read-only.
    ///
    /// # Errors
    /// [`StartError`], for display to the operator.
    pub async fn open_to_read(options: &PgOptions) -> Result<Self, StartError> {
        options.check()?;
        Self::read_only(schema::find(options).await?, options, options.coalesce)
    }

    /// Creates the store of a read replica. The replica is neither migrated nor purged, and its sessions are
    /// read-only. It connects on first use, so an unreachable replica does not prevent its primary from being served.
    ///
    /// # Errors
    /// [`StartError`] for invalid options.
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
        let definer = match &options.migrate_url {
            Some(url) => Arc::clone(Connector::new(options, &search_path, url)?.hosts()),
            None => Arc::clone(nodes.first().hosts()),
        };
        Ok(Self {
            reads,
            writes,
            probe: Pool::new(Arc::clone(nodes.first()), 1, &METRICS.probe_pool),
            snapshots: Pool::new(Arc::clone(nodes.first()), 1, &METRICS.shared_pool),
            nodes,
            row_locks: RowLocks::new(options.max_connections as usize, options.acquire_timeout),
            table_cache: TableCache::default(),
            purge_progress: PurgeProgress::default(),
            unrecorded_sweeps: UnrecordedSweeps::default(),
            spread: options.spread,
            operation_timeout: options.operation_timeout,
            narrowing: NarrowingMemory::default(),
            scan_limit: ScanLimit::new(Duration::MAX),
            pushed_scan_limit: ScanLimit::of_database(),
            definer,
            search_path,
        })
    }
}
