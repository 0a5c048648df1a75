//! Expiry: rules, and the deletion of entities that have expired.

use sqlx::postgres::{PgArguments, PgRow};
use sqlx::query::Query;
use sqlx::{Postgres, Row};

use crate::bucket::bucket;
use crate::contract::load::{COPY_VERSION_AT, stale_copies};
use crate::error::Code;
use crate::postgres::PgStore;
use crate::postgres::connections::lease::Lease;
use crate::postgres::connections::sessions::LockWait;
use crate::postgres::fault::{Effect, StatementError};
use crate::postgres::retry::retry;
use crate::postgres::rows::{broken_row, ticks};
use crate::postgres::state::table_ids::locked;
use crate::postgres::statements::{FORGET_STALE_MARKS, operator as texts};
use crate::protocol::model::{Key, TableRef, Ticks};
use crate::{
    Expiry, ExpiryRule, ExpirySummary, Fault, SWEEP_RETRY_PAUSE, StoreResult, SweepState, TableExpiry,
};

impl Expiry for PgStore {
    async fn set_expiry(&self, table: TableRef<'_>, rule: &ExpiryRule, now: Ticks) -> StoreResult<()> {
        retry(|| async {
            let mut lease = self.nodes.acquire_for_all_nodes().await?;
            lease.begin().await?;
            let Some((table_no, _)) = locked(&mut lease, table).await? else {
                lease.roll_back().await;
                return Err(Code::TableNotFound.into());
            };
            let set = sqlx::query(texts::SET_EXPIRY)
                .bind(table_no)
                .bind(rule.property.as_deref())
                .bind(rule.delay)
                .bind(rule.pause)
                .bind(now.raw());
            lease.row(set, Effect::Undone).await?;
            Ok(lease.commit().await?)
        })
        .await
    }

    async fn clear_expiry(&self, table: TableRef<'_>) -> StoreResult<bool> {
        retry(|| async {
            let mut lease = self.nodes.acquire_for_all_nodes().await?;
            lease.begin().await?;
            let Some((table_no, _)) = locked(&mut lease, table).await? else {
                lease.roll_back().await;
                return Ok(false);
            };
            let clear = sqlx::query(texts::CLEAR_EXPIRY).bind(table_no);
            let is_cleared = lease.row(clear, Effect::Undone).await?.is_some();
            lease.commit().await?;
            Ok(is_cleared)
        })
        .await
    }

    async fn expiries(&self, account: Option<&str>) -> StoreResult<Vec<TableExpiry>> {
        retry(|| async {
            let mut lease = self.nodes.acquire().await?;
            let list = sqlx::query(texts::LIST_EXPIRIES).bind(account);
            let rows = lease.rows(list, Effect::Undone).await?;
            Ok(rows.iter().map(expiry).collect::<Result<_, StatementError>>()?)
        })
        .await
    }

    async fn expiry_summary(&self, now: Ticks) -> StoreResult<ExpirySummary> {
        let mut lease = self.nodes.acquire().await?;
        let summarize = sqlx::query(texts::SUMMARIZE_EXPIRIES).bind(now.raw());
        let row = lease.row(summarize, Effect::Undone).await?.ok_or(Fault::Other)?;
        let rules: i64 = row.try_get("rules").map_err(broken_row)?;
        Ok(ExpirySummary { tables: rules.cast_unsigned(), behind_since: time(&row, "behind")? })
    }

    async fn due_expiry(&self, now: Ticks) -> StoreResult<Option<TableExpiry>> {
        let mut lease = self.nodes.acquire().await?;
        let (mut tables, mut made, mut dues) = (Vec::new(), Vec::new(), Vec::new());
        for (table_no, since, sweep) in self.unrecorded_sweeps.all() {
            tables.push(table_no);
            made.push(since.raw());
            dues.push(sweep.due.raw());
        }
        let due = sqlx::query(texts::DUE_EXPIRY).bind(now.raw()).bind(SWEEP_RETRY_PAUSE);
        let row = lease.row(due.bind(tables).bind(made).bind(dues), Effect::Undone).await?;
        let due = row.as_ref().map(expiry).transpose()?;
        Ok(due.map(|of| match self.unrecorded_sweeps.of(of.table_no, of.made) {
            Some(sweep) => TableExpiry { sweep, ..of },
            None => of,
        }))
    }

    async fn delete_expired(&self, of: &TableExpiry, entities: &[(Key, Ticks)]) -> StoreResult<u64> {
        let mut deleted = 0;
        // A statement of one bucket goes to one server of a sharded database.
        let bucket_of = |key: &Key| bucket(of.table_no, of.spread, &key.partition);
        let mut buckets: Vec<i64> = entities.iter().map(|(key, _)| bucket_of(key)).collect();
        buckets.sort_unstable();
        buckets.dedup();
        for bucket in buckets {
            let here = entities.iter().filter(|(key, _)| bucket_of(key) == bucket);
            let here: Vec<_> = here.map(|(key, version)| (key.clone(), version.raw())).collect();
            let mut lease = self.nodes.acquire_at(bucket, Some(LockWait::Long)).await?;
            lease.begin().await?;
            deleted += delete_unlocked(&mut lease, of, bucket, &here).await?;
            lease.commit().await?;
        }
        Ok(deleted)
    }

    async fn record_sweep(&self, of: &TableExpiry, sweep: &SweepState) -> StoreResult<()> {
        let written = self.write_sweep(of, sweep).await;
        let kept = || self.nodes.is_distributed().then(|| sweep.clone());
        self.unrecorded_sweeps.settle(written, (of.table_no, of.made), kept)
    }

    async fn forget_stale(&self, now: Ticks) -> StoreResult<()> {
        let mut lease = self.nodes.acquire_for_all_nodes().await?;
        lease.row(sqlx::query(texts::FORGET_DELETED), Effect::Unknown).await?;
        let (before, version) = stale_copies(now);
        let marks = sqlx::query(FORGET_STALE_MARKS).bind(before).bind(COPY_VERSION_AT).bind(version);
        lease.row(marks, Effect::Unknown).await?;
        Ok(())
    }

    async fn leads_upkeep(&self, holder: i64, now: Ticks, until: Ticks) -> StoreResult<bool> {
        let leads = match self.take_lead(holder, now, until).await {
            Err(_) if self.nodes.is_distributed() => !self.is_led_by_another(holder, now, until).await?,
            taken => taken?,
        };
        if !leads {
            self.unrecorded_sweeps.clear();
        }
        Ok(leads)
    }
}

/// Deletes the entities of a bucket that no other transaction has locked.
async fn delete_unlocked(
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

impl PgStore {
    async fn write_sweep(&self, of: &TableExpiry, sweep: &SweepState) -> StoreResult<()> {
        let mut lease = self.nodes.acquire_for_all_nodes().await?;
        let record = sqlx::query(texts::RECORD_SWEEP)
            .bind(of.table_no)
            .bind(of.made.raw())
            .bind(sweep.due.raw())
            .bind(sweep.began.map(Ticks::raw))
            .bind(sweep.position.as_ref().map(|key| key.partition.as_str()))
            .bind(sweep.position.as_ref().map(|key| key.row.as_str()))
            .bind(sweep.clean.map(Ticks::raw))
            .bind(sweep.expired.cast_signed());
        lease.row(record, Effect::Unknown).await?;
        Ok(())
    }

    async fn take_lead(&self, holder: i64, now: Ticks, until: Ticks) -> StoreResult<bool> {
        let mut lease = self.nodes.acquire_for_all_nodes().await?;
        let lead = sqlx::query(texts::LEAD_UPKEEP).bind(holder).bind(now.raw()).bind(until.raw());
        Ok(lease.row(lead, Effect::Unknown).await?.is_some())
    }

    /// For a server that could not take the lead because a node is away. The others cannot either: once the time
    /// of the last one has run out, all work, and do some of it more than once.
    async fn is_led_by_another(&self, holder: i64, now: Ticks, until: Ticks) -> StoreResult<bool> {
        let mut lease = self.nodes.acquire().await?;
        let led = sqlx::query(texts::IS_LED_BY_ANOTHER).bind(holder).bind(now.raw()).bind(until.raw());
        Ok(lease.row(led, Effect::Undone).await?.is_some())
    }
}

fn expiry(row: &PgRow) -> Result<TableExpiry, StatementError> {
    let text = |column: &str| row.try_get::<Option<String>, _>(column).map_err(broken_row);
    let number = |column: &str| row.try_get::<i64, _>(column).map_err(broken_row);
    let spread: i32 = row.try_get("spread").map_err(broken_row)?;
    let position = text("pk")?.zip(text("rk")?).map(|(partition, row)| Key { partition, row });
    Ok(TableExpiry {
        table_no: number("table_no")?,
        spread: u16::try_from(spread).map_err(|_| Fault::Other)?,
        account: row.try_get("account").map_err(broken_row)?,
        table: row.try_get("name").map_err(broken_row)?,
        rule: ExpiryRule { property: text("property")?, delay: number("delay")?, pause: number("pause")? },
        made: ticks(number("made")?)?,
        sweep: SweepState {
            due: ticks(number("due")?)?,
            began: time(row, "began")?,
            position,
            clean: time(row, "clean")?,
            expired: number("expired")?.cast_unsigned(),
        },
    })
}

/// A stored time that may be missing.
fn time(row: &PgRow, column: &str) -> Result<Option<Ticks>, StatementError> {
    row.try_get::<Option<i64>, _>(column).map_err(broken_row)?.map(ticks).transpose()
}
