//! Writing a dump.

use std::collections::BTreeMap;
use std::fs::{File, OpenOptions};
use std::io::{BufReader, Read, Seek as _, SeekFrom, Write as _};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use sha2::{Digest as _, Sha256};
use zstd::stream::read::Decoder;

use super::contents::{stored_policies, stored_properties};
use super::lines::{LEVEL, PageLines};
use super::manifest::{DumpPart, DumpTable, FORMAT, MANIFEST, Manifest, VERSION, hex};
use crate::codec::policies::Policy;
use crate::codec::properties::ServiceProperties;
use crate::model::{Key, Ticks};
use crate::transfer::endpoint::{TransferError, TransferResult, TransferTarget, WritePage, WriteResult};
use crate::transfer::range::sorts_alike;
use crate::transfer::row::{Row, Version};

/// A part of at least this many bytes is followed by a new one.
const PART_BYTES: u64 = 64 << 20;

/// A dump to write to.
pub(crate) struct DumpTarget {
    folder: PathBuf,
    state: Mutex<DumpState>,
}

#[derive(Default)]
struct DumpState {
    properties: Option<String>,
    tables: BTreeMap<String, TableSettings>,
    /// The part that each range is being written to.
    open: BTreeMap<i64, Arc<Mutex<OpenPart>>>,
}

#[derive(Default)]
struct TableSettings {
    policies: Option<String>,
}

/// A part that is not complete.
struct OpenPart {
    table: String,
    name: String,
    file: File,
    bytes: u64,
    entities: u64,
    digest: Sha256,
    first: Option<Key>,
    last: Option<Key>,
}

impl DumpTarget {
    /// Opens a folder for a dump: a new one, or that of an interrupted run.
    ///
    /// # Errors
    /// [`TransferError::Usage`] if the folder has a complete dump.
    pub(crate) fn open(folder: &Path) -> TransferResult<Self> {
        if folder.join(MANIFEST).exists() {
            let text = format!("{} has a complete dump; choose another folder", folder.display());
            return Err(TransferError::Usage(text));
        }
        std::fs::create_dir_all(folder)?;
        Ok(Self { folder: folder.to_owned(), state: Mutex::default() })
    }

    fn lock(&self) -> MutexGuard<'_, DumpState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns the part that a range is written to. After an interruption it begins with what is in
    /// the file before `next`; `resumed` is how many entities the range must have then.
    fn part(
        &self,
        table: &str,
        range: i64,
        next: &Key,
        resumed: Option<u64>,
    ) -> TransferResult<Arc<Mutex<OpenPart>>> {
        if let Some(part) = self.lock().open.get(&range) {
            return Ok(part.clone());
        }
        std::fs::create_dir_all(self.folder.join(table))?;
        let (mut number, mut kept) = (1, 0);
        let name = |number: u32| format!("{table}/{range:06}-{number:04}.ndjson.zst");
        if resumed.is_some() {
            // The parts before the last are complete; they stay open for the manifest.
            while self.folder.join(name(number + 1)).exists() {
                number += 1;
            }
            for before in 1..number {
                let part = OpenPart::load(&self.folder, table, name(before), None)?;
                kept += part.entities;
                self.retire(part);
            }
        }
        let until = Some(next).filter(|_| resumed.is_some());
        let part = OpenPart::load(&self.folder, table, name(number), until)?;
        kept += part.entities;
        if resumed.is_some_and(|written| written != kept) {
            let text = format!(
                "{} has {kept} entities of a range and not {}, as after a power failure; begin again in an empty folder",
                self.folder.display(),
                resumed.unwrap_or(0)
            );
            return Err(TransferError::Endpoint(text));
        }
        let part = Arc::new(Mutex::new(part));
        self.lock().open.insert(range, part.clone());
        Ok(part)
    }

    /// Keeps a complete part for the manifest.
    fn retire(&self, part: OpenPart) {
        let mut state = self.lock();
        // Ranges are numbered from 1, so complete parts get the numbers below.
        let id = state.open.keys().next().copied().unwrap_or(0).min(0) - 1;
        state.open.insert(id, Arc::new(Mutex::new(part)));
    }

    /// Begins a new part once this one is large.
    fn split(&self, range: i64, part: &mut OpenPart) -> TransferResult<()> {
        let (stem, number) =
            part.name.trim_end_matches(".ndjson.zst").rsplit_once('-').unwrap_or((&part.name, "1"));
        let number: u32 = number.parse().unwrap_or(1);
        let name = format!("{stem}-{:04}.ndjson.zst", number + 1);
        let next = OpenPart::load(&self.folder, &part.table, name, None)?;
        part.file.sync_all()?;
        self.retire(std::mem::replace(part, next));
        debug_assert!(self.lock().open.contains_key(&range));
        Ok(())
    }
}

impl OpenPart {
    /// Opens a part. With `until`, it keeps the pages before that key; without, an existing file is
    /// complete.
    fn load(folder: &Path, table: &str, name: String, until: Option<&Key>) -> TransferResult<Self> {
        let path = folder.join(&name);
        let file = OpenOptions::new().read(true).write(true).create(true).truncate(false).open(path)?;
        let mut part = Self {
            table: table.to_owned(),
            name,
            file,
            bytes: 0,
            entities: 0,
            digest: Sha256::new(),
            first: None,
            last: None,
        };
        part.scan(until)?;
        part.file.set_len(part.bytes)?;
        part.file.seek(SeekFrom::End(0))?;
        Ok(part)
    }

    /// Reads the pages of the file: complete frames whose entities come before `until`.
    fn scan(&mut self, until: Option<&Key>) -> TransferResult<()> {
        let length = self.file.metadata()?.len();
        while self.bytes < length {
            self.file.seek(SeekFrom::Start(self.bytes))?;
            let mut counted = Counted { inner: &self.file, bytes: 0 };
            let mut text = String::new();
            let read = Decoder::with_buffer(BufReader::with_capacity(1, &mut counted))
                .and_then(|decoder| decoder.single_frame().read_to_string(&mut text));
            let frame = counted.bytes;
            let key = |line: &str| Row::from_json(line).ok().map(|row| row.key);
            let keys: Option<Vec<Key>> = text.lines().map(key).collect();
            let (Ok(_), Some(keys)) = (read, keys) else { return Ok(()) };
            let (Some(first), Some(last)) = (keys.iter().min(), keys.iter().max()) else { return Ok(()) };
            if until.is_some_and(|until| keys.last().is_some_and(|last| last >= until)) {
                return Ok(());
            }
            let mut bytes = vec![0; usize::try_from(frame).unwrap_or(0)];
            self.file.seek(SeekFrom::Start(self.bytes))?;
            self.file.read_exact(&mut bytes)?;
            self.count(&bytes, keys.len() as u64, first, last);
        }
        Ok(())
    }

    fn count(&mut self, bytes: &[u8], entities: u64, first: &Key, last: &Key) {
        self.digest.update(bytes);
        self.bytes += bytes.len() as u64;
        self.entities += entities;
        // A source may sort keys in another way than we do.
        if self.first.as_ref().is_none_or(|least| first < least) {
            self.first = Some(first.clone());
        }
        if self.last.as_ref().is_none_or(|greatest| last > greatest) {
            self.last = Some(last.clone());
        }
    }

    /// Returns the manifest's entry for the part; `None` if it has no entities.
    fn listed(&self) -> Option<DumpPart> {
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

/// Counts the bytes that are read.
struct Counted<'a> {
    inner: &'a File,
    bytes: u64,
}

impl Read for Counted<'_> {
    fn read(&mut self, buffer: &mut [u8]) -> std::io::Result<usize> {
        let read = self.inner.read(buffer)?;
        self.bytes += read as u64;
        Ok(read)
    }
}

impl TransferTarget for DumpTarget {
    fn has_entities(&self, _table: &str) -> TransferResult<bool> {
        Ok(false)
    }

    fn create(&self, table: &str) -> TransferResult<()> {
        self.lock().tables.entry(table.to_owned()).or_default();
        Ok(())
    }

    fn write(&self, page: WritePage<'_>) -> TransferResult<WriteResult> {
        let PageLines { text, keys, rejected } = PageLines::of(&page, false)?;
        let mut result = WriteResult { rejected, ..WriteResult::default() };
        let (Some(next), Some(first), Some(last)) = (keys.first(), keys.iter().min(), keys.iter().max())
        else {
            return Ok(result);
        };
        let frame = zstd::bulk::compress(text.as_bytes(), LEVEL)?;
        let part = self.part(page.table, page.range, next, page.resumed)?;
        let mut part = part.lock().unwrap_or_else(PoisonError::into_inner);
        // Parts must be disjoint in whatever order the source has.
        if part.bytes >= PART_BYTES && sorts_alike(next) {
            self.split(page.range, &mut part)?;
        }
        part.file.write_all(&frame)?;
        part.count(&frame, keys.len() as u64, first, last);
        result.written = keys.len() as u64;
        Ok(result)
    }

    fn delete(&self, _table: &str, _entities: &[(Key, Version)]) -> TransferResult<u64> {
        Err(TransferError::Usage("a dump cannot be changed".into()))
    }

    fn set_policies(&self, table: &str, policies: &[Policy]) -> TransferResult<()> {
        let stored = stored_policies(policies)?;
        self.lock().tables.entry(table.to_owned()).or_default().policies = Some(stored);
        Ok(())
    }

    fn set_properties(&self, wanted: &ServiceProperties) -> TransferResult<()> {
        self.lock().properties = Some(stored_properties(wanted)?);
        Ok(())
    }

    fn finish(&self, _copy: &str) -> TransferResult<()> {
        self.load_finished()?;
        let state = self.lock();
        let mut tables = Vec::new();
        for (name, table) in &state.tables {
            let mut parts = Vec::new();
            for part in state.open.values() {
                let part = part.lock().unwrap_or_else(PoisonError::into_inner);
                if part.table == *name {
                    part.file.sync_all()?;
                    parts.extend(part.listed());
                }
            }
            parts.sort_by_key(DumpPart::first_key);
            let entities = parts.iter().map(|part| part.entities).sum();
            tables.push(DumpTable { name: name.clone(), entities, policies: table.policies.clone(), parts });
        }
        let created = Ticks::now().to_canonical();
        let properties = state.properties.clone();
        Manifest { format: FORMAT.into(), version: VERSION, created, properties, tables }.write(&self.folder)
    }
}

impl DumpTarget {
    /// Loads the parts of ranges that an interrupted run has finished.
    fn load_finished(&self) -> TransferResult<()> {
        let mut known = Vec::new();
        let tables: Vec<String> = {
            let state = self.lock();
            for part in state.open.values() {
                known.push(part.lock().unwrap_or_else(PoisonError::into_inner).name.clone());
            }
            state.tables.keys().cloned().collect()
        };
        for table in tables {
            let Ok(entries) = std::fs::read_dir(self.folder.join(&table)) else { continue };
            for entry in entries {
                let name = format!("{table}/{}", entry?.file_name().to_string_lossy());
                if name.ends_with(".ndjson.zst") && !known.contains(&name) {
                    let part = OpenPart::load(&self.folder, &table, name, None)?;
                    self.retire(part);
                }
            }
        }
        Ok(())
    }
}
