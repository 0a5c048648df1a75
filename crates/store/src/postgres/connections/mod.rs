//! Connections to the database: who opens, who lends, who limits.
//!
//! - `options`, `host_list`, `host_map`: what the settings say, and how many connections follow from it
//! - `hosts` chooses among the hosts of one server, and connects (`socket_options`)
//! - `connector` opens sessions to one server, finds the schema (`schema`, `search_path`), looks whether the
//!   entities are distributed (`placement`), and cancels statements; `sessions` counts sessions and keeps those that
//!   are idle
//! - `pool` lends sessions and limits how many are lent; a `lease` is one that was lent, whose statements a
//!   `statement_watch` waits for
//! - a `breaker` refuses what needs a server that does not answer

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
