//! Maintenance: work of operators and of the server itself.

mod backup;
pub(crate) mod checkpoint;
pub(crate) mod indexes;
pub(crate) mod inspect;
pub(crate) mod purge;
pub(crate) mod rewind;
pub(crate) mod size;

pub(crate) use backup::{Backup, Copied};
