//! Stored access policies and service properties, which are opaque JSON documents to this layer.

use rusqlite::{Connection, OptionalExtension, params};

use crate::error::Code;
use crate::protocol::model::TableName;
use crate::store::sqlite::catalog::accounts::count_option_change;
use crate::store::sqlite::rows::Sqlite;
use crate::store::{Fault, StoreResult};

pub(crate) fn read_policies(
    db: &Connection,
    account: &str,
    table: &TableName,
) -> Sqlite<StoreResult<Option<String>>> {
    let found: Option<Option<String>> = db
        .prepare_cached("SELECT policies FROM tables WHERE account = ?1 AND name_lower = ?2")?
        .query_row(params![account, table.lower()], |row| row.get(0))
        .optional()?;
    Ok(found.ok_or_else(|| Code::TableNotFound.into()))
}

pub(crate) fn write_policies(
    db: &Connection,
    account: &str,
    table: &TableName,
    policies: &str,
) -> Sqlite<StoreResult<()>> {
    let changed = db
        .prepare_cached("UPDATE tables SET policies = ?3 WHERE account = ?1 AND name_lower = ?2")?
        .execute(params![account, table.lower(), policies])?;
    Ok(if changed == 0 { Err(Code::TableNotFound.into()) } else { Ok(()) })
}

pub(crate) fn read_properties(db: &Connection, account: &str) -> Sqlite<Option<String>> {
    db.prepare_cached("SELECT properties FROM service_properties WHERE account = ?1")?
        .query_row([account], |row| row.get(0))
        .optional()
}

/// Replaces the given members and keeps the others, as the concatenation of jsonb values does in
/// PostgreSQL.
pub(crate) fn merge_properties(db: &Connection, account: &str, members: &str) -> Sqlite<StoreResult<()>> {
    type Members = serde_json::Map<String, serde_json::Value>;
    let old = read_properties(db, account)?.unwrap_or_else(|| "{}".into());
    let (Ok(mut merged), Ok(new)) =
        (serde_json::from_str::<Members>(&old), serde_json::from_str::<Members>(members))
    else {
        return Ok(Err(Fault::Other.into()));
    };
    merged.extend(new);
    db.prepare_cached(
        "INSERT INTO service_properties (account, properties) VALUES (?1, ?2)
         ON CONFLICT (account) DO UPDATE SET properties = excluded.properties",
    )?
    .execute(params![account, serde_json::Value::Object(merged).to_string()])?;
    count_option_change(db)?;
    Ok(Ok(()))
}
