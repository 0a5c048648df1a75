//! Waits. A test waits for an event, with a deadline; it waits for time only where that is what it is about: a phase
//! in which clients work, or a peer that is slow.

use std::time::{Duration, Instant};

/// How long an event may take, also on a machine with a load average of 6.
pub const PATIENCE: Duration = Duration::from_secs(60);
/// Time between two looks.
const PAUSE: Duration = Duration::from_millis(20);

/// Waits until it is so.
#[track_caller]
pub fn until(what: &str, mut is_so: impl FnMut() -> bool) {
    until_some(what, || is_so().then_some(()));
}

/// Waits until there is something, and returns it.
#[track_caller]
pub fn until_some<T>(what: &str, find: impl FnMut() -> Option<T>) -> T {
    until_some_within(PATIENCE, what, find)
}

/// Waits until it is so, for an event that comes only after the server has waited for this time itself.
#[track_caller]
pub fn until_after(server_waits: Duration, what: &str, mut is_so: impl FnMut() -> bool) {
    until_some_within(server_waits + PATIENCE, what, || is_so().then_some(()));
}

#[track_caller]
fn until_some_within<T>(limit: Duration, what: &str, mut find: impl FnMut() -> Option<T>) -> T {
    let deadline = Instant::now() + limit;
    loop {
        if let Some(found) = find() {
            return found;
        }
        assert!(Instant::now() < deadline, "{what}: nothing within {limit:?}");
        std::thread::sleep(PAUSE);
    }
}

/// The same, where other tasks work meanwhile.
pub async fn until_async(what: &str, mut is_so: impl AsyncFnMut() -> bool) {
    let deadline = Instant::now() + PATIENCE;
    while !is_so().await {
        assert!(Instant::now() < deadline, "{what}: nothing within {PATIENCE:?}");
        tokio::time::sleep(PAUSE).await;
    }
}

/// Lets clients work for a while. What they do decides whether the test passes, and not when.
pub fn work_for(duration: Duration) {
    std::thread::sleep(duration);
}

/// The pause of a client or a peer that takes its time.
pub fn pace(duration: Duration) {
    std::thread::sleep(duration);
}

/// The same, where other tasks work meanwhile.
pub async fn pace_async(duration: Duration) {
    tokio::time::sleep(duration).await;
}
