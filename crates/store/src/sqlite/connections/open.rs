//! Opens SQLite databases. For a read-only database, Rowhouse creates no files in a folder that it cannot write to.

use std::ffi::OsString;
use std::fs::Metadata;
use std::io;
use std::os::unix::ffi::OsStrExt as _;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf, absolute};
use std::time::Duration;

use percent_encoding::{AsciiSet, NON_ALPHANUMERIC, percent_encode};
use rusqlite::config::DbConfig;
use rusqlite::{Connection, ErrorCode, OpenFlags, OptionalExtension};
use rustix::fs::{Access, access};
use rustix::io::Errno;
use rustix::process::{getegid, geteuid};

use crate::sqlite::connections::options::{
    BUSY_TIMEOUT, Location, MAX_MAP_MIB, OpenError, SqliteOptions, display,
};
use crate::sqlite::connections::schema::{imitate, migrate};

/// Page cache of the writer, in KiB: enough for the changes of a commit. After a page split, SQLite searches the
/// whole cache, so a larger cache would cost time.
const WRITER_CACHE_KIB: i64 = 4 * 1024;
/// Page cache of a reader, in KiB. It holds pages of the log, and pages of the file outside the memory map.
const READER_CACHE_KIB: i64 = 2 * 1024;
/// Maximum attempts of a start that conflicts with another start, and the pause between them.
const ATTEMPTS: u32 = 20;
const PAUSE: Duration = Duration::from_millis(50);
/// Characters that need no escape in the path of a URI.
const KEPT: &AsciiSet = &NON_ALPHANUMERIC.remove(b'/').remove(b'.').remove(b'_').remove(b'-');

/// Opens the database for reading and writing and applies the migrations.
pub(crate) fn open(options: &SqliteOptions) -> Result<Connection, OpenError> {
    let prepare = || {
        let mut connection = connect(options)?;
        migrate(&mut connection)?;
        if connection.is_readonly("main")? {
            let advice = "let the user of this process write to it and to its folder";
            return Err(OpenError::ReadOnly(display(&options.location), advice.to_owned()));
        }
        connection.pragma_update(None, "cache_size", -WRITER_CACHE_KIB)?;
        Ok(connection)
    };
    let mut attempt = 1;
    loop {
        match prepare() {
            // Another process may be creating the same file. SQLite does not wait for locks while it switches to WAL
            // mode, and both processes may try to migrate the same version.
            Err(error) if attempt < ATTEMPTS && can_be_a_race(&error) => std::thread::sleep(PAUSE),
            outcome => return outcome.map_err(|error| explain(&options.location, error)),
        }
        attempt += 1;
    }
}

/// Adds the cause to an error. A problem with a file often appears only on the first read, and SQLite does not report
/// missing permissions.
fn explain(location: &Location, error: OpenError) -> OpenError {
    let obstacle = match location {
        Location::File(path) => obstacle(path),
        Location::Memory => None,
    };
    match (error, obstacle) {
        (OpenError::ReadOnly(path, _), Some(obstacle)) => OpenError::ReadOnly(path, obstacle),
        (_, Some(obstacle)) => OpenError::Access(display(location), obstacle),
        (OpenError::Configure(error), None) => OpenError::Open(display(location), error),
        (other, None) => other,
    }
}

fn can_be_a_race(error: &OpenError) -> bool {
    match error {
        OpenError::Migrate(_) => true,
        OpenError::Configure(error) => error.sqlite_error_code() == Some(ErrorCode::DatabaseBusy),
        OpenError::Open(..)
        | OpenError::NoTables(..)
        | OpenError::Outdated(..)
        | OpenError::Access(..)
        | OpenError::ReadOnly(..)
        | OpenError::Served(..)
        | OpenError::Thread(_) => false,
    }
}

/// Opens another connection to a database file that [`open`] has prepared.
pub(crate) fn connect(options: &SqliteOptions) -> Result<Connection, OpenError> {
    let location = &options.location;
    if let Location::File(path) = location {
        refuse_hard_links(path)?;
    }
    if let (Location::File(path), true) = (location, options.reads_only) {
        let connection = open_to_read(path)?;
        set_up(&connection, options)?;
        return Ok(connection);
    }
    let connection = match location {
        Location::Memory => Connection::open_in_memory(),
        Location::File(path) => Connection::open_with_flags(
            path,
            OpenFlags::SQLITE_OPEN_READ_WRITE
                | OpenFlags::SQLITE_OPEN_CREATE
                | OpenFlags::SQLITE_OPEN_NO_MUTEX,
        ),
    }
    .map_err(|error| OpenError::Open(display(location), error))?;
    connection.busy_timeout(BUSY_TIMEOUT)?;
    if *location != Location::Memory {
        // FULL: a commit returns only after the log is on disk, so an acknowledged write survives a power failure.
        connection.pragma_update_and_check(None, "journal_mode", "WAL", |row| row.get::<_, String>(0))?;
        connection.pragma_update(None, "synchronous", "FULL")?;
    }
    set_up(&connection, options)?;
    Ok(connection)
}

/// Refuses a database with several hard links. Locks and logs are named after one of them, so a process that opened
/// the database by another name would corrupt it.
fn refuse_hard_links(path: &Path) -> Result<(), OpenError> {
    let names = path.metadata().map_or(1, |found| found.nlink());
    if names <= 1 {
        return Ok(());
    }
    let text = format!(
        "it has {names} names (hard links), which share no lock; remove all but one, or copy the file"
    );
    Err(OpenError::Access(path.display().to_string(), text))
}

/// Sets the planner options and the caches of a connection.
fn set_up(connection: &Connection, options: &SqliteOptions) -> Result<(), OpenError> {
    // Makes plans independent of values. Otherwise the index of one bucket would cause each statement with a bucket
    // to be planned anew whenever the bucket is bound.
    connection.set_db_config(DbConfig::SQLITE_DBCONFIG_ENABLE_QPSG, true)?;
    connection.set_prepared_statement_cache_capacity(64);
    connection.pragma_update(None, "cache_size", -READER_CACHE_KIB)?;
    let mapped = i64::from(options.map_mib.min(MAX_MAP_MIB)) << 20;
    connection.pragma_update_and_check(None, "mmap_size", mapped, |row| row.get::<_, i64>(0)).optional()?;
    Ok(())
}

/// Opens a file that has Rowhouse's tables.
fn open_to_read(path: &Path) -> Result<Connection, OpenError> {
    let failed = |error| OpenError::Open(path.display().to_string(), error);
    let connection = connect_to_read(path)?;
    connection.busy_timeout(BUSY_TIMEOUT)?;
    let look = "SELECT count(*) = 3 FROM sqlite_schema WHERE type = 'table' AND name IN ('tables', 'entities', 'doomed')";
    if !connection.query_row(look, [], |row| row.get(0)).map_err(failed)? {
        return Err(OpenError::NoTables(path.display().to_string()));
    }
    let version: i64 = connection.pragma_query_value(None, "user_version", |row| row.get(0))?;
    if !imitate(&connection, version)? {
        return Err(OpenError::Outdated(path.display().to_string(), version));
    }
    connection.pragma_update(None, "query_only", true)?;
    Ok(connection)
}

/// Opens a file for reading. In WAL mode, SQLite needs files beside the database. If SQLite cannot create them, it
/// reads existing ones, or the file alone if no other file holds changes.
fn connect_to_read(path: &Path) -> Result<Connection, OpenError> {
    let failed = |error| OpenError::Open(path.display().to_string(), error);
    let opened = |flags| Connection::open_with_flags(path, flags | OpenFlags::SQLITE_OPEN_NO_MUTEX);
    if obstacle(path).is_none() {
        return opened(OpenFlags::SQLITE_OPEN_READ_WRITE).map_err(failed);
    }
    let [log, index, journal] = ["-wal", "-shm", "-journal"].map(|end| named_beside(path, end));
    if log.exists() && index.exists() {
        return opened(OpenFlags::SQLITE_OPEN_READ_ONLY).map_err(failed);
    }
    if let Some(changes) = [log, journal].into_iter().find(|file| has_content(file)) {
        let reason = format!(
            "{} has changes that are not in it yet, and SQLite can create no files there; copy both to a folder that \
             can be written to",
            changes.display()
        );
        return Err(OpenError::Access(path.display().to_string(), reason));
    }
    let whole = absolute(path).unwrap_or_else(|_| path.to_owned());
    let uri = format!("file:{}?immutable=1", percent_encode(whole.as_os_str().as_bytes(), KEPT));
    let flags =
        OpenFlags::SQLITE_OPEN_READ_ONLY | OpenFlags::SQLITE_OPEN_URI | OpenFlags::SQLITE_OPEN_NO_MUTEX;
    Connection::open_with_flags(uri, flags).map_err(failed)
}

fn named_beside(path: &Path, end: &str) -> PathBuf {
    let mut name = OsString::from(path);
    name.push(end);
    name.into()
}

fn has_content(file: &Path) -> bool {
    file.metadata().is_ok_and(|found| found.len() > 0)
}

/// Returns the reason why this process cannot write a database file: its folder is missing, or the permissions of the
/// file or the folder forbid it. SQLite creates files beside the database.
pub fn obstacle(file: &Path) -> Option<String> {
    let file = &absolute(file).ok()?;
    let folder = file.parent()?;
    match access(folder, Access::WRITE_OK | Access::EXEC_OK) {
        Err(Errno::NOENT) => return Some(format!("there is no folder {}", folder.display())),
        Err(error) => return describe_obstacle("folder", folder, error.into()),
        Ok(()) => {}
    }
    let refused = access(file, Access::READ_OK | Access::WRITE_OK).err()?;
    describe_obstacle("file", file, refused.into())
}

/// Describes an error; `None` if neither permissions nor the file system are the cause.
fn describe_obstacle(kind: &str, path: &Path, error: io::Error) -> Option<String> {
    let (user, group) = (geteuid().as_raw(), getegid().as_raw());
    let shown = path.display();
    let remedy = match error.kind() {
        io::ErrorKind::PermissionDenied => {
            format!("let uid {user} write there, or name another place that this user may write to")
        }
        io::ErrorKind::ReadOnlyFilesystem => "mount a writable volume there".to_owned(),
        _ => return None,
    };
    let owner = path.metadata().map(owner).unwrap_or_default();
    Some(format!("uid {user} (gid {group}) cannot write to the {kind} {shown}{owner}: {error}; {remedy}"))
}

fn owner(found: Metadata) -> String {
    let mode = found.mode() & 0o7777;
    format!(", which belongs to uid {} and gid {} with mode {mode:o}", found.uid(), found.gid())
}

#[cfg(test)]
mod tests {
    use rusqlite::StatementStatus;

    use super::*;

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
    fn an_index_of_one_bucket_has_no_statement_planned_again() {
        let db = open(&SqliteOptions::new(Location::Memory)).unwrap();
        db.execute_batch("CREATE INDEX of_one ON entities (modified, pk, rk, bucket) WHERE bucket = 5")
            .unwrap();
        let mut read =
            db.prepare("SELECT modified FROM entities WHERE bucket = ?1 AND pk = ?2 AND rk >= ?3").unwrap();
        for bucket in [5, 6, 5, 7] {
            assert!(!read.exists((bucket, "p", "r")).unwrap());
        }
        assert_eq!(read.get_status(StatementStatus::RePrepare), 0);
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

    #[test]
    fn what_can_be_written_or_made_is_no_obstacle() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("a.db");
        assert_eq!(obstacle(&file), None);
        std::fs::write(&file, "").unwrap();
        assert_eq!(obstacle(&file), None);
        let none = folder.path().join("none");
        assert_eq!(obstacle(&none.join("a.db")), Some(format!("there is no folder {}", none.display())));
        assert_eq!(obstacle(Path::new("a.db")), None);
    }
}
