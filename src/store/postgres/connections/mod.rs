//! Connections to the database: settings, the schema, pools and leases.

pub(crate) mod capacity;
pub(crate) mod connector;
pub(crate) mod distribution;
pub(crate) mod lane;
pub(crate) mod lease;
pub(crate) mod nodes;
mod options;
mod parameters;
pub(crate) mod placement;
pub(crate) mod pool;
mod primaries;
pub(crate) mod schema;
pub(crate) mod search_path;
pub(crate) mod sessions;
mod shards;

pub(crate) use capacity::ConnectionDemand;
pub(crate) use capacity::allowed_connections;
pub(crate) use options::told;
pub use options::{PgOptions, StartError};
pub(crate) use parameters::unknown_parameter;
