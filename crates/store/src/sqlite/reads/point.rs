//! The read of one entity.

use rusqlite::{Connection, OptionalExtension, params};

use crate::StoreResult;
use crate::error::Code;
use crate::protocol::model::entity::StoredProperties;
use crate::protocol::model::{Key, Stored, TableRef};
use crate::sqlite::rows::{Sqlite, ticks};

/// Reads an entity by a single statement, which needs no transaction to see one state. With a spread of 1,
/// the bucket is the table number times 2^16 ([`crate::bucket`]).
pub(crate) fn get(db: &Connection, table: TableRef<'_>, key: &Key) -> Sqlite<StoreResult<Option<Stored>>> {
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
