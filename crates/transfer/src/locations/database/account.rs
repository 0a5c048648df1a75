//! An account of an open database, and what reading and writing it share.

use std::collections::HashSet;
use std::future::Future;
use std::sync::{Arc, Mutex, PoisonError};

use tokio::runtime::Runtime;

use crate::error::{TransferError, TransferResult, failed, usage};
use crate::protocol::auth::seal::MasterKeys;
use crate::protocol::error::{Code, Error};
use crate::protocol::model::{Stored, TableName, Ticks};
use crate::protocol::plan::predicate::Predicate;
use crate::protocol::plan::{Projection, Scan, Span, TableScan};
use crate::rows::Row;
use crate::rows::range::RowRange;
use crate::store::{
    AccountChange, AccountOptions, CountPosition, CountedPart, Failure, Fault, Store, StoreResult,
};
use rowhouse_operator::accounts;
use rowhouse_operator::indexes::IndexCatalog;
use rowhouse_operator::totals::CountPace;

/// Rows of a page.
pub(super) const ROWS: usize = 500;
/// Bytes of a page.
const BYTES: usize = 1 << 20;
/// Maximum time for reading a page.
pub(super) const TIME: std::time::Duration = std::time::Duration::from_secs(5);
/// Time after which a part of a count is shown.
pub(super) const COUNT_TIME: std::time::Duration = std::time::Duration::from_secs(1);
/// Maximum attempts of an operation while the database is busy.
pub(super) const ATTEMPTS: u32 = 8;

/// Maximum accounts that a message lists.
const LISTED_ACCOUNTS: u16 = 20;

/// The versions of writes in flight. Concurrent writes may share a statement, which identifies them by
/// version. If two had the same version, one would become a tick newer.
#[derive(Debug, Default)]
pub(super) struct Versions(Mutex<HashSet<Ticks>>);

impl Versions {
    pub(super) fn take(&self, version: Ticks) -> bool {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).insert(version)
    }

    pub(super) fn release(&self, versions: impl Iterator<Item = Ticks>) {
        let mut taken = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        versions.for_each(|version| {
            taken.remove(&version);
        });
    }
}

/// One account in a database.
pub struct LocalDatabase {
    pub(super) store: Arc<Store>,
    pub(super) account: String,
    pub(super) runtime: Arc<Runtime>,
    pub(super) filter: Option<Predicate>,
    pub(super) versions: Versions,
    /// Whether Timestamps in the future are stored too: the database only holds entities on their way.
    pub(super) is_temporary: bool,
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

    /// Copies the stored accounts that the other database lacks, and limits and queries that it has not chosen
    /// itself; returns how many accounts are new. `master` must open the keys of all accounts in both
    /// databases, or no server could start on the target.
    pub(crate) fn copy_accounts(&self, to: &Self, master: &MasterKeys) -> TransferResult<u64> {
        let wrong = |failure| failed("the accounts", failure);
        let ours = self.run(|| self.store.accounts()).map_err(wrong)?;
        let theirs = to.run(|| to.store.accounts()).map_err(wrong)?;
        for (place, stored) in [("FROM", &ours), ("TO", &theirs)] {
            accounts::check(master, stored).map_err(|error| usage!("--accounts: {place}: {error}"))?;
        }
        let is_new = |name: &str| theirs.iter().all(|there| there.name != name);
        let chosen = to.run(|| to.store.account_options()).map_err(wrong)?;
        let options = self.run(|| self.store.account_options()).map_err(wrong)?;
        // Before the accounts: after an interruption an account that is there counts as an existing one.
        for options in options.into_iter().filter(|options| is_new(&options.name)) {
            for change in changes(options, &chosen) {
                to.run(|| to.store.change_account(&change)).map_err(wrong)?;
            }
        }
        let mut copied = 0;
        for account in ours {
            let add = AccountChange::Add(account);
            copied += u64::from(to.run(|| to.store.change_account(&add)).map_err(wrong)?);
        }
        Ok(copied)
    }

    /// Refuses an account without tables in a database where others have some: its name may be wrong.
    ///
    /// # Errors
    /// [`TransferError::Failed`] with the accounts that have tables.
    pub(crate) fn refuse_other_accounts(&self) -> TransferResult<()> {
        let first = TableScan { spans: vec![Span::everything()], residual: None, rows: 1, time: TIME };
        let read = self.run(|| self.store.list_tables(&self.account, &first));
        if !read.map_err(|failure| failed("the list of tables", failure))?.tables.is_empty() {
            return Ok(());
        }
        let read = self.run(|| self.store.accounts_with_tables(LISTED_ACCOUNTS + 1));
        let mut accounts = read.map_err(|failure| failed("the list of accounts", failure))?;
        if accounts.is_empty() {
            return Ok(());
        }
        let has_more = accounts.len() > usize::from(LISTED_ACCOUNTS);
        accounts.truncate(LISTED_ACCOUNTS.into());
        let more = if has_more { " and others" } else { "" };
        Err(failed!(
            "the account {} has no tables there; accounts with tables are {}{more}: give one with \
             --account, --from-account or --to-account",
            self.account,
            accounts.join(", ")
        ))
    }

    /// Runs an operation, and retries it while the database is busy.
    pub(super) fn run<T, W>(&self, work: impl FnMut() -> W) -> StoreResult<T>
    where
        W: Future<Output = StoreResult<T>>,
    {
        self.runtime.block_on(repeated(work))
    }

    /// Counts a part of a table; a part that takes too long is made smaller. `None` if the table has got other
    /// buckets since `from`.
    pub(super) fn run_paced(
        &self,
        pace: &mut CountPace,
        table: &TableName,
        from: &CountPosition,
    ) -> StoreResult<Option<CountedPart>> {
        for _ in 1..ATTEMPTS {
            match self.runtime.block_on(pace.step(&self.store, table.in_account(&self.account), from)) {
                Err(Failure::Fault(_)) => {}
                counted => return counted,
            }
            std::thread::sleep(std::time::Duration::from_millis(100));
        }
        self.runtime.block_on(pace.step(&self.store, table.in_account(&self.account), from))
    }

    pub(super) fn scan(&self, range: &RowRange, rows: usize, keys_only: bool) -> Scan {
        let projection = if keys_only { Projection::SystemOnly } else { Projection::Full };
        Scan { rows, bytes: BYTES, time: TIME, projection, ..Scan::of_spans(vec![range.span()]) }
    }

    /// The page of what the filter selects, by the indexes of the table.
    pub(super) fn filtered_scan(
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

/// Returns the changes that give an account its limit and queries, but for those that are chosen already.
fn changes(options: AccountOptions, chosen: &[AccountOptions]) -> impl Iterator<Item = AccountChange> {
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
pub(super) async fn repeated<T, W>(mut work: impl FnMut() -> W) -> StoreResult<T>
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
pub(super) fn name(table: &str) -> TransferResult<TableName> {
    TableName::parse(table).map_err(|error| failed!("{table}: {}", error.text()))
}

/// Describes a failure of the database.
pub(super) fn failed(what: &str, failure: Failure) -> TransferError {
    if is(&failure, Code::TableNotFound) {
        return TransferError::NoTable(what.to_owned());
    }
    TransferError::Failed(match failure {
        Failure::Refused(error) => format!("{what}: {}: {}", error.code.facts().code, error.text()),
        Failure::Fault(fault) => format!("{what}: the database failed ({fault:?})"),
    })
}

/// Whether a failure is this error.
pub(super) fn is(failure: &Failure, code: Code) -> bool {
    matches!(failure, Failure::Refused(Error { code: found, .. }) if *found == code)
}

impl From<Stored> for Row {
    fn from(stored: Stored) -> Self {
        Self { key: stored.key, modified: Some(stored.modified), tag: None, properties: stored.properties }
    }
}
