//! Support for Citus clusters: nodes, bucket locations, distribution and respreading of tables.

pub(crate) mod buckets;
mod catalogue;
pub(crate) mod distribution;
pub(crate) mod node;
pub(crate) mod nodes;
mod owners;
pub mod respread;
mod topology;
