//! Restores deleted tables.

use crate::catalog::indexes;
use crate::catalog::session::{Backend, CatalogStore, SqlSession};
use crate::contract::deleted::{KeptExpiry, MAX_ENDED, RENAME_PAUSE};
use crate::error::Code;
use crate::postgres::statements::DOOM_TABLE;
use crate::protocol::model::{TableName, TableRef, Ticks};
use crate::sql::{SqlRow, SqlText, sql};
use crate::{
    DeletedScan, DeletedTable, DeletedTables, Fault, StoreResult, TableRecords, TableSize, Undeletion,
};

/// Removes a table from the list.
const TAKE: &str = "DELETE FROM tables WHERE account = $1 AND name_lower = $2 \
     RETURNING table_no, spread, name, CAST(policies AS text), created";
/// The records of the table $1, as [`TableRecords`].
const RECORDS: SqlText = SqlText::each(
    "SELECT to_jsonb(r)::text FROM (SELECT \
     (SELECT to_jsonb(e) FROM (SELECT property, delay, pause, made FROM expiry WHERE table_no = $1) AS e) AS expiry, \
     (SELECT jsonb_agg(to_jsonb(i)) FROM (SELECT property, kind FROM property_indexes \
     WHERE table_no = $1 AND state <> 2 ORDER BY property, kind) AS i) AS indexes) AS r",
    "SELECT json_object('expiry', (SELECT json_object('property', property, 'delay', delay, 'pause', pause, \
     'made', made) FROM expiry WHERE table_no = $1), \
     'indexes', (SELECT json_group_array(json_object('property', property, 'kind', kind)) \
     FROM property_indexes WHERE table_no = $1 AND state <> 2))",
);

macro_rules! keep {
    ($policies:literal) => {
        concat!(
            "INSERT INTO deleted_tables \
             (table_no, account, name_lower, name, spread, policies, created, records, deleted_at, kept_until) \
             VALUES ($1, $2, $3, $4, $5, ",
            $policies,
            ", $7, $8, $9, $10)"
        )
    };
}

const KEEP: SqlText = SqlText::each(keep!("$6::jsonb"), keep!("$6"));
/// Moves the rule into the records of the table: the removal of deleted tables' rules must not race with a restore.
const FORGET_EXPIRY: &str = "DELETE FROM expiry WHERE table_no = $1";
/// $1 account, $2 name, $3 number; null matches any.
const LIST: &str = "SELECT table_no, account, name, created, deleted_at, kept_until \
     FROM deleted_tables WHERE account = coalesce($1, account) AND name_lower = coalesce($2, name_lower) \
     AND table_no = coalesce($3, table_no) ORDER BY deleted_at DESC, table_no LIMIT $4";
/// $1 now.
const ENDED: &str = "SELECT table_no, account, name, created, deleted_at, kept_until \
     FROM deleted_tables WHERE kept_until <= $1 ORDER BY kept_until, table_no LIMIT $2";
/// Lists the table $1 again, which was deleted at $2, under the name $3 and $4. Returns no row if another table has
/// the name or if the table is not deleted.
const RETURN: &str = "INSERT INTO tables (table_no, account, name_lower, name, spread, policies, created) \
     SELECT table_no, account, $3, $4, spread, policies, created FROM deleted_tables \
     WHERE table_no = $1 AND deleted_at = $2 ON CONFLICT DO NOTHING RETURNING table_no";
const FIND_RECORD: &str = "SELECT 1 FROM deleted_tables WHERE table_no = $1 AND deleted_at = $2";
/// Removes the deletion record of the table $1, which was deleted at $2. The same table may have several deletions.
const TAKE_RECORD: &str =
    "DELETE FROM deleted_tables WHERE table_no = $1 AND deleted_at = $2 RETURNING spread, records";
const RESTORE_EXPIRY: &str = "INSERT INTO expiry (table_no, property, delay, pause, made, due, expired) \
     VALUES ($1, $2, $3, $4, $5, $6, 0)";

pub(super) const ALL: [&str; 10] = [
    TAKE,
    RECORDS.postgres,
    KEEP.postgres,
    FORGET_EXPIRY,
    LIST,
    ENDED,
    RETURN,
    FIND_RECORD,
    TAKE_RECORD,
    RESTORE_EXPIRY,
];

impl<S: CatalogStore> DeletedTables for S {
    async fn delete_and_keep(&self, table: TableRef<'_>, now: Ticks, kept_until: Ticks) -> StoreResult<()> {
        let name = table.into_owned();
        let keep = async move |session: &mut SqlSession<'_>| {
            let table = name.as_ref();
            let (account, lower) = (table.account, table.name.lower());
            let taken =
                session.row(sql(TAKE).bind(account).bind(lower)).await?.ok_or(Code::ResourceNotFound)?;
            let (table_no, spread): (i64, i32) = (taken.get(0)?, taken.get(1)?);
            let (as_given, policies): (String, Option<String>) = (taken.get(2)?, taken.get(3)?);
            let records: String = session.only_row(sql(RECORDS).bind(table_no)).await?.get(0)?;
            let keep =
                sql(KEEP).bind(table_no).bind(account).bind(lower).bind(&as_given).bind(i64::from(spread));
            let keep = keep.bind(policies.as_deref()).bind(taken.ticks(4)?).bind(&records);
            session.row(keep.bind(now).bind(kept_until)).await?;
            session.row(sql(FORGET_EXPIRY).bind(table_no)).await.map(drop)
        };
        self.backend().transact(keep).await?;
        self.backend().forget_table_id(table);
        Ok(())
    }

    async fn deleted_tables(&self, scan: DeletedScan<'_>) -> StoreResult<Vec<DeletedTable>> {
        let list = sql(LIST).bind(scan.account).bind(scan.name.map(TableName::lower)).bind(scan.table_no);
        self.backend().rows(list.bind(i64::from(scan.most))).await?.iter().map(deleted).collect()
    }

    async fn deleted_size(&self, table_no: i64, most: u32) -> StoreResult<Option<TableSize>> {
        match self.backend() {
            Backend::Postgres(store) => store.measure_deleted(table_no, most).await,
            Backend::Sqlite(store) => store.measure_deleted(table_no, most).await,
        }
    }

    async fn undelete(&self, table: &DeletedTable, name: &TableName, now: Ticks) -> StoreResult<Undeletion> {
        let free = table.deleted.later(RENAME_PAUSE);
        let is_renamed = !table.name.eq_ignore_ascii_case(name.lower());
        if matches!(self.backend(), Backend::Postgres(_)) && is_renamed && now < free {
            return Ok(Undeletion::TooSoon(free));
        }
        let (table_no, deleted, name) = (table.table_no, table.deleted, name.clone());
        // Listing the table before removing its record follows the lock order of all deletions and resets.
        let undelete = async move |session: &mut SqlSession<'_>| {
            let list = sql(RETURN).bind(table_no).bind(deleted).bind(name.lower()).bind(name.as_given());
            if !session.has_row(list).await? {
                let is_kept = session.has_row(sql(FIND_RECORD).bind(table_no).bind(deleted)).await?;
                return Ok(if is_kept { Undeletion::NameTaken } else { Undeletion::Gone });
            }
            // A missing record shows that another server has removed it. The next attempt finds no deleted table.
            let taken = session.row(sql(TAKE_RECORD).bind(table_no).bind(deleted)).await?;
            let records: String = taken.ok_or(Fault::Serialization)?.get(1)?;
            let records: TableRecords = serde_json::from_str(&records).map_err(|_| Fault::Other)?;
            session.row(sql(FORGET_EXPIRY).bind(table_no)).await?;
            if let Some(KeptExpiry { property, delay, pause, made }) = &records.expiry {
                let restore = sql(RESTORE_EXPIRY).bind(table_no).bind(property.as_deref()).bind(*delay);
                session.row(restore.bind(*pause).bind(*made).bind(now)).await?;
            }
            let kept = records.indexes.as_deref().unwrap_or_default();
            let left_out = indexes::restore(session, table_no, kept, now).await?;
            Ok(Undeletion::Done { records, left_out })
        };
        self.backend().transact(undelete).await
    }

    async fn purge_deleted(&self, table: &DeletedTable, now: Ticks) -> StoreResult<bool> {
        let (table_no, deleted) = (table.table_no, table.deleted);
        let purge = async move |session: &mut SqlSession<'_>| {
            let taken = session.row(sql(TAKE_RECORD).bind(table_no).bind(deleted)).await?;
            let Some(row) = taken else { return Ok(false) };
            let spread: i32 = row.get(0)?;
            session.row(sql(DOOM_TABLE).bind(table_no).bind(i64::from(spread)).bind(now)).await?;
            Ok(true)
        };
        self.backend().transact(purge).await
    }

    async fn ended_tables(&self, now: Ticks) -> StoreResult<Vec<DeletedTable>> {
        self.backend().rows(sql(ENDED).bind(now).bind(MAX_ENDED)).await?.iter().map(deleted).collect()
    }
}

fn deleted(row: &SqlRow) -> StoreResult<DeletedTable> {
    Ok(DeletedTable {
        table_no: row.get(0)?,
        account: row.get(1)?,
        name: row.get(2)?,
        created: row.ticks(3)?,
        deleted: row.ticks(4)?,
        kept_until: row.ticks(5)?,
    })
}
