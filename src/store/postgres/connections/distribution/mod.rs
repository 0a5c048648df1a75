//! Distributing the tables over the nodes of a Citus cluster.

mod plan;
mod run;
mod state;

pub(crate) use plan::{DistributionSettings, DistributionStep, timeouts};
pub(crate) use run::{
    DistributionError, DistributionEvent, TellDistribution, add_tables, distribute, intended,
};
pub(crate) use state::{cluster, is_worker};
