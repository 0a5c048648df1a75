//! Maintenance: work of operators and of the server itself.

mod expiry;
mod indexes;
mod inspect;
mod purge;
mod reset;
mod totals;

pub(crate) use inspect::inspect;
