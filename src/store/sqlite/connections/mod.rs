//! How a database is reached: settings, the schema, connections and who uses them.

mod access;
mod lock;
pub(crate) mod open;
pub(crate) mod options;
pub(crate) mod pool;
pub(crate) mod scan_limit;
pub(crate) mod schema;
pub(crate) mod transaction;

pub use access::obstacle;
pub use lock::ServerLock;
pub use options::{Location, MAX_MAP_MIB, OpenError, SqliteOptions};
