//! Writing entities with their existing Timestamps.

use std::collections::HashSet;
use std::sync::{Mutex, PoisonError};

use chrono::Utc;
use futures_util::future::join_all;

use super::{ATTEMPTS, LocalDatabase, Row, TransferResult, WritePage, WriteResult, failed, is, name};
use crate::codec::validated::ValidatedProperties;
use crate::error::{Code, Error};
use crate::model::names::{KeyPart, check_body_key, check_key_length};
use crate::model::{IfMatch, Key, TableName, Ticks};
use crate::plan::{Write, WriteKind};
use crate::store::{Backend as _, Failure, Fault, StoreResult};
use crate::transfer::endpoint::{Mode, Rejected};
use crate::transfer::existing::existing;

/// Maximum writes of a page in flight: no more than fit into the queues of the stores.
const IN_FLIGHT: usize = 256;
/// Maximum writes of a transaction.
const GROUP: usize = 100;

/// The versions of writes in flight. Concurrent writes may share a statement, which identifies them by
/// version. If two had the same version, one would become a tick newer.
#[derive(Debug, Default)]
pub(super) struct Versions(Mutex<HashSet<Ticks>>);

impl Versions {
    fn take(&self, version: Ticks) -> bool {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).insert(version)
    }

    fn release(&self, groups: &[VersionGroup]) {
        let mut taken = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        groups.iter().for_each(|group| {
            taken.remove(&group.version);
        });
    }
}

/// Writes of one partition with one version.
struct VersionGroup {
    version: Ticks,
    rows: Vec<Row>,
    writes: Vec<Write>,
    attempts: u32,
}

pub(super) fn write(database: &LocalDatabase, page: WritePage<'_>) -> TransferResult<WriteResult> {
    let table = name(page.table)?;
    let mut result = WriteResult::default();
    let mut rows = page.rows;
    if page.repeats && page.mode != Mode::Insert {
        rows = without_written(database, page.table, rows, &mut result)?;
    }
    let mut waiting = groups(rows, page.mode, &mut result);
    while !waiting.is_empty() {
        let (mut round, mut later) = (Vec::new(), Vec::new());
        for group in waiting {
            let fits = round.len() < IN_FLIGHT && database.versions.take(group.version);
            if fits { round.push(group) } else { later.push(group) }
        }
        if round.is_empty() {
            // Another thread is writing with one of these versions.
            std::thread::sleep(std::time::Duration::from_millis(1));
        }
        let outcomes =
            database.runtime.block_on(join_all(round.iter().map(|group| run(database, &table, group))));
        database.versions.release(&round);
        let mut refused = Vec::new();
        for (group, outcome) in round.into_iter().zip(outcomes) {
            match outcome {
                Ok(()) => result.written += group.rows.len() as u64,
                Err(failure) => refused.push((group, failure)),
            }
        }
        waiting = later;
        waiting.extend(settle(database, page.table, refused, page.mode, &mut result)?);
    }
    Ok(result)
}

/// Leaves out entities that an interrupted run has already written: another write would make them newer.
fn without_written(
    database: &LocalDatabase,
    table: &str,
    rows: Vec<Row>,
    result: &mut WriteResult,
) -> TransferResult<Vec<Row>> {
    let found = existing(database, table, rows.iter())?;
    let is_written = |row: &Row| {
        found
            .get(&row.key)
            .is_some_and(|there| there.modified == row.modified && there.has_properties_of(row))
    };
    let (written, left): (Vec<Row>, Vec<Row>) = rows.into_iter().partition(is_written);
    result.written += written.len() as u64;
    Ok(left)
}

/// Leaves out the entities whose keys the target has.
fn without_existing(
    database: &LocalDatabase,
    table: &str,
    groups: Vec<VersionGroup>,
    mode: Mode,
    result: &mut WriteResult,
) -> TransferResult<Vec<VersionGroup>> {
    let found = existing(database, table, groups.iter().flat_map(|group| &group.rows))?;
    let mut left = Vec::new();
    for mut group in groups {
        for row in std::mem::take(&mut group.rows) {
            match found.get(&row.key) {
                None => group.rows.push(row),
                Some(there) if mode == Mode::Skip || there.has_properties_of(&row) => result.unchanged += 1,
                Some(_) => {
                    let reason = "the target has another entity with this key";
                    result.rejected.push(Rejected { entity: row.to_json(), reason: reason.into() });
                }
            }
        }
        group.writes.retain(|write| group.rows.iter().any(|row| row.key == write.key));
        left.push(group);
    }
    left.retain(|group| !group.rows.is_empty());
    Ok(left)
}

/// Groups entities of the same partition and version. Invalid ones are rejected.
fn groups(rows: Vec<Row>, mode: Mode, result: &mut WriteResult) -> Vec<VersionGroup> {
    let mut groups: Vec<VersionGroup> = Vec::new();
    let now = Ticks::from_utc(Utc::now());
    for row in rows {
        let write = match validated(&row, mode) {
            Ok(write) => write,
            Err(error) => {
                result.rejected.push(rejected(&row, &error));
                continue;
            }
        };
        let version = row.modified.unwrap_or(now);
        let fits = groups.last().is_some_and(|group| {
            group.version == version
                && group.writes.len() < GROUP
                && group.writes.iter().all(|other| other.key != write.key)
                && group.writes.first().is_some_and(|other| other.key.partition == write.key.partition)
        });
        if !fits {
            groups.push(VersionGroup { version, rows: Vec::new(), writes: Vec::new(), attempts: 0 });
        }
        if let Some(group) = groups.last_mut() {
            group.rows.push(row);
            group.writes.push(write);
        }
    }
    groups
}

fn validated(row: &Row, mode: Mode) -> std::result::Result<Write, Error> {
    for (part, value) in [(KeyPart::PartitionKey, &row.key.partition), (KeyPart::RowKey, &row.key.row)] {
        check_body_key(part, value)?;
        check_key_length(value)?;
    }
    let properties = row.properties_in_order()?;
    let properties = ValidatedProperties::new(row.key.counted_size(), &properties, None)?;
    let kind = match mode {
        Mode::Insert | Mode::Skip => WriteKind::Insert,
        Mode::Merge => WriteKind::Merge(IfMatch::Absent),
        Mode::Replace => WriteKind::Replace(IfMatch::Absent),
    };
    Ok(Write { kind, key: row.key.clone(), properties })
}

async fn run(database: &LocalDatabase, table: &TableName, group: &VersionGroup) -> StoreResult<()> {
    let LocalDatabase { store, account, .. } = database;
    match group.writes.as_slice() {
        [only] => store.write(account, table, only, group.version).await.map(drop),
        several => store.transact(account, table, several, group.version).await.map(drop),
    }
}

/// Decides what to do with groups that were refused; returns those to retry.
fn settle(
    database: &LocalDatabase,
    table: &str,
    refused: Vec<(VersionGroup, Failure)>,
    mode: Mode,
    result: &mut WriteResult,
) -> TransferResult<Vec<VersionGroup>> {
    let (mut again, mut there) = (Vec::new(), Vec::new());
    for (group, failure) in refused {
        match failure {
            failure if is(&failure, Code::EntityAlreadyExists) => there.push(group),
            // The rows of other groups are not affected.
            Failure::Refused(error) if error.code != Code::TableNotFound => {
                match <[Row; 1]>::try_from(group.rows) {
                    Ok([row]) => result.rejected.push(rejected(&row, &error)),
                    Err(rows) => again.extend(singly(rows, group.writes, group.version)),
                }
            }
            Failure::Fault(Fault::Busy | Fault::NotBegun | Fault::Serialization | Fault::Unavailable)
                if group.attempts < ATTEMPTS =>
            {
                std::thread::sleep(std::time::Duration::from_millis(20 << group.attempts));
                again.push(VersionGroup { attempts: group.attempts + 1, ..group });
            }
            failure => return Err(failed(table, failure)),
        }
    }
    again.extend(without_existing(database, table, there, mode, result)?);
    Ok(again)
}

/// Splits rows into groups of one.
fn singly(rows: Vec<Row>, writes: Vec<Write>, version: Ticks) -> impl Iterator<Item = VersionGroup> {
    let pairs = rows.into_iter().zip(writes);
    pairs.map(move |(row, write)| VersionGroup { version, rows: vec![row], writes: vec![write], attempts: 0 })
}

fn rejected(row: &Row, error: &Error) -> Rejected {
    Rejected { entity: row.to_json(), reason: format!("{}: {}", error.code.facts().code, error.text()) }
}

/// Deletes entities; returns how many existed.
pub(super) fn delete(database: &LocalDatabase, table: &str, keys: &[Key]) -> TransferResult<u64> {
    let table = name(table)?;
    let mut deleted = 0;
    for chunk in keys.chunks(IN_FLIGHT) {
        let now = Ticks::from_utc(Utc::now());
        let writes: Vec<Write> = chunk
            .iter()
            .map(|key| {
                let none: &[(String, crate::model::EdmValue)] = &[];
                let properties = ValidatedProperties::new(key.counted_size(), none, None);
                let kind = WriteKind::Delete(IfMatch::Any);
                properties.map(|properties| Write { kind, key: key.clone(), properties })
            })
            .collect::<crate::error::Result<_>>()
            .map_err(|error| failed(table.as_given(), error.into()))?;
        let work = writes.iter().map(|write| database.store.write(&database.account, &table, write, now));
        for outcome in database.runtime.block_on(join_all(work)) {
            match outcome {
                Ok(_) => deleted += 1,
                Err(failure) if is(&failure, Code::ResourceNotFound) => {}
                Err(failure) => return Err(failed(table.as_given(), failure)),
            }
        }
    }
    Ok(deleted)
}
