//! PostgreSQL, for any number of stateless replicas over one database.

mod batches;
mod catalog;
mod cluster;
pub(crate) mod connections;
mod entities;
pub(crate) mod fault;
mod migrations;
mod reads;
pub(crate) mod retry;
mod rows;
pub(crate) mod state;
pub mod statements;
mod store;
mod upkeep;
mod writes;

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
