//! A connection pool that leases connections without a round trip.
//!
//! The runtime that opened a connection receives its data. If another thread uses the connection, each piece of a
//! response wakes that runtime's thread first, and then the waiting thread. Each thread therefore uses its own
//! connections as long as it can open more, and then those of other threads.

use std::sync::Arc;
use std::time::Duration;

use tokio::runtime::Handle;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::time::{Instant, timeout};

use crate::Fault;
use crate::observe::metrics;
use crate::observe::metrics::warning_limiter::{DueWarning, WarningLimiter};
use crate::postgres::connections::connector::Connector;
use crate::postgres::connections::lease::{Lease, SessionPermit};
use crate::postgres::connections::sessions::{LockWait, Owner, Session};
use crate::postgres::fault::{StatementError, is_limit};

/// A connection that was idle for this long is checked before use, because a failed write does not show whether
/// its connection was lost before the write was sent. A restart of the database takes longer than this.
const RESTED: Duration = Duration::from_millis(250);
/// A connection that does not open within this fraction of the timeout counts as queued by a pooler, provided that
/// other sessions exist.
const QUEUED: u32 = 5;
static NO_CONNECTION: WarningLimiter = WarningLimiter::new();

/// A limited number of connections to a database. Several pools may share the database's sessions.
pub(crate) struct Pool {
    max_connections: usize,
    slots: Arc<Semaphore>,
    owner: Owner,
    connector: Arc<Connector>,
}

struct NotOpened {
    fault: Fault,
    /// Whether the caller may wait for another session instead.
    may_wait: bool,
}

impl Pool {
    /// Creates an empty pool; connections are opened on demand.
    pub(crate) fn new(
        connector: Arc<Connector>,
        max_connections: usize,
        metrics: &'static metrics::PoolMetrics,
    ) -> Self {
        let owner = Owner { id: connector.sessions().new_owner(), metrics };
        Self { max_connections, slots: Arc::new(Semaphore::new(max_connections)), owner, connector }
    }

    pub(crate) const fn connector(&self) -> &Arc<Connector> {
        &self.connector
    }

    /// Waits for a connection whose statements have the long lock timeout.
    ///
    /// # Errors
    /// [`Fault::Busy`] if no slot or connection is free in time, [`Fault::Unavailable`] if the database rejects
    /// connections.
    pub(crate) async fn acquire(&self) -> Result<Lease, StatementError> {
        self.acquire_for(Some(LockWait::Long)).await
    }

    /// Same as [`Pool::acquire`], with the given lock timeout; `None` keeps the session's current one.
    pub(crate) async fn acquire_for(&self, wait: Option<LockWait>) -> Result<Lease, StatementError> {
        let slot = SessionPermit::new(self.slot().await?, self.owner.metrics);
        let until = Instant::now() + self.connector.acquire_timeout;
        let mut lease = Lease::new(Arc::clone(&self.connector), self.owner, slot);
        loop {
            let session = self.session(wait, until).await;
            if matches!(session, Err(StatementError::Fault(Fault::Busy))) {
                self.owner.metrics.timeouts.one();
            }
            let session = session?;
            let is_in_use = self.connector.hosts().is_in_use(session.host);
            if !is_in_use || session.placement != self.connector.placement().get() {
                continue;
            }
            let is_sure = session.idle_since.elapsed() < RESTED && session.losses == self.connector.losses();
            lease.session = Some(session);
            // The host may be left during the check.
            let works = (is_sure || lease.answers().await) && lease.ensure_lock_wait(wait).await;
            if works && lease.is_in_use() {
                return Ok(lease);
            }
            lease.session = None;
        }
    }

    /// Whether the database allows more connections, according to the last attempt.
    pub(crate) fn may_open(&self) -> bool {
        self.connector.sessions().may_open()
    }

    async fn slot(&self) -> Result<OwnedSemaphorePermit, StatementError> {
        if let Ok(permit) = Arc::clone(&self.slots).try_acquire_owned() {
            return Ok(permit);
        }
        self.owner.metrics.waits.one();
        self.connector.node().waits.one();
        let _waiting = self.connector.sessions().wait_for_slot();
        let slot = timeout(self.connector.acquire_timeout, Arc::clone(&self.slots).acquire_owned()).await;
        let slot = slot.inspect_err(|_| self.owner.metrics.timeouts.one()).map_err(|_| Fault::Busy)?;
        slot.map_err(|_| Fault::Unavailable.into())
    }

    /// Returns an idle session of this pool, a new session, or the next session that becomes free.
    async fn session(&self, wait: Option<LockWait>, until: Instant) -> Result<Session, StatementError> {
        let in_use = self.max_connections.saturating_sub(self.slots.available_permits());
        // With this many idle sessions, the pool has no room for another.
        let limit = (self.max_connections + 1).saturating_sub(in_use);
        let sessions = self.connector.sessions();
        if let Some(session) = sessions.take(self.owner.id, Handle::current().id(), wait, limit) {
            return Ok(session);
        }
        if sessions.may_open() {
            match self.open(wait, until).await {
                Ok(session) => return Ok(session),
                Err(failed) if !failed.may_wait => return Err(failed.fault.into()),
                Err(_) => {}
            }
        }
        self.wait(wait, until).await
    }

    /// Waits in the queue that all pools share. When its turn comes, the caller also tries to open a session.
    async fn wait(&self, wait: Option<LockWait>, until: Instant) -> Result<Session, StatementError> {
        let sessions = self.connector.sessions();
        if sessions.is_away() {
            return Err(Fault::Unavailable.into());
        }
        self.owner.metrics.waits.one();
        let mut waiter = sessions.wait();
        loop {
            if let Some(session) = waiter.until(sessions.retry_at().min(until)).await {
                return Ok(session);
            }
            if Instant::now() >= until {
                return Err(Fault::Busy.into());
            }
            if sessions.is_away() {
                return Err(Fault::Unavailable.into());
            }
            let Some(_permit) = sessions.try_opening_permit() else { continue };
            match self.open(wait, until).await {
                Ok(session) => sessions.give(session),
                Err(failed) if !failed.may_wait => return Err(failed.fault.into()),
                Err(_) => {}
            }
        }
    }

    async fn open(&self, wait: Option<LockWait>, until: Instant) -> Result<Session, NotOpened> {
        if self.connector.is_silent() {
            return Err(NotOpened { fault: Fault::Busy, may_wait: false });
        }
        let until = if self.may_be_queued() {
            until.min(Instant::now() + self.connector.acquire_timeout / QUEUED)
        } else {
            until
        };
        // Boxed because this large, rarely used future is part of every request's future.
        let opened = Box::pin(self.connector.open(self.owner, wait.unwrap_or(LockWait::Long), until)).await;
        match opened {
            Some(Ok(session)) => {
                self.connector.sessions().opened();
                self.owner.metrics.opened.one();
                self.connector.node().opened.one();
                Ok(session)
            }
            failed => {
                if self.connector.is_member() {
                    self.owner.metrics.failures.one();
                    self.connector.node().failures.one();
                }
                let not_opened = self.not_opened(failed.and_then(Result::err));
                self.connector.sessions().refused(!not_opened.may_wait);
                Err(not_opened)
            }
        }
    }

    /// Whether a pooler may be queueing a connection that does not open: other sessions exist, and there is only one
    /// host.
    fn may_be_queued(&self) -> bool {
        !self.connector.hosts().are_several() && self.connector.sessions().is_any_alive()
    }

    fn not_opened(&self, error: Option<sqlx::Error>) -> NotOpened {
        let Some(error) = error else {
            let may_wait = self.may_be_queued();
            if !may_wait {
                // Callers do not retry immediately.
                self.connector.record_silence();
            }
            return NotOpened { fault: Fault::Busy, may_wait };
        };
        if self.connector.is_member()
            && let Some(DueWarning { left_out }) = NO_CONNECTION.due()
        {
            tracing::warn!(%error, left_out, "cannot connect to the database");
        }
        let may_wait = is_limit(&error) || self.connector.sessions().is_any_alive();
        NotOpened { fault: Fault::Unavailable, may_wait }
    }
}

impl Drop for Pool {
    fn drop(&mut self) {
        self.connector.sessions().clear(|session| session.owner.id == self.owner.id);
    }
}

#[cfg(test)]
mod tests {
    use std::io::{Read, Write};
    use std::net::{TcpListener, TcpStream};
    use std::sync::OnceLock;

    use super::*;
    use crate::observe::metrics::CountedConnection;
    use crate::observe::metrics::METRICS;
    use crate::postgres::connections::options::PgOptions;
    use crate::postgres::connections::placement::Placement;
    use crate::postgres::connections::search_path::SearchPath;

    /// Longer than any step of these tests takes, even on a slow machine.
    const SAFETY: Duration = Duration::from_secs(60);
    const READY: &[u8] = b"Z\0\0\0\x05I";

    fn receive<const N: usize>(stream: &mut TcpStream) -> Option<[u8; N]> {
        let mut bytes = [0; N];
        stream.read_exact(&mut bytes).ok().map(|()| bytes)
    }

    /// Receives the rest of a message, which starts with its length.
    fn receive_body(stream: &mut TcpStream) {
        let length = receive(stream).map(u32::from_be_bytes).expect("a length");
        std::io::copy(&mut stream.take(u64::from(length) - 4), &mut std::io::sink()).expect("a body");
    }

    /// Accepts one session and answers its checks, and calls `before_answer` before each answer.
    fn serve_one(listener: TcpListener, before_answer: impl Fn()) {
        let (mut stream, _) = listener.accept().expect("a session");
        drop(listener);
        receive_body(&mut stream);
        stream.write_all(b"R\0\0\0\x08\0\0\0\0").expect("it listens");
        stream.write_all(READY).expect("it listens");
        while let Some([_kind]) = receive(&mut stream) {
            receive_body(&mut stream);
            before_answer();
            let _ = stream.write_all(READY);
        }
    }

    async fn idle_session(connector: &Connector, owner: Owner) -> Session {
        let hosts = connector.hosts();
        let (connection, host) = hosts.connect().await.expect("a session");
        Session {
            connection,
            host,
            pid: 0,
            home: Handle::current().id(),
            lock_wait: LockWait::Long,
            placement: Placement::Single,
            expires: Instant::now() + SAFETY,
            // Marks another connection as lost since.
            losses: connector.losses().wrapping_sub(1),
            idle_since: Instant::now(),
            owner,
            _alive: connector.sessions().count_one(),
            _open: CountedConnection::new(hosts.metrics_of(host)),
        }
    }

    #[tokio::test]
    async fn a_session_whose_host_is_left_while_it_is_checked_is_not_lent() {
        let [first, second] = [0, 1].map(|_| TcpListener::bind("127.0.0.1:0").expect("a port"));
        let [one, two] = [&first, &second].map(|host| host.local_addr().expect("it is bound"));
        drop(second);
        let url = format!("postgres://u@{one},{two}/d?sslmode=disable");
        let options = PgOptions { acquire_timeout: SAFETY, ..PgOptions::new(&url) };
        let connector = Connector::new(&options, &SearchPath::default(), &url).expect("a connector");
        let connector = Arc::new(connector);
        let (hosts, chosen) = (Arc::clone(connector.hosts()), Arc::new(OnceLock::new()));
        let host = Arc::clone(&chosen);
        let server = std::thread::spawn(move || {
            serve_one(first, || host.get().into_iter().for_each(|host| hosts.leave(*host)))
        });
        let pool = Pool::new(Arc::clone(&connector), 1, &METRICS.probe_pool);
        let session = idle_session(&connector, pool.owner).await;
        chosen.set(session.host).expect("once");
        connector.sessions().give(session);
        assert!(pool.acquire().await.is_err(), "no other host is there");
        drop((pool, connector));
        server.join().expect("the session has ended");
    }

    #[tokio::test]
    async fn a_connection_that_a_pooler_queues_is_not_waited_for_while_others_are_returned() {
        let pooler = TcpListener::bind("127.0.0.1:0").expect("a port");
        let queue = pooler.try_clone().expect("a second handle, which keeps the port open");
        let url = format!("postgres://u@{}/d?sslmode=disable", pooler.local_addr().expect("it is bound"));
        let options = PgOptions { acquire_timeout: SAFETY / 3, ..PgOptions::new(&url) };
        let connector = Connector::new(&options, &SearchPath::default(), &url).expect("a connector");
        let connector = Arc::new(connector);
        let server = std::thread::spawn(move || serve_one(pooler, || ()));
        let pool = Pool::new(Arc::clone(&connector), 2, &METRICS.probe_pool);
        connector.sessions().give(idle_session(&connector, pool.owner).await);
        let first = pool.acquire().await.expect("the only session");
        let queued = tokio::task::spawn_blocking(move || queue.accept().expect("the second connection"));
        let give_back = async {
            let queued = queued.await.expect("it is queued");
            drop(first);
            queued
        };
        let (second, _queued) = tokio::join!(pool.acquire(), give_back);
        assert!(second.is_ok());
        assert!(!connector.is_silent());
        drop((second, pool, connector));
        server.join().expect("the session has ended");
    }
}
