//! Finds, restores and purges deleted tables.

use schemars::JsonSchema;
use serde::Serialize;

use super::OperatorError;
use super::durations::Time;
use crate::protocol::model::{TableName, Ticks};
use crate::store::{DeletedScan, DeletedTable, Failure, Fault, Store, TableSize, Undeletion};

/// Maximum number of listed tables: the most recently deleted ones.
pub const MAX_LISTED: u32 = 1000;
/// Maximum number of entities to count before a deleted table is purged.
const MAX_COUNTED: u32 = 1_000_000;
/// Maximum deleted tables that an error lists.
const MAX_NAMED: usize = 10;

/// Selects one of the deleted tables that had the same name.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum DeletedChoice {
    /// Fails if several deleted tables had the name.
    Only,
    /// The most recently deleted table.
    Newest,
    /// The table with this number.
    Number(i64),
}

/// A deleted table that can be restored, and its size, if it was measured.
#[derive(Debug, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
#[schemars(rename = "DeletedTable")]
pub struct DeletedTableReport {
    /// Its number.
    id: i64,
    account: String,
    /// Its last name.
    table: String,
    created: Time,
    deleted: Time,
    /// The table is purged after this time.
    kept_until: Time,
    entities: Option<u64>,
    /// Bytes of keys and stored properties, without indexes.
    bytes: Option<u64>,
    /// Whether the numbers are exact. Otherwise they are lower bounds.
    complete: bool,
}

impl DeletedTableReport {
    pub fn new(table: &DeletedTable, size: Option<TableSize>) -> Self {
        Self {
            id: table.table_no,
            account: table.account.clone(),
            table: table.name.clone(),
            created: Time(table.created),
            deleted: Time(table.deleted),
            kept_until: Time(table.kept_until),
            entities: size.map(|size| size.entities),
            bytes: size.map(|size| size.bytes),
            complete: size.is_some_and(|size| size.complete),
        }
    }
}

/// A table that was restored.
#[derive(Debug, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
#[schemars(inline)]
pub struct UndeletedTable {
    id: i64,
    account: String,
    /// Its name now.
    pub table: String,
    /// The number of indexes that a server builds again.
    pub indexes: usize,
    /// The number of indexes for which the database has no room.
    pub indexes_left_out: usize,
    /// Whether its entities expire.
    pub expires: bool,
}

pub async fn find(
    store: &Store,
    account: &str,
    name: &TableName,
    choice: DeletedChoice,
) -> Result<DeletedTable, OperatorError> {
    let table_no = if let DeletedChoice::Number(number) = choice { Some(number) } else { None };
    let scan = DeletedScan { account: Some(account), name: Some(name), table_no, most: MAX_LISTED };
    let mut found = store.deleted_tables(scan).await?;
    match found.len() {
        0 => Err(OperatorError::DeletedTableNotFound),
        1 => Ok(found.swap_remove(0)),
        _ if choice == DeletedChoice::Newest => Ok(found.swap_remove(0)),
        _ => Err(OperatorError::SeveralDeletedTables(describe_candidates(name, &found))),
    }
}

fn describe_candidates(name: &TableName, found: &[DeletedTable]) -> String {
    let each = |table: &DeletedTable| format!("{} deleted {}", table.table_no, table.deleted.to_canonical());
    let mut lines: Vec<String> = found.iter().take(MAX_NAMED).map(each).collect();
    if found.len() > MAX_NAMED {
        lines.push(format!("and {} more", found.len() - MAX_NAMED));
    }
    format!(
        "several tables {} were deleted: give --newest, or --number with one of these numbers\n{}",
        name.as_given(),
        lines.join("\n")
    )
}

pub async fn find_by_number(store: &Store, table_no: i64) -> Result<DeletedTable, OperatorError> {
    let scan = DeletedScan { table_no: Some(table_no), most: 1, ..DeletedScan::default() };
    store.deleted_tables(scan).await?.pop().ok_or(OperatorError::DeletedTableNotFound)
}

/// Measures a deleted table before it is purged; `None` if that takes longer than a statement may take.
pub async fn try_measure(store: &Store, table: &DeletedTable) -> Result<Option<TableSize>, OperatorError> {
    match store.deleted_size(table.table_no, MAX_COUNTED).await {
        Err(Failure::Fault(Fault::Timeout)) => Ok(None),
        size => size?.map(Some).ok_or(OperatorError::DeletedTableNotFound),
    }
}

/// Restores a table under its last name, or under `name`, which must be free. A different name is refused until some
/// time after the deletion has passed by the clocks of this server and of the database.
pub async fn undelete(
    store: &Store,
    table: DeletedTable,
    name: Option<TableName>,
    now: Ticks,
) -> Result<UndeletedTable, OperatorError> {
    let name = name.map_or_else(|| super::parse_table_name(&table.name), Ok)?;
    let now = store.clock().await?.map_or(now, |clock| clock.min(now));
    let (records, left_out) = match store.undelete(&table, &name, now).await? {
        Undeletion::Done { records, left_out } => (records, left_out),
        Undeletion::Gone => return Err(OperatorError::DeletedTableNotFound),
        Undeletion::NameTaken => return Err(OperatorError::TableNameTaken(name.as_given().to_owned())),
        Undeletion::TooSoon(from) => return Err(OperatorError::RenamedTooSoon(from.to_canonical())),
    };
    Ok(UndeletedTable {
        id: table.table_no,
        account: table.account,
        table: name.as_given().to_owned(),
        indexes: records.indexes.map_or(0, |indexes| indexes.len()) - left_out,
        indexes_left_out: left_out,
        expires: records.expiry.is_some(),
    })
}

/// Marks a deleted table, so that servers purge it from now on.
pub async fn purge(store: &Store, table: &DeletedTable, now: Ticks) -> Result<(), OperatorError> {
    match store.purge_deleted(table, now).await? {
        true => Ok(()),
        false => Err(OperatorError::DeletedTableNotFound),
    }
}
