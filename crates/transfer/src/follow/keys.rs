//! Compares keys and settings, which Timestamps do not cover.

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use super::state::Since;
use super::{Follow, FollowPlaces};
use crate::copy::settings::{readable, same_policies, same_properties};
use crate::error::{TransferError, TransferResult, pause};
use crate::protocol::model::Ticks;
use crate::rows::Row;
use crate::rows::selection::Selection;
use crate::verify::{Comparison, Repair};
use crate::work::in_parallel;
use crate::work::progress::{Progress, ProgressForm};
use crate::work::rate_limit::RateLimit;

/// Minimum time between two comparisons of the keys of a table, by the clock of the source.
const COMPARISON_PAUSE: Duration = Duration::from_secs(10);
/// Pauses of the comparison of keys when no table is due, and after a failure.
const IDLE_PAUSE: Duration = Duration::from_secs(1);
const FAILURE_PAUSE: Duration = Duration::from_secs(10);
/// Maximum missing entities that wait for the next round. The next comparison finds further ones again.
const MAX_MISSING: usize = 100_000;

/// How keys are compared.
struct KeyComparison<'c> {
    /// Copies missing and changed entities, given by their keys.
    copy: &'c (dyn Fn(&str, Vec<Row>) -> TransferResult<()> + Sync),
    /// Entities that changed at this time or later are copied too.
    changed_since: Option<Ticks>,
    rate_limit: Option<&'c RateLimit>,
    concurrency: usize,
    stop: &'c AtomicBool,
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
            // The loop notices the end.
            let _ = pause(wait, &self.rounds_end);
        }
    }

    /// Compares the policies and keys of the table that is due next. Returns whether there was one.
    fn compare_next_table(&self) -> TransferResult<bool> {
        let time = self.time()?;
        let Some(table) = self.state.lock().next_to_compare(time, COMPARISON_PAUSE) else { return Ok(false) };
        self.compare_policies(&table, time)?;
        let copy = |table: &str, rows: Vec<Row>| {
            let mut missing = self.missing.lock();
            let room = MAX_MISSING.saturating_sub(missing.len());
            missing.extend(rows.into_iter().take(room).map(|row| (table.to_owned(), row)));
            Ok(())
        };
        let comparison = KeyComparison {
            copy: &copy,
            changed_since: None,
            rate_limit: Some(&self.limit),
            concurrency: 1,
            stop: &self.rounds_end,
        };
        let tables = [table];
        self.compare_keys(&tables, comparison)?;
        let is_missing = |(table, _): &(String, Row)| tables.contains(table);
        if self.missing.lock().iter().any(is_missing) {
            // The missing entities are copied only by the next round.
            self.mark_changed(&tables, true);
        }
        Ok(true)
    }

    /// Compares the keys of tables without a limit. Copies missing entities and, with `since`, those that have changed.
    /// Returns the tables whose keys still differ.
    pub(super) fn compare_all_keys(&self, tables: &[String], since: Since) -> TransferResult<Vec<String>> {
        if tables.is_empty() {
            return Ok(Vec::new());
        }
        let begun = Instant::now();
        tables.iter().for_each(|table| self.note_reading(table, begun));
        let comparison = KeyComparison {
            copy: &|table, rows| self.writer.copy(table, rows),
            changed_since: match since {
                Since::Time(since) => Some(since),
                Since::Beginning => None,
            },
            rate_limit: None,
            // A worker waits for one place at a time, and each place limits its own requests.
            concurrency: self.options.concurrency * 4,
            stop: self.options.stop,
        };
        self.compare_keys(tables, comparison)
    }

    fn compare_keys(&self, tables: &[String], how: KeyComparison<'_>) -> TransferResult<Vec<String>> {
        let FollowPlaces { source, existing, target } = self.places;
        let time = self.time()?;
        self.mark_changed(tables, false);
        let selection = Selection { include: tables.to_vec(), ..Selection::default() };
        let repair = Repair { changed_since: how.changed_since, copy: how.copy, rate_limit: how.rate_limit };
        let comparison = Comparison {
            source,
            target: existing,
            renames: &[],
            selection: &selection,
            with_timestamps: false,
            delete_extra: Some(target),
            max_delete: None,
            repair: Some(repair),
            concurrency: how.concurrency,
            recheck_delay: Duration::ZERO,
            progress: &Progress::start(ProgressForm::Off, "compared"),
            stop: how.stop,
        };
        let compared = comparison.run().inspect_err(|_| self.mark_changed(tables, true))?;
        let (mut state, mut deleted) = (self.state.lock(), self.deleted.lock());
        let mut differing = Vec::new();
        for table in tables {
            let followed = state.tables.get_mut(table);
            // A table that a place has lost meanwhile is handled by the next round.
            let (Some(followed), Some(tally)) = (followed, compared.tables.get(table)) else { continue };
            *deleted.entry(table.clone()).or_default() += tally.deleted;
            followed.entities = Some(tally.equal);
            if tally.is_equal() {
                followed.keys_compared = Some(time.raw());
            } else {
                followed.has_changed = true;
                differing.push(table.clone());
            }
        }
        Ok(differing)
    }

    fn mark_changed(&self, tables: &[String], has_changed: bool) {
        let mut state = self.state.lock();
        for table in tables {
            if let Some(table) = state.tables.get_mut(table) {
                table.has_changed = has_changed;
            }
        }
    }

    /// Gives a table of the target the policies of the source.
    pub(super) fn compare_policies(&self, table: &str, time: Ticks) -> TransferResult<()> {
        let FollowPlaces { source, existing, target } = self.places;
        let what = format!("policies of {table}");
        let read = (source.policies(table), existing.policies(table));
        let (Some(ours), Some(theirs)) = self.settings_of_both(&what, read)? else { return Ok(()) };
        if !same_policies(&ours, &theirs) {
            target.set_policies(table, &ours).map_err(|error| error.on("TO"))?;
            self.remark(format!("the {what} were copied"));
        }
        if let Some(table) = self.state.lock().tables.get_mut(table) {
            table.policies_compared = Some(time.raw());
        }
        Ok(())
    }

    /// Compares the policies of the tables whose policies were never compared.
    pub(super) fn compare_unseen_policies(&self, time: Ticks) -> TransferResult<()> {
        let tables = self.state.lock().tables.clone();
        let unseen = tables.into_iter().filter(|(_, table)| table.policies_compared.is_none());
        let unseen = unseen.map(|(name, _)| name).collect();
        in_parallel(self.options.concurrency, unseen, |table: String| self.compare_policies(&table, time))
            .map(drop)
    }

    /// Gives the target the service properties of the source, unless some tables are left out.
    pub(super) fn copy_properties(&self) -> TransferResult<()> {
        let FollowPlaces { source, existing, target } = self.places;
        if !self.options.selection.is_everything() {
            return Ok(());
        }
        let read = (source.properties(), existing.properties());
        let what = "service properties";
        let (Some(mut ours), Some(theirs)) = self.settings_of_both(what, read)? else { return Ok(()) };
        ours.cors.get_or_insert_default();
        if !same_properties(&ours, &theirs) {
            target.set_properties(&ours).map_err(|error| error.on("TO"))?;
            self.remark(format!("the {what} were copied"));
        }
        Ok(())
    }

    /// Returns a setting of both places. Records why it could not be read.
    fn settings_of_both<T>(
        &self,
        what: &str,
        (ours, theirs): (TransferResult<Option<T>>, TransferResult<Option<T>>),
    ) -> TransferResult<(Option<T>, Option<T>)> {
        let mut unread = Default::default();
        let ours = readable(ours, &format!("the {what} of FROM"), &mut unread)?;
        let theirs = readable(theirs, &format!("the {what} of TO"), &mut unread)?;
        let mut state = self.state.lock();
        state.unread.remove(what);
        state.unread.extend(unread.into_iter().next().map(|reason| (what.to_owned(), reason)));
        Ok((ours, theirs))
    }
}
