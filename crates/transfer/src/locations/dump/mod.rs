//! Dumps: folders of compressed newline-delimited JSON.
//!
//! `manifest.json` lists the tables with their policies, and the parts of each with its first and last
//! key, number of entities and SHA-256. A part is a sequence of zstd frames, one for each page, which
//! `zstdcat` reads; its lines are in the order of keys. A folder without a manifest is incomplete.

mod part;
mod read;
mod write;

use std::fs::File;
use std::io::{Read, Write as _};
use std::path::Path;
use std::sync::atomic::AtomicBool;

use serde::{Deserialize, Serialize};
use sha2::{Digest as _, Sha256};

use crate::error::{TransferResult, failed};
use crate::protocol::model::Key;
pub(crate) use read::DumpSource;
pub(crate) use write::DumpTarget;

pub(crate) const MANIFEST: &str = "manifest.json";
const FORMAT: &str = "rowhouse-dump";
const VERSION: u32 = 1;
/// Maximum bytes of a manifest, which has room for a million parts.
const MAX_MANIFEST_BYTES: u64 = 1 << 29;
/// Maximum bytes of a line, which has room for an entity of 1 MiB in base64 or with every character escaped.
const MAX_LINE_BYTES: u64 = 16 << 20;

#[derive(Debug, Serialize, Deserialize)]
struct Manifest {
    format: String,
    version: u32,
    created: String,
    /// A hash that identifies the copy that wrote the dump.
    #[serde(skip_serializing_if = "Option::is_none")]
    origin: Option<String>,
    /// The service properties as stored JSON.
    #[serde(skip_serializing_if = "Option::is_none")]
    properties: Option<String>,
    tables: Vec<DumpTable>,
}

#[derive(Debug, Serialize, Deserialize)]
struct DumpTable {
    name: String,
    entities: u64,
    /// The stored access policies as stored JSON.
    #[serde(skip_serializing_if = "Option::is_none")]
    policies: Option<String>,
    /// Ascending by their keys, and disjoint.
    parts: Vec<DumpPart>,
}

/// A file with entities of a table.
#[derive(Debug, Serialize, Deserialize)]
struct DumpPart {
    /// Relative to the dump's folder.
    file: String,
    entities: u64,
    /// Of the compressed file.
    bytes: u64,
    sha256: String,
    #[serde(with = "key_pair")]
    first: Key,
    #[serde(with = "key_pair")]
    last: Key,
    /// Whether the SHA-256 of the file was verified.
    #[serde(skip)]
    is_checked: AtomicBool,
}

/// Serializes a key as a list of its PartitionKey and RowKey.
mod key_pair {
    use serde::{Deserialize, Deserializer, Serialize as _, Serializer};

    use crate::protocol::model::Key;

    pub(super) fn serialize<S: Serializer>(key: &Key, serializer: S) -> Result<S::Ok, S::Error> {
        [&key.partition, &key.row].serialize(serializer)
    }

    pub(super) fn deserialize<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Key, D::Error> {
        let [partition, row] = <[String; 2]>::deserialize(deserializer)?;
        Ok(Key { partition, row })
    }
}

impl Manifest {
    fn read(folder: &Path) -> TransferResult<Self> {
        let path = folder.join(MANIFEST);
        let wrong = |reason: String| failed!("{}: {reason}", path.display());
        let file = File::open(&path).map_err(|error| wrong(format!("{error}; the dump is incomplete")))?;
        let mut text = String::new();
        file.take(MAX_MANIFEST_BYTES).read_to_string(&mut text).map_err(|error| wrong(error.to_string()))?;
        let manifest: Self = serde_json::from_str(&text).map_err(|error| wrong(error.to_string()))?;
        if manifest.format != FORMAT || manifest.version != VERSION {
            return Err(wrong(format!("is not a {FORMAT} of version {VERSION}")));
        }
        let is_inside = |part: &DumpPart| {
            Path::new(&part.file).components().all(|part| matches!(part, std::path::Component::Normal(_)))
        };
        match manifest.tables.iter().flat_map(|table| &table.parts).find(|part| !is_inside(part)) {
            Some(part) => Err(wrong(format!("the file {} lies outside of the dump", part.file))),
            None => Ok(manifest),
        }
    }

    /// Writes the manifest, once all files that it lists are complete.
    fn write(&self, folder: &Path) -> TransferResult<()> {
        let partial = folder.join(format!("{MANIFEST}.partial"));
        let text = serde_json::to_string_pretty(self).map_err(|error| failed!("{error}"))?;
        let mut file = File::create(&partial)?;
        file.write_all(text.as_bytes())?;
        file.write_all(b"\n")?;
        file.sync_all()?;
        std::fs::rename(&partial, folder.join(MANIFEST))?;
        Ok(File::open(folder)?.sync_all()?)
    }
}

/// Returns the origin of a complete dump, if its manifest states it.
pub(crate) fn origin(folder: &Path) -> TransferResult<Option<String>> {
    Ok(Manifest::read(folder)?.origin)
}

pub(crate) fn hex(digest: Sha256) -> String {
    digest.finalize().iter().map(|byte| format!("{byte:02x}")).collect()
}

/// Reads to the end, and returns the SHA-256.
pub(crate) fn digest(file: &mut impl Read) -> std::io::Result<Sha256> {
    let mut digest = Sha256::new();
    let mut buffer = vec![0; 1 << 16];
    loop {
        match file.read(&mut buffer)? {
            0 => return Ok(digest),
            read => digest.update(&buffer[..read]),
        }
    }
}
