//! The rows of a page as they come from the database.

use std::borrow::Cow;
use std::ops::ControlFlow;
use std::time::{Duration, Instant};

use sqlx::AssertSqlSafe;
use sqlx::postgres::PgRow;

use crate::protocol::model::entity::BorrowedEntity;
use crate::protocol::model::{Key, PageOrder};
use crate::protocol::plan::predicate::Prepared;
use crate::protocol::plan::{PageEnd, Predicate, Projection, Scan};
use crate::store::Collect;
use crate::store::postgres::connections::lease::Lease;
use crate::store::postgres::fault::StatementError;
use crate::store::postgres::reads::sources::Source;
use crate::store::postgres::rows::entity;
use crate::store::postgres::statements;

/// Where the residual filter is evaluated.
#[derive(Clone, Copy)]
pub(super) enum Residual<'a> {
    None,
    Pushed(&'a Predicate),
    Local(&'a Predicate),
}

/// Passes the rows of a source to `visit` until it breaks.
pub(super) async fn stream(
    lease: &mut Lease,
    source: Source,
    order: PageOrder,
    visit: &mut (dyn FnMut(&PgRow) -> Result<ControlFlow<()>, sqlx::Error> + Send),
) -> Result<(), StatementError> {
    let (arguments, is_kept) = (source.binds.into_inner(), source.is_kept);
    // Composed only of the fixed texts and fragments of this module.
    let statement = match statements::in_order(source.text, order) {
        Cow::Borrowed(text) => sqlx::query_with(text, arguments),
        Cow::Owned(text) => sqlx::query_with(AssertSqlSafe(text), arguments),
    };
    lease.stream(statement.persistent(is_kept), visit).await
}

/// The page so far.
pub(super) struct StreamedPage<'a> {
    pub into: &'a mut dyn Collect,
    pub end: PageEnd,
    pub bytes: usize,
    pub rows: usize,
    pub order: PageOrder,
    pub max_bytes: usize,
    pub started: Instant,
    pub time: Duration,
    pub with_properties: bool,
    pub has_seen_rows: bool,
    /// Whether `last` is needed.
    pub is_walk: bool,
    /// The last row of this window that was seen.
    pub last: Option<Key>,
}

impl<'a> StreamedPage<'a> {
    pub(super) fn new(scan: &Scan, into: &'a mut dyn Collect) -> Self {
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
    pub(super) fn missing(&self) -> usize {
        self.rows - self.end.entities + 1
    }

    pub(super) fn is_full(&self) -> bool {
        self.end.entities >= self.rows
    }

    pub(super) fn is_out_of_time(&self) -> bool {
        self.time_left().is_zero()
    }

    pub(super) fn time_left(&self) -> Duration {
        self.time.saturating_sub(self.started.elapsed())
    }

    /// The column of a window that says whether a row matches.
    pub(super) fn matches_column(&self) -> usize {
        if self.with_properties { 4 } else { 3 }
    }

    pub(super) fn offer_row(&mut self, row: &PgRow) -> Result<ControlFlow<()>, sqlx::Error> {
        Ok(self.offer(entity(row, self.with_properties)?))
    }

    pub(super) fn offer_if(
        &mut self,
        predicate: &Prepared<'_>,
        row: &PgRow,
    ) -> Result<ControlFlow<()>, sqlx::Error> {
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
    pub(super) fn offer(&mut self, entity: BorrowedEntity<'_>) -> ControlFlow<()> {
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
