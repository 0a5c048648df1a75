//! Writes entities in change sets of one partition, and handles refusals.

use std::collections::HashSet;
use std::sync::atomic::Ordering;

use super::{Endpoint, INSERTED, is_forbidden};
use crate::client::{
    ChangeSetBody, ClientCall, HEAD_BYTES, MAX_BODY_BYTES, MAX_OPERATIONS, ServiceError, SetVerb,
};
use crate::contract::{Counts, Mode, TransferTarget, WritePage};
use crate::error::{TransferError, TransferResult, fatal};
use crate::locations::PageOutcome;
use crate::protocol::codec::policies::{self, Policy};
use crate::protocol::codec::properties::{self, Layout, ServiceProperties};
use crate::protocol::codec::uri::{entity_address, escape};
use crate::protocol::model::Key;
use crate::protocol::model::version::etag;
use crate::rows::{Row, Version};
use crate::work::in_parallel;

const WRITTEN: &[u16] = &[204];

/// Maximum consecutive entities that are rejected because the server fails. After more failures, the copy fails.
const MAX_FAILURES: u32 = 10;

struct SetOperation {
    row: Row,
    body: String,
}

/// Returns the error of a request that the credentials or the account do not allow.
fn not_allowed(refused: &ServiceError) -> TransferError {
    TransferError::NotAllowed(TransferError::from(refused.clone()).to_string())
}

impl TransferTarget for Endpoint {
    fn has_entities(&self, table: &str) -> TransferResult<Option<bool>> {
        match self.first_page(table)? {
            Err(refused) if refused.is_absent() => Ok(None),
            // Credentials that may only write do not show whether there are entities.
            Err(refused) if is_forbidden(&refused) => Ok(Some(true)),
            page => Ok(Some(!page?.rows.is_empty())),
        }
    }

    fn create(&self, table: &str) -> TransferResult<bool> {
        let body = serde_json::json!({ "TableName": table }).to_string().into_bytes();
        let call = ClientCall::with_body("POST", "/Tables", "application/json", body);
        let call = call.header("Prefer", "return-no-content").succeeds_with(INSERTED);
        match self.client.send(&call)? {
            Err(refused) if refused.code == "TableAlreadyExists" => Ok(false),
            // A SAS for one table cannot create it, but the table may exist.
            Err(refused) if is_forbidden(&refused) => {
                let found = self.first_page(table)?;
                found.map(|_| false).map_err(|_| not_allowed(&refused))
            }
            Err(refused) if !refused.is_of_account() && matches!(refused.status, 401 | 403 | 404) => {
                Err(not_allowed(&refused))
            }
            created => Ok(created.map(|()| true)?),
        }
    }

    fn delete_table(&self, table: &str) -> TransferResult<()> {
        let path = format!("/Tables('{}')", escape(table));
        let call = ClientCall { method: "DELETE", success: &[204], ..ClientCall::get(path) };
        match self.client.send(&call)? {
            Err(refused) if refused.is_absent() => Ok(()),
            deleted => Ok(deleted?),
        }
    }

    /// Writes several partitions at once. A refused entity is left out, and the others are retried.
    fn write(&self, mut page: WritePage<'_>) -> TransferResult<Counts> {
        let partitions = partitions(std::mem::take(&mut page.rows));
        let (page, helpers) = (&page, self.helpers());
        let written = in_parallel(helpers.count + 1, partitions, |rows| {
            let mut writer = SetWriter { endpoint: self, outcome: PageOutcome::new(page) };
            writer.write_all(rows)?;
            Ok(writer.outcome.counts)
        })?;
        Ok(written.into_iter().sum())
    }

    fn delete(&self, table: &str, entities: &[(Key, Version)]) -> TransferResult<u64> {
        let partitions = entities.chunk_by(|(a, _), (b, _)| a.partition == b.partition);
        let groups = partitions.flat_map(|partition| partition.chunks(MAX_OPERATIONS)).collect();
        let helpers = self.helpers();
        let deleted = in_parallel(helpers.count + 1, groups, |group: &[(Key, Version)]| {
            delete_group(self, table, group.iter().collect())
        })?;
        Ok(deleted.into_iter().sum())
    }

    fn set_policies(&self, table: &str, policies: &[Policy]) -> TransferResult<()> {
        let body = policies::write(policies).into_bytes();
        let call =
            ClientCall::with_body("PUT", format!("/{}", escape(table)), "application/xml", body).accept_xml();
        Ok(self.client.send(&call.query("comp", "acl"))??)
    }

    fn set_properties(&self, wanted: &ServiceProperties) -> TransferResult<()> {
        let body = properties::write(wanted, Layout::Cors).into_bytes();
        let call = ClientCall::with_body("PUT", "/", "application/xml", body).accept_xml();
        let call = call.query("restype", "service").query("comp", "properties").succeeds_with(&[202]);
        Ok(self.client.send(&call)??)
    }

    fn retries(&self) -> (u64, u64) {
        self.client.retries()
    }
}

/// Groups entities by partition, in their order.
fn partitions(mut rows: Vec<Row>) -> Vec<Vec<Row>> {
    rows.sort_by(|a, b| a.key.partition.cmp(&b.key.partition));
    let mut partitions: Vec<Vec<Row>> = Vec::new();
    for row in rows {
        match partitions.last_mut() {
            Some(last) if last.first().is_some_and(|first| first.key.partition == row.key.partition) => {
                last.push(row);
            }
            _ => partitions.push(vec![row]),
        }
    }
    partitions
}

struct SetWriter<'a, 'p> {
    endpoint: &'a Endpoint,
    outcome: PageOutcome<'a, 'p>,
}

impl SetWriter<'_, '_> {
    /// Writes entities in groups of one change set, one after the other.
    fn write_all(&mut self, rows: Vec<Row>) -> TransferResult<()> {
        let mut group: Vec<SetOperation> = Vec::new();
        let (mut size, mut keys) = (0, HashSet::new());
        for row in rows {
            let mut body = String::with_capacity(row.properties.as_str().len() + 256);
            if let Err(reason) = row.push_json(&mut body, false) {
                self.outcome.reject(&row, reason)?;
                continue;
            }
            let fits = group.first().is_none_or(|first| {
                group.len() < MAX_OPERATIONS
                    && first.row.key.partition == row.key.partition
                    && size + body.len() < MAX_BODY_BYTES
                    && !keys.contains(&row.key.row)
            });
            if !fits {
                self.write_group(std::mem::take(&mut group))?;
                size = 0;
                keys.clear();
            }
            size += body.len() + HEAD_BYTES;
            keys.insert(row.key.row.clone());
            group.push(SetOperation { row, body });
        }
        self.write_group(group)
    }

    fn write_group(&mut self, mut group: Vec<SetOperation>) -> TransferResult<()> {
        while !group.is_empty() {
            let refused = match self.send(&group)? {
                Ok(()) => {
                    self.endpoint.failures.store(0, Ordering::Relaxed);
                    self.outcome.counts.written += group.len() as u64;
                    return Ok(());
                }
                Err(refused) => refused,
            };
            if is_fatal(&refused) {
                return Err(refused.into());
            }
            group = self.without_refused(group, refused)?;
        }
        Ok(())
    }

    /// Removes the refused operation or, if it is unknown, writes one half; returns the operations to retry.
    fn without_refused(
        &mut self,
        mut group: Vec<SetOperation>,
        refused: ServiceError,
    ) -> TransferResult<Vec<SetOperation>> {
        let culprit = match refused.index {
            Some(index) if index < group.len() => index,
            // The refusal names no operation, or concerns the batch: try each half separately.
            _ if group.len() > 1 => {
                let rest = group.split_off(group.len() / 2);
                self.write_group(group)?;
                return Ok(rest);
            }
            Some(_) => return Err(refused.into()),
            None => 0,
        };
        let may_exist = matches!(self.outcome.page.mode, Mode::Insert | Mode::Skip);
        if refused.code == "EntityAlreadyExists" && may_exist {
            let before = group.len();
            group = self.outcome.without_existing(self.endpoint, group, |operation| &operation.row)?;
            if group.len() < before {
                return Ok(group);
            }
        }
        let SetOperation { row, .. } = group.remove(culprit);
        if refused.status == 500 {
            self.reject_failed(&row, &refused)?;
        } else {
            self.outcome.reject(&row, refused.to_string())?;
        }
        Ok(group)
    }

    /// Rejects an entity for which the server fails. Returns an error if the server fails for each entity.
    fn reject_failed(&mut self, row: &Row, refused: &ServiceError) -> TransferResult<()> {
        let address = entity_address(self.outcome.page.table, &row.key.partition, &row.key.row);
        let reason = format!("{address}: {refused}");
        if self.endpoint.failures.fetch_add(1, Ordering::Relaxed) >= MAX_FAILURES {
            return Err(fatal!("the server fails for each entity: {reason}"));
        }
        self.outcome.reject(row, reason)
    }

    fn send(&self, group: &[SetOperation]) -> TransferResult<std::result::Result<(), ServiceError>> {
        if let [only] = group {
            return self.send_one(only);
        }
        let table = self.outcome.page.table;
        let bytes = group.iter().map(|operation| operation.body.len() + HEAD_BYTES).sum();
        let mut set = ChangeSetBody::new(&self.endpoint.client.address.tables, bytes);
        for SetOperation { row, body } in group {
            let resource = || entity_address(table, &row.key.partition, &row.key.row);
            match self.outcome.page.mode {
                Mode::Insert | Mode::Skip => set.add(SetVerb::Insert, table, body),
                Mode::Merge => set.add(SetVerb::InsertOrMerge, &resource(), body),
                Mode::Replace => set.add(SetVerb::InsertOrReplace, &resource(), body),
            }
        }
        self.endpoint.client.send_change_set(&set.call())
    }

    /// Sends a single operation without a batch, which costs less.
    fn send_one(&self, operation: &SetOperation) -> TransferResult<std::result::Result<(), ServiceError>> {
        let SetOperation { row, body } = operation;
        let table = self.outcome.page.table;
        let entity = || format!("/{}", entity_address(table, &row.key.partition, &row.key.row));
        let (method, path, success) = match self.outcome.page.mode {
            Mode::Insert | Mode::Skip => ("POST", format!("/{}", escape(table)), INSERTED),
            Mode::Merge => ("MERGE", entity(), WRITTEN),
            Mode::Replace => ("PUT", entity(), WRITTEN),
        };
        let call = ClientCall::with_body(method, path, "application/json", body.clone().into_bytes());
        let call = call.header("Prefer", "return-no-content").succeeds_with(success);
        self.endpoint.client.send(&call)
    }
}

/// Whether every other entity would be refused too.
fn is_fatal(refused: &ServiceError) -> bool {
    // A gateway refuses requests that are too large, and a server may fail for one entity.
    let is_of_gateway = refused.code.is_empty() && !matches!(refused.status, 400 | 413 | 414 | 431 | 500);
    is_of_gateway
        || matches!(refused.status, 401 | 403)
        || matches!(refused.code.as_str(), "TableNotFound" | "TableBeingDeleted" | "AccountIsDisabled")
}

/// Deletes versions of entities of a partition; returns the number of deleted ones. An entity that was
/// already deleted counts, because the answer to an earlier attempt may have been lost.
fn delete_group(endpoint: &Endpoint, table: &str, mut entities: Vec<&(Key, Version)>) -> TransferResult<u64> {
    let mut gone = 0;
    while !entities.is_empty() {
        let mut set = ChangeSetBody::new(&endpoint.client.address.tables, entities.len() * HEAD_BYTES);
        for (key, version) in &entities {
            let tag = match version {
                Version::Any => "*".to_owned(),
                Version::Time(time) => etag(*time),
                Version::Tag(tag) => tag.clone(),
            };
            set.add(SetVerb::Delete(&tag), &entity_address(table, &key.partition, &key.row), "");
        }
        match endpoint.client.send_change_set(&set.call())? {
            Ok(()) => return Ok(gone + entities.len() as u64),
            // The entity was deleted, or has changed since and is kept.
            Err(refused)
                if matches!(refused.status, 404 | 412)
                    && !matches!(refused.code.as_str(), "" | "TableNotFound") =>
            {
                let other = match refused.index {
                    Some(index) if index < entities.len() => index,
                    Some(_) => return Err(refused.into()),
                    None if entities.len() == 1 => 0,
                    // The refusal names no operation: try each half separately.
                    None => {
                        let rest = entities.split_off(entities.len() / 2);
                        return Ok(gone
                            + delete_group(endpoint, table, entities)?
                            + delete_group(endpoint, table, rest)?);
                    }
                };
                gone += u64::from(refused.status == 404);
                entities.remove(other);
            }
            Err(refused) => return Err(TransferError::from(refused)),
        }
    }
    Ok(gone)
}
