//! One page of a query: one snapshot, bounded in rows, bytes and time.
//!
//! A range without residual is one statement. A residual walks the range in
//! windows of rows, so that a scan which finds little still comes back in time
//! with the key that it reached. A window that is evaluated in the database ends by
//! chance: see [`statements::walk`].

use std::ops::ControlFlow;
use std::time::{Duration, Instant};

use sqlx::postgres::PgRow;
use sqlx::{AssertSqlSafe, Row};

use super::catalog::{Facts, exists};
use super::fault::Trouble;
use super::pool::Lease;
use super::read::{entity, key};
use super::steps::{self, Source, Step};
use super::{Attempt, PgStore, filter, statements};
use crate::model::Key;
use crate::model::entity::Glimpse;
use crate::plan::predicate::Prepared;
use crate::plan::{PageEnd, Predicate, Projection, Scan, Span};
use crate::store::{Collect, StoreResult};

/// Rows of the first window; small, as rows may be a megabyte each.
const FIRST_WINDOW: usize = 256;
const SMALLEST_WINDOW: usize = 16;
const LARGEST_WINDOW: usize = 65_536;
/// Rows of a window that leave the database.
const LARGEST_LOCAL_WINDOW: usize = 4096;
/// Rows of a window that is evaluated in the database which leave it at least.
const SEEN_ROWS: usize = 128;
/// Matches for which the next window has room, for each of the last one.
const MORE_MATCHES: usize = 4;
/// A window that took less time is followed by a larger one, …
const QUICK: Duration = Duration::from_millis(100);
/// … one that took more by a smaller one.
const SLOW: Duration = Duration::from_millis(400);

/// The read of one page.
pub struct Query<'a> {
    scan: &'a Scan,
    residual: Residual<'a>,
    into: &'a mut dyn Collect,
}

/// Where the rest of the predicate is evaluated.
#[derive(Clone, Copy)]
enum Residual<'a> {
    None,
    Pushed(&'a Predicate),
    Local(&'a Predicate),
}

impl<'a> Query<'a> {
    /// The read of the page that `scan` describes; its entities go `into` something.
    pub fn new(scan: &'a Scan, into: &'a mut dyn Collect) -> Self {
        let residual = match &scan.residual {
            None => Residual::None,
            Some(predicate) if filter::is_pushable(predicate) => Residual::Pushed(predicate),
            Some(predicate) => Residual::Local(predicate),
        };
        Self { scan, residual, into }
    }
}

impl Attempt for Query<'_> {
    type Done = PageEnd;

    async fn run(&mut self, store: &PgStore, facts: Facts) -> StoreResult<Option<PageEnd>> {
        self.into.restart();
        let reading = Reading { scan: self.scan, residual: self.residual };
        reading.run(store, facts, Page::new(self.scan, self.into)).await
    }
}

/// What is read for a page, and how.
#[derive(Clone, Copy)]
struct Reading<'a> {
    scan: &'a Scan,
    residual: Residual<'a>,
}

impl Reading<'_> {
    /// `None` if the table is gone.
    async fn run(self, store: &PgStore, facts: Facts, mut page: Page<'_>) -> StoreResult<Option<PageEnd>> {
        let steps = steps::steps(&self.scan.spans);
        let mut lease = store.pool.acquire().await?;
        let one_statement = matches!(
            (steps.as_slice(), self.residual),
            ([], _) | ([_], Residual::None) | ([Step::Points(_)], _)
        );
        if !one_statement {
            lease.begin_snapshot().await?;
        }
        for (at, step) in steps.iter().enumerate() {
            if at > 0 && page.is_out_of_time() {
                page.end.next = page.end.next.or_else(|| step.first().cloned());
            }
            if page.end.next.is_some() {
                break;
            }
            match (step, self.residual) {
                (Step::Range(span), Residual::None) => {
                    let source =
                        steps::range(facts, span, &span.lower, page.missing(), self.scan.projection)?;
                    stream(&mut lease, source, &mut |row| page.offer_row(row)).await?;
                }
                (Step::Points(spans), _) => self.points(&mut lease, facts, spans, &mut page).await?,
                (Step::Range(span), _) => self.windows(&mut lease, facts, span, &mut page).await?,
            }
        }
        if !one_statement {
            lease.end_snapshot().await?;
        }
        // A row proves that the table was there.
        if page.end.entities == 0 && !exists(&mut lease, facts).await? {
            return Ok(None);
        }
        Ok(Some(page.end))
    }

    async fn points(
        &self,
        lease: &mut Lease<'_>,
        facts: Facts,
        spans: &[Span],
        page: &mut Page<'_>,
    ) -> StoreResult<()> {
        let projection = self.scan.projection;
        match self.residual {
            Residual::None => {
                let source = steps::points(facts, spans, page.missing(), projection)?;
                stream(lease, source, &mut |row| page.offer_row(row)).await?;
            }
            Residual::Pushed(predicate) => {
                let mut source = steps::points(facts, spans, spans.len(), Projection::Full)?;
                let condition = filter::fragment(predicate, &mut source.binds)?;
                let limit = source.binds.add(page.missing() as i64)?;
                source.text = statements::filtered(&source.text, &condition, projection, &limit).into();
                stream(lease, source, &mut |row| page.offer_row(row)).await?;
            }
            Residual::Local(predicate) => {
                let source = steps::points(facts, spans, spans.len(), Projection::Full)?;
                let predicate = Prepared::new(predicate);
                stream(lease, source, &mut |row| page.offer_if(&predicate, row)).await?;
            }
        }
        Ok(())
    }

    /// Walks a range window by window until the page ends or the range does.
    async fn windows(
        &self,
        lease: &mut Lease<'_>,
        facts: Facts,
        span: &Span,
        page: &mut Page<'_>,
    ) -> StoreResult<()> {
        let mut lower = span.lower.clone();
        loop {
            let started = Instant::now();
            let edge = match self.residual {
                Residual::Local(predicate) => {
                    local_window(lease, facts, span, &lower, predicate, page).await?
                }
                Residual::Pushed(predicate) => {
                    self.pushed_window(lease, facts, span, &lower, predicate, page).await?
                }
                Residual::None => None,
            };
            let Some(edge) = edge else { return Ok(()) };
            if page.end.next.is_some() {
                return Ok(());
            }
            if page.is_full() || page.is_out_of_time() {
                page.end.next = Some(edge);
                return Ok(());
            }
            page.adapt_window(started.elapsed());
            lower = edge;
        }
    }

    async fn pushed_window(
        &self,
        lease: &mut Lease<'_>,
        facts: Facts,
        span: &Span,
        lower: &Key,
        predicate: &Predicate,
        page: &mut Page<'_>,
    ) -> StoreResult<Option<Key>> {
        let (limit, share) = page.sample();
        let projection = self.scan.projection;
        let source = steps::walk(facts, span, lower, (limit, share), predicate, projection)?;
        let matches = if page.with_properties { 4 } else { 3 };
        let (mut seen, mut edge) = (0, None);
        page.matched = 0;
        stream(lease, source, &mut |row| {
            seen += 1;
            if seen == limit {
                edge = Some(key(row)?);
            } else if row.try_get_unchecked(matches)? {
                page.matched += 1;
                return page.offer_row(row);
            }
            Ok(ControlFlow::Continue(()))
        })
        .await?;
        Ok(edge)
    }
}

/// Reads a window's rows and evaluates the predicate here.
async fn local_window(
    lease: &mut Lease<'_>,
    facts: Facts,
    span: &Span,
    lower: &Key,
    predicate: &Predicate,
    page: &mut Page<'_>,
) -> StoreResult<Option<Key>> {
    let window = page.window.min(LARGEST_LOCAL_WINDOW);
    let source = steps::range(facts, span, lower, window + 1, Projection::Full)?;
    let predicate = Prepared::new(predicate);
    let (mut seen, mut edge) = (0, None);
    stream(lease, source, &mut |row| {
        seen += 1;
        if seen > window {
            edge = Some(key(row)?);
            return Ok(ControlFlow::Continue(()));
        }
        page.offer_if(&predicate, row)
    })
    .await?;
    Ok(edge)
}

async fn stream(
    lease: &mut Lease<'_>,
    source: Source,
    visit: &mut (dyn FnMut(&PgRow) -> Result<ControlFlow<()>, sqlx::Error> + Send),
) -> Result<(), Trouble> {
    let arguments = source.binds.into_inner();
    // Composed from the fixed texts and fragments of this module only.
    let statement = match source.text {
        std::borrow::Cow::Borrowed(text) => sqlx::query_with(text, arguments),
        std::borrow::Cow::Owned(text) => sqlx::query_with(AssertSqlSafe(text), arguments),
    };
    lease.stream(statement, visit).await
}

/// The page so far.
struct Page<'a> {
    into: &'a mut dyn Collect,
    end: PageEnd,
    bytes: usize,
    rows: usize,
    max_bytes: usize,
    started: Instant,
    time: Duration,
    with_properties: bool,
    /// Rows of the next window.
    window: usize,
    /// Matches of the last window that was evaluated in the database.
    matched: usize,
}

impl<'a> Page<'a> {
    fn new(scan: &Scan, into: &'a mut dyn Collect) -> Self {
        Self {
            into,
            end: PageEnd::default(),
            bytes: 0,
            rows: scan.rows.max(1),
            max_bytes: scan.bytes,
            started: Instant::now(),
            time: scan.time,
            with_properties: scan.projection == Projection::Full,
            window: FIRST_WINDOW,
            matched: FIRST_WINDOW,
        }
    }

    /// Rows to ask for: one more than fit shows where the next page starts.
    fn missing(&self) -> usize {
        self.rows - self.end.entities + 1
    }

    fn is_full(&self) -> bool {
        self.end.entities >= self.rows
    }

    fn is_out_of_time(&self) -> bool {
        self.started.elapsed() >= self.time
    }

    fn adapt_window(&mut self, took: Duration) {
        self.window = if took < QUICK {
            (self.window * 4).min(LARGEST_WINDOW)
        } else if took > SLOW {
            (self.window / 4).max(SMALLEST_WINDOW)
        } else {
            self.window
        };
    }

    /// How many rows of the next window may be seen, and which share of those that
    /// do not match, so that a window without matches has as many rows as it should.
    fn sample(&self) -> (usize, f64) {
        let hoped = (self.matched * MORE_MATCHES).min(self.missing());
        let seen = (SEEN_ROWS + hoped).min(self.window).max(2);
        (seen, seen as f64 / self.window as f64)
    }

    fn offer_row(&mut self, row: &PgRow) -> Result<ControlFlow<()>, sqlx::Error> {
        Ok(self.offer(entity(row, self.with_properties)?))
    }

    fn offer_if(&mut self, predicate: &Prepared<'_>, row: &PgRow) -> Result<ControlFlow<()>, sqlx::Error> {
        let mut entity = entity(row, true)?;
        let matches = predicate.matches(entity);
        if !matches.map_err(|_| sqlx::Error::Decode("not in stored form".into()))? {
            return Ok(ControlFlow::Continue(()));
        }
        if !self.with_properties {
            entity.properties = "{}";
        }
        Ok(self.offer(entity))
    }

    /// Takes a row in, or ends the page before it.
    fn offer(&mut self, entity: Glimpse<'_>) -> ControlFlow<()> {
        let size = entity.weight();
        let ends = self.is_full()
            || (self.end.entities > 0 && (self.bytes + size > self.max_bytes || self.is_out_of_time()));
        if ends {
            self.end.next = Some(Key::new(entity.partition, entity.row));
            return ControlFlow::Break(());
        }
        self.bytes += size;
        self.end.entities += 1;
        self.into.take(entity);
        ControlFlow::Continue(())
    }
}
