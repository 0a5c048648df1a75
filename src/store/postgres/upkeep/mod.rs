//! Maintenance: work of operators and of the server itself.

mod expiry;
mod indexes;
mod inspect;
pub(crate) mod purge;
mod rewind;
pub(crate) mod size;
mod totals;
mod views;

pub(crate) use inspect::inspect;
