//! What a dump holds, and where.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::atomic::AtomicBool;

use super::manifest::{DumpPart, Manifest};
use crate::error::Error;
use crate::protocol::codec::policies::{self, Policy};
use crate::protocol::codec::properties::{self, ServiceProperties};
use crate::protocol::model::Key;
use crate::transfer::error::{TransferError, TransferResult};

/// What a dump holds.
#[derive(Debug, Default)]
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
    pub pieces: Vec<DumpPiece>,
}

/// Lines of a table that are beside each other in a file.
#[derive(Debug)]
pub(super) struct DumpPiece {
    pub file: PathBuf,
    /// Where the first frame begins.
    pub offset: u64,
    /// Compressed bytes.
    pub bytes: u64,
    /// To be checked before it is read.
    pub sha256: Option<String>,
    pub is_checked: AtomicBool,
    pub first: Key,
    pub last: Key,
}

impl DumpContents {
    /// Returns what a manifest lists.
    pub(super) fn of(folder: &Path, manifest: Manifest) -> Self {
        let piece = |part: DumpPart| DumpPiece {
            first: part.first_key(),
            last: part.last_key(),
            file: folder.join(part.file),
            offset: 0,
            bytes: part.bytes,
            sha256: Some(part.sha256),
            is_checked: AtomicBool::new(false),
        };
        let tables = manifest.tables.into_iter().map(|table| DumpedTable {
            name: table.name,
            entities: table.entities,
            policies: table.policies,
            pieces: table.parts.into_iter().map(piece).collect(),
        });
        Self { properties: manifest.properties, tables: tables.collect() }
    }
}

/// The settings in a dump that is being written.
#[derive(Default)]
pub(super) struct DumpSettings {
    /// The service properties as stored JSON.
    pub properties: Option<String>,
    /// The stored access policies of each table as stored JSON.
    pub tables: BTreeMap<String, Option<String>>,
}

impl DumpSettings {
    /// Adds a table, unless it is there.
    pub(super) fn create(&mut self, table: &str) {
        self.tables.entry(table.to_owned()).or_default();
    }

    pub(super) fn set_policies(&mut self, table: &str, policies: &[Policy]) -> TransferResult<()> {
        let stored = policies::to_stored(policies).map_err(failed)?;
        self.tables.insert(table.to_owned(), Some(stored));
        Ok(())
    }

    pub(super) fn set_properties(&mut self, wanted: &ServiceProperties) -> TransferResult<()> {
        self.properties = Some(properties::to_stored(wanted).map_err(failed)?);
        Ok(())
    }
}

fn failed(error: Error) -> TransferError {
    TransferError::Failed(error.text().to_owned())
}
