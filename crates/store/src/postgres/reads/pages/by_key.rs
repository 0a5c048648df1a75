//! A page in the order of keys.

use std::ops::ControlFlow;
use std::time::Duration;

use sqlx::Row;

use super::page::{HeldRows, Mark, Residual, StreamedPage, stream};
use super::reader::{Cursor, PageReader, PartScan, Window, WindowPace};
use crate::Collect;
use crate::postgres::connections::lease::Lease;
use crate::postgres::connections::statement_watch::StreamEnd;
use crate::postgres::fault::StatementError;
use crate::postgres::reads::sources::{self, Source, Step};
use crate::postgres::rows::{entity, key};
use crate::postgres::state::table_ids::exists;
use crate::postgres::statements::WALK_STRIDE;
use crate::protocol::model::Key;
use crate::protocol::plan::{PageEnd, Predicate, Projection, Span};

const LARGEST: usize = 65_536;
const LARGEST_LOCAL: usize = 4096;
/// Maximum rows of an exact window. Larger windows of small rows have an approximate size.
const LARGEST_EXACT: usize = 2048;
/// A window has room for this many times the matches of the last window.
const MORE_MATCHES: usize = 4;

impl PartScan<'_> {
    /// Reads a page of the part; `None` if the table is gone.
    pub(super) async fn read(self, mut page: StreamedPage<'_>) -> Result<Option<PageEnd>, StatementError> {
        let mut lease = self.acquire().await?;
        // A page that merges buckets reads its keys first.
        let points = match self.part.bucket {
            None => self.narrowed(&mut lease, &mut page).await?,
            Some(_) => None,
        };
        let steps = sources::steps(points.as_deref().unwrap_or(&self.scan.spans));
        let largest = if self.residual.is_local() { LARGEST_LOCAL } else { LARGEST };
        let pace =
            WindowPace { largest, quick: Duration::from_millis(100), slow: Duration::from_millis(400) };
        let cursor = KeyCursor { of: self, rest: Rest::Points(&[]) };
        let mut reader = PageReader::new(self, cursor, self.first_window(), pace);
        if !lease.is_in_transaction() && !self.is_one_statement(&steps) {
            reader.begin(&mut lease).await?;
        }
        let read = self.steps(&mut reader, &mut lease, &steps, &mut page).await;
        if matches!(read, Ok(()) | Err(StatementError::NeedsPermit)) {
            lease.end_snapshot().await;
        }
        read?;
        // A row proves that the table existed.
        if !page.has_seen_rows && !exists(&mut lease, self.part.table_id).await? {
            return Ok(None);
        }
        Ok(Some(page.into_end()))
    }

    fn is_one_statement(&self, steps: &[Step<'_>]) -> bool {
        match steps {
            [] => true,
            [Step::Points(spans)] if !self.residual.is_none() => spans.len() <= self.first_window(),
            [_] => self.residual.is_none(),
            _ => false,
        }
    }

    async fn steps<'s>(
        self,
        reader: &mut PageReader<'_, KeyCursor<'s>>,
        lease: &mut Lease,
        steps: &[Step<'s>],
        page: &mut StreamedPage<'_>,
    ) -> Result<(), StatementError> {
        for (at, step) in steps.iter().enumerate() {
            let is_over = at > 0 && (page.is_out_of_time() || self.turn.is_over(Some(lease)));
            if is_over || at > 0 && !page.has_ended() && !self.residual.is_none() && !reader.may_go_on()? {
                page.end_at(step.start(self.scan.order).cloned());
            }
            if page.has_ended() {
                break;
            }
            if self.residual.is_none() {
                self.all(lease, step, page).await?;
            } else {
                reader.cursor.rest = Rest::of(step);
                reader.read(lease, page).await?;
            }
        }
        Ok(())
    }

    async fn all(
        self,
        lease: &mut Lease,
        step: &Step<'_>,
        page: &mut StreamedPage<'_>,
    ) -> Result<(), StatementError> {
        let (part, limit, projection) = (self.part, page.missing(), self.scan.projection);
        let source = match step {
            Step::Range(span) => sources::range(part, span, limit, projection)?,
            Step::Points(spans) => sources::points(part, spans, limit, projection)?,
        };
        stream(lease, source, self.scan.order, &mut |row| page.offer_row(row)).await?;
        Ok(())
    }
}

/// The unread rest of a step.
enum Rest<'s> {
    Range(Span),
    Points(&'s [Span]),
}

impl<'s> Rest<'s> {
    fn of(step: &Step<'s>) -> Self {
        match step {
            Step::Range(span) => Rest::Range((*span).clone()),
            Step::Points(spans) => Rest::Points(spans),
        }
    }
}

/// A cursor in the order of keys.
struct KeyCursor<'s> {
    of: PartScan<'s>,
    rest: Rest<'s>,
}

impl Cursor for KeyCursor<'_> {
    type Rows = dyn Collect;
    const IS_TIMED_AT_ONCE: bool = true;

    async fn begin(&self, lease: &mut Lease, limit: Option<Duration>) -> Result<(), StatementError> {
        lease.begin_snapshot(limit).await
    }

    async fn window(
        &mut self,
        window: &mut Window,
        lease: &mut Lease,
        page: &mut StreamedPage<'_>,
    ) -> Result<bool, StatementError> {
        let span = match &self.rest {
            Rest::Points(spans) => {
                let (now, later) = spans.split_at(window.rows.min(spans.len()));
                self.points(window, lease, now, page).await?;
                self.rest = Rest::Points(later);
                return Ok(!later.is_empty());
            }
            Rest::Range(span) => span,
        };
        let edge = match self.of.residual {
            Residual::None => None,
            Residual::Local(predicate) => {
                let source = sources::range(self.of.part, span, window.rows + 1, Projection::Full)?;
                self.held(window, lease, source, (predicate, window.rows), page).await?
            }
            Residual::Pushed(predicate) if window.has_small_rows && window.rows > LARGEST_EXACT => {
                self.sampled(window, lease, span, predicate, page).await?
            }
            Residual::Pushed(predicate) => self.exact(window, lease, span, predicate, page).await?,
        };
        let order = self.of.scan.order;
        let Some(edge) = edge else { return Ok(false) };
        self.rest = Rest::Range(order.rest(span.clone(), order.at(edge)));
        Ok(true)
    }

    fn end(&self, page: &mut StreamedPage<'_>) {
        page.end_at(self.start());
    }

    fn end_cut_off(&self, page: &mut StreamedPage<'_>, _: Mark, has_advanced: bool) {
        page.end_at(page.reached().or_else(|| self.start().filter(|_| has_advanced)));
    }

    fn retreat(&self, _: &mut StreamedPage<'_>, _: Mark) -> bool {
        true
    }
}

impl KeyCursor<'_> {
    /// The start of the next page if this page ends here.
    fn start(&self) -> Option<Key> {
        let first = match &self.rest {
            Rest::Range(span) => Some(span),
            Rest::Points(spans) => spans.first(),
        };
        first.and_then(|span| self.of.scan.order.start(span)).cloned()
    }

    async fn points(
        &self,
        window: &mut Window,
        lease: &mut Lease,
        spans: &[Span],
        page: &mut StreamedPage<'_>,
    ) -> Result<(), StatementError> {
        match self.of.residual {
            Residual::None => Ok(()),
            Residual::Pushed(predicate) => {
                page.count_examined(spans.len() as u64);
                let limit = page.missing();
                let source =
                    sources::filtered_points(self.of.part, spans, limit, predicate, self.of.scan.projection)?;
                stream(lease, source, self.of.scan.order, &mut |row| page.offer_row(row)).await?;
                Ok(())
            }
            Residual::Local(predicate) => {
                let source = sources::points(self.of.part, spans, spans.len(), Projection::Full)?;
                let next = self.held(window, lease, source, (predicate, spans.len()), page).await?;
                page.end_at(next.map(|key| self.of.scan.order.at(key)));
                Ok(())
            }
        }
    }

    /// Reads a window with an exact number of rows, decompressing each row once.
    async fn exact(
        &self,
        window: &mut Window,
        lease: &mut Lease,
        span: &Span,
        predicate: &Predicate,
        page: &mut StreamedPage<'_>,
    ) -> Result<Option<Key>, StatementError> {
        let limits = (window.rows, page.missing());
        let source = sources::window(self.of.part, span, limits, predicate, self.of.scan.projection)?;
        let matches = page.matches_column();
        let (mut matched, mut edge) = (0, None);
        stream(lease, source, self.of.scan.order, &mut |row| {
            page.has_seen_rows = true;
            if row.try_get_unchecked(matches)? {
                matched += 1;
                return page.offer_row(row);
            }
            edge = Some(key(row)?);
            Ok(ControlFlow::Continue(()))
        })
        .await?;
        window.matched = matched;
        page.count_examined(if edge.is_some() { window.rows } else { matched } as u64);
        Ok(edge)
    }

    /// Reads a window with an approximate number of rows. PostgreSQL sends few rows that do not match.
    async fn sampled(
        &self,
        window: &mut Window,
        lease: &mut Lease,
        span: &Span,
        predicate: &Predicate,
        page: &mut StreamedPage<'_>,
    ) -> Result<Option<Key>, StatementError> {
        let hoped = (window.matched * MORE_MATCHES).min(page.missing());
        let limit = window.rows / WALK_STRIDE + hoped;
        let source = sources::walk(self.of.part, span, limit, predicate, self.of.scan.projection)?;
        let matches = page.matches_column();
        let (mut seen, mut matched, mut edge) = (0, 0, None);
        stream(lease, source, self.of.scan.order, &mut |row| {
            seen += 1;
            page.has_seen_rows = true;
            if seen == limit {
                edge = Some(key(row)?);
            } else if row.try_get_unchecked(matches)? {
                matched += 1;
                return page.offer_row(row);
            } else {
                page.pass(key(row)?);
            }
            Ok(ControlFlow::Continue(()))
        })
        .await?;
        window.matched = matched;
        page.count_examined((matched + (seen - matched) * WALK_STRIDE) as u64);
        Ok(edge)
    }

    /// Reads at most `most` rows of a source and evaluates the predicate locally. Returns the key of the first unread
    /// row.
    async fn held(
        &self,
        window: &mut Window,
        lease: &mut Lease,
        source: Source,
        (predicate, most): (&Predicate, usize),
        page: &mut StreamedPage<'_>,
    ) -> Result<Option<Key>, StatementError> {
        let (mut held, mut next) = (HeldRows::new(most), None);
        let end = stream(lease, source, self.of.scan.order, &mut |row| {
            let entity = entity(row, true)?;
            if held.take(entity.weight(), || entity.to_stored()) {
                return Ok(ControlFlow::Continue(()));
            }
            next = Some(key(row)?);
            Ok(ControlFlow::Break(()))
        })
        .await?;
        window.fitting = held.fitting();
        let next = page.offer_matches(predicate, (held.rows, next), self.of.turn).await?;
        if end == StreamEnd::CutOff {
            page.end_at(next.clone().map(|key| self.of.scan.order.at(key)));
        }
        Ok(next)
    }
}
