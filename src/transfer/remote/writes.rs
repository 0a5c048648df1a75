//! Writing entities: change sets of one partition, and what happens if one is refused.

use std::collections::HashSet;

use super::{Remote, Row, TransferResult, WritePage, WriteResult, rejected};
use crate::client::{ChangeSetBody, MAX_BODY, MAX_OPERATIONS, ServiceError, SetVerb};
use crate::codec::uri::entity_address;
use crate::model::Key;
use crate::transfer::endpoint::{Mode, TransferError};
use crate::transfer::existing::existing;

/// An operation of a change set.
struct SetOperation {
    row: Row,
    body: String,
}

/// Writes a page in change sets. An entity that is refused is left out, and the others are retried.
pub(super) fn write(remote: &Remote, page: WritePage<'_>) -> TransferResult<WriteResult> {
    let mut result = WriteResult::default();
    for group in groups(page.rows, &mut result) {
        write_group(remote, page.table, group, page.mode, &mut result)?;
    }
    Ok(result)
}

/// Groups entities into change sets.
fn groups(rows: Vec<Row>, result: &mut WriteResult) -> Vec<Vec<SetOperation>> {
    let mut groups: Vec<Vec<SetOperation>> = Vec::new();
    let (mut size, mut keys) = (0, HashSet::new());
    for row in rows {
        let mut body = String::new();
        if let Err(reason) = row.push_json(&mut body, false) {
            result.rejected.push(rejected(&row, reason));
            continue;
        }
        let fits = groups.last().and_then(|group| group.first()).is_some_and(|first| {
            first.row.key.partition == row.key.partition && size + body.len() < MAX_BODY
        });
        if !fits || groups.last().is_none_or(|group| group.len() == MAX_OPERATIONS) || keys.contains(&row.key)
        {
            groups.push(Vec::new());
            size = 0;
            keys.clear();
        }
        size += body.len() + 512;
        keys.insert(row.key.clone());
        if let Some(group) = groups.last_mut() {
            group.push(SetOperation { row, body });
        }
    }
    groups
}

fn write_group(
    remote: &Remote,
    table: &str,
    mut group: Vec<SetOperation>,
    mode: Mode,
    result: &mut WriteResult,
) -> TransferResult<()> {
    while !group.is_empty() {
        let refused = match send(remote, table, &group, mode)? {
            Ok(()) => {
                result.written += group.len() as u64;
                return Ok(());
            }
            Err(refused) => refused,
        };
        if is_fatal(&refused) {
            return Err(refused.into());
        }
        let whole = refused.index.is_none() && group.len() > 1;
        let culprit = refused.index.unwrap_or(0);
        if whole || culprit >= group.len() {
            // The error names no entity, or concerns the whole batch: the entities are sent one by one.
            if group.len() == 1 {
                return Err(refused.into());
            }
            let rest = group.split_off(group.len() / 2);
            write_group(remote, table, group, mode, result)?;
            group = rest;
            continue;
        }
        if refused.code == "EntityAlreadyExists" && matches!(mode, Mode::Insert | Mode::Skip) {
            let before = group.len();
            group = without_existing(remote, table, group, mode, result)?;
            if group.len() < before {
                continue;
            }
        }
        let SetOperation { row, .. } = group.remove(culprit);
        result.rejected.push(rejected(&row, refused.to_string()));
    }
    Ok(())
}

/// Leaves out the entities that the target already has: an earlier attempt may have written them.
fn without_existing(
    remote: &Remote,
    table: &str,
    group: Vec<SetOperation>,
    mode: Mode,
    result: &mut WriteResult,
) -> TransferResult<Vec<SetOperation>> {
    let found = existing(remote, table, group.iter().map(|operation| &operation.row))?;
    let mut left = Vec::new();
    for operation in group {
        match found.get(&operation.row.key) {
            None => left.push(operation),
            Some(there) if mode == Mode::Skip || there.has_properties_of(&operation.row) => {
                result.unchanged += 1
            }
            Some(_) => {
                let reason = "the target has another entity with this key";
                result.rejected.push(rejected(&operation.row, reason));
            }
        }
    }
    Ok(left)
}

/// Whether every other entity would be refused as well.
fn is_fatal(refused: &ServiceError) -> bool {
    matches!(refused.status, 401 | 403)
        || matches!(refused.code.as_str(), "TableNotFound" | "TableBeingDeleted" | "AccountIsDisabled")
}

fn send(
    remote: &Remote,
    table: &str,
    group: &[SetOperation],
    mode: Mode,
) -> TransferResult<std::result::Result<(), ServiceError>> {
    let mut set = ChangeSetBody::new(&remote.client.address.tables);
    for SetOperation { row, body } in group {
        let resource = || entity_address(table, &row.key.partition, &row.key.row);
        match mode {
            Mode::Insert | Mode::Skip => set.add(SetVerb::Insert, table, body),
            Mode::Merge => set.add(SetVerb::InsertOrMerge, &resource(), body),
            Mode::Replace => set.add(SetVerb::InsertOrReplace, &resource(), body),
        }
    }
    Ok(remote.client.send_change_set(&set.call())?)
}

/// Deletes entities in change sets; returns how many existed.
pub(super) fn delete(remote: &Remote, table: &str, keys: &[Key]) -> TransferResult<u64> {
    let mut deleted = 0;
    for partition in keys.chunk_by(|a, b| a.partition == b.partition) {
        for chunk in partition.chunks(MAX_OPERATIONS) {
            deleted += delete_group(remote, table, chunk.to_vec())?;
        }
    }
    Ok(deleted)
}

fn delete_group(remote: &Remote, table: &str, mut keys: Vec<Key>) -> TransferResult<u64> {
    while !keys.is_empty() {
        let mut set = ChangeSetBody::new(&remote.client.address.tables);
        for key in &keys {
            set.add(SetVerb::Delete, &entity_address(table, &key.partition, &key.row), "");
        }
        match remote.client.send_change_set(&set.call())? {
            Ok(()) => return Ok(keys.len() as u64),
            Err(refused) if refused.status == 404 && refused.code != "TableNotFound" => {
                let missing = refused.index.unwrap_or(0);
                if missing >= keys.len() {
                    return Err(refused.into());
                }
                keys.remove(missing);
            }
            Err(refused) => return Err(TransferError::from(refused)),
        }
    }
    Ok(0)
}
