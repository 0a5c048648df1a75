//! The schema and its migrations, which are compiled into the program.

use rusqlite::Connection;
use rusqlite_migration::{M, Migrations};

use crate::store::sqlite::connections::options::OpenError;

/// The migrations, one for each schema version.
const STEPS: &[M<'_>] = &[
    M::up(include_str!("../../../../migrations/sqlite/0001_tables_and_entities.sql")),
    M::up(include_str!("../../../../migrations/sqlite/0002_service_properties.sql")),
    M::up(include_str!("../../../../migrations/sqlite/0003_accounts.sql")),
    M::up(include_str!("../../../../migrations/sqlite/0004_account_limits.sql")),
    M::up(include_str!("../../../../migrations/sqlite/0005_expiry_totals_views.sql")),
    M::up(include_str!("../../../../migrations/sqlite/0006_copy_marks.sql")),
    M::up(include_str!("../../../../migrations/sqlite/0007_property_indexes.sql")),
    M::up(include_str!("../../../../migrations/sqlite/0008_buckets.sql")),
    M::up(include_str!("../../../../migrations/sqlite/0009_buckets_of_respread_tables.sql")),
    M::up(include_str!("../../../../migrations/sqlite/0010_respreads.sql")),
];
/// The schema version that introduced accounts.
pub(crate) const WITH_ACCOUNTS: i64 = 3;

/// The schema version that introduced property indexes.
pub(crate) const WITH_INDEXES: i64 = 7;

/// The schema version of this program.
pub(crate) fn known() -> i64 {
    i64::try_from(STEPS.len()).unwrap_or(i64::MAX)
}

pub(crate) fn migrate(connection: &mut Connection) -> Result<(), OpenError> {
    let version: i64 = connection.pragma_query_value(None, "user_version", |row| row.get(0))?;
    if usize::try_from(version).is_ok_and(|version| version > STEPS.len()) {
        // Migrations only add, so an older program can work with a newer file.
        tracing::warn!(version, known = STEPS.len(), "the database has a newer schema");
        return Ok(());
    }
    Ok(Migrations::from_slice(STEPS).to_latest(connection)?)
}
