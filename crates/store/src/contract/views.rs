//! SQL views of tables, through which programs that speak SQL read entities as rows with typed columns.
//! Operators create them: nothing here writes to the database.

use serde::Serialize;

use super::StoreResult;
use crate::protocol::model::TableRef;

/// Maximum bytes of a column's name, which is PostgreSQL's limit.
pub const MAX_COLUMN_NAME: usize = 63;
/// Maximum number of columns for properties.
pub const MAX_COLUMNS: usize = 1000;
/// The columns of every view.
pub const SYSTEM_COLUMNS: [&str; 3] = ["PartitionKey", "RowKey", "Timestamp"];

/// The type of a column.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize)]
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
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct ViewColumn {
    pub property: String,
    /// The name of the column.
    pub name: String,
    pub kind: ColumnKind,
    /// The types that were seen, in words.
    pub types: String,
}

/// The content of a view.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ViewDefinition {
    /// The table's name as created.
    pub table: String,
    pub columns: Vec<ViewColumn>,
    /// Entities that were examined for the columns.
    pub seen: u64,
    /// Whether they were all.
    pub is_full: bool,
}

/// The statements that create a view, with comments for the operator.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ViewScript {
    /// The schema of PostgreSQL; `None` in SQLite, which has none.
    pub schema: Option<String>,
    pub name: String,
    pub sql: String,
}

store_trait! {
/// The statements that create views. They contain the number of the table, so a view shows nothing from the
/// moment on in which its table is deleted or respread.
pub trait SqlViews {
    /// Returns the statements that create the view of a table; `None` while the spread of the table is
    /// being changed.
    ///
    /// # Errors
    /// `TableNotFound`.
    async fn view_script(
        &self,
        table: TableRef<'_>,
        view: &ViewDefinition,
    ) -> StoreResult<Option<ViewScript>>;
}}
