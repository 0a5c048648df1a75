//! Opening files that are only read: nothing is created beside them if that cannot be.

use std::ffi::OsString;
use std::os::unix::ffi::OsStrExt as _;
use std::path::{Path, PathBuf, absolute};

use percent_encoding::{AsciiSet, NON_ALPHANUMERIC, percent_encode};
use rusqlite::{Connection, OpenFlags};

use crate::sqlite::connections::access::obstacle;
use crate::sqlite::connections::options::BUSY_TIMEOUT;
use crate::sqlite::connections::options::OpenError;
use crate::sqlite::connections::schema::imitate;

/// What a path of a URI has as it is.
const KEPT: &AsciiSet = &NON_ALPHANUMERIC.remove(b'/').remove(b'.').remove(b'_').remove(b'-');

/// Opens a file that has our tables.
pub(super) fn open(path: &Path) -> Result<Connection, OpenError> {
    let failed = |error| OpenError::Open(path.display().to_string(), error);
    let connection = connect(path)?;
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

/// SQLite reads a file in WAL mode by files beside it. Where it cannot create them, it reads those that are
/// there, or the file alone, if nothing else holds changes.
fn connect(path: &Path) -> Result<Connection, OpenError> {
    let failed = |error| OpenError::Open(path.display().to_string(), error);
    let opened = |flags| Connection::open_with_flags(path, flags | OpenFlags::SQLITE_OPEN_NO_MUTEX);
    if obstacle(path).is_none() {
        return opened(OpenFlags::SQLITE_OPEN_READ_WRITE).map_err(failed);
    }
    let [log, index, journal] = ["-wal", "-shm", "-journal"].map(|end| beside(path, end));
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

fn beside(path: &Path, end: &str) -> PathBuf {
    let mut name = OsString::from(path);
    name.push(end);
    name.into()
}

fn has_content(file: &Path) -> bool {
    file.metadata().is_ok_and(|found| found.len() > 0)
}
