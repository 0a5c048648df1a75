//! How long connections may do nothing.

use std::time::Duration;

/// Time that a connection may stay idle. Longer than the idle time of usual
/// load balancers, so that they are the ones to close.
pub(crate) const KEEP_ALIVE: Duration = Duration::from_secs(75);
/// Time that a client may take to close its side.
pub(crate) const DISCONNECT_TIMEOUT: Duration = Duration::from_secs(1);
