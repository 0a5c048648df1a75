//! Deleted tables that are kept for a time, in which they can be brought back.

use serde::{Deserialize, Serialize};

use super::{StoreResult, TableSize};
#[cfg(doc)]
use crate::error::Code;
use crate::protocol::model::ticks::TICKS_PER_SECOND;
use crate::protocol::model::{TableName, TableRef, Ticks};

/// How long a table of PostgreSQL cannot be brought back under another name than its last one, in ticks.
/// Servers remember the number of a table by its name, for a tenth of this time at most.
pub(crate) const RENAME_PAUSE: i64 = 600 * TICKS_PER_SECOND;

/// The maximum number of tables that [`DeletedTables::ended_tables`] returns.
pub(crate) const MAX_ENDED: i64 = 100;

/// A deleted table that can be brought back.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DeletedTable {
    pub table_no: i64,
    pub account: String,
    /// Its last name.
    pub name: String,
    pub created: Ticks,
    pub deleted: Ticks,
    /// Its entities are purged after this time.
    pub kept_until: Ticks,
}

/// Which deleted tables to list.
#[derive(Debug, Clone, Copy, Default)]
pub struct DeletedScan<'a> {
    /// `None` for those of all accounts.
    pub account: Option<&'a str>,
    pub name: Option<&'a TableName>,
    pub table_no: Option<i64>,
    /// Maximum tables of the list.
    pub most: u32,
}

/// What belonged to a table, beside its entities and policies. It is stored as JSON.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct TableRecords {
    pub expiry: Option<KeptExpiry>,
    pub indexes: Option<Vec<KeptIndex>>,
}

/// The rule by which entities expire.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct KeptExpiry {
    pub property: Option<String>,
    pub delay: i64,
    pub pause: i64,
    pub made: i64,
}

/// The definition of a property index.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct KeptIndex {
    pub property: String,
    pub kind: String,
}

/// Result of bringing a table back.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Undeletion {
    /// It is back with its entities, policies and expiry rule. Servers build its indexes again, of which
    /// `left_out` have no room in the database.
    Done { records: TableRecords, left_out: usize },
    /// Its purge has begun, or it was brought back already.
    Gone,
    /// Another table has the name.
    NameTaken,
    /// It can have another name than its last one from this time on.
    TooSoon(Ticks),
}

store_trait! {
/// Deleted tables that can be brought back. Each is a record with the number of the table, which moves to
/// the tables or to those that are purged, so a table that is purged cannot come back. The number stays,
/// so a write that began before the deletion is judged as ever.
pub trait DeletedTables {
    /// Removes a table and its policies as `delete_table` does, but keeps both and the entities until a time.
    ///
    /// # Errors
    /// [`Code::ResourceNotFound`].
    async fn delete_and_keep(&self, table: TableRef<'_>, now: Ticks, kept_until: Ticks) -> StoreResult<()>;

    /// Lists deleted tables, the last deleted first.
    async fn deleted_tables(&self, scan: DeletedScan<'_>) -> StoreResult<Vec<DeletedTable>>;

    /// Measures a deleted table, counting `most` entities at most; `None` if its purge has begun, or if it
    /// was brought back.
    async fn deleted_size(&self, table_no: i64, most: u32) -> StoreResult<Option<TableSize>>;

    /// Brings a deleted table back under a free name of its account, with its number.
    async fn undelete(&self, table: &DeletedTable, name: &TableName, now: Ticks) -> StoreResult<Undeletion>;

    /// Has a deleted table purged from now on; `false` if it is, or was brought back.
    async fn purge_deleted(&self, table: &DeletedTable, now: Ticks) -> StoreResult<bool>;

    /// Returns up to 100 of the deleted tables whose time has ended, those that ended first.
    async fn ended_tables(&self, now: Ticks) -> StoreResult<Vec<DeletedTable>>;
}}
