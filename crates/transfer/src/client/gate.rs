//! Adaptive concurrency: the limit on requests in flight.

use std::sync::{Condvar, Mutex, PoisonError};

/// Admits requests up to a limit. It is halved when the server throttles, and grows by one after as
/// many successes as the limit itself.
#[derive(Debug)]
pub(super) struct Gate {
    state: Mutex<GateState>,
    freed: Condvar,
    most: usize,
}

#[derive(Debug)]
struct GateState {
    limit: usize,
    in_flight: usize,
    successes: usize,
}

/// Permission for one request in flight, until it is dropped.
pub(super) struct FlightPermit<'a>(&'a Gate);

impl Gate {
    /// Returns a gate whose initial and maximum limit is `most`.
    pub(super) fn new(most: usize) -> Self {
        let state = GateState { limit: most.max(1), in_flight: 0, successes: 0 };
        Self { state: Mutex::new(state), freed: Condvar::new(), most: most.max(1) }
    }

    /// Returns the maximum limit.
    pub(super) const fn most(&self) -> usize {
        self.most
    }

    /// Waits for a permit. Each is held for one request, whose timeout limits the wait.
    pub(super) fn enter(&self) -> FlightPermit<'_> {
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        while state.in_flight >= state.limit {
            state = self.freed.wait(state).unwrap_or_else(PoisonError::into_inner);
        }
        state.in_flight += 1;
        FlightPermit(self)
    }

    /// Counts a success.
    pub(super) fn succeeded(&self) {
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        state.successes += 1;
        if state.successes >= state.limit && state.limit < self.most {
            state.limit += 1;
            state.successes = 0;
            self.freed.notify_one();
        }
    }

    /// Halves the limit.
    pub(super) fn throttled(&self) {
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        state.limit = (state.limit / 2).max(1);
        state.successes = 0;
    }
}

impl Drop for FlightPermit<'_> {
    fn drop(&mut self) {
        let mut state = self.0.state.lock().unwrap_or_else(PoisonError::into_inner);
        state.in_flight -= 1;
        self.0.freed.notify_one();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_limit_halves_when_throttled_and_grows_back() {
        let gate = Gate::new(8);
        let limit = || gate.state.lock().unwrap().limit;
        gate.throttled();
        gate.throttled();
        assert_eq!(limit(), 2);
        gate.succeeded();
        assert_eq!(limit(), 2);
        gate.succeeded();
        assert_eq!(limit(), 3);
        (0..100).for_each(|_| gate.succeeded());
        assert_eq!(limit(), 8);
        (0..10).for_each(|_| gate.throttled());
        assert_eq!(limit(), 1);
        drop(gate.enter());
        assert_eq!(gate.state.lock().unwrap().in_flight, 0);
    }
}
