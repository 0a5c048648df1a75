//! The temporary database that files are read into.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, PoisonError};

use serde_json::{Map, Value};
use tokio::runtime::Runtime;
use uuid::Uuid;

use super::spool::{RejectedSpool, SpooledRejects};
use super::{FileOptions, import};
use crate::codec::policies::Policy;
use crate::codec::properties::ServiceProperties;
use crate::model::{EdmType, Key};
use crate::plan::Predicate;
use crate::store::Store;
use crate::store::sqlite::{Location, SqliteOptions, SqliteStore};
use crate::transfer::database::LocalDatabase;
use crate::transfer::endpoint::{
    Mode, Rejected, RowReader, TransferError, TransferResult, TransferSource, TransferTarget, WritePage,
};
use crate::transfer::inferred::Inferences;
use crate::transfer::range::RowRange;
use crate::transfer::row::Row;
use crate::transfer::selection::Selection;

/// Maximum entities of a transaction.
const PAGE: usize = 500;
/// Bytes of properties from which on a transaction is full.
const PAGE_BYTES: usize = 1 << 20;
/// The account in the temporary database.
const ACCOUNT: &str = "staged";

/// The database that importers write to.
pub(super) struct Staging {
    database: LocalDatabase,
    /// The account to import from files with several.
    pub account: Option<String>,
    table: String,
    waiting: Vec<Row>,
    /// Bytes of the properties of those that wait.
    waiting_bytes: usize,
    rejected: RejectedSpool,
    inferences: Inferences,
    entities: BTreeMap<String, u64>,
    taken: u64,
}

impl Staging {
    /// Returns how many entities were added so far.
    pub(super) const fn taken(&self) -> u64 {
        self.taken
    }

    /// Notes the types of the numbers of an entity with annotations.
    pub(super) fn note_numbers(&mut self, members: &Map<String, Value>) {
        self.inferences.note_numbers(&self.table, members);
    }

    /// Returns what to note a type with, of a property of the table.
    pub(super) fn inferences(&mut self) -> impl FnMut(&str, EdmType, bool) {
        |property, edm_type, is_told| self.inferences.note(&self.table, property, edm_type, is_told)
    }

    /// Begins a table.
    pub(super) fn begin(&mut self, table: &str) -> TransferResult<()> {
        self.flush()?;
        if self.table != table {
            self.database.create(table)?;
            table.clone_into(&mut self.table);
        }
        Ok(())
    }

    /// Adds an entity of the table.
    pub(super) fn add(&mut self, row: Result<Row, Rejected>) -> TransferResult<()> {
        self.taken += 1;
        match row {
            Err(rejected) => self.rejected.push(&self.table, rejected)?,
            Ok(row) => {
                self.waiting_bytes += row.properties.as_str().len();
                self.waiting.push(row);
            }
        }
        let is_full = self.waiting.len() >= PAGE || self.waiting_bytes >= PAGE_BYTES;
        if is_full { self.flush() } else { Ok(()) }
    }

    /// Sets the policies of the table.
    pub(super) fn policies(&mut self, policies: &[Policy]) -> TransferResult<()> {
        self.database.set_policies(&self.table, policies)
    }

    /// Sets the service properties.
    pub(super) fn properties(&mut self, properties: &ServiceProperties) -> TransferResult<()> {
        self.database.set_properties(properties)
    }

    fn flush(&mut self) -> TransferResult<()> {
        let rows = std::mem::take(&mut self.waiting);
        self.waiting_bytes = 0;
        if rows.is_empty() {
            return Ok(());
        }
        let rejected = Mutex::new(&mut self.rejected);
        let staged = self.database.write(WritePage {
            table: &self.table,
            range: 0,
            rows,
            mode: Mode::Insert,
            resumed: None,
            copy: "",
            last: None,
            rejected: 0,
            reject: &|entity| {
                rejected.lock().unwrap_or_else(PoisonError::into_inner).push(&self.table, entity)
            },
        })?;
        *self.entities.entry(self.table.clone()).or_default() += staged.written;
        Ok(())
    }
}

/// Imported files. The temporary database is removed when this is dropped.
pub(crate) struct Staged {
    database: LocalDatabase,
    folder: PathBuf,
    rejected: SpooledRejects,
    inferences: Inferences,
    /// How many entities each table has, unless a filter selects some.
    entities: Option<BTreeMap<String, u64>>,
}

impl Drop for Staged {
    fn drop(&mut self) {
        self.database.close();
        // If this fails, the system cleans up its temporary files.
        let _ = std::fs::remove_dir_all(&self.folder);
    }
}

/// Reads files into a temporary database.
///
/// # Errors
/// [`TransferError`] if a file cannot be read or its format is unknown.
pub(crate) fn stage(
    path: &Path,
    options: &FileOptions,
    account: Option<&str>,
    runtime: Arc<Runtime>,
    filter: Option<Predicate>,
) -> TransferResult<Staged> {
    staged(account, runtime, filter, |staging| import(path, options, staging))
}

/// Reads the tables of another source, which has no order, into a temporary database.
///
/// # Errors
/// [`TransferError`] if it cannot be read, or is interrupted.
pub(crate) fn stage_source(
    source: &dyn TransferSource,
    selection: &Selection,
    runtime: Arc<Runtime>,
    stop: &AtomicBool,
) -> TransferResult<Staged> {
    staged(None, runtime, None, |staging| {
        for table in source.tables()?.into_iter().filter(|name| selection.has_table(name)) {
            staging.begin(&table)?;
            let mut reader = source.open(&table, &RowRange::everything(), false)?;
            while let Some(page) = reader.next()? {
                if stop.load(Ordering::Relaxed) {
                    return Err(TransferError::Interrupted);
                }
                page.rejected.into_iter().try_for_each(|rejected| staging.add(Err(rejected)))?;
                page.rows.into_iter().try_for_each(|row| staging.add(Ok(row)))?;
            }
        }
        Ok(())
    })
}

fn staged(
    account: Option<&str>,
    runtime: Arc<Runtime>,
    filter: Option<Predicate>,
    read: impl FnOnce(&mut Staging) -> TransferResult<()>,
) -> TransferResult<Staged> {
    let folder = std::env::temp_dir().join(format!("rowhouse-{}", Uuid::new_v4().simple()));
    std::fs::create_dir(&folder)?;
    let location = Location::File(folder.join("staged.db"));
    let opened = runtime
        .block_on(async { SqliteStore::open(&SqliteOptions { map_mib: 0, ..SqliteOptions::new(location) }) });
    let store = opened.map_err(|error| TransferError::Endpoint(error.to_string()))?;
    let store = Arc::new(Store::Sqlite(store));
    let database =
        |filter| LocalDatabase::new(store.clone(), ACCOUNT.to_owned(), runtime.clone(), filter).temporary();
    let is_whole = filter.is_none();
    let (rejected, inferences) = (RejectedSpool::new(&folder).finish()?, Inferences::default());
    let mut staged = Staged { database: database(filter), folder, rejected, inferences, entities: None };
    let mut staging = Staging {
        database: database(None),
        account: account.map(str::to_owned),
        table: String::new(),
        waiting: Vec::new(),
        waiting_bytes: 0,
        rejected: RejectedSpool::new(&staged.folder),
        inferences: Inferences::default(),
        entities: BTreeMap::new(),
        taken: 0,
    };
    read(&mut staging)?;
    staging.flush()?;
    staged.rejected = staging.rejected.finish()?;
    staged.inferences = staging.inferences;
    staged.entities = is_whole.then_some(staging.entities);
    Ok(staged)
}

impl TransferSource for Staged {
    fn tables(&self) -> TransferResult<Vec<String>> {
        self.database.tables()
    }

    fn open<'a>(
        &'a self,
        table: &str,
        range: &RowRange,
        keys_only: bool,
    ) -> TransferResult<Box<dyn RowReader + 'a>> {
        self.database.open(table, range, keys_only)
    }

    fn probe(&self, table: &str, range: &RowRange) -> TransferResult<Option<Key>> {
        self.database.probe(table, range)
    }

    fn get(&self, table: &str, key: &Key) -> TransferResult<Option<Row>> {
        self.database.get(table, key)
    }

    fn policies(&self, table: &str) -> TransferResult<Option<Vec<Policy>>> {
        self.database.policies(table)
    }

    fn properties(&self) -> TransferResult<Option<ServiceProperties>> {
        TransferSource::properties(&self.database)
    }

    fn expected(&self, table: &str) -> TransferResult<Option<u64>> {
        Ok(self.entities.as_ref().map(|entities| entities.get(table).copied().unwrap_or(0)))
    }

    fn rejected(&self) -> u64 {
        self.rejected.entities()
    }

    fn each_rejected(
        &self,
        take: &mut dyn FnMut(&str, Rejected) -> TransferResult<()>,
    ) -> TransferResult<()> {
        self.rejected.each(take)
    }

    fn inferences(&self) -> Option<&Inferences> {
        Some(&self.inferences)
    }
}
