//! Walks a range window by window to evaluate a filter.
//!
//! Rows may have a megabyte each, so the first window is small, and the size of the next ones depends on
//! the time that it took. Every page makes progress: a statement that is cut off ends the page at the key
//! that it reached, or is repeated with fewer rows.

use std::ops::ControlFlow;
use std::time::{Duration, Instant};

use sqlx::Row;

use super::streamed::{HeldRows, Residual, StreamedPage, stream};
use crate::Fault;
use crate::postgres::connections::lease::Lease;
use crate::postgres::connections::statement_watch::StreamEnd;
use crate::postgres::fault::StatementError;
use crate::postgres::reads::sources::{self, Step};
use crate::postgres::reads::turn::ScanTurn;
use crate::postgres::rows::{entity, key};
use crate::postgres::state::table_ids::TablePart;
use crate::postgres::statements::WALK_STRIDE;
use crate::protocol::model::{Key, PageOrder};
use crate::protocol::plan::{Predicate, Projection, Scan, Span};
use crate::scan_limit::TURN;

/// Rows of the first window that PostgreSQL evaluates.
const FIRST: usize = 256;
/// Rows of the first window that is evaluated here: the database sends all of them, however large.
pub(super) const FIRST_LOCAL: usize = 4;
const LARGEST: usize = 65_536;
const LARGEST_LOCAL: usize = 4096;
/// Maximum rows of an exact window. Larger windows of small rows have an approximate size.
const LARGEST_EXACT: usize = 2048;
/// A row that takes longer is not small.
const SMALL_ROW: Duration = Duration::from_micros(8);
/// The next window has room for this many times the matches of the last one.
const MORE_MATCHES: usize = 4;
/// Factor between the sizes of two windows.
const GROWTH: usize = 8;
/// A window that took less time is followed by a larger one, …
const QUICK: Duration = Duration::from_millis(100);
/// … one that took more by a smaller one.
const SLOW: Duration = Duration::from_millis(400);
/// Factor by which the number of rows is reduced after a window was cut off.
const RETREAT: usize = 16;

/// Rows of the first window.
pub(crate) const fn first_window(residual: Residual<'_>) -> usize {
    match residual {
        Residual::Local(_) => FIRST_LOCAL,
        Residual::None | Residual::Pushed(_) => FIRST,
    }
}

/// The windows of one page.
pub(crate) struct Windows<'a> {
    pub part: TablePart,
    pub turn: &'a ScanTurn<'a>,
    residual: Residual<'a>,
    projection: Projection,
    order: PageOrder,
    /// Timeout of a statement; `None`: the general one.
    limit: Option<Duration>,
    /// Rows of the next window.
    rows: usize,
    /// Maximum rows of a window that is held, by the size of the last ones.
    fitting: usize,
    /// Whether rows of the last window were small.
    has_small_rows: bool,
    /// Matches of the last window.
    matched: usize,
    /// Whether a window has been completed.
    has_advanced: bool,
    /// Rows of all windows so far.
    examined: u64,
}

/// What is left of a step.
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

    /// Where the next page starts if this one ends here.
    fn start(&self, order: PageOrder) -> Option<Key> {
        let first = match self {
            Rest::Range(span) => Some(span),
            Rest::Points(spans) => spans.first(),
        };
        first.and_then(|span| order.start(span)).cloned()
    }
}

impl<'a> Windows<'a> {
    /// Creates the walk of a page.
    pub(crate) fn new(
        part: TablePart,
        residual: Residual<'a>,
        scan: &Scan,
        (limit, turn): (Option<Duration>, &'a ScanTurn<'a>),
    ) -> Self {
        let rows = first_window(residual);
        Self {
            part,
            turn,
            residual,
            projection: scan.projection,
            order: scan.order,
            limit,
            rows,
            fitting: LARGEST,
            has_small_rows: false,
            matched: FIRST,
            has_advanced: false,
            examined: 0,
        }
    }

    /// Opens the snapshot that all windows read.
    pub(crate) async fn begin(&self, lease: &mut Lease) -> Result<(), StatementError> {
        match self.limit {
            // A window of a single row has the general timeout.
            Some(limit) if self.rows > 1 => lease.begin_snapshot_within(limit).await,
            _ => lease.begin_snapshot().await,
        }
    }

    /// Walks a step until the page ends or the step does.
    pub(crate) async fn step(
        &mut self,
        lease: &mut Lease,
        step: &Step<'_>,
        page: &mut StreamedPage<'_>,
    ) -> Result<(), StatementError> {
        let mut rest = Rest::of(step);
        loop {
            if let Some(start) = rest.start(self.order)
                && !self.may_go_on()?
            {
                page.end.next = Some(start);
                return Ok(());
            }
            let (started, examined) = (Instant::now(), page.end.examined);
            page.last = None;
            let left = match self.timely_window(lease, &rest, page).await {
                Err(StatementError::Fault(Fault::Timeout)) if self.rows > 1 || self.has_advanced => {
                    self.cut_off(lease, &rest, page).await?;
                    if page.end.next.is_some() {
                        return Ok(());
                    }
                    continue;
                }
                left => left?,
            };
            self.has_advanced = true;
            self.examined += page.end.examined - examined;
            let Some(left) = left.filter(|_| page.end.next.is_none()) else { return Ok(()) };
            if page.is_full() || page.is_out_of_time() || self.turn.is_over(Some(lease)) {
                page.end.next = left.start(self.order);
                return Ok(());
            }
            self.adapt(started.elapsed());
            rest = left;
        }
    }

    /// Whether the page may have another window. One that is evaluated here needs its permit only then.
    fn may_go_on(&self) -> Result<bool, StatementError> {
        match self.residual {
            Residual::Pushed(_) => self.turn.may_examine_more(self.examined),
            Residual::None | Residual::Local(_) => Ok(true),
        }
    }

    /// Makes statements end with the page's time, except those of single rows.
    async fn keep_to(&mut self, left: Duration, lease: &mut Lease) -> Result<(), StatementError> {
        let Some(limit) = self.limit.filter(|_| self.rows > 1) else { return Ok(()) };
        if left >= limit / 8 * 7 {
            return Ok(());
        }
        self.limit = Some(left);
        lease.limit_statements(left).await
    }

    /// Reads one window within the page's time; returns what is left of the step.
    async fn timely_window<'s>(
        &mut self,
        lease: &mut Lease,
        rest: &Rest<'s>,
        page: &mut StreamedPage<'_>,
    ) -> Result<Option<Rest<'s>>, StatementError> {
        self.keep_to(page.time_left(), lease).await?;
        self.window(lease, rest, page).await
    }

    /// After a statement that took too long, ends the page with the key that it reached, or reduces the
    /// number of rows.
    async fn cut_off(
        &mut self,
        lease: &mut Lease,
        rest: &Rest<'_>,
        page: &mut StreamedPage<'_>,
    ) -> Result<(), StatementError> {
        lease.roll_back().await;
        let reached = page.last.take().map(|last| self.order.after(last));
        page.end.next = reached.or_else(|| rest.start(self.order).filter(|_| self.has_advanced));
        if page.end.next.is_none() {
            self.rows = (self.rows / RETREAT).max(1);
            self.begin(lease).await?;
        }
        Ok(())
    }

    fn adapt(&mut self, took: Duration) {
        self.has_small_rows = took < SMALL_ROW * u32::try_from(self.rows).unwrap_or(u32::MAX);
        let largest = if matches!(self.residual, Residual::Local(_)) { LARGEST_LOCAL } else { LARGEST };
        // While others wait, a window takes no longer than a turn.
        let is_awaited = self.turn.is_permit_awaited();
        let (quick, slow) = if is_awaited { (TURN / GROWTH as u32, TURN) } else { (QUICK, SLOW) };
        if took < quick {
            self.rows = (self.rows * GROWTH).min(largest).min(self.fitting);
        } else if took > slow {
            self.rows = (self.rows / GROWTH).max(1);
        }
    }

    /// Reads one window; returns what is left of the step.
    async fn window<'s>(
        &mut self,
        lease: &mut Lease,
        rest: &Rest<'s>,
        page: &mut StreamedPage<'_>,
    ) -> Result<Option<Rest<'s>>, StatementError> {
        let span = match rest {
            Rest::Points(spans) => {
                let (now, later) = spans.split_at(self.rows.min(spans.len()));
                self.points(lease, now, page).await?;
                return Ok((!later.is_empty()).then_some(Rest::Points(later)));
            }
            Rest::Range(span) => span,
        };
        let edge = match self.residual {
            Residual::None => None,
            Residual::Local(predicate) => self.local(lease, span, predicate, page).await?,
            Residual::Pushed(predicate) => {
                if self.has_small_rows && self.rows > LARGEST_EXACT {
                    self.sampled(lease, span, predicate, page).await?
                } else {
                    self.exact(lease, span, predicate, page).await?
                }
            }
        };
        Ok(edge.map(|edge| Rest::Range(self.order.rest(span.clone(), self.order.at(edge)))))
    }

    async fn points(
        &mut self,
        lease: &mut Lease,
        spans: &[Span],
        page: &mut StreamedPage<'_>,
    ) -> Result<(), StatementError> {
        match self.residual {
            Residual::None => Ok(()),
            Residual::Pushed(predicate) => {
                page.end.examined += spans.len() as u64;
                let limit = page.missing();
                let source = sources::filtered_points(self.part, spans, limit, predicate, self.projection)?;
                stream(lease, source, self.order, &mut |row| page.offer_row(row)).await?;
                Ok(())
            }
            Residual::Local(predicate) => {
                let source = sources::points(self.part, spans, spans.len(), Projection::Full)?;
                let next = self.held(lease, source, (predicate, spans.len()), page).await?;
                page.end.next = page.end.next.take().or(next.map(|key| self.order.at(key)));
                Ok(())
            }
        }
    }

    /// Reads a window with an exact number of rows. Each row is decompressed once.
    async fn exact(
        &mut self,
        lease: &mut Lease,
        span: &Span,
        predicate: &Predicate,
        page: &mut StreamedPage<'_>,
    ) -> Result<Option<Key>, StatementError> {
        let limits = (self.rows, page.missing());
        let source = sources::window(self.part, span, limits, predicate, self.projection)?;
        let matches = page.matches_column();
        let (mut matched, mut edge) = (0, None);
        stream(lease, source, self.order, &mut |row| {
            page.has_seen_rows = true;
            if row.try_get_unchecked(matches)? {
                matched += 1;
                return page.offer_row(row);
            }
            edge = Some(key(row)?);
            Ok(ControlFlow::Continue(()))
        })
        .await?;
        self.matched = matched;
        page.end.examined += if edge.is_some() { self.rows as u64 } else { matched as u64 };
        Ok(edge)
    }

    /// Reads a window with an approximate number of rows. The database sends few that do not match.
    async fn sampled(
        &mut self,
        lease: &mut Lease,
        span: &Span,
        predicate: &Predicate,
        page: &mut StreamedPage<'_>,
    ) -> Result<Option<Key>, StatementError> {
        let hoped = (self.matched * MORE_MATCHES).min(page.missing());
        let limit = self.rows / WALK_STRIDE + hoped;
        let source = sources::walk(self.part, span, limit, predicate, self.projection)?;
        let matches = page.matches_column();
        let (mut seen, mut matched, mut edge) = (0, 0, None);
        stream(lease, source, self.order, &mut |row| {
            seen += 1;
            page.has_seen_rows = true;
            if seen == limit {
                edge = Some(key(row)?);
            } else if row.try_get_unchecked(matches)? {
                matched += 1;
                return page.offer_row(row);
            } else {
                page.last = Some(key(row)?);
            }
            Ok(ControlFlow::Continue(()))
        })
        .await?;
        self.matched = matched;
        page.end.examined += (matched + (seen - matched) * WALK_STRIDE) as u64;
        Ok(edge)
    }

    /// Reads a window's rows and evaluates the predicate here.
    async fn local(
        &mut self,
        lease: &mut Lease,
        span: &Span,
        predicate: &Predicate,
        page: &mut StreamedPage<'_>,
    ) -> Result<Option<Key>, StatementError> {
        let window = self.rows;
        let source = sources::range(self.part, span, window + 1, Projection::Full)?;
        self.held(lease, source, (predicate, window), page).await
    }

    /// Reads at most `most` rows of a source, and evaluates the predicate here; returns the key of the first row
    /// that is still to be read.
    async fn held(
        &mut self,
        lease: &mut Lease,
        source: sources::Source,
        (predicate, most): (&Predicate, usize),
        page: &mut StreamedPage<'_>,
    ) -> Result<Option<Key>, StatementError> {
        let (mut held, mut next) = (HeldRows::new(most), None);
        let end = stream(lease, source, self.order, &mut |row| {
            let entity = entity(row, true)?;
            if held.take(entity.weight(), || entity.to_stored()) {
                return Ok(ControlFlow::Continue(()));
            }
            next = Some(key(row)?);
            Ok(ControlFlow::Break(()))
        })
        .await?;
        self.fitting = held.fitting(LARGEST_LOCAL);
        let next = page.offer_matches(predicate, (held.rows, next), self.turn).await?;
        if end == StreamEnd::CutOff && page.end.next.is_none() {
            page.end.next = next.clone().map(|key| self.order.at(key));
        }
        Ok(next)
    }
}
