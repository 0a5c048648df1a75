//! The traits that both stores implement, one per subject, and their types.
//!
//! Methods are cancel-safe: if a future is dropped, the store stays usable, and its write happens completely or not at
//! all.

/// Defines a trait of the contract, and methods of [`Store`](crate::Store) that forward to the actual store. A method
/// is implemented once for both stores in `catalog`, or in each store.
macro_rules! store_trait {
    (
        $(#[$about:meta])*
        pub trait $subject:ident {
            $(
                $(#[$doc:meta])*
                async fn $method:ident $(<$generic:ident: $bound:ident>)? (
                    &self $(, $argument:ident: $kind:ty)* $(,)?
                ) -> $output:ty;
            )+
        }
    ) => {
        $(#[$about])*
        pub trait $subject: Send + Sync {
            $(
                $(#[$doc])*
                fn $method $(<$generic: $bound>)? (
                    &self $(, $argument: $kind)*
                ) -> impl Future<Output = $output> + Send;
            )+
        }

        impl $crate::Store {
            $(
                $(#[$doc])*
                pub async fn $method $(<$generic: $bound>)? (&self $(, $argument: $kind)*) -> $output {
                    $crate::either::on_either!(self, store => store.$method($($argument),*))
                }
            )+
        }
    };
}

mod accounts;
pub mod cluster;
pub mod deleted;
mod entities;
mod expiry;
pub(crate) mod indexes;
mod inspection;
pub mod load;
pub mod reset;
mod tables;
mod upkeep;
pub mod views;

use crate::error::{Code, Error};

pub use accounts::{AccountChange, AccountOptions, ChangeCounts, Resealed, StoredAccount, StoredAccounts};
pub use deleted::{DeletedScan, DeletedTable, DeletedTables, TableRecords, Undeletion};
pub use entities::{Collect, Entities};
pub use expiry::{Expiry, ExpiryRule, ExpirySummary, SweepState, TableExpiry};
pub use expiry::{SWEEP_RETRY_PAUSE, UnrecordedSweeps};
pub use indexes::{
    AddIndexOutcome, BuiltIndex, IndexFigures, IndexState, Indexes, MAX_INDEXES, MAX_TABLE_INDEXES, NewIndex,
    StoredIndex,
};
pub use inspection::{HostRole, HostsFound, Inspection, ListedHost, MigrationObstacle};
pub use load::{Load, LoadMark, Loads};
pub use reset::{Reset, StoreSnapshot};
pub use tables::{TableSize, Tables};
pub use upkeep::{CountPosition, CountedPart, SetAside, Totals, Upkeep};
pub use views::{ColumnKind, SqlViews, ViewColumn, ViewDefinition, ViewScript};

/// A database fault, in the detail that callers may see.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Fault {
    /// No connection or queue slot was free; no statement of the operation was sent.
    NotBegun,
    /// No connection, lock or queue slot was free in time; nothing was changed.
    Busy,
    /// The transaction conflicted with another one and was rolled back.
    Serialization,
    /// The database is unreachable or refuses work; nothing was changed.
    Unavailable,
    /// The outcome is unknown: the operation timed out, or the connection was lost or the disk failed during a commit.
    Timeout,
    /// Any other fault: a bug in this program or in the database.
    Other,
}

/// Why a store did not perform an operation.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Failure {
    /// The protocol forbids the operation.
    Refused(Error),
    /// The database failed.
    Fault(Fault),
}

impl From<Error> for Failure {
    fn from(error: Error) -> Self {
        Failure::Refused(error)
    }
}

impl From<Code> for Failure {
    fn from(code: Code) -> Self {
        Failure::Refused(code.into())
    }
}

impl From<Fault> for Failure {
    fn from(fault: Fault) -> Self {
        Failure::Fault(fault)
    }
}

/// The only mapping of database failures to client errors.
impl From<Failure> for Error {
    fn from(failure: Failure) -> Self {
        match failure {
            Failure::Refused(error) => error,
            Failure::Fault(Fault::NotBegun | Fault::Busy | Fault::Serialization | Fault::Unavailable) => {
                Code::ServerBusy.into()
            }
            Failure::Fault(Fault::Timeout) => Code::OperationTimedOut.into(),
            Failure::Fault(Fault::Other) => Code::InternalError.into(),
        }
    }
}

pub type StoreResult<T> = Result<T, Failure>;
