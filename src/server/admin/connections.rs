//! The open connections of the admin listener. Beyond [`MANY`], a new connection closes the oldest
//! idle one; otherwise clients that keep connections open could lock out the probes.

use std::any::Any;
use std::collections::VecDeque;
use std::net::{Shutdown, TcpStream};
use std::os::fd::AsFd as _;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError, Weak};
use std::time::Duration;

use actix_web::rt::net::TcpStream as Accepted;
use tokio::time::sleep;

/// At this number of connections, a new one closes an idle one.
const MANY: usize = 128;
/// Pause between two looks whether connections are open.
const LOOK: Duration = Duration::from_millis(10);

/// The connections, the oldest first.
#[derive(Default)]
pub(crate) struct OpenConnections(Mutex<VecDeque<Weak<OpenConnection>>>);

/// A connection. The listener drops this when the connection ends.
pub(crate) struct OpenConnection {
    /// A duplicate of the connection's descriptor, to shut it down with.
    connection: TcpStream,
    /// Whether a request has arrived whole and is being answered.
    is_busy: AtomicBool,
}

/// A request that is being answered.
pub(crate) struct Busy<'a>(&'a OpenConnection);

impl OpenConnections {
    /// Returns once all connections have ended.
    pub(crate) async fn closed(&self) {
        while self.are_open() {
            sleep(LOOK).await;
        }
    }

    fn are_open(&self) -> bool {
        let connections = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        connections.iter().any(|connection| connection.strong_count() > 0)
    }

    /// Adds a connection. If there are many, closes the oldest idle one.
    pub(crate) fn enter(&self, connection: &dyn Any) -> Option<Arc<OpenConnection>> {
        let connection = connection.downcast_ref::<Accepted>()?.as_fd().try_clone_to_owned().ok()?;
        let connection =
            Arc::new(OpenConnection { connection: connection.into(), is_busy: AtomicBool::new(false) });
        let mut connections = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        connections.retain(|connection| connection.strong_count() > 0);
        if connections.len() >= MANY
            && let Some(at) = connections
                .iter()
                .position(|connection| connection.upgrade().is_some_and(|connection| connection.is_idle()))
            && let Some(idle) = connections.remove(at).and_then(|connection| connection.upgrade())
        {
            // It fails if the connection is already closed.
            let _ = idle.connection.shutdown(Shutdown::Both);
        }
        connections.push_back(Arc::downgrade(&connection));
        Some(connection)
    }
}

impl OpenConnection {
    /// Marks the connection as busy until its request is answered.
    pub(crate) fn busy(&self) -> Busy<'_> {
        self.is_busy.store(true, Ordering::Relaxed);
        Busy(self)
    }

    fn is_idle(&self) -> bool {
        !self.is_busy.load(Ordering::Relaxed)
    }
}

impl Drop for Busy<'_> {
    fn drop(&mut self) {
        self.0.is_busy.store(false, Ordering::Relaxed);
    }
}
