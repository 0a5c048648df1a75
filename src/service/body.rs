//! The bodies of requests, independent of the transport, and the limits for receiving them.

use std::future::{Future, ready};
use std::time::Duration;

use bytes::Bytes;
use tokio::sync::{Semaphore, SemaphorePermit};
use tokio::time::timeout;

use crate::error::{Code, Result};

/// Maximum bytes of a body (protocol §5.7, §8.1).
pub(crate) const MAX_BODY: usize = 4 * 1024 * 1024;

/// A body, with its share of the memory for bodies.
pub(crate) struct Body<'a> {
    pub bytes: Bytes,
    _share: Share<'a>,
}

impl<'a> Body<'a> {
    /// Returns a body that holds this share of the memory until it is dropped.
    pub(crate) const fn new(bytes: Bytes, share: Share<'a>) -> Self {
        Self { bytes, _share: share }
    }
}

/// A body that has not been received yet, because its sender may not have permission to send one.
pub(crate) trait ReceiveBody {
    /// Receives the whole body within a timeout.
    ///
    /// # Errors
    /// [`Code::RequestBodyTooLarge`] beyond [`MAX_BODY`], [`Code::RequestTimedOut`],
    /// [`Code::ServerBusy`] if no memory is free, and [`Code::InvalidInput`] for invalid framing.
    fn receive<'m>(
        &mut self,
        memory: &'m BodyMemory,
        within: Duration,
    ) -> impl Future<Output = Result<Body<'m>>>;
}

/// A body that the process itself created.
impl ReceiveBody for Bytes {
    fn receive<'m>(&mut self, memory: &'m BodyMemory, _: Duration) -> impl Future<Output = Result<Body<'m>>> {
        ready(match self.len() {
            ..=MAX_BODY => Ok(Body::new(std::mem::take(self), memory.share())),
            _ => Err(Code::RequestBodyTooLarge.into()),
        })
    }
}

/// Timeouts for clients.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Limits {
    /// Timeout for the head of a request.
    pub head: Duration,
    /// Timeout for receiving the body of a request, and for the client to read the next bytes of a response.
    pub body: Duration,
}

/// Timeout for a body to get memory, after which the server responds that it is busy.
const MEMORY_TIMEOUT: Duration = Duration::from_secs(2);
/// Unit in which memory is counted, in bytes.
const PERMIT_BYTES: usize = 1024;

/// The memory that bodies share, beyond the free allowance of each body.
pub(crate) struct BodyMemory {
    permits: Semaphore,
}

impl BodyMemory {
    /// Returns memory of this size in bytes, rounded down to KiB.
    pub(crate) fn new(bytes: usize) -> Self {
        Self { permits: Semaphore::new((bytes / PERMIT_BYTES).min(Semaphore::MAX_PERMITS)) }
    }

    /// Returns an empty share for one body.
    pub(crate) const fn share(&self) -> Share<'_> {
        Share { memory: self, held: None, bytes: 0 }
    }
}

/// The memory of one body, which is released when the share is dropped.
pub(crate) struct Share<'a> {
    memory: &'a BodyMemory,
    held: Option<SemaphorePermit<'a>>,
    bytes: usize,
}

impl Share<'_> {
    /// Grows this share to at least this size in bytes.
    ///
    /// # Errors
    /// [`Code::ServerBusy`] if not enough memory becomes free in time.
    pub(crate) async fn grow_to(&mut self, bytes: usize) -> Result<()> {
        let missing = bytes.saturating_sub(self.bytes).div_ceil(PERMIT_BYTES);
        let permits = u32::try_from(missing).map_err(|_| Code::ServerBusy)?;
        if permits == 0 {
            return Ok(());
        }
        let waiting = timeout(MEMORY_TIMEOUT, self.memory.permits.acquire_many(permits)).await;
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
    async fn a_share_waits_for_memory_and_releases_it() {
        let memory = BodyMemory::new(10 * PERMIT_BYTES);
        let (mut one, mut other) = (memory.share(), memory.share());
        one.grow_to(8 * PERMIT_BYTES).await.unwrap();
        one.grow_to(PERMIT_BYTES).await.unwrap();
        assert_eq!(other.grow_to(3 * PERMIT_BYTES).await, Err(Code::ServerBusy.into()));
        other.grow_to(2 * PERMIT_BYTES).await.unwrap();
        drop(one);
        other.grow_to(10 * PERMIT_BYTES).await.unwrap();
        drop(other);
        assert_eq!(memory.permits.available_permits(), 10);
    }
}
