//! CSV of Storage Explorer and AzCopy: columns of values and optionally of their types.

mod records;

use std::collections::BTreeSet;
use std::path::Path;

use crate::contract::Rejected;
use crate::error::TransferResult;
use crate::formats::assembly::{Assembly, TAG, TIMESTAMP, is_of_powershell, known_type};
use crate::formats::csv::records::{CsvForm, LineEnd, Record, Records};
use crate::formats::files::file_error;
use crate::formats::staging::Staging;
use crate::formats::{FileOptions, files};
use crate::protocol::model::EdmType;
use crate::rows::Row;
use crate::rows::type_inference::TableNotes;

const TYPE_SUFFIX: &str = "@type";

struct Column {
    name: String,
    at: usize,
    /// The index of the column with the types.
    types: Option<usize>,
    /// The first type in the column: some files state a type in some rows only.
    first: Option<String>,
}

pub(super) fn import(path: &Path, options: &FileOptions, staging: &mut Staging) -> TransferResult<()> {
    let no_keys = || file_error(path, &"it has no columns PartitionKey and RowKey");
    let form = CsvForm::detect(&files::read_beginning(path)?).ok_or_else(no_keys)?;
    let mut records = Records::open(path, form)?;
    let mut record = Record::default();
    records.next(&mut record)?;
    let names: Vec<String> = record.values().map(str::to_owned).collect();
    if !names.iter().any(|name| name == "PartitionKey") || !names.iter().any(|name| name == "RowKey") {
        return Err(no_keys());
    }
    let mut seen = BTreeSet::new();
    if let Some(name) = names.iter().find(|name| !name.is_empty() && !seen.insert(*name)) {
        return Err(file_error(path, &format!("the column {name} occurs twice")));
    }
    let mut columns = columns(&names, &types_beside(path, &names)?);
    if is_of_powershell(|name| names.iter().any(|other| other == name)) {
        columns.retain(|column| column.name != TAG);
        let time = columns.iter_mut().find(|column| column.name == TIMESTAMP);
        time.into_iter().for_each(|column| column.name = "Timestamp".into());
    }
    find_types(&mut columns, Records::open(path, form)?)?;
    let (mut short, mut empty) = (0_u64, 0_u64);
    while records.next(&mut record)? {
        if record.is_empty() {
            empty += 1;
            continue;
        }
        let (has, wanted) = (record.len(), names.len());
        let row = if has > wanted {
            Err(format!("it has {has} values for {wanted} columns"))
        } else if !record.is_terminated {
            Err("the file ends inside this row; if the row is complete, add a line end after it".into())
        } else {
            short += u64::from(has < wanted);
            row(&record, &columns, options, staging.notes())
        };
        let text = || record.values().collect::<Vec<_>>().join(",");
        staging.add(row.map_err(|reason| Rejected { entity: text(), reason }))?;
    }
    if empty > 0 {
        staging.remark(format!("{}: {empty} rows have no value, and were left out", path.display()));
    }
    if short > 0 {
        let text = "rows have fewer values than columns; their entities lack the properties of the other \
             columns";
        staging.remark(format!("{}: {short} {text}", path.display()));
    }
    Ok(())
}

/// Returns the columns of values. `stated` are the types from the schema file.
fn columns(names: &[String], stated: &[Option<String>]) -> Vec<Column> {
    let types = |name: &str| names.iter().position(|other| other.strip_suffix(TYPE_SUFFIX) == Some(name));
    let is_value = |name: &&String| {
        !name.ends_with(TYPE_SUFFIX) || !names.iter().any(|n| name.strip_suffix(TYPE_SUFFIX) == Some(n))
    };
    let column = |(at, name): (usize, &String)| Column {
        name: name.clone(),
        at,
        types: types(name),
        first: stated.get(at).cloned().flatten(),
    };
    (0..).zip(names).filter(|(_, name)| is_value(name)).map(column).collect()
}

/// Finds the first type of each column with types.
fn find_types(columns: &mut [Column], mut records: Records) -> TransferResult<()> {
    let mut record = Record::default();
    records.next(&mut record)?;
    let lacks_type = |column: &Column| column.types.is_some() && column.first.is_none();
    while columns.iter().any(lacks_type) && records.next(&mut record)? {
        for column in columns.iter_mut().filter(|column| lacks_type(column)) {
            let stated = column.types.and_then(|at| record.get(at)).filter(|stated| !stated.is_empty());
            column.first = stated.map(str::to_owned);
        }
    }
    Ok(())
}

fn row(
    record: &Record,
    columns: &[Column],
    options: &FileOptions,
    notes: TableNotes<'_>,
) -> Result<Row, String> {
    let mut entity = Assembly::new(notes);
    for column in columns {
        let name = column.name.as_str();
        let text = record.get(column.at).unwrap_or_default();
        let stated = column.types.and_then(|at| record.get(at)).filter(|stated| !stated.is_empty());
        let is_key = matches!(name, "PartitionKey" | "RowKey");
        // An empty value without a type is an absent property, whereas a String may be empty.
        if text.is_empty() && stated.is_none() && !is_key {
            continue;
        }
        if name == "Timestamp" {
            entity.timestamp(Some(text));
            continue;
        }
        if is_key {
            entity.text(name, None, text)?;
            continue;
        }
        let given = options.type_of(name).map(EdmType::name);
        let stated = stated.or(column.first.as_deref());
        if given.is_some() && stated.is_none() {
            entity.notes().given(name);
        }
        match stated.or(given) {
            Some("Null" | "Edm.Null") => {}
            Some(known) => entity.text(name, Some(known), text)?,
            None => {
                entity.notes().value(name, EdmType::String, false);
                entity.notes().string(name, text);
                entity.text(name, None, text)?;
            }
        }
    }
    entity.row()
}

/// Returns the types of the columns in the schema file `NAME.schema.csv` beside AzCopy's CSV, if it exists:
/// as a line of types below a line of names, as lines of a name and its type, or as one line in the order of
/// the columns.
fn types_beside(path: &Path, names: &[String]) -> TransferResult<Vec<Option<String>>> {
    let beside = path.with_extension("schema.csv");
    if !beside.is_file() || beside == path {
        return Ok(Vec::new());
    }
    let mut reader =
        Records::open(&beside, CsvForm { delimiter: b',', end: LineEnd::ReturnAndFeed, preamble: 0 })?;
    let (mut records, mut record) = (Vec::new(), Record::default());
    // The schema has at most one line for each column.
    while records.len() <= names.len() && reader.next(&mut record)? {
        records.push(std::mem::take(&mut record));
    }
    Ok(names.iter().enumerate().map(|(at, name)| type_of(&records, at, name)).collect())
}

fn type_of(records: &[Record], at: usize, name: &str) -> Option<String> {
    let known = |record: Option<&Record>, at: usize| {
        let text = record?.get(at)?.trim();
        known_type(text).map(|_| text.to_owned())
    };
    let named = records.first().and_then(|first| first.values().position(|column| column.trim() == name));
    let below = named.and_then(|column| known(records.get(1), column));
    let beside = || {
        let line = records.iter().find(|record| record.get(0).map(str::trim) == Some(name));
        known(line, 1)
    };
    below.or_else(beside).or_else(|| known(records.first(), at))
}
