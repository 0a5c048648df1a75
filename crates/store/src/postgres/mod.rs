//! The PostgreSQL store. Any number of stateless replicas can share one database.

/// Statements that serve several requests.
mod batches {
    pub(crate) mod lane;
    pub(crate) mod reads;
    pub(crate) mod writes;
}
mod catalog;
mod cluster;
pub(crate) mod connections;
mod entities;
pub(crate) mod fault;
mod migrations;
mod reads;
pub(crate) mod retry;
mod rows;
/// Server state that outlives a request.
pub(crate) mod state {
    pub(crate) mod purge_progress;
    pub(crate) mod row_locks;
    pub(crate) mod table_ids;
}
pub mod statements;
mod store;
mod upkeep;
/// Writes entities: single writes, batches of several requests, and transactions.
mod writes {
    pub(crate) mod load;
    pub(crate) mod single;
    pub(crate) mod transaction;
}

pub use cluster::distribution::{
    DistributionError, DistributionRequest, DistributionStep, distribute, status,
};
pub use cluster::respread::{self, RespreadError, RespreadEvent, RespreadRequest, RespreadSummary};
pub use connections::ConnectionDemand;
pub use connections::HostMap;
pub(crate) use connections::mistake_in;
pub use connections::{PgOptions, StartError};
#[cfg(fuzzing)]
pub use reads::filter::sql_of;
pub use store::PgStore;
pub use upkeep::inspect;
