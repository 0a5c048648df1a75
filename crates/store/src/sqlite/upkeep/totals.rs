//! Counts the entities of a part of a table.

use rusqlite::{Connection, params};

use crate::error::Code;
use crate::protocol::model::{Key, TableRef};
use crate::protocol::plan::span::first_whole_partition;
use crate::sqlite::catalog::tables::bucket_of;
use crate::sqlite::{Sqlite, SqliteStore};
use crate::{CountPosition, CountedPart, StoreResult, Totals};

impl Totals for SqliteStore {
    async fn count_part(
        &self,
        table: TableRef<'_>,
        from: &CountPosition,
        rows: u32,
    ) -> StoreResult<Option<CountedPart>> {
        let (table, from) = (table.into_owned(), from.key.clone());
        self.read_on_blocking_pool(move |db| {
            let Some(bucket) = bucket_of(db, table.as_ref())? else {
                return Ok(Err(Code::TableNotFound.into()));
            };
            part(db, bucket, &from, u64::from(rows)).map(|part| Ok(Some(part)))
        })
        .await
    }

    async fn estimate(&self, _table: TableRef<'_>) -> StoreResult<Option<u64>> {
        // SQLite keeps no statistics per bucket.
        Ok(None)
    }
}

/// Counts the rows of a bucket from a key on. SQLite would compare a pair of columns with every row, so separate
/// statements count the key's partition and the partitions after it.
fn part(db: &Connection, bucket: i64, from: &Key, rows: u64) -> Sqlite<CountedPart> {
    let mut counted = CountedPart { entities: 0, next: None };
    let mut partition = db.prepare_cached(
        "SELECT pk, rk FROM entities WHERE bucket = ?1 AND pk = ?2 AND rk >= ?3 ORDER BY pk, rk",
    )?;
    if step(partition.query(params![bucket, from.partition, from.row])?, rows, &mut counted)? {
        return Ok(counted);
    }
    let others = first_whole_partition(&Key::new(from.partition.clone(), "\u{1}"));
    let mut rest =
        db.prepare_cached("SELECT pk, rk FROM entities WHERE bucket = ?1 AND pk >= ?2 ORDER BY pk, rk")?;
    step(rest.query(params![bucket, others])?, rows, &mut counted)?;
    Ok(counted)
}

fn step(mut rows: rusqlite::Rows<'_>, limit: u64, counted: &mut CountedPart) -> Sqlite<bool> {
    while let Some(row) = rows.next()? {
        if counted.entities == limit {
            let key = Key { partition: row.get(0)?, row: row.get(1)? };
            counted.next = Some(CountPosition { key, ..CountPosition::start() });
            return Ok(true);
        }
        counted.entities += 1;
    }
    Ok(false)
}
