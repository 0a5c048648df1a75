//! The rows of a page as they come from the database.

use std::borrow::Cow;
use std::ops::ControlFlow;
use std::time::{Duration, Instant};

use sqlx::AssertSqlSafe;
use sqlx::postgres::PgRow;

use crate::Collect;
use crate::postgres::connections::lease::Lease;
use crate::postgres::connections::statement_watch::StreamEnd;
use crate::postgres::fault::StatementError;
use crate::postgres::reads::sources::Source;
use crate::postgres::reads::turn::ScanTurn;
use crate::postgres::rows::entity;
use crate::postgres::statements;
use crate::protocol::model::entity::BorrowedEntity;
use crate::protocol::model::{Key, PageOrder, Stored};
use crate::protocol::plan::{PageEnd, Predicate, Projection, Scan};

/// Buckets that one page reads at a time.
pub(super) const AT_ONCE: usize = 4;
/// The least time for a bucket, however late it is read.
const LEAST_TIME: Duration = Duration::from_millis(50);

/// Bytes of rows that are held at once to evaluate a filter here.
const HELD_BYTES: usize = 4 * 1024 * 1024;

/// Where the residual filter is evaluated.
#[derive(Clone, Copy)]
pub(super) enum Residual<'a> {
    None,
    Pushed(&'a Predicate),
    Local(&'a Predicate),
}

/// Passes the rows of a source to `visit` until it breaks; the page has to end if the statement is then cut off.
pub(super) async fn stream(
    lease: &mut Lease,
    source: Source,
    order: PageOrder,
    visit: &mut (dyn FnMut(&PgRow) -> Result<ControlFlow<()>, sqlx::Error> + Send),
) -> Result<StreamEnd, StatementError> {
    let (arguments, is_kept) = (source.binds.into_inner(), source.is_kept);
    // Composed only of the fixed texts and fragments of this module.
    let statement = match statements::in_order(source.text, order) {
        Cow::Borrowed(text) => sqlx::query_with(text, arguments),
        Cow::Owned(text) => sqlx::query_with(AssertSqlSafe(text), arguments),
    };
    lease.stream(statement.persistent(is_kept), visit).await
}

/// Rows of a window that are read before a filter is evaluated for them here.
pub(super) struct HeldRows<T> {
    pub rows: Vec<T>,
    bytes: usize,
    most: usize,
}

impl<T> HeldRows<T> {
    /// Returns an empty buffer that holds up to `most` rows, and several rows only up to [`HELD_BYTES`].
    pub(super) const fn new(most: usize) -> Self {
        Self { rows: Vec::new(), bytes: 0, most }
    }

    /// Holds a row of this size; `false` if the window ends before it.
    pub(super) fn take(&mut self, bytes: usize, row: impl FnOnce() -> T) -> bool {
        if self.rows.len() >= self.most || (!self.rows.is_empty() && self.bytes + bytes > HELD_BYTES) {
            return false;
        }
        self.bytes += bytes;
        self.rows.push(row());
        true
    }

    /// The rows of the next window that have room.
    pub(super) fn fitting(&self, wanted: usize) -> usize {
        let size = self.bytes / self.rows.len().max(1);
        wanted.min(HELD_BYTES / 2 / size.max(1)).max(1)
    }
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

    /// The time for each of several buckets.
    pub(super) fn time_for_each(&self, buckets: usize) -> Duration {
        let turns = u32::try_from(buckets.div_ceil(AT_ONCE).max(1)).unwrap_or(u32::MAX);
        (self.time_left() / turns).max(LEAST_TIME)
    }

    /// The bytes for each of several buckets.
    pub(super) fn bytes_for_each(&self, buckets: usize) -> usize {
        (self.max_bytes.saturating_sub(self.bytes) / buckets.max(1)).max(1)
    }

    /// The column of a window that says whether a row matches.
    pub(super) fn matches_column(&self) -> usize {
        if self.with_properties { 4 } else { 3 }
    }

    pub(super) fn offer_row(&mut self, row: &PgRow) -> Result<ControlFlow<()>, sqlx::Error> {
        Ok(self.offer(entity(row, self.with_properties)?))
    }

    /// Adds those rows that match a filter which is evaluated here; returns the key of the first row that is
    /// still to be read, unless the page ends before.
    pub(super) async fn offer_matches(
        &mut self,
        filter: &Predicate,
        (rows, next): (Vec<Stored>, Option<Key>),
        turn: &ScanTurn<'_>,
    ) -> Result<Option<Key>, StatementError> {
        let (rows, matches) = turn.evaluate(filter, rows).await?;
        self.has_seen_rows |= !rows.is_empty();
        self.end.examined += matches.len() as u64;
        for (row, _) in rows.iter().zip(&matches).filter(|(_, is_match)| **is_match) {
            let mut entity = BorrowedEntity::from(row);
            if !self.with_properties {
                entity.properties = "{}";
            }
            if self.offer_held(entity).is_break() {
                return Ok(None);
            }
        }
        Ok(rows.into_iter().nth(matches.len()).map(|row| row.key).or(next))
    }

    /// Adds a row that the database sends, or ends the page before it.
    pub(super) fn offer(&mut self, entity: BorrowedEntity<'_>) -> ControlFlow<()> {
        if self.end.entities > 0 && self.is_out_of_time() {
            return self.end_before(entity);
        }
        self.offer_held(entity)
    }

    fn end_before(&mut self, entity: BorrowedEntity<'_>) -> ControlFlow<()> {
        self.end.next = Some(self.order.at(Key::new(entity.partition, entity.row)));
        ControlFlow::Break(())
    }

    /// Adds a row that is in memory, however late it is, or ends the page before it.
    pub(super) fn offer_held(&mut self, entity: BorrowedEntity<'_>) -> ControlFlow<()> {
        self.has_seen_rows = true;
        let size = entity.weight();
        if self.is_full() || (self.end.entities > 0 && self.bytes + size > self.max_bytes) {
            return self.end_before(entity);
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn buckets_share_what_a_page_has() {
        let mut into: Vec<crate::protocol::model::Stored> = Vec::new();
        let scan = Scan { bytes: 4096, time: Duration::from_secs(3600), ..Scan::of_spans(Vec::new()) };
        let page = StreamedPage::new(&scan, &mut into);
        for buckets in [0_usize, 1, 3, 4, 5, 25, 64] {
            let turns = u32::try_from(buckets.div_ceil(AT_ONCE)).expect("a small number");
            assert!(page.time_for_each(buckets) * turns <= scan.time);
            assert!(page.bytes_for_each(buckets) * buckets <= scan.bytes);
        }
        assert!(page.time_for_each(4) > page.time_for_each(5));
        let late = StreamedPage::new(&Scan { bytes: 1, time: Duration::ZERO, ..scan }, &mut into);
        assert_eq!((late.time_for_each(64), late.bytes_for_each(64)), (LEAST_TIME, 1));
    }
}
