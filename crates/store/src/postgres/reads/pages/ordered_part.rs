//! The rows of a part of a table in the order of an index.
//!
//! The index is read in windows of rows, which are compared with the whole filter and the ranges of keys.
//! If other indexes, or partitions that the filter names, leave few keys, these are sorted instead,
//! unless that takes too long.

use std::ops::ControlFlow;
use std::time::{Duration, Instant};

use sqlx::postgres::PgRow;

use super::ordered_rows::{Ordered, OrderedRow, PartRows, entry_of, number};
use super::reading::Reading;
use super::streamed::{HeldRows, Residual, stream};
use super::walk::{FIRST_LOCAL, Windows};
use crate::Fault;
use crate::contract::indexes::filter_number;
use crate::postgres::PgStore;
use crate::postgres::connections::lease::Lease;
use crate::postgres::connections::statement_watch::StreamEnd;
use crate::postgres::fault::StatementError;
use crate::postgres::reads::binds::Binds;
use crate::postgres::reads::narrow::bind;
use crate::postgres::reads::turn::ScanTurn;
use crate::postgres::reads::{filter, sources};
use crate::postgres::rows::{entity, key};
use crate::postgres::state::table_ids::{TableId, TablePart};
use crate::postgres::statements::indexes::{OrderedFrom, OrderedRows, is_short};
use crate::protocol::model::PageOrder;
use crate::protocol::plan::index::{IndexPosition, IndexValue, OrderPart};
use crate::protocol::plan::span::contain;
use crate::protocol::plan::{PageEnd, Projection, Span};

/// Rows of the first window with a filter, and of the largest.
const FIRST: usize = 256;
const LARGEST: usize = 8192;
/// Factor between the sizes of two windows.
const GROWTH: usize = 8;
/// A window that took less time is followed by a larger one.
const QUICK: Duration = Duration::from_millis(200);
/// Ranges of keys that a statement compares rows with; more are compared here alone.
const MAX_RANGES: usize = 16;

/// The read of a part of the table.
pub(super) struct PartRead<'a> {
    pub ordered: Ordered<'a>,
    pub store: &'a PgStore,
    pub turn: &'a ScanTurn<'a>,
    pub part: TablePart,
    /// The only keys that can match, if they are known to be few.
    pub points: Option<Vec<Span>>,
}

impl PartRead<'_> {
    /// Reads the first rows of the part in order.
    pub(super) async fn read(mut self) -> Result<PartRows, StatementError> {
        let scan = self.ordered.scan;
        let (mut found, started) = (PartRows::default(), Instant::now());
        if scan.spans.is_empty() || self.points.as_ref().is_some_and(Vec::is_empty) {
            return Ok(found);
        }
        let (nodes, lock_wait) = (&self.store.nodes, self.turn.lock_wait);
        let mut lease = match self.part.bucket {
            Some(bucket) => nodes.acquire_at(bucket, lock_wait).await?,
            None => nodes.acquire_for(lock_wait).await?,
        };
        let limit = Some(scan.time).filter(|time| *time < self.store.operation_timeout);
        if self.points.is_none() {
            self.points = self.few_points(&mut lease, &mut found, (limit, started)).await?;
        }
        let walked = match self.walk(&mut lease, (limit, started), &mut found).await {
            // The order of the index has positions to go on from, and ends with the time.
            Err(StatementError::Fault(Fault::Timeout)) if self.points.is_some() => {
                lease.roll_back().await;
                let filter = filter_number(self.part.table_id.table_no, &scan.by_keys());
                self.store.narrowing.dense.put(filter);
                (self.points, found) = (None, PartRows { examined: found.examined, ..PartRows::default() });
                self.walk(&mut lease, (limit, started), &mut found).await
            }
            walked => walked,
        };
        if matches!(walked, Ok(()) | Err(StatementError::NeedsPermit)) {
            lease.end_snapshot().await;
        }
        walked.map(|()| found)
    }

    /// Reads the parts of the order, until the page ends.
    async fn walk(
        &self,
        lease: &mut Lease,
        (limit, started): (Option<Duration>, Instant),
        found: &mut PartRows,
    ) -> Result<(), StatementError> {
        let Ordered { scan, by, index } = self.ordered;
        self.begin(lease, limit).await?;
        if self.points.is_none() {
            self.store.narrowing.uses.count_one(index.index_no);
        }
        let (parts, mut rows) = (by.parts(scan.order), self.first_window());
        let windows = |rows| Windowed { read: self, limit, started, rows, fitting: LARGEST.max(rows) };
        if self.takes_every_row() && parts.len() > 1 {
            match windows(rows).walk(lease, &parts, found).await {
                // Fewer rows take less time.
                Err(StatementError::Fault(Fault::Timeout)) if rows > 1 => {
                    lease.roll_back().await;
                    *found = PartRows { examined: found.examined, ..PartRows::default() };
                    rows = (rows / GROWTH).max(1);
                    self.begin(lease, limit.filter(|_| rows > 1)).await?;
                }
                read => return read,
            }
        }
        for part in parts.chunks(1) {
            windows(rows).walk(lease, part, found).await?;
            if found.next.is_some() {
                break;
            }
        }
        Ok(())
    }

    /// Opens the snapshot of the page, unless the keys that can match were read in it.
    async fn begin(&self, lease: &mut Lease, limit: Option<Duration>) -> Result<(), StatementError> {
        match (&self.points, lease.is_in_transaction()) {
            (None, true) => lease.avoid_sorts().await,
            (None, false) => lease.begin_snapshot_without_sorts(limit).await,
            (Some(_), _) => begin(lease, limit).await,
        }
    }

    /// The keys that can match, if other indexes or the partitions of the filter leave few.
    async fn few_points(
        &self,
        lease: &mut Lease,
        found: &mut PartRows,
        (limit, started): (Option<Duration>, Instant),
    ) -> Result<Option<Vec<Span>>, StatementError> {
        let scan = self.ordered.scan.by_keys();
        let (reading, mut end) = (Reading::of(&scan), PageEnd::default());
        let points = if scan.spans.iter().all(|span| span.partition().is_some()) {
            begin(lease, limit).await?;
            // Half of the time is left for the page.
            let until = started + scan.time / 2;
            reading.keys_of_partitions(self.store, self.part, lease, (&mut end, until)).await?
        } else if self.part.bucket.is_some() {
            None
        } else {
            let walk = Windows::new(self.part, Residual::None, &scan, (limit, self.turn));
            reading.narrowed(self.store, self.part.table_id, &walk, lease, &mut end).await?
        };
        (found.examined, found.narrowed_by) = (end.examined, end.narrowed_by);
        Ok(points)
    }

    /// Rows of the first window: all that are needed, if each of them is one of the page.
    fn first_window(&self) -> usize {
        let Ordered { scan, .. } = self.ordered;
        match &self.points {
            _ if !self.is_decided() => FIRST_LOCAL,
            Some(points) => points.len(),
            None if self.takes_every_row() => scan.rows,
            None => FIRST,
        }
    }

    /// Whether each row is one of the page, so that the first window has all of them.
    fn takes_every_row(&self) -> bool {
        let scan = self.ordered.scan;
        self.points.is_none() && scan.residual.is_none() && scan.spans == [Span::everything()]
    }

    /// Whether PostgreSQL evaluates the filter.
    fn is_pushed(&self) -> bool {
        self.ordered.scan.residual.as_ref().is_none_or(filter::is_pushable)
    }

    /// Whether PostgreSQL compares rows with the ranges of keys too, so that it sends only matches.
    fn is_decided(&self) -> bool {
        self.is_pushed() && self.ordered.scan.spans.len() <= MAX_RANGES
    }

    /// Returns the statement of a window of rows of each part, from a position in the first part on.
    fn source(
        &self,
        parts: &[OrderPart<'_>],
        from: Option<&IndexPosition>,
        (rows, matches): (usize, usize),
    ) -> Result<sources::Source, StatementError> {
        let TablePart { table_id, bucket } = self.part;
        let mut binds = Binds::default();
        binds.add(table_id.table_no)?;
        let limit = if self.takes_every_row() { rows.min(matches) } else { rows };
        let limit = binds.add(limit as i64)?;
        let mut texts = Vec::with_capacity(parts.len());
        for (at, part) in parts.iter().enumerate() {
            let from = from.filter(|_| at == 0);
            texts.push(if self.takes_every_row() {
                let ordered = self.ordered_rows(*part, from, (&limit, &limit), &mut binds)?;
                match bucket {
                    Some(bucket) => ordered.every_row(std::iter::once(bucket), self.projection()),
                    None => ordered.every_row(table_id.buckets(), self.projection()),
                }
            } else {
                let matches = binds.add(matches as i64)?;
                let ordered = self.ordered_rows(*part, from, (&limit, &matches), &mut binds)?;
                self.filtered(&ordered, &mut binds)?
            });
        }
        // The database reads one part after the other, as far as it needs them.
        let text = match texts.as_slice() {
            [text] => text.clone(),
            texts => format!("{} LIMIT {limit}", texts.join(" UNION ALL ")),
        };
        Ok(sources::Source::composed(text, binds))
    }

    /// The rows of a part from a position on.
    fn ordered_rows(
        &self,
        part: OrderPart<'_>,
        from: Option<&IndexPosition>,
        (limit, matches): (&str, &str),
        binds: &mut Binds,
    ) -> Result<OrderedRows<'_>, StatementError> {
        let Ordered { scan, by, index } = self.ordered;
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

    /// Returns the statement of those rows that match, as far as PostgreSQL decides that.
    fn filtered(&self, ordered: &OrderedRows<'_>, binds: &mut Binds) -> Result<String, StatementError> {
        let TablePart { table_id, bucket } = self.part;
        let empty = binds.empty_object()?;
        let source = match (&self.points, bucket) {
            (Some(points), _) => {
                let (buckets, pks, rks) = columns(points, table_id);
                ordered.of_points(&binds.add(buckets)?, &binds.add(pks)?, &binds.add(rks)?)
            }
            (None, Some(bucket)) => ordered.of_buckets(std::iter::once(bucket)),
            (None, None) => ordered.of_buckets(table_id.buckets()),
        };
        let condition = self.condition(binds)?;
        Ok(ordered.filtered(&source, &condition, self.projection(), &empty))
    }

    /// The filter and the ranges of keys, as far as PostgreSQL compares them.
    fn condition(&self, binds: &mut Binds) -> Result<String, StatementError> {
        let scan = self.ordered.scan;
        let mut conditions = vec!["true".to_owned()];
        if let Some(predicate) = scan.residual.as_ref().filter(|_| self.is_pushed()) {
            conditions.push(filter::fragment(predicate, binds)?);
        }
        if scan.spans.len() <= MAX_RANGES && scan.spans != [Span::everything()] {
            conditions.push(sources::in_spans(&scan.spans, binds)?);
        }
        Ok(format!("({})", conditions.join(" AND ")))
    }

    /// A filter that is evaluated here needs the properties.
    fn projection(&self) -> Projection {
        if self.is_pushed() { self.ordered.scan.projection } else { Projection::Full }
    }
}

/// Keys as parallel arrays.
fn columns(points: &[Span], table_id: TableId) -> (Vec<i64>, Vec<&str>, Vec<&str>) {
    let buckets = points.iter().map(|span| table_id.bucket(&span.lower.partition)).collect();
    let pks = points.iter().map(|span| span.lower.partition.as_str()).collect();
    (buckets, pks, points.iter().map(|span| span.lower.row.as_str()).collect())
}

async fn begin(lease: &mut Lease, limit: Option<Duration>) -> Result<(), StatementError> {
    if lease.is_in_transaction() {
        return Ok(());
    }
    match limit {
        Some(limit) => lease.begin_snapshot_within(limit).await,
        None => lease.begin_snapshot().await,
    }
}

/// The windows of one part of the order.
struct Windowed<'r> {
    read: &'r PartRead<'r>,
    limit: Option<Duration>,
    started: Instant,
    /// Rows of the next window.
    rows: usize,
    /// Maximum rows of a window that is held, by the size of the last ones.
    fitting: usize,
}

impl Windowed<'_> {
    /// Reads a part window by window, until the page or the part ends, or several parts in a single window.
    async fn walk(
        &mut self,
        lease: &mut Lease,
        parts: &[OrderPart<'_>],
        found: &mut PartRows,
    ) -> Result<(), StatementError> {
        let mut from = parts.first().and_then(|part| part.from).cloned();
        let mut has_advanced = !found.rows.is_empty();
        loop {
            let (before, kept) = (Instant::now(), (found.rows.len(), found.bytes));
            let edge = match self.window(lease, parts, from.as_ref(), found).await {
                // The page was full: only what it did not need took too long.
                Err(StatementError::Fault(Fault::Timeout)) if found.next.is_some() => {
                    lease.roll_back().await;
                    return Ok(());
                }
                // A position is where rows are still to be read: without one, the part begins anew.
                Err(StatementError::Fault(Fault::Timeout)) if has_advanced && from.is_some() => {
                    lease.roll_back().await;
                    found.truncate(kept);
                    found.next = from;
                    return Ok(());
                }
                // Fewer rows take less time, unless all are sorted for them.
                Err(StatementError::Fault(Fault::Timeout))
                    if self.rows > 1 && self.read.points.is_none() && parts.len() == 1 =>
                {
                    lease.roll_back().await;
                    found.truncate(kept);
                    // Seen in a snapshot that is given up.
                    found.has_seen_rows = false;
                    self.rows = (self.rows / GROWTH).max(1);
                    self.read.begin(lease, self.limit.filter(|_| self.rows > 1)).await?;
                    continue;
                }
                edge => edge?,
            };
            has_advanced = true;
            let Some(edge) = edge.filter(|_| found.next.is_none()) else { return Ok(()) };
            let (scan, turn) = (self.read.ordered.scan, self.read.turn);
            let is_out_of_time = self.started.elapsed() >= scan.time || turn.is_over(Some(lease));
            let is_over = found.rows.len() >= scan.rows || is_out_of_time;
            if is_over || self.read.is_pushed() && !turn.may_examine_more(found.examined)? {
                found.next = Some(edge);
                return Ok(());
            }
            if before.elapsed() < QUICK {
                self.rows = (self.rows * GROWTH).min(LARGEST.max(self.rows)).min(self.fitting);
            }
            from = Some(edge);
            self.keep_to_time(lease).await?;
        }
    }

    /// Makes the next statement end with the page's time.
    async fn keep_to_time(&self, lease: &mut Lease) -> Result<(), StatementError> {
        if self.limit.is_none() {
            return Ok(());
        }
        let left = self.read.ordered.scan.time.saturating_sub(self.started.elapsed());
        lease.limit_statements(left).await
    }

    /// Reads one window of each part; returns the position of the row after it, if there is one. The page may end
    /// before.
    async fn window(
        &mut self,
        lease: &mut Lease,
        parts: &[OrderPart<'_>],
        from: Option<&IndexPosition>,
        found: &mut PartRows,
    ) -> Result<Option<IndexPosition>, StatementError> {
        let Self { read, rows: window, .. } = *self;
        let Ordered { scan, index, .. } = read.ordered;
        let is_decided = read.is_decided();
        let missing = scan.rows.max(1).saturating_sub(found.rows.len()) + 1;
        let matches = if is_decided { missing } else { window + 1 };
        let source = read.source(parts, from, (window + 1, matches))?;
        let with_properties = read.projection() == Projection::Full;
        let takes_every_row = read.takes_every_row();
        let (mut held, mut examined, mut edge) = (HeldRows::new(window), 0, None);
        let mut visit = |row: &PgRow| {
            found.has_seen_rows = true;
            examined = if takes_every_row { examined + 1 } else { number(row, with_properties)? };
            let (entry, entity) =
                (entry_of(row, with_properties, index.kind)?, entity(row, with_properties)?);
            if examined > window {
                edge = Some(read.ordered.position(entry, key(row)?));
                return Ok(ControlFlow::Break(()));
            }
            if is_decided {
                return Ok(found.offer(read.ordered, entity, entry));
            }
            let is_here = contain(&scan.spans, &key(row)?, PageOrder::Ascending);
            let held_row = || OrderedRow { entry: entry.clone(), entity: entity.to_stored() };
            if !is_here || held.take(entity.weight(), held_row) {
                return Ok(ControlFlow::Continue(()));
            }
            edge = Some(read.ordered.position(entry, key(row)?));
            Ok(ControlFlow::Break(()))
        };
        // The statement is composed in its order.
        let end = stream(lease, source, PageOrder::Ascending, &mut visit).await?;
        found.examined += examined.min(window) as u64;
        if !is_decided {
            self.fitting = held.fitting(LARGEST);
            edge = read.offer_matches(held.rows, found).await?.or(edge);
        }
        if end == StreamEnd::CutOff {
            found.next = found.next.take().or_else(|| edge.clone());
        }
        Ok(edge)
    }
}

impl PartRead<'_> {
    /// Takes those rows that match the filter, which is evaluated here; returns the position of the first that
    /// is still to be read. The page may end before.
    async fn offer_matches(
        &self,
        rows: Vec<OrderedRow>,
        found: &mut PartRows,
    ) -> Result<Option<IndexPosition>, StatementError> {
        let filter = self.ordered.scan.residual.as_ref().filter(|_| !self.is_pushed());
        let (rows, matches) = match filter {
            Some(filter) => self.turn.evaluate(filter, rows).await?,
            None => {
                let matches = vec![true; rows.len()];
                (rows, matches)
            }
        };
        let evaluated = matches.len();
        for (row, _) in rows.iter().zip(matches).filter(|(_, is_match)| *is_match) {
            if found.offer(self.ordered, (&row.entity).into(), row.entry.clone()).is_break() {
                return Ok(None);
            }
        }
        Ok(rows.into_iter().nth(evaluated).map(|row| self.ordered.position(row.entry, row.entity.key)))
    }
}
