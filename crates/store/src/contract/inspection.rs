//! The result of a read-only inspection of a database.

use std::fmt;

use chrono::TimeDelta;

use super::StoredAccount;
use crate::contract::cluster::Cluster;

/// Why migrations cannot run.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum MigrationObstacle {
    /// A permission or object that an operator has to provide, as text.
    Forbidden(String),
    /// The database is a worker of a Citus cluster without the current schema.
    OnWorker,
    /// The server on which migrations run does not answer, for this reason.
    Away(String),
}

/// The role of a PostgreSQL host.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum HostRole {
    Primary,
    /// A primary whose sessions are read-only by default.
    ReadOnly,
    Standby,
}

impl fmt::Display for HostRole {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            HostRole::Primary => "a primary",
            HostRole::ReadOnly => "a primary whose sessions only read",
            HostRole::Standby => "a standby",
        })
    }
}

/// A host of a URL, with its role or the reason why it did not answer.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ListedHost {
    pub name: String,
    pub role: Result<HostRole, String>,
}

/// The hosts of a URL that lists several.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct HostsFound {
    /// The chosen host.
    pub used: String,
    /// Whether any host is acceptable, including a standby.
    pub take_any: bool,
    pub listed: Vec<ListedHost>,
}

/// The state of a database, as reported to its operator.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Inspection {
    /// Name and version of the database.
    pub product: String,
    /// Schema version; `None` before the first migration, or if it is not readable.
    pub schema: Option<i64>,
    /// Whether the schema has a version that the role may not read.
    pub is_schema_hidden: bool,
    /// The schema version of this program.
    pub known_schema: i64,
    /// Text encoding of the database; `None` if it is fixed.
    pub encoding: Option<String>,
    /// Maximum number of connections; `None` if the database has no limit.
    pub allowed_connections: Option<u32>,
    /// Whether the database is a read-only replica.
    pub is_standby: bool,
    /// Whether sessions are read-only, because of a replica or a setting of the role.
    pub reads_only: bool,
    /// Missing privileges, such as `INSERT on entities`.
    pub missing: Vec<String>,
    /// Why migrations cannot run; `None` if they can.
    pub migration_obstacle: Option<MigrationObstacle>,
    /// How far the database's clock is ahead of this machine's; `None` if they share a clock.
    pub skew: Option<TimeDelta>,
    /// The hosts of the URL, if it lists several.
    pub hosts: Option<HostsFound>,
    /// The Citus cluster of the database, if any.
    pub cluster: Option<Cluster>,
    /// Tables with an unfinished respread that no command is working on, as `account/table`.
    pub abandoned_respreads: Vec<String>,
    /// Other schemas on the path with empty tables of this program.
    pub hidden_schemas: Vec<String>,
    /// Property indexes that are ready according to their records but missing in the database.
    pub missing_indexes: Vec<String>,
    /// SQL views that an earlier version created, as quoted names.
    pub old_views: Vec<String>,
    /// The stored accounts; empty if they are not readable.
    pub accounts: Vec<StoredAccount>,
}
