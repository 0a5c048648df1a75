//! Opens connections, and checks whether the database still answers.
//!
//! A connection that waits cannot tell a slow statement from a database that has stopped answering. So
//! after a while without an answer, a probe opens a new connection. If that gets no answer either, the
//! wait ends.

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

/// How much longer than the statement timeout of the server we wait for a statement.
const GRACE: Duration = Duration::from_secs(2);
/// A statement without an answer is probed after this fraction of the timeout for connections.
const QUIET: u32 = 5;
/// How often the database checks whether we still wait for a statement.
pub(crate) const CHECKED: Duration = Duration::from_millis(250);
/// How long to wait before a database that did not answer is probed again.
const PAUSE: Duration = Duration::from_secs(1);
/// How long a statement waits for a locked row if others need its connection.
const SHORT_LOCK_TIMEOUT: Duration = Duration::from_millis(20);
/// Number of different lifetimes of sessions.
const LIFETIMES: u32 = 16;

/// Citus sends a statement to one server only if it knows the bucket when it makes the plan.
pub(crate) const PLANS_OF_VALUES: &str = "SET plan_cache_mode = auto";

/// Why a session with a standby is not used.
const STANDBY: &str = "the server is a standby";

static SILENT: WarningLimiter = WarningLimiter::new();

/// Opens connections, with the timeouts that apply to them.
pub(crate) struct Connector {
    hosts: Arc<Hosts>,
    session: String,
    is_read_only: bool,
    lock_timeout: Duration,
    max_lifetime: Duration,
    /// Timeout of waiting for a turn, and of opening a connection.
    pub acquire_timeout: Duration,
    statement_timeout: Duration,
    // What all pools know about the database, which stops answering all of them at once.
    /// When the last probe ended, of which host, and whether it answered. The holder of the lock is
    /// probing; others wait for its result.
    asked: tokio::sync::Mutex<Option<(Instant, ChosenHost, bool)>>,
    silent: Mutex<Option<Instant>>,
    pub(super) losses: AtomicU64,
    opened: AtomicU32,
    sessions: Sessions,
    canceller: Canceller,
    placement: KnownPlacement,
    /// Whether the cluster does without this server: its sessions are only to ask.
    is_outsider: AtomicBool,
}

/// Why a wait for a statement ended early.
#[derive(Debug)]
pub(crate) enum Ended {
    /// It failed.
    Failed(sqlx::Error),
    /// It exceeded the timeout of statements.
    Late,
    /// The database does not answer at all.
    Silent,
    /// The breaker of the server that has the data opened.
    Refused,
}

impl Connector {
    /// Reads the settings.
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

    /// The same, but the server refuses statements that write.
    pub(crate) fn read_only(mut self) -> Self {
        self.session.push_str("; SET default_transaction_read_only = on");
        self.is_read_only = true;
        self
    }

    /// Opens a session; `None` if that does not succeed before `end`. A standby is refused unless the
    /// sessions are for reads only: what it has may be older than what was acknowledged.
    pub(crate) async fn open(
        &self,
        owner: Owner,
        lock_wait: LockWait,
        end: Instant,
    ) -> Option<Result<Session, sqlx::Error>> {
        let session = format!("{}; {}", self.session, self.set_lock_wait(lock_wait));
        let opened = tokio::time::timeout_at(end, async {
            let (mut connection, host) = self.hosts.connect().await?;
            // A fixed text that contains only our own numbers.
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

    /// Ends the statement of a backend; returns whether the server has received the request.
    pub(crate) async fn cancel(&self, backend: BackendId) -> bool {
        let limit = self.hosts.at_most(self.acquire_timeout / QUIET);
        Box::pin(self.canceller.cancel(&self.hosts, backend, limit)).await
    }

    /// The server as metrics and logs name it.
    pub(crate) fn name(&self) -> String {
        self.hosts.name()
    }

    /// What is counted of the server.
    pub(crate) fn node(&self) -> &NodeMetrics {
        self.hosts.metrics()
    }

    /// Whether statements of requests may go to the server: the cluster, if there is one, counts on it.
    pub(crate) fn is_member(&self) -> bool {
        !self.is_outsider.load(Ordering::Relaxed)
    }

    /// Says whether statements of requests may go to the server. If not, idle sessions are closed.
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

    /// Closes unused sessions as long as a pool exists.
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

    /// Returns the statement that sets how long a session waits for locks.
    pub(crate) fn set_lock_wait(&self, wait: LockWait) -> String {
        let limit = match wait {
            LockWait::Short => SHORT_LOCK_TIMEOUT.min(self.lock_timeout),
            LockWait::Long => self.lock_timeout,
        };
        format!("SET lock_timeout = {}", limit.as_millis())
    }

    /// The hosts of the server.
    pub(crate) fn hosts(&self) -> &Arc<Hosts> {
        &self.hosts
    }

    /// Waits for a statement on a session of a host until it times out or that stops answering.
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
            self.fell_silent();
        }
        answers
    }

    /// Whether the server answers a new connection within a limit. A refusal is an answer too.
    pub(crate) async fn is_reachable(&self, limit: Duration) -> bool {
        let connected = timeout(limit, self.hosts.connect()).await;
        matches!(connected, Ok(Ok(_) | Err(sqlx::Error::Database(_))))
    }

    /// Notes that the database did not answer a new connection.
    pub(crate) fn fell_silent(&self) {
        if let Some(DueWarning { left_out }) = SILENT.due() {
            tracing::warn!(left_out, "the database does not answer");
        }
        // Another host may be there.
        if !self.hosts.are_several() {
            *self.silent.lock() = Some(Instant::now());
        }
    }

    /// Whether a probe has just ended without an answer.
    pub(crate) fn is_silent(&self) -> bool {
        let silent = *self.silent.lock();
        silent.is_some_and(|when| when.elapsed() < PAUSE)
    }

    /// Where the entities are, as far as is known.
    pub(crate) fn placement(&self) -> &KnownPlacement {
        &self.placement
    }

    /// Returns how many connections have been lost. A connection that last worked before the last loss may
    /// be lost as well.
    pub(crate) fn losses(&self) -> u64 {
        self.losses.load(Ordering::Relaxed)
    }
}

/// The process of the server that runs the statements of a session.
#[derive(Clone, Copy)]
pub(crate) struct BackendId {
    pub host: ChosenHost,
    pub pid: i32,
}

/// The connection that cancels statements whose remaining rows are not needed, so that their sessions can be used
/// again. A session that sends rows receives no other statement, so another connection asks its server to cancel. It
/// is opened when it is first needed, and kept.
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
    /// Cancels the statement of a backend. Returns whether the server has received the request within `limit`: the
    /// backend handles it before the next statement of its session.
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
