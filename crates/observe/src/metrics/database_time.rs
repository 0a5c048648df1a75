//! Measures the time that a request waits for the database.

use std::cell::{Cell, RefCell};
use std::future::Future;
use std::time::{Duration, Instant};

/// Maximum number of single waits that are recorded for one request.
const MAX_WAITS: usize = 32;

/// The waits of one request for the database.
#[derive(Debug, Default)]
pub struct DatabaseTime {
    total: Cell<Duration>,
    /// Start and duration of each wait; `None` unless recorded.
    waits: Option<RefCell<Vec<(Instant, Duration)>>>,
}

impl DatabaseTime {
    /// Returns the total time that the request waited.
    pub fn total(&self) -> Duration {
        self.total.get()
    }

    /// Returns start and duration of each wait; empty unless they were recorded.
    pub fn into_waits(self) -> Vec<(Instant, Duration)> {
        self.waits.map(RefCell::into_inner).unwrap_or_default()
    }

    fn add(&self, begun: Instant) {
        let took = begun.elapsed();
        self.total.set(self.total.get() + took);
        if let Some(waits) = &self.waits {
            let mut waits = waits.borrow_mut();
            if waits.len() < MAX_WAITS {
                waits.push((begun, took));
            }
        }
    }
}

tokio::task_local! {
    static SPENT: DatabaseTime;
}

/// Runs a request, and measures how long it waits for the database. `in_detail` records each wait.
pub async fn measured<T>(request: impl Future<Output = T>, in_detail: bool) -> (T, DatabaseTime) {
    let spent = DatabaseTime { total: Cell::default(), waits: in_detail.then(RefCell::default) };
    let mut scope = std::pin::pin!(SPENT.scope(spent, request));
    let done = scope.as_mut().await;
    (done, scope.take_value().unwrap_or_default())
}

/// Runs work of the database, and adds its time to the current request, if there is one.
pub async fn in_database<T>(work: impl Future<Output = T>) -> T {
    let begun = Instant::now();
    let done = work.await;
    // Background work, such as purging, belongs to no request and is not measured.
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
