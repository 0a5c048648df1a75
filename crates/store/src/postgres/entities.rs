//! Entities: what runs each operation on them.

use super::PgStore;
use super::reads::{pages, point};
use super::writes::{single, transaction};
use crate::error::Code;
use crate::protocol::model::{Key, Stored, TableRef, Ticks};
use crate::protocol::plan::{PageEnd, Scan, Write, Written};
use crate::{Collect, Entities, Failure, StoreResult};

impl Entities for PgStore {
    async fn get(&self, table: TableRef<'_>, key: &Key) -> StoreResult<Option<Stored>> {
        self.with_table(table, &mut point::Get { key }).await
    }

    async fn page<C: Collect>(
        &self,
        table: TableRef<'_>,
        scan: &Scan,
        mut into: C,
    ) -> StoreResult<(C, PageEnd)> {
        let end = self.with_table(table, &mut pages::Query::new(scan, &mut into)).await?;
        Ok((into, end))
    }

    async fn write(&self, table: TableRef<'_>, write: &Write, now: Ticks) -> StoreResult<Written> {
        self.with_table(table, &mut single::One { write, now }).await
    }

    async fn transact(&self, table: TableRef<'_>, writes: &[Write], now: Ticks) -> StoreResult<Vec<Written>> {
        let result = self.with_table(table, &mut transaction::Group { writes, now }).await;
        result.map_err(|failure| match failure {
            Failure::Refused(error) if error.code == Code::TableNotFound => Failure::Refused(error.at(0)),
            other => other,
        })
    }
}
