//! The contents of a dump that is read.

use std::path::{Path, PathBuf};
use std::sync::atomic::AtomicBool;

use super::manifest::{DumpPart, Manifest};
use crate::protocol::model::Key;

/// The tables and settings of a dump.
#[derive(Debug)]
pub(super) struct DumpContents {
    /// The service properties as stored JSON.
    pub properties: Option<String>,
    pub tables: Vec<DumpedTable>,
}

/// A table in a dump.
#[derive(Debug)]
pub(super) struct DumpedTable {
    pub name: String,
    pub entities: u64,
    /// The stored access policies as stored JSON.
    pub policies: Option<String>,
    /// Ascending by their keys, and disjoint.
    pub parts: Vec<DumpedPart>,
}

/// A file with entities of a table.
#[derive(Debug)]
pub(super) struct DumpedPart {
    pub file: PathBuf,
    /// Compressed bytes.
    pub bytes: u64,
    pub sha256: String,
    /// Whether the file was found to have this SHA-256.
    pub is_checked: AtomicBool,
    pub first: Key,
    pub last: Key,
}

impl DumpContents {
    /// Returns the contents that a manifest lists.
    pub(super) fn of(folder: &Path, manifest: Manifest) -> Self {
        let part = |part: DumpPart| DumpedPart {
            first: part.first_key(),
            last: part.last_key(),
            file: folder.join(part.file),
            bytes: part.bytes,
            sha256: part.sha256,
            is_checked: AtomicBool::new(false),
        };
        let tables = manifest.tables.into_iter().map(|table| DumpedTable {
            name: table.name,
            entities: table.entities,
            policies: table.policies,
            parts: table.parts.into_iter().map(part).collect(),
        });
        Self { properties: manifest.properties, tables: tables.collect() }
    }
}
