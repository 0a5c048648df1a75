//! The FROM and TO of the command line.

use std::path::{Path, PathBuf};

use super::dump::{self, MANIFEST};
use crate::client::Address;
use crate::error::{TransferResult, usage};
use crate::rows::selection::NameCase;
use crate::store::database::{Database, DatabaseOptions};
use crate::store::sqlite::{Location, SqliteOptions};

/// Maximum bytes of a file that holds a connection string.
const MAX_SECRET_BYTES: u64 = 64 << 10;

#[derive(Debug, Clone)]
pub enum DataLocation {
    Endpoint(Box<Address>),
    Database(Box<Database>),
    /// A folder with a dump or, read-only, one part of a dump.
    Dump(PathBuf),
    /// A file of another program, or a folder of such files, which can only be read.
    File(PathBuf),
}

const UNKNOWN: &str = "is neither a connection string, an https:// address with a signature, a sqlite: or postgres: URL, \
     a dump (dump:FOLDER), a file that exists, env:NAME nor file:PATH";

impl DataLocation {
    /// Parses an argument. `env:NAME` and `file:PATH` name a variable or file with the actual text, which
    /// keeps secrets out of the list of processes.
    pub fn parse(text: &str) -> TransferResult<Self> {
        if let Some(name) = text.strip_prefix("env:") {
            let value = std::env::var(name).map_err(|_| usage!("{text} is not set"))?;
            return Self::parse_literal(value.trim());
        }
        if let Some(path) = text.strip_prefix("file:") {
            let failed = |error: std::io::Error| usage!("{text}: {error}");
            let size = std::fs::metadata(path).map_err(failed)?.len();
            if size > MAX_SECRET_BYTES {
                return Err(failed(std::io::ErrorKind::FileTooLarge.into()));
            }
            return Self::parse_literal(std::fs::read_to_string(path).map_err(failed)?.trim());
        }
        Self::parse_literal(text)
    }

    fn parse_literal(text: &str) -> TransferResult<Self> {
        if let Some(path) = text.strip_prefix("dump:") {
            if path.is_empty() {
                return Err(usage!(
                    "dump: must be followed by the path of a folder, such as dump:/backups/monday"
                ));
            }
            return Ok(DataLocation::Dump(path.into()));
        }
        if ["sqlite:", "postgres://", "postgresql://"].iter().any(|scheme| text.starts_with(scheme)) {
            // SQLite does not map the file into memory, because a copy reads everything only once.
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

    /// Returns the place without secrets, for messages and fingerprints.
    pub fn display(&self) -> String {
        match self {
            DataLocation::Endpoint(address) => address.tables.clone(),
            DataLocation::Database(database) => database.display(),
            DataLocation::Dump(path) => format!("dump:{}", path.display()),
            DataLocation::File(path) => path.display().to_string(),
        }
    }

    /// Whether both name the same place. Accounts of a database are not compared.
    pub fn is_same(&self, other: &Self) -> bool {
        self.identity() == other.identity()
    }

    fn identity(&self) -> String {
        let canonical = |path: &Path| {
            let found = std::fs::canonicalize(path);
            found.unwrap_or_else(|_| path.to_owned()).display().to_string()
        };
        match self {
            DataLocation::Endpoint(address) => address.identity(),
            DataLocation::Database(database) => match &**database {
                Database::Sqlite(SqliteOptions { location: Location::File(path), .. }) => canonical(path),
                database => database.display(),
            },
            DataLocation::Dump(path) | DataLocation::File(path) => canonical(path),
        }
    }

    /// Whether the place is read like files of other programs, as parts of dumps are.
    pub fn is_read_as_files(&self) -> bool {
        match self {
            DataLocation::File(_) => true,
            DataLocation::Dump(path) => path.is_file(),
            DataLocation::Endpoint(_) | DataLocation::Database(_) => false,
        }
    }

    pub fn is_complete_dump(&self) -> bool {
        matches!(self, DataLocation::Dump(path) if path.join(MANIFEST).is_file())
    }

    /// Returns the origin of a complete dump, if its manifest states it.
    pub fn origin(&self) -> TransferResult<Option<String>> {
        match self {
            DataLocation::Dump(folder) => dump::origin(folder),
            _ => Ok(None),
        }
    }

    pub fn is_cosmos(&self) -> bool {
        matches!(self, DataLocation::Endpoint(address) if address.is_cosmos())
    }

    pub fn name_case(&self) -> NameCase {
        if self.is_cosmos() { NameCase::Distinguished } else { NameCase::Ignored }
    }

    /// Whether the credentials show only a range of keys, so that the absence of an entity cannot be proved.
    pub fn is_ranged(&self) -> bool {
        matches!(self, DataLocation::Endpoint(address) if address.is_ranged())
    }

    /// Returns the account of an address, which is also the default for a database on the other side.
    pub fn account(&self) -> Option<&str> {
        match self {
            DataLocation::Endpoint(address) => Some(&address.account),
            _ => None,
        }
    }
}
