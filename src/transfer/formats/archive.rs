//! Folders of azure-table-archiver: `table/PartitionKey/RowKey.json`, a file for each entity.

use std::path::Path;

use serde_json::Value;

use super::object::Object;
use super::options::FileOptions;
use super::staging::Staging;
use super::{members, opening};
use crate::transfer::contract::Rejected;
use crate::transfer::error::TransferResult;
use crate::transfer::rows::row::Row;

/// Whether a text is such an entity, with properties.
pub(super) fn is_entity(text: &str) -> bool {
    Object::of(text.as_bytes()).is_ok_and(|entity| has_types(&entity))
}

/// Whether a property is an object with the number of its type.
fn has_types(entity: &Object<'_>) -> bool {
    let is_typed = |raw: &str| {
        let value = Object::of(raw.as_bytes());
        value.is_ok_and(|value| value.get("EdmType").is_some_and(|number| number.parse::<u64>().is_ok()))
    };
    entity.iter().any(|(_, raw)| is_typed(raw))
}

/// Whether it has the keys and the Timestamp at most.
fn has_no_properties(entity: &Object<'_>) -> bool {
    entity.iter().all(|(name, _)| matches!(name, "PartitionKey" | "RowKey" | "Timestamp"))
}

/// Reads an entity. Keys that it lacks come from the path. What is none is rejected.
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
    if !has_types(&entity) && !has_no_properties(&entity) {
        return Err("it is no entity of an archive: none of its properties has an EdmType".into());
    }
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
