//! Distributing the tables over the nodes of a Citus cluster.

mod command;
mod plan;
mod run;
mod state;

pub(crate) use command::{DistributionRequest, distribute};
pub(crate) use plan::{CannotDistribute, DistributionStep};
pub(crate) use run::{ClusterError, ClusterEvent, OnClusterProgress, add_tables};
pub(crate) use state::{catalogue, cluster, is_worker, with_nodes};
