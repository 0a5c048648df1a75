//! Tables: creating, deleting, listing, and the cache of their ids.

use std::collections::HashMap;
use std::sync::{PoisonError, RwLock};
use std::time::Instant;

use sqlx::Row;
use sqlx::postgres::PgRow;

use crate::error::Code;
use crate::protocol::model::{TableName, Ticks};
use crate::protocol::plan::predicate::EntityView;
use crate::protocol::plan::span::first_whole_partition;
use crate::protocol::plan::{TableEntry, TablePage, TableScan};
use crate::store::bucket;
use crate::store::postgres::connections::lease::Lease;
use crate::store::postgres::connections::placement::Placement;
use crate::store::postgres::connections::sessions::LockWait;
use crate::store::postgres::fault::{Effect, StatementError};
use crate::store::postgres::rows::{broken_row, ticks};
use crate::store::postgres::{PgStore, statements};
use crate::store::{Fault, StoreResult};

/// Maximum tables in the cache; a full cache is emptied.
const MAX_CACHED: usize = 10_000;
/// Maximum attempts to find an unused table number; the first nearly always succeeds.
const NUMBERS_TRIED: usize = 5;
/// Tables that a filtered list reads at once, even if the page is smaller.
const FILTERED_BATCH: usize = 1000;

/// The numbers of a table. They change only when its spread is changed, which gives it another `table_no`,
/// so that statements notice.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct TableId {
    /// Its number in `tables`, which statements check.
    pub table_no: i64,
    /// The number that its buckets are made of: another one only while the table is being respread.
    pub layout_no: i64,
    pub spread: u16,
}

impl TableId {
    /// A table that is not being respread.
    pub(crate) const fn new(table_no: i64, spread: u16) -> Self {
        TableId { table_no, layout_no: table_no, spread }
    }

    /// The bucket of one partition.
    pub(crate) fn bucket(self, partition: &str) -> i64 {
        bucket::bucket(self.layout_no, self.spread, partition)
    }

    /// Every bucket.
    pub(crate) fn buckets(self) -> impl Iterator<Item = i64> {
        bucket::buckets(self.layout_no, self.spread)
    }

    /// Whether the spread of the table is being changed, so that writes must be recorded.
    pub(crate) const fn is_respread(self) -> bool {
        self.table_no != self.layout_no
    }

    /// Reads a row of [`statements::RESOLVE_TABLE`].
    fn read(row: &PgRow) -> Result<Self, StatementError> {
        let spread: i32 = row.try_get("spread").map_err(broken_row)?;
        Ok(TableId {
            table_no: row.try_get("table_no").map_err(broken_row)?,
            layout_no: row.try_get("layout_no").map_err(broken_row)?,
            spread: u16::try_from(spread).map_err(|_| Fault::Other)?,
        })
    }
}

/// A table, or one of its buckets.
#[derive(Debug, Clone, Copy)]
pub(crate) struct TablePart {
    pub table_id: TableId,
    /// `None` for all of them.
    pub bucket: Option<i64>,
}

/// Ids of tables by account and name. They may be stale, so statements check them.
#[derive(Debug, Default)]
pub(crate) struct TableCache(RwLock<HashMap<String, TableId>>);

impl TableCache {
    fn get(&self, name: &str) -> Option<TableId> {
        self.0.read().unwrap_or_else(PoisonError::into_inner).get(name).copied()
    }

    fn put(&self, name: String, table_id: TableId) {
        let mut map = self.0.write().unwrap_or_else(PoisonError::into_inner);
        if map.len() >= MAX_CACHED {
            map.clear();
        }
        map.insert(name, table_id);
    }

    fn remove(&self, name: &str) {
        self.0.write().unwrap_or_else(PoisonError::into_inner).remove(name);
    }

    fn drop_if(&self, name: &str, wrong: TableId) {
        let mut map = self.0.write().unwrap_or_else(PoisonError::into_inner);
        if map.get(name) == Some(&wrong) {
            map.remove(name);
        }
    }
}

/// Table names have no slash, so no two pairs have the same text.
fn cache_key(account: &str, table: &TableName) -> String {
    format!("{account}/{}", table.lower())
}

impl PgStore {
    /// The table's id, from the cache or the database.
    ///
    /// # Errors
    /// [`Code::TableNotFound`].
    pub(crate) async fn table_id(&self, account: &str, table: &TableName) -> StoreResult<TableId> {
        let name = cache_key(account, table);
        if let Some(table_id) = self.table_cache.get(&name) {
            return Ok(table_id);
        }
        Box::pin(self.look_up(account, table, name)).await
    }

    async fn look_up(&self, account: &str, table: &TableName, name: String) -> StoreResult<TableId> {
        let mut lease = self.nodes.acquire_to_lock().await?;
        let row = resolve(&mut lease, account, table).await?.ok_or(Code::TableNotFound)?;
        let table_id = TableId::read(&row)?;
        self.table_cache.put(name, table_id);
        Ok(table_id)
    }

    /// As [`add_bucket`], on a connection of its own.
    pub(crate) async fn add_missing_bucket(
        &self,
        table_id: TableId,
        bucket: i64,
    ) -> Result<(), StatementError> {
        if self.nodes.placement() == Placement::Single {
            return Ok(());
        }
        let mut lease = self.nodes.acquire_at(bucket, Some(LockWait::Long)).await?;
        add_bucket(&mut lease, table_id, bucket).await
    }

    /// Removes an id from the cache that a statement found to be stale.
    pub(crate) fn forget(&self, account: &str, table: &TableName, wrong: TableId) {
        self.table_cache.drop_if(&cache_key(account, table), wrong);
    }

    pub(crate) async fn try_create(&self, account: &str, table: &TableName, now: Ticks) -> StoreResult<()> {
        let mut lease = self.nodes.acquire_to_lock().await?;
        for _ in 0..NUMBERS_TRIED {
            let table_id = TableId::new(bucket::new_table_no(), self.spread);
            let insert = sqlx::query(statements::CREATE_TABLE)
                .bind(table_id.table_no)
                .bind(account)
                .bind(table.lower())
                .bind(table.as_given())
                .bind(i32::from(table_id.spread))
                .bind(now.raw());
            match lease.row(insert, Effect::Unknown).await {
                Ok(Some(_)) => {
                    self.table_cache.put(cache_key(account, table), table_id);
                    return Ok(());
                }
                Ok(None) => return Err(Code::TableAlreadyExists.into()),
                Err(StatementError::Duplicate) => {}
                Err(error) => return Err(error.into()),
            }
        }
        Err(Fault::Other.into())
    }

    pub(crate) async fn try_delete(&self, account: &str, table: &TableName, now: Ticks) -> StoreResult<()> {
        let mut lease = self.nodes.acquire_to_lock().await?;
        lease.begin().await?;
        let drop = sqlx::query(statements::DROP_TABLE).bind(account).bind(table.lower());
        let Some(row) = lease.row(drop, Effect::Undone).await? else {
            lease.roll_back().await;
            return Err(Code::ResourceNotFound.into());
        };
        let table_no: i64 = row.try_get("table_no").map_err(broken_row)?;
        let spread: i32 = row.try_get("spread").map_err(broken_row)?;
        let doom = sqlx::query(statements::DOOM_TABLE).bind(table_no).bind(spread).bind(now.raw());
        lease.row(doom, Effect::Undone).await?;
        lease.commit().await?;
        self.table_cache.remove(&cache_key(account, table));
        Ok(())
    }

    pub(crate) async fn entry(&self, account: &str, table: &TableName) -> StoreResult<Option<TableEntry>> {
        let mut lease = self.nodes.acquire_to_lock().await?;
        let row = resolve(&mut lease, account, table).await?;
        Ok(row.as_ref().map(entry).transpose()?)
    }

    /// Evaluates the residual filter here, batch by batch: rows of tables are few and small.
    pub(crate) async fn table_page(&self, account: &str, scan: &TableScan) -> StoreResult<TablePage> {
        let mut lease = self.nodes.acquire_to_lock().await?;
        let single = scan.residual.is_none() && scan.spans.len() == 1;
        if !single {
            lease.begin_snapshot().await?;
        }
        let started = Instant::now();
        let batch = if scan.residual.is_some() { FILTERED_BATCH } else { scan.rows };
        let mut page = TablePage::default();
        for span in &scan.spans {
            let mut lower = Some(first_whole_partition(&span.lower));
            let upper = span.upper.as_ref().map(first_whole_partition);
            while let Some(from) = lower.take().filter(|_| page.next.is_none()) {
                // One additional row shows where the next batch or page starts.
                let rows = list(&mut lease, account, &from, upper.as_deref(), batch + 1).await?;
                for row in rows.iter().take(batch) {
                    take(row, scan, &mut page)?;
                }
                if let Some(row) = rows.get(batch) {
                    if page.next.is_none()
                        && (page.tables.len() >= scan.rows || started.elapsed() >= scan.time)
                    {
                        page.next = Some(entry(row)?);
                    }
                    lower = Some(row.try_get("name_lower").map_err(broken_row)?);
                }
            }
        }
        if !single {
            lease.end_snapshot().await;
        }
        Ok(page)
    }
}

/// Adds a table to the page, or makes it the start of the next one.
fn take(row: &PgRow, scan: &TableScan, page: &mut TablePage) -> Result<(), StatementError> {
    if page.next.is_some() {
        return Ok(());
    }
    let entry = entry(row)?;
    if !admits(scan, row.try_get("name_lower").map_err(broken_row)?, &entry) {
        return Ok(());
    }
    if page.tables.len() < scan.rows {
        page.tables.push(entry);
    } else {
        page.next = Some(entry);
    }
    Ok(())
}

fn admits(scan: &TableScan, name_lower: &str, entry: &TableEntry) -> bool {
    scan.residual.as_ref().is_none_or(|residual| {
        residual.eval(&EntityView {
            partition: name_lower,
            row: "",
            modified: entry.created,
            properties: vec![],
        })
    })
}

async fn list(
    lease: &mut Lease<'_>,
    account: &str,
    lower: &str,
    upper: Option<&str>,
    rows: usize,
) -> Result<Vec<PgRow>, StatementError> {
    let text = if upper.is_some() { statements::LIST_TABLES_BELOW } else { statements::LIST_TABLES };
    let query = sqlx::query(text).bind(account).bind(lower).bind(rows as i64);
    let query = if let Some(upper) = upper { query.bind(upper) } else { query };
    lease.rows(query, Effect::Undone).await
}

async fn resolve(
    lease: &mut Lease<'_>,
    account: &str,
    table: &TableName,
) -> Result<Option<PgRow>, StatementError> {
    let query = sqlx::query(statements::RESOLVE_TABLE).bind(account).bind(table.lower());
    lease.row(query, Effect::Undone).await
}

/// Adds the row of `buckets` that a bucket may lack, where entities are distributed. Nothing for a
/// table that is gone.
pub(crate) async fn add_bucket(
    lease: &mut Lease<'_>,
    table_id: TableId,
    bucket: i64,
) -> Result<(), StatementError> {
    if lease.placement() == Placement::Single || !exists(lease, table_id).await? {
        return Ok(());
    }
    let add = sqlx::query(statements::ADD_BUCKET).bind(bucket);
    lease.changed(add, Effect::Unknown).await.map(|_| ())
}

/// Whether a table is there for a write, before a statement that cannot look itself.
pub(crate) async fn allows_inserts(lease: &mut Lease<'_>, table_id: TableId) -> Result<bool, StatementError> {
    Ok(lease.placement() == Placement::Single || exists(lease, table_id).await?)
}

/// Whether the table still has this id.
pub(crate) async fn exists(lease: &mut Lease<'_>, table_id: TableId) -> Result<bool, StatementError> {
    let query = sqlx::query(statements::CHECK_TABLE).bind(table_id.table_no);
    Ok(lease.row(query, Effect::Undone).await?.is_some())
}

fn entry(row: &PgRow) -> Result<TableEntry, StatementError> {
    let name = row.try_get("name").map_err(broken_row)?;
    Ok(TableEntry { name, created: ticks(row.try_get("created").map_err(broken_row)?)? })
}
