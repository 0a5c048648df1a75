//! Builds, measures and removes property indexes.
//!
//! One process per database builds or removes indexes at a time, because two would wait for each other. It has a
//! separate session without the timeouts of client statements.

use std::time::{Duration, Instant};

use sqlx::postgres::PgRow;
use sqlx::{AssertSqlSafe, Executor as _, FromRow, PgConnection, Row};
use tokio::time::timeout;

use crate::postgres::PgStore;
use crate::postgres::connections::hosts::Hosts;
use crate::postgres::connections::options::{CLIENT_CHECK, NO_TRANSACTION_TIMEOUT, end_if_abandoned};
use crate::postgres::connections::search_path::SearchPath;
use crate::postgres::connections::sessions::close;
use crate::postgres::fault::{Effect, StatementError, explain_refusal, judge};
use crate::postgres::retry::retry;
use crate::postgres::rows::broken_row;
use crate::postgres::statements::indexes as texts;
use crate::protocol::model::Ticks;
use crate::protocol::plan::index::PropertyIndex;
use crate::{BuiltIndex, Failure, Fault, IndexFigures, StoreResult, StoredIndex};

/// The settings of the session: no timeouts, and the parser that the quoted literals require.
const SESSION: &str = "SET statement_timeout = 0; SET lock_timeout = 0; \
     SET idle_in_transaction_session_timeout = 0; SET standard_conforming_strings = on; \
     SET tcp_keepalives_idle = 30; SET tcp_keepalives_interval = 10; SET tcp_keepalives_count = 3";

/// Timeout of one attempt to remove a part. A removal waits until no transaction can use the part, and blocks all
/// other builds and removals.
const REMOVAL_LIMIT: Duration = Duration::from_secs(10);
/// Lock wait before a log entry names the blocking sessions, and minimum interval between these entries.
const PATIENCE: Duration = Duration::from_secs(5);
/// Maximum consecutive checks that fail or find no session, before the session's work is abandoned.
const MAX_MISSES: u32 = 3;
const REPEAT: Duration = Duration::from_secs(300);

/// Formats a session for the log.
fn blocker(row: &PgRow) -> Result<Option<String>, StatementError> {
    let pid: Option<i32> = row.try_get("pid").map_err(broken_row)?;
    let Some(pid) = pid else { return Ok(None) };
    let application: Option<String> = row.try_get("application_name").map_err(broken_row)?;
    Ok(Some(match application.filter(|name| !name.is_empty()) {
        Some(name) => format!("the session {pid} ({name})"),
        None => format!("the session {pid}"),
    }))
}

/// A part of an index in the database.
#[derive(FromRow)]
struct IndexPart {
    name: String,
    relname: String,
    #[sqlx(rename = "indisvalid")]
    is_valid: bool,
    bytes: i64,
    uses: i64,
    progress: Option<f64>,
    /// The process id of the session that builds the part.
    pid: Option<i32>,
}

fn read_parts(rows: &[PgRow]) -> StoreResult<Vec<IndexPart>> {
    let parts: sqlx::Result<_> = rows.iter().map(IndexPart::from_row).collect();
    Ok(parts.map_err(broken_row)?)
}

enum DefinitionError {
    /// The database refuses the definition itself or the role.
    Refused(String),
    Failed(Failure),
}

impl From<Failure> for DefinitionError {
    fn from(failure: Failure) -> Self {
        DefinitionError::Failed(failure)
    }
}

impl From<DefinitionError> for Failure {
    fn from(error: DefinitionError) -> Self {
        match error {
            // The reason has been logged.
            DefinitionError::Refused(_) => Fault::Other.into(),
            DefinitionError::Failed(failure) => failure,
        }
    }
}

/// A session of the role that builds and removes indexes. A session that has the lock holds it until it closes.
struct BuildSession {
    connection: PgConnection,
    pid: i32,
}

impl BuildSession {
    /// Opens a session without the lock. PostgreSQL lets only this role see the progress of a build or cancel it.
    async fn open_to_watch(hosts: &Hosts, path: &SearchPath) -> StoreResult<Self> {
        let (mut connection, _) = hosts.connect().await.map_err(failed)?;
        connection.execute(sqlx::raw_sql(AssertSqlSafe(path.statement()))).await.map_err(failed)?;
        Ok(Self { connection, pid: 0 })
    }

    /// Opens a session; `None` if another session has the lock.
    async fn open(hosts: &Hosts, path: &SearchPath) -> StoreResult<Option<Self>> {
        let mut session = Self::open_to_watch(hosts, path).await?;
        session.connection.execute(sqlx::raw_sql(SESSION)).await.map_err(failed)?;
        session.connection.execute(sqlx::raw_sql(NO_TRANSACTION_TIMEOUT)).await.map_err(failed)?;
        end_if_abandoned(&mut session.connection, CLIENT_CHECK).await.map_err(failed)?;
        let locked = session.rows(sqlx::query(texts::LOCK_BUILDS)).await?;
        let row = locked.first().ok_or(Fault::Other)?;
        session.pid = row.try_get("pid").map_err(broken_row)?;
        let is_locked = row.try_get("locked").map_err(broken_row)?;
        Ok(if is_locked { Some(session) } else { None })
    }

    async fn rows(
        &mut self,
        query: sqlx::query::Query<'_, sqlx::Postgres, sqlx::postgres::PgArguments>,
    ) -> StoreResult<Vec<PgRow>> {
        Ok(query.fetch_all(&mut self.connection).await.map_err(failed)?)
    }

    /// Executes DDL without parameters.
    async fn define(&mut self, text: String) -> Result<(), DefinitionError> {
        // The text has only constants, and numbers and names that `statements::indexes` quotes.
        let done = sqlx::raw_sql(AssertSqlSafe(text)).execute(&mut self.connection).await;
        done.map(|_| ()).map_err(|error| {
            let judged = judge(&error, Effect::Undone);
            match explain_refusal(&error, judged) {
                Some(reason) => DefinitionError::Refused(reason),
                None => DefinitionError::Failed(judged.into()),
            }
        })
    }

    async fn parts(&mut self, index_no: i64) -> StoreResult<Vec<IndexPart>> {
        read_parts(&self.rows(sqlx::query(texts::PARTS).bind(texts::prefix(index_no))).await?)
    }

    /// The tables with the entities: one table or its partitions.
    async fn holders(&mut self) -> StoreResult<Vec<String>> {
        let rows =
            self.rows(sqlx::query(texts::HOLDERS).bind(texts::ENTITIES.0).bind(texts::ENTITIES.1)).await?;
        rows.iter().map(|row| Ok(row.try_get("name").map_err(broken_row)?)).collect()
    }

    /// The spread of the table; `None` if the index is no longer wanted.
    async fn read_spread(&mut self, index_no: i64) -> StoreResult<Option<u16>> {
        let rows = self.rows(sqlx::query(StoredIndex::WANTED).bind(index_no)).await?;
        let Some(row) = rows.first() else { return Ok(None) };
        let spread: i32 = row.try_get("spread").map_err(broken_row)?;
        Ok(Some(u16::try_from(spread).map_err(|_| Fault::Other)?))
    }

    /// Creates the missing parts. Replaces incomplete parts that a build left behind.
    async fn build(&mut self, index: &PropertyIndex, spread: u16) -> Result<(), DefinitionError> {
        let parts = self.parts(index.index_no).await?;
        for (at, holder) in self.holders().await?.iter().enumerate() {
            let name = texts::part(index.index_no, at);
            match parts.iter().find(|part| part.relname == name) {
                Some(part) if part.is_valid => continue,
                Some(part) => self.define(texts::removal(&part.name)).await?,
                None => {}
            }
            self.define(texts::definition(index, &name, holder, spread)).await?;
        }
        Ok(())
    }

    /// Ends the session and thereby releases the lock.
    async fn close(self) {
        close(self.connection).await;
    }
}

fn failed(error: sqlx::Error) -> StatementError {
    judge(&error, Effect::Undone)
}

impl PgStore {
    /// Cancels the build of a dropped index. If that fails, the index stays unused and is removed after the build
    /// ends.
    pub(crate) async fn cancel_dropped(&self, index_no: i64) {
        if let Err(error) = retry(|| self.cancel_build(index_no)).await {
            tracing::warn!(index_no, ?error, "cannot cancel the build of a dropped index");
        }
    }

    pub(crate) async fn build(&self, index: &PropertyIndex, now: Ticks) -> StoreResult<BuiltIndex> {
        let Some(mut session) = self.open_build_session().await? else {
            return Ok(BuiltIndex::Busy);
        };
        let (pid, what) = (session.pid, "building an index");
        let built = self.watched(pid, what, build(&mut session, index, now)).await;
        session.close().await;
        built
    }

    async fn open_build_session(&self) -> StoreResult<Option<BuildSession>> {
        let opened = BuildSession::open(&self.definer, &self.search_path);
        timeout(self.operation_timeout, opened).await.unwrap_or_else(|_| Err(Fault::Unavailable.into()))
    }

    /// Runs work with a time limit in a session of the role that builds indexes.
    async fn watch<T>(
        &self,
        limit: Duration,
        work: impl AsyncFnOnce(&mut BuildSession) -> StoreResult<T>,
    ) -> StoreResult<T> {
        let worked = timeout(limit, async {
            let mut session = BuildSession::open_to_watch(&self.definer, &self.search_path).await?;
            let done = work(&mut session).await?;
            session.close().await;
            Ok(done)
        });
        worked.await.unwrap_or_else(|_| Err(Fault::Unavailable.into()))
    }

    /// Waits for the work of a session, and logs the sessions that block it. Abandons a session that the database no
    /// longer has or cannot report on, because the server froze or is no longer the primary.
    async fn watched<T>(
        &self,
        pid: i32,
        what: &str,
        work: impl Future<Output = StoreResult<T>>,
    ) -> StoreResult<T> {
        let mut work = std::pin::pin!(work);
        let mut logged: Option<Instant> = None;
        let mut misses = 0;
        while misses < MAX_MISSES {
            if let Ok(done) = timeout(PATIENCE, work.as_mut()).await {
                return done;
            }
            let blockers = tokio::select! {
                biased;
                done = work.as_mut() => return done,
                blockers = timeout(PATIENCE, self.blockers(pid)) => blockers,
            };
            let Ok(Ok(Some(blockers))) = blockers else {
                misses += 1;
                continue;
            };
            misses = 0;
            if !blockers.is_empty() && logged.is_none_or(|at| at.elapsed() >= REPEAT) {
                let blockers = blockers.join(", ");
                tracing::warn!(blockers, "{what} waits for the end of other transactions");
                logged = Some(Instant::now());
            }
        }
        tracing::warn!(pid, "abandoned {what}: the database no longer has its session; will retry");
        Err(Fault::Unavailable.into())
    }

    /// The sessions that block this session, as its server reports them; `None` if the server has no such session.
    async fn blockers(&self, pid: i32) -> StoreResult<Option<Vec<String>>> {
        let (mut connection, _) = self.definer.connect().await.map_err(failed)?;
        let rows = sqlx::query(texts::BLOCKERS).bind(pid).fetch_all(&mut connection).await.map_err(failed)?;
        close(connection).await;
        if rows.is_empty() {
            return Ok(None);
        }
        let blockers = rows.iter().filter_map(|row| blocker(row).transpose());
        Ok(Some(blockers.collect::<Result<_, StatementError>>()?))
    }

    async fn cancel_build(&self, index_no: i64) -> StoreResult<()> {
        let parts = self.parts(index_no).await?;
        if !self.nodes.is_distributed() && parts.iter().all(|part| part.is_valid) {
            return Ok(());
        }
        let cancel = async move |session: &mut BuildSession| {
            for pid in session.parts(index_no).await?.iter().filter_map(|part| part.pid) {
                session.rows(sqlx::query(texts::CANCEL).bind(pid)).await?;
            }
            Ok(())
        };
        self.watch(self.operation_timeout, cancel).await
    }

    /// Removes the parts of an unused index; `false` if another process has the lock.
    pub(crate) async fn remove(&self, index_no: i64) -> StoreResult<bool> {
        let Some(mut session) = self.open_build_session().await? else {
            return Ok(false);
        };
        let (pid, what) = (session.pid, "removing an index");
        let removed = self.watched(pid, what, remove(&mut session, index_no)).await;
        session.close().await;
        removed.map(|()| true)
    }

    pub(crate) async fn figures(&self, index: &PropertyIndex) -> StoreResult<IndexFigures> {
        let index_no = index.index_no;
        let mut parts = self.parts(index_no).await?;
        if parts.iter().any(|part| !part.is_valid && part.pid.is_none())
            && let Ok(seen) = self.watch(PATIENCE, async move |session| session.parts(index_no).await).await
        {
            // Only that role sees the progress of the build.
            for part in &mut parts {
                part.progress = seen.iter().find(|of| of.relname == part.relname).and_then(|of| of.progress);
            }
        }
        if parts.is_empty() {
            return Ok(IndexFigures::default());
        }
        let sum = |of: fn(&IndexPart) -> i64| Some(parts.iter().map(of).sum::<i64>().cast_unsigned());
        let done = |part: &IndexPart| if part.is_valid { 1.0 } else { part.progress.unwrap_or(0.0) };
        let progress = parts.iter().map(done).sum::<f64>() / parts.len() as f64;
        Ok(IndexFigures {
            bytes: sum(|part| part.bytes),
            uses: sum(|part| part.uses),
            progress: Some(progress),
        })
    }

    async fn parts(&self, index_no: i64) -> StoreResult<Vec<IndexPart>> {
        let mut lease = self.nodes.acquire().await?;
        let find = sqlx::query(texts::PARTS).bind(texts::prefix(index_no));
        let found = lease.rows(find, Effect::Undone).await?;
        let mut parts = read_parts(&found)?;
        if lease.statements().is_distributed {
            for part in &mut parts {
                let measure = sqlx::query(texts::BYTES_OF_SHARDS)
                    .bind("entities")
                    .bind(texts::BYTES_OF_SHARD)
                    .bind(&part.name)
                    .bind(texts::SHARD);
                let row = lease.row(measure, Effect::Undone).await?.ok_or(Fault::Other)?;
                part.bytes = row.try_get("bytes").map_err(broken_row)?;
            }
        }
        Ok(parts)
    }
}

/// Removes the parts of an index. A part that a transaction uses stays invalid until the next attempt.
async fn remove(session: &mut BuildSession, index_no: i64) -> StoreResult<()> {
    session.define(format!("SET statement_timeout = {}", REMOVAL_LIMIT.as_millis())).await?;
    for part in session.parts(index_no).await? {
        session.define(texts::removal(&part.name)).await?;
    }
    session.rows(sqlx::query(StoredIndex::FORGET.postgres).bind(index_no)).await?;
    Ok(())
}

/// Builds an index as the only builder. If the index was dropped during the build, its parts are removed.
async fn build(session: &mut BuildSession, index: &PropertyIndex, now: Ticks) -> StoreResult<BuiltIndex> {
    let index_no = index.index_no;
    let Some(spread) = session.read_spread(index_no).await? else { return Ok(BuiltIndex::Gone) };
    if let Err(error) = session.build(index, spread).await {
        // A drop of the index cancels the build.
        return match (session.read_spread(index_no).await?, error) {
            (None, _) => Ok(BuiltIndex::Gone),
            (_, DefinitionError::Refused(reason)) => Ok(BuiltIndex::Refused(reason)),
            (_, DefinitionError::Failed(failure)) => Err(failure),
        };
    }
    let complete = sqlx::query(StoredIndex::COMPLETE.postgres).bind(index_no).bind(now.raw());
    let is_ready = !session.rows(complete).await?.is_empty();
    Ok(if is_ready { BuiltIndex::Ready } else { BuiltIndex::Gone })
}
