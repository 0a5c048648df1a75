//! Busy-polling: a worker thread with a single client polls instead of sleeping between events, because
//! waking a thread takes longer than a point read. Polling uses up to one core while the client keeps
//! sending. It stops as soon as requests of several clients overlap or no request arrives for a moment.
//!
//! In a paired run of the plain build with and without busy-polling, a single client made 1.70 times as many
//! point reads on SQLite and 1.22 times as many on PostgreSQL, at 0.96 and 1.33 times the CPU time per
//! request (3 repetitions). `ROWHOUSE_BUSY_POLL=false` turns it off.

use std::cell::Cell;
use std::ptr;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use actix_web::rt::spawn;

/// How long to poll for the next event: longer than a point read, but shorter than a synced write.
const POLL_TIME: Duration = Duration::from_micros(120);
/// Number of consecutive requests without overlap after which a thread polls.
const LONE_REQUESTS: u32 = 64;

/// The address of the [`Poller`] of the thread that received the last request.
static LAST_THREAD: AtomicUsize = AtomicUsize::new(0);

thread_local! {
    static POLLER: Poller = const {
        Poller { in_flight: Cell::new(0), lone: Cell::new(0), poll_until: Cell::new(None) }
    };
}

struct Poller {
    in_flight: Cell<u32>,
    /// Number of consecutive requests without overlap, up to [`LONE_REQUESTS`].
    lone: Cell<u32>,
    /// The end of polling, if the thread polls.
    poll_until: Cell<Option<Instant>>,
}

/// Counts as a request in flight until it is dropped.
pub(crate) struct InFlight(());

/// Counts a request, and starts to poll if a single client is active.
pub(crate) fn begin() -> InFlight {
    POLLER.with(|poller| {
        poller.in_flight.set(poller.in_flight.get() + 1);
        if poller.in_flight.get() > 1 || !received_previous_request(poller) {
            poller.lone.set(0);
        } else {
            poller.lone.set((poller.lone.get() + 1).min(LONE_REQUESTS));
        }
        poller.start_or_stop();
    });
    InFlight(())
}

impl Drop for InFlight {
    fn drop(&mut self) {
        POLLER.with(|poller| {
            poller.in_flight.set(poller.in_flight.get().saturating_sub(1));
            if poller.poll_until.get().is_some() {
                poller.poll_until.set(Some(Instant::now() + POLL_TIME));
            }
        });
    }
}

/// Returns whether this thread also received the previous request.
fn received_previous_request(poller: &Poller) -> bool {
    let id = ptr::from_ref(poller).addr();
    let is_last = LAST_THREAD.load(Ordering::Relaxed) == id;
    if !is_last {
        LAST_THREAD.store(id, Ordering::Relaxed);
    }
    is_last
}

impl Poller {
    /// Starts or extends polling if enough consecutive requests did not overlap. Otherwise stops it.
    fn start_or_stop(&self) {
        if self.lone.get() < LONE_REQUESTS {
            self.poll_until.set(None);
        } else if self.poll_until.replace(Some(Instant::now() + POLL_TIME)).is_none() {
            spawn(poll());
        }
    }

    /// Returns whether to continue polling. Resets the count if nothing arrived in time.
    fn is_polling(&self, now: Instant) -> bool {
        let Some(until) = self.poll_until.get() else { return false };
        if now < until {
            return true;
        }
        self.poll_until.set(None);
        self.lone.set(0);
        false
    }
}

async fn poll() {
    while POLLER.with(|poller| poller.is_polling(Instant::now())) {
        tokio::task::yield_now().await;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn lone() -> u32 {
        POLLER.with(|poller| poller.lone.get())
    }

    fn is_polling() -> bool {
        POLLER.with(|poller| poller.poll_until.get().is_some())
    }

    #[actix_web::test]
    async fn a_thread_polls_for_a_single_client_until_no_request_arrives() {
        // Tests on other threads may send requests that interrupt the sequence.
        while !is_polling() {
            drop(begin());
        }
        assert_eq!(lone(), LONE_REQUESTS);
        while is_polling() {
            tokio::task::yield_now().await;
        }
        assert_eq!(lone(), 0);
        drop(begin());
        assert!(!is_polling());
    }

    #[actix_web::test]
    async fn requests_in_flight_at_once_end_polling() {
        while !is_polling() {
            drop(begin());
        }
        let first = begin();
        let second = begin();
        assert!(!is_polling());
        drop(first);
        drop(second);
        assert!(!is_polling() && lone() == 0);
    }

    #[actix_web::test]
    async fn requests_of_several_threads_end_polling() {
        while !is_polling() {
            drop(begin());
        }
        std::thread::spawn(|| POLLER.with(received_previous_request)).join().unwrap();
        drop(begin());
        assert!(!is_polling());
    }
}
