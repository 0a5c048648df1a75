//! A leased connection and the statements that run on it.
//!
//! A connection returns to the pool only if its last statement has ended, outside a transaction. If a statement was
//! abandoned or the connection failed, the connection is closed and the server rolls back. A server process that waits
//! for a lock notices the closed connection only at its next check; until then, its session counts against the
//! connection limit.

use std::ops::ControlFlow;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use futures_util::TryStreamExt;
use sqlx::postgres::{PgArguments, PgRow};
use sqlx::query::Query;
use sqlx::{AssertSqlSafe, Connection, PgConnection, Postgres, SqlSafeStr};
use tokio::runtime::Handle;
use tokio::sync::OwnedSemaphorePermit;
use tokio::time::{Instant, timeout};

use crate::Fault;
use crate::observe::metrics;
use crate::observe::metrics::warning_limiter::{DueWarning, WarningLimiter};
use crate::postgres::connections::breaker::Breaker;
use crate::postgres::connections::connector::{CHECKED, Connector, Ended};
use crate::postgres::connections::placement::Placement;
use crate::postgres::connections::sessions::{LockWait, Owner, Session};
use crate::postgres::connections::statement_watch::{StatementWatch, StreamEnd};
use crate::postgres::fault::{
    Effect, StatementError, breaks_connection, is_of_worker, is_read_only, judge, lacks_plan, silent,
};
use crate::postgres::statements::EntityStatements;

pub(crate) type Statement<'q> = Query<'q, Postgres, PgArguments>;

/// Minimum timeout of a statement in a snapshot, however late the statement begins.
const SHORTEST_LIMIT: Duration = Duration::from_millis(100);

const BEGIN_SNAPSHOT: &str = "BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY";
const AVOID_SORTS: &str = "SET LOCAL enable_sort = off";

static NO_ANSWER: WarningLimiter = WarningLimiter::new();

fn local_timeout(limit: Duration) -> String {
    format!("SET LOCAL statement_timeout = {}", limit.max(SHORTEST_LIMIT).as_millis())
}

/// Permission to use one database session.
pub(super) struct SessionPermit {
    _permit: OwnedSemaphorePermit,
    metrics: &'static metrics::PoolMetrics,
}

impl SessionPermit {
    pub(super) fn new(permit: OwnedSemaphorePermit, metrics: &'static metrics::PoolMetrics) -> Self {
        metrics.in_use.add(1);
        Self { _permit: permit, metrics }
    }
}

impl Drop for SessionPermit {
    fn drop(&mut self) {
        self.metrics.in_use.add(-1);
    }
}

pub(crate) struct Lease {
    connector: Arc<Connector>,
    owner: Owner,
    /// `None` once the lease has ended.
    slot: Option<SessionPermit>,
    pub(super) session: Option<Session>,
    /// Whether a statement is running; stays set if its future is dropped.
    running: bool,
    in_transaction: bool,
    /// Held by statements that are routed through another server.
    pub permit: Option<OwnedSemaphorePermit>,
    /// The breaker of the server that owns the data, if there are several servers.
    breaker: Option<Arc<Breaker>>,
}

impl Drop for Lease {
    fn drop(&mut self) {
        let Some(mut session) = self.session.take() else { return };
        if self.running {
            drop(session);
            self.hold_permit_until_closed();
        } else if !self.in_transaction {
            (session.owner, session.idle_since) = (self.owner, Instant::now());
            self.connector.sessions().give(session);
        }
    }
}

impl Lease {
    /// Creates a lease without a session; [`Pool`](super::pool::Pool) adds the session.
    pub(super) const fn new(connector: Arc<Connector>, owner: Owner, slot: SessionPermit) -> Self {
        Self {
            connector,
            owner,
            slot: Some(slot),
            session: None,
            running: false,
            in_transaction: false,
            permit: None,
            breaker: None,
        }
    }

    /// Acquires a lease guarded by a breaker: acquisition and later waits end when the breaker opens.
    ///
    /// # Errors
    /// Errors of `acquiring`, and [`Fault::Unavailable`] if the breaker is open.
    pub(crate) async fn guarded(
        breaker: &Arc<Breaker>,
        acquiring: impl Future<Output = Result<Self, StatementError>>,
    ) -> Result<Self, StatementError> {
        let mut lease = breaker.guard(Box::pin(acquiring)).await??;
        lease.breaker = Some(Arc::clone(breaker));
        Ok(lease)
    }

    /// Reads the current placement of the entities. A session with an outdated placement is closed.
    pub(crate) async fn refresh_placement(&mut self) -> Result<Placement, StatementError> {
        let (watch, connection) = self.start()?;
        let inspected = watch.until_done(watch.connector.placement().look(connection)).await;
        let placement = self.settle(inspected, Effect::Undone)?;
        if let Some(session) = &self.session
            && session.placement != placement
        {
            self.session = None;
        }
        Ok(placement)
    }

    /// Whether the session's host is still the chosen one.
    pub(crate) fn is_in_use(&self) -> bool {
        self.session.as_ref().is_some_and(|session| self.connector.hosts().is_in_use(session.host))
    }

    /// Whether other requests wait for a session of the same database.
    pub(crate) fn is_awaited(&self) -> bool {
        self.connector.sessions().is_awaited()
    }

    /// Whether the lease still has a session.
    pub(crate) const fn is_open(&self) -> bool {
        self.session.is_some()
    }

    /// Returns the statements for the placement that the session found when it was opened.
    pub(crate) fn statements(&self) -> &'static EntityStatements {
        self.session.as_ref().map_or(Placement::Single, |session| session.placement).statements()
    }

    /// Runs a statement and returns its rows once the server has completed it. A write is then committed, unless a
    /// transaction is open.
    pub(crate) async fn rows(
        &mut self,
        statement: Statement<'_>,
        effect: Effect,
    ) -> Result<Vec<PgRow>, StatementError> {
        let (watch, connection) = self.start()?;
        let result = watch.until_done(statement.fetch_all(connection)).await;
        self.settle(result, effect)
    }

    /// Same as [`Lease::rows`], for at most one row.
    pub(crate) async fn row(
        &mut self,
        statement: Statement<'_>,
        effect: Effect,
    ) -> Result<Option<PgRow>, StatementError> {
        let (watch, connection) = self.start()?;
        let result = watch.until_done(statement.fetch_optional(connection)).await;
        self.settle(result, effect)
    }

    /// Same as [`Lease::rows`], for a statement without rows; returns the number of rows changed.
    pub(crate) async fn changed(
        &mut self,
        statement: Statement<'_>,
        effect: Effect,
    ) -> Result<usize, StatementError> {
        let (watch, connection) = self.start()?;
        let result = watch.until_done(statement.execute(connection)).await;
        let done = self.settle(result, effect)?;
        usize::try_from(done.rows_affected()).map_err(|_| Fault::Other.into())
    }

    /// Passes each row of a read to `visit` until `visit` breaks. If many rows remain, the statement is cancelled.
    pub(crate) async fn stream(
        &mut self,
        statement: Statement<'_>,
        visit: &mut (dyn FnMut(&PgRow) -> Result<ControlFlow<()>, sqlx::Error> + Send),
    ) -> Result<StreamEnd, StatementError> {
        let pid = self.session.as_ref().map_or(0, |session| session.pid);
        let (watch, connection) = self.start()?;
        let ended = watch.until_done(async {
            let mut rows = statement.fetch(connection);
            while let Some(row) = rows.try_next().await? {
                if visit(&row)?.is_break() {
                    return watch.pass_over(rows, pid).await;
                }
            }
            Ok(Some(StreamEnd::Complete))
        });
        let ended = ended.await;
        let ended = self.settle(ended, Effect::Undone)?;
        if ended.is_none() {
            self.session = None;
        }
        Ok(ended.unwrap_or(StreamEnd::CutOff))
    }

    /// Opens a transaction whose statements see other transactions' commits (READ COMMITTED).
    pub(crate) async fn begin(&mut self) -> Result<(), StatementError> {
        self.open_transaction("BEGIN ISOLATION LEVEL READ COMMITTED").await
    }

    pub(crate) const fn is_in_transaction(&self) -> bool {
        self.in_transaction
    }

    /// Opens a read-only transaction on one snapshot (REPEATABLE READ), with an optional statement timeout of at least
    /// [`SHORTEST_LIMIT`].
    pub(crate) async fn begin_snapshot(&mut self, limit: Option<Duration>) -> Result<(), StatementError> {
        match limit {
            Some(limit) => self.open_snapshot(&[&local_timeout(limit)]).await,
            None => self.open_transaction(BEGIN_SNAPSHOT).await,
        }
    }

    /// Same as [`Lease::begin_snapshot`], for statements that read an index in its order: see [`Lease::avoid_sorts`].
    pub(crate) async fn begin_snapshot_without_sorts(
        &mut self,
        limit: Option<Duration>,
    ) -> Result<(), StatementError> {
        match limit {
            Some(limit) => self.open_snapshot(&[&local_timeout(limit), AVOID_SORTS]).await,
            None => self.open_snapshot(&[AVOID_SORTS]).await,
        }
    }

    /// Opens a snapshot with extra settings in a single message.
    async fn open_snapshot(&mut self, settings: &[&str]) -> Result<(), StatementError> {
        let text = format!("{BEGIN_SNAPSHOT}; {}", settings.join("; "));
        // The statement text contains only a number from this program.
        self.control(AssertSqlSafe(text), Effect::Undone).await?;
        self.in_transaction = true;
        Ok(())
    }

    /// Sets the timeout of later statements in the transaction, to at least [`SHORTEST_LIMIT`].
    pub(crate) async fn limit_statements(&mut self, limit: Duration) -> Result<(), StatementError> {
        // The statement text contains only a number from this program.
        self.control(sqlx::AssertSqlSafe(local_timeout(limit)), Effect::Undone).await
    }

    /// Makes statements of the transaction read an index in its order, however few rows the planner expects to sort.
    pub(crate) async fn avoid_sorts(&mut self) -> Result<(), StatementError> {
        self.control(AVOID_SORTS, Effect::Undone).await
    }

    async fn open_transaction(&mut self, text: &'static str) -> Result<(), StatementError> {
        self.control(text, Effect::Undone).await?;
        self.in_transaction = true;
        Ok(())
    }

    /// Commits. After a failure the outcome is unknown, unless the server reports a rollback.
    pub(crate) async fn commit(&mut self) -> Result<(), StatementError> {
        self.control("COMMIT", Effect::Unknown).await?;
        self.in_transaction = false;
        Ok(())
    }

    /// Ends a read-only transaction, if one is open. The rows already read are complete even if the COMMIT fails. The
    /// snapshot's statement timeout also applies to the COMMIT.
    pub(crate) async fn end_snapshot(&mut self) {
        if self.in_transaction && self.session.is_some() && self.commit().await.is_err() {
            self.roll_back().await;
        }
        self.in_transaction = false;
    }

    /// Rolls back. If that fails, the connection is closed, which also ends the transaction.
    pub(crate) async fn roll_back(&mut self) {
        if self.session.is_some() && self.control("ROLLBACK", Effect::Undone).await.is_err() {
            self.session = None;
        }
        self.in_transaction = false;
    }

    /// Sets the session's lock timeout, unless it is already set; returns whether the session is usable.
    pub(super) async fn ensure_lock_wait(&mut self, wait: Option<LockWait>) -> bool {
        let (Some(session), Some(wait)) = (&self.session, wait) else { return true };
        if session.lock_wait == wait {
            return true;
        }
        let text = AssertSqlSafe(self.connector.set_lock_wait(wait));
        let is_set = self.control(text, Effect::Undone).await.is_ok();
        match &mut self.session {
            Some(session) if is_set => session.lock_wait = wait,
            _ => self.session = None,
        }
        is_set
    }

    async fn control(&mut self, text: impl SqlSafeStr, effect: Effect) -> Result<(), StatementError> {
        let (watch, connection) = self.start()?;
        let result = watch.until_done(sqlx::raw_sql(text).execute(connection)).await;
        self.settle(result, effect).map(|_| ())
    }

    /// Whether an idle connection still works. The check takes at most half of the connection timeout, which leaves
    /// time to open another connection. A failed check does not prove that the host is gone: a firewall may have
    /// dropped the connection.
    pub(super) async fn answers(&mut self) -> bool {
        let limit = self.connector.hosts().at_most(self.connector.acquire_timeout / 2);
        let Ok((_, connection)) = self.start() else { return false };
        let result = timeout(limit, connection.ping()).await;
        let no_answer = |_| Err(sqlx::Error::Io(std::io::ErrorKind::TimedOut.into()));
        self.settle(result.unwrap_or_else(no_answer).map_err(Ended::Failed), Effect::Undone).is_ok()
    }

    /// Keeps the permit until the database has noticed that the connection is closed.
    fn hold_permit_until_closed(&mut self) {
        let slot = self.slot.take();
        if let Ok(runtime) = Handle::try_current() {
            runtime.spawn(async move {
                tokio::time::sleep(2 * CHECKED).await;
                drop(slot);
            });
        }
    }

    fn start(&mut self) -> Result<(StatementWatch<'_>, &mut PgConnection), StatementError> {
        let session = self.session.as_mut().ok_or(Fault::Unavailable)?;
        session.losses = self.connector.losses();
        self.running = true;
        let (connector, host, breaker) = (&*self.connector, session.host, self.breaker.as_deref());
        Ok((StatementWatch { connector, host, breaker }, &mut session.connection))
    }

    fn settle<T>(&mut self, result: Result<T, Ended>, effect: Effect) -> Result<T, StatementError> {
        self.running = false;
        match result {
            Ok(value) => Ok(value),
            Err(Ended::Failed(error)) => {
                if self.has_outdated_placement(&error) {
                    // No plan was made, so the statement changed nothing.
                    self.session = None;
                    return Err(Fault::Serialization.into());
                }
                if is_read_only(&error) {
                    self.leave_host();
                }
                if breaks_connection(&error) {
                    self.discard_all();
                } else if is_of_worker(&error) {
                    self.connector.node().unreachable.one();
                    self.recheck_before_reuse();
                }
                Err(judge(&error, effect))
            }
            Err(Ended::Silent) => {
                self.leave_host();
                self.discard_all();
                Err(silent(effect))
            }
            Err(Ended::Refused) => {
                self.connector.node().unreachable.one();
                self.session = None;
                Err(silent(effect))
            }
            Err(Ended::Late) => {
                if let Some(DueWarning { left_out }) = NO_ANSWER.due() {
                    tracing::warn!(left_out, "the database did not answer a statement in time");
                }
                self.session = None;
                Err(Fault::Timeout.into())
            }
        }
    }

    /// Whether the statement failed because the entities were distributed after the session was opened.
    fn has_outdated_placement(&self, error: &sqlx::Error) -> bool {
        let Some(session) = &self.session else { return false };
        lacks_plan(error) && self.connector.placement().is_outdated(session.placement)
    }

    /// Forces a check of the connection before its next use.
    fn recheck_before_reuse(&mut self) {
        if let Some(session) = &mut self.session {
            session.losses = self.connector.losses().wrapping_sub(1);
        }
    }

    fn leave_host(&self) {
        self.session.iter().for_each(|session| self.connector.hosts().leave(session.host));
    }

    /// Closes this connection and the pool's idle ones, which most likely failed for the same reason. Other pools
    /// check their connections before use. If there are several hosts, all connections to this host are closed and its
    /// role is checked again.
    fn discard_all(&mut self) {
        let hosts = self.connector.hosts();
        if let Some(session) = self.session.take() {
            hosts.recheck(session.host);
        }
        self.connector.node().lost.one();
        self.connector.losses.fetch_add(1, Ordering::Relaxed);
        let owner = self.owner.id;
        self.connector.sessions().clear(|idle| idle.owner.id == owner || !hosts.is_in_use(idle.host));
    }
}
