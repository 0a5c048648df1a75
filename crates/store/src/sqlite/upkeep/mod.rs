//! Maintenance by operators and by the server itself.

mod backup;
mod indexes;
mod inspect;
mod purge;
mod totals;

pub use backup::{Backup, Copied};
pub(crate) use inspect::inspect;
