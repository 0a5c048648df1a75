//! A circuit breaker: a server that does not answer gets no statements until it answers a probe.
//!
//! A statement for a server that hangs waits until it times out, and with it a connection and a client. So
//! a wait that takes long has the server probed. If the probe gets no answer either, the breaker opens: the
//! waits end, and further statements are refused at once. It closes when a probe is answered.

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
    /// A wait is long after this time, and after each further one.
    patience: Duration,
    /// Asks for a probe.
    suspicions: mpsc::Sender<()>,
}

impl Breaker {
    /// Creates a closed breaker. Whoever has the receiver probes the server for each message, until the
    /// breaker is dropped.
    pub(crate) fn new(patience: Duration) -> (Self, mpsc::Receiver<()>) {
        // One that comes during a probe is answered by another one.
        let (suspicions, receiver) = mpsc::channel(1);
        (Self { is_open: AtomicBool::new(false), opened: Notify::new(), patience, suspicions }, receiver)
    }

    pub(crate) fn is_open(&self) -> bool {
        self.is_open.load(Ordering::Acquire)
    }

    /// Opens or closes it; returns whether that is a change.
    pub(crate) fn set_open(&self, is_open: bool) -> bool {
        let changes = self.is_open.swap(is_open, Ordering::AcqRel) != is_open;
        if is_open {
            self.opened.notify_waiters();
        }
        changes
    }

    /// Asks for a probe. If one was asked for already, that is enough.
    pub(crate) fn suspect(&self) {
        let _ = self.suspicions.try_send(());
    }

    /// Waits for work that needs the server. It is abandoned when the breaker opens.
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
