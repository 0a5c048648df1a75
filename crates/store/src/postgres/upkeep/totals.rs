//! Counts entities: exactly in a part of a table, and by the planner's estimate in whole tables.

use sqlx::{FromRow, Row};

use crate::postgres::connections::lease::Lease;
use crate::postgres::connections::sessions::LockWait;
use crate::postgres::fault::{Effect, StatementError};
use crate::postgres::rows::broken_row;
use crate::postgres::state::table_ids::{TableId, exists};
use crate::postgres::statements::operator as texts;
use crate::postgres::{PgStore, statements};
use crate::protocol::model::{Key, TableRef};
use crate::{CountPosition, CountedPart, Fault, StoreResult, Totals};

impl Totals for PgStore {
    async fn count_part(
        &self,
        table: TableRef<'_>,
        from: &CountPosition,
        rows: u32,
    ) -> StoreResult<Option<CountedPart>> {
        let count = CountPart { from, rows };
        self.with_table(table, |table_id| count.run(self, table_id)).await
    }

    async fn estimate(&self, table: TableRef<'_>) -> StoreResult<Option<u64>> {
        // With Citus, no statistics of buckets exist.
        if self.nodes.is_distributed() {
            return Ok(None);
        }
        self.with_table(table, |table_id| self.expected(table_id)).await.map(Some)
    }
}

/// Counts the entities of one bucket from a key on.
struct CountPart<'a> {
    from: &'a CountPosition,
    rows: u32,
}

impl CountPart<'_> {
    async fn run(&self, store: &PgStore, table_id: TableId) -> StoreResult<Option<Option<CountedPart>>> {
        let CountPosition { layout, share, .. } = self.from;
        let bucket = table_id.buckets().nth(usize::from(*share));
        let mut lease = match bucket {
            Some(bucket) => store.nodes.acquire_at(bucket, Some(LockWait::Long)).await?,
            None => store.nodes.acquire().await?,
        };
        let part = match bucket {
            _ if layout.is_some_and(|layout| layout != table_id.layout_no) => None,
            Some(bucket) => Some(self.count(&mut lease, table_id, bucket).await?),
            None => Some(CountedPart { entities: 0, next: None }),
        };
        // This check follows the count, because the rows of a deleted or respread table may be purged during the
        // count.
        Ok(exists(&mut lease, table_id).await?.then_some(part))
    }

    async fn count(&self, lease: &mut Lease, table_id: TableId, bucket: i64) -> StoreResult<CountedPart> {
        let CountPosition { share, key, .. } = self.from;
        let layout = Some(table_id.layout_no);
        // The bound locates a row this far ahead, so the rows before it need not be counted one by one.
        let bound = sqlx::query(statements::PURGE_BOUND)
            .bind(bucket)
            .bind(&key.partition)
            .bind(&key.row)
            .bind(i64::from(self.rows));
        if let Some(row) = lease.row(bound, Effect::Undone).await? {
            let (partition, row) = FromRow::from_row(&row).map_err(broken_row)?;
            let key = Key { partition, row };
            let next = Some(CountPosition { layout, share: *share, key });
            return Ok(CountedPart { entities: u64::from(self.rows), next });
        }
        let entities = rest(lease, bucket, key).await?;
        let is_last = usize::from(*share) + 1 >= table_id.buckets().count();
        let next = CountPosition { layout, share: share.saturating_add(1), ..CountPosition::start() };
        Ok(CountedPart { entities, next: (!is_last).then_some(next) })
    }
}

async fn rest(lease: &mut Lease, bucket: i64, from: &Key) -> Result<u64, StatementError> {
    let count = sqlx::query(texts::COUNT_REST).bind(bucket).bind(&from.partition).bind(&from.row);
    let row = lease.row(count, Effect::Undone).await?.ok_or(Fault::Other)?;
    Ok(row.try_get::<i64, _>("n").map_err(broken_row)?.cast_unsigned())
}

impl PgStore {
    /// The planner's estimate of the number of entities; `None` if the table is gone.
    async fn expected(&self, table_id: TableId) -> StoreResult<Option<u64>> {
        let mut sum = 0;
        for bucket in table_id.buckets() {
            let mut lease = self.nodes.acquire_at(bucket, Some(LockWait::Long)).await?;
            if !exists(&mut lease, table_id).await? {
                return Ok(None);
            }
            // PostgreSQL looks up statistics by value, so the text includes the bucket, which is Rowhouse's own
            // number.
            let text = format!("EXPLAIN (FORMAT JSON) SELECT pk FROM entities WHERE bucket = {bucket}");
            let explain = sqlx::query(sqlx::AssertSqlSafe(text)).persistent(false);
            let row = lease.row(explain, Effect::Undone).await?.ok_or(Fault::Other)?;
            let plan: serde_json::Value = row.try_get(0).map_err(broken_row)?;
            sum += plan[0]["Plan"]["Plan Rows"].as_u64().unwrap_or(0);
        }
        Ok(Some(sum))
    }
}
