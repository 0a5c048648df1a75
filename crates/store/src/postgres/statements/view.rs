//! Statements that create a view over the stored form. A type test guards every conversion, so that no entity can
//! fail a query.

use crate::contract::views::SYSTEM_COLUMNS;
use crate::protocol::codec::stored::ANNOTATION;
use crate::quoting::{escaped_literal, identifier};
use crate::{ColumnKind, ViewColumn, ViewDefinition};

/// Ticks as a point in time, exact to the microsecond: no added interval exceeds 2^53 microseconds, and days of
/// `timestamp` all have 24 hours.
const TIMESTAMP: &str = "(timestamp '0001-01-01 00:00:00' + (modified / 864000000000) * interval '1 day' \
     + (modified % 864000000000 / 10) * interval '1 microsecond') AT TIME ZONE 'UTC'";

/// A regular expression for the comments on views that earlier versions created automatically.
pub(crate) const ABANDONED_VIEW_COMMENT: &str =
    "^The table [^ ]+ of the account [^ ]+[.] The columns are the properties of ";

/// The table that a view reads.
pub(crate) struct ViewSource<'a> {
    /// The schema of Rowhouse's tables.
    pub schema: Option<&'a str>,
    pub account: &'a str,
    pub table_no: i64,
    pub buckets: Vec<i64>,
    /// Whether the database has a schema named after the account, in which the view then belongs.
    pub has_account_schema: bool,
}

/// Qualifies a name with its schema.
pub(crate) fn qualified(schema: Option<&str>, name: &str) -> String {
    match schema {
        Some(schema) => format!("{}.{}", identifier(schema), identifier(name)),
        None => identifier(name),
    }
}

/// The statements that create the view of a table, after comments for the operator. Names of accounts and tables
/// consist of letters and digits, so none can end a comment.
pub(crate) fn script(view: &ViewDefinition, source: &ViewSource<'_>) -> String {
    let (account, table) = (source.account, &view.table);
    let (schema, name) = (identifier(account), qualified(Some(account), table));
    let mut statements = Vec::new();
    if !source.has_account_schema {
        statements.push(format!("CREATE SCHEMA {schema}"));
    }
    statements.push(create(view, source));
    statements.extend(comments(view, account));
    format!(
        "-- The SQL view of the table {table} of the account {account}. Run these statements with psql, as a role that may
-- read the tables of Rowhouse:
--   rowhouse view sql {table} --account {account} | psql --single-transaction -v ON_ERROR_STOP=1 URL
-- These let a role read the view, and nothing behind it:
--   GRANT USAGE ON SCHEMA {schema} TO role; GRANT SELECT ON {name} TO role;
-- For properties that appear later, print and run the statements again. If PostgreSQL refuses to change a column, drop
-- the view before, and grant again:
--   DROP VIEW {name};
{};",
        statements.join(";\n")
    )
}

/// Creates the view, or changes it if the change only adds columns. The security barrier keeps a query's conditions
/// from seeing rows that the view excludes.
fn create(view: &ViewDefinition, source: &ViewSource<'_>) -> String {
    let mut columns: Vec<String> = SYSTEM_COLUMNS.map(identifier).to_vec();
    columns.extend(view.columns.iter().map(|column| identifier(&column.name)));
    let mut values = vec!["pk".to_owned(), "rk".to_owned(), TIMESTAMP.to_owned()];
    values.extend(view.columns.iter().map(value));
    let buckets: Vec<String> = source.buckets.iter().map(i64::to_string).collect();
    format!(
        "CREATE OR REPLACE VIEW {} ({}) WITH (security_barrier = true) AS SELECT {} FROM {} WHERE bucket IN ({}) \
         AND EXISTS (SELECT 1 FROM {} WHERE table_no = {})",
        qualified(Some(source.account), &view.table),
        columns.join(", "),
        values.join(", "),
        qualified(source.schema, "entities"),
        buckets.join(", "),
        qualified(source.schema, "tables"),
        source.table_no,
    )
}

/// Comments on the view, and on columns that hold several types or whose names differ from their properties.
fn comments(view: &ViewDefinition, account: &str) -> Vec<String> {
    let name = qualified(Some(account), &view.table);
    let scope = if view.is_full { "all" } else { "some" };
    let about = format!(
        "The table {} of the account {account}, by `rowhouse view sql`. The columns are the properties of {} \
         entities, {scope} that there were.",
        view.table, view.seen
    );
    let mut texts = vec![format!("COMMENT ON VIEW {name} IS {}", escaped_literal(&about))];
    for column in &view.columns {
        let is_named = column.name == column.property;
        let note = match column.kind {
            ColumnKind::Mixed => {
                format!("The property {}, of mixed types: {}", column.property, column.types)
            }
            _ if is_named => continue,
            _ => format!("The property {}", column.property),
        };
        let column = identifier(&column.name);
        texts.push(format!("COMMENT ON COLUMN {name}.{column} IS {}", escaped_literal(&note)));
    }
    texts
}

/// The value of a column; null if the property is missing or has another type.
fn value(column: &ViewColumn) -> String {
    let name = escaped_literal(&column.property);
    let annotation = escaped_literal(&format!("{}{ANNOTATION}", column.property));
    let (value, text) = (format!("(properties -> {name})"), format!("(properties ->> {name})"));
    let annotated = format!("(properties ->> {annotation})");
    let plain = |kind: &str| format!("jsonb_typeof({value}) = '{kind}' AND {annotated} IS NULL");
    let is = |edm_type: &str| format!("{annotated} = 'Edm.{edm_type}'");
    // U+0000 is stored as two U+0001. In the same text, U+0001 is stored as U+0001 U+0002.
    let readable = format!("replace(replace({text}, chr(1) || chr(1), chr(9216)), chr(1) || chr(2), chr(1))");
    match column.kind {
        ColumnKind::Text => {
            format!("CASE WHEN {} THEN {text} WHEN {} THEN {readable} END", plain("string"), is("String"))
        }
        ColumnKind::Boolean => format!("CASE WHEN {} THEN {value}::boolean END", plain("boolean")),
        ColumnKind::Int32 => format!("CASE WHEN {} THEN {value}::int4 END", plain("number")),
        ColumnKind::Int64 => format!(
            "CASE WHEN {} THEN {text}::int8 WHEN {} THEN {value}::int8 END",
            is("Int64"),
            plain("number")
        ),
        ColumnKind::Double => format!(
            "CASE WHEN {} THEN {text}::float8 WHEN {} THEN {value}::float8 END",
            is("Double"),
            plain("number")
        ),
        // Truncated to the microsecond.
        ColumnKind::DateTime => format!(
            "CASE WHEN {} THEN (left(rtrim({text}, 'Z'), 26) || 'Z')::timestamptz END",
            is("DateTime")
        ),
        ColumnKind::Guid => format!("CASE WHEN {} THEN {text}::uuid END", is("Guid")),
        ColumnKind::Binary => format!("CASE WHEN {} THEN decode({text}, 'base64') END", is("Binary")),
        ColumnKind::Mixed => format!("CASE WHEN {} THEN {readable} ELSE {text} END", is("String")),
    }
}
