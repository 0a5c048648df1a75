//! What one process gives to its clients at most.

use std::time::Duration;

use tokio::sync::{Semaphore, SemaphorePermit};
use tokio::time::timeout;

use crate::error::{Code, Result};

/// Time that clients have, and memory.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Limits {
    /// For the head of a request to arrive.
    pub head: Duration,
    /// For the body of a request to arrive, and for the next bytes of an answer to
    /// be taken.
    pub body: Duration,
    /// Bytes of all bodies that are held at once.
    pub body_memory: usize,
}

/// How long a body waits for memory before the server is too busy for it.
const MEMORY_TIMEOUT: Duration = Duration::from_secs(2);
/// Memory is counted in pieces of this many bytes.
const PIECE: usize = 1024;

/// The memory that bodies share, past what each may have for nothing.
pub(crate) struct BodyMemory {
    pieces: Semaphore,
}

impl BodyMemory {
    /// So many bytes, rounded down.
    pub(crate) fn new(bytes: usize) -> Self {
        Self { pieces: Semaphore::new((bytes / PIECE).min(Semaphore::MAX_PERMITS)) }
    }

    /// Memory of its own for one body.
    pub(crate) const fn share(&self) -> Share<'_> {
        Share { memory: self, held: None, bytes: 0 }
    }
}

/// What one body has of the memory; goes back with this value.
pub(crate) struct Share<'a> {
    memory: &'a BodyMemory,
    held: Option<SemaphorePermit<'a>>,
    bytes: usize,
}

impl Share<'_> {
    /// Sees to it that this share is at least so large.
    ///
    /// # Errors
    /// [`Code::ServerBusy`] where others do not leave enough in time.
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
