//! Dispatches operations on entities.

use super::PgStore;
use super::writes::{single, transaction};
use crate::error::Code;
use crate::protocol::model::{Key, Stored, TableRef, Ticks};
use crate::protocol::plan::{PageEnd, Scan, Write, WriteSet, Written};
use crate::{Collect, Entities, Failure, StoreResult};

impl Entities for PgStore {
    async fn get(&self, table: TableRef<'_>, key: &Key) -> StoreResult<Option<Stored>> {
        let lookup = |table_id| async move { Ok(self.lookup(table_id, key).await?.in_table()) };
        self.with_table(table, lookup).await
    }

    async fn page<C: Collect>(
        &self,
        table: TableRef<'_>,
        scan: &Scan,
        mut into: C,
    ) -> StoreResult<(C, PageEnd)> {
        let mut attempts = self.attempts(table);
        loop {
            let table_id = attempts.table_id().await?;
            match self.read_page(table_id, scan, &mut into).await {
                Ok(Some(end)) => return Ok((into, end)),
                failed => attempts.after(table_id, failed.err()).await?,
            }
        }
    }

    async fn write(&self, table: TableRef<'_>, write: &Write, now: Ticks) -> StoreResult<Written> {
        let one = single::One { write, now };
        self.with_table(table, |table_id| one.run(self, table_id)).await
    }

    async fn transact(&self, table: TableRef<'_>, set: &WriteSet, now: Ticks) -> StoreResult<Vec<Written>> {
        let group = transaction::Group { writes: set, now };
        let result = self.with_table(table, |table_id| group.run(self, table_id)).await;
        result.map_err(|failure| match failure {
            Failure::Refused(error) if error.code == Code::TableNotFound => Failure::Refused(error.at(0)),
            other => other,
        })
    }
}
