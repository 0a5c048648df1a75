//! Writes changed entities to the target, unless it has them.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicI64, Ordering};

use parking_lot::Mutex;

use super::versions::KnownVersions;
use crate::contract::{Counts, Mode, Rejected, TransferSource, TransferTarget, WritePage};
use crate::error::TransferResult;
use crate::locations::find_existing;
use crate::protocol::model::Ticks;
use crate::rejects::Rejects;
use crate::rows::Row;

pub(super) struct ChangeWriter<'a> {
    pub source: &'a dyn TransferSource,
    /// The target, to read from.
    pub existing: &'a dyn TransferSource,
    pub target: &'a dyn TransferTarget,
    pub rejects: &'a Rejects,
    /// Whether both places keep Timestamps, so that entities with different ones differ.
    pub keeps_timestamps: bool,
    known: KnownVersions,
    counts: Mutex<BTreeMap<String, Counts>>,
    /// The latest Timestamp that was read, in ticks; 0 before the first.
    newest: AtomicI64,
}

impl<'a> ChangeWriter<'a> {
    pub(super) fn new(
        source: &'a dyn TransferSource,
        (existing, target): (&'a dyn TransferSource, &'a dyn TransferTarget),
        rejects: &'a Rejects,
        keeps_timestamps: bool,
    ) -> Self {
        let (known, counts, newest) = (KnownVersions::default(), Mutex::default(), AtomicI64::new(0));
        Self { source, existing, target, rejects, keeps_timestamps, known, counts, newest }
    }

    /// Reads entities by their keys, and writes them.
    pub(super) fn copy(&self, table: &str, mut rows: Vec<Row>) -> TransferResult<()> {
        rows.retain(|row| !self.known.has(table, row));
        let mut read = find_existing(self.source, table, rows.iter()).map_err(|error| error.on("FROM"))?;
        // The range of the keys may contain other entities.
        let rows = rows.iter().filter_map(|row| read.remove(&row.key)).collect();
        self.write(table, rows, &[])
    }

    /// Compares entities with those of the target, and writes the ones that differ. Records the ones that could not be
    /// parsed.
    pub(super) fn write(&self, table: &str, mut rows: Vec<Row>, rejected: &[Rejected]) -> TransferResult<()> {
        let newest = rows.iter().filter_map(|row| row.modified).max().map_or(0, Ticks::raw);
        self.newest.fetch_max(newest, Ordering::Relaxed);
        let rejected = self.known.retain_new(table, rejected);
        self.rejects.add(table, &rejected)?;
        let mut counts = Counts { rejected: rejected.len() as u64, ..Counts::default() };
        rows.retain(|row| !self.known.has(table, row));
        if !rows.is_empty() {
            counts += self.write_unknown(table, rows).map_err(|error| error.on("TO"))?;
        }
        if counts != Counts::default() {
            *self.counts.lock().entry(table.to_owned()).or_default() += counts;
        }
        Ok(())
    }

    fn write_unknown(&self, table: &str, rows: Vec<Row>) -> TransferResult<Counts> {
        let there = find_existing(self.existing, table, rows.iter())?;
        let is_there = |row: &Row| {
            there.get(&row.key).is_some_and(|there| {
                (!self.keeps_timestamps || there.modified == row.modified) && there.has_properties_of(row)
            })
        };
        let (read, versions) = (rows.len(), KnownVersions::digests(table, &rows));
        let differing: Vec<Row> = rows.into_iter().filter(|row| !is_there(row)).collect();
        let unchanged = (read - differing.len()) as u64;
        let mut counts = Counts { unchanged, ..Counts::default() };
        if !differing.is_empty() {
            counts += self.target.write(WritePage {
                table,
                range: 0,
                rows: differing,
                mode: Mode::Replace,
                resumed: None,
                copy: "",
                last: None,
                rejected: 0,
                reject: &|rejected| self.rejects.add(table, &[rejected]),
            })?;
        }
        self.known.add(versions);
        Ok(counts)
    }

    /// Whether this round has written entities of a table.
    pub(super) fn has_written(&self, table: &str) -> bool {
        self.counts.lock().get(table).is_some_and(|counts| counts.written > 0)
    }

    /// Ends a round. Returns what it has done in each table, and the latest Timestamp that was ever read.
    pub(super) fn end_round(&self) -> (BTreeMap<String, Counts>, Option<i64>) {
        self.known.end_round();
        let newest = self.newest.load(Ordering::Relaxed);
        (std::mem::take(&mut self.counts.lock()), (newest > 0).then_some(newest))
    }
}
