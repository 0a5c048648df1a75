//! Work that lost against another transaction is done again.

use std::future::Future;
use std::time::Duration;

use crate::model::TableName;
use crate::store::postgres::PgStore;
use crate::store::postgres::catalog::tables::Facts;
use crate::store::postgres::fault::not_begun;
use crate::store::{Failure, Fault, StoreResult};

/// How often work that lost against another transaction is done again. Restores
/// that follow one on the other win each time that a reader looks in between, and
/// of a hundred rows that others delete one has always gone since they were locked:
/// a change set may lose four times out of five.
pub(crate) const ATTEMPTS: u32 = 100;
/// Milliseconds that work waits longer each time before it is done again, …
const PAUSE_STEP: u64 = 2;
/// … and at most.
const LONGEST_PAUSE: u64 = 40;

impl PgStore {
    /// Runs an attempt against the table's facts: again with fresh facts where
    /// the table is found gone, again where another transaction won, and once
    /// more on a new connection where nothing can have been done.
    pub(crate) async fn with_table<A: Attempt>(
        &self,
        account: &str,
        table: &TableName,
        work: &mut A,
    ) -> StoreResult<A::Done> {
        let mut reconnected = false;
        for attempt in 1.. {
            let facts = self.facts(account, table).await;
            let begun = facts.is_ok();
            let result = match facts {
                Ok(facts) => match work.run(self, facts).await {
                    Ok(Some(done)) => return Ok(done),
                    Ok(None) => {
                        self.forget(account, table, facts);
                        Err(Fault::Serialization.into())
                    }
                    Err(failure) => Err(failure),
                },
                Err(failure) => Err(failure),
            };
            match result {
                Err(Failure::Fault(Fault::Unavailable)) if !reconnected => reconnected = true,
                Err(Failure::Fault(Fault::Serialization)) if attempt < ATTEMPTS => pause(attempt).await,
                Err(failure) if !begun => return Err(not_begun(failure)),
                other => return other,
            }
        }
        Err(Fault::Serialization.into())
    }
}

/// Work on one table that may be done again as long as it fails.
pub(crate) trait Attempt: Send {
    type Done;

    /// `None` if the table is gone; nothing was done then.
    fn run(
        &mut self,
        store: &PgStore,
        facts: Facts,
    ) -> impl Future<Output = StoreResult<Option<Self::Done>>> + Send;
}

/// Lets the winner finish. The first retry is immediate: the winner of a lost
/// race has already committed.
pub(crate) async fn pause(attempt: u32) {
    if attempt > 1 {
        let pause = (u64::from(attempt) * PAUSE_STEP).min(LONGEST_PAUSE);
        tokio::time::sleep(Duration::from_millis(pause)).await;
    }
}

/// Repeats an operation on the catalogue where another transaction won.
macro_rules! again {
    ($work:expr) => {{
        let mut attempt = 1;
        loop {
            match $work.await {
                Err($crate::store::Failure::Fault($crate::store::Fault::Serialization))
                    if attempt < $crate::store::postgres::retry::ATTEMPTS =>
                {
                    $crate::store::postgres::retry::pause(attempt).await;
                }
                done => break done,
            }
            attempt += 1;
        }
    }};
}
pub(crate) use again;
