//! Writes changed entities to the target, unless the target already has them.

use std::collections::{BTreeMap, HashMap};
use std::sync::atomic::{AtomicI64, AtomicU64, Ordering};

use parking_lot::Mutex;
use serde_json::json;

use super::refused::RefusedKeys;
use super::versions::{KnownVersions, RecordedRejects};
use crate::contract::{Counts, Mode, Rejected, TransferSource, TransferTarget, WritePage};
use crate::error::{TransferError, TransferResult};
use crate::locations::{FEW_KEYS, MAX_LOOKUPS, find_existing, read_range_of};
use crate::protocol::model::{Key, Ticks};
use crate::rejects::Rejects;
use crate::rows::Row;
use crate::work::in_parallel;

pub(super) struct ChangeWriter<'a> {
    source: &'a dyn TransferSource,
    /// The target, to read from.
    existing: &'a dyn TransferSource,
    target: &'a dyn TransferTarget,
    rejects: &'a Rejects,
    /// Whether both places keep Timestamps, so that entities with different Timestamps differ.
    keeps_timestamps: bool,
    known: KnownVersions,
    recorded: RecordedRejects,
    pub(super) refused: RefusedKeys,
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
        refused: RefusedKeys,
    ) -> Self {
        let (known, recorded) = (KnownVersions::default(), RecordedRejects::default());
        let (counts, newest) = (Mutex::default(), AtomicI64::new(0));
        Self { source, existing, target, rejects, keeps_timestamps, known, recorded, refused, counts, newest }
    }

    /// Whether the target has this version, because this round or the last one has written or compared it.
    pub(super) fn is_known(&self, table: &str, row: &Row) -> bool {
        self.known.has(table, row)
    }

    /// Reads entities of the source by their keys, and writes those that the target does not have.
    pub(super) fn copy(&self, table: &str, keys: &[&Key]) -> TransferResult<()> {
        let (mut read, mut rejected) = (HashMap::new(), Vec::new());
        if keys.len() > FEW_KEYS {
            let range = read_range_of(self.source, table, keys).map_err(|error| error.on("FROM"))?;
            (read, rejected) = (range.rows, range.rejected);
        }
        let unread: Vec<&Key> = keys.iter().copied().filter(|key| !read.contains_key(*key)).collect();
        for outcome in in_parallel(MAX_LOOKUPS, unread, |key| Ok((key, self.source.get(table, key))))? {
            match outcome {
                (key, Ok(row)) => read.extend(row.map(|row| (key.clone(), row))),
                (key, Err(TransferError::NotEntity(reason))) => {
                    let entity = json!({ "PartitionKey": key.partition, "RowKey": key.row }).to_string();
                    rejected.push(Rejected { entity, reason });
                }
                (_, Err(error)) => return Err(error.on("FROM")),
            }
        }
        // The range may contain other entities.
        let rows = keys.iter().filter_map(|key| read.remove(*key)).collect();
        // An entity that the source has lost is not rejected any more.
        keys.iter().for_each(|key| self.refused.remove(table, key));
        self.write_all(table, rows, &rejected)
    }

    /// Writes the entities of a page, except versions that the target is known to have.
    pub(super) fn write(&self, table: &str, mut rows: Vec<Row>, rejected: &[Rejected]) -> TransferResult<()> {
        rows.retain(|row| !self.known.has(table, row));
        self.write_all(table, rows, rejected)
    }

    /// Compares `rows` with the target, and writes the entities that differ. Records the `rejected` ones, which could
    /// not be parsed.
    pub(super) fn write_all(&self, table: &str, rows: Vec<Row>, rejected: &[Rejected]) -> TransferResult<()> {
        // The Timestamps of known versions were noted when the versions became known.
        let newest = rows.iter().filter_map(|row| row.modified).max().map_or(0, Ticks::raw);
        self.newest.fetch_max(newest, Ordering::Relaxed);
        let mut counts = Counts::default();
        for rejected in rejected {
            counts.rejected += u64::from(self.reject(table, rejected)?);
        }
        if !rows.is_empty() {
            counts += self.write_differing(table, rows).map_err(|error| error.on("TO"))?;
        }
        if counts != Counts::default() {
            *self.counts.lock().entry(table.to_owned()).or_default() += counts;
        }
        Ok(())
    }

    /// Records a rejected entity, unless it was recorded before; returns whether it is new.
    fn reject(&self, table: &str, rejected: &Rejected) -> TransferResult<bool> {
        self.refused.add(table, rejected);
        let is_new = self.recorded.is_new(table, rejected);
        if is_new {
            self.rejects.add(table, std::slice::from_ref(rejected))?;
        }
        Ok(is_new)
    }

    fn write_differing(&self, table: &str, rows: Vec<Row>) -> TransferResult<Counts> {
        let there = find_existing(self.existing, table, rows.iter())?;
        let is_there = |row: &Row| {
            there.get(&row.key).is_some_and(|there| {
                (!self.keeps_timestamps || there.modified == row.modified) && there.has_properties_of(row)
            })
        };
        let (read, versions) = (rows.len(), KnownVersions::digests(table, &rows));
        // A write that the target does not accept adds the key again.
        rows.iter().for_each(|row| self.refused.remove(table, &row.key));
        let differing: Vec<Row> = rows.into_iter().filter(|row| !is_there(row)).collect();
        let unchanged = (read - differing.len()) as u64;
        let mut counts = Counts { unchanged, ..Counts::default() };
        if !differing.is_empty() {
            let rejected = AtomicU64::new(0);
            let written = self.target.write(WritePage {
                table,
                range: 0,
                rows: differing,
                mode: Mode::Replace,
                resumed: None,
                copy: "",
                last: None,
                rejected: 0,
                reject: &|entity| {
                    rejected.fetch_add(self.reject(table, &entity)?.into(), Ordering::Relaxed);
                    Ok(())
                },
            })?;
            counts += Counts { rejected: rejected.into_inner(), ..written };
        }
        self.known.add(versions);
        Ok(counts)
    }

    /// Whether this round has written entities of a table.
    pub(super) fn has_written(&self, table: &str) -> bool {
        self.counts.lock().get(table).is_some_and(|counts| counts.written > 0)
    }

    /// Ends a round. Returns the counts of each table, and the latest Timestamp that was ever read, in ticks.
    pub(super) fn end_round(&self) -> (BTreeMap<String, Counts>, Option<i64>) {
        self.known.end_round();
        let newest = self.newest.load(Ordering::Relaxed);
        (std::mem::take(&mut self.counts.lock()), (newest > 0).then_some(newest))
    }
}
