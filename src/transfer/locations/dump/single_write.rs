//! Writing a dump in one file.

use std::collections::BTreeMap;
use std::fs::{File, OpenOptions, TryLockError};
use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, MutexGuard, PoisonError};

use sha2::{Digest as _, Sha256};

use super::contents::DumpSettings;
use super::lines::{LEVEL, PageLines};
use super::manifest::hex;
use super::single::{AboutDump, DumpList, FirstLine, LastLine, ListedTable, SINGLE_VERSION};
use crate::protocol::codec::policies::Policy;
use crate::protocol::codec::properties::ServiceProperties;
use crate::protocol::model::Ticks;
use crate::transfer::contract::{Counts, TransferTarget, WritePage};
use crate::transfer::error::{TransferError, TransferResult};

/// A dump in one file to write to. Until it is complete it has the name `FILE.partial`, and is removed if
/// this is dropped.
pub(crate) struct SingleDumpTarget {
    path: PathBuf,
    partial: PathBuf,
    state: Mutex<SingleDump>,
}

struct SingleDump {
    /// Locked against other copies.
    file: File,
    digest: Sha256,
    settings: DumpSettings,
    /// How many entities each table has.
    entities: BTreeMap<String, u64>,
    is_complete: bool,
}

impl SingleDumpTarget {
    /// Creates the file.
    ///
    /// # Errors
    /// [`TransferError::Usage`] if there is a complete dump, or another copy is writing it.
    pub(crate) fn create(path: &Path) -> TransferResult<Self> {
        let refuse_existing = || match path.exists() {
            true => {
                let text = format!("{} exists already; choose another name", path.display());
                Err(TransferError::Usage(text))
            }
            false => Ok(()),
        };
        refuse_existing()?;
        if let Some(folder) = path.parent() {
            std::fs::create_dir_all(folder)?;
        }
        let mut partial = path.as_os_str().to_owned();
        partial.push(".partial");
        let file = OpenOptions::new().write(true).create(true).truncate(false).open(&partial)?;
        match file.try_lock() {
            Err(TryLockError::WouldBlock) => {
                let text = format!("another copy is writing {}", path.display());
                return Err(TransferError::Usage(text));
            }
            // Some file systems have no locks.
            Ok(()) | Err(TryLockError::Error(_)) => {}
        }
        // The other copy may have completed it before it gave up the lock.
        refuse_existing()?;
        file.set_len(0)?;
        let state = SingleDump {
            file,
            digest: Sha256::new(),
            settings: DumpSettings::default(),
            entities: BTreeMap::new(),
            is_complete: false,
        };
        let target = Self { path: path.to_owned(), partial: partial.into(), state: Mutex::new(state) };
        let about = AboutDump { version: SINGLE_VERSION, created: Ticks::now().to_canonical() };
        target.lock().push(&json_line(&FirstLine { about })?)?;
        Ok(target)
    }

    fn lock(&self) -> MutexGuard<'_, SingleDump> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn json_line(value: &impl serde::Serialize) -> TransferResult<String> {
    let text = serde_json::to_string(value).map_err(|error| TransferError::Failed(error.to_string()))?;
    Ok(text + "\n")
}

impl SingleDump {
    /// Appends lines as a frame.
    fn push(&mut self, lines: &str) -> TransferResult<()> {
        self.digest.update(lines);
        Ok(self.file.write_all(&zstd::bulk::compress(lines.as_bytes(), LEVEL)?)?)
    }
}

impl TransferTarget for SingleDumpTarget {
    fn is_sequential(&self) -> bool {
        true
    }

    fn create(&self, table: &str) -> TransferResult<()> {
        self.lock().settings.create(table);
        Ok(())
    }

    fn write(&self, page: WritePage<'_>) -> TransferResult<Counts> {
        let lines = PageLines::of(&page, true)?;
        let written = lines.keys.len() as u64;
        if written > 0 {
            let mut state = self.lock();
            state.push(&lines.text).map_err(|error| error.at(&self.partial))?;
            *state.entities.entry(page.table.to_owned()).or_default() += written;
        }
        Ok(Counts { written, rejected: lines.rejected, ..Counts::default() })
    }

    fn set_policies(&self, table: &str, policies: &[Policy]) -> TransferResult<()> {
        self.lock().settings.set_policies(table, policies)
    }

    fn set_properties(&self, wanted: &ServiceProperties) -> TransferResult<()> {
        self.lock().settings.set_properties(wanted)
    }

    fn finish(&self, _copy: &str, _written: u64) -> TransferResult<()> {
        self.complete().map_err(|error| error.at(&self.partial))
    }
}

impl SingleDumpTarget {
    /// Writes the last line, and gives the file its name.
    fn complete(&self) -> TransferResult<()> {
        let mut state = self.lock();
        let sha256 = hex(state.digest.clone());
        let DumpSettings { properties, tables } = std::mem::take(&mut state.settings);
        let listed = |(name, policies)| {
            let entities = state.entities.get(&name).copied().unwrap_or_default();
            ListedTable { name, entities, policies }
        };
        let list = DumpList { properties, tables: tables.into_iter().map(listed).collect(), sha256 };
        state.push(&json_line(&LastLine { list })?)?;
        state.file.sync_all()?;
        std::fs::rename(&self.partial, &self.path)?;
        state.is_complete = true;
        let folder = self.path.parent().filter(|folder| !folder.as_os_str().is_empty());
        Ok(File::open(folder.unwrap_or(Path::new(".")))?.sync_all()?)
    }
}

impl Drop for SingleDumpTarget {
    fn drop(&mut self) {
        if !self.lock().is_complete {
            // If this fails, the next copy writes over the file.
            let _ = std::fs::remove_file(&self.partial);
        }
    }
}
