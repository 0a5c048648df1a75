//! The location of a database, the options for opening it, and the errors of opening it.

use std::path::PathBuf;
use std::time::Duration;

#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Location {
    File(PathBuf),
    /// In memory; lost when the process ends.
    Memory,
}

/// The error of opening a database.
#[derive(Debug, thiserror::Error)]
pub enum OpenError {
    #[error("cannot open the SQLite database {0}: {1}")]
    Open(String, rusqlite::Error),
    #[error("cannot open the SQLite database {0}: {1}")]
    Access(String, String),
    #[error("the SQLite database {0} is read-only: {1}")]
    ReadOnly(String, String),
    #[error(
        "the SQLite database {0} has no tables of Rowhouse; see that --database-url names the right file"
    )]
    NoTables(String),
    #[error(
        "the SQLite database {0} has schema version {1}, which this program cannot read: run `rowhouse migrate` first"
    )]
    Outdated(String, i64),
    #[error("another server uses the SQLite database {0}: it holds a lock on {1}; stop that server first")]
    Served(String, String),
    #[error("cannot migrate the SQLite database: {0}")]
    Migrate(#[from] rusqlite_migration::Error),
    #[error("SQLite refused a setting: {0}")]
    Configure(#[from] rusqlite::Error),
    #[error("cannot start the writer thread: {0}")]
    Thread(#[from] std::io::Error),
}

impl Location {
    /// Parses the part of a URL after `sqlite:`: `//path`, a bare path, or `:memory:`.
    pub fn parse(rest: &str) -> Option<Self> {
        match rest.strip_prefix("//").unwrap_or(rest) {
            "" => None,
            ":memory:" => Some(Location::Memory),
            path => Some(Location::File(path.into())),
        }
    }
}

/// Timeout of a statement that waits for another process's lock on the file.
pub(crate) const BUSY_TIMEOUT: Duration = Duration::from_secs(10);
/// Maximum MiB of a file that SQLite can map if it is built with `.cargo/config.toml`. Other builds may map less than
/// configured.
pub const MAX_MAP_MIB: u32 = 1024 * 1024;

/// Options for opening a database.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SqliteOptions {
    pub location: Location,
    /// Timeout of a write, including its wait in the queue.
    pub timeout: Duration,
    /// MiB of the file to read through a memory map, at most `MAX_MAP_MIB`; 0 for none. The operating system may
    /// reclaim this memory at any time.
    pub map_mib: u32,
    /// Whether the database is read-only: neither created nor migrated nor written.
    pub reads_only: bool,
}

impl SqliteOptions {
    /// Returns the defaults: the whole file is mapped, and writes time out after 25 seconds.
    pub const fn new(location: Location) -> Self {
        Self { location, timeout: Duration::from_secs(25), map_mib: MAX_MAP_MIB, reads_only: false }
    }
}

pub(crate) fn display(location: &Location) -> String {
    match location {
        Location::File(path) => path.display().to_string(),
        Location::Memory => "in memory".into(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn locations_read_as_in_urls() {
        assert_eq!(Location::parse("//rowhouse.db"), Some(Location::File("rowhouse.db".into())));
        assert_eq!(Location::parse("///var/lib/r.db"), Some(Location::File("/var/lib/r.db".into())));
        assert_eq!(Location::parse("r.db"), Some(Location::File("r.db".into())));
        assert_eq!(Location::parse(":memory:"), Some(Location::Memory));
        assert_eq!(Location::parse("//"), None);
    }
}
