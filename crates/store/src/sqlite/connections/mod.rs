//! Connections to a database: settings, the schema, pools, locks and limits.

pub(crate) mod locks;
pub(crate) mod open;
pub(crate) mod options;
pub(crate) mod pool;
pub(crate) mod schema;

pub use locks::ServerLock;
pub use open::obstacle;
pub use options::MAX_MAP_MIB;
pub use options::{Location, OpenError, SqliteOptions};
