//! Entities: point reads, pages and writes.

#[cfg(doc)]
use super::Fault;
use super::StoreResult;
#[cfg(doc)]
use crate::error::Code;
use crate::protocol::model::entity::BorrowedEntity;
use crate::protocol::model::{Key, Stored, TableRef, Ticks};
use crate::protocol::plan::{PageEnd, Scan, Write, WriteSet, Written};

pub trait Collect: Send + 'static {
    /// Collects the next entity.
    fn take(&mut self, entity: BorrowedEntity<'_>);

    /// Discards the collected entities, because the page is read again from the start.
    fn restart(&mut self);
}

/// Discards entities; [`PageEnd::entities`] still counts them.
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

store_trait! {
pub trait Entities {
    /// Reads one entity.
    ///
    /// # Errors
    /// [`Code::TableNotFound`].
    async fn get(&self, table: TableRef<'_>, key: &Key) -> StoreResult<Option<Stored>>;

    /// Reads one page and passes its entities to `into` in order while later entities are still being read, possibly
    /// on another thread.
    ///
    /// # Errors
    /// [`Code::TableNotFound`].
    async fn page<C: Collect>(&self, table: TableRef<'_>, scan: &Scan, into: C) -> StoreResult<(C, PageEnd)>;

    /// Performs one write.
    ///
    /// # Errors
    /// [`Code::TableNotFound`] and the errors of `plan::decide`.
    async fn write(&self, table: TableRef<'_>, write: &Write, now: Ticks) -> StoreResult<Written>;

    /// Performs all writes or none. There is at least one write, all are in one partition, and no two are for the same
    /// row (protocol §8.1).
    ///
    /// # Errors
    /// Those of [`write`], with the index of the first failing operation in request order. [`Code::TableNotFound`] has
    /// index 0. [`Fault::NotBegun`] means that no operation was attempted.
    async fn transact(&self, table: TableRef<'_>, set: &WriteSet, now: Ticks) -> StoreResult<Vec<Written>>;
}}
