//! Maintenance: work of operators and of the server itself.

mod backup;
pub(crate) mod indexes;
pub(crate) mod inspect;
pub(crate) mod purge;
mod totals;

pub use backup::{Backup, Copied};
