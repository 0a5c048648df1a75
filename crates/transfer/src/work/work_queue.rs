//! The ranges of a transfer, shared among workers: an idle worker takes a part of another worker's range.
use std::time::Duration;

use parking_lot::{Condvar, Mutex, MutexGuard};

use crate::contract::{Page, TransferSource};
use crate::error::TransferResult;
use crate::protocol::model::Key;
use crate::rows::range::{Lower, RowRange, sorts_alike};
use crate::work::in_parallel;
use crate::work::progress::Progress;
use crate::work::split::Remainder;

/// Rows that must be read from a range before it is split, because splitting a small range costs more than it saves.
const ROWS_BEFORE_SPLIT: usize = 1000;
/// Rows that must be read for each part of a split.
const ROWS_OF_PART: usize = 250;
/// The interval at which a waiting worker checks for work.
const WAIT_INTERVAL: Duration = Duration::from_millis(100);

/// A range of a table that is to be read.
#[derive(Debug, Clone)]
pub(crate) struct Task {
    pub id: i64,
    pub table: String,
    pub range: RowRange,
    /// After an interruption, the number of entities of the range that were written before.
    pub resumed: Option<u64>,
}

#[derive(Debug)]
struct RangeState {
    task: Task,
    is_taken: bool,
    claimed: Option<Key>,
    /// Rows that were read since the last search for split points.
    rows: usize,
    /// Rows to read before the next search; doubled after each search without a result.
    rows_before_split: usize,
    is_splitting: bool,
}

impl RangeState {
    const fn new(task: Task, is_taken: bool) -> Self {
        let rows_before_split = ROWS_BEFORE_SPLIT;
        Self { task, is_taken, claimed: None, rows: 0, rows_before_split, is_splitting: false }
    }
}

#[derive(Debug, Default)]
struct Ranges {
    open: Vec<RangeState>,
    last_id: i64,
    /// Workers that wait for work.
    waiting: usize,
    is_stopped: bool,
}

/// The unfinished ranges.
#[derive(Debug, Default)]
pub(crate) struct WorkQueue {
    ranges: Mutex<Ranges>,
    changed: Condvar,
}

/// Records a cut of the range with this number. The task is the new range after the cut.
type RecordCut<'a> = &'a dyn Fn(i64, &Task) -> TransferResult<()>;

impl WorkQueue {
    /// Returns a queue with the ranges of some tables of a source.
    pub(crate) fn for_tables(
        source: &dyn TransferSource,
        tables: &[String],
        progress: &Progress,
    ) -> TransferResult<Self> {
        let queue = Self::default();
        let mut id = 0;
        for table in tables {
            progress.expect(table, source.expected(table)?);
            for range in source.ranges(table)? {
                id += 1;
                queue.add(Task { id, table: table.clone(), range, resumed: None });
            }
        }
        Ok(queue)
    }

    pub(crate) fn add(&self, task: Task) {
        let mut ranges = self.lock();
        ranges.last_id = ranges.last_id.max(task.id);
        ranges.open.push(RangeState::new(task, false));
        self.changed.notify_one();
    }

    /// Numbers new ranges above `id`.
    pub(crate) fn number_above(&self, id: i64) {
        let mut ranges = self.lock();
        ranges.last_id = ranges.last_id.max(id);
    }

    pub(crate) fn stop(&self) {
        self.lock().is_stopped = true;
        self.changed.notify_all();
    }

    pub(crate) fn is_stopped(&self) -> bool {
        self.lock().is_stopped
    }

    pub(crate) fn is_idle(&self) -> bool {
        let ranges = self.lock();
        ranges.is_stopped || ranges.open.is_empty()
    }

    /// Returns a range to work on; `None` when all are finished or the queue was stopped. `record` is called
    /// with a range that was split, before either half continues.
    pub(crate) fn take(
        &self,
        source: Option<&dyn TransferSource>,
        record: RecordCut<'_>,
    ) -> TransferResult<Option<Task>> {
        loop {
            let mut ranges = self.lock();
            if ranges.is_stopped || ranges.open.is_empty() {
                return Ok(None);
            }
            if let Some(free) = ranges.open.iter_mut().find(|range| !range.is_taken) {
                free.is_taken = true;
                return Ok(Some(free.task.clone()));
            }
            let splittable =
                |range: &&mut RangeState| !range.is_splitting && range.rows >= range.rows_before_split;
            let largest = ranges.open.iter_mut().filter(splittable).max_by_key(|range| range.rows);
            let (Some(source), Some(largest)) = (source, largest) else {
                ranges.waiting += 1;
                self.changed.wait_for(&mut ranges, WAIT_INTERVAL);
                ranges.waiting -= 1;
                continue;
            };
            largest.is_splitting = true;
            let (task, claimed) = (largest.task.clone(), largest.claimed.clone());
            let rows = largest.rows;
            let width = parts(ranges.waiting + 1, rows);
            drop(ranges);
            let points = match claimed {
                Some(claimed) => {
                    let (table, upper) = (task.table.as_str(), task.range.upper);
                    let reached = || self.reached(task.id);
                    let rest = Remainder { source, table, claimed, upper, width, reached: &reached };
                    match rest.points() {
                        // The reader of the range reports the failure.
                        Err(error) if error.is_of_table() => Vec::new(),
                        points => points?,
                    }
                }
                None => Vec::new(),
            };
            if let Some(taken) = self.cut(task.id, points, record)? {
                return Ok(Some(taken));
            }
        }
    }

    /// Splits a range at keys in ascending order, except keys that its worker has passed. Returns the first of the new
    /// ranges; waiting workers take the others.
    fn cut(&self, id: i64, points: Vec<Key>, record: RecordCut<'_>) -> TransferResult<Option<Task>> {
        let mut ranges = self.lock();
        let mut last_id = ranges.last_id;
        let Some(range) = ranges.open.iter_mut().find(|range| range.task.id == id) else { return Ok(None) };
        let mut new = Vec::new();
        for at in points.into_iter().rev() {
            let RowRange { upper, .. } = &range.task.range;
            let is_ahead = range.claimed.as_ref().is_none_or(|claimed| *claimed < at)
                && upper.as_ref().is_none_or(|upper| at < *upper);
            if !is_ahead || !sorts_alike(&at) {
                continue;
            }
            last_id += 1;
            let upper = range.task.range.upper.replace(at.clone());
            let behind = RowRange { lower: Lower::From(at), upper };
            let behind = Task { id: last_id, table: range.task.table.clone(), range: behind, resumed: None };
            record(id, &behind)?;
            new.push(RangeState::new(behind, false));
        }
        range.is_splitting = false;
        range.rows = 0;
        range.rows_before_split =
            if new.is_empty() { range.rows_before_split.saturating_mul(2) } else { ROWS_BEFORE_SPLIT };
        let taken = new.last_mut().map(|first| {
            first.is_taken = true;
            first.task.clone()
        });
        ranges.last_id = last_id;
        ranges.open.extend(new);
        self.changed.notify_all();
        Ok(taken)
    }

    /// Returns the last key that the worker of a range has read; `None` if the range is finished.
    fn reached(&self, id: i64) -> Option<Key> {
        let ranges = self.lock();
        let range = ranges.open.iter().find(|range| range.task.id == id && !ranges.is_stopped)?;
        range.claimed.clone().filter(|claimed| *claimed != end_key())
    }

    /// Records the last key that a worker has read, and the number of rows. Returns the end of the worker's range. Rows
    /// at or after the end belong to another worker.
    pub(crate) fn claim(&self, id: i64, last: Option<&Key>, rows: usize) -> Option<Key> {
        let mut ranges = self.lock();
        let range = ranges.open.iter_mut().find(|range| range.task.id == id)?;
        if let Some(last) = last {
            range.claimed = Some(last.clone());
        }
        range.rows += rows;
        let upper = range.task.range.upper.clone();
        if range.rows >= range.rows_before_split {
            self.changed.notify_one();
        }
        upper
    }

    /// Removes rows that belong to another worker by now; returns whether there were any.
    pub(crate) fn keep_own(&self, task: &Task, page: &mut Page, is_ordered: bool) -> bool {
        let last = page.rows.last().map(|row| row.key.clone());
        let upper = self.claim(task.id, last.as_ref(), page.rows.len());
        let Some(upper) = upper.filter(|_| is_ordered) else { return false };
        let before = page.rows.len();
        page.rows.retain(|row| row.key < upper);
        page.rows.len() < before
    }

    pub(crate) fn finish(&self, id: i64) {
        let mut ranges = self.lock();
        ranges.open.retain(|range| range.task.id != id);
        self.changed.notify_all();
    }

    /// Closes a range, which prevents further splits. Returns its end.
    pub(crate) fn close(&self, id: i64) -> Option<Key> {
        let mut ranges = self.lock();
        let range = ranges.open.iter_mut().find(|range| range.task.id == id)?;
        range.claimed = Some(end_key());
        range.task.range.upper.clone()
    }

    /// Does the same work for each range on several threads, and splits ranges if `source` has an order.
    pub(crate) fn each(
        &self,
        source: &dyn TransferSource,
        threads: usize,
        work: impl Fn(&Task) -> TransferResult<()> + Send + Sync,
    ) -> TransferResult<()> {
        let splits = source.is_ordered().then_some(source);
        self.run(threads, || {
            while let Some(task) = self.take(splits, &|_, _| Ok(()))? {
                work(&task)?;
                self.finish(task.id);
            }
            Ok(())
        })
    }

    /// Runs the same work on several threads; the first error stops the others.
    pub(crate) fn run(
        &self,
        threads: usize,
        worker: impl Fn() -> TransferResult<()> + Send + Sync,
    ) -> TransferResult<()> {
        let workers = vec![(); threads.max(1)];
        in_parallel(workers.len(), workers, |()| worker().inspect_err(|_| self.stop())).map(drop)
    }

    fn lock(&self) -> MutexGuard<'_, Ranges> {
        self.ranges.lock()
    }
}

/// Returns the number of parts to split a range into after reading `rows` of its rows. A split point costs a
/// request, so a small range gets few.
fn parts(idle: usize, rows: usize) -> usize {
    idle.min(rows / ROWS_OF_PART + 1)
}

/// The greatest possible key. A range that has claimed it is not split any more.
fn end_key() -> Key {
    Key::new("\u{10ffff}", "")
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;
    use crate::rows::Row;
    use crate::work::sorted_source::{KeyOrder, SortedSource};
    use proptest::prelude::*;

    /// Reads a place with several workers; returns the keys in the order in which they came.
    fn read(place: &SortedSource, queue: &WorkQueue) -> Vec<Key> {
        let all = Mutex::new(Vec::new());
        queue.add(Task { id: 1, table: "People".into(), range: RowRange::everything(), resumed: None });
        let work = |task: &Task| {
            let mut reader = place.open(&task.table, &task.range, false)?;
            while let Some(mut page) = reader.next()? {
                let is_last = queue.keep_own(task, &mut page, true);
                // Give others time to split.
                std::thread::yield_now();
                all.lock().extend(page.rows.into_iter().map(|row| row.key));
                if is_last {
                    break;
                }
            }
            Ok(())
        };
        queue.each(place, 4, work).unwrap();
        all.into_inner()
    }

    #[test]
    fn a_range_is_split_into_no_more_parts_than_its_rows_are_worth() {
        assert_eq!(
            [parts(4, ROWS_BEFORE_SPLIT), parts(256, ROWS_BEFORE_SPLIT), parts(256, 100_000)],
            [4, 5, 256]
        );
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(24))]
        #[test]
        fn ranges_that_are_split_at_random_cover_each_key_once(
            keys in prop::collection::btree_set(("[a-c中\u{e000}😀]{0,2}", "[ -~中\u{e000}😀]{0,4}"), 2000..4000),
            units in any::<bool>(),
        ) {
            let row = |(partition, row): &(String, String)| Row {
                key: Key::new(partition.as_str(), row.as_str()),
                modified: None,
                tag: None,
                properties: crate::protocol::model::entity::StoredProperties::from_stored_text("{}".into()),
            };
            let order = if units { KeyOrder::Utf16Units } else { KeyOrder::CodePoints };
            let place = SortedSource::new(order, keys.iter().map(row).collect(), 300);
            let read = read(&place, &WorkQueue::default());
            prop_assert_eq!(read.len(), keys.len());
            let keys: BTreeSet<Key> = keys.into_iter().map(|(p, r)| Key::new(p, r)).collect();
            prop_assert_eq!(read.into_iter().collect::<BTreeSet<_>>(), keys);
        }
    }
}
