//! The statement that creates an SQL view of a table over the stored form. A type test guards every value, so that no
//! column misrepresents a value.

use crate::bucket::bucket;
use crate::contract::views::SYSTEM_COLUMNS;
use crate::error::Code;
use crate::protocol::codec::stored::ANNOTATION;
use crate::protocol::model::TableRef;
use crate::quoting::{identifier, literal};
use crate::sqlite::SqliteStore;
use crate::sqlite::catalog::tables::{SPREAD, bucket_of};
use crate::{ColumnKind, SqlViews, StoreResult, ViewColumn, ViewDefinition, ViewScript};

/// Ticks as ISO 8601 with seven digits, so that texts sort like times.
const TIMESTAMP: &str = "strftime('%Y-%m-%dT%H:%M:%S', modified / 10000000 - 62135596800, 'unixepoch') \
     || printf('.%07dZ', modified % 10000000)";

/// Patterns of the view definitions that earlier versions created automatically. A definition of [`script`] has a
/// comment before SELECT.
pub(crate) const ABANDONED_VIEW_DEFINITION: [&str; 2] = [
    "%) AS SELECT pk, rk, strftime(%",
    "% FROM entities WHERE bucket = % AND EXISTS (SELECT 1 FROM tables WHERE table_no = %",
];

impl SqlViews for SqliteStore {
    async fn view_script(
        &self,
        table: TableRef<'_>,
        view: &ViewDefinition,
    ) -> StoreResult<Option<ViewScript>> {
        let found = self.readers.with(|db| bucket_of(db, table).map(Ok))?;
        let table_no = found.ok_or(Code::TableNotFound)? >> 16;
        let name = name(table.account, &view.table);
        let sql = script(view, table.account, table_no);
        Ok(Some(ViewScript { schema: None, name, sql }))
    }
}

fn name(account: &str, table: &str) -> String {
    format!("{account}__{table}")
}

/// The statement that creates the view of a table, after comments for the operator. Names of accounts and tables
/// consist of letters and digits, so none can end a comment.
fn script(view: &ViewDefinition, account: &str, table_no: i64) -> String {
    let table = &view.table;
    let name = identifier(&name(account, table));
    let mut columns: Vec<String> = SYSTEM_COLUMNS.map(identifier).to_vec();
    columns.extend(view.columns.iter().map(|column| identifier(&column.name)));
    let mut values = vec!["pk".to_owned(), "rk".to_owned(), TIMESTAMP.to_owned()];
    values.extend(view.columns.iter().map(value));
    let (columns, values) = (columns.join(", "), values.join(", "));
    let bucket = bucket(table_no, SPREAD, "");
    format!(
        "-- The SQL view of the table {table} of the account {account}. Run this statement with sqlite3:
--   rowhouse view sql {table} --account {account} | sqlite3 FILE
-- SQLite has no roles: who may read the file may read every table. Readers open it with sqlite3 -readonly.
-- For properties that appear later, print and run the statement again, after
--   DROP VIEW {name};
CREATE VIEW {name} ({columns}) AS /* the table {table} of the account {account}, by rowhouse view sql */ \
         SELECT {values} FROM entities WHERE bucket = {bucket} \
         AND EXISTS (SELECT 1 FROM tables WHERE table_no = {table_no});"
    )
}

/// The value of a column; null if the property is missing or has another type.
fn value(column: &ViewColumn) -> String {
    let path = |name: &str| literal(&format!("$.\"{name}\""));
    let value = format!("properties ->> {}", path(&column.property));
    let annotation = format!("properties ->> {}", path(&format!("{}{ANNOTATION}", column.property)));
    let json_type = format!("json_type(properties, {})", path(&column.property));
    let plain = |kind: &str| format!("{json_type} = '{kind}' AND ({annotation}) IS NULL");
    let is = |edm_type: &str| format!("({annotation}) = 'Edm.{edm_type}'");
    // U+0000 is stored as two U+0001. In the same text, U+0001 is stored as U+0001 U+0002.
    let readable =
        format!("replace(replace({value}, char(1) || char(1), char(9216)), char(1) || char(2), char(1))");
    match column.kind {
        ColumnKind::Text => {
            format!("CASE WHEN {} THEN {value} WHEN {} THEN {readable} END", plain("text"), is("String"))
        }
        ColumnKind::Boolean => format!("CASE {json_type} WHEN 'true' THEN 1 WHEN 'false' THEN 0 END"),
        ColumnKind::Int32 => format!("CASE WHEN {} THEN {value} END", plain("integer")),
        ColumnKind::Int64 => format!(
            "CASE WHEN {} THEN CAST({value} AS INTEGER) WHEN {} THEN {value} END",
            is("Int64"),
            plain("integer")
        ),
        // SQLite has no NaN.
        ColumnKind::Double => format!(
            "CASE WHEN {} THEN CASE {value} WHEN 'NaN' THEN NULL WHEN 'Infinity' THEN 9e999 \
             WHEN '-Infinity' THEN -9e999 ELSE CAST({value} AS REAL) END \
             WHEN {} THEN CAST({value} AS REAL) END",
            is("Double"),
            plain("integer")
        ),
        ColumnKind::DateTime => format!("CASE WHEN {} THEN {value} END", is("DateTime")),
        ColumnKind::Guid => format!("CASE WHEN {} THEN {value} END", is("Guid")),
        ColumnKind::Binary => format!("CASE WHEN {} THEN {value} END", is("Binary")),
        ColumnKind::Mixed => format!(
            "CASE WHEN {} THEN {readable} WHEN {json_type} IN ('true', 'false') THEN {json_type} \
             ELSE CAST({value} AS TEXT) END",
            is("String")
        ),
    }
}
