//! Writes entities: all writes of one table, or none.

mod load;

use rusqlite::{Connection, OptionalExtension, params};

use crate::StoreResult;
use crate::error::{Code, Error};
use crate::protocol::model::entity::StoredProperties;
use crate::protocol::model::{Key, Stored, TableRef, Ticks};
use crate::protocol::plan::{Change, Write, Written, decide};
use crate::sqlite::catalog::tables::bucket_of;
use crate::sqlite::{Sqlite, ticks};

const INSERT: &str = "INSERT INTO entities (bucket, pk, rk, modified, properties) VALUES (?1, ?2, ?3, ?4, ?5)
     ON CONFLICT DO NOTHING";

fn find(db: &Connection, bucket: i64, key: &Key) -> Sqlite<Option<Stored>> {
    db.prepare_cached("SELECT modified, properties FROM entities WHERE bucket = ?1 AND pk = ?2 AND rk = ?3")?
        .query_row(params![bucket, key.partition, key.row], |row| {
            let properties = StoredProperties::from_stored_text(row.get(1)?);
            Ok(Stored { key: key.clone(), modified: ticks(row, 0)?, properties })
        })
        .optional()
}

/// Decides all writes, then applies them. A refusal changes nothing, and its error has the index of the refused
/// write.
pub(crate) fn transact(
    db: &Connection,
    table: TableRef<'_>,
    writes: &[Write],
    now: Ticks,
) -> Sqlite<StoreResult<Vec<Written>>> {
    let Some(bucket) = bucket_of(db, table)? else {
        return Ok(Err(Error::from(Code::TableNotFound).at(0).into()));
    };
    if insert_all(db, bucket, writes, now)? {
        return Ok(Ok(vec![Written { modified: Some(now) }; writes.len()]));
    }
    if let [only] = writes
        && delete_guarded(db, bucket, only)?
    {
        return Ok(Ok(vec![Written { modified: None }]));
    }
    let mut changes = Vec::with_capacity(writes.len());
    for (index, write) in writes.iter().enumerate() {
        match decide(write, find(db, bucket, &write.key)?.as_ref(), now) {
            Ok(change) => changes.push(change),
            Err(error) => return Ok(Err(error.at(index).into())),
        }
    }
    let mut written = Vec::with_capacity(writes.len());
    for (write, change) in writes.iter().zip(changes) {
        written.push(apply(db, bucket, &write.key, change)?);
    }
    Ok(Ok(written))
}

/// Inserts without reading first. Returns `false`, and changes nothing, if some writes are not inserts or a row
/// exists.
fn insert_all(db: &Connection, bucket: i64, writes: &[Write], now: Ticks) -> Sqlite<bool> {
    let Some(rows) = writes.iter().map(Write::as_insert).collect::<Option<Vec<_>>>() else {
        return Ok(false);
    };
    let mut insert = db.prepare_cached(INSERT)?;
    for (index, (write, properties)) in writes.iter().zip(rows).enumerate() {
        let Key { partition, row } = &write.key;
        if insert.execute(params![bucket, partition, row, now.raw(), properties.as_str()])? == 0 {
            for undone in &writes[..index] {
                delete(db, bucket, &undone.key)?;
            }
            return Ok(false);
        }
    }
    Ok(true)
}

/// Deletes without reading first. Returns `false`, and changes nothing, if this is not a delete or no row meets its
/// condition.
fn delete_guarded(db: &Connection, bucket: i64, write: &Write) -> Sqlite<bool> {
    let Some(wanted) = write.as_delete() else { return Ok(false) };
    let Key { partition, row } = &write.key;
    let deleted = db
        .prepare_cached(
            "DELETE FROM entities
             WHERE bucket = ?1 AND pk = ?2 AND rk = ?3 AND modified = coalesce(?4, modified)",
        )?
        .execute(params![bucket, partition, row, wanted.map(Ticks::raw)])?;
    Ok(deleted > 0)
}

fn delete(db: &Connection, bucket: i64, key: &Key) -> Sqlite<()> {
    db.prepare_cached("DELETE FROM entities WHERE bucket = ?1 AND pk = ?2 AND rk = ?3")?
        .execute(params![bucket, key.partition, key.row])
        .map(|_| ())
}

fn apply(db: &Connection, bucket: i64, key: &Key, change: Change<'_>) -> Sqlite<Written> {
    match change {
        Change::Put { properties, modified } => {
            db.prepare_cached(
                "INSERT INTO entities (bucket, pk, rk, modified, properties) VALUES (?1, ?2, ?3, ?4, ?5)
                 ON CONFLICT (bucket, pk, rk)
                 DO UPDATE SET modified = excluded.modified, properties = excluded.properties",
            )?
            .execute(params![
                bucket,
                key.partition,
                key.row,
                modified.raw(),
                properties.as_str()
            ])?;
            Ok(Written { modified: Some(modified) })
        }
        Change::Delete => {
            delete(db, bucket, key)?;
            Ok(Written { modified: None })
        }
    }
}
