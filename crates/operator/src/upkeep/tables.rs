//! Upkeep of tables: sweeping expired entities, removing the records of deleted tables, and the clock for both.

use std::time::{Duration, Instant};

use uuid::Uuid;

use super::{IDLE, LONGEST_PAUSE, OnFailure, PAUSE_FACTOR, is_due, pause_after};
use crate::expiry;
use crate::observe::metrics::METRICS;
use crate::observe::metrics::warning_limiter::{DueWarning, WarningLimiter};
use crate::protocol::model::Ticks;
use crate::protocol::model::ticks::TICKS_PER_SECOND;
use crate::store::{DeletedTable, Failure, Store};

/// Replaces [`PAUSE_FACTOR`] while steps find the maximum number of expired entities. The sweep then uses a fifth of
/// the time of one connection, so that it keeps up with writers.
const FULL_PAUSE_FACTOR: u32 = 4;
/// Interval at which the records of deleted tables are removed.
const FORGET_INTERVAL: Duration = Duration::from_secs(10);
/// How long the clock must have been consistent before kept tables are purged by it.
const MIN_STEADY: Duration = Duration::from_secs(60);
/// How long this server holds the lease for sweeps after a step. It is longer than every pause except those after
/// failures.
const LEASE_TICKS: i64 = 15 * TICKS_PER_SECOND;

pub const ON_PURGE_FAILURE: OnFailure =
    OnFailure { message: "purging deleted tables failed; will retry", pauses: (IDLE, IDLE) };

/// Purges some entities of deleted tables that can no longer be restored, and returns the pause after it. Several
/// servers may purge at once.
pub async fn purge(store: &Store) -> Result<Duration, Failure> {
    let begun = Instant::now();
    let is_more_due = store.purge(Ticks::now()).await?;
    Ok(if is_more_due { pause_after(begun, PAUSE_FACTOR).min(IDLE) } else { IDLE })
}

/// Purges deleted tables whose time has ended, removes the records of tables that no longer exist, and counts the
/// tables that are to be purged.
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

    /// Does the work that is due, and returns the pause after it.
    pub async fn step(&mut self, store: &Store) -> Result<Duration, Failure> {
        if let Ok(tables) = store.backlog().await {
            METRICS.purge_backlog.set(i64::try_from(tables).unwrap_or(i64::MAX));
        }
        let now = self.clock.read(store).await?;
        if self.clock.steady_for() >= MIN_STEADY {
            end_keeping(store, now).await?;
        }
        if is_due(self.forgotten, FORGET_INTERVAL) {
            store.forget_stale(now).await?;
            self.forgotten = Some(Instant::now());
        }
        Ok(IDLE)
    }
}

/// Marks the deleted tables whose time has ended, so that they are purged. A table that cannot be purged now does
/// not delay the others.
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

/// Sweeps expired entities. Only one of several servers sweeps at a time.
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
        message: "expiry waits, because the database failed; will retry",
        pauses: (Duration::from_secs(10), LONGEST_PAUSE),
    };

    /// Does the work that is due, and returns the pause after it.
    pub async fn step(&mut self, store: &Store) -> Result<Duration, Failure> {
        let now = self.clock.read(store).await?;
        if is_due(self.summarized, IDLE) {
            summarize(store, now).await?;
            self.summarized = Some(Instant::now());
        }
        let Some(due) = store.due_expiry(now).await? else { return Ok(IDLE) };
        let until = now.later(LEASE_TICKS);
        if !store.leads_upkeep(self.holder, now, until).await? {
            return Ok(IDLE);
        }
        let begun = Instant::now();
        let is_full = expiry::step(store, &due, now).await?;
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

/// A clock that differs by more from the expected time has been set.
const TOLERANCE_TICKS: i64 = 2 * TICKS_PER_SECOND;
/// A clock that stays ahead for this long is trusted again: the machine was suspended, or the clock had been behind.
const DISTRUST: Duration = Duration::from_secs(600);
/// A larger difference between the clocks of the server and of its database is logged.
const MAX_SKEW_TICKS: i64 = 60 * TICKS_PER_SECOND;

static SKEWED: WarningLimiter = WarningLimiter::new();

/// The earlier of the clocks of the server and of the database, as long as it advances with the monotonic clock.
/// Deletions cannot be undone, so they never depend on a single reading.
#[derive(Debug, Default)]
struct TrustedClock {
    trusted: Option<(Ticks, Instant)>,
    ahead_since: Option<Instant>,
    /// The time of the first of the latest consistent readings.
    steady_since: Option<Instant>,
}

impl TrustedClock {
    /// Reads the clocks. While they are ahead of the monotonic clock, returns the time according to the monotonic
    /// clock.
    async fn read(&mut self, store: &Store) -> Result<Ticks, Failure> {
        let database = store.clock().await?;
        let own = Ticks::now();
        if let Some(database) = database
            && (own.raw() - database.raw()).abs() > MAX_SKEW_TICKS
            && let Some(DueWarning { left_out }) = SKEWED.due()
        {
            let seconds = (own.raw() - database.raw()) / TICKS_PER_SECOND;
            tracing::warn!(
                seconds,
                left_out,
                "the clock of this server is ahead of the database's by these seconds (negative: behind); synchronize both"
            );
        }
        Ok(self.judge(database.map_or(own, |database| database.min(own)), Instant::now()))
    }

    /// Returns the time for which readings have been consistent.
    fn steady_for(&self) -> Duration {
        self.steady_since.map_or(Duration::ZERO, |since| since.elapsed())
    }

    fn judge(&mut self, now: Ticks, at: Instant) -> Ticks {
        let Some(expected) = self.expected(at) else { return self.trust(now, at) };
        let (earliest, latest) = (expected.later(-TOLERANCE_TICKS), expected.later(TOLERANCE_TICKS));
        if !(earliest..=latest).contains(&now) {
            self.steady_since = None;
        }
        if now <= latest {
            return self.trust(now, at);
        }
        let since = *self.ahead_since.get_or_insert_with(|| {
            tracing::warn!(
                time = now.to_canonical(),
                expected = expected.to_canonical(),
                "the clock jumped ahead; nothing expires until the clock has stayed ahead for ten minutes"
            );
            at
        });
        if at.saturating_duration_since(since) < DISTRUST { expected } else { self.trust(now, at) }
    }

    /// The last trusted time plus the time that has passed since then.
    fn expected(&self, at: Instant) -> Option<Ticks> {
        let (time, then) = self.trusted?;
        let passed = at.saturating_duration_since(then).as_nanos() / 100;
        Some(time.later(i64::try_from(passed).unwrap_or(i64::MAX)))
    }

    fn trust(&mut self, now: Ticks, at: Instant) -> Ticks {
        self.trusted = Some((now, at));
        self.ahead_since = None;
        self.steady_since.get_or_insert(at);
        now
    }
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

    const DAY: i64 = 86_400 * TICKS_PER_SECOND;

    fn noon() -> Ticks {
        Ticks::parse("2026-01-01T12:00:00Z").unwrap()
    }

    #[test]
    fn a_clock_that_is_ahead_for_a_while_is_not_followed() {
        let (mut clock, start) = (TrustedClock::default(), Instant::now());
        let at = |seconds: u64| start + Duration::from_secs(seconds);
        let true_time = |seconds: u64| noon().later(seconds.cast_signed() * TICKS_PER_SECOND);
        assert_eq!(clock.judge(noon(), start), noon());
        for seconds in [5, 10, 15] {
            assert_eq!(clock.judge(true_time(seconds).later(8 * DAY), at(seconds)), true_time(seconds));
            assert_eq!(clock.steady_since, None);
        }
        assert_eq!(clock.judge(true_time(20), at(20)), true_time(20));
        assert_eq!(clock.steady_since, Some(at(20)));
    }

    #[test]
    fn a_clock_that_stays_ahead_is_followed_after_ten_minutes() {
        let (mut clock, start) = (TrustedClock::default(), Instant::now());
        clock.judge(noon(), start);
        let ahead = noon().later(DAY);
        assert_eq!(clock.judge(ahead, start), noon());
        let later = clock.judge(ahead, start + DISTRUST - Duration::from_secs(1));
        assert_eq!(later, noon().later(599 * TICKS_PER_SECOND));
        assert_eq!(clock.judge(ahead, start + DISTRUST), ahead);
    }

    #[test]
    fn a_clock_that_is_set_back_is_followed_at_once() {
        let (mut clock, start) = (TrustedClock::default(), Instant::now());
        clock.judge(noon().later(DAY), start);
        let later = start + Duration::from_secs(5);
        assert_eq!(clock.judge(noon(), later), noon());
        assert_eq!(clock.steady_since, Some(later), "the former readings prove nothing");
    }
}
