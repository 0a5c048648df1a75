//! Maintenance: work of operators and of the server itself.

mod distribute;
mod expiry;
mod indexes;
mod inspect;
mod purge;
pub(crate) mod respread;
mod rewind;
mod totals;
mod views;

pub(crate) use distribute::{DistributionRequest, distribute};
pub(crate) use inspect::inspect;
