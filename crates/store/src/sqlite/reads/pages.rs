//! Pages of entities. SQLite runs in this process, so Rust code evaluates predicates row by row.

use std::cmp::Ordering;

use rusqlite::types::ValueRef;
use rusqlite::{Connection, Row};

use crate::contract::indexes::{MAX_ENTRIES, MISSING_ORDER, NarrowingMemory, filter_number};
use crate::error::{Code, Error};
use crate::protocol::model::entity::{BorrowedEntity, PropertyOrder};
use crate::protocol::model::{Key, PageOrder, TableRef, Ticks};
use crate::protocol::plan::index::{IndexKind, IndexPosition, IndexValue, PropertyIndex, ValueOrder};
use crate::protocol::plan::predicate::Prepared;
use crate::protocol::plan::span::contain;
use crate::protocol::plan::{PageEnd, Projection, Scan};
use crate::scan_limit::{ScanCounter, ScanStep};
use crate::sqlite::catalog::entries;
use crate::sqlite::catalog::tables::bucket_of;
use crate::sqlite::reads::narrow::{is_missing, narrow};
use crate::sqlite::reads::ranges::{OrderedRange, ranges};
use crate::sqlite::{Sqlite, ticks};
use crate::{Collect, StoreResult};

pub(crate) fn entities(
    db: &Connection,
    table: TableRef<'_>,
    (scan, memory): (&Scan, &NarrowingMemory),
    walk: ScanCounter,
    into: &mut dyn Collect,
) -> Sqlite<StoreResult<ScanStep<PageEnd>>> {
    let Some(bucket) = bucket_of(db, table)? else {
        return Ok(Err(Code::TableNotFound.into()));
    };
    let mut page = ScannedPage::new(scan, walk, into);
    if scan.by.is_some() {
        let index = scan.by.as_ref().and_then(|by| by.index.as_deref());
        let Some(index) = index.filter(|index| index.table_no == bucket >> 16) else {
            return Ok(Err(missing_index().into()));
        };
        if !page.in_order_of(db, bucket, index, memory)? {
            return Ok(Err(missing_index().into()));
        }
    } else {
        page.in_order_of_keys(db, bucket, memory)?;
    }
    Ok(match (page.failure, page.needs_permit) {
        (Some(error), _) => Err(error.into()),
        (None, true) => Ok(ScanStep::NeedsPermit),
        (None, false) => Ok(ScanStep::Done(page.end)),
    })
}

/// The error of a query order whose index is unavailable.
fn missing_index() -> Error {
    Error::from(Code::NotImplemented).with_reason(MISSING_ORDER)
}

struct ScannedPage<'a> {
    scan: &'a Scan,
    residual: Option<Prepared<'a>>,
    into: &'a mut dyn Collect,
    end: PageEnd,
    bytes: usize,
    walk: ScanCounter,
    needs_permit: bool,
    failure: Option<Error>,
}

impl<'a> ScannedPage<'a> {
    fn new(scan: &'a Scan, walk: ScanCounter, into: &'a mut dyn Collect) -> Self {
        let residual = scan.residual.as_ref().map(Prepared::new);
        let end = PageEnd::default();
        Self { scan, residual, into, end, bytes: 0, walk, needs_permit: false, failure: None }
    }

    fn in_order_of_keys(&mut self, db: &Connection, bucket: i64, memory: &NarrowingMemory) -> Sqlite<()> {
        let scan = self.scan;
        let narrowed = narrow(db, bucket >> 16, scan, memory)?;
        (self.end.examined, self.end.narrowed_by) = (narrowed.entries, narrowed.choice);
        let spans = narrowed.points.as_deref().unwrap_or(&scan.spans);
        for range in spans.iter().flat_map(|span| ranges(span, scan.order)) {
            let mut statement = db.prepare_cached(range.statement(scan.order))?;
            if self.take(range.walk(&mut statement, bucket)?)? {
                break;
            }
        }
        Ok(())
    }

    /// Reads the page in the order of an index; `false` if the database has lost the index.
    fn in_order_of(
        &mut self,
        db: &Connection,
        bucket: i64,
        index: &PropertyIndex,
        memory: &NarrowingMemory,
    ) -> Sqlite<bool> {
        let scan = self.scan;
        let Some(by) = scan.by.as_deref().filter(|_| !scan.spans.is_empty()) else { return Ok(true) };
        if let Some(keys) = self.few_keys(db, bucket, memory)? {
            if self.sorted(db, index, by, keys)? {
                return Ok(true);
            }
            memory.dense.put(filter_number(bucket >> 16, &scan.by_keys()));
        }
        memory.uses.count_one(index.index_no);
        for range in OrderedRange::all(by, scan.order) {
            let mut statement = match db.prepare_cached(&range.statement(index, scan.order)) {
                Err(error) if is_missing(&error) => return Ok(false),
                statement => statement?,
            };
            let is_complete = match self.take(range.walk(&mut statement)?) {
                // A cached statement may be older than the removal of the index.
                Err(error) if is_missing(&error) => return Ok(false),
                is_complete => is_complete?,
            };
            if is_complete {
                break;
            }
        }
        Ok(true)
    }

    /// Returns the keys that can match, if other indexes or the filter's partitions leave few.
    fn few_keys(
        &mut self,
        db: &Connection,
        bucket: i64,
        memory: &NarrowingMemory,
    ) -> Sqlite<Option<Vec<Key>>> {
        let by_keys = self.scan.by_keys();
        if by_keys.spans.iter().any(|span| span.partition().is_none()) {
            let narrowed = narrow(db, bucket >> 16, &by_keys, memory)?;
            (self.end.examined, self.end.narrowed_by) = (narrowed.entries, narrowed.choice);
            let points = narrowed.points.unwrap_or_default();
            let keys = points.into_iter().map(|point| point.lower).collect();
            return Ok(narrowed.choice.map(|_| keys));
        }
        let filter = filter_number(bucket >> 16, &by_keys);
        if memory.dense.has(filter) {
            return Ok(None);
        }
        let mut keys = Vec::new();
        for range in by_keys.spans.iter().flat_map(|span| ranges(span, by_keys.order)) {
            let mut statement = db.prepare_cached(range.statement(by_keys.order))?;
            let mut rows = range.walk(&mut statement, bucket)?;
            while let Some(row) = rows.next()? {
                if keys.len() == MAX_ENTRIES {
                    memory.dense.put(filter);
                    return Ok(None);
                }
                keys.push(key(row)?);
            }
        }
        Ok(Some(keys))
    }

    /// Sorts the matches among few entities, and reads those of the page; `false` after a timeout before the first
    /// match. An index scan can resume from a position.
    fn sorted(
        &mut self,
        db: &Connection,
        index: &PropertyIndex,
        by: &ValueOrder,
        keys: Vec<Key>,
    ) -> Sqlite<bool> {
        let mut statement = db.prepare_cached(&entries::row(index))?;
        let mut found = Vec::new();
        for key in keys {
            let mut rows = statement.query((&key.partition, &key.row))?;
            let Some(row) = rows.next()? else { continue };
            self.end.examined += 1;
            if !self.walk.row() {
                return Ok(false);
            }
            if !self.pass(row)? {
                return Ok(true);
            }
            match self.matches(row)? {
                Ok(true) => found.push((entry_of(row, index.kind)?, key)),
                Ok(false) => {}
                Err(error) => {
                    self.failure = Some(error);
                    return Ok(true);
                }
            }
        }
        let order = self.scan.order;
        let compare = |a: &(Option<IndexValue>, Key), b: &(Option<IndexValue>, Key)| {
            let entries = a.0.partial_cmp(&b.0).unwrap_or(Ordering::Equal);
            let ascending = entries.then_with(|| a.1.cmp(&b.1));
            if order == PageOrder::Ascending { ascending } else { ascending.reverse() }
        };
        found.sort_by(compare);
        if let Some(IndexPosition { entry, key, .. }) = by.from.clone() {
            let from = (entry, key);
            found.retain(|position| compare(position, &from) != Ordering::Less);
        }
        for (_, key) in found {
            let rows = statement.query((&key.partition, &key.row))?;
            if self.take(rows)? {
                break;
            }
        }
        Ok(self.scan.rows == 0 || self.end.entities > 0 || self.end.next_in_index.take().is_none())
    }

    /// Ends the page before a row.
    fn stop_at(&mut self, row: &Row<'_>) -> Sqlite<bool> {
        let index = self.scan.by.as_ref().and_then(|by| by.index.as_ref());
        match index {
            None => self.end.next = Some(self.scan.order.at(key(row)?)),
            Some(index) => {
                let (index_no, entry, key) = (index.index_no, entry_of(row, index.kind)?, key(row)?);
                self.end.next_in_index = Some(IndexPosition { index_no, entry, key });
            }
        }
        Ok(true)
    }

    /// Adds rows until a limit is reached; returns whether the page is complete.
    fn take(&mut self, mut rows: rusqlite::Rows<'_>) -> Sqlite<bool> {
        while let Some(row) = rows.next()? {
            self.end.examined += 1;
            if !self.walk.row() {
                return self.stop_at(row);
            }
            let is_match = match self.matches(row)? {
                Ok(is_match) => is_match,
                Err(error) => {
                    self.failure = Some(error);
                    return Ok(true);
                }
            };
            let is_costly = self.residual.as_ref().is_some_and(Prepared::is_costly);
            if (is_costly || !is_match) && !self.pass(row)? {
                return Ok(true);
            }
            if !is_match {
                continue;
            }
            let seen = borrowed(row)?;
            if self.is_full_for(seen) {
                return self.stop_at(row);
            }
            self.keep(seen);
        }
        Ok(false)
    }

    /// Adds the cost of a row; `false` if the page has to be read again with a permit.
    fn pass(&mut self, row: &Row<'_>) -> Sqlite<bool> {
        let bytes = row.get_ref(PROPERTIES)?.as_bytes()?.len();
        let cost = self.residual.as_ref().map_or(bytes, |residual| residual.cost(bytes));
        if !self.walk.pass(cost) {
            self.needs_permit = true;
            self.into.restart();
        }
        Ok(!self.needs_permit)
    }

    fn is_full_for(&self, entity: BorrowedEntity<'_>) -> bool {
        let kept = self.end.entities;
        kept >= self.scan.rows || (kept > 0 && self.bytes + entity.weight() > self.scan.bytes)
    }

    /// Whether a row matches. If the filter needs only properties, other columns of rejected rows are not read.
    fn matches(&self, row: &Row<'_>) -> Sqlite<Result<bool, Error>> {
        // Key ranges do not bound a scan in the order of an index.
        if self.scan.by.is_some() && !contain(&self.scan.spans, &key(row)?, PageOrder::Ascending) {
            return Ok(Ok(false));
        }
        let Some(residual) = &self.residual else { return Ok(Ok(true)) };
        Ok(match residual.matches_properties(row.get_ref(PROPERTIES)?.as_bytes()?) {
            Ok(None) => residual.matches(borrowed(row)?),
            Ok(Some(matches)) => Ok(matches),
            Err(error) => Err(error),
        })
    }

    fn keep(&mut self, mut entity: BorrowedEntity<'_>) {
        if self.scan.projection == Projection::SystemOnly {
            entity.properties = "{}";
        }
        self.bytes += entity.weight();
        self.end.entities += 1;
        self.into.take(entity);
    }
}

/// Columns of the statements in [`ranges`](super::ranges).
const PARTITION: usize = 0;
const ROW: usize = 1;
const MODIFIED: usize = 2;
const PROPERTIES: usize = 3;
/// A column of the statements in the order of an index.
const ENTRY: usize = 4;

fn entry_of(row: &Row<'_>, kind: IndexKind) -> Sqlite<Option<IndexValue>> {
    Ok(match row.get_ref(ENTRY)? {
        ValueRef::Text(_) => Some(IndexValue::Text(row.get(ENTRY)?)),
        ValueRef::Real(number) => Some(IndexValue::Number(number)),
        ValueRef::Integer(raw) if kind == IndexKind::Timestamp => {
            Ticks::stored(raw).map(IndexValue::Timestamp)
        }
        ValueRef::Integer(value) => Some(IndexValue::Boolean(value != 0)),
        ValueRef::Null | ValueRef::Blob(_) => None,
    })
}

/// Converts a row to a borrowed entity.
fn borrowed<'a>(row: &'a Row<'_>) -> Sqlite<BorrowedEntity<'a>> {
    Ok(BorrowedEntity {
        partition: row.get_ref(PARTITION)?.as_str()?,
        row: row.get_ref(ROW)?.as_str()?,
        modified: ticks(row, MODIFIED)?,
        properties: row.get_ref(PROPERTIES)?.as_str()?,
        order: PropertyOrder::AsStored,
    })
}

fn key(row: &Row<'_>) -> Sqlite<Key> {
    Ok(Key::new(row.get_ref(PARTITION)?.as_str()?, row.get_ref(ROW)?.as_str()?))
}
