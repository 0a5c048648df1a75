//! PostgreSQL, for any number of stateless replicas over one database.

mod batches;
mod catalog;
mod connections;
mod entities;
mod fault;
mod reads;
mod retry;
mod rows;
mod state;
pub mod statements;
mod store;
mod upkeep;
mod writes;

pub(crate) use connections::ConnectionDemand;
pub(crate) use connections::distribution::{DistributionError, DistributionEvent, DistributionStep};
pub(crate) use connections::unknown_parameter;
pub use connections::{PgOptions, StartError};
#[cfg(fuzzing)]
pub use reads::filter::sql_of;
pub use store::PgStore;
pub(crate) use upkeep::respread::{self, RespreadError, RespreadEvent, RespreadRequest, RespreadSummary};
pub(crate) use upkeep::{DistributionRequest, distribute, inspect};
