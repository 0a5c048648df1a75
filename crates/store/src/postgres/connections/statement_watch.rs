//! Waits for statements, and ends statements whose remaining rows are not needed.

use futures_util::{Stream, TryStreamExt};
use sqlx::postgres::PgRow;

use crate::postgres::connections::breaker::Breaker;
use crate::postgres::connections::connector::{BackendId, Connector, Ended};
use crate::postgres::connections::hosts::ChosenHost;
use crate::postgres::fault::is_cancellation;
use crate::postgres::rows::weight;

/// Maximum bytes of unwanted rows that are read before the statement is cancelled.
const DRAIN: usize = 512 * 1024;

#[derive(Clone, Copy)]
pub(super) struct StatementWatch<'l> {
    pub connector: &'l Connector,
    pub host: ChosenHost,
    pub breaker: Option<&'l Breaker>,
}

impl StatementWatch<'_> {
    pub(super) async fn until_done<T>(
        self,
        work: impl Future<Output = Result<T, sqlx::Error>>,
    ) -> Result<T, Ended> {
        match self.breaker {
            // Boxed because each layer around a future stores it more than once.
            Some(breaker) => {
                let done = Box::pin(self.connector.watch(self.host, work));
                breaker.guard(done).await.unwrap_or(Err(Ended::Refused))
            }
            None => self.connector.watch(self.host, work).await,
        }
    }

    /// Reads the unwanted rows of a statement, or cancels the statement if there are many. `None` if the session
    /// cannot be reused.
    pub(super) async fn pass_over(
        self,
        mut rows: impl Stream<Item = Result<PgRow, sqlx::Error>> + Unpin,
        pid: i32,
    ) -> Result<Option<StreamEnd>, sqlx::Error> {
        let (mut unwanted, mut is_cancelled) = (0, false);
        loop {
            match rows.try_next().await {
                Ok(Some(row)) => unwanted += weight(&row)?,
                Ok(None) => return Ok(Some(StreamEnd::Complete)),
                Err(error) if is_cancelled && is_cancellation(&error) => return Ok(Some(StreamEnd::CutOff)),
                Err(error) => return Err(error),
            }
            if unwanted > DRAIN && !is_cancelled {
                if !self.connector.cancel(BackendId { host: self.host, pid }).await {
                    return Ok(None);
                }
                is_cancelled = true;
            }
        }
    }
}

/// How the statement of a stream ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum StreamEnd {
    /// All rows were read.
    Complete,
    /// The statement was cancelled. Its snapshot has ended, so the page must end too.
    CutOff,
}
