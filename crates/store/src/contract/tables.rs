//! Tables: what they are called, their access policies, their sizes.

use super::StoreResult;
#[cfg(doc)]
use crate::error::Code;
use crate::protocol::model::{TableRef, Ticks};
use crate::protocol::plan::{TableEntry, TablePage, TableScan};

/// The size of a table.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct TableSize {
    pub entities: u64,
    /// Bytes of keys and stored properties, without indexes and the row overhead of the database.
    pub bytes: u64,
    /// Whether all entities were counted. Otherwise there are more.
    pub complete: bool,
}

store_trait! {
/// The tables of accounts. Names that differ only in case are equal.
pub trait Tables {
    /// Creates a table.
    ///
    /// # Errors
    /// [`Code::TableAlreadyExists`]; names that differ only in case are equal.
    async fn create_table(&self, table: TableRef<'_>, now: Ticks) -> StoreResult<()>;

    /// Removes a table, its policies and, later, its entities.
    ///
    /// # Errors
    /// [`Code::ResourceNotFound`].
    async fn delete_table(&self, table: TableRef<'_>, now: Ticks) -> StoreResult<()>;

    /// Reads the entry of one table.
    async fn get_table(&self, table: TableRef<'_>) -> StoreResult<Option<TableEntry>>;

    /// Reads one page of the account's tables.
    async fn list_tables(&self, account: &str, scan: &TableScan) -> StoreResult<TablePage>;

    /// Returns the first `most` accounts that have tables, in the order of their names.
    async fn accounts_with_tables(&self, most: u16) -> StoreResult<Vec<String>>;

    /// Reads the table's stored access policies as JSON; `None` if none were ever set.
    ///
    /// # Errors
    /// [`Code::TableNotFound`].
    async fn policies(&self, table: TableRef<'_>) -> StoreResult<Option<String>>;

    /// Replaces the table's stored access policies.
    ///
    /// # Errors
    /// [`Code::TableNotFound`].
    async fn set_policies(&self, table: TableRef<'_>, policies: &str) -> StoreResult<()>;

    /// Measures the size of a table, counting `most` entities at most.
    ///
    /// # Errors
    /// [`Code::TableNotFound`].
    async fn size(&self, table: TableRef<'_>, most: u32) -> StoreResult<TableSize>;
}}
