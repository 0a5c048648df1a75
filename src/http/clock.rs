//! The time as versions are made of.

use std::sync::atomic::{AtomicI64, Ordering};

use crate::model::Ticks;

/// A clock that never gives one tick twice, so that two writes of this process
/// never share a version by accident.
#[derive(Debug, Default)]
pub struct Clock(AtomicI64);

impl Clock {
    /// The current time, or the tick after the last one given.
    pub fn now(&self) -> Ticks {
        let read = Ticks::from_utc(chrono::Utc::now()).raw();
        let mut last = self.0.load(Ordering::Relaxed);
        loop {
            let next = read.max(last + 1);
            match self.0.compare_exchange_weak(last, next, Ordering::Relaxed, Ordering::Relaxed) {
                Ok(_) => return Ticks::from_raw(next).unwrap_or(Ticks::MAX),
                Err(other) => last = other,
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_tick_is_given_twice() {
        let clock = Clock::default();
        let ticks: Vec<Ticks> = (0..10_000).map(|_| clock.now()).collect();
        assert!(ticks.windows(2).all(|pair| pair[0] < pair[1]));
    }
}
