//! Building, measuring and removing property indexes.
//!
//! One process of a database builds or removes indexes at a time: two of them would wait for each other.
//! It has a session of its own, without the limits of statements for clients.

use sqlx::postgres::{PgConnectOptions, PgRow};
use sqlx::{AssertSqlSafe, Connection, Executor as _, PgConnection, Row};

use crate::model::Ticks;
use crate::plan::index::PropertyIndex;
use crate::store::indexes::removable_until;
use crate::store::postgres::PgStore;
use crate::store::postgres::fault::{Effect, StatementError, judge, reason_of_refusal};
use crate::store::postgres::rows::broken_row;
use crate::store::postgres::statements::indexes as texts;
use crate::store::{BuiltIndex, Failure, Fault, IndexFigures, StoreResult};

/// The table of entities, and what PostgreSQL calls a plain table.
const ENTITIES: (&str, &str) = ("entities", "r");
/// The settings of the session: no limit of time, and the parser that literals are written for.
const SESSION: &str = "SET statement_timeout = 0; SET lock_timeout = 0; \
     SET idle_in_transaction_session_timeout = 0; SET standard_conforming_strings = on; \
     SET tcp_keepalives_idle = 30; SET tcp_keepalives_interval = 10; SET tcp_keepalives_count = 3";

/// A part of an index as it is in the database.
struct IndexPart {
    name: String,
    relname: String,
    is_valid: bool,
    bytes: i64,
    uses: i64,
    progress: Option<f64>,
    /// The session that builds it.
    pid: Option<i32>,
}

impl IndexPart {
    fn read(row: &PgRow) -> StoreResult<Self> {
        let text = |column: &str| row.try_get::<String, _>(column).map_err(broken_row);
        Ok(Self {
            name: text("name")?,
            relname: text("relname")?,
            is_valid: row.try_get("indisvalid").map_err(broken_row)?,
            bytes: row.try_get("bytes").map_err(broken_row)?,
            uses: row.try_get("uses").map_err(broken_row)?,
            progress: row.try_get("progress").map_err(broken_row)?,
            pid: row.try_get("pid").map_err(broken_row)?,
        })
    }
}

/// Why a definition or removal failed.
enum DefinitionError {
    /// The database refuses it for what it says or who asks.
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
            // Logged with the reason.
            DefinitionError::Refused(_) => Fault::Other.into(),
            DefinitionError::Failed(failure) => failure,
        }
    }
}

/// The session that builds or removes indexes. The lock is held until it is closed.
struct BuildSession(PgConnection);

impl BuildSession {
    /// Opens a session; `None` if another one has the lock.
    async fn open(connect: &PgConnectOptions) -> StoreResult<Option<Self>> {
        let mut connection = PgConnection::connect_with(connect).await.map_err(failed)?;
        connection.execute(sqlx::raw_sql(SESSION)).await.map_err(failed)?;
        let mut session = Self(connection);
        let locked = session.rows(sqlx::query(texts::LOCK_BUILDS)).await?;
        let is_locked = locked.first().ok_or(Fault::Other)?.try_get("locked").map_err(broken_row)?;
        Ok(if is_locked { Some(session) } else { None })
    }

    async fn rows(
        &mut self,
        query: sqlx::query::Query<'_, sqlx::Postgres, sqlx::postgres::PgArguments>,
    ) -> StoreResult<Vec<PgRow>> {
        Ok(query.fetch_all(&mut self.0).await.map_err(failed)?)
    }

    /// Runs a definition or removal, which has no parameters.
    async fn define(&mut self, text: String) -> Result<(), DefinitionError> {
        // Composed of a fixed text, and of numbers and names that `statements::indexes` writes.
        let done = sqlx::raw_sql(AssertSqlSafe(text)).execute(&mut self.0).await;
        done.map(|_| ()).map_err(|error| {
            let judged = judge(&error, Effect::Undone);
            match reason_of_refusal(&error, judged) {
                Some(reason) => DefinitionError::Refused(reason),
                None => DefinitionError::Failed(judged.into()),
            }
        })
    }

    async fn parts(&mut self, index_no: i64) -> StoreResult<Vec<IndexPart>> {
        let rows = self.rows(sqlx::query(texts::PARTS).bind(texts::prefix(index_no))).await?;
        rows.iter().map(IndexPart::read).collect()
    }

    /// The tables that have the entities: one, or its partitions.
    async fn holders(&mut self) -> StoreResult<Vec<String>> {
        let rows = self.rows(sqlx::query(texts::HOLDERS).bind(ENTITIES.0).bind(ENTITIES.1)).await?;
        rows.iter().map(|row| Ok(row.try_get("name").map_err(broken_row)?)).collect()
    }

    /// The spread of the table; `None` if the index is no longer wanted.
    async fn wanted(&mut self, index_no: i64) -> StoreResult<Option<u16>> {
        let rows = self.rows(sqlx::query(texts::WANTED).bind(index_no)).await?;
        let Some(row) = rows.first() else { return Ok(None) };
        let spread: i32 = row.try_get("spread").map_err(broken_row)?;
        Ok(Some(u16::try_from(spread).map_err(|_| Fault::Other)?))
    }

    /// Makes the parts that are missing. One that a build has left behind incomplete is made again.
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

    /// Ends the session, and with it the lock.
    async fn close(self) {
        // The database ends it in any case.
        let _ = self.0.close().await;
    }
}

fn failed(error: sqlx::Error) -> StatementError {
    judge(&error, Effect::Undone)
}

impl PgStore {
    pub(crate) async fn try_build_index(&self, index: &PropertyIndex, now: Ticks) -> StoreResult<BuiltIndex> {
        let Some(mut session) = BuildSession::open(&self.definer).await? else {
            return Ok(BuiltIndex::Elsewhere);
        };
        let built = build(&mut session, index, now).await;
        session.close().await;
        built
    }

    pub(crate) async fn cancel_build(&self, index_no: i64) -> StoreResult<()> {
        for part in self.parts(index_no).await? {
            if let Some(pid) = part.pid {
                let mut lease = self.nodes.acquire_to_lock().await?;
                lease.row(sqlx::query(texts::CANCEL).bind(pid), Effect::Undone).await?;
            }
        }
        Ok(())
    }

    /// Removes the parts of one index that nothing uses any more.
    pub(crate) async fn try_remove_index(&self, now: Ticks) -> StoreResult<bool> {
        let mut lease = self.nodes.acquire_to_lock().await?;
        let removable = sqlx::query(texts::REMOVABLE).bind(removable_until(now));
        let Some(row) = lease.row(removable, Effect::Undone).await? else { return Ok(false) };
        drop(lease);
        let index_no: i64 = row.try_get("index_no").map_err(broken_row)?;
        let Some(mut session) = BuildSession::open(&self.definer).await? else { return Ok(false) };
        for part in session.parts(index_no).await? {
            session.define(texts::removal(&part.name)).await?;
        }
        session.rows(sqlx::query(texts::FORGET).bind(index_no)).await?;
        session.close().await;
        Ok(true)
    }

    pub(crate) async fn read_index_figures(&self, index: &PropertyIndex) -> StoreResult<IndexFigures> {
        let parts = self.parts(index.index_no).await?;
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
        let mut lease = self.nodes.acquire_to_lock().await?;
        let parts = sqlx::query(texts::PARTS).bind(texts::prefix(index_no));
        lease.rows(parts, Effect::Undone).await?.iter().map(IndexPart::read).collect()
    }
}

/// Builds an index as the only one who does. If it was dropped meanwhile, its parts are removed with it.
async fn build(session: &mut BuildSession, index: &PropertyIndex, now: Ticks) -> StoreResult<BuiltIndex> {
    let index_no = index.index_no;
    let Some(spread) = session.wanted(index_no).await? else { return Ok(BuiltIndex::Gone) };
    if let Err(error) = session.build(index, spread).await {
        // A drop cancels the build.
        return match (session.wanted(index_no).await?, error) {
            (None, _) => Ok(BuiltIndex::Gone),
            (_, DefinitionError::Refused(reason)) => Ok(BuiltIndex::Refused(reason)),
            (_, DefinitionError::Failed(failure)) => Err(failure),
        };
    }
    let complete = sqlx::query(texts::COMPLETE).bind(index_no).bind(now.raw());
    let is_ready = !session.rows(complete).await?.is_empty();
    Ok(if is_ready { BuiltIndex::Ready } else { BuiltIndex::Gone })
}
