//! Turns for writes whose row is locked by somebody else.
//!
//! Of the writes of one row, one at a time uses a connection; the others wait
//! without one. Those that wait long for a lock are few in all, so that the rest of
//! the pool stays free.

use std::hash::{DefaultHasher, Hash, Hasher as _};
use std::time::Duration;

use tokio::sync::{Semaphore, SemaphorePermit};
use tokio::time::timeout;

use crate::store::Fault;

/// Queues for rows. Rows whose hashes meet share one.
const QUEUES: usize = 256;
/// The part of a pool that may wait for locks.
const PART: usize = 4;

/// The turns of one store.
pub struct Turns {
    rows: Vec<Semaphore>,
    waits: Semaphore,
    limit: Duration,
}

impl Turns {
    /// For a pool of so many connections; nobody waits longer than `limit` for a turn.
    pub fn new(connections: usize, limit: Duration) -> Self {
        let rows = (0..QUEUES).map(|_| Semaphore::new(1)).collect();
        Self { rows, waits: Semaphore::new((connections / PART).max(1)), limit }
    }

    /// Whether a write of the row has the turn.
    pub fn is_taken(&self, row: impl Hash) -> bool {
        self.queue(row).is_some_and(|queue| queue.available_permits() == 0)
    }

    /// Waits for the turn of the row.
    ///
    /// # Errors
    /// [`Fault::Busy`] if that takes too long.
    pub async fn of_row(&self, row: impl Hash) -> Result<SemaphorePermit<'_>, Fault> {
        self.turn(self.queue(row).ok_or(Fault::Other)?).await
    }

    /// Waits for the right to wait for a lock on a connection.
    ///
    /// # Errors
    /// [`Fault::Busy`] if that takes too long.
    pub async fn to_wait(&self) -> Result<SemaphorePermit<'_>, Fault> {
        self.turn(&self.waits).await
    }

    async fn turn<'t>(&self, queue: &'t Semaphore) -> Result<SemaphorePermit<'t>, Fault> {
        timeout(self.limit, queue.acquire()).await.map_err(|_| Fault::Busy)?.map_err(|_| Fault::Unavailable)
    }

    fn queue(&self, row: impl Hash) -> Option<&Semaphore> {
        let mut hasher = DefaultHasher::new();
        row.hash(&mut hasher);
        // The remainder is less than the number of queues.
        self.rows.get((hasher.finish() % QUEUES as u64) as usize)
    }
}
