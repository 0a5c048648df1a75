//! What is particular to a Citus cluster: its nodes, where buckets are, how tables are distributed and respread.

pub(crate) mod buckets;
pub(crate) mod distribution;
pub(crate) mod nodes;
mod primaries;
pub(crate) mod respread;
mod shards;
