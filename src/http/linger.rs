//! A thread that works for a lone client stays awake while that pays.
//!
//! A client that asks one thing after another keeps nobody busy: for each request
//! the thread would sleep twice, until the database has answered and until the
//! client asks again, and to be woken takes longer than what it is woken for. So it
//! polls instead, while no two requests meet, as others had use for the processor,
//! and while something comes within a moment. Once nothing does, it sleeps as ever.

use std::cell::Cell;
use std::ptr;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use actix_web::rt::spawn;

/// How long to stay awake for what may come: longer than a point read and a client
/// on the same machine take, and shorter than a disk.
const MOMENT: Duration = Duration::from_micros(120);
/// Requests in a row that met no other before a thread stays awake.
const ALONE: u32 = 64;

/// The thread that was asked last.
static LAST: AtomicUsize = AtomicUsize::new(0);

thread_local! {
    static HERE: Here = const {
        Here { under_way: Cell::new(0), alone: Cell::new(0), awake: Cell::new(None) }
    };
}

/// What a thread knows of its requests.
struct Here {
    under_way: Cell<u32>,
    /// Requests since one met another, or since nothing came for a moment.
    alone: Cell<u32>,
    /// Until when the thread stays awake, if it does.
    awake: Cell<Option<Instant>>,
}

/// A request, from its head to its answer.
pub struct Presence(());

/// Notes that a request has come.
pub fn arrived() -> Presence {
    HERE.with(|here| {
        here.under_way.set(here.under_way.get() + 1);
        if here.under_way.get() > 1 || !was_asked_last(here) {
            here.alone.set(0);
        } else {
            here.alone.set((here.alone.get() + 1).min(ALONE));
        }
        here.stay_awake();
    });
    Presence(())
}

impl Drop for Presence {
    fn drop(&mut self) {
        HERE.with(|here| {
            here.under_way.set(here.under_way.get().saturating_sub(1));
            if here.awake.get().is_some() {
                here.awake.set(Some(Instant::now() + MOMENT));
            }
        });
    }
}

/// Whether the request before this one was this thread's, too.
fn was_asked_last(here: &Here) -> bool {
    let id = ptr::from_ref(here).addr();
    let is_last = LAST.load(Ordering::Relaxed) == id;
    if !is_last {
        LAST.store(id, Ordering::Relaxed);
    }
    is_last
}

impl Here {
    /// Stays awake for a moment from now on, if requests meet no others.
    fn stay_awake(&self) {
        if self.alone.get() < ALONE {
            self.awake.set(None);
        } else if self.awake.replace(Some(Instant::now() + MOMENT)).is_none() {
            spawn(poll());
        }
    }

    /// Whether to go on. Where nothing came in time, it did not pay.
    fn is_awake(&self, now: Instant) -> bool {
        let Some(until) = self.awake.get() else { return false };
        if now < until {
            return true;
        }
        self.awake.set(None);
        self.alone.set(0);
        false
    }
}

async fn poll() {
    while HERE.with(|here| here.is_awake(Instant::now())) {
        tokio::task::yield_now().await;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn alone() -> u32 {
        HERE.with(|here| here.alone.get())
    }

    fn is_awake() -> bool {
        HERE.with(|here| here.awake.get().is_some())
    }

    #[actix_web::test]
    async fn a_thread_stays_awake_for_a_lone_client_until_nothing_comes() {
        // Other tests have threads of their own, and may be asked between two of these.
        while !is_awake() {
            drop(arrived());
        }
        assert_eq!(alone(), ALONE);
        while is_awake() {
            tokio::task::yield_now().await;
        }
        assert_eq!(alone(), 0, "it did not pay");
        drop(arrived());
        assert!(!is_awake());
    }

    #[actix_web::test]
    async fn requests_that_meet_let_the_thread_sleep() {
        while !is_awake() {
            drop(arrived());
        }
        let first = arrived();
        let second = arrived();
        assert!(!is_awake());
        drop(first);
        drop(second);
        assert!(!is_awake() && alone() == 0);
    }

    #[actix_web::test]
    async fn requests_of_several_threads_meet() {
        while !is_awake() {
            drop(arrived());
        }
        std::thread::spawn(|| HERE.with(was_asked_last)).join().unwrap();
        drop(arrived());
        assert!(!is_awake());
    }
}
