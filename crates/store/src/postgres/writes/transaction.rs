//! An entity group transaction: all writes of one partition, or none.
//!
//! A group locks the existing rows in key order and decides each write in request order. Each kind of write is one
//! statement, again in key order, so that two groups cannot deadlock. A group of only inserts, or only upserts, tries
//! a single statement first. That statement fails as a whole if an existing row prevents an insert, or must be read
//! for a merge.

use std::borrow::Cow;
use std::collections::HashMap;
use std::ops::ControlFlow;

use sqlx::postgres::{PgArguments, PgRow};
use sqlx::{Arguments as _, Row};

use crate::error::Result;
use crate::postgres::batches::writes::bounded;
use crate::postgres::cluster::buckets::{add_bucket, allows_inserts, record_changes};
use crate::postgres::connections::lease::{Lease, Statement};
use crate::postgres::connections::sessions::LockWait;
use crate::postgres::fault::{Effect, StatementError, not_begun};
use crate::postgres::rows::{JsonText, broken_row, ticks, version};
use crate::postgres::state::table_ids::{TableId, exists};
use crate::postgres::{PgStore, statements};
use crate::protocol::model::entity::StoredProperties;
use crate::protocol::model::{IfMatch, Key, Stored, Ticks};
use crate::protocol::plan::{Change, MergeLimits, Write, WriteKind, Written, decide};
use crate::{Failure, Fault, StoreResult};

/// A single statement cannot write the group.
const GO_ON: ControlFlow<Option<Vec<Written>>> = ControlFlow::Continue(());

/// The writes of one group. They share a partition, and no row occurs twice.
pub(crate) struct Group<'a> {
    pub writes: &'a [Write],
    pub now: Ticks,
}

/// The decided changes, grouped by statement.
#[derive(Default)]
struct Changes<'a> {
    inserts: Vec<Put<'a>>,
    updates: Vec<Put<'a>>,
    deletes: Vec<&'a str>,
    written: Vec<Written>,
}

/// A row to store.
struct Put<'a> {
    rk: &'a str,
    modified: Ticks,
    properties: Cow<'a, StoredProperties>,
}

impl Group<'_> {
    /// Performs the writes; `None` if the table is gone.
    pub(crate) async fn run(&self, store: &PgStore, table_id: TableId) -> StoreResult<Option<Vec<Written>>> {
        let partition = (table_id.bucket(self.partition()), self.partition());
        if !store.row_locks.is_taken(partition) {
            let _write = store.row_locks.to_write().await.map_err(not_begun)?;
            let lease =
                store.nodes.acquire_at(partition.0, Some(LockWait::Short)).await.map_err(not_begun)?;
            match self.attempt(lease, table_id).await {
                Err(Failure::Fault(Fault::Busy)) => {}
                done => return done,
            }
        }
        let _turn = store.row_locks.of_row(partition).await.map_err(not_begun)?;
        let _wait = store.row_locks.to_wait().await.map_err(not_begun)?;
        let _write = store.row_locks.to_write().await.map_err(not_begun)?;
        let lease = store.nodes.acquire_at(partition.0, Some(LockWait::Long)).await.map_err(not_begun)?;
        self.attempt(lease, table_id).await
    }

    async fn attempt(&self, mut lease: Lease, table_id: TableId) -> StoreResult<Option<Vec<Written>>> {
        // During a respread, the same transaction records the writes.
        let at_once =
            if table_id.is_respread() { Ok(GO_ON) } else { self.at_once(&mut lease, table_id).await };
        match at_once {
            Ok(ControlFlow::Break(written)) => {
                if written.is_none() {
                    add_bucket(&mut lease, table_id, table_id.bucket(self.partition())).await?;
                }
                return Ok(written);
            }
            // The run with locks finds the row that prevents an insert, or how to merge.
            Ok(ControlFlow::Continue(())) | Err(StatementError::Duplicate | StatementError::Undecided) => {}
            Err(error) => return Err(self.failure(error)),
        }
        lease.begin().await?;
        match self.locked(&mut lease, table_id).await {
            Ok(Some(written)) => {
                lease.commit().await?;
                Ok(Some(written))
            }
            failed => {
                lease.roll_back().await;
                match failed {
                    // Another request inserted rows in between, or the table lacks its row of `buckets`.
                    Err(Failure::Fault(Fault::Serialization)) if lease.is_open() => {
                        add_bucket(&mut lease, table_id, table_id.bucket(self.partition())).await?;
                        Err(Fault::Serialization.into())
                    }
                    // A missing table takes precedence over the failure of an operation.
                    Err(Failure::Refused(_)) if !exists(&mut lease, table_id).await? => Ok(None),
                    other => other,
                }
            }
        }
    }

    /// Writes a group of one kind with a single statement, if possible; the inner `None` if the table is gone.
    async fn at_once(
        &self,
        lease: &mut Lease,
        table_id: TableId,
    ) -> Result<ControlFlow<Option<Vec<Written>>>, StatementError> {
        let Some(kind) = self.writes.first().map(|write| write.kind) else { return Ok(GO_ON) };
        if !kind.may_insert() || self.writes.iter().any(|write| write.kind != kind) {
            return Ok(GO_ON);
        }
        // Deciding without existing rows does not affect the parameters.
        let Ok(changes) = self.decide_all(&[]) else { return Ok(GO_ON) };
        let texts = lease.statements();
        if !allows_inserts(lease, table_id).await? {
            return Ok(ControlFlow::Break(None));
        }
        let puts = &changes.inserts;
        let upsert = match kind {
            WriteKind::Insert => {
                let insert = self.put(texts.many.insert, table_id, puts);
                let is_done = lease.changed(insert, Effect::Unknown).await? == puts.len();
                return Ok(ControlFlow::Break(is_done.then_some(changes.written)));
            }
            WriteKind::Replace(IfMatch::Absent) => self.put(texts.many.upsert, table_id, puts),
            WriteKind::Merge(IfMatch::Absent) => {
                let Some(limits) = MergeLimits::of(self.writes) else { return Ok(GO_ON) };
                let merge = self.put(texts.many.insert_or_merge, table_id, puts);
                bounded(merge.bind(limits.annotations).bind(limits.max_members))
            }
            _ => return Ok(GO_ON),
        };
        let rows = lease.rows(upsert, Effect::Unknown).await?;
        if rows.is_empty() {
            return Ok(ControlFlow::Break(None));
        }
        // The group was committed, so it must not be reported as failed.
        let written = self.versions(&rows).ok_or(Fault::Timeout)?;
        Ok(ControlFlow::Break(Some(written)))
    }

    fn versions(&self, rows: &[PgRow]) -> Option<Vec<Written>> {
        let versions: Result<HashMap<&str, Ticks>, StatementError> = rows.iter().map(named_version).collect();
        let versions = versions.ok()?;
        let written = |write: &Write| {
            versions.get(write.key.row.as_str()).map(|version| Written { modified: Some(*version) })
        };
        self.writes.iter().map(written).collect()
    }

    async fn locked(&self, lease: &mut Lease, table_id: TableId) -> StoreResult<Option<Vec<Written>>> {
        record_changes(lease, table_id, self.writes.iter().map(|write| &write.key)).await?;
        let found = self.lock(lease, table_id).await?;
        // As for a single write, this check runs on the node that holds the lock.
        if table_id.is_respread() && !exists(lease, table_id).await? {
            return Ok(None);
        }
        let changes = self.decide_all(&found)?;
        let mut complete = true;
        if !changes.inserts.is_empty() {
            if !allows_inserts(lease, table_id).await? {
                return Ok(None);
            }
            let insert = self.put(lease.statements().insert_missing, table_id, &changes.inserts);
            let inserted = lease.changed(insert, Effect::Undone).await;
            complete &= inserted.map_err(|error| self.failure(error))? == changes.inserts.len();
        }
        if complete && !changes.updates.is_empty() {
            let update = self.put(statements::UPDATE_MANY, table_id, &changes.updates);
            complete &= lease.changed(update, Effect::Undone).await? == changes.updates.len();
        }
        if complete && !changes.deletes.is_empty() {
            let delete = self.address(statements::DELETE_MANY, table_id, &changes.deletes, 0);
            complete &= lease.changed(delete, Effect::Undone).await? == changes.deletes.len();
        }
        if complete {
            return Ok(Some(changes.written));
        }
        if exists(lease, table_id).await? {
            // A row was inserted after the others were locked, so the transaction is retried.
            return Err(Fault::Serialization.into());
        }
        Ok(None)
    }

    /// Returns the failure of an insert. The database does not report which key is too long, so the error names the
    /// longest key.
    fn failure(&self, error: StatementError) -> Failure {
        let stored = self.writes.iter().enumerate().filter(|(_, w)| !matches!(w.kind, WriteKind::Delete(_)));
        let longest = stored.rev().max_by_key(|(_, write)| write.key.row.len());
        match (Failure::from(error), longest) {
            (Failure::Refused(error), Some((index, _))) => Failure::Refused(error.at(index)),
            (failure, _) => failure,
        }
    }

    async fn lock(&self, lease: &mut Lease, table_id: TableId) -> StoreResult<Vec<Stored>> {
        let mut rks: Vec<&str> = self.writes.iter().map(|w| w.key.row.as_str()).collect();
        rks.sort_unstable();
        let partition = self.partition();
        let query =
            sqlx::query(statements::LOCK_MANY).bind(table_id.bucket(partition)).bind(partition).bind(rks);
        let rows = lease.rows(query, Effect::Undone).await?;
        let stored = |row: &PgRow| {
            let rk: String = row.try_get("rk").map_err(broken_row)?;
            version(row, Key::new(partition, rk))
        };
        Ok(rows.iter().map(stored).collect::<Result<_, StatementError>>()?)
    }

    /// Decides all writes in request order. `found` is in key order.
    fn decide_all(&self, found: &[Stored]) -> Result<Changes<'_>> {
        let mut changes = Changes::default();
        for (index, write) in self.writes.iter().enumerate() {
            let rk = write.key.row.as_str();
            let at = found.binary_search_by(|stored| stored.key.row.as_str().cmp(rk)).ok();
            let stored = at.map(|at| &found[at]);
            match decide(write, stored, self.now).map_err(|error| error.at(index))? {
                Change::Put { properties, modified } => {
                    let puts = if stored.is_some() { &mut changes.updates } else { &mut changes.inserts };
                    puts.push(Put { rk, modified, properties });
                    changes.written.push(Written { modified: Some(modified) });
                }
                Change::Delete => {
                    changes.deletes.push(rk);
                    changes.written.push(Written { modified: None });
                }
            }
        }
        changes.inserts.sort_unstable_by_key(|put| put.rk);
        changes.updates.sort_unstable_by_key(|put| put.rk);
        changes.deletes.sort_unstable();
        Ok(changes)
    }

    fn put<'q>(&'q self, text: &'static str, table_id: TableId, puts: &'q [Put<'_>]) -> Statement<'q> {
        let rks: Vec<&str> = puts.iter().map(|put| put.rk).collect();
        let modified: Vec<i64> = puts.iter().map(|put| put.modified.raw()).collect();
        let properties: Vec<JsonText<'_>> =
            puts.iter().map(|put| JsonText(put.properties.as_str())).collect();
        // A length precedes each array element, and a version precedes each jsonb value.
        let sent = puts.iter().map(|put| (4 + 8) + (5 + put.properties.as_str().len()));
        self.address(text, table_id, &rks, sent.sum()).bind(modified).bind(properties)
    }

    /// `more`: the size of further parameters in bytes.
    fn address<'q>(
        &'q self,
        text: &'static str,
        table_id: TableId,
        rks: &[&str],
        more: usize,
    ) -> Statement<'q> {
        let partition = self.partition();
        let mut arguments = PgArguments::default();
        let keys = partition.len() + rks.iter().map(|rk| 4 + rk.len()).sum::<usize>();
        arguments.reserve(6, 256 + keys + more);
        sqlx::query_with(text, arguments)
            .bind(table_id.bucket(partition))
            .bind(partition)
            .bind(rks.to_vec())
            .bind(table_id.table_no)
    }

    fn partition(&self) -> &str {
        self.writes.first().map_or("", |write| write.key.partition.as_str())
    }
}

fn named_version(row: &PgRow) -> Result<(&str, Ticks), StatementError> {
    let (rk, modified) =
        (row.try_get("rk").map_err(broken_row)?, row.try_get("modified").map_err(broken_row)?);
    Ok((rk, ticks(modified)?))
}
