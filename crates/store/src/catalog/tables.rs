//! Creates, deletes and lists tables, and stores their access policies.

use crate::catalog::session::{Backend, CatalogStore, SqlSession};
use crate::error::Code;
use crate::postgres::retry::retry;
use crate::postgres::statements::DOOM_TABLE;
use crate::protocol::model::{TableRef, Ticks};
use crate::protocol::plan::{TableEntry, TablePage, TableScan};
use crate::sql::{SqlText, sql};
use crate::{StoreResult, TableSize, Tables};

const FIND: &str = "SELECT name, created FROM tables WHERE account = $1 AND name_lower = $2";
const DROP: &str = "DELETE FROM tables WHERE account = $1 AND name_lower = $2 RETURNING table_no, spread";
const ACCOUNTS: &str = "SELECT DISTINCT account FROM tables ORDER BY account LIMIT $1";
const READ_POLICIES: &str =
    "SELECT CAST(policies AS text) FROM tables WHERE account = $1 AND name_lower = $2";
const WRITE_POLICIES: SqlText = SqlText::each(
    "UPDATE tables SET policies = $3::jsonb WHERE account = $1 AND name_lower = $2 RETURNING table_no",
    "UPDATE tables SET policies = $3 WHERE account = $1 AND name_lower = $2 RETURNING table_no",
);

pub(super) const ALL: [&str; 5] = [FIND, DROP, ACCOUNTS, READ_POLICIES, WRITE_POLICIES.postgres];

impl<S: CatalogStore> Tables for S {
    async fn create_table(&self, table: TableRef<'_>, now: Ticks) -> StoreResult<()> {
        match self.backend() {
            Backend::Postgres(store) => Box::pin(retry(|| store.create(table, now))).await,
            Backend::Sqlite(store) => store.create(table, now).await,
        }
    }

    async fn delete_table(&self, table: TableRef<'_>, now: Ticks) -> StoreResult<()> {
        let name = table.into_owned();
        let delete = async move |session: &mut SqlSession<'_>| {
            let table = name.as_ref();
            let dropped = session.row(sql(DROP).bind(table.account).bind(table.name.lower())).await?;
            let row = dropped.ok_or(Code::ResourceNotFound)?;
            let (table_no, spread): (i64, i32) = (row.get(0)?, row.get(1)?);
            session.row(sql(DOOM_TABLE).bind(table_no).bind(i64::from(spread)).bind(now)).await.map(drop)
        };
        self.backend().transact(delete).await?;
        self.backend().forget_table_id(table);
        Ok(())
    }

    async fn get_table(&self, table: TableRef<'_>) -> StoreResult<Option<TableEntry>> {
        let row = self.backend().row(sql(FIND).bind(table.account).bind(table.name.lower())).await?;
        row.map(|row| Ok(TableEntry { name: row.get(0)?, created: row.ticks(1)? })).transpose()
    }

    async fn list_tables(&self, account: &str, scan: &TableScan) -> StoreResult<TablePage> {
        match self.backend() {
            Backend::Postgres(store) => Box::pin(retry(|| store.table_page(account, scan))).await,
            Backend::Sqlite(store) => store.table_page(account, scan).await,
        }
    }

    async fn accounts_with_tables(&self, most: u16) -> StoreResult<Vec<String>> {
        self.backend().rows(sql(ACCOUNTS).bind(i64::from(most))).await?.iter().map(|row| row.get(0)).collect()
    }

    async fn policies(&self, table: TableRef<'_>) -> StoreResult<Option<String>> {
        let row = self.backend().row(sql(READ_POLICIES).bind(table.account).bind(table.name.lower())).await?;
        row.ok_or(Code::TableNotFound)?.get(0)
    }

    async fn set_policies(&self, table: TableRef<'_>, policies: &str) -> StoreResult<()> {
        let write = sql(WRITE_POLICIES).bind(table.account).bind(table.name.lower()).bind(policies);
        let is_written = self.backend().write(write).await?;
        is_written.then_some(()).ok_or_else(|| Code::TableNotFound.into())
    }

    async fn size(&self, table: TableRef<'_>, most: u32) -> StoreResult<TableSize> {
        match self.backend() {
            Backend::Postgres(store) => Box::pin(store.measure(table, most)).await,
            Backend::Sqlite(store) => store.measure(table, most).await,
        }
    }
}
