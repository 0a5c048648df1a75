//! Dispatches operations on entities.

use std::sync::Arc;

use rusqlite::{Connection, OptionalExtension, params};

use super::reads::pages;
use super::writes::transact;
use super::{Sqlite, SqliteStore, ticks};
use crate::error::Code;
use crate::protocol::model::entity::StoredProperties;
use crate::protocol::model::{Key, Stored, TableRef, Ticks};
use crate::protocol::plan::{PageEnd, Scan, Write, WriteSet, Written};
use crate::{Collect, Entities, Failure, Fault, StoreResult};

impl Entities for SqliteStore {
    async fn get(&self, table: TableRef<'_>, key: &Key) -> StoreResult<Option<Stored>> {
        self.readers.with_statement(|db| get(db, table, key))
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

    async fn transact(&self, table: TableRef<'_>, set: &WriteSet, now: Ticks) -> StoreResult<Vec<Written>> {
        let (table, writes) = (table.into_owned(), Arc::clone(set));
        self.writer.submit(move |db| transact(db, table.as_ref(), &writes, now)).await
    }
}

/// Reads an entity with a single statement, which needs no transaction to see one state. With a spread of 1, the
/// bucket is the table number times 2^16 ([`crate::bucket`]).
fn get(db: &Connection, table: TableRef<'_>, key: &Key) -> Sqlite<StoreResult<Option<Stored>>> {
    let mut read = db.prepare_cached(
        "SELECT e.modified, e.properties FROM tables AS t
         LEFT JOIN entities AS e ON e.bucket = t.table_no << 16 AND e.pk = ?3 AND e.rk = ?4
         WHERE t.account = ?1 AND t.name_lower = ?2",
    )?;
    let found = read
        .query_row(params![table.account, table.name.lower(), key.partition, key.row], |row| {
            let Some(properties) = row.get(1)? else { return Ok(None) };
            let properties = StoredProperties::from_stored_text(properties);
            Ok(Some(Stored { key: key.clone(), modified: ticks(row, 0)?, properties }))
        })
        .optional()?;
    Ok(found.ok_or_else(|| Code::TableNotFound.into()))
}
