//! A round: new and deleted tables, and changed entities.

use std::collections::{BTreeSet, HashSet};
use std::time::Instant;

use parking_lot::Mutex;

use super::keys::{SERVICE_PROPERTIES, policies_of};
use super::state::{FollowState, FollowedTable, Since};
use super::{Follow, FollowPlaces, FollowProof, FollowRound, FollowedCounts};
use crate::contract::TransferSource;
use crate::error::{TransferError, TransferResult, failed};
use crate::protocol::model::{Key, Ticks};
use crate::rows::selection::NameCase;
use crate::work::in_parallel;
use crate::work::progress::{Progress, ProgressForm};
use crate::work::work_queue::{Task, WorkQueue};

/// Maximum entities that are copied by their keys at once.
const KEYS_OF_PART: usize = 500;

/// The tables of a round, as the source spells them.
struct RoundTables {
    /// Tables that were copied before.
    known: Vec<String>,
    /// Tables that the round reads completely.
    new: Vec<String>,
    /// Tables that only the target has, and that were never followed.
    extra: Vec<String>,
}

impl Follow<'_> {
    /// Copies the changes since the last round.
    pub(super) fn run_round(&self) -> TransferResult<FollowRound> {
        let (begun, time) = (Instant::now(), self.time()?);
        let since = self.state.lock().since(time, self.places.source.max_lag());
        self.begin_round()?;
        let tables = self.prepare_tables(time)?;
        self.copy_missing(false)?;
        self.read_changes(since, &tables.known, false)?;
        self.read_changes(Since::Beginning, &tables.new, false)?;
        self.copy_properties()?;
        self.end_round(begun, time)
    }

    /// Reads the last changes, and proves that the places are equal. Nothing may write to the source any more.
    pub fn finish(&self) -> TransferResult<FollowProof> {
        let (begun, time) = (Instant::now(), self.time()?);
        let since = self.state.lock().since(time, self.places.source.max_lag());
        self.begin_round()?;
        let RoundTables { mut known, new, extra } = self.prepare_tables(time)?;
        let listed: Vec<String> = known.iter().chain(&new).cloned().collect();
        self.copy_missing(true)?;
        self.copy_refused()?;
        // The comparison of keys reads all Timestamps of a small table, so its changes need no request of their own.
        let small = self.take_small_tables(since, &mut known);
        self.read_changes(since, &known, true)?;
        self.read_changes(Since::Beginning, &new, true)?;
        self.copy_properties()?;
        let large = self.tables_to_compare(known.into_iter().chain(new));
        let compared_tables = small.len() + large.len();
        let mut differing = self.compare_all_keys(&small, since)?;
        differing.extend(self.compare_all_keys(&large, Since::Beginning)?);
        // Another writer may have changed an entity before its deletion.
        let differing = self.compare_all_keys(&differing, Since::Beginning)?;
        self.compare_unseen_policies(time)?;
        let is_unread =
            |table: &&String| self.state.lock().tables.get(*table).is_none_or(|table| table.is_new);
        if let Some(lost) = listed.iter().find(is_unread) {
            return Err(failed!(
                "FROM lost the table {lost} during the last round: stop all writers, and run the command again"
            ));
        }
        let round = self.end_round(begun, time)?;
        let mut state = self.state.lock();
        let policies = state.tables.values().map(|table| table.policies_compared).min().flatten();
        let proof = FollowProof {
            round,
            compared_tables,
            rejected: state.refused.count(),
            differing,
            unread: state.unread.values().cloned().collect(),
            policies_compared: policies.and_then(Ticks::from_raw),
            extra_tables: extra,
        };
        state.proved_at = proof.is_equal().then_some(time.raw());
        state.save(self.checkpoint)?;
        Ok(proof)
    }

    /// Removes and returns the tables that a few requests read completely.
    fn take_small_tables(&self, since: Since, known: &mut Vec<String>) -> Vec<String> {
        let state = self.state.lock();
        let is_small = |table: &String| state.tables.get(table).is_some_and(FollowedTable::is_small);
        match since {
            Since::Time(_) => known.extract_if(.., |table| is_small(table)).collect(),
            Since::Beginning => Vec::new(),
        }
    }

    /// Returns the tables in which deleted entities may remain, including those that this round has changed.
    fn tables_to_compare(&self, tables: impl Iterator<Item = String>) -> Vec<String> {
        let state = self.state.lock();
        let is_due = |table: &String| {
            let needs_keys = state.tables.get(table).is_some_and(FollowedTable::needs_keys);
            needs_keys || self.writer.has_written(table)
        };
        tables.filter(is_due).collect()
    }

    /// Creates new tables in the target, and deletes those that the source has lost.
    fn prepare_tables(&self, time: Ticks) -> TransferResult<RoundTables> {
        let FollowPlaces { source, existing, .. } = self.places;
        let mut listed = source.selected_tables(self.options.selection).map_err(|error| error.on("FROM"))?;
        let theirs = existing.tables().map_err(|error| error.on("TO"))?;
        let followed: Vec<String> = self.state.lock().tables.keys().cloned().collect();
        if listed.is_empty() && !followed.is_empty() {
            return Err(failed!(
                "FROM no longer lists any table, but {} tables of TO follow it; nothing is deleted: check the account \
                 of FROM, or end the command",
                followed.len()
            ));
        }
        let case = NameCase::Ignored;
        let [ours, theirs_folded, before] = [&listed, &theirs, &followed].map(|names| case.fold_all(names));
        let is_in = |names: &HashSet<String>, name: &str| names.contains(&*case.fold(name));
        let unlisted = followed.iter().filter(|name| !is_in(&ours, name)).cloned().collect();
        listed.extend(self.delete_lost_tables(unlisted)?);
        let is_extra = |name: &String| {
            self.options.selection.has_table(name) && !is_in(&ours, name) && !is_in(&before, name)
        };
        let extra = theirs.iter().filter(|name| is_extra(name)).cloned().collect();
        let exact: BTreeSet<&String> = listed.iter().collect();
        let mut state = self.state.lock();
        let FollowState { tables, unread, .. } = &mut *state;
        // The source may have created the table again with a different spelling of its name.
        tables.retain(|name, _| exact.contains(name));
        let settings: BTreeSet<String> = tables.keys().map(|table| policies_of(table)).collect();
        unread.retain(|what, _| what == SERVICE_PROPERTIES || settings.contains(what));
        self.writer.refused.retain_tables(|table| tables.contains_key(table));
        let is_known = |name: &String| {
            state.tables.get(name).is_some_and(|table| !table.is_new) && is_in(&theirs_folded, name)
        };
        let (known, new): (Vec<String>, Vec<String>) = listed.into_iter().partition(is_known);
        drop(state);
        let new = self.create_tables(new, time)?;
        Ok(RoundTables { known, new, extra })
    }

    /// Creates tables that the source has, with their policies; returns them.
    fn create_tables(&self, tables: Vec<String>, time: Ticks) -> TransferResult<Vec<String>> {
        let FollowPlaces { source, target, .. } = self.places;
        let created = in_parallel(self.options.concurrency, tables, |table| {
            self.check_stop()?;
            // A SAS of one table cannot list tables, so the table may not exist.
            if !source.has_table(&table).map_err(|error| error.on("FROM"))? {
                return Ok(None);
            }
            // If the source loses the table before the round reads it, the next round deletes the new table.
            self.state.lock().tables.insert(table.clone(), FollowedTable::new());
            target.create(&table).map_err(|error| error.on("TO"))?;
            self.compare_policies(&table, time)?;
            self.remark(format!("{table} is new, and is read completely"));
            Ok(Some(table))
        })?;
        self.state.lock().save(self.checkpoint)?;
        Ok(created.into_iter().flatten().collect())
    }

    /// Deletes the tables that the source has lost from the target, after asking the source for each. Returns the
    /// others.
    fn delete_lost_tables(&self, tables: Vec<String>) -> TransferResult<Vec<String>> {
        let FollowPlaces { source, target, .. } = self.places;
        let kept = in_parallel(self.options.concurrency, tables, |table| {
            self.check_stop()?;
            if source.has_table(&table).map_err(|error| error.on("FROM"))? {
                return Ok(Some(table));
            }
            target.delete_table(&table).map_err(|error| error.on("TO"))?;
            self.remark(format!("FROM has lost {table}, which was deleted from TO"));
            self.state.lock().tables.remove(&table);
            Ok(None)
        })?;
        Ok(kept.into_iter().flatten().collect())
    }

    /// Reads the changed entities of tables, and writes those that the target does not have. A request for the last
    /// round interrupts every other round.
    fn read_changes(&self, since: Since, tables: &[String], is_last: bool) -> TransferResult<()> {
        let source = self.places.source;
        let changed = match since {
            Since::Time(since) => Some(source.changed_since(since)?),
            Since::Beginning => None,
        };
        let view = changed.as_deref().unwrap_or(source);
        let progress = Progress::start(ProgressForm::Off, "read");
        let queue = WorkQueue::for_tables(view, tables, &progress)?;
        let (round, lost) = (Instant::now(), Mutex::new(BTreeSet::new()));
        queue.each(view, self.options.concurrency, |task| {
            self.note_reading(&task.table, round);
            if !self.read_range(view, since, &queue, task, is_last)? {
                lost.lock().insert(task.table.clone());
            }
            Ok(())
        })?;
        let lost = lost.into_inner();
        let mut state = self.state.lock();
        for table in tables {
            // If the source has a lost table again, the next round reads it completely.
            state.tables.entry(table.clone()).or_default().is_new = lost.contains(table);
        }
        drop(state);
        self.delete_lost_tables(lost.into_iter().collect()).map(drop)
    }

    /// Records the time when the round opens the first range of a table.
    pub(super) fn note_reading(&self, table: &str, round: Instant) {
        let mut read = self.read_begun.lock();
        if read.get(table).is_none_or(|begun| *begun < round) {
            read.insert(table.to_owned(), Instant::now());
        }
    }

    /// Copies the changes in a range. Returns `false` if the source has lost the table.
    fn read_range(
        &self,
        view: &dyn TransferSource,
        since: Since,
        queue: &WorkQueue,
        task: &Task,
        is_last: bool,
    ) -> TransferResult<bool> {
        let mut reader = view.open(&task.table, &task.range, false)?;
        loop {
            self.check_end(is_last)?;
            let page = match reader.next() {
                Err(TransferError::NoTable(_)) => return Ok(false),
                page => page.map_err(|error| error.on("FROM"))?,
            };
            let Some(mut page) = page else { return Ok(true) };
            let is_end = queue.keep_own(task, &mut page, true);
            match since {
                Since::Time(_) => self.writer.write(&task.table, page.rows, &page.rejected)?,
                Since::Beginning => self.writer.write_all(&task.table, page.rows, &page.rejected)?,
            }
            if is_end {
                return Ok(true);
            }
        }
    }

    /// Copies the entities that a comparison of keys has found missing.
    fn copy_missing(&self, is_last: bool) -> TransferResult<()> {
        let missing = std::mem::take(&mut *self.missing.lock());
        self.copy_by_keys(missing, is_last)
    }

    /// Reads the entities again that the target did not accept, because the source may have changed them since.
    fn copy_refused(&self) -> TransferResult<()> {
        let refused = self.writer.refused.state();
        self.copy_by_keys(refused.keys().map(|(table, key)| (table.to_owned(), key)).collect(), true)
    }

    /// Copies entities, given by their tables and keys, in parts.
    fn copy_by_keys(&self, mut keys: Vec<(String, Key)>, is_last: bool) -> TransferResult<()> {
        keys.sort();
        for part in keys.chunk_by(|(a, _), (b, _)| a == b).flat_map(|table| table.chunks(KEYS_OF_PART)) {
            self.check_end(is_last)?;
            let table = part.first().map(|(table, _)| table.as_str()).unwrap_or_default();
            if self.state.lock().tables.contains_key(table) {
                self.writer.copy(table, &part.iter().map(|(_, key)| key).collect::<Vec<_>>())?;
            }
        }
        Ok(())
    }

    /// Returns [`Interrupted`](TransferError::Interrupted) if the round is to end. Only a stop ends the last round.
    fn check_end(&self, is_last: bool) -> TransferResult<()> {
        self.check_stop()?;
        if self.is_finishing() && !is_last { Err(TransferError::Interrupted) } else { Ok(()) }
    }

    fn begin_round(&self) -> TransferResult<()> {
        let mut state = self.state.lock();
        (state.is_in_round, state.proved_at) = (true, None);
        state.save(self.checkpoint)
    }

    /// Records that the round has read the source as it was at `time`.
    fn end_round(&self, begun: Instant, time: Ticks) -> TransferResult<FollowRound> {
        let mut deleted = std::mem::take(&mut *self.deleted.lock());
        let mut state = self.state.lock();
        self.count_writes(&mut state);
        let (mut counts, newest) = self.writer.end_round();
        let took = i64::try_from(begun.elapsed().as_micros() * 10).unwrap_or(i64::MAX);
        state.note_reading([time.raw(), time.raw().saturating_add(took)], newest);
        state.save(self.checkpoint)?;
        let read = self.read_begun.lock();
        let followed = |(name, table): (&String, &FollowedTable)| {
            let counts = FollowedCounts {
                counts: counts.remove(name).unwrap_or_default(),
                deleted: deleted.remove(name).unwrap_or_default(),
                lag: read.get(name).map_or(0.0, |begun| begun.elapsed().as_secs_f64()),
                keys_compared: table.keys_compared.and_then(Ticks::from_raw),
            };
            (name.clone(), counts)
        };
        Ok(FollowRound {
            time,
            tables: state.tables.iter().map(followed).collect(),
            remarks: std::mem::take(&mut *self.remarks.lock()),
            seconds: begun.elapsed().as_secs_f64(),
            throttled: self.places.source.retries().0 + self.places.target.retries().0,
        })
    }
}
