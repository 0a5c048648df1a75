//! Point statements and writes.

use rusqlite::{Connection, OptionalExtension, Row, params};

use crate::error::{Code, Error};
use crate::model::entity::StoredProperties;
use crate::model::{Key, Stored, TableName, Ticks};
use crate::plan::{Change, TableEntry, Write, Written, decide};
use crate::store::{StoreResult, TableSize, bucket};

type Sqlite<T> = rusqlite::Result<T>;

/// SQLite never spreads a table over several buckets.
pub const SPREAD: u16 = 1;
/// Rows that one purge step removes at most: few, since writes wait for it, but not
/// fewer, since every commit costs those who read their caches.
const PURGE_ROWS: i64 = 500;

/// A tick count as stored. What is out of range was not written by us.
pub fn ticks(row: &Row<'_>, column: usize) -> Sqlite<Ticks> {
    let raw: i64 = row.get(column)?;
    Ticks::from_raw(raw).ok_or(rusqlite::Error::IntegralValueOutOfRange(column, raw))
}

/// The bucket that all of a table's entities are in.
pub fn bucket_of(db: &Connection, account: &str, table: &TableName) -> Sqlite<Option<i64>> {
    db.prepare_cached("SELECT table_no FROM tables WHERE account = ?1 AND name_lower = ?2")?
        .query_row(params![account, table.lower()], |row| row.get(0))
        .optional()
        .map(|no| no.map(|no| bucket::bucket(no, SPREAD, "")))
}

pub fn get_table(db: &Connection, account: &str, table: &TableName) -> Sqlite<Option<TableEntry>> {
    db.prepare_cached("SELECT name, created FROM tables WHERE account = ?1 AND name_lower = ?2")?
        .query_row(params![account, table.lower()], |row| {
            Ok(TableEntry { name: row.get(0)?, created: ticks(row, 1)? })
        })
        .optional()
}

pub fn create_table(
    db: &Connection,
    account: &str,
    table: &TableName,
    now: Ticks,
) -> Sqlite<StoreResult<()>> {
    let mut insert = db.prepare_cached(
        "INSERT INTO tables (table_no, account, name_lower, name, spread, created)
         VALUES (?1, ?2, ?3, ?4, ?5, ?6) ON CONFLICT DO NOTHING",
    )?;
    if bucket_of(db, account, table)?.is_some() {
        return Ok(Err(Code::TableAlreadyExists.into()));
    }
    loop {
        let (no, lower, name) = (bucket::new_table_no(), table.lower(), table.as_given());
        // Nothing inserted: the number is taken, another one will not be.
        if insert.execute(params![no, account, lower, name, SPREAD, now.raw()])? == 1 {
            return Ok(Ok(()));
        }
    }
}

pub fn delete_table(
    db: &Connection,
    account: &str,
    table: &TableName,
    now: Ticks,
) -> Sqlite<StoreResult<()>> {
    let deleted: Option<i64> = db
        .prepare_cached("DELETE FROM tables WHERE account = ?1 AND name_lower = ?2 RETURNING table_no")?
        .query_row(params![account, table.lower()], |row| row.get(0))
        .optional()?;
    let Some(no) = deleted else { return Ok(Err(Code::ResourceNotFound.into())) };
    db.prepare_cached("INSERT INTO doomed (table_no, spread, deleted_at, due) VALUES (?1, ?2, ?3, ?3)")?
        .execute(params![no, SPREAD, now.raw()])?;
    Ok(Ok(()))
}

/// One statement, so that it needs no transaction to see one state: a bucket is
/// its table's number times 2^16 ([`bucket::bucket`]) where nothing is spread.
pub fn get(
    db: &Connection,
    account: &str,
    table: &TableName,
    key: &Key,
) -> Sqlite<StoreResult<Option<Stored>>> {
    let mut read = db.prepare_cached(
        "SELECT e.modified, e.properties FROM tables AS t
         LEFT JOIN entities AS e ON e.bucket = t.table_no << 16 AND e.pk = ?3 AND e.rk = ?4
         WHERE t.account = ?1 AND t.name_lower = ?2",
    )?;
    let found = read
        .query_row(params![account, table.lower(), key.partition, key.row], |row| {
            let Some(properties) = row.get(1)? else { return Ok(None) };
            let properties = StoredProperties::from_stored_text(properties);
            Ok(Some(Stored { key: key.clone(), modified: ticks(row, 0)?, properties }))
        })
        .optional()?;
    Ok(found.ok_or_else(|| Code::TableNotFound.into()))
}

fn find(db: &Connection, bucket: i64, key: &Key) -> Sqlite<Option<Stored>> {
    db.prepare_cached("SELECT modified, properties FROM entities WHERE bucket = ?1 AND pk = ?2 AND rk = ?3")?
        .query_row(params![bucket, key.partition, key.row], |row| {
            let properties = StoredProperties::from_stored_text(row.get(1)?);
            Ok(Stored { key: key.clone(), modified: ticks(row, 0)?, properties })
        })
        .optional()
}

/// Decides all writes, then applies them; refuses without having changed
/// anything. The index of the refused write is in the error.
pub fn transact(
    db: &Connection,
    account: &str,
    table: &TableName,
    writes: &[Write],
    now: Ticks,
) -> Sqlite<StoreResult<Vec<Written>>> {
    let Some(bucket) = bucket_of(db, account, table)? else {
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

/// Inserts all writes without a look at what is there. `false` if some of them
/// are no inserts or find a row in their way; then nothing has changed.
fn insert_all(db: &Connection, bucket: i64, writes: &[Write], now: Ticks) -> Sqlite<bool> {
    let Some(rows) = writes.iter().map(Write::as_insert).collect::<Option<Vec<_>>>() else {
        return Ok(false);
    };
    let mut insert = db.prepare_cached(
        "INSERT INTO entities (bucket, pk, rk, modified, properties) VALUES (?1, ?2, ?3, ?4, ?5)
         ON CONFLICT DO NOTHING",
    )?;
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

/// Deletes without a look at what is there. `false` if this is no delete, or
/// finds no row that it may remove; then nothing has changed.
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

/// How many deleted tables are not purged to the end.
pub fn backlog(db: &Connection) -> Sqlite<u64> {
    let count = db.prepare_cached("SELECT count(*) FROM doomed")?.query_row([], |row| row.get(0));
    count.map(i64::cast_unsigned)
}

/// Reads something, to find out whether that is possible.
pub fn probe(db: &Connection) -> Sqlite<()> {
    db.prepare_cached("SELECT count(*) FROM (SELECT 1 FROM tables LIMIT 1)")?.query_row([], |_| Ok(()))
}

/// The size of a table by its first `most` entities.
pub fn size(db: &Connection, account: &str, table: &TableName, most: u32) -> Sqlite<StoreResult<TableSize>> {
    let Some(bucket) = bucket_of(db, account, table)? else { return Ok(Err(Code::TableNotFound.into())) };
    // One more than may be counted tells whether there are more.
    let mut size = db.prepare_cached(
        "SELECT count(*), coalesce(sum(length(CAST(pk AS BLOB)) + length(CAST(rk AS BLOB))
                                     + length(CAST(properties AS BLOB))), 0)
         FROM (SELECT pk, rk, properties FROM entities WHERE bucket = ?1 LIMIT ?2)",
    )?;
    let (entities, bytes) = size.query_row(params![bucket, i64::from(most) + 1], |row| {
        Ok((row.get::<_, i64>(0)?.cast_unsigned(), row.get::<_, i64>(1)?.cast_unsigned()))
    })?;
    Ok(Ok(TableSize { entities, bytes, complete: entities <= u64::from(most) }))
}

/// Removes some entities of one deleted table; returns whether more is left.
pub fn purge(db: &Connection) -> Sqlite<bool> {
    let doomed: Option<i64> = db
        .prepare_cached("SELECT table_no FROM doomed ORDER BY due LIMIT 1")?
        .query_row([], |row| row.get(0))
        .optional()?;
    let Some(no) = doomed else { return Ok(false) };
    let removed = db
        .prepare_cached(
            "DELETE FROM entities WHERE rowid IN
             (SELECT rowid FROM entities WHERE bucket = ?1 LIMIT ?2)",
        )?
        .execute(params![bucket::bucket(no, SPREAD, ""), PURGE_ROWS])?;
    if removed == 0 {
        db.prepare_cached("DELETE FROM doomed WHERE table_no = ?1")?.execute([no])?;
    }
    Ok(true)
}
