//! A limit on the entities that all workers read per second.

use std::sync::atomic::AtomicBool;
use std::time::{Duration, Instant};

use parking_lot::Mutex;

use crate::error::pause;

pub(crate) struct RateLimit {
    per_second: u32,
    /// The time when the limit allows the next entity.
    due: Mutex<Instant>,
}

impl RateLimit {
    pub(crate) fn new(per_second: u32) -> Self {
        Self { per_second, due: Mutex::new(Instant::now()) }
    }

    /// Waits until the limit allows this number of entities. A stop ends the wait.
    pub(crate) fn wait(&self, entities: usize, stop: &AtomicBool) {
        let now = Instant::now();
        let mut due = self.due.lock();
        let until = (*due).max(now);
        *due = until + Duration::from_secs_f64(entities as f64 / f64::from(self.per_second));
        drop(due);
        // The reader of the next page notices the stop.
        let _ = pause(until.saturating_duration_since(Instant::now()), stop);
    }
}
