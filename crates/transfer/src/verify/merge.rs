//! Comparing a range: a merge of the ordered pages of both places.

use std::cmp::Ordering;
use std::collections::VecDeque;
use std::sync::Mutex;

use super::comparison::{Comparison, Found};
use super::reordered::{ReorderedRows, Side};
use crate::contract::Counts;
use crate::contract::RowReader;
use crate::error::TransferResult;
use crate::protocol::model::Key;
use crate::rows::Row;
use crate::rows::range::order_in_both;
use crate::work::work_queue::{Task, WorkQueue};

/// Entities that are deleted at once.
const MAX_DELETED: usize = 500;

/// The rows of the target's reader, one by one.
struct Rows<'a> {
    reader: Box<dyn RowReader + 'a>,
    read: VecDeque<Row>,
    is_over: bool,
}

/// The comparison of a range.
pub(super) struct Merge<'a> {
    comparison: &'a Comparison<'a>,
    queue: &'a WorkQueue,
    task: &'a Task,
    found: &'a Mutex<Found>,
    theirs: Rows<'a>,
    /// Rows whose places differ with the order.
    held: ReorderedRows,
    /// Extra entities to be deleted.
    extra: Vec<Row>,
}

impl<'a> Merge<'a> {
    /// Compares a range that was taken from the queue.
    pub(super) fn run(
        comparison: &'a Comparison<'a>,
        queue: &'a WorkQueue,
        task: &'a Task,
        found: &'a Mutex<Found>,
    ) -> TransferResult<()> {
        let keys_only = comparison.delete_extra.is_some();
        let ours = comparison.source.open(&task.table, &task.range, keys_only)?;
        let reader = comparison.target.open(comparison.in_target(&task.table), &task.range, keys_only)?;
        let theirs = Rows { reader, read: VecDeque::new(), is_over: false };
        let (held, extra) = (ReorderedRows::default(), Vec::new());
        Self { comparison, queue, task, found, theirs, held, extra }.merge_all(ours)
    }

    fn merge_all(mut self, mut ours: Box<dyn RowReader + 'a>) -> TransferResult<()> {
        'pages: while let Some(page) = ours.next().map_err(|error| error.of("FROM"))? {
            self.comparison.check_stop()?;
            self.comparison.unreadable(&self.task.table, page.rejected, self.found);
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
        }
        let upper = self.queue.close(self.task.id);
        while let Some(row) = self.next_before(upper.as_ref())? {
            self.passed_by_source(row)?;
        }
        self.settle()?;
        self.delete_extra()
    }

    /// Returns the next row of the target.
    fn peek(&mut self) -> TransferResult<Option<&Row>> {
        while self.theirs.read.is_empty() && !self.theirs.is_over {
            self.comparison.check_stop()?;
            match self.theirs.reader.next().map_err(|error| error.of("TO"))? {
                Some(page) => {
                    self.comparison.unreadable(&self.task.table, page.rejected, self.found);
                    self.theirs.read.extend(page.rows);
                }
                None => self.theirs.is_over = true,
            }
        }
        Ok(self.theirs.read.front())
    }

    /// Takes the next row of the target if it lies before the end of the range.
    fn next_before(&mut self, upper: Option<&Key>) -> TransferResult<Option<Row>> {
        self.peek()?;
        Ok(self.theirs.read.pop_front_if(|row| upper.is_none_or(|upper| row.key < *upper)))
    }

    /// Merges one row of the source; returns 1 if the target has an equal one. Each place sorts by code
    /// point or by UTF-16 unit: a key that is less in both has been passed.
    fn merge(&mut self, row: Row) -> TransferResult<u64> {
        if let Some(there) = self.held.take(Side::Target, &row.key)? {
            return Ok(self.pair(row, Some(&there)));
        }
        loop {
            let order = match self.peek()? {
                Some(there) => order_in_both(&there.key, &row.key),
                None => Some(Ordering::Greater),
            };
            if order == Some(Ordering::Greater) {
                return Ok(self.pair(row, None));
            }
            let Some(there) = self.theirs.read.pop_front() else { continue };
            match order {
                Some(Ordering::Equal) => return Ok(self.pair(row, Some(&there))),
                Some(_) => self.passed_by_source(there)?,
                None => return self.hold_both(&row, there).map(|()| 0),
            }
        }
    }

    /// Takes a row of the target that the source's reader has passed.
    fn passed_by_source(&mut self, there: Row) -> TransferResult<()> {
        match self.held.take(Side::Source, &there.key)? {
            Some(row) => {
                let equal = self.pair(row, Some(&there));
                self.count(equal, 0);
                Ok(())
            }
            None => self.is_extra(there),
        }
    }

    /// Keeps two rows of which either may come first: the other place may have passed each, or come to it.
    fn hold_both(&mut self, row: &Row, there: Row) -> TransferResult<()> {
        self.held.hold(Side::Source, row)?;
        match self.held.take(Side::Source, &there.key)? {
            Some(ours) => {
                let equal = self.pair(ours, Some(&there));
                self.count(equal, 0);
                Ok(())
            }
            None => self.held.hold(Side::Target, &there),
        }
    }

    /// Takes the rows that still wait at the end of the range: the other place does not have them.
    fn settle(&mut self) -> TransferResult<()> {
        let held = std::mem::take(&mut self.held);
        held.each(Side::Source, &mut |row| {
            self.pair(row, None);
            Ok(())
        })?;
        held.each(Side::Target, &mut |row| self.is_extra(row))
    }

    /// Compares a row with what the target has; returns 1 if that is equal.
    fn pair(&self, row: Row, there: Option<&Row>) -> u64 {
        let (comparison, table) = (self.comparison, &self.task.table);
        let ignores = comparison.delete_extra.is_some();
        match there {
            Some(there) if ignores || comparison.is_same(&row, there) => return 1,
            _ if ignores => {}
            _ => comparison.differs(table, Some(&row), there, self.found),
        }
        0
    }

    fn count(&self, equal: u64, read: u64) {
        self.comparison.with(self.found, |found| {
            found.tables.entry(self.task.table.clone()).or_default().equal += equal;
        });
        self.comparison.progress.add(&self.task.table, Counts { written: read, ..Counts::default() });
    }

    fn is_extra(&mut self, row: Row) -> TransferResult<()> {
        if self.comparison.delete_extra.is_none() {
            self.comparison.differs(&self.task.table, None, Some(&row), self.found);
            return Ok(());
        }
        self.extra.push(row);
        if self.extra.len() >= MAX_DELETED { self.delete_extra() } else { Ok(()) }
    }

    /// Deletes what is extra.
    fn delete_extra(&mut self) -> TransferResult<()> {
        self.comparison.delete_extra(&self.task.table, std::mem::take(&mut self.extra), self.found)
    }
}
