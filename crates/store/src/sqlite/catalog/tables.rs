//! Creates, deletes and lists tables.

use rusqlite::{Connection, OptionalExtension, params};

use crate::error::Code;
use crate::protocol::model::{TableRef, Ticks};
use crate::protocol::plan::predicate::Prepared;
use crate::protocol::plan::span::first_whole_partition;
use crate::protocol::plan::{Span, TableEntry, TablePage, TableScan};
use crate::scan_limit::{ScanCounter, ScanStep};
use crate::sqlite::{Sqlite, SqliteStore, ticks};
use crate::{StoreResult, TableSize, bucket};

/// SQLite does not spread a table over several buckets.
pub(crate) const SPREAD: u16 = 1;

impl SqliteStore {
    pub(crate) async fn create(&self, table: TableRef<'_>, now: Ticks) -> StoreResult<()> {
        let table = table.into_owned();
        self.writer.submit(move |db| create(db, table.as_ref(), now)).await
    }

    pub(crate) async fn table_page(&self, account: &str, scan: &TableScan) -> StoreResult<TablePage> {
        let (account, scan) = (account.to_owned(), scan.clone());
        let time = scan.time;
        let walk = move |db: &Connection, (): &mut (), walk| list(db, &account, &scan, walk);
        Ok(Box::pin(self.walk((), time, walk)).await?.1)
    }

    pub(crate) async fn measure(&self, table: TableRef<'_>, most: u32) -> StoreResult<TableSize> {
        let table = table.into_owned();
        let read = move |db: &mut Connection| match bucket_of(db, table.as_ref())? {
            Some(bucket) => measure(db, bucket, most).map(Ok),
            None => Ok(Err(Code::TableNotFound.into())),
        };
        self.read_on_blocking_pool(read).await
    }

    /// Measures a deleted table that can be restored.
    pub(crate) async fn measure_deleted(&self, table_no: i64, most: u32) -> StoreResult<Option<TableSize>> {
        let read = move |db: &mut Connection| {
            let mut find = db.prepare_cached("SELECT 1 FROM deleted_tables WHERE table_no = ?1")?;
            let bucket = bucket::bucket(table_no, SPREAD, "");
            find.exists([table_no])?.then(|| measure(db, bucket, most)).transpose().map(Ok)
        };
        self.read_on_blocking_pool(read).await
    }
}

/// Returns the only bucket of a table.
pub(crate) fn bucket_of(db: &Connection, table: TableRef<'_>) -> Sqlite<Option<i64>> {
    db.prepare_cached("SELECT table_no FROM tables WHERE account = ?1 AND name_lower = ?2")?
        .query_row(params![table.account, table.name.lower()], |row| row.get(0))
        .optional()
        .map(|no| no.map(|no| bucket::bucket(no, SPREAD, "")))
}

fn create(db: &Connection, table: TableRef<'_>, now: Ticks) -> Sqlite<StoreResult<()>> {
    let mut insert = db.prepare_cached(
        "INSERT INTO tables (table_no, account, name_lower, name, spread, created)
         VALUES (?1, ?2, ?3, ?4, ?5, ?6) ON CONFLICT DO NOTHING",
    )?;
    if bucket_of(db, table)?.is_some() {
        return Ok(Err(Code::TableAlreadyExists.into()));
    }
    loop {
        let (no, lower, name) = (bucket::new_table_no(), table.name.lower(), table.name.as_given());
        // Without an inserted row, the number is taken, and the loop tries another number.
        if insert.execute(params![no, table.account, lower, name, SPREAD, now.raw()])? == 1 {
            return Ok(Ok(()));
        }
    }
}

fn list(
    db: &Connection,
    account: &str,
    scan: &TableScan,
    walk: ScanCounter,
) -> Sqlite<StoreResult<ScanStep<TablePage>>> {
    let residual = scan.residual.as_ref().map(Prepared::new);
    let mut list = List { page: TablePage::default(), residual, walk, needs_permit: false };
    for span in &scan.spans {
        if list_span(db, account, scan, span, &mut list)? {
            break;
        }
    }
    Ok(Ok(if list.needs_permit { ScanStep::NeedsPermit } else { ScanStep::Done(list.page) }))
}

struct List<'s> {
    page: TablePage,
    residual: Option<Prepared<'s>>,
    walk: ScanCounter,
    needs_permit: bool,
}

/// Reads a span; returns whether the page is complete.
fn list_span(
    db: &Connection,
    account: &str,
    scan: &TableScan,
    span: &Span,
    list: &mut List<'_>,
) -> Sqlite<bool> {
    let mut statement = db.prepare_cached(
        "SELECT name_lower, name, created FROM tables
         WHERE account = ?1 AND name_lower >= ?2 AND (?3 IS NULL OR name_lower < ?3)
         ORDER BY name_lower",
    )?;
    let upper = span.upper.as_ref().map(first_whole_partition);
    let mut rows = statement.query(params![account, first_whole_partition(&span.lower), upper])?;
    while let Some(row) = rows.next()? {
        let entry = TableEntry { name: row.get(1)?, created: ticks(row, 2)? };
        if !list.walk.row() {
            list.page.next = Some(entry);
            return Ok(true);
        }
        let partition = row.get_ref(0)?.as_str()?;
        if let Some(residual) = &list.residual {
            let is_match = residual.matches_table(partition, entry.created);
            let counts = residual.is_costly() || !is_match;
            if counts && !list.walk.pass(residual.cost(partition.len())) {
                list.needs_permit = true;
                return Ok(true);
            }
            if !is_match {
                continue;
            }
        }
        if list.page.tables.len() >= scan.rows {
            list.page.next = Some(entry);
            return Ok(true);
        }
        list.page.tables.push(entry);
    }
    Ok(false)
}

/// Measures a bucket by its first `most` entities.
fn measure(db: &Connection, bucket: i64, most: u32) -> Sqlite<TableSize> {
    // One row beyond the maximum shows whether the bucket has more.
    let mut size = db.prepare_cached(
        "SELECT count(*), coalesce(sum(length(CAST(pk AS BLOB)) + length(CAST(rk AS BLOB))
                                     + length(CAST(properties AS BLOB))), 0)
         FROM (SELECT pk, rk, properties FROM entities WHERE bucket = ?1 LIMIT ?2)",
    )?;
    let (entities, bytes) = size.query_row(params![bucket, i64::from(most) + 1], |row| {
        Ok((row.get::<_, i64>(0)?.cast_unsigned(), row.get::<_, i64>(1)?.cast_unsigned()))
    })?;
    Ok(TableSize { entities, bytes, complete: entities <= u64::from(most) })
}
