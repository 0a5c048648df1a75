//! Connections checked out without a round trip.
//!
//! A runtime hears of what comes over the connections that were opened in it. One
//! that another runtime opened has that runtime's thread woken for each piece of an
//! answer, and then the thread that waits. So each thread uses its own connections
//! while there may be more, and those of others only after that.
//!
//! A connection goes back on the stack only if its last statement is known to
//! have ended outside a transaction. One whose statement was given up half-way,
//! or that failed as a connection, is closed; the server rolls back. Where it waits
//! for a lock it only notices when it looks, and until then its session counts.

use std::ops::ControlFlow;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use futures_util::TryStreamExt;
use sqlx::postgres::{PgArguments, PgRow};
use sqlx::query::Query;
use sqlx::{Connection, PgConnection, Postgres, SqlSafeStr};
use tokio::runtime::{self, Handle};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::time::{Instant, timeout};

use super::dial::CHECKED;
use super::dial::{Dial, Ended};
use super::fault::{Effect, Trouble, breaks_connection, judge, silent};
use super::read::weight;
use crate::metrics;
use crate::metrics::seldom::{Seldom, Turn};
use crate::store::Fault;

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

/// A bounded stack of connections.
pub struct Pool {
    max_connections: usize,
    slots: Arc<Semaphore>,
    idle: Mutex<Vec<Resting>>,
    dial: Dial,
    metrics: &'static metrics::Pool,
}

/// A connection that nobody uses.
struct Resting {
    connection: PgConnection,
    home: runtime::Id,
    since: Instant,
    /// Losses of others before its last statement.
    losses: u64,
}

impl Pool {
    /// An empty pool; connections are made as they are needed.
    pub fn new(dial: Dial, max_connections: usize, metrics: &'static metrics::Pool) -> Self {
        let (slots, idle) = (Arc::new(Semaphore::new(max_connections)), Mutex::default());
        Self { max_connections, slots, idle, dial, metrics }
    }

    /// Waits for a slot and hands out a connection.
    ///
    /// # Errors
    /// [`Fault::Busy`] without a slot or a connection in time,
    /// [`Fault::Unavailable`] if the database refuses one.
    pub async fn acquire(&self) -> Result<Lease<'_>, Trouble> {
        let permit = match Arc::clone(&self.slots).try_acquire_owned() {
            Ok(permit) => permit,
            Err(_) => {
                self.metrics.waits.one();
                let slot = Arc::clone(&self.slots).acquire_owned();
                let slot = timeout(self.dial.acquire_timeout, slot).await;
                slot.inspect_err(|_| self.metrics.timeouts.one())
                    .map_err(|_| Fault::Busy)?
                    .map_err(|_| Fault::Unavailable)?
            }
        };
        let until = Instant::now() + self.dial.acquire_timeout;
        let mut lease = Lease {
            pool: self,
            slot: Some(Slot::new(permit, self.metrics)),
            connection: None,
            home: Handle::current().id(),
            losses: self.dial.losses(),
            running: false,
            in_transaction: false,
        };
        let here = lease.home;
        while let Some(resting) = self.pop(here) {
            let is_sure = resting.since.elapsed() < RESTED && resting.losses == lease.losses;
            (lease.connection, lease.home) = (Some(resting.connection), resting.home);
            if is_sure || lease.answers().await {
                return Ok(lease);
            }
        }
        let opened = self.open(until).await.inspect_err(|_| self.metrics.failures.one())?;
        (lease.connection, lease.home) = (Some(opened), here);
        self.metrics.opened.one();
        Ok(lease)
    }

    async fn open(&self, until: Instant) -> Result<PgConnection, Fault> {
        if self.dial.is_silent() {
            return Err(Fault::Busy);
        }
        // None in time is nothing to try at once again.
        let opened = self.dial.open(until).await.ok_or(Fault::Busy)?;
        opened.map_err(|error| {
            if let Some(Turn { left_out }) = NO_CONNECTION.turn() {
                tracing::warn!(%error, left_out, "cannot connect to the database");
            }
            Fault::Unavailable
        })
    }

    /// The connection of a runtime that was used last, or somebody's if no more may
    /// be opened. Whoever asks has a slot.
    fn pop(&self, home: runtime::Id) -> Option<Resting> {
        let mut resting = self.resting();
        let own = resting.iter().rposition(|resting| resting.home == home);
        let in_use = self.max_connections.saturating_sub(self.slots.available_permits());
        let is_full = resting.len() + in_use > self.max_connections;
        let chosen = own.or_else(|| is_full.then(|| resting.len().checked_sub(1)).flatten())?;
        self.metrics.idle.add(-1);
        Some(resting.remove(chosen))
    }

    fn push(&self, connection: PgConnection, home: runtime::Id, losses: u64) {
        self.resting().push(Resting { connection, home, since: Instant::now(), losses });
        self.metrics.idle.add(1);
    }

    /// Closes the connections that nobody uses.
    fn clear(&self) {
        let resting = std::mem::take(&mut *self.resting());
        // A stack of connections is never near that long.
        self.metrics.idle.add(-(resting.len() as i64));
    }

    fn resting(&self) -> MutexGuard<'_, Vec<Resting>> {
        self.idle.lock().unwrap_or_else(PoisonError::into_inner)
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
    connection: Option<PgConnection>,
    /// Where the connection was opened.
    home: runtime::Id,
    /// Losses of others before its last statement.
    losses: u64,
    /// A statement is under way; stays set if its future is dropped.
    running: bool,
    in_transaction: bool,
}

impl Drop for Lease<'_> {
    fn drop(&mut self) {
        let Some(connection) = self.connection.take() else { return };
        if self.running {
            drop(connection);
            self.outlive();
        } else if !self.in_transaction {
            self.pool.push(connection, self.home, self.losses);
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
        if self.in_transaction && self.connection.is_some() {
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
        let connection = self.connection.as_mut().ok_or(Fault::Unavailable)?;
        self.losses = self.pool.dial.losses();
        self.running = true;
        Ok(connection)
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
                self.connection = None;
                Err(Fault::Timeout.into())
            }
        }
    }

    /// Closes this connection and, as what ended it has most likely ended them
    /// too, the resting ones. Those of other pools are asked before they are used.
    fn discard_all(&mut self) {
        self.connection = None;
        self.pool.dial.lost_one();
        self.pool.clear();
    }
}
