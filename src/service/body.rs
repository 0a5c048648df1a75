//! The body of a request, independent of the transport.

use std::future::{Future, ready};
use std::time::Duration;

use bytes::Bytes;

use super::client_limits::{BodyMemory, Share};
use crate::error::{Code, Result};
use crate::protocol::request::Head;

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
        head: &Head<'_>,
        memory: &'m BodyMemory,
        within: Duration,
    ) -> impl Future<Output = Result<Body<'m>>>;
}

/// A body that the process itself created.
impl ReceiveBody for Bytes {
    fn receive<'m>(
        &mut self,
        _: &Head<'_>,
        memory: &'m BodyMemory,
        _: Duration,
    ) -> impl Future<Output = Result<Body<'m>>> {
        ready(match self.len() {
            ..=MAX_BODY => Ok(Body::new(std::mem::take(self), memory.share())),
            _ => Err(Code::RequestBodyTooLarge.into()),
        })
    }
}
