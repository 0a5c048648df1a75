//! Warnings that would drown the log if each was written.

use std::sync::atomic::{AtomicU64, Ordering};

use super::process;

/// Milliseconds between two warnings of a kind.
const PAUSE: u64 = 1000;

/// Lets one warning of a kind a second be logged, and counts the others.
#[derive(Debug)]
pub(crate) struct WarningLimiter {
    /// Milliseconds since the start of the process.
    next: AtomicU64,
    left_out: AtomicU64,
}

impl WarningLimiter {
    /// Nothing logged yet.
    pub(crate) const fn new() -> Self {
        Self { next: AtomicU64::new(0), left_out: AtomicU64::new(0) }
    }

    /// The turn of a warning, if it is to be logged now.
    pub(crate) fn turn(&self) -> Option<DueWarning> {
        self.turn_at((process::uptime() * 1000.0) as u64)
    }

    fn turn_at(&self, now: u64) -> Option<DueWarning> {
        let next = self.next.load(Ordering::Relaxed);
        let is_due = now >= next
            && self.next.compare_exchange(next, now + PAUSE, Ordering::Relaxed, Ordering::Relaxed).is_ok();
        if !is_due {
            self.left_out.fetch_add(1, Ordering::Relaxed);
            return None;
        }
        let left_out = self.left_out.swap(0, Ordering::Relaxed);
        Some(DueWarning { left_out: (left_out > 0).then_some(left_out) })
    }
}

impl Default for WarningLimiter {
    fn default() -> Self {
        Self::new()
    }
}

/// A warning that is to be logged.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct DueWarning {
    /// Those like it that were not logged since the one before, if any: a field
    /// of the line.
    pub left_out: Option<u64>,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_a_second_is_logged_and_the_others_are_counted() {
        let seldom = WarningLimiter::new();
        let turn = |now| seldom.turn_at(now).map(|turn| turn.left_out);
        assert_eq!(turn(5), Some(None));
        assert_eq!([turn(5), turn(900), turn(1004)], [None; 3]);
        assert_eq!(turn(1005), Some(Some(3)));
        assert_eq!(turn(9000), Some(None));
    }

    #[test]
    fn of_threads_that_warn_at_once_one_is_heard() {
        let seldom = WarningLimiter::new();
        let heard: usize = std::thread::scope(|scope| {
            let warn = || (0..1000).filter(|_| seldom.turn_at(10).is_some()).count();
            let threads: Vec<_> = (0..8).map(|_| scope.spawn(warn)).collect();
            threads.into_iter().map(|thread| thread.join().unwrap()).sum()
        });
        assert_eq!(heard, 1);
        assert_eq!(seldom.turn_at(5000).and_then(|turn| turn.left_out), Some(7999));
    }
}
