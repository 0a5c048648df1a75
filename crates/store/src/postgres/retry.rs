//! Retry policy: conditions, attempts and backoff.

use std::future::Future;
use std::time::Duration;

use crate::postgres::PgStore;
use crate::postgres::fault::not_begun;
use crate::postgres::state::table_ids::TableId;
use crate::protocol::model::TableRef;
use crate::{Failure, Fault, StoreResult};

/// Maximum attempts of an operation that conflicts with other transactions. The limit is high, because a reader
/// conflicts with each of several successive restores. A change set conflicts with concurrent deletes of its rows, in
/// the worst case four times out of five.
const ATTEMPTS: u32 = 100;
/// Backoff step: each pause is this many milliseconds longer than the previous one.
const PAUSE_STEP: u64 = 2;
/// Maximum pause, in milliseconds.
const LONGEST_PAUSE: u64 = 40;
/// Maximum attempts to write a row without locking it.
pub(crate) const UNLOCKED_ATTEMPTS: usize = 3;

/// The failed attempts of one operation.
struct Attempts {
    lost: u32,
    may_reconnect: bool,
}

impl Attempts {
    /// For an operation that is retried only after conflicts.
    const fn new() -> Self {
        Self { lost: 0, may_reconnect: false }
    }

    /// For an operation without a possible effect that is also retried once after a lost connection.
    const fn with_reconnect() -> Self {
        Self { lost: 0, may_reconnect: true }
    }

    async fn after(&mut self, failure: Failure) -> StoreResult<()> {
        let pause = self.pause(failure)?;
        if !pause.is_zero() {
            tokio::time::sleep(pause).await;
        }
        Ok(())
    }

    /// Returns the backoff pause after this failure. The first retry is immediate, because the winning transaction
    /// has already committed.
    fn pause(&mut self, failure: Failure) -> StoreResult<Duration> {
        match failure {
            Failure::Fault(Fault::Unavailable) if self.may_reconnect => {
                self.may_reconnect = false;
                Ok(Duration::ZERO)
            }
            Failure::Fault(Fault::Serialization) if self.lost + 1 < ATTEMPTS => {
                self.lost += 1;
                let longer = u64::from(self.lost) * PAUSE_STEP;
                let pause = if self.lost == 1 { 0 } else { longer.min(LONGEST_PAUSE) };
                Ok(Duration::from_millis(pause))
            }
            last => Err(last),
        }
    }
}

/// Retries an operation while it conflicts with other transactions.
pub(crate) async fn retry<T, F>(operation: impl Fn() -> F) -> StoreResult<T>
where
    F: Future<Output = StoreResult<T>>,
{
    retry_within(Attempts::new(), operation).await
}

/// Like [`retry`], with one more attempt after a lost connection.
pub(crate) async fn retry_or_reconnect<T, F>(operation: impl Fn() -> F) -> StoreResult<T>
where
    F: Future<Output = StoreResult<T>>,
{
    retry_within(Attempts::with_reconnect(), operation).await
}

async fn retry_within<T, F>(mut attempts: Attempts, operation: impl Fn() -> F) -> StoreResult<T>
where
    F: Future<Output = StoreResult<T>>,
{
    loop {
        match operation().await {
            Err(failure) => attempts.after(failure).await?,
            done => return done,
        }
    }
}

/// The attempts of one operation on a table. A stale cached id causes another attempt with a fresh id.
pub(crate) struct TableAttempts<'a> {
    store: &'a PgStore,
    table: TableRef<'a>,
    attempts: Attempts,
}

impl TableAttempts<'_> {
    pub(crate) async fn table_id(&mut self) -> StoreResult<TableId> {
        loop {
            match self.store.table_id(self.table).await {
                Ok(table_id) => return Ok(table_id),
                Err(failure) => self.attempts.after(failure).await.map_err(not_begun)?,
            }
        }
    }

    /// Waits until the operation may be retried. Without a failure, the attempt had no effect: the table is gone, or
    /// its bucket lacked its row in `buckets`.
    pub(crate) async fn after(&mut self, table_id: TableId, failure: Option<Failure>) -> StoreResult<()> {
        let gone = || {
            self.store.forget(self.table, table_id);
            Fault::Serialization.into()
        };
        let failure = failure.unwrap_or_else(gone);
        self.attempts.after(failure).await
    }
}

impl PgStore {
    pub(crate) const fn attempts<'a>(&'a self, table: TableRef<'a>) -> TableAttempts<'a> {
        TableAttempts { store: self, table, attempts: Attempts::with_reconnect() }
    }

    /// Runs work on a table with the retries of [`TableAttempts`]. The work returns `None` if the table is gone.
    pub(crate) async fn with_table<T, F>(
        &self,
        table: TableRef<'_>,
        work: impl Fn(TableId) -> F + Send,
    ) -> StoreResult<T>
    where
        F: Future<Output = StoreResult<Option<T>>> + Send,
    {
        let mut attempts = self.attempts(table);
        loop {
            let table_id = attempts.table_id().await?;
            match work(table_id).await {
                Ok(Some(done)) => return Ok(done),
                failed => attempts.after(table_id, failed.err()).await?,
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The pauses after attempts that all fail with this fault.
    fn pauses(fault: Fault, mut attempts: Attempts) -> Vec<u64> {
        let after = |_| attempts.pause(fault.into()).ok().map(|pause| pause.as_millis() as u64);
        (0..10 * ATTEMPTS).map_while(after).collect()
    }

    #[test]
    fn attempts_are_bounded_and_only_what_may_help_is_tried_again() {
        let retries = ATTEMPTS as usize - 1;
        assert_eq!(pauses(Fault::Serialization, Attempts::new()).len(), retries);
        assert_eq!(pauses(Fault::Serialization, Attempts::with_reconnect()).len(), retries);
        assert!(pauses(Fault::Unavailable, Attempts::new()).is_empty());
        assert_eq!(pauses(Fault::Unavailable, Attempts::with_reconnect()), [0]);
        for fault in [Fault::Busy, Fault::NotBegun, Fault::Timeout, Fault::Other] {
            assert!(pauses(fault, Attempts::with_reconnect()).is_empty(), "{fault:?}");
        }
    }

    #[test]
    fn the_first_retry_is_immediate_and_pauses_grow_up_to_their_limit() {
        let pauses = pauses(Fault::Serialization, Attempts::new());
        assert_eq!(pauses[..4], [0, 4, 6, 8]);
        assert!(pauses.is_sorted());
        assert_eq!(pauses.last(), Some(&LONGEST_PAUSE));
    }
}
