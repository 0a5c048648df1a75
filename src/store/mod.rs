//! The only I/O: what every database behind Rowhouse has to do.
//!
//! Both backends obey the contract of [`Backend`] and decide nothing about the
//! protocol themselves: write semantics are `plan::decide`, page semantics are
//! `plan::scan`. The contract:
//!
//! 1. A method returns `Ok` for a write only once the write is durable.
//! 2. An account is a name-space; its tables are told apart by lower-case name.
//! 3. A page is one snapshot, in key order, complete between its first row and
//!    its `next` key.
//! 4. A deleted table is unreachable at once and its name reusable at once;
//!    rows are purged later by [`Backend::purge`].
//! 5. Failures of the database are [`Fault`]s; their causes are logged here and
//!    never leave.

use std::future::Future;

use crate::error::{Code, Error};
use crate::model::entity::BorrowedEntity;
use crate::model::{Key, Stored, TableName, Ticks};
use crate::plan::{EntityPage, PageEnd, Scan, TableEntry, TablePage, TableScan, Write, Written};

pub(crate) mod accounts;
mod any;
pub(crate) mod bucket;
mod inspection;
pub mod postgres;
pub mod rewind;
pub mod sqlite;

pub use accounts::{AccountChange, AccountOptions, ChangeCounts, Resealed, StoredAccount};
pub(crate) use any::Store;
pub(crate) use inspection::Inspection;
pub use rewind::{Rewind, StoreSnapshot};

/// What went wrong with the database, as far as anyone outside may know.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Fault {
    /// No connection or no place in a queue was free: no statement of the operation was sent.
    NotBegun,
    /// No connection, lock or slot was free in time; nothing was done.
    Busy,
    /// The transaction lost against another and was rolled back.
    Serialization,
    /// The database cannot be reached or refuses work; nothing was done.
    Unavailable,
    /// The time for the operation ran out, or the connection was lost while a
    /// commit was under way: the outcome is unknown.
    Timeout,
    /// Anything else: a defect of ours or of the database.
    Other,
}

/// Why a store did not do what it was asked to.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Failure {
    /// The protocol says no.
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

/// The one place that maps failures of a database to the errors that clients get.
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

/// How much a table holds.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct TableSize {
    pub entities: u64,
    /// Bytes of keys and stored properties, without indexes and what databases
    /// add to rows.
    pub bytes: u64,
    /// Whether all entities were looked at. Otherwise there are more.
    pub complete: bool,
}

/// Result of a storage operation.
pub type StoreResult<T> = Result<T, Failure>;

/// Takes in the entities of a page.
pub trait Collect: Send + 'static {
    /// Takes in the next one.
    fn take(&mut self, entity: BorrowedEntity<'_>);

    /// Discards what it has collected: the page is read again.
    fn restart(&mut self);
}

impl Collect for Vec<Stored> {
    fn take(&mut self, entity: BorrowedEntity<'_>) {
        self.push(entity.to_stored());
    }

    fn restart(&mut self) {
        self.clear();
    }
}

impl<C: Collect + ?Sized> Collect for Box<C> {
    fn take(&mut self, entity: BorrowedEntity<'_>) {
        (**self).take(entity);
    }

    fn restart(&mut self) {
        (**self).restart();
    }
}

/// What a database has to do. Methods are safe to cancel: a dropped future
/// leaves the store usable, and its write either done or not.
pub trait Backend: Send + Sync {
    /// Creates a table.
    ///
    /// # Errors
    /// [`Code::TableAlreadyExists`] in any casing.
    fn create_table(
        &self,
        account: &str,
        table: &TableName,
        now: Ticks,
    ) -> impl Future<Output = StoreResult<()>> + Send;

    /// Removes a table, its policies and, later, its entities.
    ///
    /// # Errors
    /// [`Code::ResourceNotFound`].
    fn delete_table(
        &self,
        account: &str,
        table: &TableName,
        now: Ticks,
    ) -> impl Future<Output = StoreResult<()>> + Send;

    /// Looks one table up.
    fn get_table(
        &self,
        account: &str,
        table: &TableName,
    ) -> impl Future<Output = StoreResult<Option<TableEntry>>> + Send;

    /// One page of the account's tables.
    fn list_tables(
        &self,
        account: &str,
        scan: &TableScan,
    ) -> impl Future<Output = StoreResult<TablePage>> + Send;

    /// Reads one entity.
    ///
    /// # Errors
    /// [`Code::TableNotFound`].
    fn get(
        &self,
        account: &str,
        table: &TableName,
        key: &Key,
    ) -> impl Future<Output = StoreResult<Option<Stored>>> + Send;

    /// Reads one page and hands its entities over one by one, in order, while
    /// others are still being read, perhaps on another thread.
    ///
    /// # Errors
    /// [`Code::TableNotFound`].
    fn page<C: Collect>(
        &self,
        account: &str,
        table: &TableName,
        scan: &Scan,
        into: C,
    ) -> impl Future<Output = StoreResult<(C, PageEnd)>> + Send;

    /// Reads one page.
    ///
    /// # Errors
    /// [`Code::TableNotFound`].
    fn query(
        &self,
        account: &str,
        table: &TableName,
        scan: &Scan,
    ) -> impl Future<Output = StoreResult<EntityPage>> + Send
    where
        Self: Sync,
    {
        async {
            let (entities, end) = self.page(account, table, scan, Vec::new()).await?;
            Ok(EntityPage { entities, next: end.next })
        }
    }

    /// Does one write.
    ///
    /// # Errors
    /// [`Code::TableNotFound`] and those of `plan::decide`.
    fn write(
        &self,
        account: &str,
        table: &TableName,
        write: &Write,
        now: Ticks,
    ) -> impl Future<Output = StoreResult<Written>> + Send;

    /// Does all writes or none. They share one partition and no two have the
    /// same row (protocol §8.1); there is at least one.
    ///
    /// # Errors
    /// As [`Backend::write`], with the index of the first operation, in request
    /// order, that fails. [`Code::TableNotFound`] carries index 0.
    /// [`Fault::NotBegun`] where nothing was tried, so that the caller may say so.
    fn transact(
        &self,
        account: &str,
        table: &TableName,
        writes: &[Write],
        now: Ticks,
    ) -> impl Future<Output = StoreResult<Vec<Written>>> + Send;

    /// The table's stored access policies as stored JSON; `None` if none were
    /// ever set.
    ///
    /// # Errors
    /// [`Code::TableNotFound`].
    fn policies(
        &self,
        account: &str,
        table: &TableName,
    ) -> impl Future<Output = StoreResult<Option<String>>> + Send;

    /// Replaces the table's stored access policies.
    ///
    /// # Errors
    /// [`Code::TableNotFound`].
    fn set_policies(
        &self,
        account: &str,
        table: &TableName,
        policies: &str,
    ) -> impl Future<Output = StoreResult<()>> + Send;

    /// The account's service properties as stored JSON; `None` if none were
    /// ever set.
    fn properties(&self, account: &str) -> impl Future<Output = StoreResult<Option<String>>> + Send;

    /// Replaces those members of the account's service properties that are
    /// given, and keeps the others. Counts as a change of the options.
    fn set_properties(&self, account: &str, members: &str) -> impl Future<Output = StoreResult<()>> + Send;

    /// Up to when everything that was committed can be read here: `now`, and in
    /// a read replica the time of the last commit that it has replayed; `None`
    /// while it has replayed none (protocol §11.1).
    fn current_until(&self, now: Ticks) -> impl Future<Output = StoreResult<Option<Ticks>>> + Send;

    /// How many deleted tables have rows left that [`Backend::purge`] may remove,
    /// as far as is known: some of these tables may have none.
    fn backlog(&self) -> impl Future<Output = StoreResult<u64>> + Send;

    /// Whether the database answers at all. Costs little and waits for nothing
    /// that requests wait for, so that load is no reason to say no.
    fn answers(&self) -> impl Future<Output = StoreResult<()>> + Send;

    /// The size of a table, of which `most` entities are looked at, at most.
    ///
    /// # Errors
    /// [`Code::TableNotFound`].
    fn size(
        &self,
        account: &str,
        table: &TableName,
        most: u32,
    ) -> impl Future<Output = StoreResult<TableSize>> + Send;

    /// How often stored accounts and their options were changed. Another number than last time
    /// means that [`Backend::accounts`] or [`Backend::account_options`] has news.
    fn account_changes(&self) -> impl Future<Output = StoreResult<ChangeCounts>> + Send;

    /// The stored accounts by name, without those of the settings.
    fn accounts(&self) -> impl Future<Output = StoreResult<Vec<StoredAccount>>> + Send;

    /// Limits and service properties by account, for accounts that have any.
    fn account_options(&self) -> impl Future<Output = StoreResult<Vec<AccountOptions>>> + Send;

    /// Changes stored accounts; `false` if they were not as the change wants them,
    /// and nothing was done.
    fn change_account(&self, change: &AccountChange) -> impl Future<Output = StoreResult<bool>> + Send;

    /// Removes some rows of deleted tables; returns whether more is left.
    fn purge(&self, now: Ticks) -> impl Future<Output = StoreResult<bool>> + Send;
}
