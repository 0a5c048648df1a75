//! A part of a dump that is being written.

use std::fs::{File, OpenOptions};
use std::io::{BufRead, BufReader, Read as _, Seek as _, SeekFrom, Write as _};
use std::path::Path;

use serde::Deserialize;
use sha2::{Digest as _, Sha256};
use zstd::stream::read::Decoder;

use crate::error::{TransferError, TransferResult, failed};
use crate::locations::dump::{DumpPart, MAX_LINE, digest, hex};
use crate::protocol::model::Key;

/// Bytes of a part that are read at once.
const BUFFER: usize = 1 << 16;

/// A part that is not complete.
pub(super) struct OpenPart {
    pub table: String,
    /// Relative to the dump's folder.
    pub name: String,
    pub bytes: u64,
    pub entities: u64,
    file: File,
    digest: Sha256,
    first: Option<Key>,
    last: Option<Key>,
}

/// What a line says of its place.
#[derive(Deserialize)]
struct LineKey {
    #[serde(rename = "PartitionKey")]
    partition: String,
    #[serde(rename = "RowKey")]
    row: String,
}

/// The keys of a page.
pub(super) struct PageKeys {
    entities: u64,
    min_key: Key,
    max_key: Key,
    /// The key of the last line.
    end: Key,
}

impl PageKeys {
    /// Returns the keys of lines; `None` if there are none.
    pub(super) fn of(keys: &[&Key]) -> Option<Self> {
        let (first, behind) = keys.split_first()?;
        let mut found = Self::new((*first).clone());
        behind.iter().for_each(|key| found.add((*key).clone()));
        Some(found)
    }

    fn new(key: Key) -> Self {
        Self { entities: 1, min_key: key.clone(), max_key: key.clone(), end: key }
    }

    /// A source may sort keys in another way than we do.
    fn add(&mut self, key: Key) {
        self.entities += 1;
        if key < self.min_key {
            self.min_key = key.clone();
        } else if key > self.max_key {
            self.max_key = key.clone();
        }
        self.end = key;
    }

    /// Reads the keys of a frame; `None` if it is empty or damaged.
    fn read(frame: &mut impl BufRead) -> Option<Self> {
        let (mut found, mut line) = (None, String::new());
        while frame.by_ref().take(MAX_LINE).read_line(&mut line).ok()? > 0 {
            let LineKey { partition, row } = serde_json::from_str(&line).ok()?;
            let key = Key { partition, row };
            match &mut found {
                None => found = Some(Self::new(key)),
                Some(found) => found.add(key),
            }
            line.clear();
        }
        found
    }
}

impl OpenPart {
    /// Creates a part.
    pub(super) fn create(folder: &Path, table: &str, name: String) -> TransferResult<Self> {
        let created = OpenOptions::new().read(true).write(true).create_new(true).open(folder.join(&name));
        Ok(Self::new(table, created.map_err(|error| wrong(folder, &name, &error.to_string()))?, name))
    }

    /// Opens a part that is complete.
    pub(super) fn load(folder: &Path, table: &str, name: String) -> TransferResult<Self> {
        let part = Self::read(folder, table, name, None)?;
        if part.bytes == part.file.metadata()?.len() {
            return Ok(part);
        }
        Err(wrong(folder, &part.name, "is damaged, as after a power failure; begin again in an empty folder"))
    }

    /// Opens the part that an interrupted run was writing, and keeps the pages before `until`.
    pub(super) fn go_on(folder: &Path, table: &str, name: String, until: &Key) -> TransferResult<Self> {
        let mut part = Self::read(folder, table, name, Some(until))?;
        part.file.set_len(part.bytes)?;
        part.file.seek(SeekFrom::End(0))?;
        Ok(part)
    }

    fn new(table: &str, file: File, name: String) -> Self {
        let (table, digest) = (table.to_owned(), Sha256::new());
        Self { table, name, bytes: 0, entities: 0, file, digest, first: None, last: None }
    }

    /// Reads a part: complete frames whose entities come before `until`.
    fn read(folder: &Path, table: &str, name: String, until: Option<&Key>) -> TransferResult<Self> {
        let path = folder.join(&name);
        let opened = OpenOptions::new().read(true).write(true).create(true).truncate(false).open(path);
        let file = opened.map_err(|error| wrong(folder, &name, &error.to_string()))?;
        let mut part = Self::new(table, file.try_clone()?, name);
        let length = file.metadata()?.len();
        let mut file = BufReader::with_capacity(BUFFER, file);
        while part.bytes < length {
            let mut frame = BufReader::new(Decoder::with_buffer(file)?.single_frame());
            let Some(keys) = PageKeys::read(&mut frame) else { break };
            if until.is_some_and(|until| keys.end >= *until) {
                break;
            }
            file = frame.into_inner().finish();
            part.bytes = file.stream_position()?;
            part.count(&keys);
        }
        part.file.rewind()?;
        part.digest = digest(&mut (&part.file).take(part.bytes))?;
        Ok(part)
    }

    /// Appends a page.
    pub(super) fn append(&mut self, frame: &[u8], keys: &PageKeys) -> TransferResult<()> {
        self.file.write_all(frame)?;
        self.digest.update(frame);
        self.bytes += frame.len() as u64;
        self.count(keys);
        Ok(())
    }

    fn count(&mut self, keys: &PageKeys) {
        self.entities += keys.entities;
        if self.first.as_ref().is_none_or(|first| keys.min_key < *first) {
            self.first = Some(keys.min_key.clone());
        }
        if self.last.as_ref().is_none_or(|last| keys.max_key > *last) {
            self.last = Some(keys.max_key.clone());
        }
    }

    /// Makes durable what was written.
    pub(super) fn sync(&self) -> TransferResult<()> {
        Ok(self.file.sync_all()?)
    }

    /// Returns the manifest's entry for the part; `None` if it has no entities.
    pub(super) fn listed(&self) -> Option<DumpPart> {
        let pair = |key: &Key| [key.partition.clone(), key.row.clone()];
        Some(DumpPart {
            file: self.name.clone(),
            entities: self.entities,
            bytes: self.bytes,
            sha256: hex(self.digest.clone()),
            first: pair(self.first.as_ref()?),
            last: pair(self.last.as_ref()?),
        })
    }
}

fn wrong(folder: &Path, name: &str, reason: &str) -> TransferError {
    failed!("{}: {reason}", folder.join(name).display())
}
