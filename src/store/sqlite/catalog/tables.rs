//! Tables: creating, deleting and listing.

use rusqlite::{Connection, OptionalExtension, params};

use crate::error::Code;
use crate::protocol::model::{TableName, Ticks};
use crate::protocol::plan::predicate::EntityView;
use crate::protocol::plan::span::first_whole_partition;
use crate::protocol::plan::{Span, TableEntry, TablePage, TableScan};
use crate::store::sqlite::connections::scan_limit::{ScanCounter, ScanStep};
use crate::store::sqlite::rows::{Sqlite, ticks};
use crate::store::{StoreResult, bucket};

/// SQLite never spreads a table over several buckets.
pub(crate) const SPREAD: u16 = 1;

/// Returns the only bucket of a table.
pub(crate) fn bucket_of(db: &Connection, account: &str, table: &TableName) -> Sqlite<Option<i64>> {
    db.prepare_cached("SELECT table_no FROM tables WHERE account = ?1 AND name_lower = ?2")?
        .query_row(params![account, table.lower()], |row| row.get(0))
        .optional()
        .map(|no| no.map(|no| bucket::bucket(no, SPREAD, "")))
}

pub(crate) fn get(db: &Connection, account: &str, table: &TableName) -> Sqlite<Option<TableEntry>> {
    db.prepare_cached("SELECT name, created FROM tables WHERE account = ?1 AND name_lower = ?2")?
        .query_row(params![account, table.lower()], |row| {
            Ok(TableEntry { name: row.get(0)?, created: ticks(row, 1)? })
        })
        .optional()
}

pub(crate) fn create(
    db: &Connection,
    account: &str,
    table: &TableName,
    now: Ticks,
) -> Sqlite<StoreResult<()>> {
    let mut insert = db.prepare_cached(
        "INSERT INTO tables (table_no, account, name_lower, name, spread, created)
         VALUES (?1, ?2, ?3, ?4, ?5, ?6) ON CONFLICT DO NOTHING",
    )?;
    if bucket_of(db, account, table)?.is_some() {
        return Ok(Err(Code::TableAlreadyExists.into()));
    }
    loop {
        let (no, lower, name) = (bucket::new_table_no(), table.lower(), table.as_given());
        // If nothing was inserted, the number is taken, and another one is tried.
        if insert.execute(params![no, account, lower, name, SPREAD, now.raw()])? == 1 {
            return Ok(Ok(()));
        }
    }
}

pub(crate) fn delete(
    db: &Connection,
    account: &str,
    table: &TableName,
    now: Ticks,
) -> Sqlite<StoreResult<()>> {
    let deleted: Option<i64> = db
        .prepare_cached("DELETE FROM tables WHERE account = ?1 AND name_lower = ?2 RETURNING table_no")?
        .query_row(params![account, table.lower()], |row| row.get(0))
        .optional()?;
    let Some(no) = deleted else { return Ok(Err(Code::ResourceNotFound.into())) };
    db.prepare_cached("INSERT INTO doomed (table_no, spread, deleted_at, due) VALUES (?1, ?2, ?3, ?3)")?
        .execute(params![no, SPREAD, now.raw()])?;
    Ok(Ok(()))
}

/// Reads one page of an account's tables.
pub(crate) fn list(
    db: &Connection,
    account: &str,
    scan: &TableScan,
    walk: ScanCounter,
) -> Sqlite<StoreResult<ScanStep<TablePage>>> {
    let mut list = List { page: TablePage::default(), walk, needs_permit: false };
    for span in &scan.spans {
        if list_span(db, account, scan, span, &mut list)? {
            break;
        }
    }
    Ok(Ok(if list.needs_permit { ScanStep::NeedsPermit } else { ScanStep::Done(list.page) }))
}

/// A page of tables that is being read.
struct List {
    page: TablePage,
    walk: ScanCounter,
    needs_permit: bool,
}

/// Reads a span; returns whether the page is complete.
fn list_span(db: &Connection, account: &str, scan: &TableScan, span: &Span, list: &mut List) -> Sqlite<bool> {
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
        let view = EntityView { partition, row: "", modified: entry.created, properties: Vec::new() };
        if !scan.residual.as_ref().is_none_or(|predicate| predicate.eval(&view)) {
            if list.walk.pass(0) {
                continue;
            }
            list.needs_permit = true;
            return Ok(true);
        }
        if list.page.tables.len() >= scan.rows {
            list.page.next = Some(entry);
            return Ok(true);
        }
        list.page.tables.push(entry);
    }
    Ok(false)
}
