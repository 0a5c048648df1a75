//! CSV of Storage Explorer and AzCopy: columns of values, and perhaps of their types.

mod schema;

use std::path::Path;

use csv::StringRecord;
use serde_json::{Map, Value};

use super::staging::Staging;
use super::{FileOptions, members, opening};
use crate::codec::stored::ANNOTATION;
use crate::model::EdmType;
use crate::transfer::endpoint::{Rejected, TransferError, TransferResult};
use crate::transfer::row::Row;

/// What follows a column's name in the name of the column with its types.
const TYPE: &str = "@type";

/// A column of values.
struct Column {
    name: String,
    at: usize,
    /// The index of the column with the types.
    types: Option<usize>,
    /// The first type in the column: some files have a type in the first row only.
    first: Option<String>,
}

/// The form of a file.
struct CsvForm {
    delimiter: u8,
    /// Whether lines end with a carriage return and a line feed. One alone belongs to the value.
    has_returns: bool,
}

impl CsvForm {
    /// Finds the form by the line with the names of the columns.
    fn of(header: &str) -> Option<Self> {
        let line = header.split('\n').next()?;
        let has_returns = line.ends_with('\r');
        let line = line.trim_end_matches('\r');
        let at = line.find("PartitionKey")?;
        let after = line[at + "PartitionKey".len()..].trim_start_matches('"').bytes().next();
        let before = line[..at].trim_end_matches('"').bytes().last();
        // Names of properties are made of letters, digits and underscores.
        let delimiter = after.filter(|byte| *byte != b'@').or(before)?;
        (!delimiter.is_ascii_alphanumeric() && delimiter.is_ascii())
            .then_some(Self { delimiter, has_returns })
    }

    /// Takes the carriage return off the last value of a line.
    fn trim<'r>(&self, record: &'r StringRecord, at: usize) -> Option<&'r str> {
        let text = record.get(at)?;
        let is_last = at + 1 == record.len() && self.has_returns;
        Some(if is_last { text.strip_suffix('\r').unwrap_or(text) } else { text })
    }
}

/// Reads the entities of a file.
///
/// # Errors
/// [`TransferError`] if it is not CSV with the keys among its columns.
pub(super) fn import(
    path: &Path,
    table: &str,
    options: &FileOptions,
    staging: &mut Staging,
) -> TransferResult<()> {
    let wrong = |reason: String| TransferError::Endpoint(format!("{}: {reason}", path.display()));
    let no_keys = || wrong("it has no columns PartitionKey and RowKey".into());
    staging.begin(table)?;
    let form = CsvForm::of(&opening::beginning(path)?).ok_or_else(no_keys)?;
    let mut reader = csv::ReaderBuilder::new()
        .delimiter(form.delimiter)
        .terminator(csv::Terminator::Any(b'\n'))
        .flexible(true)
        .from_reader(opening::open_text(path)?);
    let headers = reader.headers().map_err(|error| wrong(error.to_string()))?.clone();
    let names: Vec<String> =
        (0..headers.len()).filter_map(|at| form.trim(&headers, at)).map(str::to_owned).collect();
    if !names.iter().any(|name| name == "PartitionKey") || !names.iter().any(|name| name == "RowKey") {
        return Err(no_keys());
    }
    let mut columns = columns(&names, &schema::types_beside(path, &names)?);
    for record in reader.records() {
        let record = record.map_err(|error| wrong(error.to_string()))?;
        if record.len() == 1 && form.trim(&record, 0) == Some("") {
            continue;
        }
        let row = if record.len() > names.len() {
            Err(Rejected {
                entity: record.iter().collect::<Vec<_>>().join(","),
                reason: format!("it has {} values for {} columns", record.len(), names.len()),
            })
        } else {
            let values: Vec<Option<&str>> = (0..names.len()).map(|at| form.trim(&record, at)).collect();
            row(&values, &mut columns, options, staging.inferences())
        };
        staging.add(row)?;
    }
    Ok(())
}

/// Returns the columns of values. `told`: types from the file beside it.
fn columns(names: &[String], told: &[Option<String>]) -> Vec<Column> {
    let types = |name: &str| names.iter().position(|other| other.strip_suffix(TYPE) == Some(name));
    let is_value =
        |name: &&String| !name.ends_with(TYPE) || !names.iter().any(|n| name.strip_suffix(TYPE) == Some(n));
    let column = |(at, name): (usize, &String)| Column {
        name: name.clone(),
        at,
        types: types(name),
        first: told.get(at).cloned().flatten(),
    };
    (0..).zip(names).filter(|(_, name)| is_value(name)).map(column).collect()
}

fn row(
    values: &[Option<&str>],
    columns: &mut [Column],
    options: &FileOptions,
    mut note: impl FnMut(&str, EdmType, bool),
) -> Result<Row, Rejected> {
    let mut entity = Map::new();
    for column in columns {
        let value = |at: usize| values.get(at).copied().flatten().unwrap_or_default();
        let text = value(column.at);
        let told = column.types.map(value).filter(|told| !told.is_empty());
        if let (Some(told), None) = (told, &column.first) {
            column.first = Some(told.to_owned());
        }
        let is_system = matches!(column.name.as_str(), "PartitionKey" | "RowKey");
        // No value without a type is no property; a string may be empty.
        if text.is_empty() && told.is_none() && !is_system {
            continue;
        }
        if is_system || column.name == "Timestamp" {
            entity.insert(column.name.clone(), text.into());
            continue;
        }
        let wanted = options.types.iter().find(|(name, _)| *name == column.name);
        let wanted = wanted.map(|(_, edm_type)| edm_type.name());
        let known = told.or(column.first.as_deref()).or(wanted);
        if known.is_none() {
            note(&column.name, EdmType::String, false);
        }
        typed(&mut entity, &column.name, known.unwrap_or("String"), text);
    }
    // These types are final; those of the options are for values without one.
    let decided = FileOptions { types: Vec::new(), ..options.clone() };
    members::entity(&Value::Object(entity), &decided, |_, _, _| {})
}

/// Adds a value of a type, which is `Edm.Int32` or `Int32`.
fn typed(entity: &mut Map<String, Value>, name: &str, edm_type: &str, text: &str) {
    let short = edm_type.trim_start_matches("Edm.");
    let value = match short {
        "Null" => return,
        "Int32" => text.parse::<i32>().map_or_else(|_| text.into(), Value::from),
        "Boolean" => match text.to_ascii_lowercase().as_str() {
            "true" => true.into(),
            "false" => false.into(),
            _ => text.into(),
        },
        _ => Value::from(text),
    };
    if short != "String" {
        entity.insert(format!("{name}{ANNOTATION}"), format!("Edm.{short}").into());
    }
    entity.insert(name.to_owned(), value);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_form_is_found_by_the_names_of_the_columns() {
        let form = |header: &str| CsvForm::of(header).map(|form| (form.delimiter, form.has_returns));
        for (header, expected) in [
            ("PartitionKey,RowKey\n", Some((b',', false))),
            ("\"PartitionKey\"\t\"RowKey\"\r\na\r", Some((b'\t', true))),
            ("Age^PartitionKey^RowKey\r\n", Some((b'^', true))),
            ("RowKey~PartitionKey\n", Some((b'~', false))),
            ("a,b\n", None),
            ("PartitionKeys,b\n", None),
        ] {
            assert_eq!(form(header), expected, "{header:?}");
        }
    }
}
