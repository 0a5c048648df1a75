//! Limits scans: reads that skip many rows or make expensive comparisons. A few scans run at a time and others wait in
//! a bounded queue, which leaves processors for other requests. While others wait, a scan ends its page early.

use std::num::NonZero;
use std::sync::Arc;
use std::thread::available_parallelism;
use std::time::{Duration, Instant};

use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::time::timeout;

use crate::{Fault, StoreResult};

const MAX_WAITING: usize = 64;
/// Maximum time of a scan while others wait. A full queue gets through within the time of a page.
pub(crate) const TURN: Duration = Duration::from_millis(50);
/// A walk becomes a scan when it has skipped more than this many rows, or when its comparisons cost more than
/// [`SHORT_COST`].
pub(crate) const SHORT_ROWS: usize = 256;
const SHORT_COST: usize = 4 * 1024 * 1024;
/// The clock is checked once per this many rows, unless rows are slow.
const CLOCK_EVERY: usize = 64;
/// Rows are slow if at least this much time passes between two checks of the clock.
const SLOW_ROWS: Duration = Duration::from_millis(20);

#[derive(Clone)]
pub(crate) struct ScanLimit {
    /// One permit for each running or waiting scan.
    queue: Arc<Semaphore>,
    /// One permit for each running scan.
    running: Arc<Semaphore>,
    /// Maximum time of a scan on its connection.
    longest: Duration,
    /// Maximum time of a scan while others wait.
    turn: Duration,
}

/// Permission to scan, held until it is dropped.
pub(crate) struct ScanPermit {
    _queued: OwnedSemaphorePermit,
    _running: OwnedSemaphorePermit,
}

impl ScanLimit {
    /// Allows one scan per two processors.
    pub(crate) fn new(longest: Duration) -> Self {
        Self::with_permits(processors() / 2, longest)
    }

    /// Allows one scan per local processor. PostgreSQL runs these scans, and is assumed to have as many processors.
    pub(crate) fn of_database() -> Self {
        Self::with_permits(processors(), Duration::MAX)
    }

    fn with_permits(permits: usize, longest: Duration) -> Self {
        let permits = permits.max(1);
        Self {
            queue: Arc::new(Semaphore::new(permits + MAX_WAITING)),
            running: Arc::new(Semaphore::new(permits)),
            longest,
            turn: TURN,
        }
    }

    pub(crate) fn is_awaited(&self) -> bool {
        self.queue.available_permits() < self.running.available_permits() + MAX_WAITING
    }

    /// Returns a permit if one is free and no scan waits.
    pub(crate) fn free(&self) -> Option<ScanPermit> {
        // Acquired first, so that a caller without this permit never occupies the queue.
        let permit = Arc::clone(&self.running).try_acquire_owned().ok()?;
        let queued = Arc::clone(&self.queue).try_acquire_owned().ok()?;
        Some(ScanPermit { _queued: queued, _running: permit })
    }

    /// Waits for a permit for most of a page's time, which leaves time for the scan itself. `None` if no permit
    /// becomes free.
    ///
    /// # Errors
    /// [`Fault::NotBegun`] if the queue is full.
    pub(crate) async fn wait(&self, time: Duration) -> StoreResult<Option<ScanPermit>> {
        let queued = Arc::clone(&self.queue).try_acquire_owned().map_err(|_| Fault::NotBegun)?;
        let running = timeout(time.mul_f32(0.8), Arc::clone(&self.running).acquire_owned()).await;
        let running = running.ok().and_then(Result::ok);
        Ok(running.map(|permit| ScanPermit { _queued: queued, _running: permit }))
    }

    /// Whether a read that began at `started` must end its page so that others get their turn.
    pub(crate) fn is_turn_over(&self, started: Instant, is_awaited: impl FnOnce() -> bool) -> bool {
        started.elapsed() >= self.turn && is_awaited()
    }

    /// Starts a walk that takes at most `time` and may become a scan.
    pub(crate) fn walk(&self, time: Duration) -> ScanCounter {
        self.counter(time, None, false)
    }

    /// Starts a walk that is a scan if it has a permit, and otherwise ends where it would become one.
    pub(crate) fn walk_with(&self, time: Duration, permit: Option<ScanPermit>) -> ScanCounter {
        let stays_short = permit.is_none();
        self.counter(time, permit, stays_short)
    }

    fn counter(&self, time: Duration, permit: Option<ScanPermit>, stays_short: bool) -> ScanCounter {
        ScanCounter {
            limit: self.clone(),
            permit,
            stays_short,
            is_over: false,
            time,
            started: Instant::now(),
            last_look: Duration::ZERO,
            clock_every: 0,
            rows_to_look: 0,
            passed_rows: 0,
            passed_cost: 0,
        }
    }
}

fn processors() -> usize {
    available_parallelism().map_or(1, NonZero::get)
}

#[derive(Debug)]
pub(crate) enum ScanStep<T> {
    Done(T),
    /// The walk is a scan and all permits are taken. It must be repeated with a permit.
    NeedsPermit,
}

/// Counts the rows of a walk, and limits its time.
pub(crate) struct ScanCounter {
    limit: ScanLimit,
    permit: Option<ScanPermit>,
    /// Whether the page ends where a permit would be needed.
    stays_short: bool,
    is_over: bool,
    time: Duration,
    started: Instant,
    /// Time of the last clock check, relative to the start.
    last_look: Duration,
    /// The clock is checked once per this many rows; 0 before the first row.
    clock_every: usize,
    /// Number of rows until the next check.
    rows_to_look: usize,
    passed_rows: usize,
    passed_cost: usize,
}

impl ScanCounter {
    /// Counts a row. `false` if the time is up; the row then belongs to the next page.
    pub(crate) fn row(&mut self) -> bool {
        if self.is_over {
            return false;
        }
        if self.rows_to_look > 0 {
            self.rows_to_look -= 1;
            return true;
        }
        let elapsed = self.started.elapsed();
        let is_slow = elapsed.saturating_sub(self.last_look) >= SLOW_ROWS;
        // Every page makes progress, however short its time: at least the rows between two checks, or one slow row.
        let has_advanced = self.clock_every == CLOCK_EVERY || is_slow && self.clock_every > 0;
        if has_advanced && (elapsed >= self.time() || self.is_turn_over()) {
            return false;
        }
        self.clock_every = if is_slow { 1 } else { (2 * self.clock_every).clamp(1, CLOCK_EVERY) };
        self.last_look = elapsed;
        self.rows_to_look = self.clock_every - 1;
        true
    }

    fn time(&self) -> Duration {
        if self.is_long() { self.time.min(self.limit.longest) } else { self.time }
    }

    fn is_turn_over(&self) -> bool {
        self.permit.is_some() && self.limit.is_turn_over(self.started, || self.limit.is_awaited())
    }

    /// Records a row that does not match, or has expensive comparisons; `false` if the walk needs a permit.
    pub(crate) fn pass(&mut self, cost: usize) -> bool {
        self.passed_rows += 1;
        self.passed_cost = self.passed_cost.saturating_add(cost);
        if self.is_long() && self.permit.is_none() {
            self.permit = self.limit.free();
            self.is_over = self.stays_short && self.permit.is_none();
            return self.stays_short || self.permit.is_some();
        }
        true
    }

    const fn is_long(&self) -> bool {
        self.permit.is_some() || self.passed_rows > SHORT_ROWS || self.passed_cost > SHORT_COST
    }
}

#[cfg(test)]
mod tests {
    use tempfile::TempDir;

    use super::*;
    use crate::error::{Code, Error};
    use crate::protocol::codec::validated::ValidatedProperties;
    use crate::protocol::model::{CompareOp, EdmValue, Key, Stored, TableName, TableRef, Ticks};
    use crate::protocol::plan::{Field, Predicate, Scan, Span, TableScan, Write, WriteKind};
    use crate::sqlite::{Location, SqliteOptions, SqliteStore};
    use crate::{Entities, Failure, StoreResult, Tables, Upkeep};

    const ACCOUNT: &str = "account";
    const ROWS: usize = 3 * SHORT_ROWS;

    fn now() -> Ticks {
        Ticks::from_raw(638_000_000_000_000_000).unwrap()
    }

    fn insert(row: usize) -> Write {
        let properties = vec![("N".to_owned(), EdmValue::Int32(i32::try_from(row).unwrap()))];
        let properties = ValidatedProperties::new(0, &properties, None).unwrap();
        Write { kind: WriteKind::Insert, key: Key::new("p", format!("{row:05}")), properties }
    }

    async fn entities(store: &SqliteStore, table: TableRef<'_>, scan: &Scan) -> StoreResult<Vec<Stored>> {
        Ok(store.page(table, scan, Vec::new()).await?.0)
    }

    /// Selects entities by their number.
    fn numbered(n: usize, time: Duration) -> Scan {
        let literal = EdmValue::Int32(i32::try_from(n).unwrap());
        Scan {
            residual: Some(Predicate::Compare {
                field: Field::Custom("N".into()),
                op: CompareOp::Eq,
                literal,
            }),
            rows: 1,
            bytes: usize::MAX,
            time,
            ..Scan::of_spans(vec![Span::everything()])
        }
    }

    /// Counts the entities with a number, page by page: a page ends with the turn of its scan.
    async fn found_in_turns(store: &SqliteStore, table: &TableName, n: usize) -> usize {
        let mut scan = numbered(n, Duration::from_secs(60));
        loop {
            let (found, end) =
                store.page(table.in_account(ACCOUNT), &scan, Vec::<Stored>::new()).await.unwrap();
            let Some(next) = end.next.filter(|_| found.is_empty()) else { return found.len() };
            scan.spans = vec![Span { lower: next, upper: None }];
        }
    }

    async fn filled(location: Location) -> (Arc<SqliteStore>, TableName) {
        let store = SqliteStore::open(&SqliteOptions::new(location)).unwrap();
        let table = TableName::parse("People").unwrap();
        store.create_table(table.in_account(ACCOUNT), now()).await.unwrap();
        let writes: Vec<Write> = (0..ROWS).map(insert).collect();
        for group in writes.chunks(100) {
            store.transact(table.in_account(ACCOUNT), &group.into(), now()).await.unwrap();
        }
        (Arc::new(store), table)
    }

    fn permits(store: &SqliteStore) -> usize {
        store.scan_limit.running.available_permits()
    }

    fn take_all(store: &SqliteStore) -> Vec<ScanPermit> {
        let taken: Vec<ScanPermit> = std::iter::from_fn(|| store.scan_limit.free()).collect();
        assert!(!taken.is_empty() && permits(store) == 0);
        taken
    }

    /// Performs operations that are not scans while all permits are taken.
    async fn goes_on(store: &SqliteStore, table: &TableName) {
        let minute = Duration::from_secs(60);
        assert!(store.get(table.in_account(ACCOUNT), &Key::new("p", "00000")).await.unwrap().is_some());
        store.write(table.in_account(ACCOUNT), &insert(ROWS), now()).await.unwrap();
        store.answers().await.unwrap();
        let upper = Some(Key::new("p", format!("{SHORT_ROWS:05}")));
        let range = vec![Span { lower: Key::new("p", ""), upper }];
        let first = Scan { spans: range, ..numbered(SHORT_ROWS - 1, minute) };
        assert_eq!(entities(store, table.in_account(ACCOUNT), &first).await.unwrap().len(), 1);
        let all = Scan { residual: None, rows: 1000, ..numbered(0, minute) };
        assert_eq!(entities(store, table.in_account(ACCOUNT), &all).await.unwrap().len(), ROWS + 1);
        let tables = TableScan { spans: vec![Span::everything()], residual: None, rows: 10, time: minute };
        assert_eq!(store.list_tables(ACCOUNT, &tables).await.unwrap().tables.len(), 1);
    }

    async fn scans_take_turns(location: Location) {
        let (store, table) = filled(location).await;
        let all = permits(&store);
        let minute = Duration::from_secs(60);
        let taken = take_all(&store);
        let waiting: Vec<_> = (0..MAX_WAITING)
            .map(|_| {
                let (store, table) = (Arc::clone(&store), table.clone());
                tokio::spawn(async move { found_in_turns(&store, &table, ROWS - 1).await })
            })
            .collect();
        while store.scan_limit.queue.available_permits() > 0 {
            tokio::task::yield_now().await;
        }
        let refused = entities(&store, table.in_account(ACCOUNT), &numbered(ROWS - 1, minute)).await;
        assert_eq!(refused, Err(Failure::Fault(Fault::NotBegun)));
        assert_eq!(Error::from(refused.unwrap_err()).code, Code::ServerBusy);
        goes_on(&store, &table).await;
        drop(taken);
        for waited in waiting {
            assert_eq!(waited.await.unwrap(), 1);
        }
        assert_eq!((permits(&store), store.scan_limit.queue.available_permits()), (all, all + MAX_WAITING));
        let found = entities(&store, table.in_account(ACCOUNT), &numbered(ROWS - 1, minute)).await.unwrap();
        assert_eq!(found.len(), 1, "no scan waits where there is a permit");
    }

    #[test]
    fn the_clock_is_looked_at_more_often_where_rows_are_slow() {
        let mut walk = ScanLimit::new(Duration::from_secs(60)).walk(4 * SLOW_ROWS);
        let mut slow = || {
            std::thread::sleep(SLOW_ROWS);
            walk.row()
        };
        let rows = (0..CLOCK_EVERY).take_while(|_| slow()).count();
        assert!(rows < 8, "{rows} slow rows");
    }

    #[tokio::test]
    async fn scans_take_turns_and_nothing_else_waits_for_them() {
        let folder = TempDir::new().unwrap();
        scans_take_turns(Location::File(folder.path().join("a.db"))).await;
        scans_take_turns(Location::Memory).await;
    }

    #[tokio::test]
    async fn a_scan_that_waited_in_vain_gets_on_and_one_that_is_given_up_leaves_the_queue() {
        let (store, table) = filled(Location::Memory).await;
        let taken = take_all(&store);
        let free = store.scan_limit.queue.available_permits();
        let mut scan = numbered(ROWS - 1, Duration::from_millis(20));
        let (mut pages, mut found) = (0, 0);
        loop {
            let (page, end) =
                store.page(table.in_account(ACCOUNT), &scan, Vec::<Stored>::new()).await.unwrap();
            (pages, found) = (pages + 1, found + page.len());
            let Some(next) = end.next else { break };
            assert!(pages < ROWS, "each page gets on");
            scan.spans = scan.order.rest_of(scan.spans, &next);
        }
        assert_eq!((found, pages > 2), (1, true), "{pages} pages");
        assert_eq!(store.scan_limit.queue.available_permits(), free);
        let scan = numbered(ROWS - 1, Duration::from_secs(60));
        let given_up =
            timeout(Duration::from_millis(50), entities(&store, table.in_account(ACCOUNT), &scan)).await;
        assert!(given_up.is_err());
        assert_eq!(store.scan_limit.queue.available_permits(), free);
        drop(taken);
    }

    #[tokio::test]
    async fn a_scan_ends_its_page_while_others_wait() {
        let minute = Duration::from_secs(60);
        let limit = ScanLimit { turn: Duration::ZERO, ..ScanLimit::new(minute) };
        let mut scans: Vec<ScanCounter> =
            std::iter::from_fn(|| limit.free()).map(|permit| limit.walk_with(minute, Some(permit))).collect();
        let examined = |scan: &mut ScanCounter| (0..ROWS).take_while(|_| scan.row() && scan.pass(1)).count();
        for scan in &mut scans {
            assert_eq!(examined(scan), ROWS, "no other scan waits");
        }
        let queue = limit.clone();
        let waiter = tokio::spawn(async move { queue.wait(minute).await });
        while !limit.is_awaited() {
            tokio::task::yield_now().await;
        }
        for scan in &mut scans {
            assert!(examined(scan) <= CLOCK_EVERY);
        }
        drop(scans);
        let last = waiter.await.unwrap().unwrap();
        assert!(last.is_some() && !limit.is_awaited());
        assert_eq!(examined(&mut limit.walk_with(minute, last)), ROWS);
    }

    #[test]
    fn long_walks_keep_the_connection_no_longer_than_they_may() {
        let limit = ScanLimit::new(Duration::ZERO);
        let mut walk = limit.walk(Duration::from_secs(60));
        let rows = (0..ROWS).take_while(|_| walk.row() && walk.pass(1)).count();
        let next_look = SHORT_ROWS..=SHORT_ROWS + CLOCK_EVERY;
        assert!(next_look.contains(&rows), "the first look at the clock past a short walk, not {rows}");
        drop(walk);
        let mut large = limit.walk(Duration::from_secs(60));
        assert!(large.pass(SHORT_COST) && large.permit.is_none());
        assert!(large.pass(1) && large.permit.is_some(), "costly comparisons make a scan, too");
    }
}
