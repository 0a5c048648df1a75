//! What is particular to a Citus cluster: its nodes, where buckets are, how tables are distributed and respread.

pub(crate) mod buckets;
mod catalogue;
pub(crate) mod distribution;
pub(crate) mod node;
pub(crate) mod nodes;
mod owners;
pub mod respread;
mod topology;
