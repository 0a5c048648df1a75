//! Comparing a range: a merge of the ordered pages of both places.

use std::collections::VecDeque;
use std::sync::Mutex;

use super::odd::OddRows;
use super::{Comparison, DifferenceKind, Found};
use crate::transfer::board::{Board, Task};
use crate::transfer::checkpoint::Counts;
use crate::transfer::endpoint::{RowReader, TransferResult};
use crate::transfer::range::sorts_alike;
use crate::transfer::row::Row;

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
    board: &'a Board,
    task: &'a Task,
    found: &'a Mutex<Found>,
    theirs: Rows<'a>,
    /// Rows whose places differ with the order.
    odd: OddRows,
    /// Extra entities to be deleted.
    extra: Vec<Row>,
}

impl<'a> Merge<'a> {
    /// Compares a range that was taken from the board.
    ///
    /// # Errors
    /// Those of both places.
    pub(super) fn run(
        comparison: &'a Comparison<'a>,
        board: &'a Board,
        task: &'a Task,
        found: &'a Mutex<Found>,
    ) -> TransferResult<()> {
        let keys_only = comparison.delete_extra.is_some();
        let ours = comparison.source.open(&task.table, &task.range, keys_only)?;
        let reader = comparison.target.open(&task.table, &task.range, keys_only)?;
        let theirs = Rows { reader, read: VecDeque::new(), is_over: false };
        let (odd, extra) = (OddRows::default(), Vec::new());
        Self { comparison, board, task, found, theirs, odd, extra }.merge_all(ours)
    }

    fn merge_all(mut self, mut ours: Box<dyn RowReader + 'a>) -> TransferResult<()> {
        'pages: while let Some(page) = ours.next()? {
            self.comparison.check_stop()?;
            self.comparison.unreadable(&self.task.table, page.rejected, self.found);
            let end = page.rows.last().map(|row| row.key.clone());
            let upper = self.board.claim(self.task.id, end.as_ref(), page.rows.len());
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
        let upper = self.board.close(self.task.id);
        while let Some(key) = self.peek()?.map(|row| row.key.clone()) {
            if upper.as_ref().is_some_and(|upper| key >= *upper) {
                break;
            }
            self.next_is_extra()?;
        }
        self.settle_odd()?;
        self.delete_extra()
    }

    /// Returns the next row of the target that both places sort alike.
    fn peek(&mut self) -> TransferResult<Option<&Row>> {
        loop {
            while self.theirs.read.is_empty() && !self.theirs.is_over {
                match self.theirs.reader.next()? {
                    Some(page) => {
                        self.comparison.unreadable(&self.task.table, page.rejected, self.found);
                        self.theirs.read.extend(page.rows);
                    }
                    None => self.theirs.is_over = true,
                }
            }
            match self.theirs.read.pop_front_if(|row| !sorts_alike(&row.key)) {
                None => return Ok(self.theirs.read.front()),
                Some(odd) => self.odd_of_target(odd)?,
            }
        }
    }

    /// Merges one row of the source; returns 1 if the target has an equal one.
    fn merge(&mut self, row: Row) -> TransferResult<u64> {
        if !sorts_alike(&row.key) {
            return self.odd_of_source(row);
        }
        while self.peek()?.is_some_and(|there| there.key < row.key) {
            self.next_is_extra()?;
        }
        let there = match self.peek()? {
            Some(there) if there.key == row.key => self.theirs.read.pop_front(),
            _ => None,
        };
        Ok(self.pair(row, there.as_ref()))
    }

    /// Compares a row with what the target has; returns 1 if that is equal.
    fn pair(&self, row: Row, there: Option<&Row>) -> u64 {
        let (comparison, table) = (self.comparison, &self.task.table);
        let ignores = comparison.delete_extra.is_some();
        match there {
            Some(there) if ignores || comparison.is_same(&row, there) => return 1,
            _ if ignores => {}
            Some(_) => comparison.differs(table, row.key, DifferenceKind::Different, self.found),
            None => comparison.differs(table, row.key, DifferenceKind::Missing, self.found),
        }
        0
    }

    fn odd_of_source(&mut self, row: Row) -> TransferResult<u64> {
        match self.odd.of_source(row) {
            Some((row, there)) => Ok(self.pair(row, Some(&there))),
            None if self.odd.is_full() => self.settle_odd().map(|()| 0),
            None => Ok(0),
        }
    }

    fn odd_of_target(&mut self, row: Row) -> TransferResult<()> {
        match self.odd.of_target(row) {
            Some((row, there)) => {
                let equal = self.pair(row, Some(&there));
                self.count(equal, 0);
            }
            None if self.odd.is_full() => self.settle_odd()?,
            None => {}
        }
        Ok(())
    }

    /// Looks up the rows that wait for the other place.
    fn settle_odd(&mut self) -> TransferResult<()> {
        let table = &self.task.table;
        let (ours, theirs) = self.odd.take();
        for row in ours {
            let there = self.comparison.target.get(table, &row.key)?;
            let equal = self.pair(row, there.as_ref());
            self.count(equal, 0);
        }
        for row in theirs {
            // What the source has is compared when its reader comes there.
            if self.comparison.source.get(table, &row.key)?.is_none() {
                self.is_extra(row)?;
            }
        }
        Ok(())
    }

    fn count(&self, equal: u64, read: u64) {
        self.comparison.with(self.found, |found| {
            found.tables.entry(self.task.table.clone()).or_default().equal += equal;
        });
        self.comparison.progress.add(&self.task.table, Counts { written: read, ..Counts::default() });
    }

    /// Takes the next row of the target, which the source lacks.
    fn next_is_extra(&mut self) -> TransferResult<()> {
        match self.theirs.read.pop_front() {
            Some(row) => self.is_extra(row),
            None => Ok(()),
        }
    }

    fn is_extra(&mut self, row: Row) -> TransferResult<()> {
        if self.comparison.delete_extra.is_none() {
            self.comparison.differs(&self.task.table, row.key, DifferenceKind::Extra, self.found);
            return Ok(());
        }
        self.extra.push(row);
        if self.extra.len() >= MAX_DELETED { self.delete_extra() } else { Ok(()) }
    }

    /// Deletes what is extra, unless the source has it by now, or it has changed since.
    fn delete_extra(&mut self) -> TransferResult<()> {
        let Some(target) = self.comparison.delete_extra else { return Ok(()) };
        let table = &self.task.table;
        let mut gone = Vec::new();
        if !self.extra.is_empty() {
            self.comparison.refuse_unreadable(self.found)?;
        }
        for row in std::mem::take(&mut self.extra) {
            if self.comparison.source.get(table, &row.key)?.is_none() {
                let version = row.version();
                gone.push((row.key, version));
            }
        }
        if gone.is_empty() {
            return Ok(());
        }
        let deleted = target.delete(table, &gone)?;
        self.comparison
            .with(self.found, |found| found.tables.entry(table.clone()).or_default().deleted += deleted);
        Ok(())
    }
}
