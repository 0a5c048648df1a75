//! Removing the rows of deleted tables, a few at a time.

use rusqlite::{Connection, OptionalExtension, params};

use crate::store::bucket;
use crate::store::sqlite::catalog::tables::SPREAD;
use crate::store::sqlite::rows::Sqlite;

/// Rows that one purge step removes at most: few, since writes wait for it, but not
/// fewer, since every commit costs those who read their caches.
const PURGE_ROWS: i64 = 500;

/// How many deleted tables are not purged to the end.
pub(crate) fn backlog(db: &Connection) -> Sqlite<u64> {
    let count = db.prepare_cached("SELECT count(*) FROM doomed")?.query_row([], |row| row.get(0));
    count.map(i64::cast_unsigned)
}

/// Removes some entities of one deleted table; returns whether more is left.
pub(crate) fn purge(db: &Connection) -> Sqlite<bool> {
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
