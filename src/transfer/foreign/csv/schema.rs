//! The file beside AzCopy's CSV with the types of its columns, `NAME.schema.csv`.

use std::path::Path;

use csv::StringRecord;

use crate::model::EdmType;
use crate::transfer::endpoint::{TransferError, TransferResult};
use crate::transfer::foreign::opening;

/// Returns the type of each column, if a file beside `path` has it: as a line of types below one
/// of names, as lines of a name and its type, or as one line in the order of the columns.
///
/// # Errors
/// [`TransferError`] if there is such a file, and it cannot be read.
pub(super) fn types_beside(path: &Path, names: &[String]) -> TransferResult<Vec<Option<String>>> {
    let beside = path.with_extension("schema.csv");
    if !beside.is_file() || beside == path {
        return Ok(Vec::new());
    }
    let wrong = |error: csv::Error| TransferError::Endpoint(format!("{}: {error}", beside.display()));
    let file = opening::open_text(&beside)?;
    let records =
        csv::ReaderBuilder::new().has_headers(false).flexible(true).from_reader(file).into_records();
    let records: Vec<StringRecord> = records.collect::<Result<_, _>>().map_err(wrong)?;
    Ok(names.iter().enumerate().map(|(at, name)| type_of(&records, at, name)).collect())
}

fn type_of(records: &[StringRecord], at: usize, name: &str) -> Option<String> {
    let known = |record: Option<&StringRecord>, at: usize| {
        let text = record?.get(at)?.trim();
        let full = format!("Edm.{}", text.trim_start_matches("Edm."));
        EdmType::ALL.iter().any(|known| known.name() == full).then(|| text.to_owned())
    };
    let named = records.first().and_then(|first| first.iter().position(|column| column.trim() == name));
    let below = named.and_then(|column| known(records.get(1), column));
    let beside = || {
        let line = records.iter().find(|record| record.get(0).map(str::trim) == Some(name));
        known(line, 1)
    };
    below.or_else(beside).or_else(|| known(records.first(), at))
}
