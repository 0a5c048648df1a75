//! Connections checked out without a round trip.
//!
//! A runtime hears of what comes over the connections that were opened in it. One
//! that another runtime opened has that runtime's thread woken for each piece of an
//! answer, and then the thread that waits. So each thread uses its own connections
//! while more may be opened, and those of others only after that.
//!
//! A connection goes back only if its last statement is known to
//! have ended outside a transaction. One whose statement was given up half-way,
//! or that failed as a connection, is closed; the server rolls back. Where it waits
//! for a lock it only notices when it looks, and until then its session counts.

use std::ops::ControlFlow;
use std::sync::Arc;
use std::time::Duration;

use futures_util::TryStreamExt;
use sqlx::postgres::{PgArguments, PgRow};
use sqlx::query::Query;
use sqlx::{AssertSqlSafe, Connection, PgConnection, Postgres, SqlSafeStr};
use tokio::runtime::Handle;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::time::{Instant, timeout};

use crate::metrics;
use crate::metrics::seldom::{Seldom, Turn};
use crate::store::Fault;
use crate::store::postgres::connections::connector::{CHECKED, Dial, Ended};
use crate::store::postgres::connections::sessions::{LockWait, Owner, Session};
use crate::store::postgres::fault::{Effect, Trouble, breaks_connection, is_limit, judge, silent};
use crate::store::postgres::rows::weight;

/// A statement with its values.
pub type Statement<'q> = Query<'q, Postgres, PgArguments>;

/// A connection that rested this long is asked whether it is still there: less
/// than a database takes to start again, since a write that is sent over a
/// connection that was lost before cannot know that it was.
const RESTED: Duration = Duration::from_millis(250);
/// Bytes of unwanted rows that are read to keep a connection; past this a new
/// connection is cheaper.
const DRAIN: usize = 512 * 1024;

static NO_CONNECTION: Seldom = Seldom::new();
static NO_ANSWER: Seldom = Seldom::new();

/// A bounded number of connections to a database. Several pools may share its sessions.
pub struct Pool {
    max_connections: usize,
    slots: Arc<Semaphore>,
    owner: Owner,
    dial: Dial,
}

/// Why no connection was opened.
struct NotOpened {
    fault: Fault,
    /// Whether another session may serve instead.
    may_wait: bool,
}

impl Pool {
    /// An empty pool; connections are made as they are needed.
    pub fn new(dial: Dial, max_connections: usize, metrics: &'static metrics::Pool) -> Self {
        let owner = Owner { id: dial.sessions().new_owner(), metrics };
        Self { max_connections, slots: Arc::new(Semaphore::new(max_connections)), owner, dial }
    }

    /// Waits for a slot and hands out a connection, for statements that lock nothing.
    ///
    /// # Errors
    /// [`Fault::Busy`] without a slot or a connection in time,
    /// [`Fault::Unavailable`] if the database refuses all.
    pub async fn acquire(&self) -> Result<Lease<'_>, Trouble> {
        self.acquire_for(None).await
    }

    /// As [`Pool::acquire`], for statements that wait for locks as long as an operation may.
    pub async fn acquire_to_lock(&self) -> Result<Lease<'_>, Trouble> {
        self.acquire_for(Some(LockWait::Long)).await
    }

    /// As [`Pool::acquire`], for statements that wait for locks as given; `None` for
    /// those that take none.
    pub async fn acquire_for(&self, wait: Option<LockWait>) -> Result<Lease<'_>, Trouble> {
        let slot = Slot::new(self.slot().await?, self.owner.metrics);
        let until = Instant::now() + self.dial.acquire_timeout;
        let mut lease =
            Lease { pool: self, slot: Some(slot), session: None, running: false, in_transaction: false };
        loop {
            let session = self.session(wait, until).await.inspect_err(|trouble| self.count(*trouble))?;
            let is_sure = session.idle_since.elapsed() < RESTED && session.losses == self.dial.losses();
            lease.session = Some(session);
            if (is_sure || lease.answers().await) && lease.waits_for_locks(wait).await {
                return Ok(lease);
            }
        }
    }

    /// Whether the database allows more connections, as far as is known.
    pub fn may_open(&self) -> bool {
        self.dial.sessions().may_open()
    }

    async fn slot(&self) -> Result<OwnedSemaphorePermit, Trouble> {
        if let Ok(permit) = Arc::clone(&self.slots).try_acquire_owned() {
            return Ok(permit);
        }
        self.owner.metrics.waits.one();
        let slot = timeout(self.dial.acquire_timeout, Arc::clone(&self.slots).acquire_owned()).await;
        let slot = slot.inspect_err(|_| self.owner.metrics.timeouts.one()).map_err(|_| Fault::Busy)?;
        slot.map_err(|_| Fault::Unavailable.into())
    }

    fn count(&self, trouble: Trouble) {
        if trouble == Trouble::Fault(Fault::Busy) {
            self.owner.metrics.timeouts.one();
        }
    }

    /// An idle session of this pool, a new one, or else the next that becomes free.
    async fn session(&self, wait: Option<LockWait>, until: Instant) -> Result<Session, Trouble> {
        let in_use = self.max_connections.saturating_sub(self.slots.available_permits());
        // As many idle ones leave no room for one more.
        let limit = (self.max_connections + 1).saturating_sub(in_use);
        let sessions = self.dial.sessions();
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

    /// Waits in the queue of all pools, and meanwhile tries to open a session by turns.
    async fn wait(&self, wait: Option<LockWait>, until: Instant) -> Result<Session, Trouble> {
        let sessions = self.dial.sessions();
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
            let Some(_turn) = sessions.turn() else { continue };
            match self.open(wait, until).await {
                Ok(session) => sessions.give(session),
                Err(failed) if !failed.may_wait => return Err(failed.fault.into()),
                Err(_) => {}
            }
        }
    }

    async fn open(&self, wait: Option<LockWait>, until: Instant) -> Result<Session, NotOpened> {
        if self.dial.is_silent() {
            return Err(NotOpened { fault: Fault::Busy, may_wait: false });
        }
        let opened = self.dial.open(self.owner, wait.unwrap_or(LockWait::Short), until).await;
        match opened {
            Some(Ok(session)) => {
                self.dial.sessions().opened();
                self.owner.metrics.opened.one();
                Ok(session)
            }
            failed => {
                self.owner.metrics.failures.one();
                let not_opened = self.not_opened(failed.and_then(Result::err));
                self.dial.sessions().refused(!not_opened.may_wait);
                Err(not_opened)
            }
        }
    }

    fn not_opened(&self, error: Option<sqlx::Error>) -> NotOpened {
        // None in time is nothing to try at once again.
        let Some(error) = error else { return NotOpened { fault: Fault::Busy, may_wait: false } };
        if let Some(Turn { left_out }) = NO_CONNECTION.turn() {
            tracing::warn!(%error, left_out, "cannot connect to the database");
        }
        let may_wait = is_limit(&error) || self.dial.sessions().is_any_alive();
        NotOpened { fault: Fault::Unavailable, may_wait }
    }

    /// Closes the connections of this pool that nobody uses.
    fn clear(&self) {
        self.dial.sessions().clear(self.owner.id);
    }
}

impl Drop for Pool {
    fn drop(&mut self) {
        self.clear();
    }
}

/// The right to one session of the database.
struct Slot {
    _permit: OwnedSemaphorePermit,
    metrics: &'static metrics::Pool,
}

impl Slot {
    fn new(permit: OwnedSemaphorePermit, metrics: &'static metrics::Pool) -> Self {
        metrics.in_use.add(1);
        Self { _permit: permit, metrics }
    }
}

impl Drop for Slot {
    fn drop(&mut self) {
        self.metrics.in_use.add(-1);
    }
}

/// A connection on loan.
pub struct Lease<'p> {
    pool: &'p Pool,
    /// There until it ends.
    slot: Option<Slot>,
    session: Option<Session>,
    /// A statement is under way; stays set if its future is dropped.
    running: bool,
    in_transaction: bool,
}

impl Drop for Lease<'_> {
    fn drop(&mut self) {
        let Some(mut session) = self.session.take() else { return };
        if self.running {
            drop(session);
            self.outlive();
        } else if !self.in_transaction {
            (session.owner, session.idle_since) = (self.pool.owner, Instant::now());
            self.pool.dial.sessions().give(session);
        }
    }
}

impl Lease<'_> {
    /// Runs a statement and returns its rows once the server is done with it:
    /// a write has then been committed, unless a transaction is open.
    pub async fn rows(&mut self, statement: Statement<'_>, effect: Effect) -> Result<Vec<PgRow>, Trouble> {
        let pool = self.pool;
        let connection = self.start()?;
        let result = pool.dial.watch(statement.fetch_all(connection)).await;
        self.settle(result, effect)
    }

    /// Like [`Lease::rows`], for at most one row.
    pub async fn row(&mut self, statement: Statement<'_>, effect: Effect) -> Result<Option<PgRow>, Trouble> {
        let pool = self.pool;
        let connection = self.start()?;
        let result = pool.dial.watch(statement.fetch_optional(connection)).await;
        self.settle(result, effect)
    }

    /// Like [`Lease::rows`], for a statement that yields none; how many rows it has changed.
    pub async fn changed(&mut self, statement: Statement<'_>, effect: Effect) -> Result<usize, Trouble> {
        let pool = self.pool;
        let connection = self.start()?;
        let result = pool.dial.watch(statement.execute(connection)).await;
        let done = self.settle(result, effect)?;
        usize::try_from(done.rows_affected()).map_err(|_| Fault::Other.into())
    }

    /// Shows each row of a read to `visit` until that has enough.
    pub async fn stream(
        &mut self,
        statement: Statement<'_>,
        visit: &mut (dyn FnMut(&PgRow) -> Result<ControlFlow<()>, sqlx::Error> + Send),
    ) -> Result<(), Trouble> {
        let pool = self.pool;
        let connection = self.start()?;
        let drained = pool.dial.watch(async {
            let mut rows = statement.fetch(connection);
            while let Some(row) = rows.try_next().await? {
                if visit(&row)?.is_continue() {
                    continue;
                }
                let mut unwanted = 0;
                while let Some(row) = rows.try_next().await? {
                    unwanted += weight(&row)?;
                    if unwanted > DRAIN {
                        return Ok(false);
                    }
                }
            }
            Ok(true)
        });
        let drained = drained.await;
        if !self.settle(drained, Effect::Undone)? {
            self.session = None;
        }
        Ok(())
    }

    /// Opens a transaction that sees every commit of others as it happens.
    pub async fn begin(&mut self) -> Result<(), Trouble> {
        self.open_transaction("BEGIN ISOLATION LEVEL READ COMMITTED").await
    }

    /// Opens a transaction whose reads all see one snapshot.
    pub async fn begin_snapshot(&mut self) -> Result<(), Trouble> {
        self.open_transaction("BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY").await
    }

    /// The same, where no statement may take longer than `limit`.
    pub async fn begin_snapshot_within(&mut self, limit: Duration) -> Result<(), Trouble> {
        let millis = limit.as_millis().max(1);
        let text = format!(
            "BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY; SET LOCAL statement_timeout = {millis}"
        );
        // Fixed text with a number of ours in it.
        self.control(sqlx::AssertSqlSafe(text), Effect::Undone).await?;
        self.in_transaction = true;
        Ok(())
    }

    async fn open_transaction(&mut self, text: &'static str) -> Result<(), Trouble> {
        self.control(text, Effect::Undone).await?;
        self.in_transaction = true;
        Ok(())
    }

    /// Commits. A failure means that the outcome is unknown, unless the server
    /// says that it rolled back.
    pub async fn commit(&mut self) -> Result<(), Trouble> {
        self.control("COMMIT", Effect::Unknown).await?;
        self.in_transaction = false;
        Ok(())
    }

    /// Ends a transaction that only read, if one is open.
    pub async fn end_snapshot(&mut self) -> Result<(), Trouble> {
        if self.in_transaction && self.session.is_some() {
            self.control("COMMIT", Effect::Undone).await?;
        }
        self.in_transaction = false;
        Ok(())
    }

    /// Ends the transaction without effect. Where that fails the connection
    /// goes, and the transaction with it.
    pub async fn roll_back(&mut self) {
        if self.session.is_some() && self.control("ROLLBACK", Effect::Undone).await.is_ok() {
            self.in_transaction = false;
        }
    }

    /// Tells the session how long to wait for locks, if that makes a difference.
    async fn waits_for_locks(&mut self, wait: Option<LockWait>) -> bool {
        let (Some(session), Some(wait)) = (&self.session, wait) else { return true };
        if session.lock_wait == wait {
            return true;
        }
        let text = AssertSqlSafe(self.pool.dial.set_lock_wait(wait));
        let is_told = self.control(text, Effect::Undone).await.is_ok();
        match &mut self.session {
            Some(session) if is_told => session.lock_wait = wait,
            _ => self.session = None,
        }
        is_told
    }

    async fn control(&mut self, text: impl SqlSafeStr, effect: Effect) -> Result<(), Trouble> {
        let pool = self.pool;
        let connection = self.start()?;
        let result = pool.dial.watch(sqlx::raw_sql(text).execute(connection)).await;
        self.settle(result, effect).map(|_| ())
    }

    /// Whether a connection that rested is still there. Half the wait for a
    /// connection is left to make another.
    async fn answers(&mut self) -> bool {
        let limit = self.pool.dial.acquire_timeout / 2;
        let Ok(connection) = self.start() else { return false };
        let result = timeout(limit, connection.ping()).await;
        let result = result.map_or(Err(Ended::Silent), |done| done.map_err(Ended::Failed));
        self.settle(result, Effect::Undone).is_ok()
    }

    /// Keeps the slot until the database has noticed that the connection is closed.
    fn outlive(&mut self) {
        let slot = self.slot.take();
        if let Ok(runtime) = Handle::try_current() {
            runtime.spawn(async move {
                tokio::time::sleep(2 * CHECKED).await;
                drop(slot);
            });
        }
    }

    fn start(&mut self) -> Result<&mut PgConnection, Trouble> {
        let session = self.session.as_mut().ok_or(Fault::Unavailable)?;
        session.losses = self.pool.dial.losses();
        self.running = true;
        Ok(&mut session.connection)
    }

    fn settle<T>(&mut self, result: Result<T, Ended>, effect: Effect) -> Result<T, Trouble> {
        self.running = false;
        match result {
            Ok(value) => Ok(value),
            Err(Ended::Failed(error)) => {
                if breaks_connection(&error) {
                    self.discard_all();
                }
                Err(judge(&error, effect))
            }
            Err(Ended::Silent) => {
                self.discard_all();
                Err(silent(effect))
            }
            Err(Ended::Late) => {
                if let Some(Turn { left_out }) = NO_ANSWER.turn() {
                    tracing::warn!(left_out, "the database did not answer a statement in time");
                }
                self.session = None;
                Err(Fault::Timeout.into())
            }
        }
    }

    /// Closes this connection and, as what ended it has most likely ended them
    /// too, the resting ones. Those of other pools are asked before they are used.
    fn discard_all(&mut self) {
        self.session = None;
        self.pool.dial.lost_one();
        self.pool.clear();
    }
}
