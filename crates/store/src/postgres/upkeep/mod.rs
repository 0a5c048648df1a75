//! Maintenance: work of operators and of the server itself.

mod expiry;
mod indexes;
pub mod inspect;
mod purge;
mod reset;
mod totals;

pub use inspect::inspect;
