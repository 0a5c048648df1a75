//! Prepares the tables of a copy, several at a time.

use std::collections::HashSet;

use super::CopyRun;
use super::settings::{SettingsStep, readable};
use crate::contract::{Counts, TransferSource};
use crate::error::{TransferError, TransferResult, check_stop};
use crate::rows::range::RowRange;
use crate::work::in_parallel;

/// Minimum tables for which a list of the target's tables takes fewer requests than a request for each table.
const MIN_LISTED: usize = 10;

impl CopyRun<'_> {
    /// Creates the tables with their settings, and finds the ranges to read.
    pub(super) fn prepare(&self) -> TransferResult<()> {
        if let Some(marks) = self.target.marks(self.checkpoint.copy())? {
            self.checkpoint.catch_up(marks)?;
        }
        if !self.source.is_ordered() {
            self.checkpoint.restart()?;
        }
        let prepared = self.checkpoint.tables()?;
        if prepared.is_empty() {
            self.target.begin()?;
        }
        self.queue.number_above(self.checkpoint.last_id()?);
        for task in self.checkpoint.open_ranges()? {
            self.queue.add(task);
        }
        let tables = self.source.selected_tables(self.options.selection);
        let tables = tables.map_err(|error| error.on("FROM"))?;
        if self.options.selection.is_everything() {
            self.copy_properties()?;
        }
        if self.options.existing.is_none() {
            // A continued dump keeps the copied part of a table that FROM has lost.
            let lost = prepared.iter().filter(|table| !tables.contains(table));
            lost.into_iter()
                .try_for_each(|table| self.target.create(self.options.target_table(table)).map(drop))?;
        }
        let listed = self.list_target(tables.len())?;
        in_parallel(self.options.concurrency, tables, |table| {
            check_stop(self.options.stop)?;
            match self.prepare_table(&table, prepared.contains(&table), listed.as_ref()) {
                Err(TransferError::NoTable(_)) if self.is_dropped(&table)? => {}
                Err(error) if error.is_of_table() => self.fail(&table, &error),
                done => done?,
            }
            Ok(())
        })
        .map(drop)
    }

    /// Returns the folded names of the tables of the target; `None` if a list may cost more requests than it saves, or
    /// the credentials do not allow listing.
    fn list_target(&self, tables: usize) -> TransferResult<Option<HashSet<String>>> {
        let Some(existing) = self.options.existing.filter(|_| tables >= MIN_LISTED) else { return Ok(None) };
        match existing.tables() {
            Ok(names) => Ok(Some(existing.name_case().fold_all(&names))),
            Err(error) if error.is_of_table() => Ok(None),
            Err(error) => Err(error.on("TO")),
        }
    }

    /// Copies the service properties. An account with neither tables nor CORS rules counts as new.
    fn copy_properties(&self) -> TransferResult<()> {
        let what = "the service properties of FROM";
        let Some(mut ours) = self.read_setting(self.source.properties(), what)? else { return Ok(()) };
        let step = match self.options.existing {
            None => SettingsStep::Set,
            Some(existing) => {
                match self.read_setting(existing.properties(), "the service properties of TO")? {
                    Some(theirs) => {
                        let has_rules = theirs.cors.as_ref().is_some_and(|rules| !rules.is_empty());
                        // If the credentials may not list tables, the account does not count as new.
                        let is_new = !has_rules && existing.tables().is_ok_and(|tables| tables.is_empty());
                        self.options.settings.step_for_properties(&ours, &theirs, is_new)
                    }
                    None => SettingsStep::Keep,
                }
            }
        };
        // The target would keep its rules if the request had no list of rules.
        ours.cors.get_or_insert_default();
        self.apply_step(step, "service properties", || self.target.set_properties(&ours))
    }

    fn copy_policies(&self, table: &str, is_new: bool) -> TransferResult<()> {
        let read = self.source.policies(table);
        let Some(ours) = self.read_setting(read, "the policies of FROM")? else { return Ok(()) };
        let named = self.options.target_table(table);
        let step = match self.options.existing {
            None => SettingsStep::Set,
            Some(_) if is_new && ours.is_empty() => SettingsStep::Unchanged,
            Some(existing) => match self.read_setting(existing.policies(named), "the policies of TO")? {
                Some(theirs) => self.options.settings.step_for_policies(&ours, &theirs, is_new),
                None if ours.is_empty() => SettingsStep::Unchanged,
                None => SettingsStep::Keep,
            },
        };
        self.apply_step(step, &format!("policies of {named}"), || self.target.set_policies(named, &ours))
    }

    /// Returns a setting if the place has it and the credentials allow reading it; otherwise adds a remark.
    fn read_setting<T>(&self, read: TransferResult<Option<T>>, what: &str) -> TransferResult<Option<T>> {
        readable(read, what, &mut self.remarks.lock())
    }

    fn apply_step(
        &self,
        step: SettingsStep,
        setting: &str,
        set: impl FnOnce() -> TransferResult<()>,
    ) -> TransferResult<()> {
        match step {
            SettingsStep::Set => return set(),
            SettingsStep::Keep => self.remark(format!("{setting} differ, and were not changed in TO")),
            SettingsStep::Unchanged => {}
        }
        Ok(())
    }

    /// Records that the target gets a new table, which is copied completely.
    fn begin_table(&self, table: &str) -> TransferResult<()> {
        let is_whole = self.options.whole.is_some();
        self.checkpoint.begin_table(table, is_whole)?;
        if is_whole {
            self.remark(format!("TO lacked {table}: all its entities are copied, not only the changed ones"));
            self.whole_tables.lock().insert(table.to_owned());
        }
        Ok(())
    }

    /// Checks that the target still has a table that an earlier run has prepared. Parts of a dump are checked when they
    /// are written.
    fn check_prepared(&self, table: &str) -> TransferResult<()> {
        let Some(existing) = self.options.existing else { return Ok(()) };
        let named = self.options.target_table(table);
        match self.target.has_entities(named)? {
            None => {
                return Err(self.checkpoint.cannot_resume(&format!("the table {named} was deleted from TO")));
            }
            Some(true) => return Ok(()),
            Some(false) => {}
        }
        let was_written = |(name, counts): &(String, Counts)| name == table && counts.written > 0;
        // The first page of a server may be empty although other pages follow.
        if self.checkpoint.counts()?.iter().any(was_written)
            && existing.probe(named, &RowRange::everything())?.is_none()
        {
            return Err(self.checkpoint.cannot_resume(&format!("the table {named} of TO was emptied")));
        }
        Ok(())
    }

    fn prepare_table(
        &self,
        table: &str,
        is_prepared: bool,
        listed: Option<&HashSet<String>>,
    ) -> TransferResult<()> {
        if is_prepared {
            self.check_prepared(table)?;
        }
        let is_new = match self.options.existing {
            Some(_) if is_prepared => false,
            existing => self.create_table(table, existing, listed)?,
        };
        self.copy_policies(table, is_new)?;
        let source = self.source_of(table);
        self.progress.expect(table, source.expected(table)?);
        if !is_prepared {
            let ranges = source.ranges(table)?;
            self.checkpoint.add_table(table, ranges)?.into_iter().for_each(|task| self.queue.add(task));
        }
        Ok(())
    }

    /// Creates a table in the target, unless it is there. Returns whether the table is new.
    fn create_table(
        &self,
        table: &str,
        existing: Option<&dyn TransferSource>,
        listed: Option<&HashSet<String>>,
    ) -> TransferResult<bool> {
        let named = self.options.target_table(table);
        let is_begun = self.checkpoint.has_begun(table)?;
        let is_there = match (existing, listed) {
            (None, _) => false,
            _ if is_begun => false,
            (Some(existing), Some(listed)) => listed.contains(&*existing.name_case().fold(named)),
            (Some(_), None) => self.target.has_entities(named)?.is_some(),
        };
        if is_there && listed.is_some() {
            return Ok(false);
        }
        if !is_there {
            self.begin_table(table)?;
        }
        let created = self.target.create(named).map_err(|error| error.on("TO"));
        let is_wrong = match &created {
            Err(TransferError::NotAllowed(_) | TransferError::NoAccess(_)) => true,
            // Either the list was incomplete, or a repeated request had created the table, which then has no entities.
            Ok(false) if !is_begun && listed.is_some() => self.target.has_entities(named)? == Some(true),
            _ => false,
        };
        if is_wrong && !is_there {
            self.checkpoint.withdraw_table(table)?;
            self.whole_tables.lock().remove(table);
        }
        created?;
        Ok(!is_there && !is_wrong)
    }
}
