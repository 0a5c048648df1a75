//! Limits scans: walks that pass over many rows. A few run at a time and others wait in a bounded queue,
//! so that other requests have processors left.

use std::num::NonZero;
use std::sync::Arc;
use std::thread::available_parallelism;
use std::time::{Duration, Instant};

use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::time::timeout;

use crate::store::{Fault, StoreResult};

/// Maximum scans that wait for a permit.
const MAX_WAITING: usize = 64;
/// A walk that has passed over more rows or bytes than this is a scan.
const SHORT_ROWS: usize = 256;
const SHORT_BYTES: usize = 1024 * 1024;
/// The clock is checked once in this many rows, unless rows are slow.
const CLOCK_EVERY: usize = 64;
/// If more time than this passes between two checks of the clock, rows are slow.
const SLOW_ROWS: Duration = Duration::from_millis(20);

/// Permits for scans. Cheap to clone.
#[derive(Clone)]
pub(crate) struct ScanLimit {
    /// A permit for each scan that runs or waits.
    queue: Arc<Semaphore>,
    /// A permit for each scan that runs.
    running: Arc<Semaphore>,
    /// The maximum time of a scan on its connection.
    longest: Duration,
}

/// The permission to scan, until it is dropped.
pub(crate) struct ScanPermit {
    _queued: OwnedSemaphorePermit,
    _running: OwnedSemaphorePermit,
}

impl ScanLimit {
    /// Allows one scan for every two processors.
    pub(crate) fn new(longest: Duration) -> Self {
        let permits = (available_parallelism().map_or(1, NonZero::get) / 2).max(1);
        Self {
            queue: Arc::new(Semaphore::new(permits + MAX_WAITING)),
            running: Arc::new(Semaphore::new(permits)),
            longest,
        }
    }

    /// Returns a permit, if one is free and nobody waits.
    fn free(&self) -> Option<ScanPermit> {
        // Taken first: without it, this caller must not be in the queue even briefly.
        let permit = Arc::clone(&self.running).try_acquire_owned().ok()?;
        let queued = Arc::clone(&self.queue).try_acquire_owned().ok()?;
        Some(ScanPermit { _queued: queued, _running: permit })
    }

    /// Waits for a permit.
    ///
    /// # Errors
    /// [`Fault::NotBegun`] if the queue is full, or no permit becomes free in time.
    pub(crate) async fn wait(&self, limit: Duration) -> StoreResult<ScanPermit> {
        let queued = Arc::clone(&self.queue).try_acquire_owned().map_err(|_| Fault::NotBegun)?;
        match timeout(limit, Arc::clone(&self.running).acquire_owned()).await {
            Ok(Ok(permit)) => Ok(ScanPermit { _queued: queued, _running: permit }),
            _ => Err(Fault::NotBegun.into()),
        }
    }

    /// Starts a walk that may take this long, with or without a permit.
    pub(crate) fn walk(&self, time: Duration, permit: Option<ScanPermit>) -> ScanCounter {
        ScanCounter {
            limit: self.clone(),
            permit,
            time,
            started: Instant::now(),
            last_look: Duration::ZERO,
            clock_every: 0,
            rows_to_look: 0,
            passed_rows: 0,
            passed_bytes: 0,
        }
    }
}

/// How a walk ended.
#[derive(Debug)]
pub(crate) enum ScanStep<T> {
    Done(T),
    /// It is a scan and all permits are taken: it must be repeated with a permit.
    NeedsPermit,
}

/// Counts the rows of a walk, and checks its time.
pub(crate) struct ScanCounter {
    limit: ScanLimit,
    permit: Option<ScanPermit>,
    time: Duration,
    started: Instant,
    /// When the clock was last checked, relative to the start.
    last_look: Duration,
    /// The clock is checked once in this many rows; 0 before the first row.
    clock_every: usize,
    /// Rows until the next check.
    rows_to_look: usize,
    passed_rows: usize,
    passed_bytes: usize,
}

impl ScanCounter {
    /// Counts a row; `false` if the time is up, and the row belongs to the next page.
    pub(crate) fn row(&mut self) -> bool {
        if self.rows_to_look > 0 {
            self.rows_to_look -= 1;
            return true;
        }
        let elapsed = self.started.elapsed();
        let is_slow = elapsed.saturating_sub(self.last_look) >= SLOW_ROWS;
        // However short its time, each page makes progress: by the rows between two checks, or by one slow
        // row.
        let has_advanced = self.clock_every == CLOCK_EVERY || is_slow && self.clock_every > 0;
        if has_advanced && elapsed >= self.time() {
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

    /// Whether skipped rows need no further counting.
    pub(crate) const fn has_permit(&self) -> bool {
        self.permit.is_some()
    }

    /// Passes over a row that does not match; `false` if the walk needs a permit.
    pub(crate) fn pass(&mut self, bytes: usize) -> bool {
        self.passed_rows += 1;
        self.passed_bytes = self.passed_bytes.saturating_add(bytes);
        if self.is_long() && self.permit.is_none() {
            self.permit = self.limit.free();
            return self.permit.is_some();
        }
        true
    }

    const fn is_long(&self) -> bool {
        self.permit.is_some() || self.passed_rows > SHORT_ROWS || self.passed_bytes > SHORT_BYTES
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
    use crate::store::sqlite::{Location, SqliteOptions, SqliteStore};
    use crate::store::{Entities, Failure, StoreResult, Tables, Upkeep};

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

    /// The entities whose number is this.
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
            ..Scan::over(vec![Span::everything()])
        }
    }

    async fn filled(location: Location) -> (Arc<SqliteStore>, TableName) {
        let store = SqliteStore::open(&SqliteOptions::new(location)).unwrap();
        let table = TableName::parse("People").unwrap();
        store.create_table(table.in_account(ACCOUNT), now()).await.unwrap();
        let writes: Vec<Write> = (0..ROWS).map(insert).collect();
        for group in writes.chunks(100) {
            store.transact(table.in_account(ACCOUNT), group, now()).await.unwrap();
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

    /// What is no scan, with all permits taken.
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
                tokio::spawn(async move {
                    entities(&store, table.in_account(ACCOUNT), &numbered(ROWS - 1, minute)).await
                })
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
            assert_eq!(waited.await.unwrap().unwrap().len(), 1);
        }
        assert_eq!((permits(&store), store.scan_limit.queue.available_permits()), (all, all + MAX_WAITING));
        let found = entities(&store, table.in_account(ACCOUNT), &numbered(ROWS - 1, minute)).await.unwrap();
        assert_eq!(found.len(), 1, "nobody waits where there is a permit");
    }

    #[test]
    fn the_clock_is_looked_at_more_often_where_rows_are_slow() {
        let mut walk = ScanLimit::new(Duration::from_secs(60)).walk(4 * SLOW_ROWS, None);
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
    async fn a_scan_that_waited_in_vain_and_one_that_is_given_up_leave_the_queue() {
        let (store, table) = filled(Location::Memory).await;
        let taken = take_all(&store);
        let free = store.scan_limit.queue.available_permits();
        let scan = numbered(ROWS - 1, Duration::from_millis(20));
        assert_eq!(
            entities(&store, table.in_account(ACCOUNT), &scan).await,
            Err(Failure::Fault(Fault::NotBegun))
        );
        assert_eq!(store.scan_limit.queue.available_permits(), free);
        let scan = numbered(ROWS - 1, Duration::from_secs(60));
        let given_up =
            timeout(Duration::from_millis(50), entities(&store, table.in_account(ACCOUNT), &scan)).await;
        assert!(given_up.is_err());
        assert_eq!(store.scan_limit.queue.available_permits(), free);
        drop(taken);
    }

    #[test]
    fn long_walks_keep_the_connection_no_longer_than_they_may() {
        let limit = ScanLimit::new(Duration::ZERO);
        let mut walk = limit.walk(Duration::from_secs(60), None);
        let rows = (0..ROWS).take_while(|_| walk.row() && walk.pass(1)).count();
        let next_look = SHORT_ROWS..=SHORT_ROWS + CLOCK_EVERY;
        assert!(next_look.contains(&rows), "the first look at the clock past a short walk, not {rows}");
        drop(walk);
        let mut large = limit.walk(Duration::from_secs(60), None);
        assert!(large.pass(SHORT_BYTES) && large.permit.is_none());
        assert!(large.pass(1) && large.permit.is_some(), "large rows make a scan, too");
    }
}
