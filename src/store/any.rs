//! Either backend behind one type: a closed set, not a trait object.

use super::postgres::PgStore;
use super::sqlite::SqliteStore;
use super::{AccountChange, Backend, StoreResult, StoredAccount};
use crate::model::{Key, Stored, TableName, Ticks};
use crate::plan::{EntityPage, Scan, TableEntry, TablePage, TableScan, Write, Written};

/// The database that a process works on.
pub enum Store {
    Postgres(Box<PgStore>),
    Sqlite(SqliteStore),
}

macro_rules! on_either {
    ($self:ident, $store:ident => $call:expr) => {
        match $self {
            Store::Postgres($store) => $call.await,
            Store::Sqlite($store) => $call.await,
        }
    };
}

impl Backend for Store {
    async fn create_table(&self, account: &str, table: &TableName, now: Ticks) -> StoreResult<()> {
        on_either!(self, store => store.create_table(account, table, now))
    }

    async fn delete_table(&self, account: &str, table: &TableName, now: Ticks) -> StoreResult<()> {
        on_either!(self, store => store.delete_table(account, table, now))
    }

    async fn get_table(&self, account: &str, table: &TableName) -> StoreResult<Option<TableEntry>> {
        on_either!(self, store => store.get_table(account, table))
    }

    async fn list_tables(&self, account: &str, scan: &TableScan) -> StoreResult<TablePage> {
        on_either!(self, store => store.list_tables(account, scan))
    }

    async fn get(&self, account: &str, table: &TableName, key: &Key) -> StoreResult<Option<Stored>> {
        on_either!(self, store => store.get(account, table, key))
    }

    async fn query(&self, account: &str, table: &TableName, scan: &Scan) -> StoreResult<EntityPage> {
        on_either!(self, store => store.query(account, table, scan))
    }

    async fn write(
        &self,
        account: &str,
        table: &TableName,
        write: &Write,
        now: Ticks,
    ) -> StoreResult<Written> {
        on_either!(self, store => store.write(account, table, write, now))
    }

    async fn transact(
        &self,
        account: &str,
        table: &TableName,
        writes: &[Write],
        now: Ticks,
    ) -> StoreResult<Vec<Written>> {
        on_either!(self, store => store.transact(account, table, writes, now))
    }

    async fn policies(&self, account: &str, table: &TableName) -> StoreResult<Option<String>> {
        on_either!(self, store => store.policies(account, table))
    }

    async fn set_policies(&self, account: &str, table: &TableName, policies: &str) -> StoreResult<()> {
        on_either!(self, store => store.set_policies(account, table, policies))
    }

    async fn properties(&self, account: &str) -> StoreResult<Option<String>> {
        on_either!(self, store => store.properties(account))
    }

    async fn set_properties(&self, account: &str, members: &str) -> StoreResult<()> {
        on_either!(self, store => store.set_properties(account, members))
    }

    async fn current_until(&self, now: Ticks) -> StoreResult<Option<Ticks>> {
        on_either!(self, store => store.current_until(now))
    }

    async fn account_changes(&self) -> StoreResult<i64> {
        on_either!(self, store => store.account_changes())
    }

    async fn accounts(&self) -> StoreResult<Vec<StoredAccount>> {
        on_either!(self, store => store.accounts())
    }

    async fn change_account(&self, change: &AccountChange) -> StoreResult<bool> {
        on_either!(self, store => store.change_account(change))
    }

    async fn purge(&self, now: Ticks) -> StoreResult<bool> {
        on_either!(self, store => store.purge(now))
    }
}
