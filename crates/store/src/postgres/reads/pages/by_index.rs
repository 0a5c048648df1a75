//! Reads a part of a table in the order of an index.
//!
//! The reader scans the index in windows of rows, and compares the rows with the whole filter and the key ranges. If
//! other indexes, or the filter's partitions, leave few keys, it sorts these instead, unless that takes too long.

use std::ops::ControlFlow;
use std::time::Duration;

use sqlx::postgres::PgRow;

use super::ordered::{Ordered, number};
use super::page::{HeldPage, HeldRows, Mark, OrderedRow, PartRows, Residual, stream};
use super::reader::{Cursor, FIRST, FIRST_LOCAL, GROWTH, PageReader, PartScan, Window, WindowPace};
use crate::Fault;
use crate::contract::indexes::filter_number;
use crate::postgres::connections::lease::Lease;
use crate::postgres::connections::statement_watch::StreamEnd;
use crate::postgres::fault::StatementError;
use crate::postgres::reads::filter::{self, Binds};
use crate::postgres::reads::narrow::{bind, entry_of};
use crate::postgres::reads::sources::{self, Source};
use crate::postgres::rows::{entity, key};
use crate::postgres::state::table_ids::TableId;
use crate::postgres::statements::indexes::{OrderedFrom, OrderedRows, is_short};
use crate::protocol::model::PageOrder;
use crate::protocol::plan::index::{IndexPosition, IndexValue, OrderPart};
use crate::protocol::plan::span::contain;
use crate::protocol::plan::{Projection, Span};

/// Maximum key ranges in a statement. Rowhouse alone evaluates longer lists.
const MAX_RANGES: usize = 16;
const PACE: WindowPace = WindowPace { largest: 8192, quick: Duration::from_millis(200), slow: Duration::MAX };

impl<'a> Ordered<'a> {
    /// Reads the first rows of a part of the table in order. `points` are the only keys that can match, if they are
    /// known to be few.
    pub(super) async fn read_part(self, mut points: Option<Vec<Span>>) -> Result<PartRows, StatementError> {
        let of = self.of;
        let (mut rows, scan) = (Vec::new(), of.scan);
        let mut page = HeldPage::new(scan, &mut rows);
        if scan.spans.is_empty() || points.as_ref().is_some_and(Vec::is_empty) {
            return Ok(PartRows::default());
        }
        let mut lease = of.acquire().await?;
        if points.is_none() {
            points = self.few_points(&mut lease, &mut page).await?;
        }
        let walked = match self.walk(points.as_deref(), &mut lease, &mut page).await {
            // An index scan can resume from a position and ends at the time limit.
            Err(StatementError::Fault(Fault::Timeout)) if points.is_some() => {
                lease.roll_back().await;
                let filter = filter_number(of.part.table_id.table_no, &scan.by_keys());
                of.store.narrowing.dense.put(filter);
                page.restart();
                self.walk(None, &mut lease, &mut page).await
            }
            walked => walked,
        };
        if matches!(walked, Ok(()) | Err(StatementError::NeedsPermit)) {
            lease.end_snapshot().await;
        }
        walked?;
        let has_seen_rows = page.has_seen_rows;
        Ok(PartRows { end: page.into_end(), rows, has_seen_rows })
    }

    /// Reads the parts of the order until the page ends.
    async fn walk(
        self,
        points: Option<&[Span]>,
        lease: &mut Lease,
        page: &mut HeldPage<'_>,
    ) -> Result<(), StatementError> {
        let parts = self.by.parts(self.of.scan.order);
        let cursor = |parts| IndexCursor::new(self, points, parts);
        let all = cursor(&parts);
        let mut rows = all.first_window();
        all.begin(lease, self.of.limit).await?;
        if points.is_none() {
            self.of.store.narrowing.uses.count_one(self.index.index_no);
        }
        if all.takes_every_row() && parts.len() > 1 {
            match PageReader::new(self.of, cursor(&parts), rows, PACE).read(lease, page).await {
                Err(StatementError::Fault(Fault::Timeout)) if rows > 1 => {
                    lease.roll_back().await;
                    page.restart();
                    rows = (rows / GROWTH).max(1);
                    all.begin(lease, self.of.limit.filter(|_| rows > 1)).await?;
                }
                read => return read,
            }
        }
        for part in parts.chunks(1) {
            PageReader::new(self.of, cursor(part), rows, PACE).read(lease, page).await?;
            if page.has_ended() {
                break;
            }
        }
        Ok(())
    }

    /// Returns the keys that can match, if other indexes or the filter's partitions leave few.
    async fn few_points(
        self,
        lease: &mut Lease,
        page: &mut HeldPage<'_>,
    ) -> Result<Option<Vec<Span>>, StatementError> {
        let (of, scan) = (self.of, self.of.scan.by_keys());
        let by_keys = PartScan { scan: &scan, ..of };
        if scan.spans.iter().all(|span| span.partition().is_some()) {
            lease.begin_snapshot(of.limit).await?;
            by_keys.keys_of_partitions(lease, page).await
        } else if of.part.bucket.is_some() {
            Ok(None)
        } else {
            by_keys.narrowed(lease, page).await
        }
    }
}

/// A cursor in the order of an index.
struct IndexCursor<'a> {
    ordered: Ordered<'a>,
    /// The only keys that can match, if they are known to be few.
    points: Option<&'a [Span]>,
    parts: &'a [OrderPart<'a>],
    /// The position in the first part; `None` at its start.
    from: Option<IndexPosition>,
}

impl<'a> IndexCursor<'a> {
    fn new(ordered: Ordered<'a>, points: Option<&'a [Span]>, parts: &'a [OrderPart<'a>]) -> Self {
        Self { ordered, points, parts, from: parts.first().and_then(|part| part.from).cloned() }
    }

    /// Rows of the first window: all required rows, if each of them belongs to the page.
    fn first_window(&self) -> usize {
        let scan = self.ordered.of.scan;
        match &self.points {
            _ if !self.is_decided() => FIRST_LOCAL,
            Some(points) => points.len(),
            None if self.takes_every_row() => scan.rows,
            None => FIRST,
        }
    }

    /// Whether every row belongs to the page, so that the first window has all of them.
    fn takes_every_row(&self) -> bool {
        let scan = self.ordered.of.scan;
        self.points.is_none() && scan.residual.is_none() && scan.spans == [Span::everything()]
    }

    /// Whether PostgreSQL also evaluates the key ranges, so that it sends only matches.
    fn is_decided(&self) -> bool {
        !self.ordered.of.residual.is_local() && self.ordered.of.scan.spans.len() <= MAX_RANGES
    }

    /// Returns the statement that reads a window of rows of each part.
    fn source(&self, (rows, matches): (usize, usize)) -> Result<Source, StatementError> {
        let mut binds = Binds::default();
        binds.add(self.ordered.of.part.table_id.table_no)?;
        let limit = if self.takes_every_row() { rows.min(matches) } else { rows };
        let limit = binds.add(limit as i64)?;
        let mut texts = Vec::with_capacity(self.parts.len());
        for (at, part) in self.parts.iter().enumerate() {
            let from = self.from.as_ref().filter(|_| at == 0);
            texts.push(if self.takes_every_row() {
                let ordered = self.ordered_rows(*part, from, (&limit, &limit), &mut binds)?;
                ordered.every_row(sources::all_buckets(self.ordered.of.part).into_iter(), self.projection())
            } else {
                let matches = binds.add(matches as i64)?;
                let ordered = self.ordered_rows(*part, from, (&limit, &matches), &mut binds)?;
                self.filtered(&ordered, &mut binds)?
            });
        }
        // PostgreSQL reads the parts in sequence, and only as many as it needs.
        let text = match texts.as_slice() {
            [text] => text.clone(),
            texts => format!("{} LIMIT {limit}", texts.join(" UNION ALL ")),
        };
        Ok(Source::composed(text, binds))
    }

    /// The rows of a part from a position on.
    fn ordered_rows(
        &self,
        part: OrderPart<'_>,
        from: Option<&IndexPosition>,
        (limit, matches): (&str, &str),
        binds: &mut Binds,
    ) -> Result<OrderedRows<'_>, StatementError> {
        let Ordered { of: PartScan { scan, .. }, by, index } = self.ordered;
        let range = by.range.as_ref();
        let mut bound = |value: Option<&IndexValue>| value.map(|value| bind(binds, value)).transpose();
        let (lower, upper) =
            (bound(range.and_then(|r| r.lower.as_ref()))?, bound(range.and_then(|r| r.upper.as_ref()))?);
        let from = match from {
            Some(IndexPosition { entry, key, .. }) => Some(OrderedFrom {
                entry: entry.as_ref().map(|value| bind(binds, value)).transpose()?,
                pk: binds.add(key.partition.as_str())?,
                rk: binds.add(key.row.as_str())?,
                is_short: is_short(&key.partition) && is_short(&key.row),
            }),
            None => None,
        };
        let (order, has_entries) = (scan.order, part.has_entries);
        let (limit, matches) = (limit.to_owned(), matches.to_owned());
        Ok(OrderedRows { index, order, has_entries, lower, upper, from, limit, matches })
    }

    /// Returns the statement of the rows that match the conditions that PostgreSQL evaluates.
    fn filtered(&self, ordered: &OrderedRows<'_>, binds: &mut Binds) -> Result<String, StatementError> {
        let part = self.ordered.of.part;
        let empty = binds.empty_object()?;
        let source = match self.points {
            Some(points) => {
                let (buckets, pks, rks) = columns(points, part.table_id);
                ordered.of_points(&binds.add(buckets)?, &binds.add(pks)?, &binds.add(rks)?)
            }
            None => ordered.of_buckets(sources::all_buckets(part).into_iter()),
        };
        let condition = self.condition(binds)?;
        Ok(ordered.filtered(&source, &condition, self.projection(), &empty))
    }

    /// The filter and the key ranges, as far as PostgreSQL evaluates them.
    fn condition(&self, binds: &mut Binds) -> Result<String, StatementError> {
        let scan = self.ordered.of.scan;
        let mut conditions = vec!["true".to_owned()];
        if let Residual::Pushed(predicate) = self.ordered.of.residual {
            conditions.push(filter::fragment(predicate, binds)?);
        }
        if scan.spans.len() <= MAX_RANGES && scan.spans != [Span::everything()] {
            conditions.push(sources::in_spans(&scan.spans, binds)?);
        }
        Ok(format!("({})", conditions.join(" AND ")))
    }

    /// Local evaluation of a filter needs the properties.
    fn projection(&self) -> Projection {
        if self.ordered.of.residual.is_local() { Projection::Full } else { self.ordered.of.scan.projection }
    }
}

/// Converts keys to parallel arrays.
fn columns(points: &[Span], table_id: TableId) -> (Vec<i64>, Vec<&str>, Vec<&str>) {
    let buckets = points.iter().map(|span| table_id.bucket(&span.lower.partition)).collect();
    let pks = points.iter().map(|span| span.lower.partition.as_str()).collect();
    (buckets, pks, points.iter().map(|span| span.lower.row.as_str()).collect())
}

impl Cursor for IndexCursor<'_> {
    type Rows = Vec<OrderedRow>;
    const IS_TIMED_AT_ONCE: bool = false;

    /// Opens the snapshot of the page, unless the key lookup has already opened it.
    async fn begin(&self, lease: &mut Lease, limit: Option<Duration>) -> Result<(), StatementError> {
        match (&self.points, lease.is_in_transaction()) {
            (None, true) => lease.avoid_sorts().await,
            (None, false) => lease.begin_snapshot_without_sorts(limit).await,
            (Some(_), true) => Ok(()),
            (Some(_), false) => lease.begin_snapshot(limit).await,
        }
    }

    async fn window(
        &mut self,
        window: &mut Window,
        lease: &mut Lease,
        page: &mut HeldPage<'_>,
    ) -> Result<bool, StatementError> {
        let (ordered, rows) = (self.ordered, window.rows);
        let is_decided = self.is_decided();
        let matches = if is_decided { page.missing() } else { rows + 1 };
        let source = self.source((rows + 1, matches))?;
        let with_properties = self.projection() == Projection::Full;
        let takes_every_row = self.takes_every_row();
        let (mut held, mut examined, mut edge) = (HeldRows::new(rows), 0, None);
        let mut visit = |row: &PgRow| {
            page.has_seen_rows = true;
            examined = if takes_every_row { examined + 1 } else { number(row, with_properties)? };
            let column = if with_properties { 4 } else { 3 };
            let entry = entry_of(row, column, ordered.index.kind)?;
            let entity = entity(row, with_properties)?;
            if examined > rows {
                edge = Some(ordered.position(entry, key(row)?));
                return Ok(ControlFlow::Break(()));
            }
            if is_decided {
                return Ok(page.offer(entity, entry, |entry, key| ordered.position(entry, key)));
            }
            let is_here = contain(&ordered.of.scan.spans, &key(row)?, PageOrder::Ascending);
            let held_row = || OrderedRow { entry: entry.clone(), entity: entity.to_stored() };
            if !is_here || held.take(entity.weight(), held_row) {
                return Ok(ControlFlow::Continue(()));
            }
            edge = Some(ordered.position(entry, key(row)?));
            Ok(ControlFlow::Break(()))
        };
        // The text already has the order of the page.
        let end = stream(lease, source, PageOrder::Ascending, &mut visit).await?;
        page.count_examined(examined.min(rows) as u64);
        if !is_decided {
            window.fitting = held.fitting();
            edge = self.offer_matches(held.rows, page).await?.or(edge);
        }
        if end == StreamEnd::CutOff {
            page.end_at_position(edge.clone());
        }
        let has_more = edge.is_some();
        if has_more {
            self.from = edge;
        }
        Ok(has_more)
    }

    fn end(&self, page: &mut HeldPage<'_>) {
        page.end_at_position(self.from.clone());
    }

    /// A position points to unread rows. Without a position, the part restarts.
    fn end_cut_off(&self, page: &mut HeldPage<'_>, mark: Mark, has_advanced: bool) {
        if self.from.is_some() && (has_advanced || mark.rows > 0) {
            page.truncate(mark);
            page.end_at_position(self.from.clone());
        }
    }

    /// Fewer rows take less time, unless the statement sorts all rows.
    fn retreat(&self, page: &mut HeldPage<'_>, mark: Mark) -> bool {
        page.truncate(mark);
        // The snapshot that showed these rows is discarded.
        page.has_seen_rows = false;
        self.points.is_none() && self.parts.len() == 1
    }
}

impl IndexCursor<'_> {
    /// Evaluates the filter and takes the matching rows. Returns the position of the first unread row, unless the
    /// page ends before it.
    async fn offer_matches(
        &self,
        rows: Vec<OrderedRow>,
        page: &mut HeldPage<'_>,
    ) -> Result<Option<IndexPosition>, StatementError> {
        let (rows, matches) = match self.ordered.of.residual {
            Residual::Local(filter) => self.ordered.of.turn.evaluate(filter, rows).await?,
            Residual::None | Residual::Pushed(_) => {
                let matches = vec![true; rows.len()];
                (rows, matches)
            }
        };
        let evaluated = matches.len();
        for (row, _) in rows.iter().zip(matches).filter(|(_, is_match)| *is_match) {
            let position = |entry, key| self.ordered.position(entry, key);
            if page.offer((&row.entity).into(), row.entry.clone(), position).is_break() {
                return Ok(None);
            }
        }
        Ok(rows.into_iter().nth(evaluated).map(|row| self.ordered.position(row.entry, row.entity.key)))
    }
}
