//! Stored access policies and service properties, which are opaque JSON documents to this layer; and
//! how current a replica is.

use chrono::DateTime;
use sqlx::Row;

use crate::error::Code;
use crate::protocol::model::{TableName, Ticks};
use crate::store::postgres::fault::Effect;
use crate::store::postgres::rows::{JsonText, StoredColumn, broken_row};
use crate::store::postgres::{PgStore, statements};
use crate::store::{Fault, StoreResult};

impl PgStore {
    pub(crate) async fn read_policies(
        &self,
        account: &str,
        table: &TableName,
    ) -> StoreResult<Option<String>> {
        let mut lease = self.nodes.acquire_to_lock().await?;
        let query = sqlx::query(statements::READ_POLICIES).bind(account).bind(table.lower());
        let row = lease.row(query, Effect::Undone).await?.ok_or(Code::TableNotFound)?;
        let column: Option<StoredColumn<'_>> = row.try_get("policies").map_err(broken_row)?;
        Ok(column.map(|StoredColumn(text)| text.to_owned()))
    }

    pub(crate) async fn write_policies(
        &self,
        account: &str,
        table: &TableName,
        policies: &str,
    ) -> StoreResult<()> {
        let mut lease = self.nodes.acquire_to_lock().await?;
        let query = sqlx::query(statements::WRITE_POLICIES)
            .bind(account)
            .bind(table.lower())
            .bind(JsonText(policies));
        lease.row(query, Effect::Unknown).await?.ok_or(Code::TableNotFound)?;
        Ok(())
    }

    pub(crate) async fn read_properties(&self, account: &str) -> StoreResult<Option<String>> {
        let mut lease = self.nodes.acquire_to_lock().await?;
        let query = sqlx::query(statements::READ_PROPERTIES).bind(account);
        let Some(row) = lease.row(query, Effect::Undone).await? else { return Ok(None) };
        let StoredColumn(text) = row.try_get("properties").map_err(broken_row)?;
        Ok(Some(text.to_owned()))
    }

    pub(crate) async fn merge_properties(&self, account: &str, members: &str) -> StoreResult<()> {
        let mut lease = self.nodes.acquire_to_lock().await?;
        let query = sqlx::query(statements::MERGE_PROPERTIES).bind(account).bind(JsonText(members));
        lease.row(query, Effect::Unknown).await?;
        Ok(())
    }

    pub(crate) async fn replayed_until(&self, now: Ticks) -> StoreResult<Option<Ticks>> {
        let mut lease = self.nodes.acquire_to_lock().await?;
        let row = lease.row(sqlx::query(statements::REPLAYED), Effect::Undone).await?.ok_or(Fault::Other)?;
        if !row.try_get("is_replica").map_err(broken_row)? {
            return Ok(Some(now));
        }
        let micros: Option<i64> = row.try_get("micros").map_err(broken_row)?;
        Ok(micros.and_then(DateTime::from_timestamp_micros).map(Ticks::from_utc))
    }
}
