//! Queries of operators: whether the database answers, and how large tables are.

use rusqlite::{Connection, params};

use crate::error::Code;
use crate::protocol::model::TableName;
use crate::store::sqlite::catalog::tables::bucket_of;
use crate::store::sqlite::rows::Sqlite;
use crate::store::{StoreResult, TableSize};

/// Checks whether reads work.
pub(crate) fn probe(db: &Connection) -> Sqlite<()> {
    db.prepare_cached("SELECT count(*) FROM (SELECT 1 FROM tables LIMIT 1)")?.query_row([], |_| Ok(()))
}

/// The size of a table by its first `most` entities.
pub(crate) fn size(
    db: &Connection,
    account: &str,
    table: &TableName,
    most: u32,
) -> Sqlite<StoreResult<TableSize>> {
    let Some(bucket) = bucket_of(db, account, table)? else { return Ok(Err(Code::TableNotFound.into())) };
    // One row beyond the maximum shows whether there are more.
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
