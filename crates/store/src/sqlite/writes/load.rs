//! Stores the entities of a copy with its mark.

use std::sync::Arc;

use rusqlite::{Connection, params};

use crate::error::Code;
use crate::protocol::model::{Key, TableRef};
use crate::sqlite::catalog::tables::bucket_of;
use crate::sqlite::{Sqlite, SqliteStore};
use crate::{Load, LoadMark, StoreResult};

use super::INSERT;

/// Equal entities keep their version, so that a page may be stored again.
const REPLACE: &str =
    "INSERT INTO entities AS e (bucket, pk, rk, modified, properties) VALUES (?1, ?2, ?3, ?4, ?5)
     ON CONFLICT (bucket, pk, rk) DO UPDATE
     SET modified = max(min(e.modified + 1, 3155378975999999999), excluded.modified), properties = excluded.properties
     WHERE e.modified <> excluded.modified OR e.properties <> excluded.properties";

impl SqliteStore {
    pub(crate) async fn load_all(&self, table: TableRef<'_>, load: &Arc<Load>) -> StoreResult<bool> {
        let (table, load) = (table.into_owned(), Arc::clone(load));
        self.writer.submit(move |db| store_all(db, table.as_ref(), &load)).await
    }
}

/// Stores all entities and the mark. Returns `false`, and changes nothing, if it may not replace an existing entity.
fn store_all(db: &Connection, table: TableRef<'_>, load: &Load) -> Sqlite<StoreResult<bool>> {
    let Some(bucket) = bucket_of(db, table)? else { return Ok(Err(Code::TableNotFound.into())) };
    run(db, "SAVEPOINT load")?;
    let is_done = put_all(db, bucket, load)?;
    match (&load.mark, is_done) {
        (Some(mark), true) => put_mark(db, mark)?,
        (None, true) => {}
        (_, false) => run(db, "ROLLBACK TO load")?,
    }
    run(db, "RELEASE load")?;
    Ok(Ok(is_done))
}

fn run(db: &Connection, statement: &str) -> Sqlite<()> {
    db.prepare_cached(statement)?.execute([]).map(drop)
}

fn put_all(db: &Connection, bucket: i64, load: &Load) -> Sqlite<bool> {
    let mut put = db.prepare_cached(if load.replaces { REPLACE } else { INSERT })?;
    for row in &load.rows {
        let Key { partition, row: row_key } = &row.key;
        let done =
            put.execute(params![bucket, partition, row_key, row.modified.raw(), row.properties.as_str()])?;
        if done == 0 && !load.replaces {
            return Ok(false);
        }
    }
    Ok(true)
}

fn put_mark(db: &Connection, mark: &LoadMark) -> Sqlite<()> {
    let [written, unchanged, rejected] = mark.stored_counts();
    let Key { partition, row } = &mark.reached;
    db.prepare_cached(
        "INSERT OR REPLACE INTO copy_marks (copy, range_no, pk, rk, written, unchanged, rejected)
         VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7)",
    )?
    .execute(params![mark.copy, mark.range, partition, row, written, unchanged, rejected])
    .map(drop)
}
