//! Writes dumps.

use std::collections::{BTreeMap, HashSet};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use parking_lot::Mutex;

use crate::contract::{Counts, TransferTarget, WritePage};
use crate::error::{TransferError, TransferResult, failed, usage};
use crate::locations::PageOutcome;
use crate::locations::dump::part::{OpenPart, PageKeys};
use crate::locations::dump::{DumpTable, FORMAT, MANIFEST, Manifest, VERSION};
use crate::protocol::codec::policies::{self, Policy};
use crate::protocol::codec::properties::{self, ServiceProperties};
use crate::protocol::error::Error;
use crate::protocol::model::{Key, Ticks};
use crate::rows::range::sorts_alike;

const EXTENSION: &str = ".ndjson.zst";
/// The compression level: higher levels cost more time than they save.
const LEVEL: i32 = 1;
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
    complete: Vec<OpenPart>,
}

impl DumpTarget {
    /// Opens a new folder or the folder of an interrupted run. Refuses a complete dump.
    pub(crate) fn open(folder: &Path) -> TransferResult<Self> {
        if folder.join(MANIFEST).exists() {
            return Err(usage!("{} contains a complete dump; choose another folder", folder.display()));
        }
        std::fs::create_dir_all(folder).map_err(|error| TransferError::from(error).at(folder))?;
        Ok(Self { folder: folder.to_owned(), state: Mutex::default() })
    }

    /// Removes the parts that an interrupted copy has written, and the folders that only had parts.
    pub(crate) fn clear(&self) -> TransferResult<()> {
        for entry in std::fs::read_dir(&self.folder)? {
            let entry = entry?;
            if !entry.file_type()?.is_dir() {
                continue;
            }
            for part in std::fs::read_dir(entry.path())? {
                let part = part?;
                if is_part_name(&part.file_name().to_string_lossy()) {
                    std::fs::remove_file(part.path())?;
                }
            }
            // A folder with other files stays.
            let _ = std::fs::remove_dir(entry.path());
        }
        Ok(())
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
        if let Some(part) = self.state.lock().open.get(&range) {
            return Ok(part.clone());
        }
        std::fs::create_dir_all(self.folder.join(table))?;
        let part = match resumed {
            None => OpenPart::create(&self.folder, table, part_name(table, range, 1))?,
            Some(written) => self.resumed_part(table, range, next, written)?,
        };
        let part = Arc::new(Mutex::new(part));
        self.state.lock().open.insert(range, part.clone());
        Ok(part)
    }

    /// Opens the last part of a range of an interrupted run. The complete parts before it are kept for the
    /// manifest.
    fn resumed_part(&self, table: &str, range: i64, next: &Key, written: u64) -> TransferResult<OpenPart> {
        let (mut number, mut kept) = (1, 0);
        while self.folder.join(part_name(table, range, number + 1)).exists() {
            let part = OpenPart::load(&self.folder, table, part_name(table, range, number))?;
            kept += part.entities();
            self.state.lock().complete.push(part);
            number += 1;
        }
        let part = OpenPart::resume(&self.folder, table, part_name(table, range, number), next)?;
        self.check_entities("of a range", kept + part.entities(), written)?;
        Ok(part)
    }

    /// Compares the number of entities in the parts with the state of the copy.
    fn check_entities(&self, what: &str, found: u64, written: u64) -> TransferResult<()> {
        if found == written {
            return Ok(());
        }
        Err(failed!(
            "{} has {found} entities {what} and not {written}, as after a power failure; begin again with --restart",
            self.folder.display()
        ))
    }

    /// Starts a new part.
    fn split(&self, part: &mut OpenPart) -> TransferResult<()> {
        let (stem, number) =
            part.name.trim_end_matches(EXTENSION).rsplit_once('-').unwrap_or((&part.name, "1"));
        let number: u32 = number.parse().unwrap_or(1);
        let name = format!("{stem}-{:04}{EXTENSION}", number + 1);
        let next = OpenPart::create(&self.folder, &part.table, name)?;
        part.sync()?;
        self.state.lock().complete.push(std::mem::replace(part, next));
        Ok(())
    }
}

impl TransferTarget for DumpTarget {
    /// Refuses parts without the state of their copy, because the entities may have changed since.
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

    fn create(&self, table: &str) -> TransferResult<bool> {
        self.state.lock().tables.entry(table.to_owned()).or_default();
        Ok(true)
    }

    fn write(&self, page: WritePage<'_>) -> TransferResult<Counts> {
        // The disk may be full or have lost data.
        self.write_page(&page).map_err(|error| error.at(&self.folder).of_place())
    }

    fn set_policies(&self, table: &str, policies: &[Policy]) -> TransferResult<()> {
        let stored = policies::to_stored(policies).map_err(from_protocol)?;
        self.state.lock().tables.insert(table.to_owned(), Some(stored));
        Ok(())
    }

    fn set_properties(&self, wanted: &ServiceProperties) -> TransferResult<()> {
        self.state.lock().properties = Some(properties::to_stored(wanted).map_err(from_protocol)?);
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
        outcome.push_lines(&mut text, |row| {
            first.get_or_insert(&row.key);
            PageKeys::add(&mut keys, row.key.clone());
        })?;
        let (Some(next), Some(keys)) = (first, keys) else { return Ok(outcome.counts) };
        let frame = zstd::bulk::compress(text.as_bytes(), LEVEL)?;
        let part = self.part(page.table, page.range, next, page.resumed)?;
        let mut part = part.lock();
        // Parts must be disjoint regardless of the order of the source.
        if part.bytes >= PART_BYTES && sorts_alike(next) {
            self.split(&mut part)?;
        }
        outcome.counts.written = keys.entities;
        part.append(&frame, keys)?;
        Ok(outcome.counts)
    }

    /// Writes the manifest, after all files that it lists.
    fn complete(&self, origin: &str, written: u64) -> TransferResult<()> {
        let mut state = self.state.lock();
        let DumpState { properties, tables: policies, open, complete } = &mut *state;
        let names = open.values().map(|part| part.lock().name.clone());
        let known: HashSet<String> = names.chain(complete.iter().map(|part| part.name.clone())).collect();
        let mut tables = Vec::new();
        for (name, policies) in policies {
            // An interrupted run has finished the other parts.
            for entry in std::fs::read_dir(self.folder.join(name)).into_iter().flatten() {
                let part = format!("{name}/{}", entry?.file_name().to_string_lossy());
                if part.ends_with(EXTENSION) && !known.contains(&part) {
                    complete.push(OpenPart::load(&self.folder, name, part)?);
                }
            }
            let mut parts = Vec::new();
            let mut list = |part: &OpenPart| {
                if part.table == *name {
                    part.sync()?;
                    parts.extend(part.listed());
                }
                Ok::<_, TransferError>(())
            };
            open.values().try_for_each(|part| list(&part.lock()))?;
            complete.iter().try_for_each(list)?;
            parts.sort_by(|a, b| a.first.cmp(&b.first));
            let entities = parts.iter().map(|part| part.entities).sum();
            tables.push(DumpTable { name: name.clone(), entities, policies: policies.clone(), parts });
        }
        self.check_entities("in all", tables.iter().map(|table: &DumpTable| table.entities).sum(), written)?;
        let created = Ticks::now().to_canonical();
        let properties = properties.clone();
        let (format, origin) = (FORMAT.into(), Some(origin.to_owned()));
        Manifest { format, version: VERSION, created, origin, properties, tables }.write(&self.folder)
    }
}

fn from_protocol(error: Error) -> TransferError {
    failed!("{}", error.text())
}

fn part_name(table: &str, range: i64, number: u32) -> String {
    format!("{table}/{range:06}-{number:04}{EXTENSION}")
}

/// Whether a file has a name as [`part_name`] returns it, without the table.
fn is_part_name(name: &str) -> bool {
    let numbers = name.strip_suffix(EXTENSION).and_then(|stem| stem.split_once('-'));
    let is_number =
        |text: &str, digits| text.len() >= digits && text.bytes().all(|byte| byte.is_ascii_digit());
    numbers.is_some_and(|(range, number)| is_number(range, 6) && is_number(number, 4))
}

fn has_parts(folder: &Path) -> TransferResult<bool> {
    for entry in std::fs::read_dir(folder)? {
        if entry?.file_name().to_string_lossy().ends_with(EXTENSION) {
            return Ok(true);
        }
    }
    Ok(false)
}
