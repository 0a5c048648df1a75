//! A page in the order of an index: the rows of its parts, merged. Where Citus distributes entities, each
//! bucket is a part, and there is no snapshot over several servers.

use std::cmp::Ordering;

use futures_util::{StreamExt, TryStreamExt, stream};

use super::ordered_part::{Ordered, OrderedRow, PartRead, PartRows};
use super::reading::Reading;
use super::streamed::StreamedPage;
use crate::protocol::model::{Key, PageOrder};
use crate::protocol::plan::index::{IndexPosition, IndexValue};
use crate::protocol::plan::{PageEnd, Span};
use crate::store::postgres::PgStore;
use crate::store::postgres::connections::sessions::LockWait;
use crate::store::postgres::fault::StatementError;
use crate::store::postgres::state::table_ids::{TableId, TablePart, exists};
use crate::store::postgres::statements::indexes::short_key;

/// Buckets that one page reads at a time.
const AT_ONCE: usize = 4;
impl Ordered<'_> {
    /// Reads a page; `None` if the table is gone.
    pub(super) async fn read(
        self,
        store: &PgStore,
        table_id: TableId,
        mut page: StreamedPage<'_>,
        lock_wait: Option<LockWait>,
    ) -> Result<Option<PageEnd>, StatementError> {
        let parts = if store.nodes.is_distributed() {
            let keys = self.by_keys();
            let points =
                Reading::of(&keys).narrowed_before(store, table_id, lock_wait, &mut page.end).await?;
            let of_bucket = |bucket| {
                let points = points.as_ref().map(|points| of_bucket(points, table_id, bucket));
                PartRead { ordered: self, store, part: TablePart { table_id, bucket: Some(bucket) }, points }
            };
            let reads: Vec<_> = table_id.buckets().map(of_bucket).map(|part| part.read(lock_wait)).collect();
            stream::iter(reads).buffered(AT_ONCE).try_collect::<Vec<_>>().await?
        } else {
            let part = TablePart { table_id, bucket: None };
            let read = PartRead { ordered: self, store, part, points: None };
            vec![Box::pin(read.read(lock_wait)).await?]
        };
        let has_seen_rows = parts.iter().any(|part| part.has_seen_rows);
        if !has_seen_rows && !exists(&mut store.nodes.acquire().await?, table_id).await? {
            return Ok(None);
        }
        self.hand_out(parts, &mut page);
        Ok(Some(page.end))
    }

    /// Passes on the rows of all parts in order, up to where one of them has to be read on.
    fn hand_out(self, parts: Vec<PartRows>, page: &mut StreamedPage<'_>) {
        page.end.examined += parts.iter().map(|part| part.examined).sum::<u64>();
        page.end.narrowed_by = parts.iter().find_map(|part| part.narrowed_by).or(page.end.narrowed_by);
        let ends: Vec<IndexPosition> = parts.iter().filter_map(|part| part.next.clone()).collect();
        let end = ends.into_iter().min_by(|a, b| self.compare((&a.entry, &a.key), (&b.entry, &b.key)));
        let mut rows: Vec<OrderedRow> = parts.into_iter().flat_map(|part| part.rows).collect();
        rows.sort_by(|a, b| self.compare((&a.entry, &a.entity.key), (&b.entry, &b.entity.key)));
        for row in rows {
            let is_behind = |end: &IndexPosition| {
                self.compare((&row.entry, &row.entity.key), (&end.entry, &end.key)) != Ordering::Less
            };
            if end.as_ref().is_some_and(is_behind) {
                break;
            }
            if page.offer((&row.entity).into()).is_break() {
                page.end.next = None;
                page.end.next_in_index = Some(self.position(row.entry, row.entity.key));
                return;
            }
        }
        page.end.next_in_index = end;
    }

    /// The order of the index: keys by the part that it holds first.
    fn compare(self, a: (&Option<IndexValue>, &Key), b: (&Option<IndexValue>, &Key)) -> Ordering {
        let keys = |key: &Key| {
            let (pk, rk) = (short_key(&key.partition).to_owned(), short_key(&key.row).to_owned());
            (pk, rk, key.clone())
        };
        let entries = a.0.partial_cmp(b.0).unwrap_or(Ordering::Equal);
        let ascending = entries.then_with(|| keys(a.1).cmp(&keys(b.1)));
        if self.scan.order == PageOrder::Ascending { ascending } else { ascending.reverse() }
    }
}

/// The points that are in a bucket.
fn of_bucket(points: &[Span], table_id: TableId, bucket: i64) -> Vec<Span> {
    let is_in = |span: &&Span| span.partition().is_some_and(|pk| table_id.bucket(pk) == bucket);
    points.iter().filter(is_in).cloned().collect()
}
