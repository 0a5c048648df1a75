//! Collects the rows of a page as they arrive from the database.

use std::borrow::Cow;
use std::ops::ControlFlow;
use std::time::{Duration, Instant};

use sqlx::AssertSqlSafe;
use sqlx::postgres::PgRow;

use crate::Collect;
use crate::postgres::connections::lease::Lease;
use crate::postgres::connections::statement_watch::StreamEnd;
use crate::postgres::fault::StatementError;
use crate::postgres::reads::filter;
use crate::postgres::reads::sources::Source;
use crate::postgres::reads::turn::ScanTurn;
use crate::postgres::rows::entity;
use crate::postgres::statements;
use crate::protocol::model::entity::BorrowedEntity;
use crate::protocol::model::{Key, PageOrder, Stored};
use crate::protocol::plan::index::{IndexPosition, IndexValue};
use crate::protocol::plan::{PageEnd, Predicate, Projection, Scan};

/// Maximum number of concurrent bucket reads of a page.
pub(super) const AT_ONCE: usize = 4;
/// Minimum time for a bucket, however late its read starts.
const LEAST_TIME: Duration = Duration::from_millis(50);

/// Maximum bytes of rows in memory for local evaluation of a filter.
const HELD_BYTES: usize = 4 * 1024 * 1024;

/// Where the residual filter is evaluated.
#[derive(Clone, Copy)]
pub(super) enum Residual<'a> {
    None,
    Pushed(&'a Predicate),
    Local(&'a Predicate),
}

impl<'a> Residual<'a> {
    pub(super) fn of(scan: &'a Scan) -> Self {
        match &scan.residual {
            None => Residual::None,
            Some(predicate) if filter::is_pushable(predicate) => Residual::Pushed(predicate),
            Some(predicate) => Residual::Local(predicate),
        }
    }

    pub(super) const fn is_none(self) -> bool {
        matches!(self, Residual::None)
    }

    pub(super) const fn is_local(self) -> bool {
        matches!(self, Residual::Local(_))
    }
}

/// Passes the rows of a source to `visit` until it breaks. If the statement is then cut off, the page has to end.
pub(super) async fn stream(
    lease: &mut Lease,
    source: Source,
    order: PageOrder,
    visit: &mut (dyn FnMut(&PgRow) -> Result<ControlFlow<()>, sqlx::Error> + Send),
) -> Result<StreamEnd, StatementError> {
    let (arguments, is_kept) = (source.binds.into_inner(), source.is_kept);
    // The text has only constants and fragments of this module.
    let statement = match statements::in_order(source.text, order) {
        Cow::Borrowed(text) => sqlx::query_with(text, arguments),
        Cow::Owned(text) => sqlx::query_with(AssertSqlSafe(text), arguments),
    };
    lease.stream(statement.persistent(is_kept), visit).await
}

/// Rows of a window that are buffered before local evaluation of the filter.
pub(super) struct HeldRows<T> {
    pub rows: Vec<T>,
    bytes: usize,
    most: usize,
}

impl<T> HeldRows<T> {
    /// Returns an empty buffer for at most `most` rows. Several rows must fit into [`HELD_BYTES`].
    pub(super) const fn new(most: usize) -> Self {
        Self { rows: Vec::new(), bytes: 0, most }
    }

    /// Buffers a row of this size; `false` if the window ends before it.
    pub(super) fn take(&mut self, bytes: usize, row: impl FnOnce() -> T) -> bool {
        if self.rows.len() >= self.most || (!self.rows.is_empty() && self.bytes + bytes > HELD_BYTES) {
            return false;
        }
        self.bytes += bytes;
        self.rows.push(row());
        true
    }

    /// The number of rows that the next window has room for.
    pub(super) fn fitting(&self) -> usize {
        let size = self.bytes / self.rows.len().max(1);
        (HELD_BYTES / 2 / size.max(1)).max(1)
    }
}

/// A page under construction and the destination of its rows.
pub(super) struct OpenPage<'a, R: ?Sized> {
    pub scan: &'a Scan,
    rows: &'a mut R,
    end: PageEnd,
    bytes: usize,
    started: Instant,
    /// Whether the part has returned rows, matching or not.
    pub has_seen_rows: bool,
    last: Option<Key>,
}

/// A page that passes on its rows one by one.
pub(super) type StreamedPage<'a> = OpenPage<'a, dyn Collect>;

/// The first rows of a part in the order of an index, for merging with the rows of other parts.
pub(super) type HeldPage<'a> = OpenPage<'a, Vec<OrderedRow>>;

/// The rows and bytes of a page at the start of a window.
#[derive(Clone, Copy)]
pub(super) struct Mark {
    pub rows: usize,
    bytes: usize,
}

/// A row with its index entry.
pub(super) struct OrderedRow {
    pub entry: Option<IndexValue>,
    pub entity: Stored,
}

#[derive(Default)]
pub(super) struct PartRows {
    pub rows: Vec<OrderedRow>,
    pub end: PageEnd,
    pub has_seen_rows: bool,
}

impl<'a, R: ?Sized> OpenPage<'a, R> {
    pub(super) fn new(scan: &'a Scan, rows: &'a mut R) -> Self {
        let (end, started) = (PageEnd::default(), Instant::now());
        Self { scan, rows, end, bytes: 0, started, has_seen_rows: false, last: None }
    }

    /// The number of rows to read. One extra row shows where the next page starts.
    pub(super) fn missing(&self) -> usize {
        self.max_rows() - self.end.entities + 1
    }

    fn max_rows(&self) -> usize {
        self.scan.rows.max(1)
    }

    pub(super) fn is_full(&self) -> bool {
        self.end.entities >= self.max_rows()
    }

    pub(super) fn is_out_of_time(&self) -> bool {
        self.time_left().is_zero()
    }

    pub(super) fn time_left(&self) -> Duration {
        self.scan.time.saturating_sub(self.started.elapsed())
    }

    /// The time limit of each of several buckets.
    pub(super) fn time_for_each(&self, buckets: usize) -> Duration {
        let turns = u32::try_from(buckets.div_ceil(AT_ONCE).max(1)).unwrap_or(u32::MAX);
        (self.time_left() / turns).max(LEAST_TIME)
    }

    /// The byte limit of each of several buckets.
    pub(super) fn bytes_for_each(&self, buckets: usize) -> usize {
        (self.scan.bytes.saturating_sub(self.bytes) / buckets.max(1)).max(1)
    }

    /// Whether the start of the next page is known.
    pub(super) const fn has_ended(&self) -> bool {
        self.end.next.is_some() || self.end.next_in_index.is_some()
    }

    /// Returns the page's state before a window, and forgets the last row of the previous window.
    pub(super) fn begin_window(&mut self) -> Mark {
        self.last = None;
        Mark { rows: self.end.entities, bytes: self.bytes }
    }

    pub(super) const fn examined(&self) -> u64 {
        self.end.examined
    }

    pub(super) const fn count_examined(&mut self, rows: u64) {
        self.end.examined += rows;
    }

    /// Records the choice of indexes that narrows the page, if any.
    pub(super) fn narrow_by(&mut self, choice: Option<usize>) {
        self.end.narrowed_by = choice.or(self.end.narrowed_by);
    }

    /// Ends the page before `next`, unless the page has ended or `next` is `None`.
    pub(super) fn end_at(&mut self, next: Option<Key>) {
        self.end.next = self.end.next.take().or(next);
    }

    /// Ends the page before the position `next`, unless the page has ended or `next` is `None`.
    pub(super) fn end_at_position(&mut self, next: Option<IndexPosition>) {
        self.end.next_in_index = self.end.next_in_index.take().or(next);
    }

    pub(super) fn into_end(self) -> PageEnd {
        self.end
    }

    /// Whether a row of this size fits into the page. If so, counts it.
    fn fits(&mut self, size: usize) -> bool {
        self.has_seen_rows = true;
        if self.is_full() || (self.end.entities > 0 && self.bytes + size > self.scan.bytes) {
            return false;
        }
        self.bytes += size;
        self.end.entities += 1;
        true
    }

    /// Returns an entity without the properties that the page omits.
    fn projected<'e>(&self, mut entity: BorrowedEntity<'e>) -> BorrowedEntity<'e> {
        if self.scan.projection == Projection::SystemOnly {
            entity.properties = "{}";
        }
        entity
    }
}

impl StreamedPage<'_> {
    /// Records a row that does not match.
    pub(super) fn pass(&mut self, key: Key) {
        self.last = Some(key);
    }

    /// The key after the last row of the current window.
    pub(super) fn reached(&self) -> Option<Key> {
        self.last.clone().map(|last| self.scan.order.after(last))
    }

    /// The column of a window that shows whether a row matches.
    pub(super) fn matches_column(&self) -> usize {
        if self.scan.projection == Projection::Full { 4 } else { 3 }
    }

    pub(super) fn offer_row(&mut self, row: &PgRow) -> Result<ControlFlow<()>, sqlx::Error> {
        Ok(self.offer(entity(row, self.scan.projection == Projection::Full)?))
    }

    /// Evaluates the filter locally and adds the matching rows. Returns the key of the first unread row, unless the
    /// page ends before it.
    pub(super) async fn offer_matches(
        &mut self,
        filter: &Predicate,
        (rows, next): (Vec<Stored>, Option<Key>),
        turn: &ScanTurn<'_>,
    ) -> Result<Option<Key>, StatementError> {
        let (rows, matches) = turn.evaluate(filter, rows).await?;
        self.has_seen_rows |= !rows.is_empty();
        self.count_examined(matches.len() as u64);
        for (row, _) in rows.iter().zip(&matches).filter(|(_, is_match)| **is_match) {
            if self.offer_held(self.projected(row.into())).is_break() {
                return Ok(None);
            }
        }
        Ok(rows.into_iter().nth(matches.len()).map(|row| row.key).or(next))
    }

    /// Adds a row from the database, or ends the page before the row.
    fn offer(&mut self, entity: BorrowedEntity<'_>) -> ControlFlow<()> {
        if self.end.entities > 0 && self.is_out_of_time() {
            return self.end_before(entity);
        }
        self.offer_held(entity)
    }

    fn end_before(&mut self, entity: BorrowedEntity<'_>) -> ControlFlow<()> {
        self.end.next = Some(self.scan.order.at(Key::new(entity.partition, entity.row)));
        ControlFlow::Break(())
    }

    /// Adds a row from memory, regardless of the time limit, or ends the page before the row.
    pub(super) fn offer_held(&mut self, entity: BorrowedEntity<'_>) -> ControlFlow<()> {
        if self.add(entity) { ControlFlow::Continue(()) } else { self.end_before(entity) }
    }

    /// Adds a row, regardless of the time limit; `false` if the row belongs to the next page.
    pub(super) fn add(&mut self, entity: BorrowedEntity<'_>) -> bool {
        if !self.fits(entity.weight()) {
            return false;
        }
        if self.scan.residual.is_some() {
            self.last = Some(Key::new(entity.partition, entity.row));
        }
        self.rows.take(entity);
        true
    }
}

impl HeldPage<'_> {
    pub(super) fn truncate(&mut self, Mark { rows, bytes }: Mark) {
        self.rows.truncate(rows);
        (self.end.entities, self.bytes) = (rows, bytes);
    }

    /// Resets everything but the number of examined rows, because the read restarts in another snapshot.
    pub(super) fn restart(&mut self) {
        self.truncate(Mark { rows: 0, bytes: 0 });
        self.end = PageEnd { examined: self.end.examined, ..PageEnd::default() };
        self.has_seen_rows = false;
    }

    /// Takes a matching row, or ends the page before it. `position` is the row's position.
    pub(super) fn offer(
        &mut self,
        entity: BorrowedEntity<'_>,
        entry: Option<IndexValue>,
        position: impl FnOnce(Option<IndexValue>, Key) -> IndexPosition,
    ) -> ControlFlow<()> {
        let entity = self.projected(entity);
        let fits = self.fits(entity.weight());
        let entity = entity.to_stored();
        if !fits {
            self.end.next_in_index = Some(position(entry, entity.key));
            return ControlFlow::Break(());
        }
        self.rows.push(OrderedRow { entry, entity });
        ControlFlow::Continue(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::protocol::model::Ticks;
    use crate::protocol::model::entity::StoredProperties;
    use crate::protocol::plan::Span;

    #[test]
    fn buckets_share_what_a_page_has() {
        let (mut into, mut late_into) = ((), ());
        let scan = Scan { bytes: 4096, time: Duration::from_secs(3600), ..Scan::of_spans(Vec::new()) };
        let page = OpenPage::new(&scan, &mut into);
        for buckets in [0_usize, 1, 3, 4, 5, 25, 64] {
            let turns = u32::try_from(buckets.div_ceil(AT_ONCE)).expect("a small number");
            assert!(page.time_for_each(buckets) * turns <= scan.time);
            assert!(page.bytes_for_each(buckets) * buckets <= scan.bytes);
        }
        assert!(page.time_for_each(4) > page.time_for_each(5));
        let scan = Scan { bytes: 1, time: Duration::ZERO, ..scan };
        let late = OpenPage::new(&scan, &mut late_into);
        assert_eq!((late.time_for_each(64), late.bytes_for_each(64)), (LEAST_TIME, 1));
    }

    fn row(n: i32, length: usize) -> (Stored, Option<IndexValue>) {
        let text = format!(r#"{{"N":{n},"Text":"{}"}}"#, "x".repeat(length));
        let properties = StoredProperties::from_stored_text(text);
        let entity = Stored { key: Key::new("p", n.to_string()), modified: Ticks::MIN, properties };
        (entity, Some(IndexValue::Number(f64::from(n))))
    }

    /// Reads pages in sequence, each from the end of the last one, and returns the numbers of their rows.
    fn pages(scan: &Scan, rows: &[(Stored, Option<IndexValue>)]) -> Vec<Vec<String>> {
        let position = |entry, key| IndexPosition { index_no: 1, entry, key };
        let (mut pages, mut start) = (Vec::new(), 0);
        loop {
            let mut held = Vec::new();
            let mut page = HeldPage::new(scan, &mut held);
            let is_end = |(entity, entry): &(Stored, Option<IndexValue>)| {
                page.offer(entity.into(), entry.clone(), position).is_break()
            };
            let end = rows[start..].iter().position(is_end);
            let weight = |row: &OrderedRow| BorrowedEntity::from(&row.entity).weight();
            assert_eq!(page.bytes, page.rows.iter().map(weight).sum::<usize>());
            let next = page.into_end().next_in_index;
            pages.push(held.into_iter().map(|row| row.entity.key.row).collect());
            let Some(end) = end else {
                assert_eq!(next, None);
                return pages;
            };
            assert!(end > 0, "the page makes no progress");
            start += end;
            let (entity, entry) = &rows[start];
            assert_eq!(next, Some(position(entry.clone(), entity.key.clone())));
        }
    }

    #[test]
    fn a_page_ends_before_the_row_that_exceeds_its_rows_or_its_bytes() {
        let everything = Scan::of_spans(vec![Span::everything()]);
        let rows = [row(0, 10), row(1, 5000), row(2, 100), row(3, 100), row(4, 100)];
        let by_bytes = Scan { bytes: 300, ..everything.clone() };
        assert_eq!(pages(&by_bytes, &rows), [vec!["0"], vec!["1"], vec!["2", "3"], vec!["4"]]);
        let least = Scan { bytes: 1, ..everything.clone() };
        assert_eq!(pages(&least, &rows).len(), rows.len());
        let by_rows = Scan { rows: 2, ..everything };
        assert_eq!(pages(&by_rows, &rows), [vec!["0", "1"], vec!["2", "3"], vec!["4"]]);
        let of_keys = Scan { projection: Projection::SystemOnly, ..by_bytes };
        assert_eq!(pages(&of_keys, &rows).len(), 1, "properties that are not read have no bytes");
    }
}
