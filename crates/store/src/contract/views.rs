//! SQL views of tables, through which SQL clients read entities as rows with typed columns. Operators create the
//! views: this module does not write to the database.

use serde::Serialize;

use super::StoreResult;
use crate::protocol::model::TableRef;

/// Maximum length of a column name in bytes, which is PostgreSQL's limit.
pub const MAX_COLUMN_NAME: usize = 63;
/// Maximum number of property columns.
pub const MAX_COLUMNS: usize = 1000;
/// The columns of every view.
pub const SYSTEM_COLUMNS: [&str; 3] = ["PartitionKey", "RowKey", "Timestamp"];

#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize)]
#[serde(rename_all = "camelCase")]
pub enum ColumnKind {
    Text,
    Boolean,
    Int32,
    /// Int64 values, or Int64 and Int32 values.
    Int64,
    /// Double values, or Double and Int32 values.
    Double,
    DateTime,
    Guid,
    Binary,
    /// Values of several types that no column type can hold together, as their stored text.
    Mixed,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct ViewColumn {
    pub property: String,
    pub name: String,
    pub kind: ColumnKind,
    /// Types of the sampled values, as text.
    pub types: String,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ViewDefinition {
    pub table: String,
    pub columns: Vec<ViewColumn>,
    /// Number of entities sampled to determine the columns.
    pub seen: u64,
    /// Whether all entities of the table were sampled.
    pub is_full: bool,
}

/// The statements that create a view, with comments for the operator.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ViewScript {
    /// The PostgreSQL schema; `None` in SQLite, which has no schemas.
    pub schema: Option<String>,
    pub name: String,
    pub sql: String,
}

store_trait! {
/// Generates the statements that create views. The statements contain the table's number, so a view becomes empty when
/// its table is deleted or respread.
pub trait SqlViews {
    /// Returns the statements that create a table's view; `None` while the spread of the table is being changed.
    ///
    /// # Errors
    /// `TableNotFound`.
    async fn view_script(
        &self,
        table: TableRef<'_>,
        view: &ViewDefinition,
    ) -> StoreResult<Option<ViewScript>>;
}}
