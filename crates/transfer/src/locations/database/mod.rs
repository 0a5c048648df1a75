//! Reads and writes a Rowhouse database without a server. Entities keep their Timestamp and ETag.

mod writes;

use std::collections::HashSet;
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use rowhouse_operator::accounts;
use rowhouse_operator::indexes::IndexCatalog;
use rowhouse_operator::totals::{self, CountPace};
use tokio::runtime::Runtime;

use crate::contract::{OpenedRange, Page, RowReader, TransferSource};
use crate::error::{TransferError, TransferResult, failed, fatal, usage};
use crate::protocol::auth::key_encryption::MasterKeys;
use crate::protocol::codec::policies::{self, Policy};
use crate::protocol::codec::properties::{self, ServiceProperties};
use crate::protocol::error::{Code, Error};
use crate::protocol::model::{Key, Stored, TableName, TableRef, Ticks};
use crate::protocol::plan::predicate::Predicate;
use crate::protocol::plan::{Projection, Scan, Span, TableScan};
use crate::rows::Row;
use crate::rows::range::{Lower, RowRange};
use crate::rows::selection::Selection;
use crate::store::sqlite::{ServerLock, SqliteStore};
use crate::store::{
    AccountChange, AccountOptions, CountPosition, CountedPart, Failure, Fault, Store, StoreResult,
};

const PAGE_ROWS: usize = 500;
const PAGE_BYTES: usize = 1 << 20;
const PAGE_TIME: Duration = Duration::from_secs(5);
/// The interval at which a count reports progress.
const COUNT_TIME: Duration = Duration::from_secs(1);
/// Maximum attempts of an operation while the database is busy.
const ATTEMPTS: u32 = 8;

const LISTED_ACCOUNTS: u16 = 20;

/// The subjects of errors about an account.
const TABLE_LIST: &str = "the list of tables";
const ACCOUNT_LIST: &str = "the list of accounts";
const SERVICE_PROPERTIES: &str = "the service properties";

/// The versions of writes in flight. Concurrent writes may share a statement that identifies them by version, so two of
/// them must not have the same version.
#[derive(Debug, Default)]
struct Versions(Mutex<HashSet<Ticks>>);

impl Versions {
    fn take(&self, version: Ticks) -> bool {
        self.0.lock().insert(version)
    }

    fn release(&self, versions: impl Iterator<Item = Ticks>) {
        let mut taken = self.0.lock();
        versions.for_each(|version| {
            taken.remove(&version);
        });
    }
}

/// One account in a database.
pub struct LocalDatabase {
    store: Arc<OpenStore>,
    account: String,
    runtime: Arc<Runtime>,
    filter: Option<Predicate>,
    versions: Versions,
    /// Whether the database holds entities only temporarily. It then accepts Timestamps in the future.
    is_temporary: bool,
}

/// A store that is closed when it is dropped.
struct OpenStore {
    store: Store,
    runtime: Arc<Runtime>,
    /// Held while the database is open for writing.
    _lock: Option<ServerLock>,
}

impl Drop for OpenStore {
    fn drop(&mut self) {
        self.runtime.block_on(self.store.close());
    }
}

impl std::ops::Deref for OpenStore {
    type Target = Store;

    fn deref(&self) -> &Store {
        &self.store
    }
}

impl LocalDatabase {
    /// Returns an account of an open database. Reads return the entities that `filter` selects.
    pub(crate) fn new(
        store: Store,
        account: String,
        runtime: Arc<Runtime>,
        filter: Option<Predicate>,
        lock: Option<ServerLock>,
    ) -> Self {
        let store = Arc::new(OpenStore { store, runtime: runtime.clone(), _lock: lock });
        Self { store, account, runtime, filter, versions: Versions::default(), is_temporary: false }
    }

    /// Returns an empty database that holds entities temporarily.
    pub(crate) fn temporary(store: SqliteStore, runtime: Arc<Runtime>) -> Self {
        let mut database = Self::new(Store::Sqlite(store), "staged".to_owned(), runtime, None, None);
        database.is_temporary = true;
        database
    }

    /// Restricts reading to the entities that a filter selects.
    pub(crate) fn set_filter(&mut self, filter: Option<Predicate>) {
        self.filter = filter;
    }

    /// Copies the stored accounts that the other database lacks, with the limits and queries that it has not
    /// set itself; returns the number of new accounts. `master` must decrypt the keys of all accounts in both
    /// databases, or no server could start on the target.
    pub(crate) fn copy_accounts(&self, to: &Self, master: &MasterKeys) -> TransferResult<u64> {
        const ACCOUNTS: &str = "the accounts";
        let ours = self.run(ACCOUNTS, async |store| store.accounts().await)?;
        let theirs = to.run(ACCOUNTS, async |store| store.accounts().await)?;
        for (place, stored) in [("FROM", &ours), ("TO", &theirs)] {
            accounts::check_master_key(master, stored)
                .map_err(|error| usage!("--all-accounts: {place}: {error}"))?;
        }
        let is_new = |name: &str| theirs.iter().all(|there| there.name != name);
        let chosen = to.run(ACCOUNTS, async |store| store.account_options().await)?;
        let options = self.run(ACCOUNTS, async |store| store.account_options().await)?;
        let change =
            |change: AccountChange| to.run(ACCOUNTS, async |store| store.change_account(&change).await);
        // Options are copied before accounts, because a resumed copy treats an account that exists as an existing one.
        for options in options.into_iter().filter(|options| is_new(&options.name)) {
            missing_options(options, &chosen).try_for_each(|changed| change(changed).map(drop))?;
        }
        let mut copied = 0;
        for account in ours {
            copied += u64::from(change(AccountChange::Add(account))?);
        }
        Ok(copied)
    }

    /// Returns the accounts that have tables, with and without a stored record.
    pub(crate) fn accounts_with_tables(&self) -> TransferResult<Vec<String>> {
        let with_tables = async |store: &Store| store.accounts_with_tables(u16::MAX).await;
        let accounts = self.run(ACCOUNT_LIST, with_tables)?;
        match accounts.len() < usize::from(u16::MAX) {
            true => Ok(accounts),
            false => Err(failed!("{ACCOUNT_LIST}: {} or more accounts have tables", u16::MAX)),
        }
    }

    /// Refuses an account without tables if other accounts in the database have tables, because the name may be wrong.
    pub(crate) fn refuse_other_accounts(&self) -> TransferResult<()> {
        let first = TableScan { spans: vec![Span::everything()], residual: None, rows: 1, time: PAGE_TIME };
        let page = self.run(TABLE_LIST, async |store| store.list_tables(&self.account, &first).await)?;
        if !page.tables.is_empty() {
            return Ok(());
        }
        let with_tables = async |store: &Store| store.accounts_with_tables(LISTED_ACCOUNTS + 1).await;
        let mut accounts = self.run(ACCOUNT_LIST, with_tables)?;
        if accounts.is_empty() {
            return Ok(());
        }
        let more = if accounts.len() > usize::from(LISTED_ACCOUNTS) { " and others" } else { "" };
        accounts.truncate(LISTED_ACCOUNTS.into());
        Err(failed!(
            "the account {} has no tables there; accounts with tables are {}{more}: name one at the end of the \
             place, as in #{}",
            self.account,
            accounts.join(", "),
            accounts[0]
        ))
    }

    /// Runs an operation, and retries it while the database is busy. `subject` begins the text of an error.
    fn run<T>(&self, subject: &str, work: impl AsyncFn(&Store) -> StoreResult<T>) -> TransferResult<T> {
        let done = self.runtime.block_on(retry(async || work(&self.store).await));
        done.map_err(|failure| describe(subject, failure))
    }

    /// Runs an operation on a table, as [`run`](Self::run) does.
    fn run_on<T>(
        &self,
        table: &str,
        work: impl AsyncFn(&Store, TableRef<'_>) -> StoreResult<T>,
    ) -> TransferResult<T> {
        let name = parse_table_name(table)?;
        self.run(table, async |store| work(store, name.in_account(&self.account)).await)
    }

    /// Counts a part of a table. A part that takes too long is retried with fewer entities. `None` if the buckets of
    /// the table have changed since `from`.
    fn count_part(
        &self,
        pace: &mut CountPace,
        table: TableRef<'_>,
        from: &CountPosition,
    ) -> StoreResult<Option<CountedPart>> {
        for _ in 1..ATTEMPTS {
            match self.runtime.block_on(pace.step(&self.store, table, from)) {
                Err(Failure::Fault(_)) => std::thread::sleep(Duration::from_millis(100)),
                counted => return counted,
            }
        }
        self.runtime.block_on(pace.step(&self.store, table, from))
    }

    fn scan(&self, range: &RowRange, rows: usize, keys_only: bool) -> Scan {
        let projection = if keys_only { Projection::SystemOnly } else { Projection::Full };
        Scan { rows, bytes: PAGE_BYTES, time: PAGE_TIME, projection, ..Scan::of_spans(vec![range.span()]) }
    }

    /// Returns the scan of a page of selected entities, which uses the indexes of the table.
    fn filtered_scan(&self, range: &RowRange, table: &TableName, keys_only: bool) -> TransferResult<Scan> {
        let mut scan = Scan { residual: self.filter.clone(), ..self.scan(range, PAGE_ROWS, keys_only) };
        if scan.residual.is_some() {
            let stored = self.run("the indexes", async |store| store.indexes().await)?;
            let applied = IndexCatalog::new(stored).apply(&self.account, table, &mut scan);
            applied.map_err(|error| describe(table.as_given(), error.into()))?;
        }
        Ok(scan)
    }
}

/// Returns the changes that set the limit and queries of an account, unless `chosen` has set them.
fn missing_options(
    options: AccountOptions,
    chosen: &[AccountOptions],
) -> impl Iterator<Item = AccountChange> {
    let AccountOptions { name, requests_per_second, extended_queries, .. } = options;
    let there = chosen.iter().find(|there| there.name == name);
    let has_limit = there.is_some_and(|there| there.requests_per_second.is_some());
    let has_queries = there.is_some_and(|there| there.extended_queries.is_some());
    let limit = requests_per_second
        .filter(|_| !has_limit)
        .map(|_| AccountChange::Limit { name: name.clone(), requests_per_second });
    let queries =
        extended_queries.filter(|_| !has_queries).map(|extended| AccountChange::Queries { name, extended });
    limit.into_iter().chain(queries)
}

/// Runs an operation, and retries it while the database is busy.
async fn retry<T>(work: impl AsyncFn() -> StoreResult<T>) -> StoreResult<T> {
    for attempt in 0..ATTEMPTS - 1 {
        match work().await {
            Err(Failure::Fault(fault)) if is_busy(fault) => {
                tokio::time::sleep(Duration::from_millis(50 << attempt)).await;
            }
            done => return done,
        }
    }
    work().await
}

/// Whether a fault is transient and nothing was done.
const fn is_busy(fault: Fault) -> bool {
    matches!(fault, Fault::Busy | Fault::NotBegun | Fault::Serialization | Fault::Unavailable)
}

fn parse_table_name(table: &str) -> TransferResult<TableName> {
    TableName::parse(table).map_err(|error| failed!("{table}: {}", error.text()))
}

fn describe(subject: &str, failure: Failure) -> TransferError {
    match failure {
        Failure::Refused(Error { code: Code::TableNotFound, .. }) => {
            TransferError::NoTable(subject.to_owned())
        }
        Failure::Refused(error) => failed!("{subject}: {}", error_text(&error)),
        Failure::Fault(fault @ (Fault::Other | Fault::Serialization)) => {
            failed!("{subject}: the database failed ({fault:?})")
        }
        Failure::Fault(fault) => fatal!("{subject}: the database failed ({fault:?})"),
    }
}

fn error_text(error: &Error) -> String {
    format!("{}: {}", error.code.facts().code, error.text())
}

/// Returns success for a refusal with one of these codes.
fn ignore(done: StoreResult<()>, codes: &[Code]) -> StoreResult<()> {
    match done {
        Err(Failure::Refused(error)) if codes.contains(&error.code) => Ok(()),
        done => done,
    }
}

impl From<Stored> for Row {
    fn from(stored: Stored) -> Self {
        Self { key: stored.key, modified: Some(stored.modified), tag: None, properties: stored.properties }
    }
}

/// Returns the sum of all parts. The count starts again if the buckets of the table change.
fn sum_parts(
    part: &mut dyn FnMut(&CountPosition) -> TransferResult<Option<CountedPart>>,
    counted: &mut dyn FnMut(u64) -> TransferResult<()>,
) -> TransferResult<u64> {
    let (mut sum, mut from) = (0, Some(CountPosition::start()));
    while let Some(position) = from {
        match part(&position)? {
            Some(CountedPart { entities, next }) => {
                counted(entities)?;
                (sum, from) = (sum + entities, next);
            }
            None => (sum, from) = (0, Some(CountPosition::start())),
        }
    }
    Ok(sum)
}

struct DatabasePages<'a> {
    database: &'a LocalDatabase,
    table: TableName,
    left: Option<RowRange>,
    keys_only: bool,
}

impl RowReader for DatabasePages<'_> {
    fn next(&mut self) -> TransferResult<Option<Page>> {
        let Some(range) = &mut self.left else { return Ok(None) };
        let table = self.table.in_account(&self.database.account);
        let scan = self.database.filtered_scan(range, &self.table, self.keys_only)?;
        let page = async |store: &Store| store.page(table, &scan, Vec::<Stored>::new()).await;
        let (entities, end) = self.database.run(self.table.as_given(), page)?;
        match end.next {
            Some(next) => range.lower = Lower::From(next),
            None => self.left = None,
        }
        let rows = entities.into_iter().map(Row::from).collect();
        Ok(Some(Page { rows, rejected: Vec::new() }))
    }
}

impl TransferSource for LocalDatabase {
    fn tables(&self) -> TransferResult<Vec<String>> {
        let mut names = Vec::new();
        let mut spans = vec![Span::everything()];
        loop {
            let scan = TableScan { spans, residual: None, rows: PAGE_ROWS, time: PAGE_TIME };
            let page = self.run(TABLE_LIST, async |store| store.list_tables(&self.account, &scan).await)?;
            names.extend(page.tables.into_iter().map(|table| table.name));
            let Some(next) = page.next else { return Ok(names) };
            spans = vec![Span { lower: Key::new(next.name.to_ascii_lowercase(), ""), upper: None }];
        }
    }

    fn count(
        &self,
        table: &str,
        counted: &mut dyn FnMut(u64) -> TransferResult<()>,
    ) -> TransferResult<Option<u64>> {
        let (name, mut pace) = (parse_table_name(table)?, CountPace::default());
        let mut part = |position: &CountPosition| match &self.filter {
            Some(filter) => self.run_on(table, async |store, table| {
                totals::count_matching(store, table, &position.key, filter, COUNT_TIME).await.map(Some)
            }),
            None => self
                .count_part(&mut pace, name.in_account(&self.account), position)
                .map_err(|failure| describe(table, failure)),
        };
        sum_parts(&mut part, counted).map(Some)
    }

    fn time(&self) -> TransferResult<Option<Ticks>> {
        const CLOCK: &str = "the clock of the database";
        let clock = self.run(CLOCK, async |store| store.clock().await)?;
        let now = clock.unwrap_or_else(Ticks::now);
        // A replica lacks the last changes.
        match self.run(CLOCK, async |store| store.current_until(now).await)? {
            Some(until) if until == now => Ok(Some(now)),
            _ => Err(failed!("the database is a read replica, whose changes arrive late; give the primary")),
        }
    }

    fn changed_since(&self, since: Ticks) -> TransferResult<Box<dyn TransferSource + '_>> {
        let since = Selection { since: Some(since), ..Selection::default() };
        let filter = since.predicate().map_err(|reason| failed!("the filter on Timestamp: {reason}"))?;
        Ok(Box::new(Self {
            store: self.store.clone(),
            account: self.account.clone(),
            runtime: self.runtime.clone(),
            filter,
            versions: Versions::default(),
            is_temporary: false,
        }))
    }

    fn open<'a>(&'a self, table: &str, range: &RowRange, keys_only: bool) -> OpenedRange<'a> {
        let (table, left) = (parse_table_name(table)?, Some(range.clone()));
        Ok(Box::new(DatabasePages { database: self, table, left, keys_only }))
    }

    fn probe(&self, table: &str, range: &RowRange) -> TransferResult<Option<Key>> {
        let scan = self.scan(range, 1, true);
        let page =
            async |store: &Store, table: TableRef<'_>| store.page(table, &scan, Vec::<Stored>::new()).await;
        let (entities, _) = self.run_on(table, page)?;
        Ok(entities.into_iter().next().map(|entity| entity.key))
    }

    fn get(&self, table: &str, key: &Key) -> TransferResult<Option<Row>> {
        match self.run_on(table, async |store, table| store.get(table, key).await) {
            Err(TransferError::NoTable(_)) => Ok(None),
            read => Ok(read?.map(Row::from)),
        }
    }

    fn policies(&self, table: &str) -> TransferResult<Option<Vec<Policy>>> {
        self.run_on(table, async |store, table| {
            let text = store.policies(table).await?;
            Ok(Some(text.as_deref().map_or(Ok(Vec::new()), policies::from_stored)?))
        })
    }

    fn properties(&self) -> TransferResult<Option<ServiceProperties>> {
        self.run(SERVICE_PROPERTIES, async |store| {
            let text = store.properties(&self.account).await?;
            Ok(Some(text.as_deref().map_or(Ok(ServiceProperties::default()), properties::from_stored)?))
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_count_begins_anew_when_the_table_has_got_other_buckets() {
        let at = |layout, share| CountPosition { layout: Some(layout), share, ..CountPosition::start() };
        let part = |entities, next| Some(CountedPart { entities, next });
        let (start, first, second) = (CountPosition::start(), at(1, 3), at(2, 1));
        let mut parts = vec![
            (start.clone(), part(5, Some(first.clone()))),
            (first, None),
            (start, part(4, Some(second.clone()))),
            (second, part(3, None)),
        ]
        .into_iter();
        let mut next = |position: &CountPosition| {
            let (expected, part) = parts.next().expect("the count has ended");
            assert_eq!(*position, expected);
            Ok(part)
        };
        assert_eq!(sum_parts(&mut next, &mut |_| Ok(())).unwrap(), 7);
        assert!(parts.next().is_none());
    }
}
