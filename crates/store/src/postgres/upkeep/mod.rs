//! Maintenance by operators and by the server itself.

mod expiry;
mod indexes;
pub mod inspect;
mod purge;
mod totals;

pub use inspect::inspect;
