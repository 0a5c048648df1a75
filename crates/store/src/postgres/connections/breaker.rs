//! A circuit breaker: rejects statements for a server that does not answer, until the server answers a probe.
//!
//! A statement sent to a hung server blocks a connection and a client until its timeout. A long wait therefore
//! triggers a probe of the server. If the probe gets no answer, the breaker opens: pending waits end, and new
//! statements fail immediately. The breaker closes when a probe is answered.

use std::pin::pin;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use tokio::sync::{Notify, mpsc};
use tokio::time::timeout;

use crate::Fault;
use crate::observe::metrics::METRICS;

/// The breaker of one server, or of several for statements that need all of them.
pub(crate) struct Breaker {
    is_open: AtomicBool,
    opened: Notify,
    /// A wait triggers a probe after this time, and again after each further multiple of it.
    patience: Duration,
    /// Requests a probe.
    suspicions: mpsc::Sender<()>,
}

impl Breaker {
    /// Creates a closed breaker. The holder of the receiver probes the server for each message, until the breaker is
    /// dropped.
    pub(crate) fn new(patience: Duration) -> (Self, mpsc::Receiver<()>) {
        // The one-slot buffer holds a suspicion that arrives during a probe, which then causes another probe.
        let (suspicions, receiver) = mpsc::channel(1);
        (Self { is_open: AtomicBool::new(false), opened: Notify::new(), patience, suspicions }, receiver)
    }

    pub(crate) fn is_open(&self) -> bool {
        self.is_open.load(Ordering::Acquire)
    }

    /// Opens or closes the breaker; returns whether its state changed.
    pub(crate) fn set_open(&self, is_open: bool) -> bool {
        let changes = self.is_open.swap(is_open, Ordering::AcqRel) != is_open;
        if is_open {
            self.opened.notify_waiters();
        }
        changes
    }

    /// Requests a probe. A request that is already pending covers this one.
    pub(crate) fn suspect(&self) {
        let _ = self.suspicions.try_send(());
    }

    /// Runs work that needs the server, and abandons it when the breaker opens.
    ///
    /// # Errors
    /// [`Fault::Unavailable`] if the breaker is open.
    pub(crate) async fn guard<T>(&self, work: impl Future<Output = T>) -> Result<T, Fault> {
        if self.is_open() {
            METRICS.refused_by_breakers.one();
            return Err(Fault::Unavailable);
        }
        let mut work = pin!(work);
        if let Ok(done) = timeout(self.patience, work.as_mut()).await {
            return Ok(done);
        }
        loop {
            let mut opened = pin!(self.opened.notified());
            opened.as_mut().enable();
            if self.is_open() {
                return Err(Fault::Unavailable);
            }
            self.suspect();
            tokio::select! {
                biased;
                done = work.as_mut() => return Ok(done),
                () = opened => return Err(Fault::Unavailable),
                () = tokio::time::sleep(self.patience) => {}
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::future::{pending, ready};

    use super::*;

    const PATIENCE: Duration = Duration::from_millis(10);

    #[tokio::test]
    async fn work_that_is_done_in_time_has_nothing_probed() {
        let (breaker, mut suspicions) = Breaker::new(PATIENCE);
        assert_eq!(breaker.guard(ready(1)).await, Ok(1));
        assert!(suspicions.try_recv().is_err());
    }

    #[tokio::test]
    async fn a_long_wait_asks_for_a_probe_and_ends_when_the_breaker_opens() {
        let (breaker, mut suspicions) = Breaker::new(PATIENCE);
        let probe = async {
            suspicions.recv().await.expect("a suspicion");
            assert!(breaker.set_open(true));
        };
        let (waited, ()) = tokio::join!(breaker.guard(pending::<()>()), probe);
        assert_eq!(waited, Err(Fault::Unavailable));
        assert_eq!(breaker.guard(ready(1)).await, Err(Fault::Unavailable), "it is open");
        assert!(breaker.set_open(false));
        assert_eq!(breaker.guard(ready(1)).await, Ok(1), "it is closed");
    }

    #[tokio::test]
    async fn a_server_that_answers_probes_may_take_its_time() {
        let (breaker, mut suspicions) = Breaker::new(PATIENCE);
        let slow = async {
            suspicions.recv().await.expect("a suspicion");
            1
        };
        assert_eq!(breaker.guard(slow).await, Ok(1));
    }
}
