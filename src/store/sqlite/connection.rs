//! Opening SQLite databases.

use std::path::PathBuf;
use std::time::Duration;

use rusqlite::{Connection, ErrorCode, OpenFlags, OptionalExtension};
use rusqlite_migration::{M, Migrations};

use super::{access, accounts};
use crate::store::Inspection;

/// Where a database lives.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Location {
    File(PathBuf),
    /// Gone with the process.
    Memory,
}

/// Why a database could not be opened.
#[derive(Debug, thiserror::Error)]
pub enum OpenError {
    #[error("cannot open the SQLite database {0}: {1}")]
    Open(String, rusqlite::Error),
    #[error("cannot open the SQLite database {0}: {1}")]
    Access(String, String),
    #[error("the SQLite database {0} can only be read: {1}")]
    ReadOnly(String, String),
    #[error("another server has the SQLite database {0}: it holds a lock on {1}; end that server first")]
    Served(String, String),
    #[error("cannot bring the SQLite database to the current schema: {0}")]
    Migrate(#[from] rusqlite_migration::Error),
    #[error("SQLite refused a setting: {0}")]
    Configure(#[from] rusqlite::Error),
    #[error("cannot start the writer thread: {0}")]
    Thread(#[from] std::io::Error),
}

impl Location {
    /// Reads what follows `sqlite:` in a URL: `//path`, a bare path, or
    /// `:memory:`.
    pub fn parse(rest: &str) -> Option<Self> {
        match rest.strip_prefix("//").unwrap_or(rest) {
            "" => None,
            ":memory:" => Some(Location::Memory),
            path => Some(Location::File(path.into())),
        }
    }
}

/// How long a statement waits for another process that holds the file.
pub(super) const BUSY_TIMEOUT: Duration = Duration::from_secs(10);
/// Page cache of the connection that writes, in KiB: what a commit has changed.
/// More would cost time: SQLite looks through all of it after a page was split.
const WRITER_CACHE_KIB: i64 = 4 * 1024;
/// Page cache of a connection that reads, in KiB: pages of the log and, of the
/// file, those past the memory map.
const READER_CACHE_KIB: i64 = 2 * 1024;
/// MiB of a file that SQLite can map at most, as `.cargo/config.toml` has it built;
/// built in another way, it maps less than it is asked to.
pub const MAX_MAP_MIB: u32 = 1024 * 1024;

/// How a database is opened.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SqliteOptions {
    pub location: Location,
    /// How long any single write may wait and take.
    pub timeout: Duration,
    /// MiB of the file that are read through a memory map, at most
    /// [`MAX_MAP_MIB`]; 0 for none. The system may take that memory back at any
    /// time.
    pub map_mib: u32,
}

impl SqliteOptions {
    /// A database that is mapped as far as can be; writes may take 25 seconds.
    pub const fn new(location: Location) -> Self {
        Self { location, timeout: Duration::from_secs(25), map_mib: MAX_MAP_MIB }
    }
}

/// How often a start that lost against another one is done again, and the
/// pause before that.
const ATTEMPTS: u32 = 20;
const PAUSE: Duration = Duration::from_millis(50);

/// Opens the database for reading and writing and applies the migrations.
pub fn open(options: &SqliteOptions) -> Result<Connection, OpenError> {
    let prepare = || {
        let mut connection = connect(options)?;
        migrate(&mut connection)?;
        if connection.is_readonly("main")? {
            let advice = "let the user of this process write to it and to its folder";
            return Err(OpenError::ReadOnly(shown(&options.location), advice.to_owned()));
        }
        connection.pragma_update(None, "cache_size", -WRITER_CACHE_KIB)?;
        Ok(connection)
    };
    let mut attempt = 1;
    loop {
        match prepare() {
            // Another process may be about to make the same new file. SQLite
            // waits for nobody while it turns on the log, and two that found
            // the same version both want to leave it.
            Err(error) if attempt < ATTEMPTS && can_be_a_race(&error) => std::thread::sleep(PAUSE),
            outcome => return outcome.map_err(|error| explain(&options.location, error)),
        }
        attempt += 1;
    }
}

/// What is wrong with a file often shows only when it is first read, and SQLite does
/// not say who may not do what.
fn explain(location: &Location, error: OpenError) -> OpenError {
    let obstacle = match location {
        Location::File(path) => access::obstacle(path),
        Location::Memory => None,
    };
    match (error, obstacle) {
        (OpenError::ReadOnly(path, _), Some(obstacle)) => OpenError::ReadOnly(path, obstacle),
        (_, Some(obstacle)) => OpenError::Access(shown(location), obstacle),
        (OpenError::Configure(error), None) => OpenError::Open(shown(location), error),
        (other, None) => other,
    }
}

fn can_be_a_race(error: &OpenError) -> bool {
    match error {
        OpenError::Migrate(_) => true,
        OpenError::Configure(error) => error.sqlite_error_code() == Some(ErrorCode::DatabaseBusy),
        OpenError::Open(..)
        | OpenError::Access(..)
        | OpenError::ReadOnly(..)
        | OpenError::Served(..)
        | OpenError::Thread(_) => false,
    }
}

/// Opens one more connection to a database file that [`open`] has prepared.
pub fn connect(options: &SqliteOptions) -> Result<Connection, OpenError> {
    let location = &options.location;
    let connection = match location {
        Location::Memory => Connection::open_in_memory(),
        Location::File(path) => Connection::open_with_flags(
            path,
            OpenFlags::SQLITE_OPEN_READ_WRITE
                | OpenFlags::SQLITE_OPEN_CREATE
                | OpenFlags::SQLITE_OPEN_NO_MUTEX,
        ),
    }
    .map_err(|error| OpenError::Open(shown(location), error))?;
    connection.busy_timeout(BUSY_TIMEOUT)?;
    connection.set_prepared_statement_cache_capacity(64);
    if *location != Location::Memory {
        // FULL: a commit returns only when the log is on the disk, so an
        // acknowledged write survives the loss of power.
        connection.pragma_update_and_check(None, "journal_mode", "WAL", |row| row.get::<_, String>(0))?;
        connection.pragma_update(None, "synchronous", "FULL")?;
    }
    connection.pragma_update(None, "cache_size", -READER_CACHE_KIB)?;
    let mapped = i64::from(options.map_mib.min(MAX_MAP_MIB)) << 20;
    connection.pragma_update_and_check(None, "mmap_size", mapped, |row| row.get::<_, i64>(0)).optional()?;
    Ok(connection)
}

fn shown(location: &Location) -> String {
    match location {
        Location::File(path) => path.display().to_string(),
        Location::Memory => "in memory".into(),
    }
}

/// The schema, a step a version.
const STEPS: &[M<'_>] = &[
    M::up(include_str!("../../../migrations/sqlite/0001_tables_and_entities.sql")),
    M::up(include_str!("../../../migrations/sqlite/0002_service_properties.sql")),
    M::up(include_str!("../../../migrations/sqlite/0003_accounts.sql")),
];
/// The version since which there are accounts.
const WITH_ACCOUNTS: i64 = 3;

/// Looks at a database without changing it. A file that is not there is one that
/// the first start makes.
pub fn inspect(location: &Location) -> Result<Inspection, OpenError> {
    let mut found = Inspection {
        product: format!("SQLite {}", rusqlite::version()),
        schema: None,
        known_schema: i64::try_from(STEPS.len()).unwrap_or(i64::MAX),
        encoding: None,
        allowed_connections: None,
        is_standby: false,
        missing: Vec::new(),
        migration_obstacle: None,
        skew: None,
        accounts: Vec::new(),
    };
    let Location::File(path) = location else { return Ok(found) };
    if !path.exists() {
        let folder = path.parent().filter(|folder| !folder.as_os_str().is_empty());
        if folder.is_some_and(|folder| !folder.is_dir()) {
            found.migration_obstacle = Some(format!("{} is in a folder that does not exist", path.display()));
        }
        return Ok(found);
    }
    let flags = OpenFlags::SQLITE_OPEN_READ_WRITE | OpenFlags::SQLITE_OPEN_NO_MUTEX;
    let open = |error| OpenError::Open(shown(location), error);
    let db = Connection::open_with_flags(path, flags).map_err(open)?;
    db.busy_timeout(BUSY_TIMEOUT)?;
    let version: i64 = db.pragma_query_value(None, "user_version", |row| row.get(0)).map_err(open)?;
    found.schema = (version > 0).then_some(version);
    // Takes the lock of a writer, and writes nothing.
    if let Err(error) = db.execute_batch("BEGIN IMMEDIATE; ROLLBACK") {
        found.missing.push(format!("writing to {}: {error}", path.display()));
    }
    if version >= WITH_ACCOUNTS {
        found.accounts = accounts::list(&db)?;
    }
    Ok(found)
}

fn migrate(connection: &mut Connection) -> Result<(), OpenError> {
    let version: i64 = connection.pragma_query_value(None, "user_version", |row| row.get(0))?;
    if usize::try_from(version).is_ok_and(|version| version > STEPS.len()) {
        // Migrations only add, so an older program can work with a newer file.
        tracing::warn!(version, known = STEPS.len(), "the database has a newer schema");
        return Ok(());
    }
    Ok(Migrations::from_slice(STEPS).to_latest(connection)?)
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

    #[test]
    fn many_may_open_one_new_file_at_once() {
        for _ in 0..10 {
            let folder = tempfile::tempdir().unwrap();
            let options = SqliteOptions::new(Location::File(folder.path().join("a.db")));
            std::thread::scope(|scope| {
                let opened: Vec<_> = (0..8).map(|_| scope.spawn(|| open(&options))).collect();
                for one in opened {
                    one.join().unwrap().unwrap();
                }
            });
        }
    }

    #[test]
    fn the_schema_is_applied_once_and_a_newer_one_is_left_alone() {
        let folder = tempfile::tempdir().unwrap();
        let options = SqliteOptions::new(Location::File(folder.path().join("a.db")));
        drop(open(&options).unwrap());
        let again = open(&options).unwrap();
        again.pragma_update(None, "user_version", 99).unwrap();
        drop(again);
        let newer = open(&options).unwrap();
        let pragma = |name| newer.pragma_query_value(None, name, |row| row.get::<_, i64>(0)).unwrap();
        assert_eq!(pragma("synchronous"), 2, "FULL");
        assert_eq!(pragma("mmap_size"), i64::from(MAX_MAP_MIB) << 20);
        let unmapped = connect(&SqliteOptions { map_mib: 0, ..options }).unwrap();
        let mapped: i64 = unmapped.pragma_query_value(None, "mmap_size", |row| row.get(0)).unwrap();
        assert_eq!(mapped, 0);
    }
}
