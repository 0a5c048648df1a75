//! What operators and the server itself do beside requests of clients.

mod backup;
pub(crate) mod checkpoint;
pub(crate) mod inspect;
pub(crate) mod purge;
pub(crate) mod rewind;
pub(crate) mod size;

pub(crate) use backup::{Backup, Copied};
