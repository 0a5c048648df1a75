//! Pages of entities. SQLite runs in this process, so predicates are evaluated in Rust, row by row.

use rusqlite::{Connection, Row};

use crate::error::{Code, Error};
use crate::protocol::model::entity::{BorrowedEntity, PropertyOrder};
use crate::protocol::model::{Key, TableRef};
use crate::protocol::plan::predicate::Prepared;
use crate::protocol::plan::{PageEnd, Projection, Scan};
use crate::store::contract::indexes::NarrowingMemory;
use crate::store::sqlite::catalog::tables::bucket_of;
use crate::store::sqlite::connections::scan_limit::{ScanCounter, ScanStep};
use crate::store::sqlite::reads::narrow::narrow;
use crate::store::sqlite::reads::ranges::ranges;
use crate::store::sqlite::rows::{Sqlite, ticks};
use crate::store::{Collect, StoreResult};

/// Reads one page of a query.
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
    let narrowed = narrow(db, bucket >> 16, scan, memory)?;
    (page.end.examined, page.end.narrowed_by) = (narrowed.entries, narrowed.choice);
    let spans = narrowed.points.as_deref().unwrap_or(&scan.spans);
    for range in spans.iter().flat_map(|span| ranges(span, scan.order)) {
        let mut statement = db.prepare_cached(range.statement(scan.order))?;
        if page.take(range.walk(&mut statement, bucket)?)? {
            break;
        }
    }
    Ok(match (page.failure, page.needs_permit) {
        (Some(error), _) => Err(error.into()),
        (None, true) => Ok(ScanStep::NeedsPermit),
        (None, false) => Ok(ScanStep::Done(page.end)),
    })
}

/// A page that is being read.
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

    /// Adds rows until a limit is reached; returns whether the page is complete.
    fn take(&mut self, mut rows: rusqlite::Rows<'_>) -> Sqlite<bool> {
        while let Some(row) = rows.next()? {
            self.end.examined += 1;
            if !self.walk.row() {
                self.end.next = Some(self.scan.order.at(key(row)?));
                return Ok(true);
            }
            match self.matches(row)? {
                Ok(true) => {}
                Ok(false) if self.walk.has_permit() => continue,
                Ok(false) if self.walk.pass(row.get_ref(PROPERTIES)?.as_bytes()?.len()) => continue,
                Ok(false) => {
                    self.needs_permit = true;
                    self.into.restart();
                    return Ok(true);
                }
                Err(error) => {
                    self.failure = Some(error);
                    return Ok(true);
                }
            }
            let seen = borrowed(row)?;
            if self.is_full_for(seen) {
                self.end.next = Some(self.scan.order.at(key(row)?));
                return Ok(true);
            }
            self.keep(seen);
        }
        Ok(false)
    }

    fn is_full_for(&self, entity: BorrowedEntity<'_>) -> bool {
        let kept = self.end.entities;
        kept >= self.scan.rows || (kept > 0 && self.bytes + entity.weight() > self.scan.bytes)
    }

    /// Whether a row matches. If the filter uses only properties, nothing else is read of rows that do not.
    fn matches(&self, row: &Row<'_>) -> Sqlite<Result<bool, Error>> {
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

/// Columns of the statements of [`ranges`](super::ranges).
const PARTITION: usize = 0;
const ROW: usize = 1;
const MODIFIED: usize = 2;
const PROPERTIES: usize = 3;

/// Returns a row as a borrowed entity.
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
