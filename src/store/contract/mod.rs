//! What a store has to do: the traits that both backends implement, and their types.

use std::future::Future;
use std::sync::Arc;

use crate::error::{Code, Error};
use crate::protocol::model::entity::BorrowedEntity;
use crate::protocol::model::{Key, Stored, TableName, Ticks};
use crate::protocol::plan::index::{IndexKind, PropertyIndex};
use crate::protocol::plan::{EntityPage, PageEnd, Scan, TableEntry, TablePage, TableScan, Write, Written};

pub(crate) mod accounts;
pub mod expiry;
pub(crate) mod indexes;
mod inspection;
pub(crate) mod load;
pub mod rewind;
pub mod totals;
pub mod views;

pub use accounts::{AccountChange, AccountOptions, ChangeCounts, Resealed, StoredAccount};
pub(crate) use expiry::SWEEP_RETRY_PAUSE;
pub use expiry::{Expiry, ExpiryRule, ExpirySummary, SweepState, TableExpiry};
pub use indexes::{
    AddedIndex, BuiltIndex, IndexFigures, IndexState, MAX_INDEXES, MAX_TABLE_INDEXES, StoredIndex,
};
pub(crate) use inspection::{Inspection, MigrationObstacle};
pub use load::{Load, LoadMark};
pub use rewind::{Rewind, StoreSnapshot};
pub use totals::{CountPosition, CountedPart, StoredTotal, TotalPass, Totals};
pub use views::{ColumnKind, SqlView, SqlViews, UntidyView, ViewColumn, ViewDefinition, ViewFailure};

/// A fault of the database, in the detail that callers may know.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Fault {
    /// No connection or queue slot was free: no statement of the operation was sent.
    NotBegun,
    /// No connection, lock or queue slot was free in time; nothing was done.
    Busy,
    /// The transaction conflicted with another one and was rolled back.
    Serialization,
    /// The database cannot be reached or refuses work; nothing was done.
    Unavailable,
    /// The time for the operation ran out, or the connection was lost while a
    /// commit was under way: the outcome is unknown.
    Timeout,
    /// Anything else: a bug in this program or in the database.
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

/// The size of a table.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct TableSize {
    pub entities: u64,
    /// Bytes of keys and stored properties, without indexes and the row overhead of the database.
    pub bytes: u64,
    /// Whether all entities were counted. Otherwise there are more.
    pub complete: bool,
}

/// Result of a storage operation.
pub type StoreResult<T> = Result<T, Failure>;

/// Collects the entities of a page.
pub trait Collect: Send + 'static {
    /// Collects the next entity.
    fn take(&mut self, entity: BorrowedEntity<'_>);

    /// Discards the collected entities: the page is read again from the start.
    fn restart(&mut self);
}

/// Collects nothing: [`PageEnd::entities`] counts.
impl Collect for () {
    fn take(&mut self, _entity: BorrowedEntity<'_>) {}

    fn restart(&mut self) {}
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

/// The operations of a database. Methods are cancel-safe: if a future is dropped, the store stays
/// usable, and its write is done completely or not at all.
pub trait Backend: Send + Sync {
    /// Creates a table.
    ///
    /// # Errors
    /// [`Code::TableAlreadyExists`]; names that differ only in case are equal.
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

    /// Reads the entry of one table.
    fn get_table(
        &self,
        account: &str,
        table: &TableName,
    ) -> impl Future<Output = StoreResult<Option<TableEntry>>> + Send;

    /// Reads one page of the account's tables.
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

    /// Reads one page and passes its entities to `into` in order, while further ones are still
    /// being read, perhaps on another thread.
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

    /// Performs one write.
    ///
    /// # Errors
    /// [`Code::TableNotFound`] and the errors of `plan::decide`.
    fn write(
        &self,
        account: &str,
        table: &TableName,
        write: &Write,
        now: Ticks,
    ) -> impl Future<Output = StoreResult<Written>> + Send;

    /// Performs all writes or none. They are in one partition, no two are for the same row
    /// (protocol §8.1), and there is at least one.
    ///
    /// # Errors
    /// As [`Backend::write`], with the index of the first operation, in request order, that fails.
    /// [`Code::TableNotFound`] carries index 0. [`Fault::NotBegun`] if nothing was tried, so that
    /// the caller can report it.
    fn transact(
        &self,
        account: &str,
        table: &TableName,
        writes: &[Write],
        now: Ticks,
    ) -> impl Future<Output = StoreResult<Vec<Written>>> + Send;

    /// Stores entities with the versions that they have, and the mark of the copy that they are part
    /// of, all in one transaction. `false` if some exist that may not be replaced: then nothing was
    /// done.
    ///
    /// # Errors
    /// [`Code::TableNotFound`].
    fn load(
        &self,
        account: &str,
        table: &TableName,
        load: &Arc<Load>,
    ) -> impl Future<Output = StoreResult<bool>> + Send;

    /// Reads the marks of a copy.
    fn marks(&self, copy: &str) -> impl Future<Output = StoreResult<Vec<LoadMark>>> + Send;

    /// Removes the marks of a copy that is complete.
    fn forget_marks(&self, copy: &str) -> impl Future<Output = StoreResult<()>> + Send;

    /// Reads the table's stored access policies as JSON; `None` if none were ever set.
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

    /// Reads the account's service properties as stored JSON; `None` if none were ever set.
    fn properties(&self, account: &str) -> impl Future<Output = StoreResult<Option<String>>> + Send;

    /// Replaces the given members of the account's service properties, and keeps the others. Counts
    /// as a change of the account's options.
    fn set_properties(&self, account: &str, members: &str) -> impl Future<Output = StoreResult<()>> + Send;

    /// Returns the time up to which all commits are visible here: `now`, or on a read replica the
    /// time of the last replayed commit; `None` if it has replayed none (protocol §11.1).
    fn current_until(&self, now: Ticks) -> impl Future<Output = StoreResult<Option<Ticks>>> + Send;

    /// Returns how many deleted tables may have rows left for [`Backend::purge`]. Some of them may
    /// have none.
    fn backlog(&self) -> impl Future<Output = StoreResult<u64>> + Send;

    /// Checks whether the database answers. Costs little and does not wait in the queues of
    /// requests, so that it succeeds under load.
    fn answers(&self) -> impl Future<Output = StoreResult<()>> + Send;

    /// Measures the size of a table, counting `most` entities at most.
    ///
    /// # Errors
    /// [`Code::TableNotFound`].
    fn size(
        &self,
        account: &str,
        table: &TableName,
        most: u32,
    ) -> impl Future<Output = StoreResult<TableSize>> + Send;

    /// Returns the change counters of accounts, of their options and of indexes. If a counter differs
    /// from the last read, [`Backend::accounts`], [`Backend::account_options`] or [`Backend::indexes`]
    /// has changed.
    fn account_changes(&self) -> impl Future<Output = StoreResult<ChangeCounts>> + Send;

    /// Reads the stored accounts, in the order of their names, without those of the settings.
    fn accounts(&self) -> impl Future<Output = StoreResult<Vec<StoredAccount>>> + Send;

    /// Reads the limits and service properties of all accounts that have any.
    fn account_options(&self) -> impl Future<Output = StoreResult<Vec<AccountOptions>>> + Send;

    /// Changes stored accounts; `false` if the condition of the change does not hold, and nothing
    /// was done.
    fn change_account(&self, change: &AccountChange) -> impl Future<Output = StoreResult<bool>> + Send;

    /// Lists the property indexes of existing tables.
    fn indexes(&self) -> impl Future<Output = StoreResult<Vec<StoredIndex>>> + Send;

    /// Adds an index, to be built by [`Backend::build_index`]. The property has a valid name.
    ///
    /// # Errors
    /// [`Code::TableNotFound`].
    fn add_index(
        &self,
        account: &str,
        table: &TableName,
        property: &str,
        kind: IndexKind,
        now: Ticks,
    ) -> impl Future<Output = StoreResult<AddedIndex>> + Send;

    /// Builds an index, for as long as that takes; what a former attempt has left is made again. Pages
    /// use it once the servers have read the list. On SQLite, writes wait meanwhile.
    fn build_index(
        &self,
        index: &PropertyIndex,
        now: Ticks,
    ) -> impl Future<Output = StoreResult<BuiltIndex>> + Send;

    /// Has servers no longer use an index, and cancels its build; `false` if there is none.
    fn drop_index(&self, index_no: i64, now: Ticks) -> impl Future<Output = StoreResult<bool>> + Send;

    /// Removes one index from the database that was dropped a while ago, or whose table is gone. Returns
    /// whether it did.
    fn remove_index(&self, now: Ticks) -> impl Future<Output = StoreResult<bool>> + Send;

    /// Measures an index.
    fn index_figures(&self, index: &PropertyIndex) -> impl Future<Output = StoreResult<IndexFigures>> + Send;

    /// Removes some rows of deleted tables. Returns whether more are left.
    fn purge(&self, now: Ticks) -> impl Future<Output = StoreResult<bool>> + Send;
}
