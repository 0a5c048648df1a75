//! Removes the rows of deleted tables in small ranges.

use sqlx::Row;
use sqlx::postgres::PgRow;

use crate::bucket::buckets;
use crate::observe::metrics::warning_limiter::{DueWarning, WarningLimiter};
use crate::postgres::connections::lease::Lease;
use crate::postgres::connections::options::connections_of;
use crate::postgres::connections::sessions::LockWait;
use crate::postgres::fault::{Effect, StatementError};
use crate::postgres::retry::{retry, retry_or_reconnect};
use crate::postgres::rows::broken_row;
use crate::postgres::state::purge_progress::{PurgePass, PurgePosition};
use crate::postgres::statements::respread;
use crate::postgres::{PgStore, statements};
use crate::protocol::model::Ticks;
use crate::{Fault, StoreResult, Upkeep};
use chrono::DateTime;

/// Maximum number of rows per purge statement. A statement of this size rarely outlasts its time slice on a processor that
/// also serves requests.
const RANGE: i64 = 100;
/// The grace period in ticks. A write that was in flight at the deletion may commit during this hour, which is longer
/// than any Rowhouse transaction.
const GRACE: i64 = 3600 * 10_000_000;

static NOT_PURGED: WarningLimiter = WarningLimiter::new();

impl Upkeep for PgStore {
    async fn current_until(&self, now: Ticks) -> StoreResult<Option<Ticks>> {
        let read = || async {
            let mut lease = self.nodes.acquire().await?;
            let row =
                lease.row(sqlx::query(statements::REPLAYED), Effect::Undone).await?.ok_or(Fault::Other)?;
            let is_replica: bool = row.try_get("is_replica").map_err(broken_row)?;
            Ok(if is_replica { time_of(&row)? } else { Some(now) })
        };
        retry(read).await
    }

    async fn clock(&self) -> StoreResult<Option<Ticks>> {
        retry(|| async {
            let mut lease = self.nodes.acquire().await?;
            let row = lease.row(sqlx::query(statements::CLOCK), Effect::Undone).await?.ok_or(Fault::Other)?;
            Ok(time_of(&row)?)
        })
        .await
    }

    async fn backlog(&self) -> StoreResult<u64> {
        let count = || async {
            let mut lease = self.nodes.acquire().await?;
            let query = sqlx::query(statements::COUNT_DOOMED);
            let row = lease.row(query, Effect::Undone).await?.ok_or(Fault::Other)?;
            Ok(row.try_get::<i64, _>("n").map_err(broken_row)?.cast_unsigned())
        };
        retry(count).await
    }

    async fn answers(&self) -> StoreResult<()> {
        // The connection may have been lost since its last use.
        retry_or_reconnect(|| async {
            let mut lease = self.acquire_to_probe().await?;
            lease.row(sqlx::query(statements::PROBE), Effect::Undone).await?;
            Ok(())
        })
        .await
    }

    async fn purge(&self, now: Ticks) -> StoreResult<bool> {
        let mut last = Ok(false);
        let due = || retry(|| async { Ok(self.due_for_purge(now).await?) });
        while let Some(row) = due().await? {
            let table_no: i64 = row.try_get("table_no").map_err(broken_row)?;
            match retry(|| self.purge_table(table_no, &row, now)).await {
                Ok(()) => return Ok(due().await?.is_some()),
                Err(failure) if !self.purge_progress.set_aside(table_no) => return Err(failure),
                Err(failure) => last = Err(failure),
            }
            if let Some(DueWarning { left_out }) = NOT_PURGED.due() {
                tracing::warn!(table_no, ?last, left_out, "a deleted table was not purged; will retry");
            }
        }
        last
    }
}

impl PgStore {
    /// Returns the maximum number of connections for this store's role, including those in use.
    pub async fn allowed_connections(&self) -> Result<u32, StatementError> {
        let mut lease = self.acquire_to_probe().await?;
        let row = lease.row(sqlx::query(statements::ALLOWED_CONNECTIONS), Effect::Undone).await?;
        row.map_or(Ok(0), |row| row.try_get("allowed").map(connections_of).map_err(broken_row))
    }

    /// Returns the connection for probes, or a different one if the first node is unreachable or has left the cluster.
    async fn acquire_to_probe(&self) -> Result<Lease, StatementError> {
        if self.probe.connector().is_member()
            && let Ok(lease) = self.probe.acquire().await
        {
            return Ok(lease);
        }
        self.nodes.acquire().await
    }

    /// The table with the earliest due time, except tables whose step failed.
    async fn due_for_purge(&self, now: Ticks) -> Result<Option<PgRow>, StatementError> {
        let latest = now.raw().saturating_add(GRACE);
        let mut lease = self.nodes.acquire().await?;
        let due = sqlx::query(statements::DUE).bind(now.raw()).bind(latest);
        lease.row(due.bind(self.purge_progress.tables_set_aside()), Effect::Undone).await
    }

    /// Removes one range of a table. An empty table gets a second pass after its grace period.
    async fn purge_table(&self, table_no: i64, row: &PgRow, now: Ticks) -> StoreResult<()> {
        let spread: i32 = row.try_get("spread").map_err(broken_row)?;
        let deleted_at: i64 = row.try_get("deleted_at").map_err(broken_row)?;
        let pass = PurgePass { table_no, due: row.try_get("due").map_err(broken_row)? };
        let Ok(spread) = u16::try_from(spread) else {
            let mut lease = self.nodes.acquire_for_all_nodes().await?;
            return Ok(doom_both_layouts(&mut lease, table_no, now).await?);
        };
        let start = self.purge_progress.position(pass).unwrap_or_else(|| PurgePosition::first(i64::MIN));
        for bucket in buckets(table_no, spread).filter(|bucket| *bucket >= start.bucket) {
            let from = if bucket == start.bucket { start.clone() } else { PurgePosition::first(bucket) };
            let mut lease = self.nodes.acquire_at(bucket, Some(LockWait::Long)).await?;
            if let Some(last) = purge_range(&mut lease, from).await? {
                self.purge_progress.set(Some((pass, last)));
                return Ok(());
            }
        }
        self.purge_progress.set(None);
        let mut lease = self.nodes.acquire_for_all_nodes().await?;
        let settle = if pass.due != deleted_at {
            let all: Vec<i64> = buckets(table_no, spread).collect();
            for text in [statements::REMOVE_CHANGES, statements::REMOVE_BUCKETS] {
                lease.changed(sqlx::query(text).bind(&all), Effect::Unknown).await?;
            }
            sqlx::query(statements::FORGET).bind(table_no)
        } else {
            let after_grace = deleted_at.min(now.raw()).saturating_add(GRACE);
            sqlx::query(statements::POSTPONE).bind(table_no).bind(after_grace)
        };
        lease.row(settle, Effect::Unknown).await?;
        Ok(())
    }
}

fn time_of(row: &PgRow) -> Result<Option<Ticks>, StatementError> {
    let micros: Option<i64> = row.try_get("micros").map_err(broken_row)?;
    Ok(micros.and_then(DateTime::from_timestamp_micros).map(Ticks::from_utc))
}

/// Replaces a table that was deleted during a respread with its two layouts. Each layout is purged like a table.
async fn doom_both_layouts(lease: &mut Lease, table_no: i64, now: Ticks) -> Result<(), StatementError> {
    lease.begin().await?;
    let find = sqlx::query(respread::FIND).bind(table_no);
    if let Some(row) = lease.row(find, Effect::Undone).await? {
        for (number, spread) in [("source_no", "source_spread"), ("target_no", "target_spread")] {
            let number: i64 = row.try_get(number).map_err(broken_row)?;
            let spread: i32 = row.try_get(spread).map_err(broken_row)?;
            let doom = sqlx::query(statements::DOOM_TABLE).bind(number).bind(spread).bind(now.raw());
            lease.row(doom, Effect::Undone).await?;
        }
        lease.row(sqlx::query(respread::FORGET).bind(table_no), Effect::Undone).await?;
    }
    lease.row(sqlx::query(statements::FORGET).bind(table_no), Effect::Undone).await?;
    lease.commit().await
}

/// Removes the next rows of a bucket, and returns where to resume if more may be left. The last key bounds the range,
/// because DELETE has no LIMIT.
async fn purge_range(
    lease: &mut Lease,
    from: PurgePosition,
) -> Result<Option<PurgePosition>, StatementError> {
    let PurgePosition { bucket, pk, rk } = from;
    let bound = sqlx::query(statements::PURGE_BOUND).bind(bucket).bind(&pk).bind(&rk).bind(RANGE - 1);
    let Some(last) = lease.row(bound, Effect::Undone).await? else {
        let rest = sqlx::query(statements::PURGE_REST).bind(bucket).bind(pk).bind(rk);
        lease.row(rest, Effect::Unknown).await?;
        return Ok(None);
    };
    let end = PurgePosition {
        bucket,
        pk: last.try_get("pk").map_err(broken_row)?,
        rk: last.try_get("rk").map_err(broken_row)?,
    };
    let range = sqlx::query(statements::PURGE_RANGE).bind(bucket).bind(pk).bind(rk);
    lease.row(range.bind(&end.pk).bind(&end.rk), Effect::Unknown).await?;
    Ok(Some(end))
}
