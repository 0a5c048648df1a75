//! Settings, state and open connections of the admin listener.

use std::collections::VecDeque;
use std::net::{Shutdown, TcpStream};
use std::os::fd::AsFd as _;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Weak};
use std::time::Duration;

use actix_web::rt::net::TcpStream as Accepted;
use clap::ValueEnum;
use parking_lot::Mutex;
use tokio::sync::{Semaphore, SemaphorePermit};
use tokio::time::{sleep, timeout};

use super::guard::Guard;
use super::history::History;
use super::reply::Refusal;
use crate::error::{Code, Error};
use crate::server::http::{Proxies, RequestState};
use crate::service::Service;

/// The mode of the console.
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

/// Maximum number of open connections. Further connections wait.
pub(super) const MAX_CONNECTIONS: usize = 256;
/// From this number of connections on, a new connection closes an idle one.
const MANY: usize = 128;
/// From this number of connections on, a new connection closes a busy one if none is idle.
const NEARLY_ALL: usize = 240;
/// Pause between two checks for open connections.
const LOOK: Duration = Duration::from_millis(10);

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
    pub(crate) fn new(service: Arc<Service>, settings: AdminSettings) -> Self {
        let permits = Semaphore::new(MAX_REQUESTS);
        let (history, connections) = (History::new(), OpenConnections::default());
        Self { service, settings, permits, history, connections, stopping: AtomicBool::new(false) }
    }

    /// Waits for permission to access table data. The request holds the permit until it ends.
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

    pub(crate) fn is_stopping(&self) -> bool {
        self.stopping.load(Ordering::Relaxed)
    }
}

/// The open connections, the oldest first. Beyond [`MANY`], a new connection closes the oldest idle connection;
/// otherwise clients that keep connections open could lock out the probes. A connection is also idle while its
/// client sends a request or does not read a response. If none is idle and the limit of the listener is near, the
/// oldest connection is closed.
#[derive(Default)]
pub(crate) struct OpenConnections(Mutex<VecDeque<Weak<OpenConnection>>>);

/// A connection. The listener drops this when the connection ends.
pub(crate) struct OpenConnection {
    /// A duplicate of the connection's descriptor, used to shut it down.
    connection: TcpStream,
    state: RequestState,
}

impl OpenConnections {
    /// Returns once all connections have ended.
    pub(crate) async fn closed(&self) {
        while self.are_open() {
            sleep(LOOK).await;
        }
    }

    fn are_open(&self) -> bool {
        let connections = self.0.lock();
        connections.iter().any(|connection| connection.strong_count() > 0)
    }

    /// Adds a connection, and closes a different one if there are many.
    pub(crate) fn enter(&self, connection: &Accepted, state: &RequestState) -> Option<Arc<OpenConnection>> {
        let connection = connection.as_fd().try_clone_to_owned().ok()?.into();
        let connection = Arc::new(OpenConnection { connection, state: state.clone() });
        let mut connections = self.0.lock();
        connections.retain(|connection| connection.strong_count() > 0);
        if connections.len() >= MANY {
            close_one(&mut connections);
        }
        connections.push_back(Arc::downgrade(&connection));
        Some(connection)
    }
}

/// Closes the oldest idle connection. If none is idle and the limit is near, closes the oldest connection.
fn close_one(connections: &mut VecDeque<Weak<OpenConnection>>) {
    let is_idle = |open: &Weak<OpenConnection>| open.upgrade().is_some_and(|open| !open.state.is_busy());
    let least_used = (connections.len() >= NEARLY_ALL).then_some(0);
    let Some(at) = connections.iter().position(is_idle).or(least_used) else { return };
    if let Some(open) = connections.remove(at).and_then(|open| open.upgrade()) {
        // The shutdown fails if the connection is already closed.
        let _ = open.connection.shutdown(Shutdown::Both);
    }
}
