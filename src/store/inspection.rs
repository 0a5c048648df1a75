//! What a look at a database finds, which changes nothing in it.

use chrono::TimeDelta;

use super::StoredAccount;

/// The state of a database, for whoever operates it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Inspection {
    /// Name and version of the database.
    pub product: String,
    /// The version of the schema; `None` before the first migration.
    pub schema: Option<i64>,
    /// The version that this program brings.
    pub known_schema: i64,
    /// How the database encodes text, where that is its choice.
    pub encoding: Option<String>,
    /// Connections that the database allows, where it has a limit.
    pub allowed_connections: Option<u32>,
    /// A read replica, which cannot be written to.
    pub is_standby: bool,
    /// Privileges that are missing, such as `INSERT on entities`.
    pub missing: Vec<String>,
    /// Why migrations cannot run; `None` if they can.
    pub migration_obstacle: Option<String>,
    /// How far the database's clock is ahead of ours, where it has its own.
    pub skew: Option<TimeDelta>,
    /// The stored accounts, where they can be read.
    pub accounts: Vec<StoredAccount>,
}
