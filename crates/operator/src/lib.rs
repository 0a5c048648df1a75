//! Features for operators: accounts, property indexes, expiry, counts and SQL views. The protocol is
//! unchanged, and tables that use none of this are not affected.
//!
//! The command line and the admin listener call the same functions; [`upkeep`] works in the background.

#![warn(unreachable_pub)]
#![allow(rustdoc::private_intra_doc_links, reason = "developers of this repository read the documentation")]

pub mod accounts;
mod cluster;
pub mod deleted;
pub mod durations;
mod error;
pub mod expiry;
pub mod indexes;
pub mod totals;
pub mod upkeep;
pub mod views;

pub use cluster::{ClusterReport, ClusterUse};
pub use error::OperatorError;

use crate::protocol::model::TableName;

/// Parses the name of a table.
pub fn table_name(table: &str) -> Result<TableName, OperatorError> {
    TableName::parse(table).map_err(|error| OperatorError::Argument(format!("{table}: {}", error.text())))
}

pub(crate) use rowhouse_protocol as protocol;
pub(crate) use {rowhouse_observe as observe, rowhouse_store as store};
