//! The options and results of a comparison.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use parking_lot::Mutex;

use crate::contract::{Rejected, TransferSource, TransferTarget};
use crate::error::{TransferResult, check_stop, failed};
use crate::locations::MAX_LOOKUPS;
use crate::protocol::model::Key;
use crate::rows::selection::Selection;
use crate::rows::{Row, Version};
use crate::work::in_parallel;
use crate::work::progress::Progress;
use crate::work::rate_limit::RateLimit;

/// Maximum differences that are checked again and listed; further ones are only counted.
const MAX_LISTED: usize = 1000;

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum DifferenceKind {
    /// Only the source has the entity.
    Missing,
    /// Only the target has the entity.
    Extra,
    /// The properties differ.
    Different,
}

impl DifferenceKind {
    /// Returns its name in reports.
    pub const fn word(self) -> &'static str {
        match self {
            DifferenceKind::Missing => "missing",
            DifferenceKind::Extra => "extra",
            DifferenceKind::Different => "different",
        }
    }
}

#[derive(Debug, Clone)]
pub struct Difference {
    pub table: String,
    pub key: Key,
    pub kind: DifferenceKind,
    pub properties: Vec<String>,
    /// The version in the source, or in the target if the source cannot change; `None` if the entity does not
    /// exist there.
    pub(super) seen: Option<Version>,
}

/// The number of entities of a table with each result.
#[derive(Debug, Clone, Copy, Default)]
pub struct Tally {
    pub equal: u64,
    pub missing: u64,
    pub extra: u64,
    pub different: u64,
    /// Extra entities that were deleted.
    pub deleted: u64,
    /// Entities of either place that could not be parsed and were not compared.
    pub unreadable: u64,
}

impl Tally {
    pub const fn is_equal(&self) -> bool {
        self.missing + self.extra + self.different + self.unreadable == 0
    }

    pub(super) fn count_mut(&mut self, kind: DifferenceKind) -> &mut u64 {
        match kind {
            DifferenceKind::Missing => &mut self.missing,
            DifferenceKind::Extra => &mut self.extra,
            DifferenceKind::Different => &mut self.different,
        }
    }
}

#[derive(Debug, Default)]
pub struct Compared {
    pub tables: BTreeMap<String, Tally>,
    /// Tables that the target lacks.
    pub missing_tables: Vec<String>,
    /// Tables that the source lacks.
    pub extra_tables: Vec<String>,
    /// Access policies and service properties that differ.
    pub settings: Vec<String>,
    /// Settings that could not be read, with the reasons.
    pub unread: BTreeSet<String>,
    /// Settings that a place does not have, with the place.
    pub absent: BTreeSet<String>,
    /// The first differences.
    pub differences: Vec<Difference>,
    /// The first entities that could not be parsed, with their tables.
    pub unreadable: Vec<(String, Rejected)>,
}

impl Compared {
    pub(super) fn tally(&mut self, table: &str) -> &mut Tally {
        self.tables.entry(table.to_owned()).or_default()
    }

    /// Whether both places have the same tables, entities and common settings. Nothing is proved if there is
    /// nothing to compare or something could not be read.
    pub fn is_equal(&self) -> bool {
        self.unread.is_empty() && self.has_no_difference()
    }

    /// Whether everything that was compared is equal.
    pub fn has_no_difference(&self) -> bool {
        !self.tables.is_empty()
            && self.settings.is_empty()
            && self.missing_tables.is_empty()
            && self.extra_tables.is_empty()
            && self.tables.values().all(Tally::is_equal)
    }
}

/// Copies the entities whose keys a comparison of keys has found to differ.
#[derive(Clone, Copy)]
pub struct Repair<'a> {
    /// Whether an entity of the source, given by its key and Timestamp, is copied although the target has its key.
    pub(crate) has_changed: &'a (dyn Fn(&str, &Row) -> bool + Sync),
    /// Copies entities of a table, given by their keys and Timestamps.
    pub(crate) copy: &'a (dyn Fn(&str, Vec<Row>) -> TransferResult<()> + Sync),
    pub(crate) rate_limit: Option<&'a RateLimit>,
}

pub struct Comparison<'a> {
    pub source: &'a dyn TransferSource,
    pub target: &'a dyn TransferSource,
    /// The names of renamed tables in the source and in the target.
    pub renames: &'a [(String, String)],
    pub selection: &'a Selection,
    pub with_timestamps: bool,
    /// The target to delete extra entities from. They are then not reported, and properties are not compared.
    pub delete_extra: Option<&'a dyn TransferTarget>,
    pub max_delete: Option<u64>,
    /// With `delete_extra`: copies the entities that the target lacks.
    pub repair: Option<Repair<'a>>,
    pub concurrency: usize,
    /// The delay before differences are checked again, because a writer may be active.
    pub recheck_delay: Duration,
    pub progress: &'a Progress,
    pub stop: &'a AtomicBool,
}

impl Comparison<'_> {
    pub(super) fn in_target<'t>(&'t self, table: &'t str) -> &'t str {
        let case = self.source.name_case();
        let renamed = self.renames.iter().find(|(source, _)| case.is_same(source, table));
        renamed.map_or(table, |(_, target)| target)
    }

    /// Returns [`Interrupted`](crate::TransferError::Interrupted) if the work is to stop.
    pub fn check_stop(&self) -> TransferResult<()> {
        check_stop(self.stop)
    }

    pub(super) fn is_same(&self, a: &Row, b: &Row) -> bool {
        (!self.with_timestamps || a.modified == b.modified) && a.has_properties_of(b)
    }

    pub(super) fn differing(&self, a: &Row, b: &Row) -> Vec<String> {
        let mut properties = a.differing(b);
        if self.with_timestamps && a.modified != b.modified {
            properties.push("Timestamp".into());
        }
        properties
    }
}

pub(super) struct ComparisonRun<'a> {
    pub options: &'a Comparison<'a>,
    /// The results so far. The differences have yet to be checked again.
    pub found: Mutex<Compared>,
    /// Extra entities that were or are being deleted.
    deletions: AtomicU64,
}

impl<'a> ComparisonRun<'a> {
    pub(super) fn new(options: &'a Comparison<'a>, found: Compared) -> Self {
        Self { options, found: Mutex::new(found), deletions: AtomicU64::new(0) }
    }

    pub(super) fn add_equal(&self, table: &str, entities: u64) {
        self.found.lock().tally(table).equal += entities;
    }

    pub(super) fn compare(&self, table: &str, a: &Row, b: &Row) {
        if self.options.delete_extra.is_some() || self.options.is_same(a, b) {
            self.add_equal(table, 1);
        } else {
            self.add_difference(table, Some(a), Some(b));
        }
    }

    /// Records entities that cannot be parsed.
    pub(super) fn add_unreadable(&self, table: &str, rejected: Vec<Rejected>) {
        if rejected.is_empty() {
            return;
        }
        let mut found = self.found.lock();
        found.tally(table).unreadable += rejected.len() as u64;
        let room = MAX_LISTED.saturating_sub(found.unreadable.len());
        found.unreadable.extend(rejected.into_iter().take(room).map(|entity| (table.to_owned(), entity)));
    }

    /// Refuses to delete if an entity cannot be parsed, because an extra entity may be a former version of it.
    fn refuse_unreadable(&self) -> TransferResult<()> {
        match self.found.lock().tables.values().map(|tally| tally.unreadable).sum::<u64>() {
            0 => Ok(()),
            unreadable => {
                let option = if self.options.repair.is_some() { "follow" } else { "--mirror" };
                Err(failed!(
                    "{option}: {unreadable} entities are not understood, and an entity that seems extra may be a \
                     former version of one; nothing more is deleted"
                ))
            }
        }
    }

    /// Deletes extra entities, except entities that the source has by now or that have changed since.
    pub(super) fn delete_extra(&self, table: &str, extra: Vec<Row>) -> TransferResult<()> {
        let Comparison { source, delete_extra: Some(target), .. } = self.options else { return Ok(()) };
        if !extra.is_empty() {
            self.refuse_unreadable()?;
        }
        let checked = in_parallel(self.options.concurrency.min(MAX_LOOKUPS), extra, |row| {
            self.options.check_stop()?;
            let is_extra = !source.can_change() || self.is_absent(table, &row.key)?;
            let version = row.version();
            Ok(is_extra.then_some((row.key, version)))
        })?;
        let to_delete: Vec<_> = checked.into_iter().flatten().collect();
        if to_delete.is_empty() {
            return Ok(());
        }
        self.allow_deletions(to_delete.len() as u64)?;
        let deleted = target.delete(self.options.in_target(table), &to_delete);
        // Some entities may have been deleted before a failure.
        let repaired = self.repair_deleted(table, &to_delete);
        let deleted = deleted.map_err(|error| error.on("TO"))?;
        repaired?;
        let mut found = self.found.lock();
        let tally = found.tally(table);
        tally.deleted += deleted;
        tally.extra += (to_delete.len() as u64).saturating_sub(deleted);
        Ok(())
    }

    /// Whether the source lacks an entity.
    fn is_absent(&self, table: &str, key: &Key) -> TransferResult<bool> {
        Ok(self.options.source.get(table, key).map_err(|error| error.on("FROM"))?.is_none())
    }

    /// Copies deleted entities that the source has again. A writer may have seen them in the target before they were
    /// deleted there.
    fn repair_deleted(&self, table: &str, deleted: &[(Key, Version)]) -> TransferResult<()> {
        if self.options.repair.is_none() {
            return Ok(());
        }
        let keys: Vec<&Key> = deleted.iter().map(|(key, _)| key).collect();
        let lookup = |key: &Key| self.options.source.get(table, key).map_err(|error| error.on("FROM"));
        let there = in_parallel(self.options.concurrency.min(MAX_LOOKUPS), keys, lookup)?;
        self.repair(table, there.into_iter().flatten().collect())
    }

    /// Copies entities that the target lacks or that have changed.
    pub(super) fn repair(&self, table: &str, rows: Vec<Row>) -> TransferResult<()> {
        match self.options.repair {
            Some(repair) if !rows.is_empty() => (repair.copy)(table, rows),
            _ => Ok(()),
        }
    }

    /// Refuses to delete more entities than were counted, because more may have become extra since.
    fn allow_deletions(&self, more: u64) -> TransferResult<()> {
        let deletions = self.deletions.fetch_add(more, Ordering::Relaxed) + more;
        match self.options.max_delete.filter(|most| deletions > *most) {
            None => Ok(()),
            Some(most) => Err(failed!(
                "--mirror: more than the {most} entities that were counted are extra now; no more are \
                 deleted: start the copy again"
            )),
        }
    }

    /// Records a difference between the entities of the places, to be checked again.
    pub(super) fn add_difference(&self, table: &str, ours: Option<&Row>, theirs: Option<&Row>) {
        let (kind, row) = match (ours, theirs) {
            (None, None) => return,
            (Some(row), None) => (DifferenceKind::Missing, row),
            (None, Some(row)) => (DifferenceKind::Extra, row),
            (Some(row), Some(_)) => (DifferenceKind::Different, row),
        };
        let mut found = self.found.lock();
        if found.differences.len() >= MAX_LISTED {
            *found.tally(table).count_mut(kind) += 1;
            return;
        }
        let properties = ours.zip(theirs).map(|(a, b)| self.options.differing(a, b)).unwrap_or_default();
        let seen = if self.options.source.can_change() { ours } else { theirs }.map(Row::version);
        let (table, key) = (table.to_owned(), row.key.clone());
        found.differences.push(Difference { table, key, kind, properties, seen });
    }
}
