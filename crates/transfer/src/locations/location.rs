//! The FROM and TO of the command line.

use std::path::{Path, PathBuf};

use super::dump::{self, MANIFEST};
use crate::client::Address;
use crate::error::{TransferResult, usage};
use crate::rows::selection::NameCase;
use crate::store::database::{Database, DatabaseOptions};
use crate::store::sqlite::{Location, SqliteOptions};

/// Maximum bytes of a file that holds a connection string.
const MAX_SECRET: u64 = 64 << 10;

/// Where entities are copied from or to.
#[derive(Debug, Clone)]
pub enum DataLocation {
    /// A Table endpoint.
    Endpoint(Box<Address>),
    /// Rowhouse's own database.
    Database(Box<Database>),
    /// A folder with a dump; read-only, one of its parts.
    Dump(PathBuf),
    /// A file of another program, or a folder of such files: read-only.
    File(PathBuf),
}

/// Why an argument is not understood.
const UNKNOWN: &str = "is neither a connection string, an https:// address with a signature, a sqlite: or postgres: URL, \
     a dump (dump:FOLDER), a file that exists, env:NAME nor file:PATH";

impl DataLocation {
    /// Parses an argument. `env:NAME` and `file:PATH` name a variable and a file with the actual text, so
    /// that secrets do not show in the list of processes.
    ///
    /// # Errors
    /// [`TransferError::Usage`] with the reason.
    pub fn parse(text: &str) -> TransferResult<Self> {
        if let Some(name) = text.strip_prefix("env:") {
            let value = std::env::var(name).map_err(|_| usage!("{text} is not set"))?;
            return Self::of(value.trim());
        }
        if let Some(path) = text.strip_prefix("file:") {
            let failed = |error: std::io::Error| usage!("{text}: {error}");
            let size = std::fs::metadata(path).map_err(failed)?.len();
            if size > MAX_SECRET {
                return Err(failed(std::io::ErrorKind::FileTooLarge.into()));
            }
            return Self::of(std::fs::read_to_string(path).map_err(failed)?.trim());
        }
        Self::of(text)
    }

    fn of(text: &str) -> TransferResult<Self> {
        if let Some(path) = text.strip_prefix("dump:") {
            if path.is_empty() {
                return Err(usage!(
                    "dump: must be followed by the path of a folder, such as dump:/backups/monday"
                ));
            }
            return Ok(DataLocation::Dump(path.into()));
        }
        if ["sqlite:", "postgres://", "postgresql://"].iter().any(|scheme| text.starts_with(scheme)) {
            // The map counts as memory of the process, and copies read everything once.
            let options = DatabaseOptions { sqlite_map_mib: 0, ..DatabaseOptions::default() };
            let database = Database::of_url(text, options).map_err(|error| usage!("{error}"))?;
            return Ok(DataLocation::Database(Box::new(database)));
        }
        if text.starts_with("http://") || text.starts_with("https://") || text.contains('=') {
            return Ok(DataLocation::Endpoint(Box::new(Address::parse(text)?)));
        }
        let path = Path::new(text);
        if path.join(MANIFEST).is_file() {
            return Ok(DataLocation::Dump(path.to_owned()));
        }
        if path.exists() { Ok(DataLocation::File(path.to_owned())) } else { Err(usage!("{UNKNOWN}")) }
    }

    /// Returns the place without secrets, for messages and for comparing places.
    pub fn display(&self) -> String {
        match self {
            DataLocation::Endpoint(address) => address.tables.clone(),
            DataLocation::Database(database) => database.display(),
            DataLocation::Dump(path) => format!("dump:{}", path.display()),
            DataLocation::File(path) => path.display().to_string(),
        }
    }

    /// Whether both are one place, also if they are named in two ways. Accounts of a database are not compared.
    pub fn is_same(&self, other: &Self) -> bool {
        self.identity() == other.identity()
    }

    fn identity(&self) -> String {
        let real = |path: &Path| {
            let found = std::fs::canonicalize(path);
            found.unwrap_or_else(|_| path.to_owned()).display().to_string()
        };
        match self {
            DataLocation::Endpoint(address) => address.identity(),
            DataLocation::Database(database) => match &**database {
                Database::Sqlite(SqliteOptions { location: Location::File(path), .. }) => real(path),
                database => database.display(),
            },
            DataLocation::Dump(path) | DataLocation::File(path) => real(path),
        }
    }

    /// Whether the place is read as files of other programs are: parts of dumps are too.
    pub fn is_read_as_files(&self) -> bool {
        match self {
            DataLocation::File(_) => true,
            DataLocation::Dump(path) => path.is_file(),
            DataLocation::Endpoint(_) | DataLocation::Database(_) => false,
        }
    }

    /// Whether the place is a folder with a complete dump.
    pub fn is_complete_dump(&self) -> bool {
        matches!(self, DataLocation::Dump(path) if path.join(MANIFEST).is_file())
    }

    /// Returns which copy has written a complete dump, if it says so.
    pub fn origin(&self) -> TransferResult<Option<String>> {
        match self {
            DataLocation::Dump(folder) => dump::origin(folder),
            _ => Ok(None),
        }
    }

    /// Whether the place is Cosmos DB for Table.
    pub fn is_cosmos(&self) -> bool {
        matches!(self, DataLocation::Endpoint(address) if address.is_cosmos())
    }

    /// Whether the place distinguishes tables by the case of their names.
    pub fn name_case(&self) -> NameCase {
        if self.is_cosmos() { NameCase::Distinguished } else { NameCase::Ignored }
    }

    /// Whether only a range of keys can be seen there, so that nothing there is known to be absent.
    pub fn is_ranged(&self) -> bool {
        matches!(self, DataLocation::Endpoint(address) if address.is_ranged())
    }

    /// Returns the account of an address, which a database on the other side has too unless another
    /// is named.
    pub fn account(&self) -> Option<&str> {
        match self {
            DataLocation::Endpoint(address) => Some(&address.account),
            _ => None,
        }
    }
}
