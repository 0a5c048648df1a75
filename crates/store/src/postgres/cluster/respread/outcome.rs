//! Input, progress, result and errors of a respread.

use std::time::Duration;

use crate::postgres::connections::{StartError, database_message};
use crate::protocol::model::TableRef;

#[derive(Debug, thiserror::Error)]
pub enum RespreadError {
    #[error("there is no table {0} in the account {1}")]
    NoTable(String, String),
    #[error("the table was deleted during the respread")]
    Deleted,
    #[error("the table is not being respread")]
    NotBegun,
    #[error(
        "the table is already being respread to {0} buckets: finish that respread first, or give it up with --cancel"
    )]
    OtherSpread(u16),
    #[error(
        "the table has a property index, which a respread cannot keep: drop it with `rowhouse index drop`, \
         and create it again after the respread"
    )]
    HasIndex,
    #[error(
        "the table has the SQL view {0}, which a respread cannot keep: drop it, and create it again after \
         the respread with the output of `rowhouse view sql`"
    )]
    HasView(String),
    #[error("another `rowhouse table respread` is running on this database")]
    Running,
    #[error("this is a worker: give the coordinator's URL as --migrate-url, or as --database-url")]
    OnWorker,
    #[error("the schema is not current: run `rowhouse migrate` first")]
    Schema,
    #[error("a transaction has been writing for {0} seconds and does not end; run the command again later")]
    Writer(u64),
    #[error("a server of the cluster does not answer: {0}")]
    ServerUnreachable(String),
    #[error(
        "clients change the table faster than the command can copy the changes; servers still use the table \
         as before. Run the command again when there are fewer writes, or give up with --cancel"
    )]
    TooManyChanges,
    #[error(
        "the copy differs from the table at PartitionKey {0:?}, RowKey {1:?}: this is a bug. Servers still \
         use the table as before; give up with --cancel"
    )]
    Differs(String, String),
    #[error(
        "the respread was cancelled, but its records of changed keys remain until the table is respread again \
         or purged: {0}"
    )]
    ChangesLeft(Box<RespreadError>),
    #[error("the record of the respread does not match the table")]
    Broken,
    #[error("{0}")]
    Start(#[from] StartError),
    #[error("{}", database_message(.0))]
    Database(#[from] sqlx::Error),
}

pub(crate) type RespreadResult<T = ()> = Result<T, RespreadError>;

/// Progress of a respread.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RespreadEvent {
    /// The call resumes an earlier respread.
    Resumed,
    /// Number of entities that this call has copied.
    Copied { entities: u64 },
    /// Number of keys whose changes were copied after the entities.
    ChangesCopied { keys: u64 },
    /// Number of entities that were compared so far, of the table and of the copy.
    Compared { entities: u64 },
}

/// Result of a respread.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct RespreadSummary {
    /// Whether the table already had the requested number of buckets, so that the call did nothing.
    pub had_spread: bool,
    /// Entities that this call copied.
    pub copied: u64,
    /// Keys that were copied again because clients wrote to them during the respread.
    pub changes: u64,
    /// Entities of the table that were compared.
    pub compared: u64,
    /// Time for which writers waited during the successful switch. Failed attempts do not count.
    pub pause: Duration,
}

pub(crate) type OnRespreadProgress<'a> = &'a mut (dyn FnMut(RespreadEvent) + Send);

/// The table to respread, and its new number of buckets.
#[derive(Debug, Clone, Copy)]
pub struct RespreadRequest<'a> {
    pub table: TableRef<'a>,
    pub spread: u16,
}
