//! The file beside AzCopy's CSV with the types of its columns, `NAME.schema.csv`.

use std::path::Path;

use super::records::{CsvForm, LineEnd, Record, Records};
use crate::error::TransferResult;
use crate::formats::assembly::known_type;

/// Returns the type of each column, if a file beside `path` has it: as a line of types below one
/// of names, as lines of a name and its type, or as one line in the order of the columns.
///
/// # Errors
/// [`TransferError`](crate::TransferError) if there is such a file, and it cannot be read.
pub(super) fn types_beside(path: &Path, names: &[String]) -> TransferResult<Vec<Option<String>>> {
    let beside = path.with_extension("schema.csv");
    if !beside.is_file() || beside == path {
        return Ok(Vec::new());
    }
    let mut reader =
        Records::open(&beside, CsvForm { delimiter: b',', end: LineEnd::ReturnAndFeed, preamble: 0 })?;
    let (mut records, mut record) = (Vec::new(), Record::default());
    // It has a line for each column at most.
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
