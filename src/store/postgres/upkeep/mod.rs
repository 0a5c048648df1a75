//! What operators and the server itself do beside requests of clients.

mod inspect;
pub(crate) mod purge;
mod rewind;
pub(crate) mod size;

pub(crate) use inspect::inspect;
