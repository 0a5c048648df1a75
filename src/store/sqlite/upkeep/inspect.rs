//! Inspects a database for its operator, without changing it.

use rusqlite::{Connection, OpenFlags};

use crate::store::Inspection;
use crate::store::sqlite::catalog::accounts;
use crate::store::sqlite::connections::open::BUSY_TIMEOUT;
use crate::store::sqlite::connections::options::{Location, OpenError, shown};
use crate::store::sqlite::connections::schema;

/// Inspects a database without changing it. A missing file is not an error: the first start creates it.
pub(crate) fn inspect(location: &Location) -> Result<Inspection, OpenError> {
    let mut found = Inspection {
        product: format!("SQLite {}", rusqlite::version()),
        schema: None,
        known_schema: schema::known(),
        encoding: None,
        allowed_connections: None,
        is_standby: false,
        missing: Vec::new(),
        migration_obstacle: None,
        skew: None,
        cluster: None,
        left_respreads: Vec::new(),
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
    // This takes the write lock, but writes nothing.
    if let Err(error) = db.execute_batch("BEGIN IMMEDIATE; ROLLBACK") {
        found.missing.push(format!("writing to {}: {error}", path.display()));
    }
    if version >= schema::WITH_ACCOUNTS {
        found.accounts = accounts::list(&db)?;
    }
    Ok(found)
}
