//! `rowhouse table respread`: changes the number of buckets of a table while it is written to.
//!
//! 1. The table gets another number. From then on, servers record the key of everything that they write
//!    to it, in the transaction that writes.
//! 2. Once writers that did not record have ended, the entities are copied from the buckets of the source
//!    to those of the target.
//! 3. The table gets another number again. Once writers under the former one have ended, what they have
//!    recorded is copied. This is repeated until little is left.
//! 4. Source and target are compared.
//! 5. In one transaction, writers of the table wait, the rest is copied, and the table gets the number of
//!    the target.
//!
//! Whatever happens meanwhile, the table is served. A process that ends early leaves a table whose writes
//! are recorded, with which another goes on.

mod compare;
mod rows;
mod state;
mod writers;

use std::time::Duration;

use sqlx::{AssertSqlSafe, Connection, Executor, PgConnection, Row};
use tokio::time::Instant;

use crate::protocol::model::{TableRef, Ticks};
use crate::store::postgres::connections::connector::PLANS_OF_VALUES;
use crate::store::postgres::connections::distribution::is_worker;
use crate::store::postgres::connections::placement::{KnownPlacement, Placement};
use crate::store::postgres::connections::{PgOptions, StartError, schema, told};
use crate::store::postgres::statements::respread as texts;

use compare::{CompareDirection, compare};
use rows::{copy_changes, put, read_page};
use state::{Begun, RespreadState};
use writers::wait_for_writers;

/// So few changes that they can be copied while writers wait.
const FEW_CHANGES: u64 = 500;
/// Rounds of copying changes until there are few, or until the table can be locked.
const ROUNDS: u32 = 100;
/// How often the position of the copy is saved.
const SAVED: Duration = Duration::from_secs(2);
/// How long the last step waits for writers, which wait behind it as well.
const LOCK_TIMEOUT: Duration = Duration::from_millis(800);
/// How long a statement of the last step may take.
const LAST_TIMEOUT: Duration = Duration::from_secs(5);
/// How long a call waits for another one to end.
const LOCK_WAIT: Duration = Duration::from_secs(5);
/// Pause before the last step, or the lock of calls, is tried again.
const PAUSE: Duration = Duration::from_millis(500);

/// Why a table was not respread.
#[derive(Debug, thiserror::Error)]
pub(crate) enum RespreadError {
    #[error("there is no table {0} in the account {1}")]
    NoTable(String, String),
    #[error("the table was deleted meanwhile")]
    Deleted,
    #[error("the table is not being respread")]
    NotBegun,
    #[error("the table is being respread to {0} already: finish that, or give it up with --cancel, first")]
    OtherSpread(u16),
    #[error(
        "the table has a property index, which cannot follow: drop it with `rowhouse index drop`, and create it \
         again afterwards"
    )]
    HasIndex,
    #[error(
        "the table has an SQL view, which cannot follow: drop it with `rowhouse view drop`, and create it again \
         afterwards"
    )]
    HasView,
    #[error("another `rowhouse table respread` is running on this database")]
    Elsewhere,
    #[error("this is a worker: give the coordinator's URL as --migrate-url, or as --database-url")]
    OnWorker,
    #[error("the schema is not that of this program: run `rowhouse migrate` first")]
    Schema,
    #[error("a transaction has been writing for {0} seconds and does not end; run the command again later")]
    Writer(u64),
    #[error("a server of the cluster does not answer: {0}")]
    ServerAway(String),
    #[error(
        "changes come faster than they can be copied; the table is served as before. Run the command again when \
         fewer writes come, or give up with --cancel"
    )]
    TooManyChanges,
    #[error(
        "the copy differs from the table at PartitionKey {0:?}, RowKey {1:?}: this is a bug. The table is served \
         as before; give up with --cancel"
    )]
    Differs(String, String),
    #[error("the record of the respread does not fit the table")]
    Broken,
    #[error("{0}")]
    Start(#[from] StartError),
    #[error("{}", told(.0))]
    Database(#[from] sqlx::Error),
}

/// Result of a step.
pub(crate) type RespreadResult<T = ()> = Result<T, RespreadError>;

/// What happens while a table is respread.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum RespreadEvent {
    /// An earlier call had begun it.
    Resumed,
    /// So many entities have been copied by this call, of about so many.
    Copied { entities: u64, of: Option<u64> },
    /// So many changes were copied after them.
    ChangesCopied { keys: u64 },
    /// So many entities have been compared.
    Compared { entities: u64 },
}

/// What was done.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) struct RespreadSummary {
    /// Whether the table had this spread already.
    pub was_there: bool,
    /// Entities that this call copied.
    pub copied: u64,
    /// Keys that were copied again, because they were written meanwhile.
    pub changes: u64,
    /// Entities of the table that were compared.
    pub compared: u64,
    /// How long writers waited.
    pub pause: Duration,
}

/// Whom to tell what happens.
pub(crate) type TellRespread<'a> = &'a mut (dyn FnMut(RespreadEvent) + Send);

/// Which table, and how many buckets it is to have.
#[derive(Debug, Clone, Copy)]
pub(crate) struct RespreadRequest<'a> {
    pub table: TableRef<'a>,
    pub spread: u16,
}

/// Gives a table another number of buckets, or goes on with that.
///
/// # Errors
/// [`RespreadError`]. The table is served as before, or from its new buckets, in any case.
pub(crate) async fn respread(
    options: &PgOptions,
    request: RespreadRequest<'_>,
    now: impl Fn() -> Ticks,
    tell: TellRespread<'_>,
) -> RespreadResult<RespreadSummary> {
    let mut session = RespreadSession::open(options).await?;
    let RespreadRequest { table, spread } = request;
    let mut state = match state::begin(&mut session.db, table, spread).await? {
        Begun::AlreadyThere => return Ok(RespreadSummary { was_there: true, ..RespreadSummary::default() }),
        Begun::Now(state) => state,
        Begun::Before(state) => {
            tell(RespreadEvent::Resumed);
            state
        }
    };
    wait_for_writers(&mut session.db, session.placement, "entities").await?;
    let mut summary = RespreadSummary { copied: session.copy(&mut state, tell).await?, ..Default::default() };
    summary.changes += session.catch_up(&mut state, tell).await?;
    summary.compared = session.compare(&state, tell).await?;
    summary.changes += session.catch_up(&mut state, tell).await?;
    session.finish(&mut state, &mut summary, now).await?;
    session.close().await?;
    Ok(summary)
}

/// Gives up the respread of a table: it keeps its buckets.
///
/// # Errors
/// [`RespreadError`].
pub(crate) async fn cancel(options: &PgOptions, table: TableRef<'_>, now: Ticks) -> RespreadResult {
    let mut session = RespreadSession::open(options).await?;
    let state = state::begun(&mut session.db, table).await?;
    let mut transaction = session.db.begin().await?;
    state::give_up(&mut transaction, &state, now).await?;
    transaction.commit().await?;
    session.close().await
}

/// The connections of one call.
struct RespreadSession {
    /// Holds the lock that keeps other calls away, and writes.
    db: PgConnection,
    /// Reads ahead.
    reader: PgConnection,
    placement: Placement,
}

impl RespreadSession {
    async fn open(options: &PgOptions) -> RespreadResult<Self> {
        let mut db = connect(options).await?;
        if is_worker(&mut db).await? {
            return Err(RespreadError::OnWorker);
        }
        if schema::version(&mut db).await? != Some(schema::known()) {
            return Err(RespreadError::Schema);
        }
        lock(&mut db).await?;
        let mut reader = connect(options).await?;
        let placement = KnownPlacement::default().look(&mut db).await?;
        if placement == Placement::Distributed {
            for connection in [&mut db, &mut reader] {
                connection.execute(sqlx::raw_sql(PLANS_OF_VALUES)).await?;
            }
        }
        Ok(Self { db, reader, placement })
    }

    async fn close(self) -> RespreadResult {
        self.reader.close().await?;
        Ok(self.db.close().await?)
    }

    /// Copies the entities that were not copied yet; returns how many.
    async fn copy(&mut self, state: &mut RespreadState, tell: TellRespread<'_>) -> RespreadResult<u64> {
        let total = sqlx::query(texts::TOTAL).bind(state.table_no).fetch_optional(&mut self.db).await?;
        let total: Option<i64> = total.map(|row| row.try_get("entities")).transpose()?.flatten();
        let (mut copied, mut saved) = (0, Instant::now());
        let mut page = read_page(&mut self.reader, state.source, &state.position).await?;
        loop {
            let following = async {
                match &page.next {
                    Some(next) => read_page(&mut self.reader, state.source, next).await.map(Some),
                    None => Ok(None),
                }
            };
            let (written, following) =
                tokio::join!(put(&mut self.db, state.target, &page.entities), following);
            written?;
            copied += page.entities.len() as u64;
            tell(RespreadEvent::Copied { entities: copied, of: total.map(i64::cast_unsigned) });
            match page.next {
                Some(next) => state.position = next,
                None => state.position = state::CopyPosition::of_share(usize::from(state.source.spread)),
            }
            let Some(following) = following? else { break };
            page = following;
            if saved.elapsed() > SAVED {
                state::save_position(&mut self.db, state).await?;
                saved = Instant::now();
            }
        }
        state::save_position(&mut self.db, state).await?;
        Ok(copied)
    }

    /// Copies changes until few come while that is done; returns how many keys were copied.
    async fn catch_up(&mut self, state: &mut RespreadState, tell: TellRespread<'_>) -> RespreadResult<u64> {
        let mut changes = 0;
        for _ in 0..ROUNDS {
            let copied = self.copy_former_changes(state).await?;
            changes += copied;
            tell(RespreadEvent::ChangesCopied { keys: changes });
            if copied <= FEW_CHANGES {
                return Ok(changes);
            }
        }
        Err(RespreadError::TooManyChanges)
    }

    /// Copies what was changed until now.
    async fn copy_former_changes(&mut self, state: &mut RespreadState) -> RespreadResult<u64> {
        state::next_number(&mut self.db, state).await?;
        wait_for_writers(&mut self.db, self.placement, "respread_changes").await?;
        copy_changes(&mut self.db, state, Some(state.table_no)).await
    }

    async fn compare(&mut self, state: &RespreadState, tell: TellRespread<'_>) -> RespreadResult<u64> {
        let mut before = 0;
        for direction in [CompareDirection::Forward, CompareDirection::Backward] {
            let mut tell = |entities| tell(RespreadEvent::Compared { entities: before + entities });
            before += compare(&mut self.reader, state, direction, &mut tell).await?;
        }
        Ok(before / 2)
    }

    /// Tries the last step until it succeeds.
    async fn finish(
        &mut self,
        state: &mut RespreadState,
        summary: &mut RespreadSummary,
        now: impl Fn() -> Ticks,
    ) -> RespreadResult {
        for _ in 0..ROUNDS {
            let begun = Instant::now();
            match self.switch(state, now()).await {
                Ok(changes) => {
                    summary.changes += changes;
                    summary.pause = begun.elapsed();
                    return Ok(());
                }
                Err(RespreadError::Database(error)) if may_pass(&error) => {
                    tokio::time::sleep(PAUSE).await;
                    summary.changes += self.copy_former_changes(state).await?;
                }
                Err(error) => return Err(error),
            }
        }
        Err(RespreadError::TooManyChanges)
    }

    /// Lets writers wait, copies the rest, and serves the table from the target.
    async fn switch(&mut self, state: &RespreadState, now: Ticks) -> RespreadResult<u64> {
        let mut transaction = self.db.begin().await?;
        let limits = format!(
            "SET LOCAL lock_timeout = {}; SET LOCAL statement_timeout = {}; \
             SET LOCAL idle_in_transaction_session_timeout = {}",
            LOCK_TIMEOUT.as_millis(),
            LAST_TIMEOUT.as_millis(),
            LAST_TIMEOUT.as_millis(),
        );
        transaction.execute(sqlx::raw_sql(AssertSqlSafe(limits))).await?;
        transaction.execute(sqlx::raw_sql(texts::STOP_WRITERS)).await?;
        let changes = copy_changes(&mut transaction, state, None).await?;
        state::publish(&mut transaction, state, now).await?;
        transaction.commit().await?;
        Ok(changes)
    }
}

/// Keeps other calls away. The session of one that has just died may be there for a moment.
async fn lock(db: &mut PgConnection) -> RespreadResult {
    let end = Instant::now() + LOCK_WAIT;
    while !sqlx::query(texts::LOCK).fetch_one(&mut *db).await?.try_get::<bool, _>("locked")? {
        if Instant::now() > end {
            return Err(RespreadError::Elsewhere);
        }
        tokio::time::sleep(PAUSE).await;
    }
    Ok(())
}

async fn connect(options: &PgOptions) -> RespreadResult<PgConnection> {
    let mut db = schema::connect(options).await?;
    db.execute(sqlx::raw_sql(AssertSqlSafe(options.session()))).await?;
    Ok(db)
}

/// Whether a lock was not to be had in time, or a statement took too long.
fn may_pass(error: &sqlx::Error) -> bool {
    let code = error.as_database_error().and_then(|error| error.code());
    matches!(code.as_deref(), Some("55P03" | "40P01" | "40001" | "57014"))
}
