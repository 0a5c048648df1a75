//! Maintenance: work of operators and of the server itself.

mod indexes;
mod inspect;
pub(crate) mod purge;
mod rewind;
pub(crate) mod size;

pub(crate) use inspect::inspect;
