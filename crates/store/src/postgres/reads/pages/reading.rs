//! Reading a page of one part of a table.

use std::ops::ControlFlow;
use std::time::{Duration, Instant};

use sqlx::postgres::PgRow;

use super::streamed::{Residual, StreamedPage, stream};
use super::walk::{Windows, first_window};
use crate::Fault;
use crate::contract::indexes::{MAX_ENTRIES, choices_of, filter_number};
use crate::postgres::PgStore;
use crate::postgres::connections::lease::Lease;
use crate::postgres::fault::StatementError;
use crate::postgres::reads::narrow::look_up;
use crate::postgres::reads::sources::Step;
use crate::postgres::reads::turn::ScanTurn;
use crate::postgres::reads::{filter, sources};
use crate::postgres::rows::key;
use crate::postgres::state::table_ids::{TableId, TablePart, exists};
use crate::protocol::model::PageOrder;
use crate::protocol::plan::index::IndexChoice;
use crate::protocol::plan::span::points_within;
use crate::protocol::plan::{PageEnd, Projection, Scan, Span};

/// What a page reads, and how.
#[derive(Clone, Copy)]
pub(super) struct Reading<'a> {
    pub scan: &'a Scan,
    pub residual: Residual<'a>,
}

impl<'a> Reading<'a> {
    pub(super) fn of(scan: &'a Scan) -> Self {
        let residual = match &scan.residual {
            None => Residual::None,
            Some(predicate) if filter::is_pushable(predicate) => Residual::Pushed(predicate),
            Some(predicate) => Residual::Local(predicate),
        };
        Self { scan, residual }
    }

    /// Reads a page of a part of the table; `None` if the table is gone.
    pub(super) async fn of_part(
        self,
        store: &PgStore,
        part: TablePart,
        mut page: StreamedPage<'_>,
        turn: &ScanTurn<'_>,
    ) -> Result<Option<PageEnd>, StatementError> {
        let mut lease = match part.bucket {
            Some(bucket) => store.nodes.acquire_at(bucket, turn.lock_wait).await?,
            None => store.nodes.acquire_for(turn.lock_wait).await?,
        };
        let limit = self.time_limit(store.operation_timeout);
        let mut walk = Windows::new(part, self.residual, self.scan, (limit, turn));
        // The keys of a page that is merged from buckets are read before it.
        let points = match part.bucket {
            None => self.narrowed(store, part.table_id, &walk, &mut lease, &mut page.end).await?,
            Some(_) => None,
        };
        let steps = sources::steps(points.as_deref().unwrap_or(&self.scan.spans));
        if !lease.is_in_transaction() && !self.is_one_statement(&steps) {
            walk.begin(&mut lease).await?;
        }
        let read = self.steps(&mut walk, &mut lease, &steps, &mut page).await;
        if matches!(read, Ok(()) | Err(StatementError::NeedsPermit)) {
            lease.end_snapshot().await;
        }
        read?;
        // A row proves that the table existed.
        if !page.has_seen_rows && !exists(&mut lease, part.table_id).await? {
            return Ok(None);
        }
        Ok(Some(page.end))
    }

    /// Reads steps until the page ends.
    async fn steps(
        self,
        walk: &mut Windows<'_>,
        lease: &mut Lease,
        steps: &[Step<'_>],
        page: &mut StreamedPage<'_>,
    ) -> Result<(), StatementError> {
        for (at, step) in steps.iter().enumerate() {
            if at > 0 && (page.is_out_of_time() || walk.turn.is_over(Some(lease))) {
                page.end.next = page.end.next.take().or_else(|| step.start(self.scan.order).cloned());
            }
            if page.end.next.is_some() {
                break;
            }
            match self.residual {
                Residual::None => self.all(lease, walk.part, step, page).await?,
                Residual::Pushed(_) | Residual::Local(_) => walk.step(lease, step, page).await?,
            }
        }
        Ok(())
    }

    /// As [`Reading::narrowed`], for a page that is merged from buckets and has no snapshot.
    pub(super) async fn narrowed_before(
        self,
        store: &PgStore,
        table_id: TableId,
        turn: &ScanTurn<'_>,
        end: &mut PageEnd,
    ) -> Result<Option<Vec<Span>>, StatementError> {
        if self.scan.indexed.is_empty() {
            return Ok(None);
        }
        let mut lease = store.nodes.acquire_for(turn.lock_wait).await?;
        let limit = self.time_limit(store.operation_timeout);
        let whole = TablePart { table_id, bucket: None };
        let walk = Windows::new(whole, self.residual, self.scan, (limit, turn));
        let spans = self.narrowed(store, table_id, &walk, &mut lease, end).await?;
        lease.end_snapshot().await;
        Ok(spans)
    }

    /// Looks the keys of matches up in indexes, in the snapshot that the page is then read in. `None` if no
    /// index helps; then the page is read in the order of keys.
    pub(super) async fn narrowed(
        self,
        store: &PgStore,
        table_id: TableId,
        walk: &Windows<'_>,
        lease: &mut Lease,
        end: &mut PageEnd,
    ) -> Result<Option<Vec<Span>>, StatementError> {
        if self.scan.indexed.is_empty() {
            return Ok(None);
        }
        let (filter, memory) = (filter_number(table_id.table_no, self.scan), &store.narrowing);
        let is_dense = |(_, choice): (usize, &IndexChoice)| memory.bounds.has(choice);
        if memory.dense.has(filter) || choices_of(self.scan, table_id.table_no).all(is_dense) {
            return Ok(None);
        }
        let dense = &memory.dense;
        if !lease.is_in_transaction() {
            walk.begin(lease).await?;
        }
        let best = match look_up(lease, table_id, self.scan, memory).await {
            // An index that the database has lost just now.
            Err(StatementError::Fault(Fault::Timeout)) => {
                lease.roll_back().await;
                dense.put(filter);
                return Ok(None);
            }
            best => best?,
        };
        end.examined += best.entries;
        let is_dense = best.is_dense();
        let named = best.into_named();
        end.narrowed_by = named.as_ref().map(|named| named.choice);
        if is_dense {
            dense.put(filter);
        }
        Ok(named.map(|named| points_within(named.keys, &self.scan.spans, self.scan.order)))
    }

    /// The keys of the partitions that the filter names, if they are few.
    pub(super) async fn keys_of_partitions(
        self,
        store: &PgStore,
        part: TablePart,
        lease: &mut Lease,
        (end, until): (&mut PageEnd, Instant),
    ) -> Result<Option<Vec<Span>>, StatementError> {
        let TablePart { table_id, bucket } = part;
        let (filter, dense) = (filter_number(table_id.table_no, self.scan), &store.narrowing.dense);
        if dense.has(filter) {
            return Ok(None);
        }
        let mut keys = Vec::new();
        let is_here =
            |span: &&Span| bucket.is_none() || span.partition().map(|pk| table_id.bucket(pk)) == bucket;
        for span in self.scan.spans.iter().filter(is_here) {
            // The order of the index has positions to go on from, and ends with the time.
            if Instant::now() >= until {
                dense.put(filter);
                return Ok(None);
            }
            let limit = MAX_ENTRIES + 1 - keys.len();
            let source = sources::range(part, span, limit, Projection::SystemOnly)?;
            let mut visit = |row: &PgRow| {
                keys.push(Span::point(key(row)?));
                Ok(ControlFlow::Continue(()))
            };
            match stream(lease, source, PageOrder::Ascending, &mut visit).await {
                Err(StatementError::Fault(Fault::Timeout)) => {
                    lease.roll_back().await;
                    dense.put(filter);
                    return Ok(None);
                }
                read => _ = read?,
            }
            if keys.len() > MAX_ENTRIES {
                dense.put(filter);
                return Ok(None);
            }
        }
        end.examined += keys.len() as u64;
        Ok(Some(keys))
    }

    /// The timeout of a statement of a walk, if it is shorter than the general one.
    pub(super) fn time_limit(self, any: Duration) -> Option<Duration> {
        let is_walk = !matches!(self.residual, Residual::None);
        (is_walk && self.scan.time < any).then_some(self.scan.time)
    }

    pub(super) fn is_one_statement(self, steps: &[Step<'_>]) -> bool {
        match (steps, self.residual) {
            ([], _) | ([_], Residual::None) => true,
            ([Step::Points(spans)], residual) => spans.len() <= first_window(residual),
            _ => false,
        }
    }

    /// Reads a step without a residual filter.
    pub(super) async fn all(
        self,
        lease: &mut Lease,
        part: TablePart,
        step: &Step<'_>,
        page: &mut StreamedPage<'_>,
    ) -> Result<(), StatementError> {
        let (limit, projection) = (page.missing(), self.scan.projection);
        let source = match step {
            Step::Range(span) => sources::range(part, span, limit, projection)?,
            Step::Points(spans) => sources::points(part, spans, limit, projection)?,
        };
        stream(lease, source, self.scan.order, &mut |row| page.offer_row(row)).await?;
        Ok(())
    }
}
