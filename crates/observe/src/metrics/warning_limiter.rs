//! Rate limit for warnings that could flood the log.

use std::sync::atomic::{AtomicU64, Ordering};

use super::process;

/// Minimum milliseconds between two warnings of a kind.
const PAUSE_MS: u64 = 1000;

/// Permits one warning of a kind per second, and counts the suppressed ones.
#[derive(Debug, Default)]
pub struct WarningLimiter {
    /// When the next warning is due, in milliseconds since the start of the process.
    next: AtomicU64,
    left_out: AtomicU64,
}

impl WarningLimiter {
    /// A limiter whose first warning is due at once.
    pub const fn new() -> Self {
        Self { next: AtomicU64::new(0), left_out: AtomicU64::new(0) }
    }

    /// Returns the warning to log, if one is due; otherwise counts it as suppressed.
    pub fn due(&self) -> Option<DueWarning> {
        self.due_at((process::uptime() * 1000.0) as u64)
    }

    fn due_at(&self, now: u64) -> Option<DueWarning> {
        let next = self.next.load(Ordering::Relaxed);
        let is_due = now >= next
            && self.next.compare_exchange(next, now + PAUSE_MS, Ordering::Relaxed, Ordering::Relaxed).is_ok();
        if !is_due {
            self.left_out.fetch_add(1, Ordering::Relaxed);
            return None;
        }
        let left_out = self.left_out.swap(0, Ordering::Relaxed);
        Some(DueWarning { left_out: (left_out > 0).then_some(left_out) })
    }
}

/// A warning that must be logged now.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct DueWarning {
    /// Warnings suppressed since the last logged one, if any, for a field of the log line.
    pub left_out: Option<u64>,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_a_second_is_logged_and_the_others_are_counted() {
        let limiter = WarningLimiter::new();
        let turn = |now| limiter.due_at(now).map(|turn| turn.left_out);
        assert_eq!(turn(5), Some(None));
        assert_eq!([turn(5), turn(900), turn(1004)], [None; 3]);
        assert_eq!(turn(1005), Some(Some(3)));
        assert_eq!(turn(9000), Some(None));
    }

    #[test]
    fn of_threads_that_warn_at_once_one_is_heard() {
        let limiter = WarningLimiter::new();
        let heard: Vec<DueWarning> = std::thread::scope(|scope| {
            let warn = || (0..1000).filter_map(|_| limiter.due_at(10)).collect::<Vec<_>>();
            let threads: Vec<_> = (0..8).map(|_| scope.spawn(warn)).collect();
            threads.into_iter().flat_map(|thread| thread.join().unwrap()).collect()
        });
        assert_eq!(heard.len(), 1);
        // Another thread may have been counted before the one that is heard reads the count.
        let later = limiter.due_at(5000).and_then(|turn| turn.left_out);
        assert_eq!(heard[0].left_out.unwrap_or(0) + later.unwrap_or(0), 7999);
    }
}
