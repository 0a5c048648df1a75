//! The ranges of a transfer, shared among workers: one without work takes half of another's range.

use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use super::endpoint::{Page, TransferResult, TransferSource};
use super::midpoint::midpoint;
use super::range::{Lower, RowRange, sorts_alike};
use crate::model::Key;

/// Rows of a page from which on it counts as full.
const FULL_PAGE: usize = 250;
/// Full pages that a range must have read before it is split: small ranges are not worth the requests.
const PAGES_BEFORE_SPLIT: u32 = 2;
/// Maximum requests to find where to split a range.
const PROBES: usize = 24;
/// How often a waiting worker looks for work.
const WAIT: Duration = Duration::from_millis(100);

/// A range of a table that is to be read.
#[derive(Debug, Clone)]
pub(crate) struct Task {
    pub id: i64,
    pub table: String,
    pub range: RowRange,
    /// After an interruption, how many entities of the range were written before.
    pub resumed: Option<u64>,
}

/// The end of a range, which may have moved since the range was taken.
pub(crate) type Upper = Option<Key>;

#[derive(Debug)]
struct RangeState {
    task: Task,
    is_taken: bool,
    /// The last key that a worker has read.
    claimed: Option<Key>,
    full_pages: u32,
    is_splitting: bool,
}

#[derive(Debug, Default)]
struct Ranges {
    open: Vec<RangeState>,
    last_id: i64,
    is_stopped: bool,
}

/// The ranges that are not done.
#[derive(Debug, Default)]
pub(crate) struct Board {
    ranges: Mutex<Ranges>,
    changed: Condvar,
}

/// A range that was cut: its new end, and the range behind it.
pub(crate) struct Cut {
    pub id: i64,
    pub behind: Task,
}

impl Board {
    /// Adds a range that no worker has yet.
    pub(crate) fn add(&self, task: Task) {
        let mut ranges = self.lock();
        ranges.last_id = ranges.last_id.max(task.id);
        ranges.open.push(RangeState {
            task,
            is_taken: false,
            claimed: None,
            full_pages: 0,
            is_splitting: false,
        });
        self.changed.notify_one();
    }

    /// Numbers new ranges above this.
    pub(crate) fn number_above(&self, id: i64) {
        let mut ranges = self.lock();
        ranges.last_id = ranges.last_id.max(id);
    }

    /// Tells the workers to stop.
    pub(crate) fn stop(&self) {
        self.lock().is_stopped = true;
        self.changed.notify_all();
    }

    /// Whether the workers have been told to stop.
    pub(crate) fn is_stopped(&self) -> bool {
        self.lock().is_stopped
    }

    /// Whether there is nothing left to do.
    pub(crate) fn is_idle(&self) -> bool {
        let ranges = self.lock();
        ranges.is_stopped || ranges.open.is_empty()
    }

    /// Returns a range to work on; `None` when all are done or the board was stopped. `record` is
    /// called with a range that was split, before either half continues.
    pub(crate) fn take(
        &self,
        source: Option<&dyn TransferSource>,
        record: &dyn Fn(&Cut) -> TransferResult<()>,
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
            let splittable = |range: &&mut RangeState| {
                !range.is_splitting && range.full_pages >= PAGES_BEFORE_SPLIT && range.claimed.is_some()
            };
            let largest = ranges.open.iter_mut().filter(splittable).max_by_key(|range| range.full_pages);
            let (Some(source), Some(largest)) = (source, largest) else {
                drop(self.changed.wait_timeout(ranges, WAIT).unwrap_or_else(PoisonError::into_inner));
                continue;
            };
            largest.is_splitting = true;
            let (task, claimed) = (largest.task.clone(), largest.claimed.clone());
            drop(ranges);
            let at = match claimed {
                Some(claimed) => split_point(source, &task.table, &claimed, task.range.upper.as_ref())?,
                None => None,
            };
            if let Some(taken) = self.cut(task.id, at, record)? {
                return Ok(Some(taken));
            }
        }
    }

    /// Splits a range at a key, unless its worker has already reached it.
    fn cut(
        &self,
        id: i64,
        at: Option<Key>,
        record: &dyn Fn(&Cut) -> TransferResult<()>,
    ) -> TransferResult<Option<Task>> {
        let mut ranges = self.lock();
        let behind_id = ranges.last_id + 1;
        let Some(range) = ranges.open.iter_mut().find(|range| range.task.id == id) else { return Ok(None) };
        range.is_splitting = false;
        // The next split waits until the range has again filled several pages.
        range.full_pages = 0;
        let is_ahead = |at: &Key| range.claimed.as_ref().is_none_or(|claimed| claimed < at);
        let Some(at) = at.filter(|at| is_ahead(at) && sorts_alike(at)) else {
            return Ok(None);
        };
        let upper = range.task.range.upper.replace(at.clone());
        let behind = RowRange { lower: Lower::From(at), upper };
        let behind = Task { id: behind_id, table: range.task.table.clone(), range: behind, resumed: None };
        record(&Cut { id, behind: behind.clone() })?;
        ranges.last_id = behind_id;
        let state = RangeState {
            task: behind.clone(),
            is_taken: true,
            claimed: None,
            full_pages: 0,
            is_splitting: false,
        };
        ranges.open.push(state);
        Ok(Some(behind))
    }

    /// Records up to which key a worker has read, with a page of so many rows. Returns the end of its
    /// range, from which on rows belong to another worker.
    pub(crate) fn claim(&self, id: i64, last: Option<&Key>, rows: usize) -> Upper {
        let is_full = rows >= FULL_PAGE;
        let mut ranges = self.lock();
        let range = ranges.open.iter_mut().find(|range| range.task.id == id)?;
        if let Some(last) = last {
            range.claimed = Some(last.clone());
        }
        range.full_pages += u32::from(is_full);
        let upper = range.task.range.upper.clone();
        if is_full {
            self.changed.notify_one();
        }
        upper
    }

    /// Leaves out rows of a page that belong to another worker by now; returns whether there were any.
    pub(crate) fn keep_own(&self, task: &Task, page: &mut Page, is_ordered: bool) -> bool {
        let last = page.rows.last().map(|row| row.key.clone());
        let upper = self.claim(task.id, last.as_ref(), page.rows.len());
        let Some(upper) = upper.filter(|_| is_ordered) else { return false };
        let before = page.rows.len();
        page.rows.retain(|row| row.key < upper);
        page.rows.len() < before
    }

    /// Removes a range that is done.
    pub(crate) fn finish(&self, id: i64) {
        let mut ranges = self.lock();
        ranges.open.retain(|range| range.task.id != id);
        self.changed.notify_all();
    }

    /// Closes a range, so that it is not split any more. Returns its end.
    pub(crate) fn close(&self, id: i64) -> Upper {
        let mut ranges = self.lock();
        let range = ranges.open.iter_mut().find(|range| range.task.id == id)?;
        // A split in progress sees the greatest possible key as claimed.
        range.claimed = Some(Key::new("\u{10ffff}", ""));
        range.task.range.upper.clone()
    }

    fn lock(&self) -> MutexGuard<'_, Ranges> {
        self.ranges.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Finds a key in the rest of a range, about in the middle; between partitions if there are several.
fn split_point(
    source: &dyn TransferSource,
    table: &str,
    claimed: &Key,
    upper: Option<&Key>,
) -> TransferResult<Option<Key>> {
    // The split is between the partition of the claimed key and the end of the range.
    let top = upper.map(|upper| upper.partition.as_str());
    let range = |from: &str| RowRange { lower: Lower::From(Key::new(from, "")), upper: upper.cloned() };
    let found = search(&claimed.partition, top, |middle| source.probe(table, &range(middle)))?;
    if let Some(key) = found {
        return Ok(Some(Key::new(key.partition, "")));
    }
    let p = &claimed.partition;
    let top = upper.filter(|upper| upper.partition == *p).map(|upper| upper.row.as_str());
    let end = match top {
        Some(row) => Key::new(p.as_str(), row),
        None => Key::new(format!("{p}\u{1}"), ""),
    };
    search(&claimed.row, top, |middle| {
        let lower = Lower::From(Key::new(p.as_str(), middle));
        source.probe(table, &RowRange { lower, upper: Some(end.clone()) })
    })
}

/// Bisects the texts between two bounds until a probe finds a key after the middle.
fn search(
    low: &str,
    high: Option<&str>,
    probe: impl Fn(&str) -> TransferResult<Option<Key>>,
) -> TransferResult<Option<Key>> {
    let mut high = high.map(str::to_owned);
    for _ in 0..PROBES {
        let Some(middle) = midpoint(low, high.as_deref()) else { return Ok(None) };
        if let Some(key) = probe(&middle)? {
            return Ok(Some(key));
        }
        high = Some(middle);
    }
    Ok(None)
}
