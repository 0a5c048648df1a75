//! Opens connections and checks whether the database still answers.
//!
//! A waiting connection cannot distinguish a slow statement from a database that has stopped answering. After a while
//! without an answer, a probe therefore opens a new connection. If the probe gets no answer either, the wait ends.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};
use std::time::Duration;

use parking_lot::Mutex;
use sqlx::PgConnection;
use tokio::runtime::Handle;
use tokio::time::{Instant, timeout};

use crate::observe::metrics::warning_limiter::{DueWarning, WarningLimiter};
use crate::observe::metrics::{CountedConnection, NodeMetrics};
use crate::postgres::connections::hosts::{ChosenHost, Hosts};
use crate::postgres::connections::options::{PgOptions, StartError, end_if_abandoned};
use crate::postgres::connections::placement::{KnownPlacement, Placement};
use crate::postgres::connections::search_path::SearchPath;
use crate::postgres::connections::sessions::{LockWait, Owner, Session, Sessions};
use crate::postgres::statements;

/// Extra time, beyond the server's statement timeout, that this client waits for a statement.
const GRACE: Duration = Duration::from_secs(2);
/// A statement without an answer triggers a probe after this fraction of the connection timeout.
const QUIET: u32 = 5;
/// Interval at which the database checks whether the client still waits for a statement.
pub(crate) const CHECKED: Duration = Duration::from_millis(250);
/// Minimum interval between probes of a database that did not answer.
const PAUSE: Duration = Duration::from_secs(1);
/// Lock timeout of a statement whose connection other requests need.
const SHORT_LOCK_TIMEOUT: Duration = Duration::from_millis(20);
/// Number of different session lifetimes.
const LIFETIMES: u32 = 16;

/// Citus sends a statement to a single server only if the bucket is known at planning time.
pub(crate) const PLANS_OF_VALUES: &str = "SET plan_cache_mode = auto";

/// Why a session on a standby is rejected.
const STANDBY: &str = "the server is a standby";

static SILENT: WarningLimiter = WarningLimiter::new();

pub(crate) struct Connector {
    hosts: Arc<Hosts>,
    session: String,
    is_read_only: bool,
    lock_timeout: Duration,
    max_lifetime: Duration,
    /// Timeout for waiting in the queue, and for opening a connection.
    pub acquire_timeout: Duration,
    statement_timeout: Duration,
    // State shared by all pools of the database, because the database stops answering all of them at once.
    /// End time, host and result of the last probe. The lock's holder runs the probe; other callers wait for its
    /// result.
    asked: tokio::sync::Mutex<Option<(Instant, ChosenHost, bool)>>,
    silent: Mutex<Option<Instant>>,
    pub(super) losses: AtomicU64,
    opened: AtomicU32,
    sessions: Sessions,
    canceller: Canceller,
    placement: KnownPlacement,
    /// Whether the cluster does not use this server; its sessions then only serve health checks.
    is_outsider: AtomicBool,
}

/// Why a wait for a statement ended early.
#[derive(Debug)]
pub(crate) enum Ended {
    /// The statement failed.
    Failed(sqlx::Error),
    /// The statement exceeded its timeout.
    Late,
    /// The database stopped answering.
    Silent,
    /// The breaker of the server that owns the data opened.
    Refused,
}

impl Connector {
    pub(crate) fn new(options: &PgOptions, path: &SearchPath, url: &str) -> Result<Self, StartError> {
        Ok(Self {
            hosts: Arc::new(Hosts::of(url, options.acquire_timeout)?),
            session: format!("{}; {}", options.session(), path.statement()),
            is_read_only: false,
            lock_timeout: options.lock_timeout(),
            max_lifetime: options.max_lifetime,
            acquire_timeout: options.acquire_timeout,
            statement_timeout: options.operation_timeout + GRACE,
            asked: tokio::sync::Mutex::default(),
            silent: Mutex::default(),
            losses: AtomicU64::new(0),
            opened: AtomicU32::new(0),
            sessions: Sessions::default(),
            canceller: Canceller::default(),
            placement: KnownPlacement::default(),
            is_outsider: AtomicBool::new(false),
        })
    }

    /// Makes the server reject writes in sessions of this connector.
    pub(crate) fn read_only(mut self) -> Self {
        self.session.push_str("; SET default_transaction_read_only = on");
        self.is_read_only = true;
        self
    }

    /// Opens a session; `None` if opening takes longer than `end`. A connector that writes rejects standbys, because a
    /// standby may lack acknowledged writes.
    pub(crate) async fn open(
        &self,
        owner: Owner,
        lock_wait: LockWait,
        end: Instant,
    ) -> Option<Result<Session, sqlx::Error>> {
        let session = format!("{}; {}", self.session, self.set_lock_wait(lock_wait));
        let opened = tokio::time::timeout_at(end, async {
            let (mut connection, host) = self.hosts.connect().await?;
            // The statement text contains only numbers from this program.
            sqlx::raw_sql(sqlx::AssertSqlSafe(session)).execute(&mut connection).await?;
            end_if_abandoned(&mut connection, CHECKED).await?;
            let may_be_standby = !self.is_read_only && !self.hosts.is_of_primary();
            let is_standby = sqlx::query_scalar(statements::IS_STANDBY).persistent(false);
            if may_be_standby && is_standby.fetch_one(&mut connection).await? {
                self.hosts.leave(host);
                return Err(sqlx::Error::Io(std::io::Error::other(STANDBY)));
            }
            let placement = self.placement.look(&mut connection).await?;
            if placement == Placement::Distributed {
                sqlx::raw_sql(PLANS_OF_VALUES).execute(&mut connection).await?;
            }
            let pid = sqlx::query_scalar(statements::BACKEND).persistent(false);
            let pid = pid.fetch_one(&mut connection).await?;
            Ok((connection, BackendId { host, pid }, placement))
        });
        let opened = opened.await.ok()?;
        Some(opened.map(|(connection, backend, placement)| {
            self.session(connection, backend, placement, owner, lock_wait)
        }))
    }

    fn session(
        &self,
        connection: PgConnection,
        backend: BackendId,
        placement: Placement,
        owner: Owner,
        lock_wait: LockWait,
    ) -> Session {
        // Connections that were opened together must not expire together.
        let number = self.opened.fetch_add(1, Ordering::Relaxed) % LIFETIMES;
        let lifetime = self.max_lifetime + self.max_lifetime * number / (4 * LIFETIMES);
        let (now, home) = (Instant::now(), Handle::current().id());
        let (expires, _alive) = (now + lifetime, self.sessions.count_one());
        Session {
            connection,
            host: backend.host,
            pid: backend.pid,
            home,
            lock_wait,
            placement,
            expires,
            losses: self.losses(),
            idle_since: now,
            owner,
            _alive,
            _open: CountedConnection::new(self.hosts.metrics_of(backend.host)),
        }
    }

    /// Cancels a backend's statement; returns whether the server has received the request.
    pub(crate) async fn cancel(&self, backend: BackendId) -> bool {
        let limit = self.hosts.at_most(self.acquire_timeout / QUIET);
        Box::pin(self.canceller.cancel(&self.hosts, backend, limit)).await
    }

    /// The server's name in metrics and logs.
    pub(crate) fn name(&self) -> String {
        self.hosts.name()
    }

    pub(crate) fn node(&self) -> &NodeMetrics {
        self.hosts.metrics()
    }

    /// Whether request statements may use the server: it is a cluster member, or there is no cluster.
    pub(crate) fn is_member(&self) -> bool {
        !self.is_outsider.load(Ordering::Relaxed)
    }

    /// Sets whether request statements may use the server. If not, idle sessions are closed.
    pub(crate) fn set_member(&self, is_member: bool) {
        self.is_outsider.store(!is_member, Ordering::Relaxed);
        if !is_member {
            self.sessions.clear(|_| true);
        }
    }

    /// Returns the sessions that all pools of the database share.
    pub(crate) fn sessions(&self) -> &Sessions {
        &self.sessions
    }

    /// Starts a task that closes unused sessions while the connector exists.
    pub(crate) fn close_unused(self: &Arc<Self>, limit: Duration) {
        let connector = Arc::downgrade(self);
        let Ok(runtime) = Handle::try_current() else { return };
        runtime.spawn(async move {
            loop {
                tokio::time::sleep((limit / 4).max(CHECKED)).await;
                let Some(connector) = connector.upgrade() else { return };
                connector.sessions.close_unused(limit).await;
            }
        });
    }

    /// Returns the statement that sets the lock timeout of a session.
    pub(crate) fn set_lock_wait(&self, wait: LockWait) -> String {
        let limit = match wait {
            LockWait::Short => SHORT_LOCK_TIMEOUT.min(self.lock_timeout),
            LockWait::Long => self.lock_timeout,
        };
        format!("SET lock_timeout = {}", limit.as_millis())
    }

    pub(crate) fn hosts(&self) -> &Arc<Hosts> {
        &self.hosts
    }

    /// Waits for a statement until it finishes, exceeds its timeout, or the session's host stops answering.
    pub(crate) async fn watch<T>(
        &self,
        host: ChosenHost,
        work: impl Future<Output = Result<T, sqlx::Error>>,
    ) -> Result<T, Ended> {
        let mut work = std::pin::pin!(work);
        let end = Instant::now() + self.statement_timeout;
        let mut quiet = self.acquire_timeout / QUIET;
        loop {
            let rest = end.saturating_duration_since(Instant::now());
            if let Ok(done) = timeout(quiet.min(rest), work.as_mut()).await {
                return done.map_err(Ended::Failed);
            }
            if quiet >= rest {
                return Err(Ended::Late);
            }
            tokio::select! {
                biased;
                done = work.as_mut() => return done.map_err(Ended::Failed),
                answers = Box::pin(self.answers(host)) => if !answers { return Err(Ended::Silent) },
            }
            quiet = self.acquire_timeout;
        }
    }

    /// Whether the database answers on a new connection. Concurrent callers share one probe (single-flight).
    async fn answers(&self, host: ChosenHost) -> bool {
        let now = Instant::now();
        let mut asked = self.asked.lock().await;
        if let Some((when, which, answers)) = *asked
            && which == host
            && when >= now
        {
            return answers;
        }
        let answers = self.hosts.answers(host, self.acquire_timeout).await;
        *asked = Some((Instant::now(), host, answers));
        if !answers {
            self.record_silence();
        }
        answers
    }

    /// Whether the server answers a new connection within `limit`. A rejection also counts as an answer.
    pub(crate) async fn is_reachable(&self, limit: Duration) -> bool {
        let connected = timeout(limit, self.hosts.connect()).await;
        matches!(connected, Ok(Ok(_) | Err(sqlx::Error::Database(_))))
    }

    /// Records that the database did not answer a new connection.
    pub(crate) fn record_silence(&self) {
        if let Some(DueWarning { left_out }) = SILENT.due() {
            tracing::warn!(left_out, "the database does not answer");
        }
        // With several hosts, another host may answer.
        if !self.hosts.are_several() {
            *self.silent.lock() = Some(Instant::now());
        }
    }

    /// Whether a recent probe got no answer.
    pub(crate) fn is_silent(&self) -> bool {
        let silent = *self.silent.lock();
        silent.is_some_and(|when| when.elapsed() < PAUSE)
    }

    pub(crate) fn placement(&self) -> &KnownPlacement {
        &self.placement
    }

    /// Returns the number of lost connections. A connection that last worked before the latest loss may also be lost.
    pub(crate) fn losses(&self) -> u64 {
        self.losses.load(Ordering::Relaxed)
    }
}

/// The server process that runs a session's statements.
#[derive(Clone, Copy)]
pub(crate) struct BackendId {
    pub host: ChosenHost,
    pub pid: i32,
}

/// Cancels statements whose remaining rows are not needed, so that their sessions can be reused. A session that is
/// receiving rows cannot send another statement, so the request uses a separate connection, which is opened on first
/// use and kept.
#[derive(Default)]
struct Canceller {
    connection: tokio::sync::Mutex<Option<Connected>>,
}

struct Connected {
    connection: PgConnection,
    host: ChosenHost,
    _open: CountedConnection,
}

impl Canceller {
    /// Cancels a backend's statement. Returns whether the server received the request within `limit`; the backend
    /// handles the request before the next statement of its session.
    async fn cancel(&self, hosts: &Hosts, backend: BackendId, limit: Duration) -> bool {
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
