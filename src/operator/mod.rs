//! Features for operators: accounts, property indexes, expiry, counts and SQL views. The protocol is
//! unchanged, and tables that use none of this are not affected.
//!
//! The command line and the admin listener call the same functions; [`upkeep`] works in the background.

pub(crate) mod accounts;
pub(crate) mod deleted;
pub(crate) mod durations;
mod error;
pub(crate) mod expiry;
pub(crate) mod indexes;
pub(crate) mod reports;
pub(crate) mod totals;
pub(crate) mod upkeep;
pub(crate) mod views;

pub(crate) use error::OperatorError;

use crate::protocol::model::TableName;

/// Reads the name of a table.
///
/// # Errors
/// [`OperatorError::Argument`].
pub(crate) fn table_name(table: &str) -> Result<TableName, OperatorError> {
    TableName::parse(table).map_err(|error| OperatorError::Argument(format!("{table}: {}", error.text())))
}
