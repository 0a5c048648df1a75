//! Queues for writes to rows that other transactions have locked.
//!
//! One write per row uses a connection. The others queue without a connection. Only a few connections may wait long
//! for locks, and not all connections may write, so reads continue while commits hang.

use std::collections::HashMap;
use std::hash::{BuildHasher as _, Hash, RandomState};
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use tokio::sync::{OwnedSemaphorePermit, Semaphore, SemaphorePermit};
use tokio::time::timeout;

use crate::Fault;

/// One in this many connections may wait long for locks. As many connections are closed to writes.
const PART: usize = 4;

pub(crate) struct RowLocks {
    /// A queue for each row with an active or waiting write, by the row's hash.
    rows: Mutex<HashMap<u64, Arc<Semaphore>>>,
    hasher: RandomState,
    waits: Semaphore,
    writes: Semaphore,
    limit: Duration,
}

impl RowLocks {
    /// Creates the queues for a pool with this many connections. `limit` is the timeout of waiting for a turn.
    pub(crate) fn new(connections: usize, limit: Duration) -> Self {
        let waits = Semaphore::new((connections / PART).max(1));
        let writes = Semaphore::new(connections - connections / PART);
        Self { rows: Mutex::default(), hasher: RandomState::new(), waits, writes, limit }
    }

    pub(crate) fn is_taken(&self, row: impl Hash) -> bool {
        let rows = self.rows.lock();
        !rows.is_empty() && rows.contains_key(&self.hasher.hash_one(row))
    }

    /// Waits for the turn of the row.
    ///
    /// # Errors
    /// [`Fault::Busy`] after the timeout.
    pub(crate) async fn of_row(&self, row: impl Hash) -> Result<RowTurn<'_>, Fault> {
        let hash = self.hasher.hash_one(row);
        let queue = Arc::clone(self.rows.lock().entry(hash).or_insert_with(|| Arc::new(Semaphore::new(1))));
        let mut turn = RowTurn { queues: self, hash, permit: None, queue };
        let waiting = timeout(self.limit, Arc::clone(&turn.queue).acquire_owned()).await;
        turn.permit = Some(waiting.map_err(|_| Fault::Busy)?.map_err(|_| Fault::Unavailable)?);
        Ok(turn)
    }

    /// Waits for a permit to wait for a lock on a connection.
    ///
    /// # Errors
    /// [`Fault::Busy`] after the timeout.
    pub(crate) async fn to_wait(&self) -> Result<SemaphorePermit<'_>, Fault> {
        self.permit(&self.waits).await
    }

    /// Waits for a permit to write on a connection of the pool.
    ///
    /// # Errors
    /// [`Fault::Busy`] after the timeout.
    pub(crate) async fn to_write(&self) -> Result<SemaphorePermit<'_>, Fault> {
        self.permit(&self.writes).await
    }

    async fn permit<'s>(&self, permits: &'s Semaphore) -> Result<SemaphorePermit<'s>, Fault> {
        if let Ok(permit) = permits.try_acquire() {
            return Ok(permit);
        }
        let waiting = timeout(self.limit, permits.acquire()).await;
        waiting.map_err(|_| Fault::Busy)?.map_err(|_| Fault::Unavailable)
    }
}

/// The turn of a row, or a place in its queue.
pub(crate) struct RowTurn<'t> {
    queues: &'t RowLocks,
    hash: u64,
    permit: Option<OwnedSemaphorePermit>,
    queue: Arc<Semaphore>,
}

impl Drop for RowTurn<'_> {
    fn drop(&mut self) {
        self.permit = None;
        let mut rows = self.queues.rows.lock();
        // Only this turn and the map hold references, so no other write waits.
        if Arc::strong_count(&self.queue) == 2 {
            rows.remove(&self.hash);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn rows_have_queues_of_their_own_while_somebody_needs_them() {
        let queues = RowLocks::new(8, Duration::from_millis(20));
        assert!(!queues.is_taken(1));
        let first = queues.of_row(1).await.unwrap();
        let others: Vec<_> = (2..1000).collect();
        assert!(queues.is_taken(1) && !others.iter().any(|row| queues.is_taken(row)));
        assert_eq!(queues.of_row(1).await.err(), Some(Fault::Busy));
        queues.of_row(2).await.unwrap();
        drop(first);
        assert!(queues.rows.lock().is_empty());
    }
}
