//! The schema and its migrations, compiled into the program.

use rusqlite::Connection;
use rusqlite_migration::{M, Migrations};

use crate::sqlite::connections::options::OpenError;

/// The migrations, one for each schema version.
const TEXTS: [&str; 14] = [
    include_str!("../../../migrations/sqlite/0001_tables_and_entities.sql"),
    include_str!("../../../migrations/sqlite/0002_service_properties.sql"),
    include_str!("../../../migrations/sqlite/0003_accounts.sql"),
    include_str!("../../../migrations/sqlite/0004_account_limits.sql"),
    include_str!("../../../migrations/sqlite/0005_expiry_totals_views.sql"),
    include_str!("../../../migrations/sqlite/0006_copy_marks.sql"),
    include_str!("../../../migrations/sqlite/0007_property_indexes.sql"),
    include_str!("../../../migrations/sqlite/0008_buckets.sql"),
    include_str!("../../../migrations/sqlite/0009_buckets_of_respread_tables.sql"),
    include_str!("../../../migrations/sqlite/0010_respreads.sql"),
    include_str!("../../../migrations/sqlite/0011_extended_queries.sql"),
    include_str!("../../../migrations/sqlite/0012_deleted_tables.sql"),
    include_str!("../../../migrations/sqlite/0013_no_sql_views.sql"),
    include_str!("../../../migrations/sqlite/0014_no_table_totals.sql"),
];
/// The schema version that introduced accounts.
pub(crate) const WITH_ACCOUNTS: i64 = 3;

/// The schema version that introduced property indexes.
pub(crate) const WITH_INDEXES: i64 = 7;

/// The schema version of this program.
pub(crate) fn known() -> i64 {
    i64::try_from(TEXTS.len()).unwrap_or(i64::MAX)
}

pub(crate) fn migrate(connection: &mut Connection) -> Result<(), OpenError> {
    let version: i64 = connection.pragma_query_value(None, "user_version", |row| row.get(0))?;
    if usize::try_from(version).is_ok_and(|version| version > TEXTS.len()) {
        // No release reads a table that a migration drops, so an older program can work with a newer file.
        tracing::warn!(
            version,
            known = TEXTS.len(),
            "the database has a newer schema than this program, which works with it"
        );
        return Ok(());
    }
    Ok(Migrations::new(TEXTS.into_iter().map(M::up).collect()).to_latest(connection)?)
}

/// Creates the tables of later schema versions, empty and for this connection alone, so that the file is readable
/// without a migration. Returns `false` if later versions have changed existing tables. Tables that later versions
/// dropped stay, because no statement reads them.
pub(crate) fn imitate(connection: &Connection, version: i64) -> rusqlite::Result<bool> {
    for text in TEXTS.iter().skip(usize::try_from(version).unwrap_or_default()) {
        let lines = text.lines().filter(|line| !line.trim_start().starts_with("--"));
        let code = lines.collect::<Vec<_>>().join("\n");
        for statement in code.split(';').map(str::trim).filter(|statement| !statement.is_empty()) {
            match statement.strip_prefix("CREATE TABLE ") {
                Some(table) => connection.execute_batch(&format!("CREATE TEMP TABLE {table}"))?,
                None if ["CREATE INDEX ", "DROP TABLE "].iter().any(|word| statement.starts_with(word)) => {}
                None => return Ok(false),
            }
        }
    }
    Ok(true)
}
