//! Snapshots, in temporary tables of one session: they are not part of the schema, and end with the
//! session.

use sqlx::Row;
use sqlx::postgres::PgRow;

use crate::bucket::new_table_no;
use crate::contract::reset::{MAX_SNAPSHOTS, StoreSnapshot};
use crate::postgres::PgStore;
use crate::postgres::connections::lease::Lease;
use crate::postgres::fault::{Effect, StatementError};
use crate::postgres::retry::retry;
use crate::postgres::rows::{broken_row, ticks};
use crate::postgres::statements::reset as texts;
use crate::protocol::model::Ticks;
use crate::{Reset, StoreResult};

impl Reset for PgStore {
    async fn reset(&self, account: Option<&str>, now: Ticks) -> StoreResult<()> {
        retry(|| self.try_reset(account, now)).await
    }

    async fn take_snapshot(&self, name: &str, account: Option<&str>, now: Ticks) -> StoreResult<bool> {
        retry(|| self.try_take(name, account, now)).await
    }

    async fn restore_snapshot(&self, name: &str, now: Ticks) -> StoreResult<bool> {
        retry(|| self.try_restore(name, now)).await
    }

    async fn drop_snapshot(&self, name: &str) -> StoreResult<bool> {
        retry(|| self.try_discard(name)).await
    }

    async fn snapshots(&self) -> StoreResult<Vec<StoreSnapshot>> {
        retry(|| self.read_snapshots()).await
    }
}

impl PgStore {
    /// Returns the session that has the snapshots, with their tables. After a lost connection it is a new
    /// session without snapshots.
    async fn snapshot_session(&self) -> Result<Lease, StatementError> {
        let mut lease = self.snapshots.acquire().await?;
        let known = sqlx::query(texts::HAS_SNAPSHOTS).bind("snapshots");
        if lease.row(known, Effect::Undone).await?.is_none() {
            for text in texts::CREATE {
                lease.row(sqlx::query(text), Effect::Unknown).await?;
            }
        }
        Ok(lease)
    }

    pub(crate) async fn try_reset(&self, account: Option<&str>, now: Ticks) -> StoreResult<()> {
        let mut lease = self.nodes.acquire().await?;
        lease.begin().await?;
        empty(&mut lease, account, now).await?;
        Ok(lease.commit().await?)
    }

    pub(crate) async fn try_take(&self, name: &str, account: Option<&str>, now: Ticks) -> StoreResult<bool> {
        let mut lease = self.snapshot_session().await?;
        let take =
            sqlx::query(texts::TAKE).bind(name).bind(account).bind(now.raw()).bind(MAX_SNAPSHOTS as i64);
        Ok(lease.row(take, Effect::Unknown).await?.is_some())
    }

    pub(crate) async fn try_restore(&self, name: &str, now: Ticks) -> StoreResult<bool> {
        let mut lease = self.snapshot_session().await?;
        let found = lease.row(sqlx::query(texts::FIND).bind(name), Effect::Undone).await?;
        let Some(found) = found else { return Ok(false) };
        let account: Option<String> = found.try_get("account").map_err(broken_row)?;
        lease.begin().await?;
        match put_back(&mut lease, name, account.as_deref(), now).await {
            Ok(()) => {
                lease.commit().await?;
                Ok(true)
            }
            Err(error) => {
                // Otherwise the session would end, and all snapshots with it.
                lease.roll_back().await;
                Err(error.into())
            }
        }
    }

    pub(crate) async fn try_discard(&self, name: &str) -> StoreResult<bool> {
        let mut lease = self.snapshot_session().await?;
        let discard = sqlx::query(texts::DISCARD).bind(name);
        Ok(lease.row(discard, Effect::Unknown).await?.is_some())
    }

    pub(crate) async fn read_snapshots(&self) -> StoreResult<Vec<StoreSnapshot>> {
        let mut lease = self.snapshot_session().await?;
        let rows = lease.rows(sqlx::query(texts::LIST), Effect::Undone).await?;
        Ok(rows.iter().map(snapshot).collect::<Result<_, StatementError>>()?)
    }
}

async fn empty(lease: &mut Lease, account: Option<&str>, now: Ticks) -> Result<(), StatementError> {
    lease.row(sqlx::query(texts::LOCK), Effect::Undone).await?;
    let reset = sqlx::query(texts::RESET).bind(account).bind(now.raw());
    lease.row(reset, Effect::Undone).await?;
    Ok(())
}

async fn put_back(
    lease: &mut Lease,
    name: &str,
    account: Option<&str>,
    now: Ticks,
) -> Result<(), StatementError> {
    empty(lease, account, now).await?;
    let rows = lease.rows(sqlx::query(texts::NUMBERS).bind(name), Effect::Undone).await?;
    let number = |row: &PgRow| row.try_get("table_no").map_err(broken_row);
    let old: Vec<i64> = rows.iter().map(number).collect::<Result<_, _>>()?;
    let new: Vec<i64> = old.iter().map(|_| new_table_no()).collect();
    for text in [texts::RESTORE_TABLES, texts::RESTORE_ENTITIES, texts::RESTORE_EXPIRY] {
        let restore = sqlx::query(text).bind(name).bind(&old).bind(&new);
        lease.row(restore, Effect::Undone).await?;
    }
    lease.row(sqlx::query(texts::RESTORE_PROPERTIES).bind(name), Effect::Undone).await?;
    Ok(())
}

fn snapshot(row: &PgRow) -> Result<StoreSnapshot, StatementError> {
    Ok(StoreSnapshot {
        name: row.try_get("name").map_err(broken_row)?,
        account: row.try_get("account").map_err(broken_row)?,
        taken: ticks(row.try_get("taken").map_err(broken_row)?)?,
    })
}
