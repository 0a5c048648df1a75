//! What operators and the server itself do beside requests of clients.

mod expiry;
mod inspect;
pub(crate) mod purge;
mod rewind;
pub(crate) mod size;
mod totals;
mod views;

pub(crate) use inspect::inspect;
