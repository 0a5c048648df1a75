//! The time that a request waits for the database.

use std::cell::{Cell, RefCell};
use std::future::Future;
use std::time::{Duration, Instant};

/// Waits of one request that are kept one by one, at most.
const WAITS: usize = 32;

/// The waits of one request for the database.
#[derive(Debug, Default)]
pub(crate) struct DatabaseTime {
    total: Cell<Duration>,
    /// When each began and how long it took, where somebody wants to know.
    waits: Option<RefCell<Vec<(Instant, Duration)>>>,
}

impl DatabaseTime {
    /// How long the request waited in all.
    pub(crate) fn total(&self) -> Duration {
        self.total.get()
    }

    /// When each wait began and how long it took; nothing unless that was asked.
    pub(crate) fn into_waits(self) -> Vec<(Instant, Duration)> {
        self.waits.map(RefCell::into_inner).unwrap_or_default()
    }

    fn add(&self, begun: Instant) {
        let took = begun.elapsed();
        self.total.set(self.total.get() + took);
        if let Some(waits) = &self.waits {
            let mut waits = waits.borrow_mut();
            if waits.len() < WAITS {
                waits.push((begun, took));
            }
        }
    }
}

tokio::task_local! {
    static SPENT: DatabaseTime;
}

/// Runs a request, and says how it waited for the database: `in_detail` wait by
/// wait.
pub(crate) async fn measured<T>(request: impl Future<Output = T>, in_detail: bool) -> (T, DatabaseTime) {
    let spent = DatabaseTime { total: Cell::default(), waits: in_detail.then(RefCell::default) };
    let mut scope = std::pin::pin!(SPENT.scope(spent, request));
    let done = scope.as_mut().await;
    (done, scope.take_value().unwrap_or_default())
}

/// Waits for the database on behalf of the request that this runs for, if any.
pub(crate) async fn in_database<T>(work: impl Future<Output = T>) -> T {
    let begun = Instant::now();
    let done = work.await;
    // What is nobody's request, such as purging, is nobody's time.
    let _ = SPENT.try_with(|spent| spent.add(begun));
    done
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn only_waits_for_the_database_are_counted() {
        let pause = Duration::from_millis(20);
        for in_detail in [false, true] {
            let request = async {
                tokio::time::sleep(pause).await;
                in_database(tokio::time::sleep(pause)).await;
                in_database(tokio::time::sleep(pause)).await;
                7
            };
            let (done, spent) = measured(request, in_detail).await;
            assert_eq!(done, 7);
            assert!(spent.total() >= 2 * pause, "{spent:?}");
            let total = spent.total();
            let waits = spent.into_waits();
            assert_eq!(waits.len(), if in_detail { 2 } else { 0 });
            if in_detail {
                assert_eq!(waits.iter().map(|(_, took)| *took).sum::<Duration>(), total);
            }
        }
        in_database(async {}).await;
    }
}
