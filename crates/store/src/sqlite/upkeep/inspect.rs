use rusqlite::{Connection, OpenFlags};

use crate::quoting::identifier;
use crate::sql::sql;
use crate::sqlite::catalog::{entries, views};
use crate::sqlite::connections::options::{BUSY_TIMEOUT, Location, OpenError, display};
use crate::sqlite::connections::schema;
use crate::{IndexState, Inspection, MigrationObstacle, StoredAccount, StoredIndex};

/// Inspects a database for its operator without changing it. A missing file is not an error, because the first start
/// creates it.
pub(crate) fn inspect(location: &Location) -> Result<Inspection, OpenError> {
    let mut found = Inspection {
        product: format!("SQLite {}", rusqlite::version()),
        known_schema: schema::known(),
        ..Inspection::default()
    };
    let Location::File(path) = location else { return Ok(found) };
    if !path.exists() {
        let folder = path.parent().filter(|folder| !folder.as_os_str().is_empty());
        if folder.is_some_and(|folder| !folder.is_dir()) {
            let reason = format!("{} is in a folder that does not exist", path.display());
            found.migration_obstacle = Some(MigrationObstacle::Forbidden(reason));
        }
        return Ok(found);
    }
    let flags = OpenFlags::SQLITE_OPEN_READ_WRITE | OpenFlags::SQLITE_OPEN_NO_MUTEX;
    let open = |error| OpenError::Open(display(location), error);
    let db = Connection::open_with_flags(path, flags).map_err(open)?;
    db.busy_timeout(BUSY_TIMEOUT)?;
    let version: i64 = db.pragma_query_value(None, "user_version", |row| row.get(0)).map_err(open)?;
    found.schema = (version > 0).then_some(version);
    // This statement takes the write lock, but writes nothing.
    if let Err(error) = db.execute_batch("BEGIN IMMEDIATE; ROLLBACK") {
        found.missing.push(format!("writing to {}: {error}", path.display()));
    }
    if version >= schema::WITH_ACCOUNTS {
        let rows = sql(StoredAccount::LIST).run(&db)?;
        found.accounts = rows.iter().filter_map(|row| StoredAccount::read(row).ok()).collect();
    }
    if version >= schema::WITH_INDEXES {
        found.missing_indexes = missing_indexes(&db)?;
    }
    found.old_views = find_old_views(&db)?;
    Ok(found)
}

/// Indexes that the catalogue lists as ready but that the database lacks.
fn missing_indexes(db: &Connection) -> Result<Vec<String>, OpenError> {
    let mut look = db.prepare("SELECT 1 FROM sqlite_schema WHERE type = 'index' AND name = ?1")?;
    let mut missing = Vec::new();
    let rows = sql(StoredIndex::LIST).run(db)?;
    let listed = rows.iter().filter_map(|row| StoredIndex::read(row).ok().flatten());
    for stored in listed.filter(|stored| stored.state == IndexState::Ready) {
        if !look.exists([entries::name(stored.index.index_no)])? {
            missing.push(stored.named());
        }
    }
    Ok(missing)
}

fn find_old_views(db: &Connection) -> Result<Vec<String>, OpenError> {
    let mut look = db.prepare(
        "SELECT name FROM sqlite_schema WHERE type = 'view' AND sql LIKE ?1 AND sql LIKE ?2 ORDER BY name",
    )?;
    let names = look.query_map(views::ABANDONED_VIEW_DEFINITION, |row| row.get(0))?;
    Ok(names.map(|name| name.map(|name: String| identifier(&name))).collect::<rusqlite::Result<_>>()?)
}
