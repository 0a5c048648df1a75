//! Deletes expired entities.

use sqlx::postgres::{PgArguments, PgRow};
use sqlx::query::Query;
use sqlx::{Postgres, Row};

use crate::bucket::bucket;
use crate::postgres::PgStore;
use crate::postgres::connections::lease::Lease;
use crate::postgres::connections::sessions::LockWait;
use crate::postgres::fault::{Effect, StatementError};
use crate::postgres::rows::broken_row;
use crate::postgres::statements::operator as texts;
use crate::protocol::model::{Key, Ticks};
use crate::{StoreResult, TableExpiry};

impl PgStore {
    /// Deletes the listed entities that still have the given version and that no other transaction has locked.
    pub(crate) async fn delete_unlocked(
        &self,
        of: &TableExpiry,
        entities: &[(Key, Ticks)],
    ) -> StoreResult<u64> {
        let mut deleted = 0;
        // A statement for one bucket goes to one server of a sharded database.
        let bucket_of = |key: &Key| bucket(of.table_no, of.spread, &key.partition);
        let mut buckets: Vec<i64> = entities.iter().map(|(key, _)| bucket_of(key)).collect();
        buckets.sort_unstable();
        buckets.dedup();
        for bucket in buckets {
            let here = entities.iter().filter(|(key, _)| bucket_of(key) == bucket);
            let here: Vec<_> = here.map(|(key, version)| (key.clone(), version.raw())).collect();
            let mut lease = self.nodes.acquire_at(bucket, Some(LockWait::Long)).await?;
            lease.begin().await?;
            deleted += delete_in_bucket(&mut lease, of, bucket, &here).await?;
            lease.commit().await?;
        }
        Ok(deleted)
    }
}

/// Deletes the entities of a bucket that no other transaction has locked.
async fn delete_in_bucket(
    lease: &mut Lease,
    of: &TableExpiry,
    bucket: i64,
    entities: &[(Key, i64)],
) -> Result<u64, StatementError> {
    let found = lease.rows(bind_entities(texts::LOCK_EXPIRED, bucket, entities), Effect::Undone).await?;
    let read = |row: &PgRow| {
        Ok((Key { partition: row.try_get("pk")?, row: row.try_get("rk")? }, row.try_get("modified")?))
    };
    let locked = found.iter().map(read).collect::<Result<Vec<_>, _>>().map_err(broken_row)?;
    let delete = bind_entities(texts::DELETE_EXPIRED, bucket, &locked).bind(of.table_no).bind(of.made.raw());
    Ok(lease.changed(delete, Effect::Undone).await? as u64)
}

fn bind_entities<'a>(
    text: &'static str,
    bucket: i64,
    entities: &'a [(Key, i64)],
) -> Query<'a, Postgres, PgArguments> {
    let partitions: Vec<&str> = entities.iter().map(|(key, _)| key.partition.as_str()).collect();
    let rows: Vec<&str> = entities.iter().map(|(key, _)| key.row.as_str()).collect();
    let versions: Vec<i64> = entities.iter().map(|(_, version)| *version).collect();
    sqlx::query(text).bind(bucket).bind(partitions).bind(rows).bind(versions)
}
