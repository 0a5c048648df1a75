//! Creates, deletes and lists tables, and caches their ids.

use std::time::Instant;

use sqlx::postgres::PgRow;
use sqlx::{FromRow, Row};

use crate::bucket;
use crate::error::Code;
use crate::postgres::connections::lease::Lease;
use crate::postgres::fault::{Effect, StatementError};
use crate::postgres::reads::turn::{Evaluated, ScanTurn};
use crate::postgres::rows::{broken_row, ticks};
use crate::postgres::state::table_ids::{TableId, cache_key, exists};
use crate::postgres::{PgStore, statements};
use crate::protocol::model::{TableRef, Ticks};
use crate::protocol::plan::predicate::Prepared;
use crate::protocol::plan::span::first_whole_partition;
use crate::protocol::plan::{Span, TableEntry, TablePage, TableScan};
use crate::{Fault, StoreResult, TableSize};

/// Maximum attempts to find an unused table number. The first nearly always succeeds.
const NUMBERS_TRIED: usize = 5;
/// Tables that a filtered list reads per batch, even if the page is smaller.
const FILTERED_BATCH: usize = 1000;

impl PgStore {
    pub(crate) async fn measure(&self, table: TableRef<'_>, most: u32) -> StoreResult<TableSize> {
        self.with_table(table, |table_id| self.measure_table(table_id, most)).await
    }

    /// Measures a table by its first entities, `most` at most; `None` if it is gone.
    async fn measure_table(&self, table_id: TableId, most: u32) -> StoreResult<Option<TableSize>> {
        let mut lease = self.nodes.acquire().await?;
        if !exists(&mut lease, table_id).await? {
            return Ok(None);
        }
        Ok(Some(measure(&mut lease, table_id, most).await?))
    }

    /// Measures a deleted table that can be restored.
    pub(crate) async fn measure_deleted(&self, table_no: i64, most: u32) -> StoreResult<Option<TableSize>> {
        let mut lease = self.nodes.acquire().await?;
        let layout = sqlx::query(statements::DELETED_LAYOUT).bind(table_no);
        let Some(row) = lease.row(layout, Effect::Undone).await? else { return Ok(None) };
        Ok(Some(measure(&mut lease, TableId::read(&row)?, most).await?))
    }

    /// Returns the table's id, from the cache or the database.
    ///
    /// # Errors
    /// [`Code::TableNotFound`].
    pub(crate) async fn table_id(&self, table: TableRef<'_>) -> StoreResult<TableId> {
        let name = cache_key(table);
        if let Some(table_id) = self.table_cache.get(&name) {
            return Ok(table_id);
        }
        Box::pin(self.look_up(table, name)).await
    }

    async fn look_up(&self, table: TableRef<'_>, name: String) -> StoreResult<TableId> {
        let mut lease = self.nodes.acquire().await?;
        let asked = Instant::now();
        let row = resolve(&mut lease, table).await?.ok_or(Code::TableNotFound)?;
        let table_id = TableId::read(&row)?;
        self.table_cache.put(name, table_id, asked);
        Ok(table_id)
    }

    /// Evicts an id that a statement found to be stale.
    pub(crate) fn forget(&self, table: TableRef<'_>, wrong: TableId) {
        self.table_cache.drop_if(&cache_key(table), wrong);
    }

    pub(crate) async fn create(&self, table: TableRef<'_>, now: Ticks) -> StoreResult<()> {
        let mut lease = self.nodes.acquire_for_all_nodes().await?;
        for _ in 0..NUMBERS_TRIED {
            let table_id = TableId::new(bucket::new_table_no(), self.spread);
            let insert = sqlx::query(statements::CREATE_TABLE)
                .bind(table_id.table_no)
                .bind(table.account)
                .bind(table.name.lower())
                .bind(table.name.as_given())
                .bind(i32::from(table_id.spread))
                .bind(now.raw());
            let asked = Instant::now();
            match lease.row(insert, Effect::Unknown).await {
                Ok(Some(_)) => {
                    self.table_cache.put(cache_key(table), table_id, asked);
                    return Ok(());
                }
                Ok(None) => return Err(Code::TableAlreadyExists.into()),
                Err(StatementError::Duplicate) => {}
                Err(error) => return Err(error.into()),
            }
        }
        Err(Fault::Other.into())
    }

    /// Reads a page, and reads it again with a permit if its filter needs one.
    pub(crate) async fn table_page(&self, account: &str, scan: &TableScan) -> StoreResult<TablePage> {
        let mut turn = ScanTurn::new(&self.scan_limit, scan.time);
        loop {
            let mut lease = self.nodes.acquire().await?;
            let listed = Listing { account, scan, turn: &turn }.page(&mut lease).await;
            if matches!(listed, Ok(_) | Err(StatementError::NeedsPermit)) {
                lease.end_snapshot().await;
            }
            match listed {
                Err(StatementError::NeedsPermit) => {
                    drop(lease);
                    turn.wait_for_permit().await?;
                }
                listed => return Ok(listed?),
            }
        }
    }
}

/// The read of one page of tables. Rowhouse evaluates the filter batch by batch, because the rows are few and small.
#[derive(Clone, Copy)]
struct Listing<'a> {
    account: &'a str,
    scan: &'a TableScan,
    turn: &'a ScanTurn<'a>,
}

impl Listing<'_> {
    async fn page(self, lease: &mut Lease) -> Result<TablePage, StatementError> {
        let scan = self.scan;
        if scan.residual.is_some() || scan.spans.len() != 1 {
            lease.begin_snapshot(None).await?;
        }
        let mut page = TablePage::default();
        for (at, span) in scan.spans.iter().enumerate() {
            if at > 0 && self.is_over(lease) {
                page.next = page.next.take().or_else(|| Some(first_of(span)));
            }
            if page.next.is_some() {
                break;
            }
            self.span(span, lease, &mut page).await?;
        }
        Ok(page)
    }

    /// Reads a span until the span or the page ends.
    async fn span(self, span: &Span, lease: &mut Lease, page: &mut TablePage) -> Result<(), StatementError> {
        let scan = self.scan;
        let batch = if scan.residual.is_some() { FILTERED_BATCH } else { scan.rows };
        let mut lower = Some(first_whole_partition(&span.lower));
        let upper = span.upper.as_ref().map(first_whole_partition);
        while let Some(from) = lower.take() {
            // One extra row shows where the next batch or page starts.
            let rows = list(lease, self.account, &from, upper.as_deref(), batch + 1).await?;
            let mut rows = rows.iter().map(Listed::read).collect::<Result<Vec<_>, _>>()?;
            let next = (rows.len() > batch).then(|| rows.pop()).flatten();
            let (rows, matches) = match &scan.residual {
                Some(residual) => self.turn.evaluate(residual, rows).await?,
                None => {
                    let matches = vec![true; rows.len()];
                    (rows, matches)
                }
            };
            let next = rows.get(matches.len()).cloned().or(next);
            for (row, _) in rows.into_iter().zip(matches).filter(|(_, is_match)| *is_match) {
                if page.tables.len() >= scan.rows {
                    page.next = Some(row.entry);
                    return Ok(());
                }
                page.tables.push(row.entry);
            }
            let Some(next) = next else { return Ok(()) };
            if page.tables.len() >= scan.rows || self.is_over(lease) {
                page.next = Some(next.entry);
                return Ok(());
            }
            lower = Some(next.name_lower);
        }
        Ok(())
    }

    fn is_over(self, lease: &Lease) -> bool {
        self.turn.time_left().is_zero() || self.turn.is_over(Some(lease))
    }
}

/// Where the next page starts if this page ended before a span. The token has only the name.
fn first_of(span: &Span) -> TableEntry {
    TableEntry { name: first_whole_partition(&span.lower), created: Ticks::MIN }
}

#[derive(Clone)]
struct Listed {
    name_lower: String,
    entry: TableEntry,
}

impl Listed {
    fn read(row: &PgRow) -> Result<Self, StatementError> {
        Ok(Self { name_lower: row.try_get("name_lower").map_err(broken_row)?, entry: entry(row)? })
    }
}

impl Evaluated for Listed {
    fn bytes(&self) -> usize {
        self.name_lower.len()
    }

    fn matches(&self, filter: &Prepared<'_>) -> Result<bool, StatementError> {
        Ok(filter.matches_table(&self.name_lower, self.entry.created))
    }
}

async fn list(
    lease: &mut Lease,
    account: &str,
    lower: &str,
    upper: Option<&str>,
    rows: usize,
) -> Result<Vec<PgRow>, StatementError> {
    let text = if upper.is_some() { statements::LIST_TABLES_BELOW } else { statements::LIST_TABLES };
    let query = sqlx::query(text).bind(account).bind(lower).bind(rows as i64);
    let query = if let Some(upper) = upper { query.bind(upper) } else { query };
    lease.rows(query, Effect::Undone).await
}

async fn resolve(lease: &mut Lease, table: TableRef<'_>) -> Result<Option<PgRow>, StatementError> {
    let query = sqlx::query(statements::RESOLVE_TABLE).bind(table.account).bind(table.name.lower());
    lease.row(query, Effect::Undone).await
}

fn entry(row: &PgRow) -> Result<TableEntry, StatementError> {
    let name = row.try_get("name").map_err(broken_row)?;
    Ok(TableEntry { name, created: ticks(row.try_get("created").map_err(broken_row)?)? })
}

/// Measures a table by its first entities, `most` at most.
async fn measure(lease: &mut Lease, table_id: TableId, most: u32) -> Result<TableSize, StatementError> {
    let most = u64::from(most);
    let mut size = TableSize::default();
    for bucket in table_id.buckets() {
        // One row beyond the maximum shows whether there are more.
        let left = i64::try_from(most - size.entities + 1).unwrap_or(i64::MAX);
        let query = sqlx::query(statements::SIZE).bind(bucket).bind(left);
        let row = lease.row(query, Effect::Undone).await?.ok_or(Fault::Other)?;
        let (entities, bytes): (i64, i64) = FromRow::from_row(&row).map_err(broken_row)?;
        size.entities += u64::try_from(entities).unwrap_or(0);
        size.bytes += u64::try_from(bytes).unwrap_or(0);
        if size.entities > most {
            return Ok(size);
        }
    }
    Ok(TableSize { complete: true, ..size })
}
