//! One type for either backend: an enum, not a trait object.

use std::sync::Arc;

use super::postgres::PgStore;
use super::sqlite::SqliteStore;
use super::{
    AccountChange, AccountOptions, AddedIndex, Backend, BuiltIndex, ChangeCounts, Collect, CountPosition,
    CountedPart, Expiry, ExpiryRule, ExpirySummary, IndexFigures, Load, LoadMark, Rewind, SqlView, SqlViews,
    StoreResult, StoreSnapshot, StoredAccount, StoredIndex, StoredTotal, SweepState, TableExpiry, TableSize,
    TotalPass, Totals, UntidyView, ViewDefinition, ViewFailure,
};
use crate::observe::metrics::METRICS;
use crate::observe::metrics::database_time::in_database;
use crate::observe::metrics::scans::{ScannedProperty, is_costly};
use crate::protocol::model::{Key, Stored, TableName, Ticks};
use crate::protocol::plan::index::{IndexKind, PropertyIndex, indexable};
use crate::protocol::plan::{PageEnd, Predicate, Scan, TableEntry, TablePage, TableScan, Write, Written};

/// The database of a server.
pub(crate) enum Store {
    Postgres(Box<PgStore>),
    Sqlite(SqliteStore),
}

macro_rules! on_either {
    ($self:ident, $store:ident => $call:expr) => {
        match $self {
            // Boxed because the future is large, and every future that contains it would be as large.
            Store::Postgres($store) => in_database(Box::pin($call)).await,
            Store::Sqlite($store) => in_database($call).await,
        }
    };
}

impl Store {
    /// As [`Backend::page`], for the server's own purposes: not counted among the pages of clients.
    pub(crate) async fn own_page<C: Collect>(
        &self,
        account: &str,
        table: &TableName,
        scan: &Scan,
        into: C,
    ) -> StoreResult<(C, PageEnd)> {
        on_either!(self, store => store.page(account, table, scan, into))
    }

    /// Closes the database at shutdown. No data is lost without it.
    pub(crate) async fn close(&self) {
        match self {
            Store::Postgres(_) => {}
            Store::Sqlite(store) => store.close().await,
        }
    }
}

/// Counts a filtered page, and remembers what an index could have saved.
fn count_filtered(account: &str, table: &TableName, filter: &Predicate, end: &PageEnd) {
    let by_index = end.narrowed_by.is_some();
    METRICS.filters.page(end.examined, end.entities, by_index);
    if by_index || !is_costly(end.examined, end.entities) {
        return;
    }
    for (property, kind) in indexable(filter) {
        let (account, table) = (account.to_owned(), table.lower().to_owned());
        let scanned = ScannedProperty { account, table, property: property.to_owned(), kind: kind.name() };
        METRICS.scan_costs.add(scanned, end.examined, end.entities);
    }
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
        let found = on_either!(self, store => store.get(account, table, key))?;
        if found.is_some() {
            METRICS.requests.entity();
        }
        Ok(found)
    }

    async fn page<C: Collect>(
        &self,
        account: &str,
        table: &TableName,
        scan: &Scan,
        into: C,
    ) -> StoreResult<(C, PageEnd)> {
        let (into, end) = self.own_page(account, table, scan, into).await?;
        METRICS.requests.page(end.entities);
        if let Some(filter) = &scan.residual {
            count_filtered(account, table, filter, &end);
        }
        Ok((into, end))
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

    async fn load(&self, account: &str, table: &TableName, load: &Arc<Load>) -> StoreResult<bool> {
        on_either!(self, store => store.load(account, table, load))
    }

    async fn marks(&self, copy: &str) -> StoreResult<Vec<LoadMark>> {
        on_either!(self, store => store.marks(copy))
    }

    async fn forget_marks(&self, copy: &str) -> StoreResult<()> {
        on_either!(self, store => store.forget_marks(copy))
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

    async fn backlog(&self) -> StoreResult<u64> {
        on_either!(self, store => store.backlog())
    }

    async fn answers(&self) -> StoreResult<()> {
        on_either!(self, store => store.answers())
    }

    async fn size(&self, account: &str, table: &TableName, most: u32) -> StoreResult<TableSize> {
        on_either!(self, store => store.size(account, table, most))
    }

    async fn account_changes(&self) -> StoreResult<ChangeCounts> {
        on_either!(self, store => store.account_changes())
    }

    async fn accounts(&self) -> StoreResult<Vec<StoredAccount>> {
        on_either!(self, store => store.accounts())
    }

    async fn account_options(&self) -> StoreResult<Vec<AccountOptions>> {
        on_either!(self, store => store.account_options())
    }

    async fn change_account(&self, change: &AccountChange) -> StoreResult<bool> {
        on_either!(self, store => store.change_account(change))
    }

    async fn indexes(&self) -> StoreResult<Vec<StoredIndex>> {
        on_either!(self, store => store.indexes())
    }

    async fn add_index(
        &self,
        account: &str,
        table: &TableName,
        property: &str,
        kind: IndexKind,
        now: Ticks,
    ) -> StoreResult<AddedIndex> {
        on_either!(self, store => store.add_index(account, table, property, kind, now))
    }

    async fn build_index(&self, index: &PropertyIndex, now: Ticks) -> StoreResult<BuiltIndex> {
        on_either!(self, store => store.build_index(index, now))
    }

    async fn drop_index(&self, index_no: i64, now: Ticks) -> StoreResult<bool> {
        on_either!(self, store => store.drop_index(index_no, now))
    }

    async fn remove_index(&self, now: Ticks) -> StoreResult<bool> {
        on_either!(self, store => store.remove_index(now))
    }

    async fn index_figures(&self, index: &PropertyIndex) -> StoreResult<IndexFigures> {
        on_either!(self, store => store.index_figures(index))
    }

    async fn purge(&self, now: Ticks) -> StoreResult<bool> {
        on_either!(self, store => store.purge(now))
    }
}

impl Rewind for Store {
    async fn reset(&self, account: Option<&str>, now: Ticks) -> StoreResult<()> {
        on_either!(self, store => store.reset(account, now))
    }

    async fn take_snapshot(&self, name: &str, account: Option<&str>, now: Ticks) -> StoreResult<bool> {
        on_either!(self, store => store.take_snapshot(name, account, now))
    }

    async fn restore_snapshot(&self, name: &str, now: Ticks) -> StoreResult<bool> {
        on_either!(self, store => store.restore_snapshot(name, now))
    }

    async fn drop_snapshot(&self, name: &str) -> StoreResult<bool> {
        on_either!(self, store => store.drop_snapshot(name))
    }

    async fn snapshots(&self) -> StoreResult<Vec<StoreSnapshot>> {
        on_either!(self, store => store.snapshots())
    }
}

impl Expiry for Store {
    async fn set_expiry(
        &self,
        account: &str,
        table: &TableName,
        rule: &ExpiryRule,
        now: Ticks,
    ) -> StoreResult<()> {
        on_either!(self, store => store.set_expiry(account, table, rule, now))
    }

    async fn clear_expiry(&self, account: &str, table: &TableName) -> StoreResult<bool> {
        on_either!(self, store => store.clear_expiry(account, table))
    }

    async fn expiries(&self, account: Option<&str>) -> StoreResult<Vec<TableExpiry>> {
        on_either!(self, store => store.expiries(account))
    }

    async fn expiry_summary(&self, now: Ticks) -> StoreResult<ExpirySummary> {
        on_either!(self, store => store.expiry_summary(now))
    }

    async fn due_expiry(&self, now: Ticks) -> StoreResult<Option<TableExpiry>> {
        on_either!(self, store => store.due_expiry(now))
    }

    async fn delete_expired(&self, of: &TableExpiry, entities: &[(Key, Ticks)]) -> StoreResult<u64> {
        on_either!(self, store => store.delete_expired(of, entities))
    }

    async fn record_sweep(&self, of: &TableExpiry, sweep: &SweepState) -> StoreResult<()> {
        on_either!(self, store => store.record_sweep(of, sweep))
    }

    async fn forget_stale(&self, now: Ticks) -> StoreResult<()> {
        on_either!(self, store => store.forget_stale(now))
    }

    async fn leads_upkeep(&self, holder: i64, now: Ticks, until: Ticks) -> StoreResult<bool> {
        on_either!(self, store => store.leads_upkeep(holder, now, until))
    }
}

impl Totals for Store {
    async fn count_part(
        &self,
        account: &str,
        table: &TableName,
        from: &CountPosition,
        rows: u32,
    ) -> StoreResult<CountedPart> {
        on_either!(self, store => store.count_part(account, table, from, rows))
    }

    async fn estimate(&self, account: &str, table: &TableName) -> StoreResult<Option<u64>> {
        on_either!(self, store => store.estimate(account, table))
    }

    async fn stored_total(&self, account: &str, table: &TableName) -> StoreResult<Option<StoredTotal>> {
        on_either!(self, store => store.stored_total(account, table))
    }

    async fn want_total(&self, account: &str, table: &TableName, now: Ticks) -> StoreResult<()> {
        on_either!(self, store => store.want_total(account, table, now))
    }

    async fn due_total(&self) -> StoreResult<Option<TotalPass>> {
        on_either!(self, store => store.due_total())
    }

    async fn record_total(&self, pass: &TotalPass, part: &CountedPart, now: Ticks) -> StoreResult<()> {
        on_either!(self, store => store.record_total(pass, part, now))
    }
}

impl SqlViews for Store {
    fn has_schemas(&self) -> bool {
        match self {
            Store::Postgres(store) => store.has_schemas(),
            Store::Sqlite(store) => store.has_schemas(),
        }
    }

    async fn put_view(
        &self,
        account: &str,
        table: &TableName,
        view: &ViewDefinition,
        now: Ticks,
    ) -> Result<(), ViewFailure> {
        on_either!(self, store => store.put_view(account, table, view, now))
    }

    async fn drop_view(&self, account: &str, table: &TableName) -> Result<bool, ViewFailure> {
        on_either!(self, store => store.drop_view(account, table))
    }

    async fn views(&self, account: Option<&str>) -> StoreResult<Vec<SqlView>> {
        on_either!(self, store => store.views(account))
    }

    async fn tidy_views(&self) -> StoreResult<Vec<UntidyView>> {
        on_either!(self, store => store.tidy_views())
    }
}
