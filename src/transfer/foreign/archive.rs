//! Folders of azure-table-archiver: `table/PartitionKey/RowKey.json`, a file for each entity.

use std::path::Path;

use serde_json::{Map, Value};

use super::staging::Staging;
use super::{FileOptions, members, opening};
use crate::transfer::endpoint::{Rejected, TransferResult};

/// Whether a text is such an entity: each property is an object with the number of its type.
pub(super) fn is_entity(beginning: &str) -> bool {
    let text = beginning.trim_start();
    text.starts_with('{')
        && serde_json::from_str::<Map<String, Value>>(text)
            .is_ok_and(|members| members.values().any(|value| value["EdmType"].is_u64()))
}

/// Reads an entity. Keys that it lacks come from the path.
///
/// # Errors
/// [`TransferError`](crate::transfer::TransferError) if the file cannot be read.
pub(super) fn import(
    path: &Path,
    table: &str,
    options: &FileOptions,
    staging: &mut Staging,
) -> TransferResult<()> {
    staging.begin(table)?;
    let read: Result<Map<String, Value>, _> = serde_json::from_reader(opening::open_text(path)?);
    let reject = |reason: String| Rejected { entity: path.display().to_string(), reason };
    let mut entity = match read {
        Ok(entity) => entity,
        Err(error) => return staging.add(Err(reject(error.to_string()))),
    };
    let name = |path: Option<&std::ffi::OsStr>| path.and_then(|name| name.to_str()).map(str::to_owned);
    let told =
        [("PartitionKey", name(path.parent().and_then(Path::file_name))), ("RowKey", name(path.file_stem()))];
    for (key, told) in told {
        if entity.contains_key(key) {
            continue;
        }
        let Some(told) = told else {
            return staging.add(Err(reject(format!("it has no {key}, and its path is no text"))));
        };
        entity.insert(key.to_owned(), told.into());
    }
    let row = members::entity(&Value::Object(entity), options, staging.inferences());
    staging.add(row)
}
