//! Ends statements whose remaining rows are not needed, so that their sessions can be used again.
//!
//! A session that sends rows receives no other statement, so another connection asks its server to cancel. It is opened
//! when it is first needed, and kept.

use std::time::Duration;

use sqlx::PgConnection;
use tokio::sync::Mutex;
use tokio::time::timeout;

use crate::observe::metrics::CountedConnection;
use crate::postgres::connections::hosts::{ChosenHost, Hosts};
use crate::postgres::statements;

/// The process of the server that runs the statements of a session.
#[derive(Clone, Copy)]
pub(crate) struct BackendId {
    pub host: ChosenHost,
    pub pid: i32,
}

/// The connection that cancels statements.
#[derive(Default)]
pub(crate) struct Canceller {
    connection: Mutex<Option<Connected>>,
}

struct Connected {
    connection: PgConnection,
    host: ChosenHost,
    _open: CountedConnection,
}

impl Canceller {
    /// Cancels the statement of a backend. Returns whether the server has received the request within `limit`: the
    /// backend handles it before the next statement of its session.
    pub(crate) async fn cancel(&self, hosts: &Hosts, backend: BackendId, limit: Duration) -> bool {
        matches!(timeout(limit, self.try_cancel(hosts, backend)).await, Ok(Ok(true)))
    }

    async fn try_cancel(&self, hosts: &Hosts, backend: BackendId) -> Result<bool, sqlx::Error> {
        let mut kept = self.connection.lock().await;
        // A connection whose request is abandoned or fails is not put back.
        if let Some(mut connected) = kept.take().filter(|kept| kept.host == backend.host)
            && send(&mut connected.connection, backend.pid).await.is_ok()
        {
            *kept = Some(connected);
            return Ok(true);
        }
        let (mut connection, host) = hosts.connect().await?;
        if host != backend.host {
            return Ok(false);
        }
        send(&mut connection, backend.pid).await?;
        *kept = Some(Connected { connection, host, _open: CountedConnection::new(hosts.metrics_of(host)) });
        Ok(true)
    }
}

async fn send(connection: &mut PgConnection, pid: i32) -> Result<(), sqlx::Error> {
    sqlx::query(statements::CANCEL).bind(pid).execute(connection).await.map(|_| ())
}
