//! Upkeep of tables: sweeping what has expired, and removing what belonged to deleted tables.

use std::time::{Duration, Instant};

use uuid::Uuid;

use super::{IDLE, LONGEST_PAUSE, OnFailure, PAUSE_FACTOR, is_due, pause_after};
use crate::observe::metrics::METRICS;
use crate::operator::expiry;
use crate::protocol::model::Ticks;
use crate::protocol::model::ticks::TICKS_PER_SECOND;
use crate::store::{Failure, Store};

/// As [`PAUSE_FACTOR`], while every entity that is read has expired: entities must be deleted as fast as
/// they are written, so the work takes a fifth of one connection.
const FULL_PAUSE_FACTOR: u32 = 4;
/// Interval at which what belongs to deleted tables is forgotten.
const FORGET: Duration = Duration::from_secs(10);
/// How long this server leads after a step; longer than any pause but that after failures.
const LEAD: i64 = 15 * TICKS_PER_SECOND;

/// What follows a failure to purge.
pub(crate) const ON_PURGE_FAILURE: OnFailure =
    OnFailure { message: "purging deleted tables failed; will retry", pauses: (IDLE, IDLE) };

/// Purges some entities of deleted tables that cannot be brought back any more, and returns the pause after it.
/// Several servers may do so at once.
pub(crate) async fn purge(store: &Store) -> Result<Duration, Failure> {
    let begun = Instant::now();
    let is_more_due = store.purge(Ticks::now()).await?;
    Ok(if is_more_due { pause_after(begun, PAUSE_FACTOR).min(IDLE) } else { IDLE })
}

/// Ends the time for which deleted tables can be brought back, forgets what belonged to tables that no longer exist,
/// and counts the tables that are to be purged.
#[derive(Default)]
pub(crate) struct DeletedUpkeep {
    forgotten: Option<Instant>,
}

impl DeletedUpkeep {
    pub(crate) const ON_FAILURE: OnFailure =
        OnFailure { message: "what belonged to deleted tables stays; will retry", pauses: (IDLE, IDLE) };

    /// Does what is due, and returns the pause after it.
    pub(crate) async fn step(&mut self, store: &Store, now: Ticks) -> Result<Duration, Failure> {
        if let Ok(tables) = store.backlog().await {
            METRICS.purge_backlog.set(i64::try_from(tables).unwrap_or(i64::MAX));
        }
        store.end_keeping(now).await?;
        if is_due(self.forgotten, FORGET) {
            store.forget_stale(now).await?;
            self.forgotten = Some(Instant::now());
        }
        Ok(IDLE)
    }
}

/// Sweeps what has expired. Of several servers, one works at a time.
pub(crate) struct TableUpkeep {
    /// Distinguishes this server from the others.
    holder: i64,
    summarized: Option<Instant>,
}

impl Default for TableUpkeep {
    fn default() -> Self {
        let holder = Uuid::new_v4().as_u64_pair().0.cast_signed();
        Self { holder, summarized: None }
    }
}

impl TableUpkeep {
    pub(crate) const ON_FAILURE: OnFailure = OnFailure {
        message: "expiry waits: the database failed",
        pauses: (Duration::from_secs(10), LONGEST_PAUSE),
    };

    /// Does what is due, and returns the pause after it.
    pub(crate) async fn step(&mut self, store: &Store, now: Ticks) -> Result<Duration, Failure> {
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
