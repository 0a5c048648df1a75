//! The storage interface, and the only module that accesses databases.
//!
//! Both stores implement the traits of [`contract`] and make no protocol decisions: the semantics of writes are
//! in `plan::decide`, those of pages in `plan::scan`. The contract:
//!
//! 1. A method returns `Ok` for a write only once the write is durable.
//! 2. An account is a namespace; its tables are identified by their lower-case names.
//! 3. A page is one snapshot, in key order, complete between its first row and
//!    its `next` key. Where Citus spreads the table over several servers, each bucket is read
//!    at its own moment.
//! 4. A deleted table is inaccessible at once, and its name reusable at once; its
//!    rows are purged later by [`Upkeep::purge`].
//! 5. Failures of the database are [`Fault`]s; their causes are logged here and
//!    not passed on.

#![warn(unreachable_pub)]
#![allow(rustdoc::private_intra_doc_links, reason = "developers of this repository read the documentation")]

pub(crate) mod bucket;
pub mod catalog;
pub mod contract;
pub mod database;
mod either;
pub mod postgres;
pub mod quoting;
pub(crate) mod scan_limit;
pub(crate) mod sql;
pub mod sqlite;

pub use contract::*;
pub use either::Store;

pub(crate) use rowhouse_observe as observe;
pub(crate) use rowhouse_protocol::{self as protocol, error};
