//! Stores the entities of a copy with its mark in one transaction.

use std::collections::BTreeMap;

use crate::postgres::cluster::buckets::{add_bucket, record_changes};
use crate::postgres::connections::lease::{Lease, Statement};
use crate::postgres::fault::{Effect, StatementError, not_begun};
use crate::postgres::rows::JsonText;
use crate::postgres::state::table_ids::{TableId, exists};
use crate::postgres::{PgStore, statements};
use crate::protocol::model::{Stored, TableRef};
use crate::{Load, LoadMark, StoreResult};

struct Loading<'a> {
    load: &'a Load,
}

impl Loading<'_> {
    /// Stores the entities; `false` if it may not replace an existing entity, `None` if the table is gone.
    async fn run(&self, store: &PgStore, table_id: TableId) -> StoreResult<Option<bool>> {
        let mut lease = store.nodes.acquire().await.map_err(not_begun)?;
        lease.begin().await?;
        match self.put_all(&mut lease, table_id).await {
            Ok(Some(true)) => {
                lease.commit().await?;
                Ok(Some(true))
            }
            refused => {
                lease.roll_back().await;
                Ok(refused?)
            }
        }
    }

    async fn put_all(&self, lease: &mut Lease, table_id: TableId) -> Result<Option<bool>, StatementError> {
        let Load { rows, replaces, mark } = self.load;
        record_changes(lease, table_id, rows.iter().map(|row| &row.key)).await?;
        if !exists(lease, table_id).await? {
            return Ok(None);
        }
        let stored = match lease.statements().is_distributed {
            false => self.put(lease, table_id).await?,
            true => self.put_by_bucket(lease, table_id).await?,
        };
        // Equal entities are not stored either.
        if stored < rows.len() && !exists(lease, table_id).await? {
            return Ok(None);
        }
        if !replaces && stored < rows.len() {
            return Ok(Some(false));
        }
        if let Some(mark) = mark {
            lease.changed(put_mark(mark), Effect::Undone).await?;
        }
        Ok(Some(true))
    }

    /// Stores all entities and returns how many were new or different.
    async fn put(&self, lease: &mut Lease, table_id: TableId) -> Result<usize, StatementError> {
        let Load { rows, replaces, .. } = self.load;
        if rows.is_empty() {
            return Ok(0);
        }
        let buckets: Vec<i64> = rows.iter().map(|row| table_id.bucket(&row.key.partition)).collect();
        let text = if *replaces { statements::LOAD } else { statements::LOAD_NEW };
        let put = values(sqlx::query(text).bind(buckets), rows.iter()).bind(table_id.table_no);
        lease.changed(put, Effect::Undone).await
    }

    /// Like [`Loading::put`], with a statement for each bucket.
    async fn put_by_bucket(&self, lease: &mut Lease, table_id: TableId) -> Result<usize, StatementError> {
        let Load { rows, replaces, .. } = self.load;
        let text = if *replaces { statements::LOAD_IN_BUCKET } else { statements::LOAD_NEW_IN_BUCKET };
        let mut by_bucket: BTreeMap<i64, Vec<&Stored>> = BTreeMap::new();
        for row in rows {
            by_bucket.entry(table_id.bucket(&row.key.partition)).or_default().push(row);
        }
        let mut stored = 0;
        for (bucket, here) in by_bucket {
            let put = || values(sqlx::query(text).bind(bucket), here.iter().copied()).bind(table_id.table_no);
            let mut changed = lease.changed(put(), Effect::Undone).await?;
            if changed == 0 {
                // A bucket without its row in `buckets` accepts no entities.
                let find = sqlx::query(statements::HAS_BUCKET).bind(bucket);
                if lease.row(find, Effect::Undone).await?.is_none() {
                    add_bucket(lease, table_id, bucket).await?;
                    changed = lease.changed(put(), Effect::Undone).await?;
                }
            }
            stored += changed;
        }
        Ok(stored)
    }
}

fn values<'q>(query: Statement<'q>, rows: impl Iterator<Item = &'q Stored> + Clone) -> Statement<'q> {
    let pks: Vec<&str> = rows.clone().map(|row| row.key.partition.as_str()).collect();
    let rks: Vec<&str> = rows.clone().map(|row| row.key.row.as_str()).collect();
    let modified: Vec<i64> = rows.clone().map(|row| row.modified.raw()).collect();
    let properties: Vec<JsonText<'_>> = rows.map(|row| JsonText(row.properties.as_str())).collect();
    query.bind(pks).bind(rks).bind(modified).bind(properties)
}

fn put_mark(mark: &LoadMark) -> Statement<'_> {
    let [written, unchanged, rejected] = mark.stored_counts();
    sqlx::query(statements::MARK)
        .bind(&mark.copy)
        .bind(mark.range)
        .bind(&mark.reached.partition)
        .bind(&mark.reached.row)
        .bind(written)
        .bind(unchanged)
        .bind(rejected)
}

impl PgStore {
    pub(crate) async fn load_all(&self, table: TableRef<'_>, load: &Load) -> StoreResult<bool> {
        let loading = Loading { load };
        self.with_table(table, |table_id| loading.run(self, table_id)).await
    }
}
