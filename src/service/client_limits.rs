//! Limits of one process towards its clients.

use std::time::Duration;

use tokio::sync::{Semaphore, SemaphorePermit};
use tokio::time::timeout;

use crate::error::{Code, Result};

/// Timeouts of clients, and the memory for bodies.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Limits {
    /// Timeout for the head of a request.
    pub head: Duration,
    /// Timeout for the body of a request, and for the client to take the next bytes of an answer.
    pub body: Duration,
    /// Maximum bytes of all bodies held at once.
    pub body_memory: usize,
}

/// How long a body waits for memory before the request is answered as busy.
const MEMORY_TIMEOUT: Duration = Duration::from_secs(2);
/// Memory is counted in pieces of this many bytes.
const PIECE: usize = 1024;

/// The memory that bodies share, beyond the free allowance of each.
pub(crate) struct BodyMemory {
    pieces: Semaphore,
}

impl BodyMemory {
    /// Returns this many bytes, rounded down.
    pub(crate) fn new(bytes: usize) -> Self {
        Self { pieces: Semaphore::new((bytes / PIECE).min(Semaphore::MAX_PERMITS)) }
    }

    /// Returns memory of its own for one body.
    pub(crate) const fn share(&self) -> Share<'_> {
        Share { memory: self, held: None, bytes: 0 }
    }
}

/// The memory of one body; returned when it is dropped.
pub(crate) struct Share<'a> {
    memory: &'a BodyMemory,
    held: Option<SemaphorePermit<'a>>,
    bytes: usize,
}

impl Share<'_> {
    /// Grows this share to at least this size.
    ///
    /// # Errors
    /// [`Code::ServerBusy`] if not enough becomes free in time.
    pub(crate) async fn grow_to(&mut self, bytes: usize) -> Result<()> {
        let more = bytes.saturating_sub(self.bytes).div_ceil(PIECE);
        let Ok(pieces @ 1..) = u32::try_from(more) else { return Ok(()) };
        let waiting = timeout(MEMORY_TIMEOUT, self.memory.pieces.acquire_many(pieces)).await;
        let Ok(Ok(permit)) = waiting else { return Err(Code::ServerBusy.into()) };
        match &mut self.held {
            Some(held) => held.merge(permit),
            None => self.held = Some(permit),
        }
        self.bytes = bytes;
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn a_share_waits_then_gives_up_and_gives_back() {
        let memory = BodyMemory::new(10 * PIECE);
        let (mut one, mut other) = (memory.share(), memory.share());
        one.grow_to(8 * PIECE).await.unwrap();
        one.grow_to(PIECE).await.unwrap();
        assert_eq!(other.grow_to(3 * PIECE).await, Err(Code::ServerBusy.into()));
        other.grow_to(2 * PIECE).await.unwrap();
        drop(one);
        other.grow_to(10 * PIECE).await.unwrap();
        drop(other);
        assert_eq!(memory.pieces.available_permits(), 10);
    }
}
