//! Storage Explorer's CSV: columns of values, and optional columns of their types.

use std::fs::File;
use std::io::{BufRead as _, BufReader, Seek as _};
use std::path::Path;

use serde_json::{Map, Value};

use super::staging::Staging;
use super::{FileOptions, members};
use crate::codec::stored::ANNOTATION;
use crate::model::EdmType;
use crate::transfer::endpoint::{Rejected, TransferError, TransferResult};
use crate::transfer::row::Row;

/// Possible delimiters of columns.
const DELIMITERS: [u8; 4] = [b',', b';', b'\t', b'|'];
/// Suffix of the name of a column that has the types of another.
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
    staging.begin(table)?;
    let mut file = BufReader::new(File::open(path)?);
    let mut header = String::new();
    file.read_line(&mut header)?;
    file.rewind()?;
    let count = |delimiter: &u8| header.bytes().filter(|byte| byte == delimiter).count();
    let delimiter = DELIMITERS.into_iter().max_by_key(count).unwrap_or(b',');
    let mut reader = csv::ReaderBuilder::new().delimiter(delimiter).flexible(true).from_reader(file);
    let names: Vec<String> = reader
        .headers()
        .map_err(|error| wrong(error.to_string()))?
        .iter()
        .map(|n| n.trim_start_matches('\u{feff}').to_owned())
        .collect();
    if !names.iter().any(|name| name == "PartitionKey") || !names.iter().any(|name| name == "RowKey") {
        return Err(wrong("it has no columns PartitionKey and RowKey".into()));
    }
    let types = |name: &str| names.iter().position(|other| other.strip_suffix(TYPE) == Some(name));
    let is_value =
        |name: &&String| !name.ends_with(TYPE) || !names.iter().any(|n| name.strip_suffix(TYPE) == Some(n));
    let mut columns: Vec<Column> = (0..)
        .zip(&names)
        .filter(|(_, name)| is_value(name))
        .map(|(at, name)| Column { name: name.clone(), at, types: types(name), first: None })
        .collect();
    for record in reader.records() {
        let record = record.map_err(|error| wrong(error.to_string()))?;
        staging.add(row(&record, &mut columns, options))?;
    }
    Ok(())
}

fn row(record: &csv::StringRecord, columns: &mut [Column], options: &FileOptions) -> Result<Row, Rejected> {
    let mut entity = Map::new();
    for column in columns {
        let text = record.get(column.at).unwrap_or_default();
        let told = column.types.and_then(|at| record.get(at)).filter(|told| !told.is_empty());
        if let (Some(told), None) = (told, &column.first) {
            column.first = Some(told.to_owned());
        }
        if matches!(column.name.as_str(), "PartitionKey" | "RowKey") {
            entity.insert(column.name.clone(), text.into());
            continue;
        }
        if text.is_empty() && told.is_none() {
            continue;
        }
        if column.name == "Timestamp" {
            entity.insert(column.name.clone(), text.into());
            continue;
        }
        let wanted = options.types.iter().find(|(name, _)| *name == column.name);
        let wanted = wanted.map(|(_, edm_type)| edm_type.name());
        let told = told.or(column.first.as_deref().filter(|_| column.types.is_some())).or(wanted);
        let edm_type = told.unwrap_or("String").trim_start_matches("Edm.").to_owned();
        let value = match edm_type.as_str() {
            "Int32" => text.parse::<i32>().map_or_else(|_| text.into(), Value::from),
            "Boolean" => match text.to_ascii_lowercase().as_str() {
                "true" => true.into(),
                "false" => false.into(),
                _ => text.into(),
            },
            _ => Value::from(text),
        };
        if edm_type != "String" && edm_type != "Null" {
            let full = EdmType::ALL.iter().find(|known| known.name() == format!("Edm.{edm_type}"));
            let full = full.map_or_else(|| format!("Edm.{edm_type}"), |known| known.name().to_owned());
            entity.insert(format!("{}{ANNOTATION}", column.name), full.into());
        }
        if edm_type != "Null" {
            entity.insert(column.name.clone(), value);
        }
    }
    // These types are final; those of the options are for values without one.
    let decided = FileOptions { types: Vec::new(), ..options.clone() };
    members::entity(&Value::Object(entity), &decided)
}
