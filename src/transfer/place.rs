//! The FROM and TO of the command line.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use tokio::runtime::Runtime;

use super::database::LocalDatabase;
use super::dump::{DumpSource, DumpTarget, MANIFEST, SingleDumpTarget, is_single, names_single};
use super::endpoint::{TransferError, TransferResult, TransferSource, TransferTarget};
use super::foreign::{FileOptions, Staged, StagingOptions, stage, stage_source};
use super::progress::ProgressForm;
use super::remote::Remote;
use super::selection::Selection;
use crate::protocol::auth::accounts::DEVELOPMENT_ACCOUNT;
use crate::protocol::auth::seal::MasterKeys;
use crate::protocol::plan::Predicate;
use crate::server::config::{Database, StorageSettings};
use crate::server::start;
use crate::store::Store;
use crate::store::sqlite::ServerLock;
use crate::transfer::client::{Address, AddressError, Client};

/// Maximum bytes of a file that holds a connection string.
const MAX_SECRET: u64 = 64 << 10;

/// Where entities are copied from or to.
#[derive(Debug, Clone)]
pub(crate) enum Place {
    /// A Table endpoint.
    Remote(Box<Address>),
    /// Rowhouse's own database.
    Database(Box<Database>),
    /// A folder with a dump, or a file.
    Dump(PathBuf),
    /// A file of another program, or a folder of such files: read-only.
    File(PathBuf),
}

/// Why a text is not a valid place.
#[derive(Debug, thiserror::Error)]
pub(crate) enum PlaceError {
    #[error("{0} is not set")]
    Variable(String),
    #[error("{0}: {1}")]
    File(String, std::io::Error),
    #[error("{0}")]
    Address(#[from] AddressError),
    #[error("{0}")]
    Database(String),
    #[error(
        "is neither a connection string, an https:// address with a signature, a sqlite: or postgres: URL, \
         a dump (dump:PATH or PATH.ndjson.zst), a file that exists, env:NAME nor file:PATH"
    )]
    Unknown,
}

impl Place {
    /// Parses an argument. `env:NAME` and `file:PATH` name a variable and a file with the actual text, so
    /// that secrets do not show in the list of processes.
    ///
    /// # Errors
    /// [`PlaceError`].
    pub(crate) fn parse(text: &str) -> std::result::Result<Self, PlaceError> {
        if let Some(name) = text.strip_prefix("env:") {
            let value = std::env::var(name).map_err(|_| PlaceError::Variable(text.to_owned()))?;
            return Self::of(value.trim());
        }
        if let Some(path) = text.strip_prefix("file:") {
            let failed = |error| PlaceError::File(text.to_owned(), error);
            let size = std::fs::metadata(path).map_err(failed)?.len();
            if size > MAX_SECRET {
                return Err(failed(std::io::ErrorKind::FileTooLarge.into()));
            }
            return Self::of(std::fs::read_to_string(path).map_err(failed)?.trim());
        }
        Self::of(text)
    }

    fn of(text: &str) -> std::result::Result<Self, PlaceError> {
        if let Some(path) = text.strip_prefix("dump:") {
            return Ok(Place::Dump(path.into()));
        }
        if ["sqlite:", "postgres://", "postgresql://"].iter().any(|scheme| text.starts_with(scheme)) {
            let database = StorageSettings::of_url(text).map_err(PlaceError::Database)?;
            return Ok(Place::Database(Box::new(database)));
        }
        if text.starts_with("http://") || text.starts_with("https://") || text.contains('=') {
            return Ok(Place::Remote(Box::new(Address::parse(text)?)));
        }
        let path = Path::new(text);
        if path.join(MANIFEST).is_file() || names_single(path) {
            return Ok(Place::Dump(path.to_owned()));
        }
        if path.exists() { Ok(Place::File(path.to_owned())) } else { Err(PlaceError::Unknown) }
    }

    /// Returns the place without secrets, for messages and for comparing places.
    pub(crate) fn shown(&self) -> String {
        match self {
            Place::Remote(address) => address.tables.clone(),
            Place::Database(database) => database.shown(),
            Place::Dump(path) => format!("dump:{}", path.display()),
            Place::File(path) => path.display().to_string(),
        }
    }

    /// Whether the place is a dump in one file, by its name.
    pub(crate) fn is_single_dump(&self) -> bool {
        matches!(self, Place::Dump(path) if names_single(path))
    }

    /// Whether the place is a folder with a complete dump.
    pub(crate) fn is_complete_dump(&self) -> bool {
        matches!(self, Place::Dump(path) if path.join(MANIFEST).is_file())
    }

    /// Whether the place is Cosmos DB for Table.
    pub(crate) fn is_cosmos(&self) -> bool {
        matches!(self, Place::Remote(address) if address.is_cosmos())
    }

    /// Whether only a range of keys can be seen there, so that nothing there is known to be absent.
    pub(crate) fn is_ranged(&self) -> bool {
        matches!(self, Place::Remote(address) if address.is_ranged())
    }

    /// Returns the account of an address, which a database on the other side has too unless another
    /// is named.
    pub(crate) fn account(&self) -> Option<&str> {
        match self {
            Place::Remote(address) => Some(&address.account),
            _ => None,
        }
    }
}

/// What is needed to connect to a place.
pub(crate) struct Connecting<'a> {
    pub selection: &'a Selection,
    pub concurrency: usize,
    pub stop: Arc<AtomicBool>,
    pub runtime: Arc<Runtime>,
    /// The account, if the place is a database.
    pub account: Option<&'a str>,
    /// How files of other programs are read.
    pub files: FileOptions,
    /// How to show that they are read.
    pub progress: ProgressForm,
}

/// An open place.
pub(crate) enum Connected {
    Remote(Box<Remote>),
    Database {
        database: Box<LocalDatabase>,
        /// Held while the database is open for writing.
        _lock: Option<ServerLock>,
    },
    DumpSource(DumpSource),
    DumpTarget(DumpTarget),
    SingleDumpTarget(SingleDumpTarget),
    Files(Box<Staged>),
}

impl Connecting<'_> {
    /// Opens a place for reading.
    ///
    /// # Errors
    /// [`TransferError`] if it does not exist, or does not support the selection.
    pub(crate) fn source(&self, place: &Place) -> TransferResult<Connected> {
        Ok(match place {
            Place::Remote(address) => Connected::Remote(Box::new(self.remote(address)?)),
            Place::Database(database) => {
                let store = self.runtime.block_on(start::open_to_read(database));
                self.database(store, None)?
            }
            Place::Dump(path) | Place::File(path) if is_single(path) => {
                Connected::DumpSource(DumpSource::open_single(path, self.predicate()?, &self.stop)?)
            }
            Place::Dump(path) if !path.is_file() => {
                Connected::DumpSource(DumpSource::open(path, self.predicate()?)?)
            }
            Place::Dump(path) | Place::File(path) => {
                let staged = stage(path, &self.files, self.staging(self.predicate()?))?;
                Connected::Files(Box::new(staged))
            }
        })
    }

    /// Opens a place for writing. A database is created if it does not exist.
    ///
    /// # Errors
    /// [`TransferError`] if it cannot be opened, or a server has it open.
    pub(crate) fn target(&self, place: &Place) -> TransferResult<Connected> {
        Ok(match place {
            Place::Remote(address) => Connected::Remote(Box::new(self.remote(address)?)),
            Place::Database(database) => {
                let lock =
                    start::lock(database).map_err(|error| TransferError::Endpoint(error.to_string()))?;
                let store = self.runtime.block_on(start::open_primary(database));
                self.database(store, lock)?
            }
            Place::Dump(path) if names_single(path) => {
                Connected::SingleDumpTarget(SingleDumpTarget::create(path)?)
            }
            Place::Dump(path) => Connected::DumpTarget(DumpTarget::open(path)?),
            Place::File(_) => {
                return Err(TransferError::Usage("TO: files of other programs are read-only".into()));
            }
        })
    }

    /// Reads a source without an order into a temporary database, which sorts it.
    ///
    /// # Errors
    /// [`TransferError`] if it cannot be read, or its tables have names that are equal but for case.
    pub(crate) fn sorted(&self, source: &dyn TransferSource) -> TransferResult<Connected> {
        let staged = stage_source(source, self.selection, self.staging(None))?;
        Ok(Connected::Files(Box::new(staged)))
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

    fn remote(&self, address: &Address) -> TransferResult<Remote> {
        let client = Client::new(address.clone(), self.concurrency, self.stop.clone());
        Remote::new(client, self.selection)
    }

    fn database(
        &self,
        store: std::result::Result<Store, start::AppError>,
        lock: Option<ServerLock>,
    ) -> TransferResult<Connected> {
        let store = store.map_err(|error| TransferError::Endpoint(error.to_string()))?;
        let account = self.account.unwrap_or(DEVELOPMENT_ACCOUNT).to_owned();
        let (store, runtime) = (Arc::new(store), self.runtime.clone());
        let database = LocalDatabase::new(store, account, runtime, self.predicate()?);
        Ok(Connected::Database { database: Box::new(database), _lock: lock })
    }

    fn predicate(&self) -> TransferResult<Option<Predicate>> {
        self.selection.predicate().map_err(|reason| TransferError::Usage(format!("--filter: {reason}")))
    }
}

impl Connected {
    /// Returns the place as a source.
    ///
    /// # Errors
    /// [`TransferError::Usage`] for a dump that was opened for writing.
    pub(crate) fn as_source(&self) -> TransferResult<&dyn TransferSource> {
        match self {
            Connected::Remote(remote) => Ok(&**remote),
            Connected::Database { database, .. } => Ok(&**database),
            Connected::DumpSource(dump) => Ok(dump),
            Connected::Files(staged) => Ok(&**staged),
            Connected::DumpTarget(_) | Connected::SingleDumpTarget(_) => {
                Err(TransferError::Usage("a dump cannot be compared while it is written".into()))
            }
        }
    }

    /// Returns the place as a target.
    ///
    /// # Errors
    /// [`TransferError::Usage`] for a dump or file that was opened for reading.
    pub(crate) fn as_target(&self) -> TransferResult<&dyn TransferTarget> {
        match self {
            Connected::Remote(remote) => Ok(&**remote),
            Connected::Database { database, .. } => Ok(&**database),
            Connected::DumpTarget(dump) => Ok(dump),
            Connected::SingleDumpTarget(dump) => Ok(dump),
            Connected::DumpSource(_) | Connected::Files(_) => {
                Err(TransferError::Usage("a dump or file cannot be changed".into()))
            }
        }
    }
}

impl Connected {
    /// Copies the stored accounts of a database, with their limits, to another; returns how many.
    /// Existing ones are left as they are.
    ///
    /// # Errors
    /// [`TransferError::Usage`] unless both are databases whose keys `master` opens.
    pub(crate) fn copy_accounts(&self, to: &Self, master: &MasterKeys) -> TransferResult<u64> {
        match (self, to) {
            (Connected::Database { database: from, .. }, Connected::Database { database: to, .. }) => {
                from.copy_accounts(to, master)
            }
            _ => Err(TransferError::Usage("--accounts: FROM and TO must be databases".into())),
        }
    }
}

impl Drop for Connected {
    fn drop(&mut self) {
        if let Connected::Database { database, .. } = self {
            database.close();
        }
    }
}
