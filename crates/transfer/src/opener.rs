//! Opens the places of a transfer.

use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use tokio::runtime::Runtime;

use crate::client::{Address, Client};
use crate::contract::{TransferSource, TransferTarget};
use crate::error::{TransferResult, failed, usage};
use crate::formats::{FileOptions, Staged, StagingOptions, stage, stage_input, stage_source};
use crate::locations::database::LocalDatabase;
use crate::locations::dump::{DumpSource, DumpTarget};
use crate::locations::endpoint::Endpoint;
use crate::locations::lines::LineTarget;
use crate::locations::location::DataLocation;
use crate::protocol::auth::accounts::DEVELOPMENT_ACCOUNT;
use crate::protocol::auth::key_encryption::MasterKeys;
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
    pub files: FileOptions,
    pub progress: ProgressForm,
}

pub enum OpenLocation {
    Endpoint(Box<Endpoint>),
    Database(Box<LocalDatabase>),
    DumpSource(DumpSource),
    DumpTarget(DumpTarget),
    Files(Box<Staged>),
    Lines(LineTarget),
}

impl Opener<'_> {
    pub fn open_source(&self, place: &DataLocation) -> TransferResult<OpenLocation> {
        match place {
            DataLocation::Endpoint(address) => self.endpoint(address),
            DataLocation::Database(..) => {
                let opened = self.open_accounts(place)?;
                if let OpenLocation::Database(database) = &opened {
                    database.refuse_other_accounts().map_err(|error| error.on(&place.display()))?;
                }
                Ok(opened)
            }
            DataLocation::Dump(path) if !path.is_file() => {
                Ok(OpenLocation::DumpSource(DumpSource::open(path, self.predicate()?)?))
            }
            DataLocation::Standard => {
                let staged = stage_input(&self.files, self.staging(self.predicate()?, None))?;
                Ok(OpenLocation::Files(Box::new(staged)))
            }
            DataLocation::Dump(path) | DataLocation::File(path, _) => {
                let staged = stage(path, &self.files, self.staging(self.predicate()?, place.account()))?;
                Ok(OpenLocation::Files(Box::new(staged)))
            }
        }
    }

    /// Opens a database for reading, whether or not its account has tables.
    pub fn open_accounts(&self, place: &DataLocation) -> TransferResult<OpenLocation> {
        let DataLocation::Database(options, account) = place else {
            return Err(usage!("{} is not a database", place.display()));
        };
        let store = self.runtime.block_on(database::open_to_read(options));
        Ok(OpenLocation::Database(Box::new(self.database(store, account.as_deref(), None)?)))
    }

    /// Opens a place for writing. A database is created if it does not exist.
    pub fn open_target(&self, place: &DataLocation) -> TransferResult<OpenLocation> {
        match place {
            DataLocation::Endpoint(address) => self.endpoint(address),
            DataLocation::Database(options, _) if options.is_in_memory() => Err(usage!(
                "TO: a database in memory is lost when the command ends; name a file, such as sqlite://rowhouse.db"
            )),
            DataLocation::Database(options, account) => {
                let lock = database::lock(options).map_err(|error| failed!("{error}"))?;
                let store = self.runtime.block_on(database::open_primary(options));
                Ok(OpenLocation::Database(Box::new(self.database(store, account.as_deref(), lock)?)))
            }
            DataLocation::Dump(path) => Ok(OpenLocation::DumpTarget(DumpTarget::open(path)?)),
            DataLocation::Standard => Ok(OpenLocation::Lines(LineTarget)),
            DataLocation::File(..) => Err(usage!(
                "TO: files of other programs can only be read; give a database, an endpoint or dump:FOLDER"
            )),
        }
    }

    /// Reads a source without an order into a temporary database, which sorts it.
    pub fn open_sorted(&self, source: &dyn TransferSource) -> TransferResult<OpenLocation> {
        let staged = stage_source(source, self.selection, self.staging(None, None))?;
        Ok(OpenLocation::Files(Box::new(staged)))
    }

    fn staging(&self, filter: Option<Predicate>, account: Option<&str>) -> StagingOptions {
        StagingOptions {
            account: account.map(str::to_owned),
            runtime: self.runtime.clone(),
            filter,
            progress: self.progress,
            stop: self.stop.clone(),
        }
    }

    fn endpoint(&self, address: &Address) -> TransferResult<OpenLocation> {
        let client = Client::new(address.clone(), self.concurrency, self.stop.clone());
        Ok(OpenLocation::Endpoint(Box::new(Endpoint::new(Arc::new(client), self.selection)?)))
    }

    fn database(
        &self,
        store: Result<Store, DatabaseError>,
        account: Option<&str>,
        lock: Option<ServerLock>,
    ) -> TransferResult<LocalDatabase> {
        let store = store.map_err(|error| failed!("{error}"))?;
        let account = account.unwrap_or(DEVELOPMENT_ACCOUNT).to_owned();
        Ok(LocalDatabase::new(store, account, self.runtime.clone(), self.predicate()?, lock))
    }

    fn predicate(&self) -> TransferResult<Option<Predicate>> {
        self.selection.predicate().map_err(|reason| usage!("--filter: {reason}"))
    }
}

impl OpenLocation {
    pub fn as_source(&self) -> TransferResult<&dyn TransferSource> {
        match self {
            OpenLocation::Endpoint(remote) => Ok(&**remote),
            OpenLocation::Database(database) => Ok(&**database),
            OpenLocation::DumpSource(dump) => Ok(dump),
            OpenLocation::Files(staged) => Ok(&**staged),
            OpenLocation::DumpTarget(_) => Err(usage!("a dump cannot be compared while it is written")),
            OpenLocation::Lines(_) => Err(usage!("standard output can only be written")),
        }
    }

    pub fn as_target(&self) -> TransferResult<&dyn TransferTarget> {
        match self {
            OpenLocation::Endpoint(remote) => Ok(&**remote),
            OpenLocation::Database(database) => Ok(&**database),
            OpenLocation::DumpTarget(dump) => Ok(dump),
            OpenLocation::Lines(lines) => Ok(lines),
            OpenLocation::DumpSource(_) | OpenLocation::Files(_) => {
                Err(usage!("a dump or file cannot be changed"))
            }
        }
    }

    /// Removes what an interrupted copy has written to a dump. Other places keep it.
    pub fn clear(&self) -> TransferResult<()> {
        match self {
            OpenLocation::DumpTarget(dump) => dump.clear(),
            _ => Ok(()),
        }
    }

    /// Copies the stored accounts of a database, with their limits and queries, to another one; returns their
    /// number. Existing accounts are not changed.
    pub fn copy_accounts(&self, to: &Self, master: &MasterKeys) -> TransferResult<u64> {
        match (self, to) {
            (OpenLocation::Database(from), OpenLocation::Database(to)) => from.copy_accounts(to, master),
            _ => Err(usage!("FROM and TO must be databases")),
        }
    }

    /// Returns the accounts of a database that have tables.
    pub fn accounts_with_tables(&self) -> TransferResult<Vec<String>> {
        match self {
            OpenLocation::Database(database) => database.accounts_with_tables(),
            _ => Err(usage!("only a database has several accounts")),
        }
    }
}
