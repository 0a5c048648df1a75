//! Connections to a database: settings, the schema, pools, locks and limits.

mod access;
pub(crate) mod cancelled_builds;
mod lock;
pub(crate) mod open;
pub(crate) mod options;
pub(crate) mod pool;
mod reading;
pub(crate) mod schema;
pub(crate) mod transaction;

pub use access::obstacle;
pub use lock::ServerLock;
pub use options::MAX_MAP_MIB;
pub use options::{Location, OpenError, SqliteOptions};
