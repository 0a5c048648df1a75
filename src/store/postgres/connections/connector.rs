//! How connections are made, and whether the database still answers.
//!
//! A slow statement and a silent database look the same on the connection that waits. So while a
//! statement is quiet, a probe asks on a new connection. If that gets no answer either, the wait
//! ends.

use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use sqlx::postgres::PgConnectOptions;
use sqlx::{Connection, PgConnection};
use tokio::runtime::Handle;
use tokio::time::{Instant, timeout};

use crate::metrics::warning_limiter::{DueWarning, WarningLimiter};
use crate::store::postgres::connections::options::{PgOptions, StartError};
use crate::store::postgres::connections::sessions::{LockWait, Owner, Session, Sessions};

/// How much longer than the server we wait for a statement's end.
const GRACE: Duration = Duration::from_secs(2);
/// Part of the wait for a connection after which a quiet statement is doubted.
const QUIET: u32 = 5;
/// How often the database looks whether we still wait for a statement's end.
pub(crate) const CHECKED: Duration = Duration::from_millis(250);
/// How long a database that was found silent is not asked again.
const PAUSE: Duration = Duration::from_secs(1);
/// How long a statement waits for a locked row on a connection that others need.
const SHORT_LOCK_TIMEOUT: Duration = Duration::from_millis(20);
/// Different lifetimes of sessions.
const LIFETIMES: u32 = 16;

static SILENT: WarningLimiter = WarningLimiter::new();

/// How connections are made, and how long anyone waits for one.
#[derive(Clone)]
pub(crate) struct Connector {
    connect: PgConnectOptions,
    session: String,
    lock_timeout: Duration,
    max_lifetime: Duration,
    /// How long to wait for a turn, and how long for a connection.
    pub acquire_timeout: Duration,
    statement_timeout: Duration,
    /// Shared by all pools of a database, since they all fall silent together.
    state: Arc<DatabaseState>,
}

/// What is known about the database.
#[derive(Default)]
struct DatabaseState {
    /// When a new connection was last tried, and whether the database answered.
    /// Who holds it is asking, and the others wait for what it finds.
    asked: tokio::sync::Mutex<Option<(Instant, bool)>>,
    silent: Mutex<Option<Instant>>,
    losses: AtomicU64,
    opened: AtomicU32,
    sessions: Sessions,
}

/// Why a statement was not waited for.
#[derive(Debug)]
pub(crate) enum Ended {
    /// It failed.
    Failed(sqlx::Error),
    /// It took longer than any may.
    Late,
    /// The database does not answer anybody.
    Silent,
}

impl Connector {
    /// What the settings say.
    pub(crate) fn new(options: &PgOptions) -> Result<Self, StartError> {
        Ok(Self {
            connect: PgOptions::connect_options(&options.url)?,
            session: options.session(),
            lock_timeout: options.lock_timeout(),
            max_lifetime: options.max_lifetime,
            acquire_timeout: options.acquire_timeout,
            statement_timeout: options.operation_timeout + GRACE,
            state: Arc::default(),
        })
    }

    /// The same, but the server refuses statements that write.
    pub(crate) fn read_only(mut self) -> Self {
        self.session.push_str("; SET default_transaction_read_only = on");
        self
    }

    /// Opens a session; `None` if that takes longer than until `end`.
    pub(crate) async fn open(
        &self,
        owner: Owner,
        lock_wait: LockWait,
        end: Instant,
    ) -> Option<Result<Session, sqlx::Error>> {
        let session = format!("{}; {}", self.session, self.set_lock_wait(lock_wait));
        let opened = tokio::time::timeout_at(end, async {
            let mut connection = PgConnection::connect_with(&self.connect).await?;
            // Fixed text with numbers of ours in it.
            sqlx::raw_sql(sqlx::AssertSqlSafe(session)).execute(&mut connection).await?;
            // Not every system that PostgreSQL runs on can tell.
            let check = format!("SET client_connection_check_interval = {}", CHECKED.as_millis());
            match sqlx::raw_sql(sqlx::AssertSqlSafe(check)).execute(&mut connection).await {
                Ok(_) | Err(sqlx::Error::Database(_)) => Ok(connection),
                Err(error) => Err(error),
            }
        });
        let opened = opened.await.ok();
        if opened.is_none() {
            self.fell_silent();
        }
        opened.map(|opened| opened.map(|connection| self.session(connection, owner, lock_wait)))
    }

    fn session(&self, connection: PgConnection, owner: Owner, lock_wait: LockWait) -> Session {
        // Connections that were opened together must not expire together.
        let number = self.state.opened.fetch_add(1, Ordering::Relaxed) % LIFETIMES;
        let lifetime = self.max_lifetime + self.max_lifetime * number / (4 * LIFETIMES);
        let (now, home) = (Instant::now(), Handle::current().id());
        let (expires, _alive) = (now + lifetime, self.state.sessions.count_one());
        Session {
            connection,
            home,
            lock_wait,
            expires,
            losses: self.losses(),
            idle_since: now,
            owner,
            _alive,
        }
    }

    /// The sessions that all pools of the database share.
    pub(crate) fn sessions(&self) -> &Sessions {
        &self.state.sessions
    }

    /// Closes what is not used, for as long as there is a pool.
    pub(crate) fn close_unused(&self, limit: Duration) {
        let state = Arc::downgrade(&self.state);
        let Ok(runtime) = Handle::try_current() else { return };
        runtime.spawn(async move {
            loop {
                tokio::time::sleep((limit / 4).max(CHECKED)).await;
                let Some(state) = state.upgrade() else { return };
                state.sessions.close_unused(limit).await;
            }
        });
    }

    /// The statement that sets how long a session waits for locks.
    pub(crate) fn set_lock_wait(&self, wait: LockWait) -> String {
        let limit = match wait {
            LockWait::Short => SHORT_LOCK_TIMEOUT.min(self.lock_timeout),
            LockWait::Long => self.lock_timeout,
        };
        format!("SET lock_timeout = {}", limit.as_millis())
    }

    /// Waits for a statement for as long as it may take and the database answers.
    pub(crate) async fn watch<T>(
        &self,
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
                answers = self.answers() => if !answers { return Err(Ended::Silent) },
            }
            quiet = self.acquire_timeout;
        }
    }

    /// Whether a new connection gets an answer. Concurrent callers share one probe (single-flight).
    async fn answers(&self) -> bool {
        let now = Instant::now();
        let mut asked = self.state.asked.lock().await;
        if let Some((when, answers)) = *asked
            && when >= now
        {
            return answers;
        }
        // A refusal is an answer too.
        let answers = match timeout(self.acquire_timeout, PgConnection::connect_with(&self.connect)).await {
            Ok(Ok(_) | Err(sqlx::Error::Database(_))) => true,
            Ok(Err(_)) | Err(_) => false,
        };
        *asked = Some((Instant::now(), answers));
        if !answers {
            self.fell_silent();
        }
        answers
    }

    fn fell_silent(&self) {
        if let Some(DueWarning { left_out }) = SILENT.turn() {
            tracing::warn!(left_out, "the database does not answer");
        }
        *self.state.silent.lock().unwrap_or_else(PoisonError::into_inner) = Some(Instant::now());
    }

    /// Whether a wait for the database has just ended without an answer.
    pub(crate) fn is_silent(&self) -> bool {
        let silent = *self.state.silent.lock().unwrap_or_else(PoisonError::into_inner);
        silent.is_some_and(|when| when.elapsed() < PAUSE)
    }

    /// Notes that a connection was lost.
    pub(crate) fn lost_one(&self) {
        self.state.losses.fetch_add(1, Ordering::Relaxed);
    }

    /// How many connections were lost so far. A connection that worked before the
    /// last loss may be gone as well.
    pub(crate) fn losses(&self) -> u64 {
        self.state.losses.load(Ordering::Relaxed)
    }
}
