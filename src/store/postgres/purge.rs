//! Removing the rows of deleted tables, a small range at a time.

use sqlx::Row;

use super::PgStore;
use super::fault::{Effect, Trouble};
use super::pool::Lease;
use super::read::broken_row;
use super::statements;
use crate::model::Ticks;
use crate::store::bucket::buckets;
use crate::store::{Fault, StoreResult};

/// Rows that one call removes at most.
const RANGE: i64 = 5000;
/// Ticks after a deletion in which a write that was under way may still land:
/// one hour, more than any transaction of ours can last.
const GRACE: i64 = 3600 * 10_000_000;

impl PgStore {
    /// Tables that were deleted and not looked at since, or not to the end.
    pub(super) async fn count_doomed(&self) -> StoreResult<u64> {
        let mut lease = self.pool.acquire().await?;
        let query = sqlx::query(statements::COUNT_DOOMED);
        let row = lease.row(query, Effect::Undone).await?.ok_or(Fault::Other)?;
        let count: i64 = row.try_get("n").map_err(broken_row)?;
        Ok(u64::try_from(count).unwrap_or(0))
    }

    /// Removes one range of the table that has been due for the longest. A
    /// table without rows is looked at once more after its grace time.
    pub(super) async fn try_purge(&self, now: Ticks) -> StoreResult<bool> {
        let mut lease = self.pool.acquire().await?;
        let query = sqlx::query(statements::DUE).bind(now.raw());
        let Some(row) = lease.row(query, Effect::Undone).await? else { return Ok(false) };
        let table_no: i64 = row.try_get("table_no").map_err(broken_row)?;
        let spread: i32 = row.try_get("spread").map_err(broken_row)?;
        let deleted_at: i64 = row.try_get("deleted_at").map_err(broken_row)?;
        let spread = u16::try_from(spread).map_err(|_| Fault::Other)?;
        for bucket in buckets(table_no, spread) {
            if purge_range(&mut lease, bucket).await? {
                return Ok(true);
            }
        }
        let after_grace = deleted_at.saturating_add(GRACE);
        let settle = if now.raw() >= after_grace {
            sqlx::query(statements::FORGET).bind(table_no)
        } else {
            sqlx::query(statements::POSTPONE).bind(table_no).bind(after_grace)
        };
        lease.row(settle, Effect::Unknown).await?;
        let due = sqlx::query(statements::DUE).bind(now.raw());
        Ok(lease.row(due, Effect::Undone).await?.is_some())
    }
}

/// Removes the first rows of a bucket; whether more may be left. A range is
/// found by its last key, since a DELETE knows no LIMIT.
async fn purge_range(lease: &mut Lease<'_>, bucket: i64) -> Result<bool, Trouble> {
    let bound = sqlx::query(statements::PURGE_BOUND).bind(bucket).bind(RANGE - 1);
    let Some(last) = lease.row(bound, Effect::Undone).await? else {
        lease.row(sqlx::query(statements::PURGE_REST).bind(bucket), Effect::Unknown).await?;
        return Ok(false);
    };
    let pk: String = last.try_get("pk").map_err(broken_row)?;
    let rk: String = last.try_get("rk").map_err(broken_row)?;
    let delete = sqlx::query(statements::PURGE_UP_TO).bind(bucket).bind(pk).bind(rk);
    lease.row(delete, Effect::Unknown).await?;
    Ok(true)
}
