//! The background work of a server: jobs that repeat a small step with pauses, so that requests come first.

mod indexes;
mod tables;

use std::sync::Arc;
use std::time::{Duration, Instant};

use tokio::sync::watch;
use tokio::task::JoinSet;
use tokio::time::timeout;

pub use indexes::{IndexBuilds, IndexRemoval};
pub use tables::{DeletedUpkeep, ON_PURGE_FAILURE, TableUpkeep, purge};

use crate::accounts::Follower;
use crate::store::{Failure, Store};

/// Pause of a job that has nothing to do.
const IDLE: Duration = Duration::from_secs(5);
/// Poll interval for changes of accounts and indexes, and for indexes to build.
const POLL_PAUSE: Duration = Duration::from_secs(2);
/// Pause after a step, as a multiple of its duration. A job thus uses a twentieth of the time of one connection.
const PAUSE_FACTOR: u32 = 19;
/// The shortest and the longest pause after a step.
const PAUSE_LIMITS: (Duration, Duration) = (Duration::from_millis(5), Duration::from_secs(10));
/// The longest pause after failures in a row, each of which doubles it.
const LONGEST_PAUSE: Duration = Duration::from_secs(60);
/// Maximum time that a stopping server waits for steps that are under way.
pub const STOP_TIMEOUT: Duration = Duration::from_secs(5);

/// The log message and the pauses after a failed step.
#[derive(Debug, Clone, Copy)]
pub struct OnFailure {
    /// Logged for the first of several failures in a row.
    pub message: &'static str,
    /// The pause after the first failure, and the longest: each failure in a row doubles it.
    pub pauses: (Duration, Duration),
}

impl OnFailure {
    /// Returns the handling for [`follow`], with the same pause after each failure.
    pub const fn for_follower(message: &'static str) -> Self {
        Self { message, pauses: (POLL_PAUSE, POLL_PAUSE) }
    }

    /// For jobs that report their own failures.
    pub const NONE: Self = Self { message: "", pauses: (IDLE, IDLE) };

    fn pause(self, failures: u32) -> Duration {
        let (first, longest) = self.pauses;
        first.saturating_mul(1 << failures.min(16)).min(longest)
    }
}

pub async fn follow(follower: &Follower, store: &Store) -> Result<Duration, Failure> {
    if follower.follow(store).await? {
        tracing::info!("accounts or indexes changed");
    }
    Ok(POLL_PAUSE)
}

/// Runs each job as its own task, so that no job waits for another.
#[derive(Default)]
pub struct Worker {
    is_stopped: watch::Sender<bool>,
    jobs: JoinSet<()>,
}

impl Worker {
    /// Adds a job: `step` does the work that is due, and returns the pause after it.
    pub fn run<S: 'static>(
        &mut self,
        server: &Arc<S>,
        on_failure: OnFailure,
        mut step: impl AsyncFnMut(&S) -> Result<Duration, Failure> + 'static,
    ) {
        let (server, mut is_stopped) = (Arc::clone(server), self.is_stopped.subscribe());
        self.jobs.spawn_local(async move {
            let mut failures = 0;
            while !*is_stopped.borrow() {
                let pause = match step(&server).await {
                    Ok(pause) => {
                        failures = 0;
                        pause
                    }
                    Err(failure) => {
                        if failures == 0 {
                            tracing::warn!(?failure, "{}", on_failure.message);
                        }
                        failures += 1;
                        on_failure.pause(failures - 1)
                    }
                };
                let _ = timeout(pause, is_stopped.changed()).await;
            }
        });
    }

    /// Starts no further steps, and waits for the current ones. After the time limit, it aborts them. No job is running
    /// when this returns.
    pub async fn stop(mut self, limit: Duration) {
        self.is_stopped.send_replace(true);
        let ended = async { while self.jobs.join_next().await.is_some() {} };
        if timeout(limit, ended).await.is_err() {
            tracing::info!(jobs = self.jobs.len(), "stopped background jobs before they finished");
            self.jobs.shutdown().await;
        }
    }
}

/// Returns the pause after a step that began at this time.
fn pause_after(begun: Instant, factor: u32) -> Duration {
    (begun.elapsed() * factor).clamp(PAUSE_LIMITS.0, PAUSE_LIMITS.1)
}

fn is_due(last: Option<Instant>, interval: Duration) -> bool {
    last.is_none_or(|last| last.elapsed() >= interval)
}

#[cfg(test)]
mod tests {
    use std::sync::Mutex;

    use tokio::sync::Notify;
    use tokio::task::LocalSet;

    use super::*;

    const ON_FAILURE: OnFailure = OnFailure { message: "a test fails", pauses: (IDLE, LONGEST_PAUSE) };

    #[derive(Default)]
    struct Steps {
        begun: Notify,
        may_end: Notify,
        log: Mutex<Vec<&'static str>>,
    }

    impl Steps {
        fn note(&self, what: &'static str) {
            self.log.lock().unwrap().push(what);
        }

        async fn step(&self) -> Result<Duration, Failure> {
            self.note("step begins");
            self.begun.notify_one();
            self.may_end.notified().await;
            self.note("step ends");
            Ok(Duration::ZERO)
        }
    }

    #[tokio::test]
    async fn the_end_waits_for_a_step_and_nothing_runs_after_it() {
        let steps = Arc::new(Steps::default());
        let ends = async {
            let mut worker = Worker::default();
            worker.run(&steps, ON_FAILURE, Steps::step);
            steps.begun.notified().await;
            let end = async {
                worker.stop(Duration::MAX).await;
                steps.note("store closes");
            };
            tokio::join!(end, async { steps.may_end.notify_one() });
            steps.may_end.notify_one();
            tokio::task::yield_now().await;
        };
        LocalSet::new().run_until(ends).await;
        assert_eq!(*steps.log.lock().unwrap(), ["step begins", "step ends", "store closes"]);
        assert_eq!(Arc::strong_count(&steps), 1, "no job is left");
    }

    #[tokio::test]
    async fn a_step_that_does_not_end_delays_no_other_job_and_is_cut_off() {
        let steps = Arc::new(Steps::default());
        let ends = async {
            let mut worker = Worker::default();
            worker.run(&steps, ON_FAILURE, async |_: &Steps| std::future::pending().await);
            worker.run(&steps, ON_FAILURE, Steps::step);
            for _ in 0..3 {
                steps.begun.notified().await;
                steps.may_end.notify_one();
            }
            worker.stop(Duration::ZERO).await;
        };
        LocalSet::new().run_until(ends).await;
        assert_eq!(Arc::strong_count(&steps), 1, "no job is left");
    }

    #[test]
    fn failures_in_a_row_double_the_pause() {
        let pauses = [0, 1, 2, 3, 4, 99].map(|failures| ON_FAILURE.pause(failures).as_secs());
        assert_eq!(pauses, [5, 10, 20, 40, 60, 60]);
    }
}
