//! The steps of a respread.

use std::time::Duration;

use sqlx::{AssertSqlSafe, Connection, Executor, PgConnection};
use tokio::time::Instant;

use crate::postgres::cluster::distribution::is_worker;
use crate::postgres::connections::connector::PLANS_OF_VALUES;
use crate::postgres::connections::placement::{KnownPlacement, Placement};
use crate::postgres::connections::{PgOptions, schema};
use crate::postgres::fault::{has_code, is_cancellation};
use crate::postgres::respread::outcome::{OnRespreadProgress, RespreadResult};
use crate::postgres::respread::state;
use crate::postgres::state::table_ids::TableId;
use crate::postgres::statements::{REMOVE_CHANGES, respread as texts};
use crate::postgres::{RespreadError, RespreadEvent, RespreadRequest, RespreadSummary};
use crate::protocol::model::{TableRef, Ticks};

use super::rows::{CompareDirection, compare, copy_changes, put, read_page};
use super::state::{RespreadStart, RespreadState};
use super::writers::{wait_for_prepared, wait_for_writers};

/// Maximum number of changes that are copied while writers wait.
const FEW_CHANGES: u64 = 500;
/// Maximum rounds of copying changes, before few remain or the table can be locked.
const ROUNDS: u32 = 100;
/// Interval between saves of the copy's position.
const SAVED: Duration = Duration::from_secs(2);
/// Lock timeout of the last step. Later writers queue behind its lock request.
const LOCK_TIMEOUT: Duration = Duration::from_millis(800);
/// Timeout of each statement in the last step.
const LAST_TIMEOUT: Duration = Duration::from_secs(5);
/// Time that a call waits for another call to end.
const LOCK_WAIT: Duration = Duration::from_secs(5);
/// Pause before the last step or the call lock is retried.
const PAUSE: Duration = Duration::from_millis(500);

/// Changes a table's number of buckets, or resumes such a change.
pub async fn respread(
    options: &PgOptions,
    request: RespreadRequest<'_>,
    now: impl Fn() -> Ticks,
    on_progress: OnRespreadProgress<'_>,
) -> RespreadResult<RespreadSummary> {
    let mut session = RespreadSession::open(options).await?;
    let RespreadRequest { table, spread } = request;
    let mut state = match state::begin(&mut session.db, table, spread).await? {
        RespreadStart::AlreadyThere => {
            return Ok(RespreadSummary { had_spread: true, ..RespreadSummary::default() });
        }
        RespreadStart::Started(state) => state,
        RespreadStart::Resumed(state) => {
            on_progress(RespreadEvent::Resumed);
            state
        }
    };
    wait_for_writers(&mut session.db, session.placement, "entities").await?;
    let mut summary =
        RespreadSummary { copied: session.copy(&mut state, on_progress).await?, ..Default::default() };
    summary.changes += session.catch_up(&mut state, on_progress).await?;
    summary.compared = session.compare(&state, on_progress).await?;
    summary.changes += session.catch_up(&mut state, on_progress).await?;
    session.finish(&mut state, &mut summary, now).await?;
    session.close().await?;
    Ok(summary)
}

/// Cancels a respread; the table keeps its buckets.
pub async fn cancel(options: &PgOptions, table: TableRef<'_>, now: Ticks) -> RespreadResult {
    let mut session = RespreadSession::open(options).await?;
    let state = state::begun(&mut session.db, table).await?;
    let mut transaction = session.db.begin().await?;
    state::give_up(&mut transaction, &state, now).await?;
    transaction.commit().await?;
    session
        .forget_changes(state.source)
        .await
        .map_err(|error| RespreadError::ChangesLeft(Box::new(error)))?;
    session.close().await
}

struct RespreadSession {
    /// Holds the lock that excludes other calls, and writes.
    db: PgConnection,
    /// Reads ahead of the writes.
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

    /// Copies the remaining entities; returns their number.
    async fn copy(
        &mut self,
        state: &mut RespreadState,
        on_progress: OnRespreadProgress<'_>,
    ) -> RespreadResult<u64> {
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
            on_progress(RespreadEvent::Copied { entities: copied });
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

    /// Copies changes in rounds until a round has few of them; returns the number of copied keys.
    async fn catch_up(
        &mut self,
        state: &mut RespreadState,
        on_progress: OnRespreadProgress<'_>,
    ) -> RespreadResult<u64> {
        let mut changes = 0;
        for _ in 0..ROUNDS {
            let copied = self.copy_former_changes(state).await?;
            changes += copied;
            on_progress(RespreadEvent::ChangesCopied { keys: changes });
            if copied <= FEW_CHANGES {
                return Ok(changes);
            }
        }
        Err(RespreadError::TooManyChanges)
    }

    /// Copies the changes recorded so far.
    async fn copy_former_changes(&mut self, state: &mut RespreadState) -> RespreadResult<u64> {
        state::next_number(&mut self.db, state).await?;
        wait_for_writers(&mut self.db, self.placement, "respread_changes").await?;
        copy_changes(&mut self.db, state, Some(state.table_no)).await
    }

    /// Deletes the recorded changes of a table that is no longer being respread.
    async fn forget_changes(&mut self, table_id: TableId) -> RespreadResult {
        wait_for_writers(&mut self.db, self.placement, "respread_changes").await?;
        let all: Vec<i64> = table_id.buckets().collect();
        sqlx::query(REMOVE_CHANGES).bind(all).execute(&mut self.db).await?;
        Ok(())
    }

    async fn compare(
        &mut self,
        state: &RespreadState,
        on_progress: OnRespreadProgress<'_>,
    ) -> RespreadResult<u64> {
        let mut before = 0;
        for direction in [CompareDirection::Forward, CompareDirection::Backward] {
            let mut on_progress =
                |entities| on_progress(RespreadEvent::Compared { entities: before + entities });
            before += compare(&mut self.reader, state, direction, &mut on_progress).await?;
        }
        Ok(before / 2)
    }

    /// Retries the last step until it succeeds.
    async fn finish(
        &mut self,
        state: &mut RespreadState,
        summary: &mut RespreadSummary,
        now: impl Fn() -> Ticks,
    ) -> RespreadResult {
        for _ in 0..ROUNDS {
            let begun = Instant::now();
            match self.switch(state, now()).await {
                Ok(Some(changes)) => {
                    summary.changes += changes;
                    summary.pause = begun.elapsed();
                    return Ok(());
                }
                Ok(None) => {}
                Err(RespreadError::Database(error)) if may_pass(&error) => {}
                Err(error) => return Err(error),
            }
            tokio::time::sleep(PAUSE).await;
            summary.changes += self.copy_former_changes(state).await?;
        }
        Err(RespreadError::TooManyChanges)
    }

    /// Blocks writers, copies the remaining changes, and serves the table from the target. `None` if a writer was
    /// prepared on a node but did not commit there in time, because its writes cannot be copied yet.
    async fn switch(&mut self, state: &RespreadState, now: Ticks) -> RespreadResult<Option<u64>> {
        let mut transaction = self.db.begin().await?;
        let end = Instant::now() + LOCK_TIMEOUT;
        // The lock timeout applies to this node only; the statement timeout ends waits on other nodes.
        let limits = format!(
            "SET LOCAL lock_timeout = {0}; SET LOCAL statement_timeout = {0}; \
             SET LOCAL idle_in_transaction_session_timeout = {1}",
            LOCK_TIMEOUT.as_millis(),
            LAST_TIMEOUT.as_millis(),
        );
        transaction.execute(sqlx::raw_sql(AssertSqlSafe(limits))).await?;
        transaction.execute(sqlx::raw_sql(texts::STOP_WRITERS)).await?;
        let limit = format!("SET LOCAL statement_timeout = {}", LAST_TIMEOUT.as_millis());
        transaction.execute(sqlx::raw_sql(AssertSqlSafe(limit))).await?;
        let switched = async {
            if !wait_for_prepared(&mut self.reader, self.placement, end).await? {
                return Ok(None);
            }
            let changes = copy_changes(&mut transaction, state, None).await?;
            state::publish(&mut transaction, state, now).await?;
            Ok(Some(changes))
        };
        let switched = switched.await;
        match &switched {
            Ok(Some(_)) => transaction.commit().await?,
            // Rolled back immediately, because writers wait.
            _ => transaction.rollback().await?,
        }
        switched
    }
}

/// Excludes other calls. The session of a call that was just killed may persist briefly.
async fn lock(db: &mut PgConnection) -> RespreadResult {
    let end = Instant::now() + LOCK_WAIT;
    while !sqlx::query_scalar::<_, bool>(texts::LOCK).fetch_one(&mut *db).await? {
        if Instant::now() > end {
            return Err(RespreadError::Running);
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

/// Whether a lock was not available in time, or a statement took too long.
fn may_pass(error: &sqlx::Error) -> bool {
    has_code(error, &["55P03", "40P01", "40001"]) || is_cancellation(error)
}
