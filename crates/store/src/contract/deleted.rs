//! Deleted tables, which are kept for a time and can be restored until then.

use serde::{Deserialize, Serialize};

use super::{StoreResult, TableSize};
#[cfg(doc)]
use crate::error::Code;
use crate::protocol::model::ticks::TICKS_PER_SECOND;
use crate::protocol::model::{TableName, TableRef, Ticks};

/// Time, in ticks, during which a deleted PostgreSQL table can only be restored under its last name. Servers cache the
/// number of a table by name, for at most a tenth of this time.
pub(crate) const RENAME_PAUSE: i64 = 600 * TICKS_PER_SECOND;

/// Maximum number of tables that [`DeletedTables::ended_tables`] returns.
pub(crate) const MAX_ENDED: i64 = 100;

/// A deleted table that can be restored.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DeletedTable {
    pub table_no: i64,
    pub account: String,
    /// The table's last name.
    pub name: String,
    pub created: Ticks,
    pub deleted: Ticks,
    /// Time after which the table's entities are purged.
    pub kept_until: Ticks,
}

/// Selects deleted tables. Omitted fields match everything.
#[derive(Debug, Clone, Copy, Default)]
pub struct DeletedScan<'a> {
    pub account: Option<&'a str>,
    pub name: Option<&'a TableName>,
    pub table_no: Option<i64>,
    /// Maximum number of tables to list.
    pub most: u32,
}

/// Records of a table other than its entities and policies. They are stored as JSON.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct TableRecords {
    pub expiry: Option<KeptExpiry>,
    pub indexes: Option<Vec<KeptIndex>>,
}

/// The table's expiry rule.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct KeptExpiry {
    pub property: Option<String>,
    pub delay: i64,
    pub pause: i64,
    pub made: i64,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct KeptIndex {
    pub property: String,
    pub kind: String,
}

/// Result of restoring a table.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Undeletion {
    /// The table is restored with its entities, policies and expiry rule. Servers rebuild its indexes, except
    /// `left_out` indexes that exceed the limit of the database.
    Done { records: TableRecords, left_out: usize },
    /// The purge has begun, or the table has already been restored.
    Gone,
    /// Another table has the name.
    NameTaken,
    /// The table can be restored under a different name only from this time on.
    TooSoon(Ticks),
}

store_trait! {
/// Deleted tables that can be restored. Each is a record under the number of its table. Restoring moves the record to
/// the tables, and purging moves it to the purged tables, so a purged table cannot be restored. The number does not
/// change, so a write that began before the deletion is checked as usual.
pub trait DeletedTables {
    /// Removes a table and its policies as `delete_table` does, but keeps both and the entities until `kept_until`.
    ///
    /// # Errors
    /// [`Code::ResourceNotFound`].
    async fn delete_and_keep(&self, table: TableRef<'_>, now: Ticks, kept_until: Ticks) -> StoreResult<()>;

    /// Lists deleted tables, the most recently deleted first.
    async fn deleted_tables(&self, scan: DeletedScan<'_>) -> StoreResult<Vec<DeletedTable>>;

    /// Measures a deleted table, counting at most `most` entities. `None` if its purge has begun or it has been
    /// restored.
    async fn deleted_size(&self, table_no: i64, most: u32) -> StoreResult<Option<TableSize>>;

    /// Restores a deleted table, with its number, under a free name of its account.
    async fn undelete(&self, table: &DeletedTable, name: &TableName, now: Ticks) -> StoreResult<Undeletion>;

    /// Starts the purge of a deleted table; `false` if the purge has already begun or the table has been restored.
    async fn purge_deleted(&self, table: &DeletedTable, now: Ticks) -> StoreResult<bool>;

    /// Returns at most 100 deleted tables whose retention has ended, the earliest first.
    async fn ended_tables(&self, now: Ticks) -> StoreResult<Vec<DeletedTable>>;
}}
