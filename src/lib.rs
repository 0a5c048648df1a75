//! Rowhouse: the Azure Table storage API on PostgreSQL or SQLite.
//!
//! - `protocol`: what a request means, as pure functions: types, `$filter`, JSON and Atom, who may do what
//! - `store`: where entities are, in PostgreSQL or SQLite, behind one contract
//! - `service`: the pipeline from the head and body of a request to an answer, a file for each operation
//! - `server`: sockets, the admin listener, settings, startup
//! - `operator`: accounts, indexes, expiry, counts and SQL views, for operators
//! - `transfer`: copies between endpoints, databases and dumps
//! - `cli`, `testing`, `observe`: commands, a server inside a test, metrics and traces
//!
//! `docs/internals/architecture.md` has the way of a request, what may import what, and where a change goes.

#![warn(missing_docs, unreachable_pub)]

pub mod cli;
mod operator;
mod server;
mod service;
#[cfg(feature = "testing")]
pub mod testing;
mod transfer;

pub(crate) use rowhouse_protocol::{self as protocol, error};
pub(crate) use {rowhouse_observe as observe, rowhouse_store as store};
