//! Compares keys and settings, which Timestamps do not cover.

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use super::state::Since;
use super::{Follow, FollowPlaces};
use crate::copy::settings::{same_policies, same_properties};
use crate::error::{TransferError, TransferResult, pause};
use crate::protocol::codec::properties::ServiceProperties;
use crate::protocol::model::Ticks;
use crate::rows::Row;
use crate::rows::selection::Selection;
use crate::verify::{Comparison, Repair};
use crate::work::in_parallel;
use crate::work::progress::{Progress, ProgressForm};

/// Minimum time between two comparisons of the keys of a table, by the clock of the source.
const COMPARISON_PAUSE: Duration = Duration::from_secs(10);
/// Pauses of the comparison of keys when no table is due, and after a failure.
const IDLE_PAUSE: Duration = Duration::from_secs(1);
const FAILURE_PAUSE: Duration = Duration::from_secs(10);
/// Maximum missing entities that wait for the next round. The next comparison finds the others again.
const MAX_MISSING: usize = 100_000;

/// Maximum concurrency of the last comparison. Each thread has a page of each place in memory.
const MAX_CONCURRENCY: usize = 128;

/// The name of this setting in messages.
pub(super) const SERVICE_PROPERTIES: &str = "service properties";

/// Returns the name of a table's policies in messages.
pub(super) fn policies_of(table: &str) -> String {
    format!("policies of {table}")
}

impl Follow<'_> {
    /// Compares the keys of one table after the other, until the rounds end.
    pub(super) fn compare_keys_in_turn(&self) {
        while !self.rounds_end.load(Ordering::Relaxed) {
            let wait = match self.compare_next_table() {
                Ok(true) => Duration::ZERO,
                Ok(false) => IDLE_PAUSE,
                Err(TransferError::Interrupted) => return,
                Err(error) => {
                    self.remark(format!("keys were not compared: {error}"));
                    FAILURE_PAUSE
                }
            };
            // The loop checks for the end.
            let _ = pause(wait, &self.rounds_end);
        }
    }

    /// Compares the policies and keys of the table that is due next. Returns whether a table was due.
    fn compare_next_table(&self) -> TransferResult<bool> {
        let time = self.time()?;
        let Some(table) = self.state.lock().next_to_compare(time, COMPARISON_PAUSE) else { return Ok(false) };
        let has_missing = AtomicBool::new(false);
        let copy = |table: &str, rows: Vec<Row>| {
            has_missing.store(true, Ordering::Relaxed);
            let mut missing = self.missing.lock();
            let room = MAX_MISSING.saturating_sub(missing.len());
            missing.extend(rows.into_iter().take(room).map(|row| (table.to_owned(), row.key)));
            Ok(())
        };
        let repair = Repair { has_changed: &|_, _| false, copy: &copy, rate_limit: Some(&self.limit) };
        let tables = [table];
        self.forget_comparison(&tables[0]);
        self.compare_keys(&tables, repair, 1, &self.rounds_end)?;
        if has_missing.into_inner() {
            // The next round copies the missing entities.
            self.forget_comparison(&tables[0]);
        }
        self.compare_policies(&tables[0], time)?;
        Ok(true)
    }

    /// Records that the keys of a table need another comparison.
    fn forget_comparison(&self, table: &str) {
        if let Some(table) = self.state.lock().tables.get_mut(table) {
            table.compared_writes = None;
        }
    }

    /// Compares the keys of tables without a rate limit. Copies missing entities and, with [`Since::Time`], changed
    /// ones. Returns the tables whose keys still differ.
    pub(super) fn compare_all_keys(&self, tables: &[String], since: Since) -> TransferResult<Vec<String>> {
        if tables.is_empty() {
            return Ok(Vec::new());
        }
        let begun = Instant::now();
        tables.iter().for_each(|table| self.note_reading(table, begun));
        let has_changed = |table: &str, row: &Row| match since {
            Since::Time(since) => {
                row.modified.is_none_or(|modified| modified >= since) && !self.writer.is_known(table, row)
            }
            Since::Beginning => false,
        };
        let copy = |table: &str, rows: Vec<Row>| {
            self.writer.copy(table, &rows.iter().map(|row| &row.key).collect::<Vec<_>>())
        };
        let repair = Repair { has_changed: &has_changed, copy: &copy, rate_limit: None };
        // A thread waits for one place at a time, and each place limits its own requests.
        let concurrency = (self.options.concurrency * 4).min(MAX_CONCURRENCY);
        self.compare_keys(tables, repair, concurrency, self.options.stop)
    }

    /// Compares the keys of tables, deletes extra entities, and passes missing ones to `repair`. Returns the tables
    /// whose keys still differ or were not compared.
    fn compare_keys(
        &self,
        tables: &[String],
        repair: Repair<'_>,
        concurrency: usize,
        stop: &AtomicBool,
    ) -> TransferResult<Vec<String>> {
        let FollowPlaces { source, existing, target } = self.places;
        let time = self.time()?;
        let writes_of = |table: &String| self.state.lock().tables.get(table).map(|table| table.writes);
        let writes: Vec<Option<u64>> = tables.iter().map(writes_of).collect();
        let selection = Selection { include: tables.to_vec(), ..Selection::default() };
        let comparison = Comparison {
            source,
            target: existing,
            renames: &[],
            selection: &selection,
            with_timestamps: false,
            delete_extra: Some(target),
            max_delete: None,
            repair: Some(repair),
            concurrency,
            recheck_delay: Duration::ZERO,
            progress: &Progress::start(ProgressForm::Off, "compared"),
            stop,
        };
        let compared = comparison.run()?;
        let (mut state, mut deleted) = (self.state.lock(), self.deleted.lock());
        let mut differing = Vec::new();
        for (table, writes) in tables.iter().zip(writes) {
            // A place may have lost the table during the comparison.
            let (Some(followed), Some(tally)) = (state.tables.get_mut(table), compared.tables.get(table))
            else {
                differing.push(table.clone());
                continue;
            };
            *deleted.entry(table.clone()).or_default() += tally.deleted;
            followed.entities = Some(tally.equal);
            if tally.is_equal() {
                (followed.keys_compared, followed.compared_writes) = (Some(time.raw()), writes);
            } else {
                followed.compared_writes = None;
                differing.push(table.clone());
            }
        }
        Ok(differing)
    }

    /// Gives a table of the target the policies of the source. Records why this was not possible.
    pub(super) fn compare_policies(&self, table: &str, time: Ticks) -> TransferResult<()> {
        let FollowPlaces { source, existing, target } = self.places;
        let what = policies_of(table);
        let unread = self.copy_setting(
            &what,
            (source.policies(table), existing.policies(table)),
            |ours, theirs| same_policies(ours, theirs),
            |ours| target.set_policies(table, ours),
        )?;
        let mut state = self.state.lock();
        // The source may have lost the table since the policies were read.
        let Some(followed) = state.tables.get_mut(table) else { return Ok(()) };
        followed.policies_compared = unread.is_none().then_some(time.raw());
        state.set_unread(&what, unread);
        Ok(())
    }

    /// Compares the policies that were never compared.
    pub(super) fn compare_unseen_policies(&self, time: Ticks) -> TransferResult<()> {
        let tables = self.state.lock().tables.clone();
        let unseen = tables.into_iter().filter(|(_, table)| table.policies_compared.is_none());
        let unseen = unseen.map(|(name, _)| name).collect();
        in_parallel(self.options.concurrency, unseen, |table: String| self.compare_policies(&table, time))
            .map(drop)
    }

    /// Copies the service properties if they differ, unless some tables are left out.
    pub(super) fn copy_properties(&self) -> TransferResult<()> {
        let FollowPlaces { source, existing, target } = self.places;
        if !self.options.selection.is_everything() {
            return Ok(());
        }
        let with_rules = |mut ours: ServiceProperties| {
            ours.cors.get_or_insert_default();
            ours
        };
        let ours = source.properties().map(|ours| ours.map(with_rules));
        let unread =
            self.copy_setting(SERVICE_PROPERTIES, (ours, existing.properties()), same_properties, |ours| {
                target.set_properties(ours)
            })?;
        self.state.lock().set_unread(SERVICE_PROPERTIES, unread);
        Ok(())
    }

    /// Copies a setting if it differs. Returns the reason if this was not possible, and fails only if a place fails as a
    /// whole.
    fn copy_setting<T>(
        &self,
        what: &str,
        (ours, theirs): (TransferResult<Option<T>>, TransferResult<Option<T>>),
        is_same: impl FnOnce(&T, &T) -> bool,
        set: impl FnOnce(&T) -> TransferResult<()>,
    ) -> TransferResult<Option<String>> {
        let absent = |place: &str| Some(format!("the {what}, because {place} does not have them"));
        let copied = ours.map_err(|error| error.on("FROM")).and_then(|ours| {
            let theirs = theirs.map_err(|error| error.on("TO"))?;
            let Some(ours) = ours else { return Ok(absent("FROM")) };
            let Some(theirs) = theirs else { return Ok(absent("TO")) };
            if !is_same(&ours, &theirs) {
                set(&ours).map_err(|error| error.on("TO"))?;
                self.remark(format!("the {what} were copied"));
            }
            Ok(None)
        });
        match copied {
            Err(error) if error.is_of_table() => Ok(Some(format!("the {what}: {error}"))),
            copied => copied,
        }
    }
}
