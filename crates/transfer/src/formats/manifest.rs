//! The manifest of AzCopy: the table that data files are of, and how many there must be.

use std::path::{Path, PathBuf};

use serde::Deserialize;

use super::opening;
use crate::error::{TransferError, TransferResult};

/// A manifest. Its checksums are not checked: how they are computed is not published.
#[derive(Debug, Deserialize)]
#[serde(rename_all = "PascalCase")]
pub(super) struct AzCopyManifest {
    account_name: String,
    pub table_name: String,
    total_data_files: usize,
    #[serde(skip)]
    path: PathBuf,
}

/// Whether a text begins as a manifest does.
pub(super) fn is_manifest(beginning: &str) -> bool {
    beginning.starts_with('{')
        && beginning.contains("\"TotalDataFiles\"")
        && beginning.contains("\"TableName\"")
}

impl AzCopyManifest {
    /// Reads a manifest.
    pub(super) fn read(path: &Path) -> TransferResult<Self> {
        let text = opening::beginning(path)?;
        let read = serde_json::from_str(&text);
        let manifest: Self =
            read.map_err(|error| TransferError::Failed(format!("{}: {error}", path.display())))?;
        Ok(Self { path: path.to_owned(), ..manifest })
    }

    /// Whether a data file is of this table, by its name.
    pub(super) fn has(&self, file: &Path) -> bool {
        let name = file.file_name().unwrap_or_default().to_string_lossy();
        name.starts_with(&format!("{}_{}_", self.account_name, self.table_name))
    }

    /// Checks that all data files are there.
    pub(super) fn check(&self, files: usize) -> TransferResult<()> {
        if files == self.total_data_files {
            return Ok(());
        }
        let (path, total) = (self.path.display(), self.total_data_files);
        Err(TransferError::Failed(format!("{path} lists {total} data files, but there are {files}")))
    }
}
