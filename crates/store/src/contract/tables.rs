//! Tables: names, access policies and sizes.

use super::StoreResult;
#[cfg(doc)]
use crate::error::Code;
use crate::protocol::model::{TableRef, Ticks};
use crate::protocol::plan::{TableEntry, TablePage, TableScan};

#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct TableSize {
    pub entities: u64,
    /// Bytes of keys and stored properties, excluding indexes and the database's row overhead.
    pub bytes: u64,
    /// Whether all entities were counted. If not, the table has more.
    pub complete: bool,
}

store_trait! {
/// The tables of accounts. Names that differ only in case are equal.
pub trait Tables {
    /// # Errors
    /// [`Code::TableAlreadyExists`], also for a name that differs only in case.
    async fn create_table(&self, table: TableRef<'_>, now: Ticks) -> StoreResult<()>;

    /// Removes a table and its policies, and later its entities.
    ///
    /// # Errors
    /// [`Code::ResourceNotFound`].
    async fn delete_table(&self, table: TableRef<'_>, now: Ticks) -> StoreResult<()>;

    async fn get_table(&self, table: TableRef<'_>) -> StoreResult<Option<TableEntry>>;

    async fn list_tables(&self, account: &str, scan: &TableScan) -> StoreResult<TablePage>;

    /// Returns the first `most` accounts that have tables, ordered by name.
    async fn accounts_with_tables(&self, most: u16) -> StoreResult<Vec<String>>;

    /// Reads the table's stored access policies as JSON; `None` if never set.
    ///
    /// # Errors
    /// [`Code::TableNotFound`].
    async fn policies(&self, table: TableRef<'_>) -> StoreResult<Option<String>>;

    /// Replaces the table's stored access policies, given as JSON.
    ///
    /// # Errors
    /// [`Code::TableNotFound`].
    async fn set_policies(&self, table: TableRef<'_>, policies: &str) -> StoreResult<()>;

    /// Measures a table, counting at most `most` entities.
    ///
    /// # Errors
    /// [`Code::TableNotFound`].
    async fn size(&self, table: TableRef<'_>, most: u32) -> StoreResult<TableSize>;
}}
