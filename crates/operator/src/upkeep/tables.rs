//! Upkeep of tables: sweeping what has expired, and removing what belonged to deleted tables.

use std::time::{Duration, Instant};

use uuid::Uuid;

use super::clock::TrustedClock;
use super::{IDLE, LONGEST_PAUSE, OnFailure, PAUSE_FACTOR, is_due, pause_after};
use crate::expiry;
use crate::observe::metrics::METRICS;
use crate::protocol::model::Ticks;
use crate::protocol::model::ticks::TICKS_PER_SECOND;
use crate::store::{DeletedTable, Failure, Store};

/// As [`PAUSE_FACTOR`], while every entity that is read has expired: entities must be deleted as fast as
/// they are written, so the work takes a fifth of one connection.
const FULL_PAUSE_FACTOR: u32 = 4;
/// Interval at which what belongs to deleted tables is forgotten.
const FORGET: Duration = Duration::from_secs(10);
/// How long the clock must have been consistent before kept tables are purged by it.
const STEADY: Duration = Duration::from_secs(60);
/// How long this server leads after a step; longer than any pause but that after failures.
const LEAD: i64 = 15 * TICKS_PER_SECOND;

/// What follows a failure to purge.
pub const ON_PURGE_FAILURE: OnFailure =
    OnFailure { message: "purging deleted tables failed; will retry", pauses: (IDLE, IDLE) };

/// Purges some entities of deleted tables that cannot be brought back any more, and returns the pause after it.
/// Several servers may do so at once.
pub async fn purge(store: &Store) -> Result<Duration, Failure> {
    let begun = Instant::now();
    let is_more_due = store.purge(Ticks::now()).await?;
    Ok(if is_more_due { pause_after(begun, PAUSE_FACTOR).min(IDLE) } else { IDLE })
}

/// Ends the time for which deleted tables can be brought back, forgets what belonged to tables that no longer exist,
/// and counts the tables that are to be purged.
#[derive(Default)]
pub struct DeletedUpkeep {
    clock: TrustedClock,
    forgotten: Option<Instant>,
}

impl DeletedUpkeep {
    pub const ON_FAILURE: OnFailure = OnFailure {
        message: "could not remove the records of deleted tables; will retry",
        pauses: (IDLE, IDLE),
    };

    /// Does what is due, and returns the pause after it.
    pub async fn step(&mut self, store: &Store) -> Result<Duration, Failure> {
        if let Ok(tables) = store.backlog().await {
            METRICS.purge_backlog.set(i64::try_from(tables).unwrap_or(i64::MAX));
        }
        let now = self.clock.read(store).await?;
        if self.clock.steady_for() >= STEADY {
            end_keeping(store, now).await?;
        }
        if is_due(self.forgotten, FORGET) {
            store.forget_stale(now).await?;
            self.forgotten = Some(Instant::now());
        }
        Ok(IDLE)
    }
}

/// Has the deleted tables purged whose time has ended. One that cannot be purged now delays no other.
async fn end_keeping(store: &Store, now: Ticks) -> Result<(), Failure> {
    for deleted in &store.ended_tables(now).await? {
        let DeletedTable { table_no, account, name: table, .. } = deleted;
        match store.purge_deleted(deleted, now).await {
            Ok(true) => {
                let kept_until = deleted.kept_until.to_canonical();
                tracing::info!(
                    account,
                    table,
                    table_no,
                    kept_until,
                    "purging a deleted table, because its time has ended"
                );
            }
            Ok(false) => {}
            Err(failure) => {
                tracing::warn!(
                    account,
                    table,
                    table_no,
                    ?failure,
                    "could not purge a deleted table whose time has ended; will retry"
                );
            }
        }
    }
    Ok(())
}

/// Sweeps what has expired. Of several servers, one works at a time.
pub struct TableUpkeep {
    /// Distinguishes this server from the others.
    holder: i64,
    clock: TrustedClock,
    summarized: Option<Instant>,
}

impl Default for TableUpkeep {
    fn default() -> Self {
        let holder = Uuid::new_v4().as_u64_pair().0.cast_signed();
        Self { holder, clock: TrustedClock::default(), summarized: None }
    }
}

impl TableUpkeep {
    pub const ON_FAILURE: OnFailure = OnFailure {
        message: "expiry waits: the database failed",
        pauses: (Duration::from_secs(10), LONGEST_PAUSE),
    };

    /// Does what is due, and returns the pause after it.
    pub async fn step(&mut self, store: &Store) -> Result<Duration, Failure> {
        let now = self.clock.read(store).await?;
        if is_due(self.summarized, IDLE) {
            summarize(store, now).await?;
            self.summarized = Some(Instant::now());
        }
        let Some(due) = store.due_expiry(now).await? else { return Ok(IDLE) };
        let until = now.later(LEAD);
        if !store.leads_upkeep(self.holder, now, until).await? {
            return Ok(IDLE);
        }
        let begun = Instant::now();
        let is_full = expiry::step(store, &due, now).await?.is_full;
        Ok(pause_after(begun, if is_full { FULL_PAUSE_FACTOR } else { PAUSE_FACTOR }))
    }
}

async fn summarize(store: &Store, now: Ticks) -> Result<(), Failure> {
    let summary = store.expiry_summary(now).await?;
    let lag = summary.behind_since.map_or(0, |since| (now.raw() - since.raw()).max(0));
    METRICS.expiry_tables.set(i64::try_from(summary.tables).unwrap_or(i64::MAX));
    METRICS.expiry_lag.set(lag / TICKS_PER_SECOND);
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::protocol::model::TableName;
    use crate::store::sqlite::{Location, SqliteOptions, SqliteStore};
    use crate::store::{DeletedScan, DeletedTables as _, Tables as _};

    #[tokio::test]
    async fn a_deleted_table_that_cannot_be_purged_delays_no_other() {
        let store = SqliteStore::open(&SqliteOptions::new(Location::Memory)).unwrap();
        for name in ["Stuck", "Other"] {
            let name = TableName::parse(name).unwrap();
            store.create_table(name.in_account("account"), Ticks::now()).await.unwrap();
            let now = Ticks::now();
            store.delete_and_keep(name.in_account("account"), now, now).await.unwrap();
        }
        let refuse = "CREATE TRIGGER refuse BEFORE DELETE ON deleted_tables WHEN OLD.name = 'Stuck'
                      BEGIN SELECT RAISE(ABORT, 'refused'); END";
        store.execute(refuse).await;
        let store = Store::Sqlite(store);
        assert_eq!(store.ended_tables(Ticks::now()).await.unwrap()[0].name, "Stuck");
        end_keeping(&store, Ticks::now()).await.unwrap();
        let kept = store.deleted_tables(DeletedScan { most: 9, ..DeletedScan::default() }).await.unwrap();
        assert_eq!(kept.iter().map(|table| table.name.as_str()).collect::<Vec<_>>(), ["Stuck"]);
    }
}
