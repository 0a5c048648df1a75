//! Entities: what runs each operation on them.

use std::sync::Arc;

use rusqlite::Connection;

use super::SqliteStore;
use super::reads::{pages, point};
use super::writes::transaction::transact;
use crate::protocol::model::{Key, Stored, TableRef, Ticks};
use crate::protocol::plan::{PageEnd, Scan, Write, Written};
use crate::{Collect, Entities, Failure, Fault, StoreResult};

impl Entities for SqliteStore {
    async fn get(&self, table: TableRef<'_>, key: &Key) -> StoreResult<Option<Stored>> {
        self.readers.with_statement(|db| point::get(db, table, key))
    }

    async fn page<C: Collect>(&self, table: TableRef<'_>, scan: &Scan, into: C) -> StoreResult<(C, PageEnd)> {
        let (table, scan) = (table.into_owned(), scan.clone());
        let time = scan.time;
        let memory = Arc::clone(&self.narrowing);
        let walk = move |db: &Connection, into: &mut C, walk| {
            pages::entities(db, table.as_ref(), (&scan, &memory), walk, into)
        };
        Box::pin(self.walk(into, time, walk)).await
    }

    async fn write(&self, table: TableRef<'_>, write: &Write, now: Ticks) -> StoreResult<Written> {
        let (table, writes) = (table.into_owned(), [write.clone()]);
        let outcome = self.writer.submit(move |db| transact(db, table.as_ref(), &writes, now)).await;
        match outcome {
            Ok(written) => written.first().copied().ok_or(Failure::Fault(Fault::Other)),
            Err(Failure::Refused(mut error)) => {
                error.index = None;
                Err(error.into())
            }
            Err(fault) => Err(fault),
        }
    }

    async fn transact(&self, table: TableRef<'_>, writes: &[Write], now: Ticks) -> StoreResult<Vec<Written>> {
        let (table, writes) = (table.into_owned(), writes.to_vec());
        self.writer.submit(move |db| transact(db, table.as_ref(), &writes, now)).await
    }
}
