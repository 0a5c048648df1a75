//! Pages of entities and of tables. SQLite runs in our process, so predicates
//! are evaluated in Rust on rows as they come.

use std::time::Instant;

use rusqlite::{Connection, Row, params};

use super::statements::{bucket_of, ticks};
use crate::codec::stored::Wanted;
use crate::error::{Code, Error};
use crate::model::entity::Glimpse;
use crate::model::{Key, TableName};
use crate::plan::predicate::View;
use crate::plan::span::least_name;
use crate::plan::{PageEnd, Projection, Scan, Span, TableEntry, TablePage, TableScan};
use crate::store::{Collect, StoreResult};

type Sqlite<T> = rusqlite::Result<T>;

pub const FROM: &str = "SELECT pk, rk, modified, properties FROM entities
     WHERE bucket = ?1 AND (pk, rk) >= (?2, ?3) ORDER BY pk, rk";
pub const BETWEEN: &str = "SELECT pk, rk, modified, properties FROM entities
     WHERE bucket = ?1 AND (pk, rk) >= (?2, ?3) AND (pk, rk) < (?4, ?5) ORDER BY pk, rk";

/// One page of a query.
pub fn entities(
    db: &Connection,
    account: &str,
    table: &TableName,
    scan: &Scan,
    into: &mut dyn Collect,
) -> Sqlite<StoreResult<PageEnd>> {
    let Some(bucket) = bucket_of(db, account, table)? else {
        return Ok(Err(Code::TableNotFound.into()));
    };
    let mut page = Page::new(scan, into);
    for span in &scan.spans {
        let done = match &span.upper {
            None => {
                let mut statement = db.prepare_cached(FROM)?;
                let lower = params![bucket, span.lower.partition, span.lower.row];
                page.take(statement.query(lower)?)?
            }
            Some(upper) => {
                let mut statement = db.prepare_cached(BETWEEN)?;
                let (low, high) = (&span.lower, upper);
                let bounds = params![bucket, low.partition, low.row, high.partition, high.row];
                page.take(statement.query(bounds)?)?
            }
        };
        if done {
            break;
        }
    }
    Ok(match page.failure {
        Some(error) => Err(error.into()),
        None => Ok(page.end),
    })
}

/// A page being filled.
struct Page<'a> {
    scan: &'a Scan,
    wanted: Vec<Wanted<'a>>,
    into: &'a mut dyn Collect,
    end: PageEnd,
    bytes: usize,
    looked_at: usize,
    started: Instant,
    failure: Option<Error>,
}

/// Rows between two looks at the clock.
const CLOCK_EVERY: usize = 64;

impl<'a> Page<'a> {
    fn new(scan: &'a Scan, into: &'a mut dyn Collect) -> Self {
        let wanted = scan.residual.as_ref().map(|p| p.wanted()).unwrap_or_default();
        let (end, started) = (PageEnd::default(), Instant::now());
        Self { scan, wanted, into, end, bytes: 0, looked_at: 0, started, failure: None }
    }

    /// Takes rows until a limit is reached; returns whether the page is over.
    fn take(&mut self, mut rows: rusqlite::Rows<'_>) -> Sqlite<bool> {
        while let Some(row) = rows.next()? {
            let seen = glimpse(row)?;
            if self.out_of_time() {
                self.end.next = Some(Key::new(seen.partition, seen.row));
                return Ok(true);
            }
            self.looked_at += 1;
            match self.matches(seen) {
                Ok(true) => {}
                Ok(false) => continue,
                Err(error) => {
                    self.failure = Some(error);
                    return Ok(true);
                }
            }
            if self.is_full_for(seen) {
                self.end.next = Some(Key::new(seen.partition, seen.row));
                return Ok(true);
            }
            self.keep(seen);
        }
        Ok(false)
    }

    fn out_of_time(&self) -> bool {
        self.looked_at > 0
            && self.looked_at.is_multiple_of(CLOCK_EVERY)
            && self.started.elapsed() >= self.scan.time
    }

    fn is_full_for(&self, entity: Glimpse<'_>) -> bool {
        let kept = self.end.entities;
        kept >= self.scan.rows || (kept > 0 && self.bytes + entity.weight() > self.scan.bytes)
    }

    fn matches(&self, entity: Glimpse<'_>) -> Result<bool, Error> {
        self.scan.residual.as_ref().map_or(Ok(true), |p| p.matches(entity, &self.wanted))
    }

    fn keep(&mut self, mut entity: Glimpse<'_>) {
        if self.scan.projection == Projection::SystemOnly {
            entity.properties = "{}";
        }
        self.bytes += entity.weight();
        self.end.entities += 1;
        self.into.take(entity);
    }
}

/// A row as it lies in SQLite's page: most rows of a filtered scan are never
/// copied.
fn glimpse<'a>(row: &'a Row<'_>) -> Sqlite<Glimpse<'a>> {
    Ok(Glimpse {
        partition: row.get_ref(0)?.as_str()?,
        row: row.get_ref(1)?.as_str()?,
        modified: ticks(row, 2)?,
        properties: row.get_ref(3)?.as_str()?,
    })
}

/// One page of an account's tables.
pub fn tables(db: &Connection, account: &str, scan: &TableScan) -> Sqlite<StoreResult<TablePage>> {
    let mut page = TablePage::default();
    for span in &scan.spans {
        if tables_in(db, account, scan, span, &mut page)? {
            break;
        }
    }
    Ok(Ok(page))
}

fn tables_in(
    db: &Connection,
    account: &str,
    scan: &TableScan,
    span: &Span,
    page: &mut TablePage,
) -> Sqlite<bool> {
    let mut statement = db.prepare_cached(
        "SELECT name_lower, name, created FROM tables
         WHERE account = ?1 AND name_lower >= ?2 AND (?3 IS NULL OR name_lower < ?3)
         ORDER BY name_lower",
    )?;
    let upper = span.upper.as_ref().map(least_name);
    let mut rows = statement.query(params![account, least_name(&span.lower), upper])?;
    while let Some(row) = rows.next()? {
        let entry = TableEntry { name: row.get(1)?, created: ticks(row, 2)? };
        let partition = row.get_ref(0)?.as_str()?;
        let view = View { partition, row: "", modified: entry.created, properties: Vec::new() };
        if !scan.residual.as_ref().is_none_or(|predicate| predicate.eval(&view)) {
            continue;
        }
        if page.tables.len() >= scan.rows {
            page.next = Some(entry);
            return Ok(true);
        }
        page.tables.push(entry);
    }
    Ok(false)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::store::sqlite::connection::{Location, SqliteOptions, open};

    #[test]
    fn pages_walk_the_key_index_from_both_bounds() {
        let db = open(&SqliteOptions::new(Location::Memory)).unwrap();
        for (sql, bounds) in [(FROM, "(pk,rk)>(?,?)"), (BETWEEN, "(pk,rk)>(?,?) AND (pk,rk)<(?,?)")] {
            let mut explain = db.prepare(&format!("EXPLAIN QUERY PLAN {sql}")).unwrap();
            for parameter in 1..=explain.parameter_count() {
                explain.raw_bind_parameter(parameter, "1").unwrap();
            }
            let mut rows = explain.raw_query();
            let mut plan = Vec::new();
            while let Some(row) = rows.next().unwrap() {
                plan.push(row.get::<_, String>(3).unwrap());
            }
            assert_eq!(plan.len(), 1, "no sort: {plan:?}");
            assert!(plan[0].contains("USING INDEX") && plan[0].contains(bounds), "{plan:?}");
        }
    }
}
