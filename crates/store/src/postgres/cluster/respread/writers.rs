//! Waiting for transactions that began before a change of the state.

use std::collections::BTreeSet;
use std::time::Duration;

use sqlx::{AssertSqlSafe, PgConnection};
use tokio::time::Instant;

use super::outcome::{RespreadError, RespreadResult};
use crate::postgres::connections::placement::Placement;
use crate::postgres::fault::is_cancellation;
use crate::postgres::statements::respread as texts;

/// Pause between two checks.
const LOOK: Duration = Duration::from_millis(20);
/// Maximum wait, which is longer than any statement or transaction of a server may take.
const LIMIT: Duration = Duration::from_secs(120);

/// Waits until every transaction that currently writes to the relation has ended. A statement locks the relation
/// before it reads `tables`, so later writers see the current state. Other transactions do not wait for this function.
///
/// While a state change is only prepared, even later writers do not see it, so the writers are listed after the change
/// has committed. A writer that is no longer listed may be committed on its own node but only prepared on another.
///
/// # Errors
/// [`RespreadError::Writer`] if a transaction takes too long.
pub(crate) async fn wait_for_writers(
    db: &mut PgConnection,
    placement: Placement,
    relation: &str,
) -> RespreadResult {
    let complete = sqlx::query_scalar(texts::COMPLETE).bind(texts::WRITERS).bind(relation);
    let text: String = complete.fetch_one(&mut *db).await?;
    let end = Instant::now() + LIMIT;
    for text in [texts::PREPARED, &text, texts::PREPARED] {
        if !have_ended(db, placement, text, end).await? {
            return Err(RespreadError::Writer(LIMIT.as_secs()));
        }
    }
    Ok(())
}

/// Waits until the transactions that Citus has currently prepared are committed, or until `end`; returns whether all
/// are committed.
pub(crate) async fn wait_for_prepared(
    db: &mut PgConnection,
    placement: Placement,
    end: Instant,
) -> RespreadResult<bool> {
    let left = end.saturating_duration_since(Instant::now()).as_millis().max(1);
    let former = limit_statements(db, &left.to_string()).await?;
    let ended = have_ended(db, placement, texts::PREPARED, end).await;
    limit_statements(db, &former).await?;
    match ended {
        Err(RespreadError::Database(error)) if is_cancellation(&error) => Ok(false),
        ended => ended,
    }
}

/// Sets a session's statement timeout; returns the former one.
async fn limit_statements(db: &mut PgConnection, timeout: &str) -> RespreadResult<String> {
    Ok(sqlx::query_scalar(texts::LIMIT_STATEMENTS).bind(timeout).fetch_one(db).await?)
}

/// Waits for the transactions that a query lists now; returns whether all have ended in time.
async fn have_ended(
    db: &mut PgConnection,
    placement: Placement,
    text: &str,
    end: Instant,
) -> RespreadResult<bool> {
    let mut left = listed(db, placement, text).await?;
    while !left.is_empty() {
        if Instant::now() > end {
            return Ok(false);
        }
        tokio::time::sleep(LOOK).await;
        let found = listed(db, placement, text).await?;
        left.retain(|transaction| found.contains(transaction));
    }
    Ok(true)
}

/// Returns the transactions that a query lists, by server.
async fn listed(
    db: &mut PgConnection,
    placement: Placement,
    text: &str,
) -> Result<BTreeSet<(i32, String)>, RespreadError> {
    let named = |server: i32, list: &str| -> Vec<(i32, String)> {
        let names = list.split(',').filter(|name| !name.is_empty());
        names.map(|name| (server, name.to_owned())).collect()
    };
    if placement == Placement::Single {
        // The database quotes the parts of this statement.
        let list: String = sqlx::query_scalar(AssertSqlSafe(text)).fetch_one(db).await?;
        return Ok(named(0, &list).into_iter().collect());
    }
    let mut all = BTreeSet::new();
    let answers: Vec<(i32, bool, Option<String>)> =
        sqlx::query_as(texts::ON_ALL_SERVERS).bind(text).fetch_all(db).await?;
    for (server, success, answer) in answers {
        let answer = answer.unwrap_or_default();
        if !success {
            return Err(RespreadError::ServerUnreachable(answer));
        }
        all.extend(named(server, &answer));
    }
    Ok(all)
}
