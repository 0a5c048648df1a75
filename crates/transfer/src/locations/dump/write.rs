//! Writing a dump.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use parking_lot::{Mutex, MutexGuard};

use crate::contract::{Counts, TransferTarget, WritePage};
use crate::error::{TransferError, TransferResult, failed, usage};
use crate::locations::PageOutcome;
use crate::locations::dump::part::{OpenPart, PageKeys};
use crate::locations::dump::{DumpPart, DumpTable, FORMAT, MANIFEST, Manifest, VERSION};
use crate::protocol::codec::policies::{self, Policy};
use crate::protocol::codec::properties::{self, ServiceProperties};
use crate::protocol::error::Error;
use crate::protocol::model::{Key, Ticks};
use crate::rows::range::sorts_alike;

const EXTENSION: &str = ".ndjson.zst";
/// The size in bytes after which a new part is started.
const PART_BYTES: u64 = 64 << 20;

pub struct DumpTarget {
    folder: PathBuf,
    state: Mutex<DumpState>,
}

#[derive(Default)]
struct DumpState {
    properties: Option<String>,
    /// The stored access policies of each table as stored JSON.
    tables: BTreeMap<String, Option<String>>,
    /// The part that each range is written to.
    open: BTreeMap<i64, Arc<Mutex<OpenPart>>>,
}

impl DumpTarget {
    /// Opens a folder for a dump: a new one, or that of an interrupted run. Refuses a complete dump.
    pub(crate) fn open(folder: &Path) -> TransferResult<Self> {
        if folder.join(MANIFEST).exists() {
            return Err(usage!("{} contains a complete dump; choose another folder", folder.display()));
        }
        std::fs::create_dir_all(folder).map_err(|error| TransferError::from(error).at(folder))?;
        Ok(Self { folder: folder.to_owned(), state: Mutex::default() })
    }

    fn lock(&self) -> MutexGuard<'_, DumpState> {
        self.state.lock()
    }

    /// Returns the part that a range is written to. After an interruption it keeps the entities before
    /// `next`; `resumed` is the number of entities that the range must then have.
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
        let part = match resumed {
            None => OpenPart::create(&self.folder, table, part_name(table, range, 1))?,
            Some(written) => self.resumed_part(table, range, next, written)?,
        };
        let part = Arc::new(Mutex::new(part));
        self.lock().open.insert(range, part.clone());
        Ok(part)
    }

    /// Opens the last part of a range of an interrupted run. The complete parts before it are kept for the
    /// manifest.
    fn resumed_part(&self, table: &str, range: i64, next: &Key, written: u64) -> TransferResult<OpenPart> {
        let (mut number, mut kept) = (1, 0);
        while self.folder.join(part_name(table, range, number + 1)).exists() {
            let part = OpenPart::load(&self.folder, table, part_name(table, range, number))?;
            kept += part.entities();
            self.retire(part);
            number += 1;
        }
        let part = OpenPart::go_on(&self.folder, table, part_name(table, range, number), next)?;
        self.check_entities("of a range", kept + part.entities(), written)?;
        Ok(part)
    }

    /// Compares the number of entities in the parts with the state of the copy.
    fn check_entities(&self, what: &str, found: u64, written: u64) -> TransferResult<()> {
        if found == written {
            return Ok(());
        }
        Err(failed!(
            "{} has {found} entities {what} and not {written}, as after a power failure; begin again in an empty \
             folder",
            self.folder.display()
        ))
    }

    /// Keeps a complete part for the manifest.
    fn retire(&self, part: OpenPart) {
        let mut state = self.lock();
        // Ranges are numbered from 1, so complete parts get lower numbers.
        let id = state.open.keys().next().copied().unwrap_or(0).min(0) - 1;
        state.open.insert(id, Arc::new(Mutex::new(part)));
    }

    /// Starts a new part.
    fn split(&self, part: &mut OpenPart) -> TransferResult<()> {
        let (stem, number) =
            part.name.trim_end_matches(EXTENSION).rsplit_once('-').unwrap_or((&part.name, "1"));
        let number: u32 = number.parse().unwrap_or(1);
        let name = format!("{stem}-{:04}{EXTENSION}", number + 1);
        let next = OpenPart::create(&self.folder, &part.table, name)?;
        part.sync()?;
        self.retire(std::mem::replace(part, next));
        Ok(())
    }
}

impl TransferTarget for DumpTarget {
    /// Refuses parts without the state of their copy: their entities may have changed since.
    fn begin(&self) -> TransferResult<()> {
        for entry in std::fs::read_dir(&self.folder)? {
            let path = entry?.path();
            if path.is_dir() && has_parts(&path)? {
                return Err(usage!(
                    "{} contains parts of another copy, but not its state; remove them, or choose another \
                     folder",
                    path.display()
                ));
            }
        }
        Ok(())
    }

    fn create(&self, table: &str) -> TransferResult<()> {
        self.lock().tables.entry(table.to_owned()).or_default();
        Ok(())
    }

    fn write(&self, page: WritePage<'_>) -> TransferResult<Counts> {
        self.write_page(&page).map_err(|error| error.at(&self.folder))
    }

    fn set_policies(&self, table: &str, policies: &[Policy]) -> TransferResult<()> {
        let stored = policies::to_stored(policies).map_err(failed)?;
        self.lock().tables.insert(table.to_owned(), Some(stored));
        Ok(())
    }

    fn set_properties(&self, wanted: &ServiceProperties) -> TransferResult<()> {
        self.lock().properties = Some(properties::to_stored(wanted).map_err(failed)?);
        Ok(())
    }

    fn finish(&self, _copy: &str, origin: &str, written: u64) -> TransferResult<()> {
        self.complete(origin, written).map_err(|error| error.at(&self.folder))
    }
}

impl DumpTarget {
    fn write_page(&self, page: &WritePage<'_>) -> TransferResult<Counts> {
        let (mut outcome, mut text) = (PageOutcome::new(page), String::new());
        let (mut first, mut keys) = (None, None);
        for row in &page.rows {
            let end = text.len();
            match row.push_json(&mut text, true) {
                Ok(()) => {
                    text.push('\n');
                    first.get_or_insert(&row.key);
                    PageKeys::add(&mut keys, row.key.clone());
                }
                Err(reason) => {
                    text.truncate(end);
                    outcome.reject(row, reason)?;
                }
            }
        }
        let (Some(next), Some(keys)) = (first, keys) else { return Ok(outcome.counts) };
        let frame = zstd::bulk::compress(text.as_bytes(), LEVEL)?;
        let part = self.part(page.table, page.range, next, page.resumed)?;
        let mut part = part.lock();
        // Parts must be disjoint in any order of the source.
        if part.bytes >= PART_BYTES && sorts_alike(next) {
            self.split(&mut part)?;
        }
        outcome.counts.written = keys.entities;
        part.append(&frame, keys)?;
        Ok(outcome.counts)
    }

    /// Loads the parts of ranges that an interrupted run has finished.
    fn load_finished(&self) -> TransferResult<()> {
        let mut known = Vec::new();
        let tables: Vec<String> = {
            let state = self.lock();
            for part in state.open.values() {
                known.push(part.lock().name.clone());
            }
            state.tables.keys().cloned().collect()
        };
        for table in tables {
            let Ok(entries) = std::fs::read_dir(self.folder.join(&table)) else { continue };
            for entry in entries {
                let name = format!("{table}/{}", entry?.file_name().to_string_lossy());
                if name.ends_with(EXTENSION) && !known.contains(&name) {
                    let part = OpenPart::load(&self.folder, &table, name)?;
                    self.retire(part);
                }
            }
        }
        Ok(())
    }

    /// Writes the manifest, after all files that it lists.
    fn complete(&self, origin: &str, written: u64) -> TransferResult<()> {
        self.load_finished()?;
        let state = self.lock();
        let mut tables = Vec::new();
        for (name, policies) in &state.tables {
            let mut parts = Vec::new();
            for part in state.open.values() {
                let part = part.lock();
                if part.table == *name {
                    part.sync()?;
                    parts.extend(part.listed());
                }
            }
            parts.sort_by(|a: &DumpPart, b| a.first.cmp(&b.first));
            let entities = parts.iter().map(|part| part.entities).sum();
            tables.push(DumpTable { name: name.clone(), entities, policies: policies.clone(), parts });
        }
        self.check_entities("in all", tables.iter().map(|table: &DumpTable| table.entities).sum(), written)?;
        let created = Ticks::now().to_canonical();
        let properties = state.properties.clone();
        let (format, origin) = (FORMAT.into(), Some(origin.to_owned()));
        Manifest { format, version: VERSION, created, origin, properties, tables }.write(&self.folder)
    }
}

fn failed(error: Error) -> TransferError {
    failed!("{}", error.text())
}

fn part_name(table: &str, range: i64, number: u32) -> String {
    format!("{table}/{range:06}-{number:04}{EXTENSION}")
}

fn has_parts(folder: &Path) -> TransferResult<bool> {
    for entry in std::fs::read_dir(folder)? {
        if entry?.file_name().to_string_lossy().ends_with(EXTENSION) {
            return Ok(true);
        }
    }
    Ok(false)
}

/// The compression level: higher levels cost more time than they save.
const LEVEL: i32 = 1;
