//! Copies tables from a source to a target.

pub(super) mod checkpoint;
mod prepare;
pub(super) mod settings;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::atomic::{AtomicBool, Ordering};

use parking_lot::Mutex;

use crate::contract::{Counts, Mode, Page, TransferSource, TransferTarget, WritePage};
use crate::error::{TransferError, TransferResult, check_stop};
use crate::protocol::model::Key;
use crate::rejects::Rejects;
use crate::rows::Row;
use crate::rows::selection::Selection;
use crate::work::progress::Progress;
use crate::work::rate_limit::RateLimit;
use crate::work::work_queue::{Task, WorkQueue};
use checkpoint::Checkpoint;
use settings::SettingsRule;

pub struct CopyOptions<'a> {
    pub selection: &'a Selection,
    pub mode: Mode,
    /// Maximum pages in progress at once.
    pub concurrency: usize,
    /// The target as a source of its settings; `None` for a new dump.
    pub existing: Option<&'a dyn TransferSource>,
    /// In a copy of changes, the source with all its entities, for tables that the target lacks.
    pub whole: Option<&'a dyn TransferSource>,
    pub settings: SettingsRule,
    /// Maximum entities per second.
    pub rate_limit: Option<u32>,
    /// The names of tables in the source, in its spelling, and in the target.
    pub renames: &'a [(String, String)],
    pub stop: &'a AtomicBool,
}

impl CopyOptions<'_> {
    fn target_table<'t>(&'t self, table: &'t str) -> &'t str {
        let renamed = self.renames.iter().find(|(from, _)| from == table);
        renamed.map_or(table, |(_, to)| to)
    }
}

#[derive(Debug, Default)]
pub struct CopySummary {
    pub tables: BTreeMap<String, Counts>,
    /// Remarks on omitted and additional work.
    pub remarks: BTreeSet<String>,
    /// Tables that failed, with the reasons.
    pub failed: BTreeMap<String, String>,
    /// Throttled answers.
    pub throttled: u64,
    pub retried: u64,
}

impl CopySummary {
    pub fn sum(&self) -> Counts {
        self.tables.values().copied().sum()
    }
}

struct CopyRun<'a> {
    source: &'a dyn TransferSource,
    target: &'a dyn TransferTarget,
    options: &'a CopyOptions<'a>,
    checkpoint: &'a Checkpoint,
    rejects: &'a Rejects,
    progress: &'a Progress,
    queue: WorkQueue,
    failed: Mutex<BTreeMap<String, String>>,
    remarks: Mutex<BTreeSet<String>>,
    /// In a copy of changes, the tables that are copied completely.
    whole_tables: Mutex<BTreeSet<String>>,
    rate_limit: Option<RateLimit>,
}

/// Copies the selected tables, even if some of them fail. An interrupted or failed run can be resumed with its
/// checkpoint.
pub fn copy(
    source: &dyn TransferSource,
    target: &dyn TransferTarget,
    options: &CopyOptions<'_>,
    checkpoint: &Checkpoint,
    rejects: &Rejects,
    progress: &Progress,
) -> TransferResult<CopySummary> {
    let run = CopyRun {
        source,
        target,
        options,
        checkpoint,
        rejects,
        progress,
        queue: WorkQueue::default(),
        failed: Mutex::default(),
        remarks: Mutex::default(),
        whole_tables: Mutex::new(checkpoint.whole_tables()?.into_iter().collect()),
        rate_limit: options.rate_limit.map(RateLimit::new),
    };
    run.prepare()?;
    for (table, counts) in checkpoint.counts()? {
        progress.add(&table, counts);
    }
    std::thread::scope(|scope| {
        scope.spawn(|| run.estimate_remaining());
        run.work()
    })?;
    let (from, to) = (source.retries(), target.retries());
    let copied = CopySummary {
        throttled: from.0 + to.0,
        retried: from.1 + to.1,
        tables: checkpoint.counts()?.into_iter().collect(),
        remarks: run.remarks.into_inner(),
        failed: run.failed.into_inner(),
    };
    check_stop(options.stop)?;
    if copied.failed.is_empty() {
        target.finish(checkpoint.copy(), &checkpoint.origin(), copied.sum().written)?;
    }
    Ok(copied)
}

impl CopyRun<'_> {
    fn remark(&self, text: String) {
        self.remarks.lock().insert(text);
    }

    /// Asks the source once more whether a table was deleted.
    fn is_dropped(&self, table: &str) -> TransferResult<bool> {
        let is_dropped = !self.source.has_table(table)?;
        if is_dropped {
            self.remark(format!(
                "{table} was deleted in FROM; its copied entities stay in TO, unless --mirror is given"
            ));
        }
        Ok(is_dropped)
    }

    fn source_of(&self, table: &str) -> &dyn TransferSource {
        let whole = self.whole_tables.lock();
        self.options.whole.filter(|_| whole.contains(table)).unwrap_or(self.source)
    }

    /// Counts tables to estimate the remaining time, if the source can count them cheaply. Counting the matches of a
    /// filter would cost as much as copying them.
    fn estimate_remaining(&self) {
        if self.options.selection.filter_text().is_some() {
            return;
        }
        let check_active = || if self.queue.is_idle() { Err(TransferError::Interrupted) } else { Ok(()) };
        for table in self.progress.tables_without_expected() {
            if check_active().is_err() {
                return;
            }
            // The remaining time of a table that cannot be counted is unknown.
            if let Ok(Some(entities)) = self.source.count(&table, &mut |_| check_active()) {
                self.progress.expect(&table, Some(entities));
            }
        }
    }

    fn fail(&self, table: &str, reason: &TransferError) {
        self.failed.lock().insert(table.to_owned(), reason.to_string());
    }

    fn work(&self) -> TransferResult<()> {
        let splits = self.source.is_ordered().then_some(self.source);
        let worker = || -> TransferResult<()> {
            while let Some(task) = self.queue.take(splits, &|id, behind| self.checkpoint.cut(id, behind))? {
                if !self.failed.lock().contains_key(&task.table) {
                    match self.copy_range(&task) {
                        Ok(true) => self.checkpoint.finish(task.id)?,
                        Ok(false) => return Ok(()),
                        Err(error) if error.is_of_table() => self.fail(&task.table, &error),
                        Err(error) => return Err(error),
                    }
                }
                self.queue.finish(task.id);
            }
            Ok(())
        };
        self.queue.run(self.options.concurrency, worker)
    }

    /// Copies a range; returns `false` if it was stopped before the end.
    fn copy_range(&self, task: &Task) -> TransferResult<bool> {
        let mut reader = self.source_of(&task.table).open(&task.table, &task.range, false)?;
        let (mut resumed, mut pages) = (task.resumed, 0);
        loop {
            if self.options.stop.load(Ordering::Relaxed) || self.queue.is_stopped() {
                self.queue.stop();
                return Ok(false);
            }
            let mut page = match reader.next() {
                Err(TransferError::NoTable(_)) if self.is_dropped(&task.table)? => return Ok(true),
                page => match page.map_err(|error| error.on("FROM"))? {
                    Some(page) => page,
                    None => return Ok(true),
                },
            };
            let is_last = self.queue.keep_own(task, &mut page, self.source.is_ordered());
            let has_rows = !page.rows.is_empty();
            self.copy_page(task, page, pages, resumed)?;
            if has_rows {
                (resumed, pages) = (None, pages + 1);
            }
            if is_last {
                return Ok(true);
            }
        }
    }

    /// Copies a page; `pages` is the number of earlier pages of its range.
    fn copy_page(&self, task: &Task, page: Page, pages: u64, resumed: Option<u64>) -> TransferResult<()> {
        // Cosmos DB has no order, so a resumed copy reads a range from its start, and the page number stands for the
        // last key.
        let position_of = |row: &Row| match self.source.is_ordered() {
            true => row.key.clone(),
            false => Key::new("", format!("{pages:020}")),
        };
        let last = page.rows.last().map(position_of);
        let newest = page.rows.iter().filter_map(|row| row.modified).max();
        let mut counts = Counts { rejected: page.rejected.len() as u64, ..Counts::default() };
        self.rejects.add(&task.table, &page.rejected)?;
        if !page.rows.is_empty() {
            if let Some(limit) = &self.rate_limit {
                limit.wait(page.rows.len(), self.options.stop);
            }
            let written = self.target.write(WritePage {
                table: self.options.target_table(&task.table),
                range: task.id,
                rows: page.rows,
                mode: self.options.mode,
                resumed,
                copy: self.checkpoint.copy(),
                last: last.clone(),
                rejected: counts.rejected,
                reject: &|rejected| self.rejects.add(&task.table, &[rejected]),
            });
            counts += written.map_err(|error| error.on("TO"))?;
        }
        self.checkpoint.advance(task.id, last.as_ref(), newest, counts)?;
        self.progress.add(&task.table, counts);
        self.progress.throttled(self.source.retries().0 + self.target.retries().0);
        Ok(())
    }
}
