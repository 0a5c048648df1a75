//! Follows a source: copies its changes, round after round, until its applications move to the target.
//!
//! A round finds changed entities by their Timestamps. Deleted entities have none, so a second thread compares the keys
//! of one table after another. The threads do not write the same entity: the second thread deletes entities, and leaves
//! missing ones to the next round.

mod keys;
mod refused;
mod rounds;
mod state;
mod versions;
mod writer;

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use parking_lot::Mutex;

use crate::contract::{Counts, Mode, TransferSource, TransferTarget};
use crate::copy::checkpoint::Checkpoint;
use crate::copy::settings::SettingsRule;
use crate::copy::{CopyOptions, copy};
use crate::error::{TransferError, TransferResult, check_stop, failed, pause};
use crate::protocol::model::{Key, Ticks};
use crate::rejects::Rejects;
use crate::rows::selection::{NameCase, Selection};
use crate::work::progress::{Progress, ProgressForm};
use crate::work::rate_limit::RateLimit;
use refused::RefusedKeys;
use state::{FollowState, FollowedTable};
use writer::ChangeWriter;

pub struct FollowOptions<'a> {
    /// The tables to follow, without a filter, which would hide deletions.
    pub selection: &'a Selection,
    /// Maximum pages in progress at once.
    pub concurrency: usize,
    /// Maximum keys per second to compare before the last round.
    pub rate_limit: u32,
    /// The time from the beginning of a round to the beginning of the next.
    pub interval: Duration,
    /// Whether both places keep Timestamps.
    pub keeps_timestamps: bool,
    pub progress: ProgressForm,
    /// Set to end at once; the next run continues from the state.
    pub stop: &'a AtomicBool,
    /// Set to end with a last round and a proof.
    pub finish: &'a AtomicBool,
}

#[derive(Clone, Copy)]
pub struct FollowPlaces<'a> {
    pub source: &'a dyn TransferSource,
    /// The target, to read from.
    pub existing: &'a dyn TransferSource,
    pub target: &'a dyn TransferTarget,
}

/// The changes of a round in a table, and how current the table is.
#[derive(Debug, Clone, Copy, Default)]
pub struct FollowedCounts {
    pub counts: Counts,
    /// Entities that were deleted since the last round.
    pub deleted: u64,
    /// Seconds since the last complete reading of the table's changes began.
    pub lag: f64,
    /// The time of the source when the last complete comparison of the table's keys began.
    pub keys_compared: Option<Ticks>,
}

#[derive(Debug)]
pub struct FollowRound {
    /// The time of the source when the round began.
    pub time: Ticks,
    pub tables: BTreeMap<String, FollowedCounts>,
    /// Tables that the target gained or lost, settings that changed there, and comparisons of keys that failed.
    pub remarks: Vec<String>,
    pub seconds: f64,
    /// Throttled answers of both places since the start.
    pub throttled: u64,
}

impl FollowRound {
    /// Returns the longest lag of a table, in seconds.
    pub fn lag(&self) -> f64 {
        self.tables.values().map(|table| table.lag).fold(0.0, f64::max)
    }

    /// Returns the counts of all tables, and the number of deleted entities.
    pub fn sum(&self) -> (Counts, u64) {
        let counts = self.tables.values().map(|table| table.counts).sum();
        (counts, self.tables.values().map(|table| table.deleted).sum())
    }

    /// Returns the earliest `keys_compared` of all tables; `None` if the keys of a table were never compared.
    pub fn keys_compared(&self) -> Option<Ticks> {
        self.tables.values().map(|table| table.keys_compared).min().flatten()
    }
}

/// The result of the last round.
#[derive(Debug)]
pub struct FollowProof {
    pub round: FollowRound,
    /// The number of tables whose keys were compared in the last round.
    pub compared_tables: usize,
    /// Entities that the target did not accept since the initial copy began.
    pub rejected: u64,
    /// Tables whose keys still differ, because something else writes to the target.
    pub differing: Vec<String>,
    /// Settings that could not be compared, with the reasons.
    pub unread: Vec<String>,
    /// The time of the source when the oldest comparison of policies began.
    pub policies_compared: Option<Ticks>,
    /// Tables of the target that the source does not have.
    pub extra_tables: Vec<String>,
}

impl FollowProof {
    /// Whether the entities and settings of the followed tables are proved to be equal.
    pub fn is_equal(&self) -> bool {
        self.rejected == 0 && self.differing.is_empty() && self.unread.is_empty()
    }
}

pub struct Follow<'a> {
    places: FollowPlaces<'a>,
    options: &'a FollowOptions<'a>,
    checkpoint: &'a Checkpoint,
    rejects: &'a Rejects,
    writer: ChangeWriter<'a>,
    state: Mutex<FollowState>,
    /// The time when the last reading of a table's changes began.
    read_begun: Mutex<BTreeMap<String, Instant>>,
    /// Entities that were deleted since the last round.
    deleted: Mutex<BTreeMap<String, u64>>,
    /// The tables and keys of entities that the target lacks, for the next round.
    missing: Mutex<Vec<(String, Key)>>,
    remarks: Mutex<Vec<String>>,
    /// Set to end the comparison of keys.
    rounds_end: AtomicBool,
    limit: RateLimit,
}

impl<'a> Follow<'a> {
    /// Continues from the state in the checkpoint, if it has one.
    pub fn new(
        places: FollowPlaces<'a>,
        options: &'a FollowOptions<'a>,
        checkpoint: &'a Checkpoint,
        rejects: &'a Rejects,
    ) -> TransferResult<Self> {
        let FollowPlaces { source, existing, target } = places;
        let state = FollowState::load(checkpoint)?;
        let refused = RefusedKeys::new(state.refused.clone());
        Ok(Self {
            places,
            options,
            checkpoint,
            rejects,
            writer: ChangeWriter::new(source, (existing, target), rejects, options.keeps_timestamps, refused),
            state: Mutex::new(state),
            read_begun: Mutex::default(),
            deleted: Mutex::default(),
            missing: Mutex::default(),
            remarks: Mutex::default(),
            rounds_end: AtomicBool::new(false),
            limit: RateLimit::new(options.rate_limit),
        })
    }

    /// Whether the initial copy is complete.
    pub fn is_copied(&self) -> bool {
        self.state.lock().is_copied
    }

    /// Returns the time of the source when an earlier run proved that both places are equal.
    pub fn proved_at(&self) -> Option<Ticks> {
        self.state.lock().proved_at.and_then(Ticks::from_raw)
    }

    /// Removes and returns the remarks that no round has reported.
    pub fn take_remarks(&self) -> Vec<String> {
        std::mem::take(&mut *self.remarks.lock())
    }

    /// Copies everything for the first time, as `rowhouse copy` does, or continues an interrupted copy. If the target
    /// already has entities, the first round compares all entities instead.
    pub fn copy_initially(&self) -> TransferResult<()> {
        if self.checkpoint.is_untouched()? && self.target_has_entities()? {
            self.state.lock().is_copied = true;
            return Ok(());
        }
        if self.state.lock().read_at.is_none() {
            // The first round reads the entities that change during the copy.
            let mut state = self.state.lock();
            state.read_at = Some(self.time()?.raw());
            state.save(self.checkpoint)?;
        }
        let progress = Progress::start(self.options.progress, "copied");
        let options = CopyOptions {
            selection: self.options.selection,
            mode: Mode::Replace,
            concurrency: self.options.concurrency,
            existing: Some(self.places.existing),
            whole: None,
            settings: SettingsRule { mode: Mode::Replace, delete_extra: true },
            rate_limit: None,
            renames: &[],
            stop: self.options.stop,
        };
        let FollowPlaces { source, target, .. } = self.places;
        let copied = copy(source, target, &options, self.checkpoint, self.rejects, &progress)?;
        if let Some((table, reason)) = copied.failed.first_key_value() {
            return Err(failed!("{table}: {reason}; {} tables could not be copied", copied.failed.len()));
        }
        // The first comparison of keys finds rejected entities again.
        let (newest, end) = (self.checkpoint.newest()?.map(Ticks::raw), self.time()?.raw());
        let mut state = self.state.lock();
        if let Some(begin) = state.read_at {
            state.note_reading([begin, end], newest);
        }
        let followed = |(table, counts): (String, Counts)| {
            let entities = Some(counts.written + counts.unchanged);
            (table, FollowedTable { entities, ..FollowedTable::default() })
        };
        state.tables = copied.tables.into_iter().map(followed).collect();
        state.is_copied = true;
        state.save(self.checkpoint)
    }

    fn target_has_entities(&self) -> TransferResult<bool> {
        let FollowPlaces { source, existing, target } = self.places;
        let case = NameCase::Ignored;
        let ours = case.fold_all(&source.tables().map_err(|error| error.on("FROM"))?);
        let mut theirs = existing.selected_tables(self.options.selection).map_err(|error| error.on("TO"))?;
        theirs.retain(|table| ours.contains(&*case.fold(table)));
        for table in theirs {
            if target.has_entities(&table).map_err(|error| error.on("TO"))? == Some(true) {
                return Ok(true);
            }
        }
        Ok(false)
    }

    /// Reads changes, round after round, until `stop` or `finish` is set. Passes each round to `report`.
    pub fn run_rounds(
        &self,
        report: &mut dyn FnMut(&FollowRound) -> TransferResult<()>,
    ) -> TransferResult<()> {
        let ended = std::thread::scope(|scope| {
            scope.spawn(|| self.compare_keys_in_turn());
            let ended = self.repeat_rounds(report);
            self.rounds_end.store(true, Ordering::Relaxed);
            ended
        });
        ended.inspect_err(|_| self.note_failed_round())
    }

    /// Records the tables that a failed round has written to, so that their keys are compared again.
    fn note_failed_round(&self) {
        let mut state = self.state.lock();
        self.count_writes(&mut state);
        // If this fails, the next run counts a write to each table.
        let _ = state.save(self.checkpoint);
    }

    /// Counts the writes of the round that ends.
    fn count_writes(&self, state: &mut FollowState) {
        for (name, table) in &mut state.tables {
            table.writes += u64::from(self.writer.has_written(name));
        }
        state.is_in_round = false;
        state.refused = self.writer.refused.state();
    }

    fn repeat_rounds(
        &self,
        report: &mut dyn FnMut(&FollowRound) -> TransferResult<()>,
    ) -> TransferResult<()> {
        loop {
            let begun = Instant::now();
            match self.run_round() {
                Err(TransferError::Interrupted) if self.is_finishing() => return Ok(()),
                round => report(&round?)?,
            }
            while begun.elapsed() < self.options.interval {
                if self.is_finishing() {
                    return Ok(());
                }
                pause(SIGNAL_CHECK, self.options.stop)?;
            }
        }
    }

    fn is_finishing(&self) -> bool {
        self.options.finish.load(Ordering::Relaxed)
    }

    /// Reads the clock of the source.
    fn time(&self) -> TransferResult<Ticks> {
        let time = self.places.source.time().map_err(|error| error.on("FROM"))?;
        time.ok_or_else(|| {
            failed!("FROM: its answers have no Date header, without which a round cannot find changes")
        })
    }

    /// Returns [`Interrupted`](TransferError::Interrupted) if the work is to stop.
    fn check_stop(&self) -> TransferResult<()> {
        check_stop(self.options.stop)
    }

    fn remark(&self, text: String) {
        self.remarks.lock().push(text);
    }
}

/// The interval at which a pause between rounds checks for the end.
const SIGNAL_CHECK: Duration = Duration::from_millis(50);
