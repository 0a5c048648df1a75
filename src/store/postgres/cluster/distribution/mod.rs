//! Distributing the tables over the nodes of a Citus cluster.

mod command;
mod plan;
mod run;
mod state;

pub(crate) use command::{DistributionRequest, distribute};
pub(crate) use plan::DistributionStep;
pub(crate) use run::{DistributionError, add_tables};
pub(crate) use state::{cluster, is_worker, status};
