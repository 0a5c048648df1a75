//! Timeouts of idle connections.

use std::time::Duration;

/// How long a connection may be idle. The time is longer than in common load balancers, so that they close
/// first.
pub(crate) const KEEP_ALIVE: Duration = Duration::from_secs(75);
/// How long a client may take to close its side.
pub(crate) const DISCONNECT_TIMEOUT: Duration = Duration::from_secs(1);
