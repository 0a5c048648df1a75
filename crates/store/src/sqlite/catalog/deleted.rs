//! Deleted tables that can be brought back.

use rusqlite::{Connection, OptionalExtension, Row, params};

use crate::contract::deleted::{KeptExpiry, MAX_ENDED};
use crate::error::Code;
use crate::protocol::model::{TableName, TableRef, Ticks};
use crate::sqlite::SqliteStore;
use crate::sqlite::catalog::indexes;
use crate::sqlite::catalog::tables::{SPREAD, bucket_of, measure};
use crate::sqlite::rows::{Sqlite, ticks};
use crate::{
    DeletedScan, DeletedTable, DeletedTables, StoreResult, TableRecords, TableSize, Undeletion, bucket,
};

impl DeletedTables for SqliteStore {
    async fn delete_and_keep(&self, table: TableRef<'_>, now: Ticks, kept_until: Ticks) -> StoreResult<()> {
        let table = table.into_owned();
        self.writer.submit(move |db| keep(db, table.as_ref(), now, kept_until)).await
    }

    async fn deleted_tables(&self, scan: DeletedScan<'_>) -> StoreResult<Vec<DeletedTable>> {
        self.readers.with(|db| {
            let mut list = db.prepare_cached(
                "SELECT table_no, account, name, created, deleted_at, kept_until FROM deleted_tables
                 WHERE account = coalesce(?1, account) AND name_lower = coalesce(?2, name_lower)
                 AND table_no = coalesce(?3, table_no) ORDER BY deleted_at DESC, table_no LIMIT ?4",
            )?;
            let values = params![scan.account, scan.name.map(TableName::lower), scan.table_no, scan.most];
            list.query_map(values, deleted)?.collect::<Sqlite<_>>().map(Ok)
        })
    }

    async fn deleted_size(&self, table_no: i64, most: u32) -> StoreResult<Option<TableSize>> {
        self.read_apart(move |db| {
            let mut find = db.prepare_cached("SELECT 1 FROM deleted_tables WHERE table_no = ?1")?;
            let is_kept = find.exists([table_no])?;
            let bucket = bucket::bucket(table_no, SPREAD, "");
            is_kept.then(|| measure(db, bucket, most)).transpose().map(Ok)
        })
        .await
    }

    async fn undelete(&self, table: &DeletedTable, name: &TableName, now: Ticks) -> StoreResult<Undeletion> {
        let (table, name) = (table.clone(), name.clone());
        self.writer.submit(move |db| undelete(db, &table, &name, now).map(Ok)).await
    }

    async fn purge_deleted(&self, table: &DeletedTable, now: Ticks) -> StoreResult<bool> {
        let table = table.clone();
        self.writer.submit(move |db| doom(db, &table, now).map(Ok)).await
    }

    async fn ended_tables(&self, now: Ticks) -> StoreResult<Vec<DeletedTable>> {
        self.readers.with(|db| {
            let mut list = db.prepare_cached(
                "SELECT table_no, account, name, created, deleted_at, kept_until FROM deleted_tables
                 WHERE kept_until <= ?1 ORDER BY kept_until, table_no LIMIT ?2",
            )?;
            list.query_map([now.raw(), MAX_ENDED], deleted)?.collect::<Sqlite<_>>().map(Ok)
        })
    }
}

fn keep(db: &Connection, table: TableRef<'_>, now: Ticks, kept_until: Ticks) -> Sqlite<StoreResult<()>> {
    let kept = db
        .prepare_cached(
            "INSERT INTO deleted_tables
             (table_no, account, name_lower, name, spread, policies, created, records, deleted_at, kept_until)
             SELECT t.table_no, t.account, t.name_lower, t.name, t.spread, t.policies, t.created, json_object(
                 'expiry', (SELECT json_object('property', property, 'delay', delay, 'pause', pause, 'made', made)
                            FROM expiry WHERE table_no = t.table_no),
                 'indexes', (SELECT json_group_array(json_object('property', property, 'kind', kind))
                             FROM property_indexes WHERE table_no = t.table_no AND state <> 2)), ?3, ?4
             FROM tables AS t WHERE t.account = ?1 AND t.name_lower = ?2 RETURNING table_no",
        )?
        .query_row(params![table.account, table.name.lower(), now.raw(), kept_until.raw()], |row| row.get(0))
        .optional()?;
    let Some(no) = kept else { return Ok(Err(Code::ResourceNotFound.into())) };
    forget(db, "DELETE FROM tables WHERE table_no = ?1", no)?;
    // The rule moves with the table.
    forget(db, "DELETE FROM expiry WHERE table_no = ?1", no)?;
    Ok(Ok(()))
}

fn forget(db: &Connection, text: &str, table_no: i64) -> Sqlite<usize> {
    db.prepare_cached(text)?.execute([table_no])
}

fn undelete(db: &Connection, table: &DeletedTable, name: &TableName, now: Ticks) -> Sqlite<Undeletion> {
    let DeletedTable { table_no, account, deleted, .. } = table;
    let records: Option<String> = db
        .prepare_cached("SELECT records FROM deleted_tables WHERE table_no = ?1 AND deleted_at = ?2")?
        .query_row(params![table_no, deleted.raw()], |row| row.get(0))
        .optional()?;
    let Some(records) = records else { return Ok(Undeletion::Gone) };
    let records: TableRecords = serde_json::from_str(&records).map_err(|error| {
        rusqlite::Error::FromSqlConversionFailure(0, rusqlite::types::Type::Text, Box::new(error))
    })?;
    if bucket_of(db, name.in_account(account))?.is_some() {
        return Ok(Undeletion::NameTaken);
    }
    db.prepare_cached(
        "INSERT INTO tables (table_no, account, name_lower, name, spread, policies, created)
         SELECT table_no, account, ?2, ?3, spread, policies, created FROM deleted_tables WHERE table_no = ?1",
    )?
    .execute(params![table_no, name.lower(), name.as_given()])?;
    forget(db, "DELETE FROM deleted_tables WHERE table_no = ?1", *table_no)?;
    let left_out = restore(db, *table_no, &records, now)?;
    Ok(Undeletion::Done { records, left_out })
}

/// Restores the expiry rule of a table, and has its indexes built; returns how many have no room.
fn restore(db: &Connection, table_no: i64, records: &TableRecords, now: Ticks) -> Sqlite<usize> {
    if let Some(KeptExpiry { property, delay, pause, made }) = &records.expiry {
        db.prepare_cached(
            "INSERT OR REPLACE INTO expiry (table_no, property, delay, pause, made, due, expired)
             VALUES (?1, ?2, ?3, ?4, ?5, ?6, 0)",
        )?
        .execute(params![table_no, property, delay, pause, made, now.raw()])?;
    }
    indexes::restore(db, table_no, records.indexes.as_deref().unwrap_or_default(), now)
}

fn doom(db: &Connection, table: &DeletedTable, now: Ticks) -> Sqlite<bool> {
    let taken = db
        .prepare_cached("DELETE FROM deleted_tables WHERE table_no = ?1 AND deleted_at = ?2")?
        .execute(params![table.table_no, table.deleted.raw()])?;
    if taken > 0 {
        db.prepare_cached("INSERT INTO doomed (table_no, spread, deleted_at, due) VALUES (?1, ?2, ?3, ?3)")?
            .execute(params![table.table_no, SPREAD, now.raw()])?;
    }
    Ok(taken > 0)
}

fn deleted(row: &Row<'_>) -> Sqlite<DeletedTable> {
    Ok(DeletedTable {
        table_no: row.get(0)?,
        account: row.get(1)?,
        name: row.get(2)?,
        created: ticks(row, 3)?,
        deleted: ticks(row, 4)?,
        kept_until: ticks(row, 5)?,
    })
}
