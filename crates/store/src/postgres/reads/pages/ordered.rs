//! A page in the order of an index: the rows of its parts, merged. Where Citus distributes entities, each
//! bucket is a part, and there is no snapshot over several servers.

use std::cmp::Ordering;

use futures_util::{StreamExt, stream};

use super::merge::spans_of_buckets;
use super::ordered_part::PartRead;
use super::ordered_rows::{Ordered, OrderedRow, PartRows};
use super::reading::Reading;
use super::streamed::{AT_ONCE, StreamedPage};
use crate::postgres::PgStore;
use crate::postgres::fault::StatementError;
use crate::postgres::reads::turn::ScanTurn;
use crate::postgres::state::table_ids::{TableId, TablePart, exists};
use crate::postgres::statements::indexes::short_key;
use crate::protocol::model::{Key, PageOrder};
use crate::protocol::plan::index::{IndexPosition, IndexValue};
use crate::protocol::plan::{PageEnd, Scan};

impl Ordered<'_> {
    /// Reads a page; `None` if the table is gone.
    pub(super) async fn read(
        self,
        store: &PgStore,
        table_id: TableId,
        mut page: StreamedPage<'_>,
        turn: &ScanTurn<'_>,
    ) -> Result<Option<PageEnd>, StatementError> {
        let parts = if store.nodes.is_distributed() {
            self.of_buckets(store, table_id, &mut page, turn).await?
        } else {
            let part = TablePart { table_id, bucket: None };
            let read = PartRead { ordered: self, store, turn, part, points: None };
            vec![Box::pin(read.read()).await?]
        };
        // Where buckets are parts, the table may have gone after the first rows were read.
        let is_sure = parts.len() == 1 && parts.iter().all(|part| part.has_seen_rows);
        if !is_sure && !exists(&mut store.nodes.acquire_for(turn.lock_wait).await?, table_id).await? {
            return Ok(None);
        }
        self.hand_out(parts, &mut page);
        Ok(Some(page.end))
    }

    /// Reads each bucket, in its share of the page's time and bytes.
    async fn of_buckets(
        self,
        store: &PgStore,
        table_id: TableId,
        page: &mut StreamedPage<'_>,
        turn: &ScanTurn<'_>,
    ) -> Result<Vec<PartRows>, StatementError> {
        let keys = self.scan.by_keys();
        let points = Reading::of(&keys).narrowed_before(store, table_id, turn, &mut page.end).await?;
        let spans = points.as_ref().unwrap_or(&self.scan.spans);
        let buckets: Vec<_> = spans_of_buckets(table_id, spans).collect();
        let (time, bytes) = (page.time_for_each(buckets.len()), page.bytes_for_each(buckets.len()));
        let share = Scan { time, bytes, ..self.scan.clone() };
        let of_bucket = |(bucket, spans)| PartRead {
            ordered: Ordered { scan: &share, ..self },
            store,
            turn,
            part: TablePart { table_id, bucket: Some(bucket) },
            points: points.is_some().then_some(spans),
        };
        let reads: Vec<_> = buckets.into_iter().map(of_bucket).map(|part| part.read()).collect();
        // All of them end: to give one up would cost its session.
        let reads: Vec<_> = stream::iter(reads).buffered(AT_ONCE).collect().await;
        reads.into_iter().collect()
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
            if page.offer_held((&row.entity).into()).is_break() {
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
