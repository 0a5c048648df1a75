//! Rowhouse's own database, read and written without a server: entities keep their Timestamp and ETag.

mod writes;

use std::future::Future;
use std::sync::Arc;

use tokio::runtime::Runtime;

use crate::error::{Code, Error};
use crate::operator::accounts;
use crate::operator::indexes::IndexCatalog;
use crate::operator::totals::{self, CountPace};
use crate::protocol::auth::seal::MasterKeys;
use crate::protocol::codec::policies::{self, Policy};
use crate::protocol::codec::properties::{self, ServiceProperties};
use crate::protocol::model::{Key, Stored, TableName, Ticks};
use crate::protocol::plan::predicate::Predicate;
use crate::protocol::plan::span::Span;
use crate::protocol::plan::{Projection, Scan, TableScan};
use crate::store::{
    AccountChange, AccountOptions, CountPosition, CountedPart, Failure, Fault, LoadMark, Store, StoreResult,
};
use crate::transfer::contract::{Counts, Page, RowReader, TransferSource, TransferTarget, WritePage};
use crate::transfer::error::{TransferError, TransferResult};
use crate::transfer::rows::range::{Lower, RowRange};
use crate::transfer::rows::row::{Row, Version};
use writes::Versions;

/// Rows of a page.
const ROWS: usize = 500;
/// Bytes of a page.
const BYTES: usize = 1 << 20;
/// Maximum time for reading a page.
const TIME: std::time::Duration = std::time::Duration::from_secs(5);
/// Time after which a part of a count is shown.
const COUNT_TIME: std::time::Duration = std::time::Duration::from_secs(1);
/// Maximum attempts of an operation while the database is busy.
const ATTEMPTS: u32 = 8;

/// One account in a database.
pub(crate) struct LocalDatabase {
    store: Arc<Store>,
    account: String,
    runtime: Arc<Runtime>,
    filter: Option<Predicate>,
    versions: Versions,
    /// Whether Timestamps in the future are stored too: the database only holds entities on their way.
    is_temporary: bool,
}

impl LocalDatabase {
    /// Returns an account of an open database. Reading it returns the entities that `filter` selects.
    pub(crate) fn new(
        store: Arc<Store>,
        account: String,
        runtime: Arc<Runtime>,
        filter: Option<Predicate>,
    ) -> Self {
        Self { store, account, runtime, filter, versions: Versions::default(), is_temporary: false }
    }

    /// Returns it as one that only holds entities on their way.
    pub(crate) fn temporary(self) -> Self {
        Self { is_temporary: true, ..self }
    }

    /// Closes the database.
    pub(crate) fn close(&self) {
        self.runtime.block_on(self.store.close());
    }

    /// Copies the stored accounts, their limits and queries; returns how many accounts are new. `master` must
    /// open the keys of all accounts in both databases, or no server could start on the target.
    pub(crate) fn copy_accounts(&self, to: &Self, master: &MasterKeys) -> TransferResult<u64> {
        let wrong = |failure| failed("the accounts", failure);
        let mut copied = 0;
        let ours = self.run(|| self.store.accounts()).map_err(wrong)?;
        let theirs = to.run(|| to.store.accounts()).map_err(wrong)?;
        for (place, stored) in [("FROM", &ours), ("TO", &theirs)] {
            accounts::check(master, stored)
                .map_err(|error| TransferError::Usage(format!("--accounts: {place}: {error}")))?;
        }
        for account in ours {
            let add = AccountChange::Add(account);
            copied += u64::from(to.run(|| to.store.change_account(&add)).map_err(wrong)?);
        }
        for options in self.run(|| self.store.account_options()).map_err(wrong)? {
            let AccountOptions { name, requests_per_second, extended_queries, .. } = options;
            let limit =
                requests_per_second.map(|_| AccountChange::Limit { name: name.clone(), requests_per_second });
            let queries = extended_queries.map(|extended| AccountChange::Queries { name, extended });
            for change in limit.into_iter().chain(queries) {
                to.run(|| to.store.change_account(&change)).map_err(wrong)?;
            }
        }
        Ok(copied)
    }

    /// Runs an operation, and retries it while the database is busy.
    fn run<T, W>(&self, work: impl FnMut() -> W) -> StoreResult<T>
    where
        W: Future<Output = StoreResult<T>>,
    {
        self.runtime.block_on(repeated(work))
    }

    /// Counts a part of a table; a part that takes too long is made smaller.
    fn run_paced(
        &self,
        pace: &mut CountPace,
        table: &TableName,
        from: &CountPosition,
    ) -> StoreResult<CountedPart> {
        for _ in 1..ATTEMPTS {
            match self.runtime.block_on(pace.step(&self.store, table.in_account(&self.account), from)) {
                Err(Failure::Fault(_)) => {}
                counted => return counted,
            }
            std::thread::sleep(std::time::Duration::from_millis(100));
        }
        self.runtime.block_on(pace.step(&self.store, table.in_account(&self.account), from))
    }

    fn scan(&self, range: &RowRange, rows: usize, keys_only: bool) -> Scan {
        let projection = if keys_only { Projection::SystemOnly } else { Projection::Full };
        Scan { rows, bytes: BYTES, time: TIME, projection, ..Scan::over(vec![range.span()]) }
    }

    /// The page of what the filter selects, by the indexes of the table.
    fn filtered_scan(
        &self,
        range: &RowRange,
        rows: usize,
        table: &TableName,
        keys_only: bool,
    ) -> TransferResult<Scan> {
        let mut scan = Scan { residual: self.filter.clone(), ..self.scan(range, rows, keys_only) };
        if scan.residual.is_some() {
            let stored =
                self.run(|| self.store.indexes()).map_err(|failure| failed("the indexes", failure))?;
            let applied = IndexCatalog::new(stored).apply(&self.account, table, &mut scan);
            applied.map_err(|error| failed(table.as_given(), error.into()))?;
        }
        Ok(scan)
    }
}

/// Runs an operation, and retries it while the database is busy.
async fn repeated<T, W>(mut work: impl FnMut() -> W) -> StoreResult<T>
where
    W: Future<Output = StoreResult<T>>,
{
    for attempt in 0..ATTEMPTS {
        match work().await {
            Err(Failure::Fault(
                Fault::Busy | Fault::NotBegun | Fault::Serialization | Fault::Unavailable,
            )) if attempt + 1 < ATTEMPTS => {
                tokio::time::sleep(std::time::Duration::from_millis(50 << attempt)).await;
            }
            done => return done,
        }
    }
    Err(Failure::Fault(Fault::Unavailable))
}

/// Reads a table's name.
fn name(table: &str) -> TransferResult<TableName> {
    TableName::parse(table).map_err(|error| TransferError::Failed(format!("{table}: {}", error.text())))
}

/// Describes a failure of the database.
fn failed(what: &str, failure: Failure) -> TransferError {
    TransferError::Failed(match failure {
        Failure::Refused(error) => format!("{what}: {}: {}", error.code.facts().code, error.text()),
        Failure::Fault(fault) => format!("{what}: the database failed ({fault:?})"),
    })
}

/// Whether a failure is this error.
fn is(failure: &Failure, code: Code) -> bool {
    matches!(failure, Failure::Refused(Error { code: found, .. }) if *found == code)
}

impl From<Stored> for Row {
    fn from(stored: Stored) -> Self {
        Self { key: stored.key, modified: Some(stored.modified), tag: None, properties: stored.properties }
    }
}

/// The pages of a range.
struct DatabasePages<'a> {
    database: &'a LocalDatabase,
    table: TableName,
    left: Option<RowRange>,
    keys_only: bool,
}

impl RowReader for DatabasePages<'_> {
    fn next(&mut self) -> TransferResult<Option<Page>> {
        let Some(range) = &mut self.left else { return Ok(None) };
        let LocalDatabase { store, account, .. } = self.database;
        let scan = self.database.filtered_scan(range, ROWS, &self.table, self.keys_only)?;
        let read =
            self.database.run(|| store.page(self.table.in_account(account), &scan, Vec::<Stored>::new()));
        let (entities, end) = read.map_err(|failure| failed(self.table.as_given(), failure))?;
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
            let scan = TableScan { spans, residual: None, rows: ROWS, time: TIME };
            let read = self.run(|| self.store.list_tables(&self.account, &scan));
            let page = read.map_err(|failure| failed("the list of tables", failure))?;
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
        let (table, mut pace) = (name(table)?, CountPace::default());
        let (mut sum, mut from) = (0, Some(CountPosition::start()));
        while let Some(position) = from {
            let LocalDatabase { store, account, filter, .. } = self;
            let part = match filter {
                Some(filter) => {
                    let key = &position.key;
                    self.run(|| {
                        totals::count_matching(store, table.in_account(account), key, filter, COUNT_TIME)
                    })
                }
                None => self.run_paced(&mut pace, &table, &position),
            };
            let CountedPart { entities, next } = part.map_err(|failure| failed(table.as_given(), failure))?;
            counted(entities)?;
            (sum, from) = (sum + entities, next);
        }
        Ok(Some(sum))
    }

    fn open<'a>(
        &'a self,
        table: &str,
        range: &RowRange,
        keys_only: bool,
    ) -> TransferResult<Box<dyn RowReader + 'a>> {
        Ok(Box::new(DatabasePages {
            database: self,
            table: name(table)?,
            left: Some(range.clone()),
            keys_only,
        }))
    }

    fn probe(&self, table: &str, range: &RowRange) -> TransferResult<Option<Key>> {
        let (table, scan) = (name(table)?, self.scan(range, 1, true));
        let read = self.run(|| self.store.page(table.in_account(&self.account), &scan, Vec::<Stored>::new()));
        let (entities, _) = read.map_err(|failure| failed(table.as_given(), failure))?;
        Ok(entities.into_iter().next().map(|entity| entity.key))
    }

    fn get(&self, table: &str, key: &Key) -> TransferResult<Option<Row>> {
        let table = name(table)?;
        match self.run(|| self.store.get(table.in_account(&self.account), key)) {
            Err(failure) if is(&failure, Code::TableNotFound) => Ok(None),
            read => Ok(read.map_err(|failure| failed(table.as_given(), failure))?.map(Row::from)),
        }
    }

    fn policies(&self, table: &str) -> TransferResult<Option<Vec<Policy>>> {
        let table = name(table)?;
        let read = self.run(|| self.store.policies(table.in_account(&self.account)));
        let text = read.map_err(|failure| failed(table.as_given(), failure))?;
        let policies = text.as_deref().map_or(Ok(Vec::new()), policies::from_stored);
        policies.map(Some).map_err(|error| failed(table.as_given(), error.into()))
    }

    fn properties(&self) -> TransferResult<Option<ServiceProperties>> {
        let read = self.run(|| self.store.properties(&self.account));
        let text = read.map_err(|failure| failed("the service properties", failure))?;
        let properties = text.as_deref().map_or(Ok(ServiceProperties::default()), properties::from_stored);
        properties.map(Some).map_err(|error| failed("the service properties", error.into()))
    }
}

impl TransferTarget for LocalDatabase {
    fn has_entities(&self, table: &str) -> TransferResult<Option<bool>> {
        match self.probe(table, &RowRange::everything()) {
            Ok(found) => Ok(Some(found.is_some())),
            Err(_) if !self.tables()?.iter().any(|name| name.eq_ignore_ascii_case(table)) => Ok(None),
            Err(error) => Err(error),
        }
    }

    fn delete_table(&self, table: &str) -> TransferResult<()> {
        let (table, now) = (name(table)?, Ticks::now());
        match self.run(|| self.store.delete_table(table.in_account(&self.account), now)) {
            Err(failure) if is(&failure, Code::TableNotFound) || is(&failure, Code::ResourceNotFound) => {
                Ok(())
            }
            deleted => deleted.map_err(|failure| failed(table.as_given(), failure)),
        }
    }

    fn create(&self, table: &str) -> TransferResult<()> {
        let (table, now) = (name(table)?, Ticks::now());
        match self.run(|| self.store.create_table(table.in_account(&self.account), now)) {
            Err(failure) if is(&failure, Code::TableAlreadyExists) => Ok(()),
            created => created.map_err(|failure| failed(table.as_given(), failure)),
        }
    }

    fn write(&self, mut page: WritePage<'_>) -> TransferResult<Counts> {
        writes::write(self, &mut page)
    }

    fn marks(&self, copy: &str) -> TransferResult<Vec<LoadMark>> {
        self.run(|| self.store.marks(copy)).map_err(|failure| failed("the marks of the copy", failure))
    }

    fn delete(&self, table: &str, entities: &[(Key, Version)]) -> TransferResult<u64> {
        writes::delete(self, table, entities)
    }

    fn finish(&self, copy: &str, _written: u64) -> TransferResult<()> {
        let forgotten = self.run(|| self.store.forget_marks(copy));
        forgotten.map_err(|failure| failed("the marks of the copy", failure))
    }

    fn set_policies(&self, table: &str, policies: &[Policy]) -> TransferResult<()> {
        let table = name(table)?;
        let text = policies::to_stored(policies).map_err(|error| failed(table.as_given(), error.into()))?;
        let set = self.run(|| self.store.set_policies(table.in_account(&self.account), &text));
        set.map_err(|failure| failed(table.as_given(), failure))
    }

    fn set_properties(&self, wanted: &ServiceProperties) -> TransferResult<()> {
        let text =
            properties::to_stored(wanted).map_err(|error| failed("the service properties", error.into()))?;
        let set = self.run(|| self.store.set_properties(&self.account, &text));
        set.map_err(|failure| failed("the service properties", failure))
    }
}
