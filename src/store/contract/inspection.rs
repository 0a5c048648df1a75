//! The result of inspecting a database, which does not change it.

use chrono::TimeDelta;

use super::StoredAccount;
use crate::store::contract::cluster::Cluster;

/// Why migrations cannot run.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum MigrationObstacle {
    /// Something that an operator has to allow or make, in words.
    Forbidden(String),
    /// The database is a worker of a Citus cluster that has not got the current schema.
    OnWorker,
    /// Where migrations run does not answer, for this reason.
    Away(String),
}

/// The state of a database, for its operator.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Inspection {
    /// Name and version of the database.
    pub product: String,
    /// The version of the schema; `None` before the first migration.
    pub schema: Option<i64>,
    /// The schema version of this program.
    pub known_schema: i64,
    /// The text encoding of the database; `None` if it is fixed.
    pub encoding: Option<String>,
    /// Maximum number of connections that the database allows, if it has a limit.
    pub allowed_connections: Option<u32>,
    /// Whether the database is a read replica, which cannot be written to.
    pub is_standby: bool,
    /// Privileges that are missing, such as `INSERT on entities`.
    pub missing: Vec<String>,
    /// Why migrations cannot run; `None` if they can.
    pub migration_obstacle: Option<MigrationObstacle>,
    /// How far the clock of the database is ahead of ours, if it has its own.
    pub skew: Option<TimeDelta>,
    /// The Citus cluster that the database is in, if it is in one.
    pub cluster: Option<Cluster>,
    /// Tables whose spread is being changed, as `account/table`, though no command is at work.
    pub left_respreads: Vec<String>,
    /// Schemas with tables of this program that are empty, beside the one that is used.
    pub hidden_schemas: Vec<String>,
    /// Property indexes that are ready by the catalogue, and not in the database.
    pub missing_indexes: Vec<String>,
    /// The stored accounts, if they can be read.
    pub accounts: Vec<StoredAccount>,
}
