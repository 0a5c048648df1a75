//! Fair use of the database: a read's lock waits and its share of the scans.
//!
//! Rowhouse evaluates the filters that PostgreSQL does not. Small evaluations run on the thread that serves the
//! request, larger ones on another thread under a permit. PostgreSQL evaluates the other filters, and needs a permit
//! for many rows.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::{Duration, Instant};

use crate::postgres::connections::lease::Lease;
use crate::postgres::connections::sessions::LockWait;
use crate::postgres::fault::StatementError;
use crate::protocol::model::Stored;
use crate::protocol::plan::Predicate;
use crate::protocol::plan::predicate::Prepared;
use crate::scan_limit::{SHORT_ROWS, ScanLimit, ScanPermit};
use crate::{Fault, StoreResult};

/// Maximum [`Prepared::cost`] of an evaluation on the serving thread: less than a millisecond.
const INLINE_COST: usize = 1024 * 1024;
/// Time that a read keeps a connection while other reads wait for one. PostgreSQL divides its time among all
/// connections, so this turn is longer than the turn of a permit.
const CONNECTION_TURN: Duration = Duration::from_millis(250);
/// Cost of evaluation between two checks of the clock.
const CLOCK_COST: usize = 4 * 1024 * 1024;
/// The cost of preparing a filter, in bytes of evaluation.
const PREPARING: usize = 512;

/// Rows for which a filter is evaluated, and their fields.
pub(crate) trait Evaluated: Send + 'static {
    fn bytes(&self) -> usize;

    fn matches(&self, filter: &Prepared<'_>) -> Result<bool, StatementError>;
}

impl Evaluated for Stored {
    fn bytes(&self) -> usize {
        self.properties.as_str().len()
    }

    fn matches(&self, filter: &Prepared<'_>) -> Result<bool, StatementError> {
        filter.matches(self.into()).map_err(|error| {
            tracing::error!(?error, "a row is not in stored form");
            Fault::Other.into()
        })
    }
}

/// A read's use of the scan limit: its permit, cost and time.
pub(crate) struct ScanTurn<'a> {
    limit: &'a ScanLimit,
    /// Limit on waiting for locks in the read's sessions.
    pub lock_wait: Option<LockWait>,
    permit: OnceLock<Arc<ScanPermit>>,
    /// Whether the page ends when it needs a permit.
    stays_short: bool,
    /// Cost of the evaluation so far.
    cost: AtomicUsize,
    started: Instant,
    until: Instant,
}

impl<'a> ScanTurn<'a> {
    /// Begins a read with this time limit.
    pub(crate) fn new(limit: &'a ScanLimit, time: Duration) -> Self {
        let started = Instant::now();
        Self {
            limit,
            lock_wait: None,
            permit: OnceLock::new(),
            stays_short: false,
            cost: AtomicUsize::new(0),
            started,
            until: started + time,
        }
    }

    /// Waits for a permit and restarts the read. If no permit becomes free, the page ends when it needs one.
    pub(crate) async fn wait_for_permit(&mut self) -> StoreResult<()> {
        let permit = self.limit.wait(self.time_left()).await?;
        self.stays_short = permit.is_none();
        self.permit = permit.map(Arc::new).map_or_else(OnceLock::new, OnceLock::from);
        (self.started, self.cost) = (Instant::now(), AtomicUsize::new(0));
        Ok(())
    }

    pub(crate) fn time_left(&self) -> Duration {
        self.until.saturating_duration_since(Instant::now())
    }

    /// Whether the page must end to let other reads proceed.
    pub(crate) fn is_over(&self, lease: Option<&Lease>) -> bool {
        let has_used_up = self.stays_short && self.cost.load(Ordering::Relaxed) >= INLINE_COST;
        let is_long = self.started.elapsed() >= CONNECTION_TURN;
        has_used_up
            || self.limit.is_turn_over(self.started, || self.is_permit_awaited())
            || is_long && lease.is_some_and(Lease::is_awaited)
    }

    /// Whether other reads wait for the permit of this read.
    pub(crate) fn is_permit_awaited(&self) -> bool {
        self.permit.get().is_some() && self.limit.is_awaited()
    }

    /// Evaluates a filter for rows in order, and returns which of them match. The evaluation may end early, but not
    /// before the first row.
    pub(crate) async fn evaluate<T: Evaluated>(
        &self,
        filter: &Predicate,
        rows: Vec<T>,
    ) -> Result<(Vec<T>, Vec<bool>), StatementError> {
        if rows.is_empty() {
            return Ok((rows, Vec::new()));
        }
        let prepared = Prepared::new(filter);
        let bytes = rows.iter().map(|row| prepared.cost(row.bytes()));
        let cost = bytes.fold(prepared.cost(PREPARING), usize::saturating_add);
        let before = self.cost.fetch_add(cost, Ordering::Relaxed);
        if before.saturating_add(cost) <= INLINE_COST {
            let matches = matching(&prepared, &rows, |_| false)?;
            return Ok((rows, matches));
        }
        let permit = self.permit()?;
        let (filter, limit, until) = (filter.clone(), self.limit.clone(), self.until);
        let (started, stays_short) = (self.started, self.stays_short);
        let evaluated = tokio::task::spawn_blocking(move || {
            // The task owns the permit, so a disconnecting client does not free it before the work ends.
            let _permit = permit;
            let is_over = |cost| {
                (stays_short && cost >= INLINE_COST)
                    || Instant::now() >= until
                    || limit.is_turn_over(started, || limit.is_awaited())
            };
            matching(&Prepared::new(&filter), &rows, is_over).map(|matches| (rows, matches))
        });
        evaluated.await.unwrap_or_else(|error| {
            tracing::error!(%error, "filter evaluation failed");
            Err(Fault::Other.into())
        })
    }

    /// Whether PostgreSQL may examine more rows for the page after `examined` rows. Few rows need no permit.
    pub(crate) fn may_examine_more(&self, examined: u64) -> Result<bool, StatementError> {
        Ok(examined <= SHORT_ROWS as u64 || self.permit()?.is_some())
    }

    /// The permit, if the read needs one and one is free.
    fn permit(&self) -> Result<Option<Arc<ScanPermit>>, StatementError> {
        if self.permit.get().is_none()
            && let Some(permit) = self.limit.free()
        {
            let _ = self.permit.set(Arc::new(permit));
        }
        match self.permit.get() {
            None if !self.stays_short => Err(StatementError::NeedsPermit),
            permit => Ok(permit.cloned()),
        }
    }
}

/// Evaluates rows, at least the first one, until `is_over` returns true for the cost so far. Returns which rows
/// match.
fn matching<T: Evaluated>(
    filter: &Prepared<'_>,
    rows: &[T],
    is_over: impl Fn(usize) -> bool,
) -> Result<Vec<bool>, StatementError> {
    let (mut matches, mut cost, mut next_look) = (Vec::with_capacity(rows.len()), 0, 0);
    for row in rows {
        if cost >= next_look && !matches.is_empty() {
            if is_over(cost) {
                break;
            }
            next_look = cost + CLOCK_COST;
        }
        matches.push(row.matches(filter)?);
        cost += filter.cost(row.bytes());
    }
    Ok(matches)
}

#[cfg(test)]
mod tests {
    use std::sync::Mutex;
    use std::thread::{self, ThreadId};

    use futures_util::FutureExt as _;

    use super::*;
    use crate::protocol::model::{CompareOp, EdmValue};
    use crate::protocol::plan::Field;

    const MINUTE: Duration = Duration::from_secs(60);

    /// A row that records the thread of its evaluation.
    struct Probe(usize, Arc<Mutex<Vec<ThreadId>>>);

    impl Evaluated for Probe {
        fn bytes(&self) -> usize {
            self.0
        }

        fn matches(&self, _: &Prepared<'_>) -> Result<bool, StatementError> {
            self.1.lock().unwrap().push(thread::current().id());
            Ok(true)
        }
    }

    fn filter(comparisons: i32) -> Predicate {
        let compare = |n| Predicate::Compare {
            field: Field::Custom("N".into()),
            op: CompareOp::Eq,
            literal: EdmValue::Int32(n),
        };
        Predicate::Any((0..comparisons).map(compare).collect())
    }

    /// Evaluates rows of this size and returns their number and threads.
    async fn evaluated(
        turn: &ScanTurn<'_>,
        comparisons: i32,
        rows: usize,
        bytes: usize,
    ) -> Result<(usize, Vec<ThreadId>), StatementError> {
        let threads = Arc::default();
        let rows = (0..rows).map(|_| Probe(bytes, Arc::clone(&threads))).collect();
        let matches = turn.evaluate(&filter(comparisons), rows).await?.1;
        let threads = std::mem::take(&mut *threads.lock().unwrap());
        Ok((matches.len(), threads))
    }

    fn take_all(limit: &ScanLimit) -> Vec<ScanPermit> {
        std::iter::from_fn(|| limit.free()).collect()
    }

    #[tokio::test]
    async fn little_is_evaluated_on_the_serving_thread_and_more_on_another_under_a_permit() {
        let limit = ScanLimit::new(Duration::MAX);
        let here = |threads: &[ThreadId]| threads.iter().all(|id| *id == thread::current().id());
        let turn = ScanTurn::new(&limit, MINUTE);
        let (count, threads) = evaluated(&turn, 20, 16, 500).await.unwrap();
        assert!(count == 16 && here(&threads) && turn.permit.get().is_none());
        let (count, threads) = evaluated(&turn, 600, 16, 30_000).await.unwrap();
        assert!(count == 16 && !threads.contains(&thread::current().id()));
        assert!(turn.permit.get().is_some(), "it is evaluated under a permit");
        let _others = take_all(&limit);
        let second = ScanTurn::new(&limit, MINUTE);
        assert!(evaluated(&second, 20, 16, 500).await.is_ok(), "others need none");
        assert_eq!(evaluated(&second, 600, 16, 30_000).await, Err(StatementError::NeedsPermit));
        assert_eq!(
            evaluated(&turn, 600, 16, 30_000).await.map(|(count, _)| count),
            Ok(16),
            "it keeps its own"
        );
    }

    #[tokio::test]
    async fn many_cheap_evaluations_need_a_permit_too() {
        let limit = ScanLimit::new(Duration::MAX);
        let _others = take_all(&limit);
        let turn = ScanTurn::new(&limit, MINUTE);
        let mut windows = 0;
        while evaluated(&turn, 20, 16, 500).await.is_ok() {
            windows += 1;
        }
        assert!((1..10).contains(&windows), "{windows}");
    }

    #[tokio::test]
    async fn a_read_that_waited_in_vain_gets_on_and_ends() {
        let limit = ScanLimit::new(Duration::MAX);
        let _others = take_all(&limit);
        let mut turn = ScanTurn::new(&limit, Duration::from_millis(20));
        assert_eq!(evaluated(&turn, 600, 16, 30_000).await, Err(StatementError::NeedsPermit));
        turn.wait_for_permit().await.unwrap();
        assert!(!turn.is_over(None));
        let (count, threads) = evaluated(&turn, 600, 16, 30_000).await.unwrap();
        assert!((1..16).contains(&count) && !threads.contains(&thread::current().id()), "{count} rows");
        assert!(turn.is_over(None));
    }

    #[tokio::test]
    async fn postgres_examines_few_rows_without_a_permit_and_more_under_one() {
        let limit = ScanLimit::of_database();
        let (few, more) = (SHORT_ROWS as u64, SHORT_ROWS as u64 + 1);
        let others = take_all(&limit);
        let mut turn = ScanTurn::new(&limit, Duration::from_millis(20));
        assert_eq!(turn.may_examine_more(few), Ok(true));
        assert_eq!(turn.may_examine_more(more), Err(StatementError::NeedsPermit));
        turn.wait_for_permit().await.unwrap();
        assert_eq!(turn.may_examine_more(few), Ok(true));
        assert_eq!(turn.may_examine_more(more), Ok(false), "the page ends where the permit is needed");
        let all = others.len();
        drop(others);
        assert_eq!(turn.may_examine_more(more), Ok(true));
        assert_eq!(take_all(&limit).len(), all - 1, "the page has a permit");
    }

    #[tokio::test]
    async fn a_read_with_a_permit_ends_after_its_turn_while_others_wait() {
        let limit = ScanLimit::new(MINUTE);
        let mut turn = ScanTurn::new(&limit, MINUTE);
        assert_eq!(evaluated(&turn, 600, 16, 30_000).await.map(|(count, _)| count), Ok(16));
        turn.started = Instant::now().checked_sub(CONNECTION_TURN).unwrap();
        assert!(!turn.is_over(None), "no other read waits");
        let others = take_all(&limit);
        let queue = limit.clone();
        let waiter = tokio::spawn(async move { queue.wait(MINUTE).await });
        while !limit.is_awaited() {
            tokio::task::yield_now().await;
        }
        assert!(turn.is_over(None));
        let (count, _) = evaluated(&turn, 600, 16, 30_000).await.unwrap();
        assert!((1..16).contains(&count), "{count} rows");
        drop(turn);
        assert!(waiter.await.unwrap().unwrap().is_some(), "the permit is handed on");
        drop(others);
    }

    #[tokio::test]
    async fn a_read_that_is_given_up_frees_its_permit_when_its_work_ends() {
        let limit = ScanLimit::new(Duration::MAX);
        let all = take_all(&limit).len();
        let threads = Arc::default();
        let held = Mutex::lock(&threads).unwrap();
        {
            let turn = ScanTurn::new(&limit, MINUTE);
            let rows = vec![Probe(30_000, Arc::clone(&threads))];
            let filter = filter(600);
            let mut work = std::pin::pin!(turn.evaluate(&filter, rows));
            assert!(work.as_mut().now_or_never().is_none());
        }
        assert_eq!(take_all(&limit).len(), all - 1, "the work goes on");
        drop(held);
        while take_all(&limit).len() < all {
            tokio::task::yield_now().await;
        }
    }
}
