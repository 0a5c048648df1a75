//! Rowhouse: the Azure Table storage API on PostgreSQL or SQLite.
//!
//! - `service`: the pipeline from the head and body of a request to an answer, a file for each operation
//! - `server`: sockets, the admin listener, settings, startup
//! - `cli`, `testing`: commands, a server inside a test
//!
//! Its other parts are crates, which are known as these modules here:
//!
//! - `protocol`: what a request means, as pure functions: types, `$filter`, JSON and Atom, who may do what
//! - `observe`: metrics and traces
//! - `store`: where entities are, in PostgreSQL or SQLite, behind one contract
//! - `operator`: accounts, indexes, expiry, counts and SQL views, for operators
//! - `transfer`: copies between endpoints, databases and dumps
//!
//! `docs/internals/architecture.md` has the way of a request, what may import what, and where a change goes.

#![warn(missing_docs, unreachable_pub)]

pub mod cli;
mod server;
mod service;
#[cfg(feature = "testing")]
pub mod testing;

pub(crate) use rowhouse_protocol::{self as protocol, error};
pub(crate) use {
    rowhouse_observe as observe, rowhouse_operator as operator, rowhouse_store as store,
    rowhouse_transfer as transfer,
};
