//! Whether each connection has a session of its own, which a connection pooler may not give it.

use sqlx::{AssertSqlSafe, Row as _};
use tokio::time::timeout;
use uuid::Uuid;

use crate::postgres::connections::hosts::Hosts;
use crate::postgres::connections::options::{PgOptions, StartError};
use crate::postgres::connections::sessions::close;

const MARK: &str = "SELECT current_setting('rowhouse.mark', true) AS mark";

/// Checks that a setting of one connection is not visible in another. A database that does not answer two
/// connections in time passes.
///
/// # Errors
/// [`StartError::SharedSessions`].
pub(crate) async fn refuse_shared_sessions(options: &PgOptions) -> Result<(), StartError> {
    let limit = options.acquire_timeout;
    let hosts = Hosts::of(options.first_url(), limit)?;
    match timeout(limit, are_sessions_shared(&hosts)).await {
        Ok(Ok(true)) => Err(StartError::SharedSessions),
        _ => Ok(()),
    }
}

async fn are_sessions_shared(hosts: &Hosts) -> Result<bool, sqlx::Error> {
    let ((mut marked, _), mark) = (hosts.connect().await?, Uuid::new_v4().to_string());
    sqlx::raw_sql(AssertSqlSafe(format!("SET rowhouse.mark = '{mark}'"))).execute(&mut marked).await?;
    let (mut other, _) = hosts.connect().await?;
    let seen: Option<String> = sqlx::raw_sql(MARK).fetch_one(&mut other).await?.try_get("mark")?;
    tokio::join!(close(other), close(marked));
    Ok(seen.as_ref() == Some(&mark))
}
