//! One page of a query: one snapshot, except where Citus distributes entities, and bounded in rows,
//! bytes and time.
//!
//! A range without a residual filter is one statement. With one, the range is read in windows of rows,
//! so that a scan with few matches still returns in time, with the key that it reached: see [`walk`].

mod merge;
mod ordered;
mod ordered_part;
mod walk;

use std::ops::ControlFlow;
use std::time::{Duration, Instant};

use sqlx::AssertSqlSafe;
use sqlx::postgres::PgRow;

use crate::error::{Code, Error};
use crate::protocol::model::entity::BorrowedEntity;
use crate::protocol::model::{Key, PageOrder};
use crate::protocol::plan::index::IndexChoice;
use crate::protocol::plan::predicate::Prepared;
use crate::protocol::plan::span::points_within;
use crate::protocol::plan::{PageEnd, Predicate, Projection, Scan, Span};
use crate::store::contract::indexes::{MISSING_ORDER, choices_of, filter_number};
use crate::store::postgres::PgStore;
use crate::store::postgres::connections::lease::Lease;
use crate::store::postgres::connections::sessions::LockWait;
use crate::store::postgres::fault::StatementError;
use crate::store::postgres::reads::narrow::look_up;
use crate::store::postgres::reads::sources::{Source, Step};
use crate::store::postgres::reads::{filter, sources};
use crate::store::postgres::retry::Attempt;
use crate::store::postgres::rows::entity;
use crate::store::postgres::state::table_ids::{TableId, TablePart, exists};
use crate::store::postgres::statements;
use crate::store::{Collect, Fault, StoreResult};
use ordered_part::Ordered;
use walk::{Windows, first_window};

/// The read of one page.
pub(crate) struct Query<'a> {
    scan: &'a Scan,
    into: &'a mut dyn Collect,
}

/// Where the residual filter is evaluated.
#[derive(Clone, Copy)]
enum Residual<'a> {
    None,
    Pushed(&'a Predicate),
    Local(&'a Predicate),
}

impl<'a> Query<'a> {
    /// The read of the page that `scan` describes; its entities are passed to `into`.
    pub(crate) fn new(scan: &'a Scan, into: &'a mut dyn Collect) -> Self {
        Self { scan, into }
    }
}

impl Attempt for Query<'_> {
    type Done = PageEnd;

    async fn run(&mut self, store: &PgStore, table_id: TableId) -> StoreResult<Option<PageEnd>> {
        if self.scan.by.is_some() {
            let ordered = Ordered::of(self.scan).ok_or_else(missing_index)?;
            if !ordered.is_there(store, table_id).await? {
                return Err(missing_index().into());
            }
        }
        self.into.restart();
        let page = StreamedPage::new(self.scan, self.into);
        match read(self.scan, store, table_id, page, None).await {
            // The whole table is locked, and this session may not wait for locks.
            Err(StatementError::Held) => {
                self.into.restart();
                let page = StreamedPage::new(self.scan, self.into);
                Ok(read(self.scan, store, table_id, page, Some(LockWait::Long)).await?)
            }
            read => Ok(read?),
        }
    }
}

/// The refusal of an order whose index cannot be used.
fn missing_index() -> Error {
    Error::from(Code::NotImplemented).because(MISSING_ORDER)
}

/// Reads a page: all buckets in one snapshot or, where they are distributed, each by itself;
/// `None` if the table is gone.
async fn read(
    scan: &Scan,
    store: &PgStore,
    table_id: TableId,
    mut page: StreamedPage<'_>,
    lock_wait: Option<LockWait>,
) -> Result<Option<PageEnd>, StatementError> {
    if let Some(ordered) = Ordered::of(scan) {
        return Box::pin(ordered.read(store, table_id, page, lock_wait)).await;
    }
    if store.nodes.is_distributed() {
        let spans = Reading::of(scan).narrowed_before(store, table_id, lock_wait, &mut page.end).await?;
        let narrowed = spans.map(|spans| Scan { spans, ..scan.clone() });
        let scan = narrowed.as_ref().unwrap_or(scan);
        return Box::pin(merge::read(scan, store, table_id, page, lock_wait)).await;
    }
    let part = TablePart { table_id, bucket: None };
    Reading::of(scan).of_part(store, part, page, lock_wait).await
}

/// What a page reads, and how.
#[derive(Clone, Copy)]
struct Reading<'a> {
    scan: &'a Scan,
    residual: Residual<'a>,
}

impl<'a> Reading<'a> {
    fn of(scan: &'a Scan) -> Self {
        let residual = match &scan.residual {
            None => Residual::None,
            Some(predicate) if filter::is_pushable(predicate) => Residual::Pushed(predicate),
            Some(predicate) => Residual::Local(predicate),
        };
        Self { scan, residual }
    }

    /// Reads a page of a part of the table; `None` if the table is gone.
    async fn of_part(
        self,
        store: &PgStore,
        part: TablePart,
        mut page: StreamedPage<'_>,
        lock_wait: Option<LockWait>,
    ) -> Result<Option<PageEnd>, StatementError> {
        let mut lease = match part.bucket {
            Some(bucket) => store.nodes.acquire_at(bucket, lock_wait).await?,
            None => store.nodes.acquire_for(lock_wait).await?,
        };
        let limit = self.time_limit(store.operation_timeout);
        let mut walk = Windows::new(part, self.residual, self.scan, limit);
        // The keys of a page that is merged from buckets are read before it.
        let points = match part.bucket {
            None => self.narrowed(store, part.table_id, &walk, &mut lease, &mut page.end).await?,
            Some(_) => None,
        };
        let steps = sources::steps(points.as_deref().unwrap_or(&self.scan.spans));
        if !lease.is_in_transaction() && !self.is_one_statement(&steps) {
            walk.begin(&mut lease).await?;
        }
        for (at, step) in steps.iter().enumerate() {
            if at > 0 && page.is_out_of_time() {
                page.end.next = page.end.next.or_else(|| step.start(self.scan.order).cloned());
            }
            if page.end.next.is_some() {
                break;
            }
            match self.residual {
                Residual::None => self.all(&mut lease, part, step, &mut page).await?,
                Residual::Pushed(_) | Residual::Local(_) => walk.step(&mut lease, step, &mut page).await?,
            }
        }
        lease.end_snapshot().await;
        // A row proves that the table existed.
        if !page.has_seen_rows && !exists(&mut lease, part.table_id).await? {
            return Ok(None);
        }
        Ok(Some(page.end))
    }

    /// As [`Reading::narrowed`], for a page that is merged from buckets and has no snapshot.
    async fn narrowed_before(
        self,
        store: &PgStore,
        table_id: TableId,
        lock_wait: Option<LockWait>,
        end: &mut PageEnd,
    ) -> Result<Option<Vec<Span>>, StatementError> {
        if self.scan.indexed.is_empty() {
            return Ok(None);
        }
        let mut lease = store.nodes.acquire_for(lock_wait).await?;
        let limit = self.time_limit(store.operation_timeout);
        let whole = TablePart { table_id, bucket: None };
        let walk = Windows::new(whole, self.residual, self.scan, limit);
        let spans = self.narrowed(store, table_id, &walk, &mut lease, end).await?;
        lease.end_snapshot().await;
        Ok(spans)
    }

    /// Looks the keys of matches up in indexes, in the snapshot that the page is then read in. `None` if no
    /// index helps; then the page is read in the order of keys.
    async fn narrowed(
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

    /// The timeout of a statement of a walk, if it is shorter than the general one.
    fn time_limit(self, any: Duration) -> Option<Duration> {
        let is_walk = !matches!(self.residual, Residual::None);
        (is_walk && self.scan.time < any).then_some(self.scan.time)
    }

    fn is_one_statement(self, steps: &[Step<'_>]) -> bool {
        match (steps, self.residual) {
            ([], _) | ([_], Residual::None) => true,
            ([Step::Points(spans)], residual) => spans.len() <= first_window(residual),
            _ => false,
        }
    }

    /// Reads a step without a residual filter.
    async fn all(
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
        stream(lease, source, self.scan.order, &mut |row| page.offer_row(row)).await
    }
}

async fn stream(
    lease: &mut Lease,
    source: Source,
    order: PageOrder,
    visit: &mut (dyn FnMut(&PgRow) -> Result<ControlFlow<()>, sqlx::Error> + Send),
) -> Result<(), StatementError> {
    let (arguments, is_kept) = (source.binds.into_inner(), source.is_kept);
    // Composed only of the fixed texts and fragments of this module.
    let statement = match statements::in_order(source.text, order) {
        std::borrow::Cow::Borrowed(text) => sqlx::query_with(text, arguments),
        std::borrow::Cow::Owned(text) => sqlx::query_with(AssertSqlSafe(text), arguments),
    };
    lease.stream(statement.persistent(is_kept), visit).await
}

/// The page so far.
struct StreamedPage<'a> {
    into: &'a mut dyn Collect,
    end: PageEnd,
    bytes: usize,
    rows: usize,
    order: PageOrder,
    max_bytes: usize,
    started: Instant,
    time: Duration,
    with_properties: bool,
    has_seen_rows: bool,
    /// Whether `last` is needed.
    is_walk: bool,
    /// The last row of this window that was seen.
    last: Option<Key>,
}

impl<'a> StreamedPage<'a> {
    fn new(scan: &Scan, into: &'a mut dyn Collect) -> Self {
        Self {
            into,
            end: PageEnd::default(),
            bytes: 0,
            rows: scan.rows.max(1),
            order: scan.order,
            max_bytes: scan.bytes,
            started: Instant::now(),
            time: scan.time,
            with_properties: scan.projection == Projection::Full,
            has_seen_rows: false,
            is_walk: scan.residual.is_some(),
            last: None,
        }
    }

    /// The number of rows to read: one more than fit shows where the next page starts.
    fn missing(&self) -> usize {
        self.rows - self.end.entities + 1
    }

    fn is_full(&self) -> bool {
        self.end.entities >= self.rows
    }

    fn is_out_of_time(&self) -> bool {
        self.time_left().is_zero()
    }

    fn time_left(&self) -> Duration {
        self.time.saturating_sub(self.started.elapsed())
    }

    /// The column of a window that says whether a row matches.
    fn matches_column(&self) -> usize {
        if self.with_properties { 4 } else { 3 }
    }

    fn offer_row(&mut self, row: &PgRow) -> Result<ControlFlow<()>, sqlx::Error> {
        Ok(self.offer(entity(row, self.with_properties)?))
    }

    fn offer_if(&mut self, predicate: &Prepared<'_>, row: &PgRow) -> Result<ControlFlow<()>, sqlx::Error> {
        self.has_seen_rows = true;
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

    /// Adds a row, or ends the page before it.
    fn offer(&mut self, entity: BorrowedEntity<'_>) -> ControlFlow<()> {
        self.has_seen_rows = true;
        let size = entity.weight();
        let ends = self.is_full()
            || (self.end.entities > 0 && (self.bytes + size > self.max_bytes || self.is_out_of_time()));
        if ends {
            self.end.next = Some(self.order.at(Key::new(entity.partition, entity.row)));
            return ControlFlow::Break(());
        }
        self.bytes += size;
        self.end.entities += 1;
        if self.is_walk {
            self.last = Some(Key::new(entity.partition, entity.row));
        }
        self.into.take(entity);
        ControlFlow::Continue(())
    }
}
