//! The result of inspecting a database, which does not change it.

use std::fmt;

use chrono::TimeDelta;

use super::StoredAccount;
use crate::contract::cluster::Cluster;

/// Why migrations cannot run.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum MigrationObstacle {
    /// Something that an operator has to allow or make, in words.
    Forbidden(String),
    /// The database is a worker of a Citus cluster that has not got the current schema.
    OnWorker,
    /// Where migrations run does not answer, for this reason.
    Away(String),
}

/// What a host of a list is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum HostRole {
    Primary,
    /// A primary whose sessions only read, unless they ask for more.
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

/// A host of a list, and why it does not answer if it does not.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ListedHost {
    pub name: String,
    pub role: Result<HostRole, String>,
}

/// The hosts of a URL that lists several.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct HostsFound {
    /// The one that was chosen.
    pub used: String,
    /// Whether any will do, a standby too.
    pub take_any: bool,
    pub listed: Vec<ListedHost>,
}

/// The state of a database, for its operator.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Inspection {
    /// Name and version of the database.
    pub product: String,
    /// The version of the schema; `None` before the first migration, and if it may not be read.
    pub schema: Option<i64>,
    /// Whether there is a version of the schema, which the role may not read.
    pub is_schema_hidden: bool,
    /// The schema version of this program.
    pub known_schema: i64,
    /// The text encoding of the database; `None` if it is fixed.
    pub encoding: Option<String>,
    /// Maximum number of connections that the database allows, if it has a limit.
    pub allowed_connections: Option<u32>,
    /// Whether the database is a read replica, which cannot be written to.
    pub is_standby: bool,
    /// Whether its sessions cannot write, on a read replica or by a setting of the role.
    pub reads_only: bool,
    /// Privileges that are missing, such as `INSERT on entities`.
    pub missing: Vec<String>,
    /// Why migrations cannot run; `None` if they can.
    pub migration_obstacle: Option<MigrationObstacle>,
    /// How far the clock of the database is ahead of ours, if it has its own.
    pub skew: Option<TimeDelta>,
    /// The hosts of its URL, if there are several.
    pub hosts: Option<HostsFound>,
    /// The Citus cluster that the database is in, if it is in one.
    pub cluster: Option<Cluster>,
    /// Tables whose spread is being changed, as `account/table`, though no command is at work.
    pub left_respreads: Vec<String>,
    /// Schemas with tables of this program that are empty, beside the one that is used.
    pub hidden_schemas: Vec<String>,
    /// Property indexes that are ready by the catalogue, and not in the database.
    pub missing_indexes: Vec<String>,
    /// SQL views that an earlier version created, by their quoted names.
    pub left_views: Vec<String>,
    /// The stored accounts, if they can be read.
    pub accounts: Vec<StoredAccount>,
}
