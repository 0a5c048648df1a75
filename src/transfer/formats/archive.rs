//! Folders of azure-table-archiver: `table/PartitionKey/RowKey.json`, a file for each entity.

use std::path::Path;

use serde_json::{Map, Value};

use super::object::Object;
use super::options::FileOptions;
use super::staging::Staging;
use super::{members, opening};
use crate::transfer::contract::Rejected;
use crate::transfer::error::TransferResult;
use crate::transfer::rows::row::Row;

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
pub(super) fn import(path: &Path, options: &FileOptions, staging: &mut Staging) -> TransferResult<()> {
    let text = opening::whole(path)?;
    let row = read(path, &text, options, staging);
    staging.add(row.map_err(|reason| Rejected { entity: path.display().to_string(), reason }))
}

fn read(path: &Path, text: &str, options: &FileOptions, staging: &mut Staging) -> Result<Row, String> {
    let mut entity = Object::of(text.as_bytes())?;
    let name = |path: Option<&std::ffi::OsStr>| path.and_then(|name| name.to_str()).map(str::to_owned);
    let stated =
        [("PartitionKey", name(path.parent().and_then(Path::file_name))), ("RowKey", name(path.file_stem()))];
    let quoted = stated.map(|(key, stated)| (key, stated.map(|stated| Value::from(stated).to_string())));
    for (key, stated) in &quoted {
        if entity.get(key).is_none() {
            let stated =
                stated.as_deref().ok_or_else(|| format!("it has no {key}, and its path is no text"))?;
            entity.push(key, stated);
        }
    }
    members::entity(&entity, options, staging.notes())
}
