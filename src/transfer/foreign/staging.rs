//! The temporary database that files are read into.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use tokio::runtime::Runtime;
use uuid::Uuid;

use super::{FileOptions, import};
use crate::codec::policies::Policy;
use crate::codec::properties::ServiceProperties;
use crate::model::Key;
use crate::plan::Predicate;
use crate::store::Store;
use crate::store::sqlite::{Location, SqliteOptions, SqliteStore};
use crate::transfer::database::LocalDatabase;
use crate::transfer::endpoint::{
    Mode, Rejected, RowReader, TransferError, TransferResult, TransferSource, TransferTarget, WritePage,
};
use crate::transfer::range::RowRange;
use crate::transfer::row::Row;

/// Maximum entities of a transaction.
const PAGE: usize = 500;
/// The account in the temporary database.
const ACCOUNT: &str = "staged";

/// The database that importers write to.
pub(super) struct Staging {
    database: LocalDatabase,
    /// The account to import from files with several.
    pub account: Option<String>,
    table: String,
    waiting: Vec<Row>,
    rejected: Vec<(String, Rejected)>,
}

impl Staging {
    /// Begins a table.
    pub(super) fn begin(&mut self, table: &str) -> TransferResult<()> {
        self.flush()?;
        self.database.create(table)?;
        table.clone_into(&mut self.table);
        Ok(())
    }

    /// Adds an entity of the table.
    pub(super) fn add(&mut self, row: Result<Row, Rejected>) -> TransferResult<()> {
        match row {
            Err(rejected) => self.rejected.push((self.table.clone(), rejected)),
            Ok(row) => self.waiting.push(row),
        }
        if self.waiting.len() >= PAGE { self.flush() } else { Ok(()) }
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
        if rows.is_empty() {
            return Ok(());
        }
        let page = WritePage { table: &self.table, range: 0, rows, mode: Mode::Insert, repeats: false };
        let result = self.database.write(page)?;
        let table = &self.table;
        self.rejected.extend(result.rejected.into_iter().map(|rejected| (table.clone(), rejected)));
        Ok(())
    }
}

/// Imported files. The temporary database is removed when this is dropped.
pub(crate) struct Staged {
    database: LocalDatabase,
    folder: PathBuf,
    rejected: Vec<(String, Rejected)>,
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
    let folder = std::env::temp_dir().join(format!("rowhouse-{}", Uuid::new_v4().simple()));
    std::fs::create_dir(&folder)?;
    let location = Location::File(folder.join("staged.db"));
    let opened = runtime
        .block_on(async { SqliteStore::open(&SqliteOptions { map_mib: 0, ..SqliteOptions::new(location) }) });
    let store = opened.map_err(|error| TransferError::Endpoint(error.to_string()))?;
    let store = Arc::new(Store::Sqlite(store));
    let database = |filter| LocalDatabase::new(store.clone(), ACCOUNT.to_owned(), runtime.clone(), filter);
    let mut staged = Staged { database: database(filter), folder, rejected: Vec::new() };
    let mut staging = Staging {
        database: database(None),
        account: account.map(str::to_owned),
        table: String::new(),
        waiting: Vec::new(),
        rejected: Vec::new(),
    };
    import(path, options, &mut staging)?;
    staging.flush()?;
    staged.rejected = std::mem::take(&mut staging.rejected);
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

    fn rejected(&self) -> &[(String, Rejected)] {
        &self.rejected
    }
}
