//! Opening the places of a transfer.

use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use tokio::runtime::Runtime;

use crate::client::{Address, Client};
use crate::contract::{TransferSource, TransferTarget};
use crate::error::{TransferResult, failed, usage};
use crate::formats::{FileOptions, Staged, StagingOptions, stage, stage_source};
use crate::locations::database::LocalDatabase;
use crate::locations::dump::{DumpSource, DumpTarget};
use crate::locations::endpoint::Endpoint;
use crate::locations::location::DataLocation;
use crate::protocol::auth::accounts::DEVELOPMENT_ACCOUNT;
use crate::protocol::auth::seal::MasterKeys;
use crate::protocol::plan::Predicate;
use crate::rows::selection::Selection;
use crate::store::Store;
use crate::store::database::{self, DatabaseError};
use crate::store::sqlite::ServerLock;
use crate::work::progress::ProgressForm;

pub struct Opener<'a> {
    pub selection: &'a Selection,
    pub concurrency: usize,
    pub stop: Arc<AtomicBool>,
    pub runtime: Arc<Runtime>,
    /// The account, if the place is a database.
    pub account: Option<&'a str>,
    pub files: FileOptions,
    pub progress: ProgressForm,
}

pub enum OpenLocation {
    Endpoint(Box<Endpoint>),
    Database {
        database: Box<LocalDatabase>,
        /// Held while the database is open for writing.
        _lock: Option<ServerLock>,
    },
    DumpSource(DumpSource),
    DumpTarget(DumpTarget),
    Files(Box<Staged>),
}

impl Opener<'_> {
    pub fn source(&self, place: &DataLocation) -> TransferResult<OpenLocation> {
        Ok(match place {
            DataLocation::Endpoint(address) => OpenLocation::Endpoint(Box::new(self.remote(address)?)),
            DataLocation::Database(database) => {
                let store = self.runtime.block_on(database::open_to_read(database));
                let opened = self.database(store, None)?;
                if let OpenLocation::Database { database, .. } = &opened {
                    database.refuse_other_accounts().map_err(|error| error.of(&place.display()))?;
                }
                opened
            }
            DataLocation::Dump(path) if !path.is_file() => {
                OpenLocation::DumpSource(DumpSource::open(path, self.predicate()?)?)
            }
            DataLocation::Dump(path) | DataLocation::File(path) => {
                let staged = stage(path, &self.files, self.staging(self.predicate()?))?;
                OpenLocation::Files(Box::new(staged))
            }
        })
    }

    /// Opens a place for writing. A database is created if it does not exist.
    pub fn target(&self, place: &DataLocation) -> TransferResult<OpenLocation> {
        Ok(match place {
            DataLocation::Endpoint(address) => OpenLocation::Endpoint(Box::new(self.remote(address)?)),
            DataLocation::Database(database) => {
                let lock = database::lock(database).map_err(|error| failed!("{error}"))?;
                let store = self.runtime.block_on(database::open_primary(database));
                self.database(store, lock)?
            }
            DataLocation::Dump(path) => OpenLocation::DumpTarget(DumpTarget::open(path)?),
            DataLocation::File(_) => {
                return Err(usage!(
                    "TO: files of other programs can only be read; give a database, an endpoint or \
                     dump:FOLDER"
                ));
            }
        })
    }

    /// Reads a source without an order into a temporary database, which sorts it.
    pub fn sorted(&self, source: &dyn TransferSource) -> TransferResult<OpenLocation> {
        let staged = stage_source(source, self.selection, self.staging(None))?;
        Ok(OpenLocation::Files(Box::new(staged)))
    }

    fn staging(&self, filter: Option<Predicate>) -> StagingOptions {
        StagingOptions {
            account: self.account.map(str::to_owned),
            runtime: self.runtime.clone(),
            filter,
            progress: self.progress,
            stop: self.stop.clone(),
        }
    }

    fn remote(&self, address: &Address) -> TransferResult<Endpoint> {
        let client = Client::new(address.clone(), self.concurrency, self.stop.clone());
        Endpoint::new(client, self.selection)
    }

    fn database(
        &self,
        store: std::result::Result<Store, DatabaseError>,
        lock: Option<ServerLock>,
    ) -> TransferResult<OpenLocation> {
        let store = store.map_err(|error| failed!("{error}"))?;
        let account = self.account.unwrap_or(DEVELOPMENT_ACCOUNT).to_owned();
        let (store, runtime) = (Arc::new(store), self.runtime.clone());
        let database = LocalDatabase::new(store, account, runtime, self.predicate()?);
        Ok(OpenLocation::Database { database: Box::new(database), _lock: lock })
    }

    fn predicate(&self) -> TransferResult<Option<Predicate>> {
        self.selection.predicate().map_err(|reason| usage!("--filter: {reason}"))
    }
}

impl OpenLocation {
    pub fn as_source(&self) -> TransferResult<&dyn TransferSource> {
        match self {
            OpenLocation::Endpoint(remote) => Ok(&**remote),
            OpenLocation::Database { database, .. } => Ok(&**database),
            OpenLocation::DumpSource(dump) => Ok(dump),
            OpenLocation::Files(staged) => Ok(&**staged),
            OpenLocation::DumpTarget(_) => Err(usage!("a dump cannot be compared while it is written")),
        }
    }

    pub fn as_target(&self) -> TransferResult<&dyn TransferTarget> {
        match self {
            OpenLocation::Endpoint(remote) => Ok(&**remote),
            OpenLocation::Database { database, .. } => Ok(&**database),
            OpenLocation::DumpTarget(dump) => Ok(dump),
            OpenLocation::DumpSource(_) | OpenLocation::Files(_) => {
                Err(usage!("a dump or file cannot be changed"))
            }
        }
    }
}

impl OpenLocation {
    /// Copies the stored accounts of a database, with their limits and queries, to another one; returns their
    /// number. Existing accounts are not changed.
    pub fn copy_accounts(&self, to: &Self, master: &MasterKeys) -> TransferResult<u64> {
        match (self, to) {
            (OpenLocation::Database { database: from, .. }, OpenLocation::Database { database: to, .. }) => {
                from.copy_accounts(to, master)
            }
            _ => Err(usage!("--accounts: FROM and TO must be databases")),
        }
    }
}

impl Drop for OpenLocation {
    fn drop(&mut self) {
        if let OpenLocation::Database { database, .. } = self {
            database.close();
        }
    }
}
