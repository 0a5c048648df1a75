//! SQL views of tables, so that programs that speak SQL read entities as rows with typed columns.

use serde::{Deserialize, Serialize};

use super::{Failure, StoreResult};
use crate::protocol::model::{TableRef, Ticks};

/// Maximum bytes of a column's name, which is PostgreSQL's limit.
pub const MAX_COLUMN_NAME: usize = 63;
/// Maximum number of columns for properties.
pub const MAX_COLUMNS: usize = 1000;
/// The columns of every view.
pub const SYSTEM_COLUMNS: [&str; 3] = ["PartitionKey", "RowKey", "Timestamp"];

/// The type of a column.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum ColumnKind {
    Text,
    Boolean,
    Int32,
    /// Of Int64, or of Int64 and Int32.
    Int64,
    /// Of Double, or of Double and Int32.
    Double,
    DateTime,
    Guid,
    Binary,
    /// Several types that no column can hold together: the stored text of each value.
    Mixed,
}

/// A column of a view.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ViewColumn {
    pub property: String,
    /// The name of the column.
    pub name: String,
    pub kind: ColumnKind,
    /// The types that were seen, in words.
    pub types: String,
}

/// What a view is to show.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ViewDefinition {
    /// The schema of PostgreSQL; `None` in SQLite, which has none.
    pub schema: Option<String>,
    pub name: String,
    pub columns: Vec<ViewColumn>,
    /// Roles that may read it.
    pub grants: Vec<String>,
    /// Entities that were examined for the columns.
    pub seen: u64,
    /// Whether they were all.
    pub is_full: bool,
}

/// A view of a table.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SqlView {
    pub account: String,
    /// The table's name as created.
    pub table: String,
    pub definition: ViewDefinition,
    pub refreshed: Ticks,
}

/// A view that could not be dropped with its table, or mended.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct UntidyView {
    /// Its name in SQL.
    pub view: String,
    /// Whether its table was deleted.
    pub is_orphaned: bool,
    pub reason: String,
}

/// Why a view was not changed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ViewFailure {
    /// As of other operations.
    Store(Failure),
    /// What the database says, such as a missing privilege.
    Message(String),
}

impl<F: Into<Failure>> From<F> for ViewFailure {
    fn from(failure: F) -> Self {
        ViewFailure::Store(failure.into())
    }
}

store_trait! {
/// The views of a database. They are recorded under the numbers of their tables; a view shows
/// nothing from the moment on in which its table is deleted.
pub trait SqlViews {
    /// Creates or replaces the view of a table, in one transaction.
    ///
    /// # Errors
    /// [`ViewFailure`]; `TableNotFound`.
    async fn put_view(
        &self,
        table: TableRef<'_>,
        view: &ViewDefinition,
        now: Ticks,
    ) -> Result<(), ViewFailure>;

    /// Drops the view of a table; `false` if there is none.
    ///
    /// # Errors
    /// [`ViewFailure`]; `TableNotFound`.
    async fn drop_view(&self, table: TableRef<'_>) -> Result<bool, ViewFailure>;

    /// Returns the views of an account, or of all accounts, by account and table.
    async fn views(&self, account: Option<&str>) -> StoreResult<Vec<SqlView>>;

    /// Drops the views of tables that no longer exist, and mends those of older versions. Returns those that
    /// are left as they are; one does not keep the others from being tidied.
    async fn tidy_views(&self) -> StoreResult<Vec<UntidyView>>;
}}
