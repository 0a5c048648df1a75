//! Opens, recognizes and hashes files of other programs.

use std::fs::File;
use std::io::{BufRead, BufReader, Read as _, Seek as _, SeekFrom};
use std::path::{Path, PathBuf};
use std::time::UNIX_EPOCH;

use flate2::bufread::MultiGzDecoder;
use serde::Deserialize;
use sha2::{Digest as _, Sha256};
use zstd::stream::read::Decoder;

use crate::error::{TransferError, TransferResult, failed};
use crate::locations::dump::{MANIFEST, digest, hex};
use crate::locations::location::DataLocation;
use crate::protocol::model::EdmType;

/// The format of a file.
#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
pub enum FileFormat {
    /// Recognize the format by the content
    Auto,
    /// Azurite's workspace file, __azurite_db_table__.json
    Azurite,
    /// Arrays, lists or lines of entities: AzCopy, Storage Explorer, az, parts of dumps, and others
    Json,
    /// CSV of Storage Explorer or AzCopy, with or without types
    Csv,
    /// A manifest of AzCopy, which is only recognized.
    #[value(skip)]
    Manifest,
}

#[derive(Debug, Clone)]
pub struct FileOptions {
    pub format: FileFormat,
    /// The table of files whose names do not contain it.
    pub table: Option<String>,
    /// Types of properties for which the file has none.
    pub types: Vec<(String, EdmType)>,
}

impl FileOptions {
    /// Returns the type that was given for a property.
    pub(super) fn type_of(&self, property: &str) -> Option<EdmType> {
        self.types.iter().find(|(name, _)| name == property).map(|(_, edm_type)| *edm_type)
    }
}

/// Members that identify a manifest.
const MANIFEST_MEMBERS: [&str; 2] = ["\"TotalDataFiles\"", "\"TableName\""];
/// Extensions of files that are read in a folder.
const EXTENSIONS: [&str; 9] = ["json", "csv", "tsv", "txt", "ndjson", "jsonl", "manifest", "gz", "zst"];

pub(super) fn has_known_extension(path: &Path) -> bool {
    let extension = path.extension().unwrap_or_default().to_string_lossy().to_ascii_lowercase();
    EXTENSIONS.contains(&extension.as_str())
}

pub(super) fn recognize(path: &Path) -> TransferResult<FileFormat> {
    let beginning = read_beginning(path)?;
    let text = beginning.trim_start();
    Ok(match text.chars().next() {
        None => {
            return Err(file_error(path, &"is empty; a file without entities must contain an empty list"));
        }
        Some('{') if text.contains("\"$TABLES_COLLECTION$\"") || text.contains("\"databaseVersion\"") => {
            FileFormat::Azurite
        }
        Some('{') if path.ends_with("__azurite_db_table__.json") => FileFormat::Azurite,
        Some('{') if MANIFEST_MEMBERS.iter().all(|name| text.contains(name)) => FileFormat::Manifest,
        Some('{' | '[') => FileFormat::Json,
        _ => FileFormat::Csv,
    })
}

/// A manifest. Its checksums are not checked, because their algorithm is not published.
#[derive(Debug, Deserialize)]
#[serde(rename_all = "PascalCase")]
pub(super) struct AzCopyManifest {
    account_name: String,
    pub table_name: String,
    total_data_files: usize,
    #[serde(skip)]
    path: PathBuf,
}

impl AzCopyManifest {
    pub(super) fn read(path: &Path) -> TransferResult<Self> {
        let text = read_beginning(path)?;
        let read = serde_json::from_str(&text);
        let manifest: Self = read.map_err(|error| failed!("{}: {error}", path.display()))?;
        Ok(Self { path: path.to_owned(), ..manifest })
    }

    /// Whether a data file belongs to this table, by its name.
    pub(super) fn has(&self, file: &Path) -> bool {
        let name = file.file_name().unwrap_or_default().to_string_lossy();
        name.starts_with(&format!("{}_{}_", self.account_name, self.table_name))
    }

    pub(super) fn check(&self, files: usize) -> TransferResult<()> {
        if files == self.total_data_files {
            return Ok(());
        }
        let (path, total) = (self.path.display(), self.total_data_files);
        Err(failed!("{path} lists {total} data files, but there are {files}"))
    }
}

/// Bytes of the beginning that identifies the format of a file.
const BEGINNING_BYTES: u64 = 1 << 16;
/// Maximum bytes of an entity in a file: twice the size of the largest entity with binary values as lists of numbers.
pub(super) const MAX_ENTITY_TEXT: u64 = 32 << 20;
const GZIP: &[u8] = &[0x1f, 0x8b];
const ZSTD: &[u8] = &[0x28, 0xb5, 0x2f, 0xfd];
const SEVEN_ZIP: &[u8] = &[0x37, 0x7a, 0xbc, 0xaf];

/// Opens a file, and decompresses gzip or zstd content, whatever its name.
pub(super) fn open(path: &Path) -> TransferResult<Box<dyn BufRead>> {
    let wrong = |reason: &dyn std::fmt::Display| file_error(path, reason);
    // Files are read more than once, and a pipe without a writer would never end.
    if !std::fs::metadata(path).map_err(|error| wrong(&error))?.is_file() {
        return Err(wrong(&"is not a regular file; if it is a pipe, write its content to a file first"));
    }
    let mut file = BufReader::new(File::open(path).map_err(|error| wrong(&error))?);
    let beginning = file.fill_buf().map_err(|error| wrong(&error))?;
    if beginning.starts_with(SEVEN_ZIP) {
        return Err(wrong(&"is a 7-Zip archive; unpack it first"));
    }
    if beginning.starts_with(GZIP) {
        return Ok(Box::new(BufReader::new(MultiGzDecoder::new(file))));
    }
    if beginning.starts_with(ZSTD) {
        let decoder = Decoder::with_buffer(file).map_err(|error| wrong(&error))?;
        return Ok(Box::new(BufReader::new(decoder)));
    }
    Ok(Box::new(file))
}

/// Opens a text file, without its byte order mark.
pub(super) fn open_text(path: &Path) -> TransferResult<Box<dyn BufRead>> {
    let mut reader = open(path)?;
    let beginning = reader.fill_buf().map_err(|error| file_error(path, &error))?;
    match beginning {
        [0xef, 0xbb, 0xbf, ..] => reader.consume(3),
        [0xff, 0xfe, ..] | [0xfe, 0xff, ..] | [0, _, ..] | [_, 0, ..] => {
            return Err(file_error(path, &"is UTF-16; convert it first: iconv -f UTF-16 -t UTF-8"));
        }
        _ => {}
    }
    Ok(reader)
}

pub(super) fn file_error(path: &Path, reason: &dyn std::fmt::Display) -> TransferError {
    failed!("{}: {reason}", path.display())
}

pub(super) fn folder_of(path: &Path) -> &Path {
    let folder = path.parent().filter(|folder| !folder.as_os_str().is_empty());
    folder.unwrap_or(Path::new("."))
}

pub(super) fn read_beginning(path: &Path) -> TransferResult<String> {
    let mut bytes = Vec::new();
    open_text(path)?
        .take(BEGINNING_BYTES)
        .read_to_end(&mut bytes)
        .map_err(|error| file_error(path, &error))?;
    Ok(String::from_utf8_lossy(&bytes).into_owned())
}

/// Bytes of the beginning and of the end of a file that are hashed.
const HASHED_BYTES: u64 = 1 << 20;

/// Returns a hash that changes with the files of a place; empty for other places.
pub fn content_of(place: &DataLocation) -> TransferResult<String> {
    let files = match place {
        DataLocation::Endpoint(_) | DataLocation::Database(..) | DataLocation::Standard => {
            return Ok(String::new());
        }
        DataLocation::Dump(folder) if !folder.is_file() => {
            let path = folder.join(MANIFEST);
            let mut file = File::open(&path).map_err(|error| file_error(&path, &error))?;
            return Ok(hex(digest(&mut file)?));
        }
        DataLocation::Dump(path) | DataLocation::File(path, _) => files_of(path)?,
    };
    let mut all = Sha256::new();
    for path in files {
        hash_file(&path, &mut all).map_err(|error| TransferError::from(error).at(&path))?;
    }
    Ok(hex(all))
}

/// Returns the files that are read if `path` is the place.
fn files_of(path: &Path) -> TransferResult<Vec<PathBuf>> {
    let beside = || {
        let folder = if path.is_dir() { path } else { folder_of(path) };
        let entries = std::fs::read_dir(folder)?.flatten().map(|entry| entry.path());
        // The state of the copy may be in the same folder.
        let is_read = |path: &PathBuf| path.is_file() && has_known_extension(path);
        let mut files: Vec<PathBuf> = entries.filter(is_read).collect();
        files.sort();
        Ok::<_, TransferError>(files)
    };
    if path.is_dir() {
        return beside();
    }
    let mut files = vec![path.to_owned()];
    if recognize(path)? == FileFormat::Manifest {
        let manifest = AzCopyManifest::read(path)?;
        files.extend(beside()?.into_iter().filter(|file| manifest.has(file)));
    }
    files.extend(Some(path.with_extension("schema.csv")).filter(|schema| schema.is_file()));
    Ok(files)
}

/// Adds the name, size, time, beginning and end of a file to a hash.
fn hash_file(path: &Path, all: &mut Sha256) -> std::io::Result<()> {
    let mut file = File::open(path)?;
    let about = file.metadata()?;
    let time = about.modified()?.duration_since(UNIX_EPOCH).unwrap_or_default();
    all.update(format!("{}\n{}\n{}\n", path.display(), about.len(), time.as_nanos()));
    for begin in [0, about.len().saturating_sub(HASHED_BYTES)] {
        file.seek(SeekFrom::Start(begin))?;
        all.update(digest(&mut (&mut file).take(HASHED_BYTES))?.finalize());
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_change_of_any_file_that_is_read_is_noticed() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("People.csv");
        let content = |path: &Path| content_of(&DataLocation::File(path.to_owned(), None)).unwrap();
        let text = "PartitionKey,RowKey\n".to_owned() + &"a,1\n".repeat(1 << 20);
        std::fs::write(&path, &text).unwrap();
        let time = std::fs::metadata(&path).unwrap().modified().unwrap();
        let (alone, all) = (content(&path), content(folder.path()));
        std::fs::write(folder.path().join("copy.state"), "of the copy itself").unwrap();
        assert_eq!((content(&path), content(folder.path())), (alone.clone(), all.clone()));
        // The same size and time, and another end.
        std::fs::write(&path, text[..text.len() - 2].to_owned() + "2\n").unwrap();
        File::options().write(true).open(&path).unwrap().set_modified(time).unwrap();
        assert!(content(&path) != alone && content(folder.path()) != all);
        std::fs::write(&path, &text).unwrap();
        File::options().write(true).open(&path).unwrap().set_modified(time).unwrap();
        assert_eq!((content(&path), content(folder.path())), (alone.clone(), all.clone()));
        std::fs::write(folder.path().join("People.schema.csv"), "PartitionKey,RowKey\n").unwrap();
        assert!(content(&path) != alone && content(folder.path()) != all);
    }
}
