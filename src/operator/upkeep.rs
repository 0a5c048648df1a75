//! The background work of a server: it sweeps what has expired, counts tables whose totals are
//! wanted, and forgets what belonged to deleted tables. All of it in small steps with pauses, so
//! that requests come first. Of several servers, one works at a time.

use std::collections::HashSet;
use std::time::{Duration, Instant};

use uuid::Uuid;

use super::expiry;
use super::totals::CountPace;
use crate::observe::metrics::METRICS;
use crate::protocol::model::Ticks;
use crate::protocol::model::ticks::TICKS_PER_SECOND;
use crate::store::{Expiry as _, Failure, SqlViews as _, Store, Totals as _, UntidyView};

/// Pause when there is nothing to do, and of servers that do not lead.
const IDLE: Duration = Duration::from_secs(5);
/// Pause after a step, as a multiple of its duration: the work takes a twentieth of one connection.
const REST: u32 = 19;
/// The same while every entity that is read has expired: entities must be deleted as fast as
/// they are written, so the work takes a fifth.
const FULL_REST: u32 = 4;
/// The shortest and the longest pause after a step.
const PAUSES: (Duration, Duration) = (Duration::from_millis(5), Duration::from_secs(10));
/// The longest pause after failures in a row, each of which doubles it.
const LONGEST_PAUSE: Duration = Duration::from_secs(60);
/// Interval at which what belongs to deleted tables is forgotten.
const FORGET: Duration = Duration::from_secs(10);
/// How long this server leads after a step; longer than any pause but that after failures.
const LEAD: i64 = 15 * TICKS_PER_SECOND;

/// Works until the server ends.
pub(crate) async fn run(store: &Store) {
    let mut upkeep = UpkeepWorker {
        store,
        holder: Uuid::new_v4().as_u64_pair().0.cast_signed(),
        pace: CountPace::default(),
        summarized: None,
        forgotten: None,
        failures: 0,
    };
    loop {
        let pause = upkeep.turn(Ticks::now()).await;
        tokio::time::sleep(pause).await;
    }
}

struct UpkeepWorker<'a> {
    store: &'a Store,
    /// Distinguishes this server from the others.
    holder: i64,
    pace: CountPace,
    summarized: Option<Instant>,
    forgotten: Option<Instant>,
    /// Failures in a row.
    failures: u32,
}

impl UpkeepWorker<'_> {
    /// Does what is due, and returns the pause after it.
    async fn turn(&mut self, now: Ticks) -> Duration {
        match self.work(now).await {
            Ok(pause) => {
                self.failures = 0;
                pause
            }
            Err(failure) => {
                if self.failures == 0 {
                    tracing::warn!(?failure, "expiry and counting wait: the database failed");
                }
                self.failures = self.failures.saturating_add(1);
                IDLE.saturating_mul(1 << self.failures.min(4)).min(LONGEST_PAUSE)
            }
        }
    }

    async fn work(&mut self, now: Ticks) -> Result<Duration, Failure> {
        if is_due(self.summarized, IDLE) {
            self.summarize(now).await?;
            self.summarized = Some(Instant::now());
        }
        let (expiry, total) = (self.store.due_expiry(now).await?, self.store.due_total().await?);
        let forgets = is_due(self.forgotten, FORGET);
        if !forgets && expiry.is_none() && total.is_none() {
            return Ok(IDLE);
        }
        if forgets {
            self.store.forget_stale(now).await?;
            self.forgotten = Some(Instant::now());
            return Ok(PAUSES.0);
        }
        let until = Ticks::from_raw(now.raw().saturating_add(LEAD)).unwrap_or(Ticks::MAX);
        if !self.store.leads_upkeep(self.holder, now, until).await? {
            return Ok(IDLE);
        }
        let begun = Instant::now();
        let mut is_full = false;
        if let Some(of) = expiry {
            is_full = expiry::step(self.store, &of, now).await?.is_full;
        }
        if let Some(pass) = total {
            self.pace.step_total(self.store, &pass, now).await?;
        }
        let rest = begun.elapsed() * if is_full { FULL_REST } else { REST };
        Ok(rest.clamp(PAUSES.0, PAUSES.1))
    }

    async fn summarize(&self, now: Ticks) -> Result<(), Failure> {
        let summary = self.store.expiry_summary(now).await?;
        let lag = summary.behind_since.map_or(0, |since| (now.raw() - since.raw()).max(0));
        METRICS.expiry_tables.set(i64::try_from(summary.tables).unwrap_or(i64::MAX));
        METRICS.expiry_lag.set(lag / TICKS_PER_SECOND);
        Ok(())
    }
}

/// Tidies views until the server ends. It is a task of its own, because a query that reads a view keeps it
/// locked as long as its transaction is open.
pub(crate) async fn tidy_views(store: &Store) {
    let mut told: HashSet<String> = HashSet::new();
    loop {
        let left = match store.tidy_views().await {
            Ok(left) => left,
            Err(failure) => {
                tracing::debug!(?failure, "the views could not be looked at; will retry");
                Vec::new()
            }
        };
        told.retain(|view| left.iter().any(|other| other.view == *view));
        for UntidyView { view, is_orphaned, reason } in &left {
            if told.insert(view.clone()) {
                let what = if *is_orphaned { "dropped with its table" } else { "given its security barrier" };
                tracing::warn!(view, reason, "a view cannot be {what} yet; will retry");
            }
        }
        tokio::time::sleep(if left.is_empty() { FORGET } else { LONGEST_PAUSE }).await;
    }
}

fn is_due(last: Option<Instant>, interval: Duration) -> bool {
    last.is_none_or(|last| last.elapsed() >= interval)
}
