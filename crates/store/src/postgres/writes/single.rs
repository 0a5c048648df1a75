//! A single write in as few round trips as possible.
//!
//! Writes are optimistic: one statement carries the guard under which `plan::decide` would allow the write, and
//! commits by itself. If the guard fails, the write reads the row, and `decide` names the error. If `decide` allows
//! the write after all, the row has changed in between, and the write is retried. The guard of a merge also fails if
//! the stored row is large or has other types. The write then stores the result of `decide`, provided that the row
//! has not changed since.

use sqlx::Row;

use crate::postgres::batches::writes::{GuardedReply, RowWrite, run_alone};
use crate::postgres::cluster::buckets::{add_missing_bucket, record_changes};
use crate::postgres::connections::lease::Lease;
use crate::postgres::connections::sessions::LockWait;
use crate::postgres::fault::{Effect, StatementError};
use crate::postgres::retry::UNLOCKED_ATTEMPTS;
use crate::postgres::rows::{broken_row, ticks, version};
use crate::postgres::state::table_ids::{TableId, exists};
use crate::postgres::{PgStore, statements};
use crate::protocol::model::Ticks;
use crate::protocol::plan::{GuardedWrite, Write, WriteKind, Written, decide};
use crate::{Failure, Fault, StoreResult};

impl PgStore {
    /// Performs a guarded write in a batch with other writes; `None` if the guard failed or the table is gone.
    pub(crate) async fn write_guarded(&self, write: RowWrite) -> Result<Option<Ticks>, StatementError> {
        let alone = match &self.writes {
            Some(writes) if self.nodes.may_open() && !self.row_locks.is_taken(write.address()) => {
                match writes.submit(write).await? {
                    GuardedReply::Tried(outcome) => return Ok(outcome),
                    GuardedReply::Alone(write) => write,
                }
            }
            _ => Box::new(write),
        };
        Box::pin(self.write_guarded_alone(&alone)).await
    }

    /// Performs a write alone, and waits for its row if the row is locked.
    async fn write_guarded_alone(&self, alone: &RowWrite) -> Result<Option<Ticks>, StatementError> {
        let _turn = self.row_locks.of_row(alone.address()).await?;
        {
            let _write = self.row_locks.to_write().await?;
            let mut lease = self.nodes.acquire_at(alone.bucket(), Some(LockWait::Short)).await?;
            match run_alone(&mut lease, alone).await {
                Err(StatementError::Held) => {}
                done => return done,
            }
        }
        let _permits = (self.row_locks.to_wait().await?, self.row_locks.to_write().await?);
        let mut lease = self.nodes.acquire_at(alone.bucket(), Some(LockWait::Long)).await?;
        run_alone(&mut lease, alone).await
    }
}

pub(crate) struct One<'a> {
    pub write: &'a Write,
    pub now: Ticks,
}

impl One<'_> {
    /// Performs the write; `None` if the table is gone.
    pub(crate) async fn run(&self, store: &PgStore, table_id: TableId) -> StoreResult<Option<Written>> {
        // During a respread, the same transaction records the write.
        let attempts = if table_id.is_respread() { 0 } else { UNLOCKED_ATTEMPTS };
        for _ in 0..attempts {
            if let Some(guarded) = self.write.guarded()
                && let Some(version) = store.write_guarded(self.of_row(table_id, guarded)).await?
            {
                return Ok(Some(self.written(version)));
            }
            let found = store.lookup(table_id, &self.write.key).await?;
            let Some(found) = found.in_table() else { return Ok(None) };
            let change = decide(self.write, found.as_ref(), self.now)?;
            if found.is_none() {
                // The insert should have succeeded. Another request's row is gone again, or the table lacks its row
                // of `buckets`.
                add_missing_bucket(&store.nodes, table_id, table_id.bucket(&self.write.key.partition))
                    .await?;
            }
            if matches!(self.write.kind, WriteKind::Merge(_)) {
                let guarded = self.write.guarded_by(found.as_ref(), change);
                if let Some(version) = store.write_guarded(self.of_row(table_id, guarded)).await? {
                    return Ok(Some(self.written(version)));
                }
            }
        }
        Box::pin(self.in_transaction(store, table_id)).await
    }

    const fn of_row(&self, table_id: TableId, write: GuardedWrite) -> RowWrite {
        RowWrite { table_id, write, now: self.now }
    }

    async fn in_transaction(&self, store: &PgStore, table_id: TableId) -> StoreResult<Option<Written>> {
        let key = &self.write.key;
        let _turn =
            store.row_locks.of_row((table_id.bucket(&key.partition), &*key.partition, &*key.row)).await?;
        let _permits = (store.row_locks.to_wait().await?, store.row_locks.to_write().await?);
        let mut lease = store.nodes.acquire_at(table_id.bucket(&key.partition), Some(LockWait::Long)).await?;
        lease.begin().await?;
        let result = self.locked(&mut lease, table_id).await;
        match result {
            Ok(Some(written)) => {
                lease.commit().await?;
                Ok(Some(written))
            }
            other => {
                lease.roll_back().await;
                other
            }
        }
    }

    async fn locked(&self, lease: &mut Lease, table_id: TableId) -> StoreResult<Option<Written>> {
        let key = &self.write.key;
        record_changes(lease, table_id, std::iter::once(key)).await?;
        let look = sqlx::query(statements::LOCK_ONE)
            .bind(table_id.bucket(&key.partition))
            .bind(&key.partition)
            .bind(&key.row)
            .bind(table_id.table_no);
        let row = lease.row(look, Effect::Undone).await?;
        let found = row.map(|row| version(&row, key.clone())).transpose()?;
        // The statements may have checked the table's number on another node, which may not know the end of a
        // respread yet. This check runs on the node that holds the lock.
        if (found.is_none() || table_id.is_respread()) && !exists(lease, table_id).await? {
            return Ok(None);
        }
        let change = decide(self.write, found.as_ref(), self.now)?;
        let guarded = self.of_row(table_id, self.write.guarded_by(found.as_ref(), change));
        match lease.row(guarded.statement(lease.statements()), Effect::Undone).await? {
            Some(row) => Ok(Some(self.written(ticks(row.try_get("modified").map_err(broken_row)?)?))),
            // Since the read, another request has inserted the row, or the table was deleted.
            None => Err(Failure::Fault(Fault::Serialization)),
        }
    }

    const fn written(&self, version: Ticks) -> Written {
        match self.write.kind {
            WriteKind::Delete(_) => Written { modified: None },
            _ => Written { modified: Some(version) },
        }
    }
}
