//! The open connections of the admin listener. Beyond [`MANY`], a new connection closes the oldest idle
//! connection; otherwise clients that keep connections open could lock out the probes. A connection is also
//! idle while its client sends a request or does not read a response. If none is idle and the limit of the
//! listener is near, the oldest connection is closed.

use std::collections::VecDeque;
use std::net::{Shutdown, TcpStream};
use std::os::fd::AsFd as _;
use std::sync::{Arc, Mutex, PoisonError, Weak};
use std::time::Duration;

use actix_web::rt::net::TcpStream as Accepted;
use tokio::time::sleep;

use crate::server::http::Turn;

/// Maximum number of open connections. Further connections wait.
pub(super) const MAX_CONNECTIONS: usize = 256;
/// From this number of connections on, a new connection closes an idle one.
const MANY: usize = 128;
/// From this number of connections on, a new connection closes a busy one if none is idle.
const NEARLY_ALL: usize = 240;
/// Pause between two checks for open connections.
const LOOK: Duration = Duration::from_millis(10);

/// The open connections, the oldest first.
#[derive(Default)]
pub(crate) struct OpenConnections(Mutex<VecDeque<Weak<OpenConnection>>>);

/// A connection. The listener drops this when the connection ends.
pub(crate) struct OpenConnection {
    /// A duplicate of the connection's descriptor, used to shut it down.
    connection: TcpStream,
    turn: Turn,
}

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

    /// Adds a connection, and closes a different one if there are many.
    pub(crate) fn enter(&self, connection: &Accepted, turn: &Turn) -> Option<Arc<OpenConnection>> {
        let connection = connection.as_fd().try_clone_to_owned().ok()?.into();
        let connection = Arc::new(OpenConnection { connection, turn: turn.clone() });
        let mut connections = self.0.lock().unwrap_or_else(PoisonError::into_inner);
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
    let is_idle = |open: &Weak<OpenConnection>| open.upgrade().is_some_and(|open| !open.turn.is_busy());
    let least_used = (connections.len() >= NEARLY_ALL).then_some(0);
    let Some(at) = connections.iter().position(is_idle).or(least_used) else { return };
    if let Some(open) = connections.remove(at).and_then(|open| open.upgrade()) {
        // The shutdown fails if the connection is already closed.
        let _ = open.connection.shutdown(Shutdown::Both);
    }
}
