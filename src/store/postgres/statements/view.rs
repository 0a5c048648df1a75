//! The definition of a view over the stored form. Every value stands behind the test that its
//! conversion cannot fail, so that one odd entity does not fail a query.

use crate::protocol::codec::stored::ANNOTATION;
use crate::store::contract::views::SYSTEM_COLUMNS;
use crate::store::quoting::{escaped_literal, identifier};
use crate::store::{ColumnKind, ViewColumn, ViewDefinition};

/// Ticks as a point in time, to the microsecond. Exact: no interval that is added has more than
/// 2^53 microseconds, and days of `timestamp` all have 24 hours.
const TIMESTAMP: &str = "(timestamp '0001-01-01 00:00:00' + (modified / 864000000000) * interval '1 day' \
     + (modified % 864000000000 / 10) * interval '1 microsecond') AT TIME ZONE 'UTC'";

/// The name of a view with its schema.
pub(crate) fn qualified(schema: Option<&str>, name: &str) -> String {
    match schema {
        Some(schema) => format!("{}.{}", identifier(schema), identifier(name)),
        None => identifier(name),
    }
}

/// Creates the view, or changes it if its columns only become more. With a security barrier, conditions of
/// a query do not see the rows that the view leaves out.
pub(crate) fn create(view: &ViewDefinition, table_no: i64, buckets: &[i64]) -> String {
    let mut columns: Vec<String> = SYSTEM_COLUMNS.map(identifier).to_vec();
    columns.extend(view.columns.iter().map(|column| identifier(&column.name)));
    let mut values = vec!["pk".to_owned(), "rk".to_owned(), TIMESTAMP.to_owned()];
    values.extend(view.columns.iter().map(value));
    let buckets: Vec<String> = buckets.iter().map(i64::to_string).collect();
    format!(
        "CREATE OR REPLACE VIEW {} ({}) WITH (security_barrier = true) AS SELECT {} FROM entities WHERE bucket IN ({}) \
         AND EXISTS (SELECT 1 FROM tables WHERE table_no = {table_no})",
        qualified(view.schema.as_deref(), &view.name),
        columns.join(", "),
        values.join(", "),
        buckets.join(", "),
    )
}

/// Mends a view that was made without a security barrier.
pub(crate) fn bar(name: &str) -> String {
    format!("ALTER VIEW {name} SET (security_barrier = true)")
}

/// Says what the view is, and which columns hold several types.
pub(crate) fn comments(view: &ViewDefinition, account: &str, table: &str) -> Vec<String> {
    let name = qualified(view.schema.as_deref(), &view.name);
    let scope = if view.is_full { "all" } else { "some" };
    let about = format!(
        "The table {table} of the account {account}. The columns are the properties of {} entities, {scope} \
         that there were.",
        view.seen
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
    // U+0000 is stored as two U+0001, and U+0001 beside it as U+0001 U+0002.
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
        // To the microsecond, not rounded.
        ColumnKind::DateTime => format!(
            "CASE WHEN {} THEN (left(rtrim({text}, 'Z'), 26) || 'Z')::timestamptz END",
            is("DateTime")
        ),
        ColumnKind::Guid => format!("CASE WHEN {} THEN {text}::uuid END", is("Guid")),
        ColumnKind::Binary => format!("CASE WHEN {} THEN decode({text}, 'base64') END", is("Binary")),
        ColumnKind::Mixed => format!("CASE WHEN {} THEN {readable} ELSE {text} END", is("String")),
    }
}
