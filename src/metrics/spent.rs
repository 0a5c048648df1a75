//! The time that a request waits for the database.

use std::cell::Cell;
use std::future::Future;
use std::time::{Duration, Instant};

tokio::task_local! {
    static SPENT: Cell<Duration>;
}

/// Runs a request, and says how long it waited for the database in all.
pub async fn measured<T>(request: impl Future<Output = T>) -> (T, Duration) {
    SPENT
        .scope(Cell::default(), async {
            let done = request.await;
            (done, SPENT.with(Cell::get))
        })
        .await
}

/// Waits for the database on behalf of the request that this runs for, if any.
pub async fn in_database<T>(work: impl Future<Output = T>) -> T {
    let begun = Instant::now();
    let done = work.await;
    // What is nobody's request, such as purging, is nobody's time.
    let _ = SPENT.try_with(|spent| spent.set(spent.get() + begun.elapsed()));
    done
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn only_waits_for_the_database_are_counted() {
        let pause = Duration::from_millis(20);
        let ((), spent) = measured(async {
            tokio::time::sleep(pause).await;
            in_database(tokio::time::sleep(pause)).await;
            in_database(tokio::time::sleep(pause)).await;
        })
        .await;
        assert!(spent >= 2 * pause && spent < 3 * pause + pause, "{spent:?}");
        in_database(async {}).await;
    }
}
