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
pub mod expiry;
pub mod indexes;
pub mod totals;
pub mod upkeep;
pub mod views;

pub use cluster::{ClusterReport, ClusterUse};

pub(crate) use rowhouse_protocol as protocol;
pub(crate) use {rowhouse_observe as observe, rowhouse_store as store};

use crate::protocol::error::Code;
use crate::protocol::model::TableName;
use crate::store::{Failure, Fault, MAX_INDEXES, MAX_TABLE_INDEXES};

pub fn parse_table_name(table: &str) -> Result<TableName, OperatorError> {
    TableName::parse(table).map_err(|error| OperatorError::Argument(format!("{table}: {}", error.text())))
}

/// The reason why an operation failed, for operators to read.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum OperatorError {
    /// The request is invalid.
    #[error("{0}")]
    Argument(String),
    #[error("the account name {0:?} is not 3 to 24 lower-case letters and digits")]
    AccountName(String),
    #[error("a key must have 1 to {0} bytes")]
    KeyLength(usize),
    #[error("a limit must be 1 to {0} requests a second")]
    Limit(u32),
    #[error("the account {0} exists already")]
    AccountExists(String),
    #[error("there is no account {0} in the database")]
    AccountNotFound(String),
    #[error("the master key does not open the keys in the database: give the master key that encrypted them")]
    MasterKey,
    #[error(
        "--master-key: does not open the keys of the account {0} in the database: give the master key that \
         encrypted them, or remove the account with `rowhouse account remove {0}`"
    )]
    MasterKeyOfServer(String),
    #[error(
        "neither master key opens the keys of the account {0}: give the master key that encrypted them as \
         --old-master-key, or remove the account"
    )]
    BothMasterKeys(String),
    #[error("another command or server changed accounts at the same time; try again")]
    Contended,
    #[error(
        "another rule was set for the table at the same time: list the rules, and set yours again if \
         necessary"
    )]
    OtherRule,
    #[error("the operating system gave no random bytes")]
    Random,
    #[error("the account has no such table")]
    TableNotFound,
    #[error("there is no table {0} in the account {1}")]
    TableNotInAccount(String, String),
    #[error("there is no such deleted table: its time has ended, or it was restored or purged")]
    DeletedTableNotFound,
    #[error("{0}")]
    SeveralDeletedTables(String),
    #[error("there is a table {0} already: give another name")]
    TableNameTaken(String),
    #[error(
        "servers may still use the last name of the table: it can have another name from {0} on, and its \
         last name now"
    )]
    RenamedTooSoon(String),
    #[error("the property has an index of this kind already")]
    IndexExists,
    #[error(
        "a table can have at most {MAX_TABLE_INDEXES} indexes, and a database {MAX_INDEXES}: drop an index \
         first"
    )]
    TooManyIndexes,
    #[error("there is no such index")]
    IndexNotFound,
    /// The table has no expiry rule.
    #[error("{0}")]
    NotSet(String),
    #[error("the accounts cannot be read from the database: {}", advice(*.0))]
    Unread(Fault),
    #[error("{}", advice(*.0))]
    Store(Fault),
}

impl From<Failure> for OperatorError {
    fn from(failure: Failure) -> Self {
        match failure {
            Failure::Fault(fault) => OperatorError::Store(fault),
            Failure::Refused(error) if error.code == Code::TableNotFound => OperatorError::TableNotFound,
            Failure::Refused(error) => OperatorError::Argument(error.text().to_owned()),
        }
    }
}

/// Describes a fault of the database, and the action that may solve it.
const fn advice(fault: Fault) -> &'static str {
    match fault {
        Fault::NotBegun | Fault::Busy => "the database is busy; nothing was done: try again",
        Fault::Serialization => "another change came first; nothing was done: try again",
        Fault::Unavailable => {
            "the database cannot be reached or refuses work; nothing was done: run `rowhouse check`, and try again"
        }
        Fault::Timeout => {
            "the database did not answer in time; a change may or may not have been made: check the result before \
             you try again"
        }
        Fault::Other => "the database failed unexpectedly; the log of the database may have the reason",
    }
}
