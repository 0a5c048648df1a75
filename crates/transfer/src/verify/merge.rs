//! Compares a range by merging the ordered pages of both places.

use std::cmp::Ordering;
use std::collections::VecDeque;

use super::comparison::ComparisonRun;
use super::reordered::{ReorderedRows, Side};
use crate::contract::{Counts, RowReader};
use crate::error::TransferResult;
use crate::protocol::model::Key;
use crate::rows::Row;
use crate::rows::range::order_in_both;
use crate::work::work_queue::{Task, WorkQueue};

/// The number of keys that a page counts as at least for the rate limit.
const ROWS_OF_REQUEST: usize = 1000;
/// Maximum number of entities to delete at once.
const MAX_DELETED: usize = 500;

pub(super) struct Merge<'a> {
    run: &'a ComparisonRun<'a>,
    queue: &'a WorkQueue,
    task: &'a Task,
    /// Reads the target; `None` after the end.
    reader: Option<Box<dyn RowReader + 'a>>,
    /// Rows of the target that were read and are not merged yet.
    theirs: VecDeque<Row>,
    /// Rows whose positions differ between code-point and UTF-16 order.
    held: ReorderedRows,
    extra: Vec<Row>,
    /// Rows of the source that the target lacks or that have changed, to be copied.
    stale: Vec<Row>,
}

impl<'a> Merge<'a> {
    pub(super) fn run(
        run: &'a ComparisonRun<'a>,
        queue: &'a WorkQueue,
        task: &'a Task,
    ) -> TransferResult<()> {
        let options = run.options;
        let keys_only = options.delete_extra.is_some();
        let ours = options.source.open(&task.table, &task.range, keys_only)?;
        let reader = Some(options.target.open(options.in_target(&task.table), &task.range, keys_only)?);
        let (theirs, held) = (VecDeque::new(), ReorderedRows::default());
        let (extra, stale) = (Vec::new(), Vec::new());
        Self { run, queue, task, reader, theirs, held, extra, stale }.merge_all(ours)
    }

    fn merge_all(mut self, mut ours: Box<dyn RowReader + 'a>) -> TransferResult<()> {
        'pages: while let Some(page) = ours.next().map_err(|error| error.on("FROM"))? {
            self.run.options.check_stop()?;
            self.run.add_unreadable(&self.task.table, page.rejected);
            self.wait_for_rate(page.rows.len());
            let end = page.rows.last().map(|row| row.key.clone());
            let upper = self.queue.claim(self.task.id, end.as_ref(), page.rows.len());
            let (mut equal, mut read) = (0, 0);
            for row in page.rows {
                if upper.as_ref().is_some_and(|upper| row.key >= *upper) {
                    self.count(equal, read);
                    break 'pages;
                }
                read += 1;
                equal += self.merge(row)?;
            }
            self.count(equal, read);
            self.repair()?;
        }
        let upper = self.queue.close(self.task.id);
        while let Some(row) = self.next_before(upper.as_ref())? {
            self.pass_by_source(row)?;
        }
        self.finish_held()?;
        self.repair()?;
        self.delete_extra()
    }

    /// Waits until the rate limit allows a page. A page costs a request, so even a small one counts as full.
    fn wait_for_rate(&self, rows: usize) {
        let options = self.run.options;
        if let Some(limit) = options.repair.and_then(|repair| repair.rate_limit) {
            limit.wait(rows.max(ROWS_OF_REQUEST), options.stop);
        }
    }

    /// Returns the next row of the target.
    fn peek(&mut self) -> TransferResult<Option<&Row>> {
        while self.theirs.is_empty()
            && let Some(reader) = &mut self.reader
        {
            self.run.options.check_stop()?;
            match reader.next().map_err(|error| error.on("TO"))? {
                Some(page) => {
                    self.run.add_unreadable(&self.task.table, page.rejected);
                    self.theirs.extend(page.rows);
                }
                None => self.reader = None,
            }
        }
        Ok(self.theirs.front())
    }

    /// Takes the next row of the target if it lies before the end of the range.
    fn next_before(&mut self, upper: Option<&Key>) -> TransferResult<Option<Row>> {
        self.peek()?;
        Ok(self.theirs.pop_front_if(|row| upper.is_none_or(|upper| row.key < *upper)))
    }

    /// Merges one row of the source; returns 1 if the target has an equal row. Each place sorts by code point or by
    /// UTF-16 unit, so its reader has passed all keys that are less in both orders.
    fn merge(&mut self, row: Row) -> TransferResult<u64> {
        if let Some(there) = self.held.take(Side::Target, &row.key)? {
            return Ok(self.compare_pair(&row, Some(&there)));
        }
        loop {
            let order = match self.peek()? {
                Some(there) => order_in_both(&there.key, &row.key),
                None => Some(Ordering::Greater),
            };
            if order == Some(Ordering::Greater) {
                return Ok(self.compare_pair(&row, None));
            }
            let Some(there) = self.theirs.pop_front() else { continue };
            match order {
                Some(Ordering::Equal) => return Ok(self.compare_pair(&row, Some(&there))),
                Some(_) => self.pass_by_source(there)?,
                // The orders differ, so each row may lie before or after the position of the reader of the other place.
                None => {
                    self.held.hold(Side::Source, &row)?;
                    if !self.pair_held(&there)? {
                        self.held.hold(Side::Target, &there)?;
                    }
                    return Ok(0);
                }
            }
        }
    }

    /// Takes a row of the target that the source's reader has passed.
    fn pass_by_source(&mut self, there: Row) -> TransferResult<()> {
        if self.pair_held(&there)? { Ok(()) } else { self.add_extra(there) }
    }

    /// Compares a row of the target with the held row of the source that has its key; returns `false` without such a
    /// row.
    fn pair_held(&mut self, there: &Row) -> TransferResult<bool> {
        let Some(ours) = self.held.take(Side::Source, &there.key)? else { return Ok(false) };
        let equal = self.compare_pair(&ours, Some(there));
        self.count(equal, 0);
        Ok(true)
    }

    /// Handles the rows that are held at the end of the range. The other place does not have them.
    fn finish_held(&mut self) -> TransferResult<()> {
        let held = std::mem::take(&mut self.held);
        held.each(Side::Source, &mut |row| {
            self.compare_pair(&row, None);
            Ok(())
        })?;
        held.each(Side::Target, &mut |row| self.add_extra(row))
    }

    /// Compares a row with the target's; returns 1 if they are equal.
    fn compare_pair(&mut self, row: &Row, there: Option<&Row>) -> u64 {
        let options = self.run.options;
        if let Some(repair) = options.repair {
            if there.is_none() || (repair.has_changed)(&self.task.table, row) {
                self.stale.push(row.clone());
            }
            return 1;
        }
        let ignores = options.delete_extra.is_some();
        match there {
            Some(there) if ignores || options.is_same(row, there) => return 1,
            _ if ignores => {}
            _ => self.run.add_difference(&self.task.table, Some(row), there),
        }
        0
    }

    fn repair(&mut self) -> TransferResult<()> {
        self.run.repair(&self.task.table, std::mem::take(&mut self.stale))
    }

    fn count(&self, equal: u64, read: u64) {
        self.run.add_equal(&self.task.table, equal);
        self.run.options.progress.add(&self.task.table, Counts { written: read, ..Counts::default() });
    }

    fn add_extra(&mut self, row: Row) -> TransferResult<()> {
        if self.run.options.delete_extra.is_none() {
            self.run.add_difference(&self.task.table, None, Some(&row));
            return Ok(());
        }
        self.extra.push(row);
        if self.extra.len() >= MAX_DELETED { self.delete_extra() } else { Ok(()) }
    }

    fn delete_extra(&mut self) -> TransferResult<()> {
        self.run.delete_extra(&self.task.table, std::mem::take(&mut self.extra))
    }
}
