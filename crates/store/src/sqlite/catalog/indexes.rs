//! The indexes that operators have made.

use rusqlite::{Connection, OptionalExtension, params};

use crate::bucket::new_table_no;
use crate::contract::deleted::KeptIndex;
use crate::contract::indexes::{MAX_INDEXES, MAX_TABLE_INDEXES};
use crate::error::Code;
use crate::protocol::model::{TableRef, Ticks};
use crate::protocol::plan::index::{IndexKind, PropertyIndex};
use crate::sqlite::catalog::tables::bucket_of;
use crate::sqlite::rows::{Sqlite, ticks};
use crate::{AddedIndex, IndexState, StoreResult, StoredIndex};

/// Lists the indexes of existing tables. Kinds of newer versions are left out.
pub(crate) fn list(db: &Connection) -> Sqlite<Vec<StoredIndex>> {
    let mut indexes = db.prepare_cached(
        "SELECT i.index_no, i.table_no, i.property, i.kind, i.state, i.changed, t.account, t.name
         FROM property_indexes AS i JOIN tables AS t ON t.table_no = i.table_no
         ORDER BY t.account, t.name_lower, i.property, i.kind",
    )?;
    let read = |row: &rusqlite::Row<'_>| {
        let (kind, state): (String, i64) = (row.get(3)?, row.get(4)?);
        let (Ok(kind), Some(state)) = (kind.parse::<IndexKind>(), IndexState::read(state)) else {
            return Ok(None);
        };
        let (index_no, table_no, property) = (row.get(0)?, row.get(1)?, row.get(2)?);
        let index = PropertyIndex { index_no, table_no, property, kind };
        Ok(Some(StoredIndex {
            account: row.get(6)?,
            table: row.get(7)?,
            index,
            state,
            changed: ticks(row, 5)?,
        }))
    };
    let found: Vec<Option<StoredIndex>> = indexes.query_map([], read)?.collect::<Sqlite<_>>()?;
    Ok(found.into_iter().flatten().collect())
}

pub(crate) fn add(
    db: &Connection,
    table: TableRef<'_>,
    property: &str,
    kind: IndexKind,
    now: Ticks,
) -> Sqlite<StoreResult<AddedIndex>> {
    let Some(bucket) = bucket_of(db, table)? else { return Ok(Err(Code::TableNotFound.into())) };
    let table_no = bucket >> 16;
    let (same, of_table, all): (i64, i64, i64) = db
        .prepare_cached(
            "SELECT coalesce(sum(table_no = ?1 AND property = ?2 AND kind = ?3), 0),
                    coalesce(sum(table_no = ?1), 0), count(*)
             FROM property_indexes WHERE state <> 2",
        )?
        .query_row(params![table_no, property, kind.name()], |row| {
            Ok((row.get(0)?, row.get(1)?, row.get(2)?))
        })?;
    if same > 0 {
        return Ok(Ok(AddedIndex::Exists));
    }
    if of_table >= MAX_TABLE_INDEXES || all >= MAX_INDEXES {
        return Ok(Ok(AddedIndex::TooMany));
    }
    let index_no = new_table_no();
    insert(db, index_no, table_no, property, kind.name(), now)?;
    count_change(db)?;
    Ok(Ok(AddedIndex::Added(index_no)))
}

/// Has the indexes of a table built that came back, and those removed that it had; returns how many have no
/// room.
pub(crate) fn restore(db: &Connection, table_no: i64, kept: &[KeptIndex], now: Ticks) -> Sqlite<usize> {
    db.prepare_cached(
        "UPDATE property_indexes SET state = 2, changed = ?2 WHERE table_no = ?1 AND state <> 2",
    )?
    .execute([table_no, now.raw()])?;
    let total: i64 = db
        .prepare_cached("SELECT count(*) FROM property_indexes WHERE state <> 2")?
        .query_row([], |row| row.get(0))?;
    let room = usize::try_from(MAX_INDEXES - total).unwrap_or(0);
    for KeptIndex { property, kind } in kept.iter().take(room) {
        insert(db, new_table_no(), table_no, property, kind, now)?;
    }
    count_change(db)?;
    Ok(kept.len().saturating_sub(room))
}

fn insert(
    db: &Connection,
    index_no: i64,
    table_no: i64,
    property: &str,
    kind: &str,
    now: Ticks,
) -> Sqlite<()> {
    db.prepare_cached(
        "INSERT INTO property_indexes (index_no, table_no, property, kind, state, changed)
         VALUES (?1, ?2, ?3, ?4, 0, ?5)",
    )?
    .execute(params![index_no, table_no, property, kind, now.raw()])
    .map(std::mem::drop)
}

/// Whether the index is still to be built.
pub(crate) fn is_wanted(db: &Connection, index_no: i64) -> Sqlite<bool> {
    db.prepare_cached(
        "SELECT 1 FROM property_indexes AS i JOIN tables AS t ON t.table_no = i.table_no
         WHERE i.index_no = ?1 AND i.state = 0",
    )?
    .exists([index_no])
}

/// Has servers use the index.
pub(crate) fn complete(db: &Connection, index_no: i64, now: Ticks) -> Sqlite<()> {
    db.prepare_cached("UPDATE property_indexes SET state = 1, changed = ?2 WHERE index_no = ?1")?
        .execute([index_no, now.raw()])?;
    count_change(db)
}

/// Has servers no longer use the index; returns whether there was one.
pub(crate) fn drop(db: &Connection, index_no: i64, now: Ticks) -> Sqlite<bool> {
    let dropped = db
        .prepare_cached(
            "UPDATE property_indexes SET state = 2, changed = ?2 WHERE index_no = ?1 AND state <> 2",
        )?
        .execute([index_no, now.raw()])?;
    if dropped > 0 {
        count_change(db)?;
    }
    Ok(dropped > 0)
}

/// Returns an index that nothing can use any more: dropped some time ago, or of a deleted table.
pub(crate) fn removable(db: &Connection, until: i64) -> Sqlite<Option<i64>> {
    db.prepare_cached(
        "SELECT index_no FROM property_indexes AS i WHERE (state = 2 AND changed <= ?1)
         OR NOT EXISTS (SELECT 1 FROM tables AS t WHERE t.table_no = i.table_no) LIMIT 1",
    )?
    .query_row([until], |row| row.get(0))
    .optional()
}

pub(crate) fn forget(db: &Connection, index_no: i64) -> Sqlite<()> {
    db.prepare_cached("DELETE FROM property_indexes WHERE index_no = ?1")?.execute([index_no])?;
    count_change(db)
}

fn count_change(db: &Connection) -> Sqlite<()> {
    db.prepare_cached(
        "INSERT INTO property_index_changes (id, changes) VALUES (1, 1)
         ON CONFLICT (id) DO UPDATE SET changes = changes + 1",
    )?
    .execute([])?;
    Ok(())
}
