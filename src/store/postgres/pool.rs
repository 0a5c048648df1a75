//! Connections checked out without a round trip.
//!
//! A connection goes back on the stack only if its last statement is known to
//! have ended outside a transaction. One whose statement was given up half-way,
//! or that failed as a connection, is closed; the server rolls back.

use std::ops::ControlFlow;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use futures_util::TryStreamExt;
use sqlx::postgres::{PgArguments, PgConnectOptions, PgRow};
use sqlx::query::Query;
use sqlx::{Connection, PgConnection, Postgres};
use tokio::sync::{Semaphore, SemaphorePermit};
use tokio::time::{Instant, timeout};

use super::fault::{Effect, Trouble, breaks_connection, judge};
use super::options::{PgOptions, StartError};
use super::read::weight;
use crate::metrics;
use crate::metrics::seldom::{Seldom, Turn};
use crate::store::Fault;

/// A statement with its values.
pub type Statement<'q> = Query<'q, Postgres, PgArguments>;

/// A connection that rested this long is asked whether it is still there.
const RESTED: Duration = Duration::from_secs(2);
/// How much longer than the server we wait for a statement's end.
const GRACE: Duration = Duration::from_secs(2);
/// Bytes of unwanted rows that are read to keep a connection; past this a new
/// connection is cheaper.
const DRAIN: usize = 512 * 1024;

static NO_CONNECTION: Seldom = Seldom::new();
static NO_ANSWER: Seldom = Seldom::new();

/// How connections are made, and how long anyone waits for one.
#[derive(Clone)]
pub struct Dial {
    connect: PgConnectOptions,
    session: String,
    acquire_timeout: Duration,
    statement_timeout: Duration,
}

impl Dial {
    /// What the settings say.
    pub fn new(options: &PgOptions) -> Result<Self, StartError> {
        Ok(Self {
            connect: PgOptions::connect_options(&options.url)?,
            session: options.session(),
            acquire_timeout: options.acquire_timeout,
            statement_timeout: options.operation_timeout + GRACE,
        })
    }

    /// The same, but statements give up on a held row after `limit`.
    pub fn waiting_for_locks(mut self, limit: Duration) -> Self {
        self.session.push_str(&format!("; SET lock_timeout = {}", limit.as_millis()));
        self
    }

    /// The same, but the server refuses statements that write.
    pub fn read_only(mut self) -> Self {
        self.session.push_str("; SET default_transaction_read_only = on");
        self
    }

    async fn open(&self) -> Result<PgConnection, sqlx::Error> {
        let mut connection = PgConnection::connect_with(&self.connect).await?;
        // Fixed text with numbers of ours in it.
        sqlx::raw_sql(sqlx::AssertSqlSafe(self.session.clone())).execute(&mut connection).await?;
        Ok(connection)
    }
}

/// A bounded stack of connections.
pub struct Pool {
    slots: Semaphore,
    idle: Mutex<Vec<(PgConnection, Instant)>>,
    dial: Dial,
    metrics: &'static metrics::Pool,
}

impl Pool {
    /// An empty pool; connections are made as they are needed.
    pub fn new(dial: Dial, max_connections: usize, metrics: &'static metrics::Pool) -> Self {
        Self { slots: Semaphore::new(max_connections), idle: Mutex::new(Vec::new()), dial, metrics }
    }

    /// Waits for a slot and hands out a connection.
    ///
    /// # Errors
    /// [`Fault::Busy`] without a slot in time, [`Fault::Unavailable`] without a
    /// connection.
    pub async fn acquire(&self) -> Result<Lease<'_>, Trouble> {
        let slot = match self.slots.try_acquire() {
            Ok(slot) => slot,
            Err(_) => {
                self.metrics.waits.one();
                let slot = timeout(self.dial.acquire_timeout, self.slots.acquire()).await;
                slot.inspect_err(|_| self.metrics.timeouts.one())
                    .map_err(|_| Fault::Busy)?
                    .map_err(|_| Fault::Unavailable)?
            }
        };
        self.metrics.in_use.add(1);
        let mut lease =
            Lease { pool: self, _slot: slot, connection: None, running: false, in_transaction: false };
        while let Some((connection, since)) = self.pop() {
            lease.connection = Some(connection);
            if since.elapsed() < RESTED || lease.answers().await {
                return Ok(lease);
            }
        }
        lease.connection = Some(self.open().await.inspect_err(|_| self.metrics.failures.one())?);
        self.metrics.opened.one();
        Ok(lease)
    }

    async fn open(&self) -> Result<PgConnection, Fault> {
        let opened = timeout(self.dial.acquire_timeout, self.dial.open()).await.map_err(|_| {
            if let Some(Turn { left_out }) = NO_CONNECTION.turn() {
                tracing::warn!(left_out, "connecting to the database took too long");
            }
            Fault::Unavailable
        })?;
        opened.map_err(|error| {
            if let Some(Turn { left_out }) = NO_CONNECTION.turn() {
                tracing::warn!(%error, left_out, "cannot connect to the database");
            }
            Fault::Unavailable
        })
    }

    fn pop(&self) -> Option<(PgConnection, Instant)> {
        let popped = self.resting().pop();
        if popped.is_some() {
            self.metrics.idle.add(-1);
        }
        popped
    }

    fn push(&self, connection: PgConnection) {
        self.resting().push((connection, Instant::now()));
        self.metrics.idle.add(1);
    }

    /// Closes the connections that nobody uses.
    fn clear(&self) {
        let resting = std::mem::take(&mut *self.resting());
        // A stack of connections is never near that long.
        self.metrics.idle.add(-(resting.len() as i64));
    }

    fn resting(&self) -> MutexGuard<'_, Vec<(PgConnection, Instant)>> {
        self.idle.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for Pool {
    fn drop(&mut self) {
        self.clear();
    }
}

/// A connection on loan.
pub struct Lease<'p> {
    pool: &'p Pool,
    _slot: SemaphorePermit<'p>,
    connection: Option<PgConnection>,
    /// A statement is under way; stays set if its future is dropped.
    running: bool,
    in_transaction: bool,
}

impl Drop for Lease<'_> {
    fn drop(&mut self) {
        self.pool.metrics.in_use.add(-1);
        if self.running || self.in_transaction {
            return;
        }
        if let Some(connection) = self.connection.take() {
            self.pool.push(connection);
        }
    }
}

impl Lease<'_> {
    /// Runs a statement and returns its rows once the server is done with it:
    /// a write has then been committed, unless a transaction is open.
    pub async fn rows(&mut self, statement: Statement<'_>, effect: Effect) -> Result<Vec<PgRow>, Trouble> {
        let limit = self.pool.dial.statement_timeout;
        let connection = self.start()?;
        let result = timeout(limit, statement.fetch_all(connection)).await;
        self.settle(result, effect)
    }

    /// Like [`Lease::rows`], for at most one row.
    pub async fn row(&mut self, statement: Statement<'_>, effect: Effect) -> Result<Option<PgRow>, Trouble> {
        let limit = self.pool.dial.statement_timeout;
        let connection = self.start()?;
        let result = timeout(limit, statement.fetch_optional(connection)).await;
        self.settle(result, effect)
    }

    /// Shows each row of a read to `visit` until that has enough.
    pub async fn stream(
        &mut self,
        statement: Statement<'_>,
        visit: &mut (dyn FnMut(&PgRow) -> Result<ControlFlow<()>, sqlx::Error> + Send),
    ) -> Result<(), Trouble> {
        let limit = self.pool.dial.statement_timeout;
        let connection = self.start()?;
        let drained = timeout(limit, async {
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
            self.connection = None;
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

    /// Ends a transaction that only read.
    pub async fn end_snapshot(&mut self) -> Result<(), Trouble> {
        if self.connection.is_some() {
            self.control("COMMIT", Effect::Undone).await?;
        }
        self.in_transaction = false;
        Ok(())
    }

    /// Ends the transaction without effect. Where that fails the connection
    /// goes, and the transaction with it.
    pub async fn roll_back(&mut self) {
        if self.connection.is_some() && self.control("ROLLBACK", Effect::Undone).await.is_ok() {
            self.in_transaction = false;
        }
    }

    async fn control(&mut self, text: &'static str, effect: Effect) -> Result<(), Trouble> {
        let limit = self.pool.dial.statement_timeout;
        let connection = self.start()?;
        let result = timeout(limit, sqlx::raw_sql(text).execute(connection)).await;
        self.settle(result, effect).map(|_| ())
    }

    async fn answers(&mut self) -> bool {
        let limit = self.pool.dial.acquire_timeout;
        let Ok(connection) = self.start() else { return false };
        let result = timeout(limit, connection.ping()).await;
        self.settle(result, Effect::Undone).is_ok()
    }

    fn start(&mut self) -> Result<&mut PgConnection, Trouble> {
        let connection = self.connection.as_mut().ok_or(Fault::Unavailable)?;
        self.running = true;
        Ok(connection)
    }

    fn settle<T>(
        &mut self,
        result: Result<Result<T, sqlx::Error>, tokio::time::error::Elapsed>,
        effect: Effect,
    ) -> Result<T, Trouble> {
        self.running = false;
        match result {
            Ok(Ok(value)) => Ok(value),
            Ok(Err(error)) => {
                if breaks_connection(&error) {
                    self.discard_all();
                }
                Err(judge(&error, effect))
            }
            Err(_) => {
                if let Some(Turn { left_out }) = NO_ANSWER.turn() {
                    tracing::warn!(left_out, "the database did not answer a statement in time");
                }
                self.connection = None;
                Err(Fault::Timeout.into())
            }
        }
    }

    /// Closes this connection and, as what ended it has most likely ended them
    /// too, the resting ones.
    fn discard_all(&mut self) {
        self.connection = None;
        self.pool.clear();
    }
}
