//! Recognizing files by their names and their beginnings.

use std::path::Path;

use super::options::FileFormat;
use super::{manifest, opening};
use crate::error::TransferResult;

/// Extensions of files that are read in a folder.
const EXTENSIONS: [&str; 9] = ["json", "csv", "tsv", "txt", "ndjson", "jsonl", "manifest", "gz", "zst"];

/// The kind of a file, recognized by its beginning.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Recognized {
    Format(FileFormat),
    Manifest,
}

/// Whether the name of a file has an extension of those that are read in a folder.
pub(super) fn has_known_extension(path: &Path) -> bool {
    let extension = path.extension().unwrap_or_default().to_string_lossy().to_ascii_lowercase();
    EXTENSIONS.contains(&extension.as_str())
}

/// Recognizes a file by its beginning.
pub(super) fn recognized(path: &Path) -> TransferResult<Recognized> {
    let beginning = opening::beginning(path)?;
    let text = beginning.trim_start();
    Ok(match text.chars().next() {
        None => {
            return Err(opening::named(
                path,
                &"is empty; a file without entities must contain an empty list",
            ));
        }
        Some('{') if text.contains("\"$TABLES_COLLECTION$\"") || text.contains("\"databaseVersion\"") => {
            Recognized::Format(FileFormat::Azurite)
        }
        Some('{') if path.ends_with("__azurite_db_table__.json") => Recognized::Format(FileFormat::Azurite),
        Some('{') if manifest::is_manifest(text) => Recognized::Manifest,
        Some('{' | '[') => Recognized::Format(FileFormat::Json),
        _ => Recognized::Format(FileFormat::Csv),
    })
}
