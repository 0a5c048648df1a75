//! A part of a dump that is being written.

use std::fs::{File, OpenOptions};
use std::io::{BufRead, BufReader, Read as _, Seek as _, SeekFrom, Write as _};
use std::path::Path;
use std::sync::atomic::AtomicBool;

use serde::Deserialize;
use sha2::{Digest as _, Sha256};
use zstd::stream::read::Decoder;

use crate::error::{TransferError, TransferResult, failed};
use crate::locations::dump::{DumpPart, MAX_LINE_BYTES, digest, hex};
use crate::protocol::model::Key;

/// Bytes of a part that are read at once.
const BUFFER_BYTES: usize = 1 << 16;

pub(super) struct OpenPart {
    pub table: String,
    /// Relative to the dump's folder.
    pub name: String,
    pub bytes: u64,
    file: File,
    digest: Sha256,
    /// The keys of the pages; `None` without pages.
    keys: Option<PageKeys>,
}

#[derive(Deserialize)]
struct LineKey {
    #[serde(rename = "PartitionKey")]
    partition: String,
    #[serde(rename = "RowKey")]
    row: String,
}

pub(super) struct PageKeys {
    pub entities: u64,
    min: Key,
    max: Key,
    /// The key of the last line.
    end: Key,
}

impl PageKeys {
    /// Adds a key. A source may sort keys in a different order.
    pub(super) fn add(keys: &mut Option<Self>, key: Key) {
        let Some(keys) = keys else {
            *keys = Some(Self { entities: 1, min: key.clone(), max: key.clone(), end: key });
            return;
        };
        keys.entities += 1;
        if key < keys.min {
            keys.min = key.clone();
        } else if key > keys.max {
            keys.max = key.clone();
        }
        keys.end = key;
    }

    /// Reads the keys of a frame; `None` if the frame is empty or damaged.
    fn read(frame: &mut impl BufRead) -> Option<Self> {
        let (mut keys, mut line) = (None, String::new());
        while frame.by_ref().take(MAX_LINE_BYTES).read_line(&mut line).ok()? > 0 {
            let LineKey { partition, row } = serde_json::from_str(&line).ok()?;
            Self::add(&mut keys, Key { partition, row });
            line.clear();
        }
        keys
    }
}

impl OpenPart {
    pub(super) fn create(folder: &Path, table: &str, name: String) -> TransferResult<Self> {
        let created = OpenOptions::new().read(true).write(true).create_new(true).open(folder.join(&name));
        Ok(Self::new(table, created.map_err(|error| wrong(folder, &name, &error.to_string()))?, name))
    }

    /// Opens a complete part.
    pub(super) fn load(folder: &Path, table: &str, name: String) -> TransferResult<Self> {
        let part = Self::read(folder, table, name, None)?;
        if part.bytes == part.file.metadata()?.len() {
            return Ok(part);
        }
        Err(wrong(folder, &part.name, "is damaged, as after a power failure; begin again in an empty folder"))
    }

    /// Opens the part that an interrupted run was writing, and removes the pages from `until` on.
    pub(super) fn resume(folder: &Path, table: &str, name: String, until: &Key) -> TransferResult<Self> {
        let mut part = Self::read(folder, table, name, Some(until))?;
        part.file.set_len(part.bytes)?;
        part.file.seek(SeekFrom::End(0))?;
        Ok(part)
    }

    fn new(table: &str, file: File, name: String) -> Self {
        let (table, digest) = (table.to_owned(), Sha256::new());
        Self { table, name, bytes: 0, file, digest, keys: None }
    }

    /// Reads a part: the complete frames whose entities come before `until`.
    fn read(folder: &Path, table: &str, name: String, until: Option<&Key>) -> TransferResult<Self> {
        let path = folder.join(&name);
        let opened = OpenOptions::new().read(true).write(true).create(true).truncate(false).open(path);
        let file = opened.map_err(|error| wrong(folder, &name, &error.to_string()))?;
        let mut part = Self::new(table, file.try_clone()?, name);
        let length = file.metadata()?.len();
        let mut file = BufReader::with_capacity(BUFFER_BYTES, file);
        while part.bytes < length {
            let mut frame = BufReader::new(Decoder::with_buffer(file)?.single_frame());
            let Some(keys) = PageKeys::read(&mut frame) else { break };
            if until.is_some_and(|until| keys.end >= *until) {
                break;
            }
            file = frame.into_inner().finish();
            part.bytes = file.stream_position()?;
            part.count(keys);
        }
        part.file.rewind()?;
        part.digest = digest(&mut (&part.file).take(part.bytes))?;
        Ok(part)
    }

    pub(super) fn append(&mut self, frame: &[u8], keys: PageKeys) -> TransferResult<()> {
        self.file.write_all(frame)?;
        self.digest.update(frame);
        self.bytes += frame.len() as u64;
        self.count(keys);
        Ok(())
    }

    fn count(&mut self, keys: PageKeys) {
        let Some(known) = &mut self.keys else {
            self.keys = Some(keys);
            return;
        };
        known.entities += keys.entities;
        if keys.min < known.min {
            known.min = keys.min;
        }
        if keys.max > known.max {
            known.max = keys.max;
        }
        known.end = keys.end;
    }

    pub(super) fn entities(&self) -> u64 {
        self.keys.as_ref().map_or(0, |keys| keys.entities)
    }

    pub(super) fn sync(&self) -> TransferResult<()> {
        Ok(self.file.sync_all()?)
    }

    /// Returns the manifest's entry for the part; `None` if it has no entities.
    pub(super) fn listed(&self) -> Option<DumpPart> {
        let keys = self.keys.as_ref()?;
        Some(DumpPart {
            file: self.name.clone(),
            entities: keys.entities,
            bytes: self.bytes,
            sha256: hex(self.digest.clone()),
            first: keys.min.clone(),
            last: keys.max.clone(),
            is_checked: AtomicBool::new(false),
        })
    }
}

fn wrong(folder: &Path, name: &str, reason: &str) -> TransferError {
    failed!("{}: {reason}", folder.join(name).display())
}
