//! Work that several threads share, and its progress.

pub(super) mod progress;
pub(super) mod rate_limit;
#[cfg(test)]
pub(super) mod sorted_source;
pub(super) mod split;
pub(super) mod work_queue;

use std::sync::atomic::{AtomicBool, Ordering};

use parking_lot::Mutex;

use crate::error::{TransferError, TransferResult, failed};

/// Calls `work` with each of `items`, on several threads, until the first failure. Returns the results in the
/// order of the items.
pub fn in_parallel<I: Send, O: Send>(
    threads: usize,
    items: Vec<I>,
    work: impl Fn(I) -> TransferResult<O> + Sync,
) -> TransferResult<Vec<O>> {
    let threads = threads.min(items.len());
    if threads <= 1 {
        return items.into_iter().map(work).collect();
    }
    let left = Mutex::new(items.into_iter().enumerate());
    let next = || left.lock().next();
    let has_failed = AtomicBool::new(false);
    let worker = || {
        let mut done = Vec::new();
        while !has_failed.load(Ordering::Relaxed)
            && let Some((number, item)) = next()
        {
            let outcome = work(item);
            has_failed.fetch_or(outcome.is_err(), Ordering::Relaxed);
            done.push((number, outcome));
        }
        done
    };
    let mut all = Vec::new();
    std::thread::scope(|scope| {
        let workers: Vec<_> = (0..threads).map(|_| scope.spawn(worker)).collect();
        for handle in workers {
            let panicked = |_| failed!("a thread panicked; this is a bug");
            all.extend(handle.join().map_err(panicked)?);
        }
        Ok::<(), TransferError>(())
    })?;
    all.sort_unstable_by_key(|(number, _)| *number);
    all.into_iter().map(|(_, outcome)| outcome).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::Barrier;

    #[test]
    fn several_are_in_work_and_all_are_returned_in_order() {
        let together = Barrier::new(4);
        let work = |number: i32| {
            together.wait();
            Ok(number * 2)
        };
        assert_eq!(in_parallel(4, (0..40).collect(), work).unwrap(), (0..80).step_by(2).collect::<Vec<_>>());
    }

    #[test]
    fn nothing_is_begun_after_a_failure() {
        let begun = Mutex::new(Vec::new());
        let work = |number: i32| {
            begun.lock().push(number);
            if number == 0 { Err(TransferError::Interrupted) } else { Ok(()) }
        };
        assert!(matches!(in_parallel(1, (0..9).collect(), work), Err(TransferError::Interrupted)));
        assert_eq!(*begun.lock(), [0]);
        assert!(matches!(in_parallel(2, (0..9).collect(), work), Err(TransferError::Interrupted)));
    }
}
