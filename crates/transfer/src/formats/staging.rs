//! The temporary database that files are read into.

use std::collections::BTreeMap;
use std::fs::File;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::sync::mpsc::{self, RecvTimeoutError};

use parking_lot::Mutex;
use tokio::runtime::Runtime;
use uuid::Uuid;

use crate::contract::{Counts, Mode, OpenedRange, Rejected, TransferSource, TransferTarget, WritePage};
use crate::error::{STOP_CHECK, TransferError, TransferResult, check_stop, failed, usage};
use crate::locations::NonEntities;
use crate::locations::database::LocalDatabase;
use crate::protocol::codec::policies::Policy;
use crate::protocol::codec::properties::ServiceProperties;
use crate::protocol::model::{EdmType, Key};
use crate::protocol::plan::Predicate;
use crate::rejects::RejectedSpool;
use crate::rows::Row;
use crate::rows::range::RowRange;
use crate::rows::selection::Selection;
use crate::rows::type_inference::{Inferences, TableNotes};
use crate::store::sqlite::{Location, SqliteOptions, SqliteStore};
use crate::work::progress::{Progress, ProgressForm};

/// Maximum entities in a transaction.
const MAX_ROWS: usize = 500;
/// Bytes of properties after which a transaction is committed.
const MAX_BYTES: usize = 1 << 20;

/// Imported files. The temporary database is deleted on drop.
pub struct Staged {
    database: LocalDatabase,
    /// Whether a filter selects entities.
    is_filtered: bool,
    rejected: RejectedSpool,
    inferences: Inferences,
    /// Whether the files have policies and service properties, perhaps empty ones.
    pub(super) has_settings: bool,
    /// The first file that was not read, and why.
    left_out: Option<String>,
    entities: BTreeMap<String, u64>,
    /// Dropped last.
    folder: StagingFolder,
}

/// The destination of importers.
pub(super) struct Staging {
    pub staged: Staged,
    /// The account to import from files with several accounts.
    pub account: Option<String>,
    table: String,
    waiting: Vec<Row>,
    /// Bytes of the properties of the waiting rows.
    waiting_bytes: usize,
    non_entities: NonEntities,
    progress: Progress,
    stop: Arc<AtomicBool>,
}

impl Staging {
    pub(super) fn notes(&mut self) -> TableNotes<'_> {
        self.staged.inferences.of(&self.table)
    }

    /// Writes standard input to a file beside the database.
    pub(super) fn spool_input(&self) -> TransferResult<PathBuf> {
        let path = self.staged.folder.path.join("standard input");
        let mut file = File::create(&path).map_err(|error| self.staged.folder.failed(&error))?;
        let (sender, receiver) = mpsc::channel();
        // A signal does not end a read, so the thread may live as long as the process.
        std::thread::spawn(move || sender.send(std::io::copy(&mut std::io::stdin().lock(), &mut file)));
        loop {
            check_stop(&self.stop)?;
            match receiver.recv_timeout(STOP_CHECK) {
                Ok(copied) => return copied.map(|_| path).map_err(|error| self.staged.folder.failed(&error)),
                Err(RecvTimeoutError::Timeout) => {}
                Err(RecvTimeoutError::Disconnected) => return Err(failed!("standard input was not read")),
            }
        }
    }

    /// Records a remark on the files, which is reported before anything is written.
    pub(super) fn remark(&mut self, text: String) {
        self.staged.inferences.remark(text);
    }

    /// Records a file that is not read. Its entities may seem to be absent from the source.
    pub(super) fn leave_out(&mut self, text: String) {
        self.staged.left_out.get_or_insert_with(|| text.clone());
        self.remark(text);
    }

    /// Refuses types that were given for properties without any untyped value.
    pub(super) fn refuse_unused(&self, types: &[(String, EdmType)]) -> TransferResult<()> {
        let is_unused = |(name, _): &&(String, EdmType)| !self.staged.inferences.has_given(name);
        let has_entities = !self.staged.entities.is_empty() || !self.waiting.is_empty();
        match types.iter().find(is_unused).filter(|_| has_entities) {
            None => Ok(()),
            Some((name, _)) => Err(usage!(
                "--type: no entity in the file has a property {name} without a type; check its name, or \
                 leave it out"
            )),
        }
    }

    pub(super) fn begin(&mut self, table: &str) -> TransferResult<()> {
        self.flush()?;
        if self.table != table {
            self.staged.database.create(table)?;
            table.clone_into(&mut self.table);
        }
        Ok(())
    }

    pub(super) fn add(&mut self, row: Result<Row, Rejected>) -> TransferResult<()> {
        check_stop(&self.stop)?;
        let rejected = u64::from(row.is_err());
        self.progress.add(&self.table, Counts { written: 1 - rejected, rejected, ..Counts::default() });
        match row {
            Err(rejected) => {
                let kept = self.staged.rejected.push(&self.table, rejected);
                kept.map_err(|error| self.staged.folder.failed(&error))?;
            }
            Ok(row) => {
                self.waiting_bytes += row.properties.as_str().len();
                self.waiting.push(row);
            }
        }
        let is_full = self.waiting.len() >= MAX_ROWS || self.waiting_bytes >= MAX_BYTES;
        if is_full { self.flush() } else { Ok(()) }
    }

    /// Adds a document that has no keys or is not an object. A file with many such documents is refused.
    pub(super) fn add_non_entity(&mut self, document: Rejected) -> TransferResult<()> {
        self.non_entities.add(1, &self.table, "documents in its files")?;
        self.add(Err(document))
    }

    pub(super) fn set_policies(&mut self, policies: &[Policy]) -> TransferResult<()> {
        self.staged.database.set_policies(&self.table, policies)
    }

    pub(super) fn set_properties(&mut self, properties: &ServiceProperties) -> TransferResult<()> {
        self.staged.database.set_properties(properties)
    }

    fn flush(&mut self) -> TransferResult<()> {
        let rows = std::mem::take(&mut self.waiting);
        self.waiting_bytes = 0;
        if rows.is_empty() {
            return Ok(());
        }
        let Staged { database, rejected, folder, entities, .. } = &mut self.staged;
        let rejected = Mutex::new(rejected);
        let written = database.write(WritePage {
            table: &self.table,
            range: 0,
            rows,
            mode: Mode::Insert,
            resumed: None,
            copy: "",
            last: None,
            rejected: 0,
            reject: &|entity| rejected.lock().push(&self.table, entity),
        });
        let written = written.map_err(|error| folder.failed(&error))?.written;
        *entities.entry(self.table.clone()).or_default() += written;
        Ok(())
    }
}

pub(crate) struct StagingOptions {
    pub account: Option<String>,
    pub runtime: Arc<Runtime>,
    pub filter: Option<Predicate>,
    pub progress: ProgressForm,
    pub stop: Arc<AtomicBool>,
}

/// Reads the tables of a source without an order into a temporary database.
pub(crate) fn stage_source(
    source: &dyn TransferSource,
    selection: &Selection,
    options: StagingOptions,
) -> TransferResult<Staged> {
    with_staging(options, |staging| {
        for table in source.selected_tables(selection)? {
            staging.begin(&table)?;
            let mut reader = source.open(&table, &RowRange::everything(), false)?;
            while let Some(page) = reader.next()? {
                page.rejected.into_iter().try_for_each(|rejected| staging.add(Err(rejected)))?;
                page.rows.into_iter().try_for_each(|row| staging.add(Ok(row)))?;
            }
        }
        Ok(())
    })
}

/// Runs `read` with a temporary database.
pub(super) fn with_staging(
    options: StagingOptions,
    read: impl FnOnce(&mut Staging) -> TransferResult<()>,
) -> TransferResult<Staged> {
    let StagingOptions { account, runtime, filter, progress, stop } = options;
    let folder = StagingFolder::create()?;
    let location = Location::File(folder.path.join(DATABASE));
    let opened = runtime
        .block_on(async { SqliteStore::open(&SqliteOptions { map_mib: 0, ..SqliteOptions::new(location) }) });
    let store = opened.map_err(|error| folder.failed(&error))?;
    let mut staging = Staging {
        staged: Staged {
            database: LocalDatabase::temporary(store, runtime),
            is_filtered: filter.is_some(),
            rejected: RejectedSpool::new(&folder.path),
            inferences: Inferences::default(),
            has_settings: false,
            left_out: None,
            entities: BTreeMap::new(),
            folder,
        },
        account,
        table: String::new(),
        waiting: Vec::new(),
        waiting_bytes: 0,
        non_entities: NonEntities::default(),
        progress: Progress::start(progress, "read"),
        stop,
    };
    read(&mut staging)?;
    staging.flush()?;
    let mut staged = staging.staged;
    staged.rejected.finish().map_err(|error| staged.folder.failed(&error))?;
    staged.database.set_filter(filter);
    Ok(staged)
}

impl TransferSource for Staged {
    fn tables(&self) -> TransferResult<Vec<String>> {
        self.database.tables()
    }

    fn can_change(&self) -> bool {
        false
    }

    fn open<'a>(&'a self, table: &str, range: &RowRange, keys_only: bool) -> OpenedRange<'a> {
        self.database.open(table, range, keys_only)
    }

    fn probe(&self, table: &str, range: &RowRange) -> TransferResult<Option<Key>> {
        self.database.probe(table, range)
    }

    fn get(&self, table: &str, key: &Key) -> TransferResult<Option<Row>> {
        self.database.get(table, key)
    }

    fn policies(&self, table: &str) -> TransferResult<Option<Vec<Policy>>> {
        if self.has_settings { self.database.policies(table) } else { Ok(None) }
    }

    fn properties(&self) -> TransferResult<Option<ServiceProperties>> {
        if self.has_settings { TransferSource::properties(&self.database) } else { Ok(None) }
    }

    fn expected(&self, table: &str) -> TransferResult<Option<u64>> {
        Ok((!self.is_filtered).then(|| self.entities.get(table).copied().unwrap_or(0)))
    }

    fn each_rejected(
        &self,
        take: &mut dyn FnMut(&str, Rejected) -> TransferResult<()>,
    ) -> TransferResult<()> {
        self.rejected.each(take)
    }

    fn left_out(&self) -> Option<&str> {
        self.left_out.as_deref()
    }

    fn inferences(&self) -> Option<&Inferences> {
        Some(&self.inferences)
    }
}

const DATABASE: &str = "staged.db";
const PREFIX: &str = "rowhouse-staged-";
/// Free space in bytes below which the disk counts as full.
const MIN_FREE_BYTES: u64 = 16 << 20;

/// A folder for temporary files. It is deleted on drop or, if the process is killed, by the next copy.
struct StagingFolder {
    path: PathBuf,
    /// The lock on the folder. A folder without a lock was abandoned.
    _lock: File,
}

impl StagingFolder {
    fn create() -> TransferResult<Self> {
        let parent = std::env::temp_dir();
        remove_abandoned(&parent);
        let path = parent.join(format!("{PREFIX}{}", Uuid::new_v4().simple()));
        let create = || {
            create_private(&path)?;
            let lock = File::open(&path)?;
            lock.lock()?;
            Ok::<_, std::io::Error>(lock)
        };
        match create() {
            Ok(lock) => Ok(Self { path, _lock: lock }),
            Err(error) => Err(failed(&path, &error)),
        }
    }

    /// Returns the error of a temporary file, with the folder, and a hint if the disk is full.
    fn failed(&self, error: &dyn std::fmt::Display) -> TransferError {
        failed(&self.path, error)
    }
}

impl Drop for StagingFolder {
    fn drop(&mut self) {
        // If this fails, the next copy removes it.
        let _ = std::fs::remove_dir_all(&self.path);
    }
}

/// Creates a folder that other users of the machine cannot read, because the files may be private.
fn create_private(path: &Path) -> std::io::Result<()> {
    let mut builder = std::fs::DirBuilder::new();
    #[cfg(unix)]
    std::os::unix::fs::DirBuilderExt::mode(&mut builder, 0o700);
    builder.create(path)
}

/// Deletes the folders of killed processes, ignoring failures.
fn remove_abandoned(parent: &Path) {
    for entry in std::fs::read_dir(parent).into_iter().flatten().flatten() {
        let path = entry.path();
        let is_staging = entry.file_name().to_string_lossy().starts_with(PREFIX);
        // A new process may not have locked its folder yet, but then the folder has no database.
        if !is_staging || !path.join(DATABASE).is_file() {
            continue;
        }
        if let Ok(folder) = File::open(&path)
            && folder.try_lock().is_ok()
        {
            let _ = std::fs::remove_dir_all(&path);
        }
    }
}

/// Returns the error of a temporary file, with the folder, and a hint if the disk is full.
fn failed(folder: &Path, error: &dyn std::fmt::Display) -> TransferError {
    let place = folder.parent().unwrap_or(folder).display();
    let hint = if has_little_space(folder) {
        format!("; {place} is full: set TMPDIR to a folder with more space")
    } else {
        String::new()
    };
    failed!("temporary files in {place}: {error}{hint}")
}

#[cfg(unix)]
fn has_little_space(folder: &Path) -> bool {
    let place = folder.parent().unwrap_or(folder);
    rustix::fs::statvfs(place).is_ok_and(|of| of.f_bavail.saturating_mul(of.f_frsize) < MIN_FREE_BYTES)
}

#[cfg(not(unix))]
fn has_little_space(_folder: &Path) -> bool {
    false
}

#[cfg(test)]
mod tests {

    #[test]
    #[cfg(unix)]
    fn nobody_else_can_look_into_the_folder() {
        let folder = super::StagingFolder::create().unwrap();
        let permissions = std::fs::metadata(&folder.path).unwrap().permissions();
        assert_eq!(std::os::unix::fs::PermissionsExt::mode(&permissions) & 0o777, 0o700);
    }
}
