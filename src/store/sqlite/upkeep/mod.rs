//! Maintenance: work of operators and of the server itself.

mod backup;
pub(crate) mod checkpoint;
mod expiry;
pub(crate) mod indexes;
pub(crate) mod inspect;
pub(crate) mod purge;
pub(crate) mod rewind;
pub(crate) mod size;
mod totals;
mod view_text;
mod views;

pub(crate) use backup::{Backup, Copied};
