//! Merges the pages of several buckets that Citus distributes.
//!
//! A statement over all buckets would be planned anew and sent to several servers, which takes many times as long as
//! one statement per bucket. Each bucket returns slightly more than its share of the page. Buckets whose keys come
//! first return more rows as the merge needs them. No snapshot spans several servers, so each read sees the state at
//! its own time.

use std::cmp::Ordering;
use std::collections::VecDeque;

use futures_util::StreamExt;
use futures_util::stream;

use super::page::{AT_ONCE, StreamedPage};
use super::reader::PartScan;
use crate::postgres::fault::StatementError;
use crate::postgres::state::table_ids::{TableId, exists};
use crate::protocol::model::{Key, PageOrder, Stored};
use crate::protocol::plan::{PageEnd, Scan, Span};

/// Rows beyond a bucket's even share, because buckets are not exactly even.
const SPARE_ROWS: usize = 24;

/// The known rows of one bucket in order, and the spans after them.
struct BucketRows {
    bucket: i64,
    rows: VecDeque<Stored>,
    rest: Vec<Span>,
    /// Row limit of the last read.
    asked: usize,
}

impl BucketRows {
    /// Whether the bucket's next row is unknown.
    fn is_hungry(&self) -> bool {
        self.rows.is_empty() && !self.rest.is_empty()
    }

    fn is_finished(&self) -> bool {
        self.rows.is_empty() && self.rest.is_empty()
    }

    /// The bound up to which the bucket has no further rows; `None` at its end.
    fn next_bound(&self, order: PageOrder) -> Option<Key> {
        match self.rows.front() {
            Some(row) => Some(order.at(row.key.clone())),
            None => self.rest.first().and_then(|span| order.start(span)).cloned(),
        }
    }

    /// The key of the next row, or the bound where the next read starts; `None` at the end of the table.
    fn next_key(&self, order: PageOrder) -> Option<&Key> {
        let next = self.rows.front().map(|row| &row.key);
        next.or_else(|| self.rest.first().and_then(|span| order.start(span)))
    }

    /// Orders two unfinished buckets. A row precedes a bound with the same key, because a descending read continues
    /// below the bound.
    fn compare(&self, other: &Self, order: PageOrder) -> Ordering {
        let by_key = match (self.next_key(order), other.next_key(order)) {
            (Some(ours), Some(theirs)) => match order {
                PageOrder::Ascending => ours.cmp(theirs),
                PageOrder::Descending => theirs.cmp(ours),
            },
            (ours, theirs) => ours.is_some().cmp(&theirs.is_some()),
        };
        by_key.then(self.rows.is_empty().cmp(&other.rows.is_empty()))
    }
}

/// The first unfinished bucket in order.
fn first(buckets: &mut [BucketRows], order: PageOrder) -> Option<&mut BucketRows> {
    buckets.iter_mut().filter(|bucket| !bucket.is_finished()).min_by(|a, b| a.compare(b, order))
}

/// The buckets where spans can have rows, each with its spans.
fn buckets_of(table_id: TableId, spans: &[Span]) -> Vec<BucketRows> {
    let rows = |(bucket, rest)| BucketRows { bucket, rows: VecDeque::new(), rest, asked: 0 };
    spans_of_buckets(table_id, spans).map(rows).collect()
}

/// The buckets where spans can have rows, and the spans of each.
pub(super) fn spans_of_buckets(table_id: TableId, spans: &[Span]) -> impl Iterator<Item = (i64, Vec<Span>)> {
    let of_bucket = move |bucket: i64| -> (i64, Vec<Span>) {
        let may_be_in = |span: &&Span| span.partition().is_none_or(|pk| table_id.bucket(pk) == bucket);
        (bucket, spans.iter().filter(may_be_in).cloned().collect())
    };
    table_id.buckets().map(of_bucket).filter(|(_, spans)| !spans.is_empty())
}

/// Reads a page; `None` if the table is gone.
pub(super) async fn read(
    of: PartScan<'_>,
    mut page: StreamedPage<'_>,
) -> Result<Option<PageEnd>, StatementError> {
    let PartScan { store, turn, scan, .. } = of;
    let table_id = of.part.table_id;
    let mut buckets = buckets_of(table_id, &scan.spans);
    if let [only] = buckets.as_slice() {
        return of.of_part(scan, Some(only.bucket)).read(page).await;
    }
    loop {
        let (share, most) = (share(scan, &buckets, &page), page.missing());
        if !fill(of, &share, most, &mut buckets).await? {
            return Ok(None);
        }
        if let Some(last) = hand_out(&mut buckets, &mut page) {
            skip_to(&scan.order.after(last), &mut buckets, scan.order);
        }
        let unfinished = first(&mut buckets, scan.order);
        let is_finished = unfinished.is_none();
        let is_over = page.is_full() || page.is_out_of_time() || turn.is_over(None);
        if is_over && !page.has_ended() {
            page.end_at(unfinished.and_then(|bucket| bucket.next_bound(scan.order)));
        }
        if page.has_ended() || is_finished {
            // The table may have been deleted after the first rows were read.
            let mut lease = store.nodes.acquire_for(turn.lock_wait).await?;
            return Ok(exists(&mut lease, table_id).await?.then_some(page.into_end()));
        }
    }
}

/// The scan that each bucket with an unknown next row runs.
fn share(scan: &Scan, buckets: &[BucketRows], page: &StreamedPage<'_>) -> Scan {
    let unfinished = buckets.iter().filter(|bucket| !bucket.is_finished()).count().max(1);
    let hungry = buckets.iter().filter(|bucket| bucket.is_hungry()).count();
    Scan {
        spans: Vec::new(),
        rows: page.missing() / unfinished + SPARE_ROWS,
        bytes: page.bytes_for_each(unfinished),
        time: page.time_for_each(hungry),
        ..scan.clone()
    }
}

/// Reads more rows of each bucket whose next row is unknown; `false` if the table is gone.
async fn fill(
    of: PartScan<'_>,
    share: &Scan,
    most: usize,
    buckets: &mut [BucketRows],
) -> Result<bool, StatementError> {
    let hungry = buckets.iter_mut().filter(|bucket| bucket.is_hungry());
    let reads: Vec<_> = hungry.map(|bucket| bucket.read_on(of, share, most)).collect();
    let mut reads = stream::iter(reads).buffer_unordered(AT_ONCE);
    let mut needs_permit = false;
    while let Some(read) = reads.next().await {
        match read {
            // The other reads end soon. Cancelling them would cost their sessions.
            Err(StatementError::NeedsPermit) => needs_permit = true,
            read if !read? => return Ok(false),
            _ => {}
        }
    }
    if needs_permit { Err(StatementError::NeedsPermit) } else { Ok(true) }
}

impl BucketRows {
    /// Reads the bucket's next rows: its share or, the second time, more; `false` if the table is gone.
    async fn read_on(&mut self, of: PartScan<'_>, share: &Scan, most: usize) -> Result<bool, StatementError> {
        let rows = share.rows.max(2 * self.asked).min(most);
        let scan = Scan { spans: self.rest.clone(), rows, ..share.clone() };
        let mut into: Vec<Stored> = Vec::new();
        let page = StreamedPage::new(&scan, &mut into);
        let Some(end) = of.of_part(&scan, Some(self.bucket)).read(page).await? else {
            return Ok(false);
        };
        self.asked = rows;
        self.rest = end.next.map_or_else(Vec::new, |next| scan.order.rest_of(scan.spans, &next));
        self.rows.extend(into);
        Ok(true)
    }
}

/// Emits rows in order until a bucket must be read or the page ends. Returns the key of the last row.
fn hand_out(buckets: &mut [BucketRows], page: &mut StreamedPage<'_>) -> Option<Key> {
    let mut last = None;
    while let Some(row) = first(buckets, page.scan.order).and_then(|first| first.rows.pop_front()) {
        if page.offer_held((&row).into()).is_break() {
            break;
        }
        last = Some(row.key);
    }
    last
}

/// Cuts off the keys before a bound that the page has passed. Only one bucket can contain a given key. If a bucket
/// resumes at the key of another bucket's row, it has no row with that key, and the next page starts after it.
fn skip_to(bound: &Key, buckets: &mut [BucketRows], order: PageOrder) {
    for bucket in buckets.iter_mut().filter(|bucket| bucket.is_hungry()) {
        bucket.rest = order.rest_of(std::mem::take(&mut bucket.rest), bound);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::protocol::model::Ticks;
    use crate::protocol::model::entity::StoredProperties;

    #[test]
    fn a_page_ends_after_its_last_row_if_another_bucket_is_still_to_be_read_from_that_key_on() {
        let (key, order) = (Key::new("p", "r"), PageOrder::Ascending);
        let row =
            Stored { key: key.clone(), modified: Ticks::now(), properties: StoredProperties::default() };
        let unread = vec![Span { lower: key.clone(), upper: None }];
        let bucket = |rows: Vec<Stored>, rest| BucketRows { bucket: 0, rows: rows.into(), rest, asked: 0 };
        let mut buckets = [bucket(vec![row], Vec::new()), bucket(Vec::new(), unread)];
        let (scan, mut into): (_, Vec<Stored>) = (Scan::of_spans(Vec::new()), Vec::new());
        let last = hand_out(&mut buckets, &mut StreamedPage::new(&scan, &mut into)).expect("a row");
        assert_eq!(last, key);
        skip_to(&order.after(last), &mut buckets, order);
        assert_eq!(
            first(&mut buckets, order).and_then(|bucket| bucket.next_bound(order)),
            Some(order.after(key))
        );
    }

    #[test]
    fn a_bucket_gets_the_spans_that_may_have_rows_in_it() {
        let table_id = TableId::new(1, 4);
        let point = |pk: &str| Span { lower: Key::new(pk, "r"), upper: Some(Key::new(pk, "r\u{1}")) };
        let points: Vec<Span> = (0..20).map(|n| point(&format!("{n:02}"))).collect();
        let buckets = buckets_of(table_id, &points);
        assert_eq!(buckets.iter().map(|bucket| bucket.rest.len()).sum::<usize>(), 20);
        assert_eq!(buckets_of(table_id, &points[..1]).len(), 1);
        assert_eq!(buckets_of(table_id, &[Span::everything()]).len(), 4);
    }
}
