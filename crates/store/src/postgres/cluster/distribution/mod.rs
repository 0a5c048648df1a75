//! Distributing the tables over the nodes of a Citus cluster.

mod command;
mod plan;
mod run;
mod state;

pub use command::{DistributionRequest, distribute};
pub use plan::DistributionStep;
pub use run::DistributionError;
pub(crate) use run::add_tables;
pub use state::status;
pub(crate) use state::{cluster, is_worker};
