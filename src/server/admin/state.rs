//! Settings and state of the admin listener.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use clap::ValueEnum;
use tokio::sync::{Semaphore, SemaphorePermit};
use tokio::time::timeout;

use super::connections::OpenConnections;
use super::guard::Guard;
use super::history::History;
use super::reply::Refusal;
use crate::error::{Code, Error};
use crate::server::http::Proxies;
use crate::service::Service;

/// What the console may be used for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum ConsoleMode {
    /// Serve no console
    Off,
    /// Show tables and settings, but let browsers change nothing
    ReadOnly,
    /// Show and change tables and settings
    On,
}

/// Maximum bytes of a body, except of requests to the Table service.
pub(crate) const MAX_BODY: usize = 256 * 1024;

/// Maximum number of concurrent requests to table data. The thread that answers them also answers the probes.
const MAX_REQUESTS: usize = 16;
/// Timeout for such a request to get a permit.
const PERMIT_TIMEOUT: Duration = Duration::from_secs(10);

/// The settings of the admin listener.
#[derive(Debug, Clone)]
pub(crate) struct AdminSettings {
    pub guard: Guard,
    /// Whether the routes for test suites exist, which reset and restore all data.
    pub test_mode: bool,
    pub console: ConsoleMode,
    /// Scheme, host and port by which this machine reaches the Tables port.
    pub tables_endpoint: String,
    /// Proxies whose reports about operators' addresses are trusted.
    pub proxies: Proxies,
}

/// The state of the admin listener.
pub(crate) struct Admin {
    pub service: Arc<Service>,
    pub settings: AdminSettings,
    /// Limits the number of concurrent requests to the service.
    permits: Semaphore,
    pub history: History,
    pub connections: OpenConnections,
    stopping: AtomicBool,
}

impl Admin {
    /// Returns the state of a running server.
    pub(crate) fn new(service: Arc<Service>, settings: AdminSettings) -> Self {
        let permits = Semaphore::new(MAX_REQUESTS);
        let (history, connections) = (History::new(), OpenConnections::default());
        Self { service, settings, permits, history, connections, stopping: AtomicBool::new(false) }
    }

    /// Waits for permission to access table data. The request holds the permit until it ends.
    ///
    /// # Errors
    /// 503 if too many requests are waiting.
    pub(crate) async fn permit(&self) -> Result<SemaphorePermit<'_>, Refusal> {
        match timeout(PERMIT_TIMEOUT, self.permits.acquire()).await {
            Ok(Ok(permit)) => Ok(permit),
            _ => Err(Error::from(Code::ServerBusy).into()),
        }
    }

    /// Makes the readiness probe fail from now on, because the server is shutting down.
    pub(crate) fn stop(&self) {
        self.stopping.store(true, Ordering::Relaxed);
    }

    /// Returns whether the server is shutting down.
    pub(crate) fn is_stopping(&self) -> bool {
        self.stopping.load(Ordering::Relaxed)
    }
}
