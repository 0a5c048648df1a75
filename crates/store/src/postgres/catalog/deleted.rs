//! Deleted tables that can be brought back.

use sqlx::Row;
use sqlx::postgres::PgRow;

use crate::bucket::new_table_no;
use crate::contract::deleted::{KeptExpiry, KeptIndex, MAX_ENDED, RENAME_PAUSE};
use crate::contract::indexes::MAX_INDEXES;
use crate::error::Code;
use crate::postgres::PgStore;
use crate::postgres::catalog::size::measure;
use crate::postgres::connections::lease::Lease;
use crate::postgres::fault::{Effect, StatementError};
use crate::postgres::retry::retry;
use crate::postgres::rows::{JsonText, StoredColumn, broken_row, ticks};
use crate::postgres::state::table_ids::{TableId, cache_key};
use crate::postgres::statements::{DOOM_TABLE, deleted as texts, indexes};
use crate::protocol::model::{TableName, TableRef, Ticks};
use crate::{
    DeletedScan, DeletedTable, DeletedTables, Fault, StoreResult, TableRecords, TableSize, Undeletion,
};

impl DeletedTables for PgStore {
    async fn delete_and_keep(&self, table: TableRef<'_>, now: Ticks, kept_until: Ticks) -> StoreResult<()> {
        retry(|| self.try_delete_and_keep(table, now, kept_until)).await
    }

    async fn deleted_tables(&self, scan: DeletedScan<'_>) -> StoreResult<Vec<DeletedTable>> {
        retry(|| self.list_deleted(scan)).await
    }

    async fn deleted_size(&self, table_no: i64, most: u32) -> StoreResult<Option<TableSize>> {
        let mut lease = self.nodes.acquire().await?;
        let layout = sqlx::query(texts::LAYOUT).bind(table_no);
        let Some(row) = lease.row(layout, Effect::Undone).await? else { return Ok(None) };
        Ok(Some(measure(&mut lease, TableId::read(&row)?, most).await?))
    }

    async fn undelete(&self, table: &DeletedTable, name: &TableName, now: Ticks) -> StoreResult<Undeletion> {
        let free = table.deleted.later(RENAME_PAUSE);
        if !table.name.eq_ignore_ascii_case(name.lower()) && now < free {
            return Ok(Undeletion::TooSoon(free));
        }
        retry(|| self.try_undelete(table, name, now)).await
    }

    async fn purge_deleted(&self, table: &DeletedTable, now: Ticks) -> StoreResult<bool> {
        retry(|| self.try_purge_deleted(table, now)).await
    }

    async fn ended_tables(&self, now: Ticks) -> StoreResult<Vec<DeletedTable>> {
        retry(|| self.list_ended(now)).await
    }
}

impl PgStore {
    pub(crate) async fn try_delete_and_keep(
        &self,
        table: TableRef<'_>,
        now: Ticks,
        kept_until: Ticks,
    ) -> StoreResult<()> {
        let mut lease = self.nodes.acquire_for_all_nodes().await?;
        lease.begin().await?;
        let take = sqlx::query(texts::TAKE).bind(table.account).bind(table.name.lower());
        let Some(row) = lease.row(take, Effect::Undone).await? else {
            lease.roll_back().await;
            return Err(Code::ResourceNotFound.into());
        };
        keep(&mut lease, table, &row, now, kept_until).await?;
        lease.commit().await?;
        self.table_cache.remove(&cache_key(table));
        Ok(())
    }

    pub(crate) async fn list_deleted(&self, scan: DeletedScan<'_>) -> StoreResult<Vec<DeletedTable>> {
        let mut lease = self.nodes.acquire().await?;
        let list = sqlx::query(texts::LIST)
            .bind(scan.account)
            .bind(scan.name.map(TableName::lower))
            .bind(scan.table_no)
            .bind(i64::from(scan.most));
        let rows = lease.rows(list, Effect::Undone).await?;
        Ok(rows.iter().map(deleted).collect::<Result<_, StatementError>>()?)
    }

    async fn list_ended(&self, now: Ticks) -> StoreResult<Vec<DeletedTable>> {
        let mut lease = self.nodes.acquire().await?;
        let ended = sqlx::query(texts::ENDED).bind(now.raw()).bind(MAX_ENDED);
        let rows = lease.rows(ended, Effect::Undone).await?;
        Ok(rows.iter().map(deleted).collect::<Result<_, StatementError>>()?)
    }

    /// Lists the table before its record is taken: whoever deletes or resets tables locks in this order.
    pub(crate) async fn try_undelete(
        &self,
        table: &DeletedTable,
        name: &TableName,
        now: Ticks,
    ) -> StoreResult<Undeletion> {
        let (table_no, deleted) = (table.table_no, table.deleted.raw());
        let mut lease = self.nodes.acquire_for_all_nodes().await?;
        lease.begin().await?;
        let list = sqlx::query(texts::RETURN).bind(table_no).bind(deleted);
        let listed = lease.row(list.bind(name.lower()).bind(name.as_given()), Effect::Undone).await?;
        let take = sqlx::query(texts::TAKE_RECORD).bind(table_no).bind(deleted);
        let record = lease.row(take, Effect::Undone).await?;
        let (Some(_), Some(row)) = (&listed, &record) else {
            lease.roll_back().await;
            return Ok(if record.is_some() { Undeletion::NameTaken } else { Undeletion::Gone });
        };
        let records: String = row.try_get("records").map_err(broken_row)?;
        let records: TableRecords = serde_json::from_str(&records).map_err(|_| Fault::Other)?;
        let left_out = restore(&mut lease, table_no, &records, now).await?;
        lease.commit().await?;
        Ok(Undeletion::Done { records, left_out })
    }

    pub(crate) async fn try_purge_deleted(&self, table: &DeletedTable, now: Ticks) -> StoreResult<bool> {
        let mut lease = self.nodes.acquire_for_all_nodes().await?;
        lease.begin().await?;
        let take = sqlx::query(texts::TAKE_RECORD).bind(table.table_no).bind(table.deleted.raw());
        let Some(row) = lease.row(take, Effect::Undone).await? else {
            lease.roll_back().await;
            return Ok(false);
        };
        let spread: i32 = row.try_get("spread").map_err(broken_row)?;
        let doom = sqlx::query(DOOM_TABLE).bind(table.table_no).bind(spread).bind(now.raw());
        lease.row(doom, Effect::Undone).await?;
        lease.commit().await?;
        Ok(true)
    }
}

/// Records a table that was taken out of the list, with what belongs to it.
async fn keep(
    lease: &mut Lease,
    table: TableRef<'_>,
    taken: &PgRow,
    now: Ticks,
    kept_until: Ticks,
) -> Result<(), StatementError> {
    let table_no: i64 = taken.try_get("table_no").map_err(broken_row)?;
    let found = lease.row(sqlx::query(texts::RECORDS).bind(table_no), Effect::Undone).await?;
    let records: String = found.ok_or(Fault::Other)?.try_get("records").map_err(broken_row)?;
    let policies: Option<StoredColumn<'_>> = taken.try_get("policies").map_err(broken_row)?;
    let record = sqlx::query(texts::KEEP)
        .bind(table_no)
        .bind(table.account)
        .bind(table.name.lower())
        .bind(taken.try_get::<String, _>("name").map_err(broken_row)?)
        .bind(taken.try_get::<i32, _>("spread").map_err(broken_row)?)
        .bind(policies.map(|StoredColumn(text)| JsonText(text)))
        .bind(taken.try_get::<i64, _>("created").map_err(broken_row)?)
        .bind(records)
        .bind(now.raw())
        .bind(kept_until.raw());
    lease.row(record, Effect::Undone).await?;
    lease.row(sqlx::query(texts::FORGET_EXPIRY).bind(table_no), Effect::Undone).await?;
    Ok(())
}

/// Restores the expiry rule of a table, and has its indexes built; returns how many have no room.
async fn restore(
    lease: &mut Lease,
    table_no: i64,
    records: &TableRecords,
    now: Ticks,
) -> Result<usize, StatementError> {
    lease.row(sqlx::query(texts::FORGET_EXPIRY).bind(table_no), Effect::Undone).await?;
    if let Some(KeptExpiry { property, delay, pause, made }) = &records.expiry {
        let restore = sqlx::query(texts::RESTORE_EXPIRY).bind(table_no).bind(property.as_deref());
        let restore = restore.bind(delay).bind(pause).bind(made).bind(now.raw());
        lease.row(restore, Effect::Undone).await?;
    }
    lease.row(sqlx::query(texts::DROP_INDEXES).bind(table_no).bind(now.raw()), Effect::Undone).await?;
    let kept = records.indexes.as_deref().unwrap_or_default();
    let count = sqlx::query(indexes::COUNT).bind(table_no).bind("").bind("");
    let counted = lease.row(count, Effect::Undone).await?.ok_or(Fault::Other)?;
    let total: i64 = counted.try_get("total").map_err(broken_row)?;
    let room = usize::try_from(MAX_INDEXES - total).unwrap_or(0);
    for KeptIndex { property, kind } in kept.iter().take(room) {
        let add = sqlx::query(indexes::ADD).bind(new_table_no()).bind(table_no).bind(property).bind(kind);
        lease.row(add.bind(now.raw()), Effect::Undone).await?;
    }
    Ok(kept.len().saturating_sub(room))
}

fn deleted(row: &PgRow) -> Result<DeletedTable, StatementError> {
    let text = |column: &str| row.try_get::<String, _>(column).map_err(broken_row);
    let time = |column: &str| ticks(row.try_get(column).map_err(broken_row)?);
    Ok(DeletedTable {
        table_no: row.try_get("table_no").map_err(broken_row)?,
        account: text("account")?,
        name: text("name")?,
        created: time("created")?,
        deleted: time("deleted_at")?,
        kept_until: time("kept_until")?,
    })
}
