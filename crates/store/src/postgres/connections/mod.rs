//! Database connections: opening, pooling and limits.
//!
//! - `options`, `host_list` and `host_map` parse the settings; `options` also computes the connection demand
//! - `hosts` chooses one of a server's hosts and connects to it (`socket_options`)
//! - `connector` opens sessions to one server, finds the schema (`schema`, `search_path`), detects whether the
//!   entities are distributed (`placement`), and cancels statements
//! - `sessions` counts sessions and keeps the idle ones
//! - `pool` leases sessions and limits the number of leases; a `lease` runs statements, and `statement_watch` waits
//!   for them
//! - `breaker` rejects statements that need a server that does not answer

pub(crate) mod breaker;
pub(crate) mod connector;
mod host_list;
pub(crate) mod host_map;
pub(crate) mod hosts;
pub(crate) mod lease;
pub(crate) mod options;
pub(crate) mod placement;
pub(crate) mod pool;
pub(crate) mod schema;
pub(crate) mod search_path;
pub(crate) mod sessions;
mod socket_options;
pub(crate) mod statement_watch;

pub(crate) use host_list::mistake_in;
pub use host_map::HostMap;
pub use options::{ConnectionDemand, PgOptions, StartError};
pub(crate) use options::{allowed_connections, database_message};
