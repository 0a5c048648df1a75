//! The form of a dump in one file.
//!
//! Lines of JSON, compressed with zstd. Entities are as in the parts of a folder, table after table, and
//! each begins with the name of its table, as `odata.type`. The first line has the version of the
//! form. The last one has what the manifest of a folder has, and the SHA-256 of all lines before it. The
//! first line, the last one and each page of entities is a frame of its own.

use std::fs::File;
use std::io::Read as _;
use std::path::Path;

use serde::{Deserialize, Serialize};
use zstd::stream::read::Decoder;

/// How the names of such files end, and those of the parts of a folder.
pub(super) const EXTENSION: &str = ".ndjson.zst";
/// How the first line begins.
const BEGINNING: &str = "{\"rowhouse-dump\":";
/// How the last line begins.
pub(super) const END: &str = "{\"rowhouse-dump-end\":";
pub(super) const SINGLE_VERSION: u32 = 1;

/// The first line.
#[derive(Debug, Serialize, Deserialize)]
pub(super) struct FirstLine {
    #[serde(rename = "rowhouse-dump")]
    pub about: AboutDump,
}

/// What the first line says.
#[derive(Debug, Serialize, Deserialize)]
pub(super) struct AboutDump {
    pub version: u32,
    /// When it was begun.
    pub created: String,
}

/// The last line.
#[derive(Debug, Serialize, Deserialize)]
pub(super) struct LastLine {
    #[serde(rename = "rowhouse-dump-end")]
    pub list: DumpList,
}

/// What the last line lists.
#[derive(Debug, Serialize, Deserialize)]
pub(super) struct DumpList {
    /// The service properties as stored JSON.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub properties: Option<String>,
    /// In the order of their names.
    pub tables: Vec<ListedTable>,
    /// Of all lines before, with their ends.
    pub sha256: String,
}

/// A table in the last line.
#[derive(Debug, Serialize, Deserialize)]
pub(super) struct ListedTable {
    pub name: String,
    pub entities: u64,
    /// The stored access policies as stored JSON.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub policies: Option<String>,
}

/// Whether a path is named as dumps in one file are.
pub(crate) fn names_single(path: &Path) -> bool {
    path.as_os_str().to_string_lossy().ends_with(EXTENSION) && !path.is_dir()
}

/// Whether a file begins as a dump in one file.
pub(crate) fn is_single(path: &Path) -> bool {
    let beginning = || -> std::io::Result<Vec<u8>> {
        let mut bytes = Vec::new();
        Decoder::new(File::open(path)?)?.take(BEGINNING.len() as u64).read_to_end(&mut bytes)?;
        Ok(bytes)
    };
    path.is_file() && beginning().is_ok_and(|bytes| bytes == BEGINNING.as_bytes())
}
