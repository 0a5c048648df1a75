//! Merges the rows of a table's parts in the order of an index. With Citus, each bucket is a part, and no snapshot
//! spans several servers.

use std::cmp::Ordering;
use std::sync::Arc;

use futures_util::{StreamExt, stream};
use sqlx::Row;
use sqlx::postgres::PgRow;

use super::merge::spans_of_buckets;
use super::page::{AT_ONCE, OrderedRow, PartRows, StreamedPage};
use super::reader::PartScan;
use crate::postgres::PgStore;
use crate::postgres::fault::StatementError;
use crate::postgres::reads::narrow::has_columns;
use crate::postgres::reads::turn::Evaluated;
use crate::postgres::state::table_ids::{TableId, exists};
use crate::postgres::statements::indexes::{ordered_columns, short_key};
use crate::protocol::model::{Key, PageOrder};
use crate::protocol::plan::index::{IndexPosition, IndexValue, PropertyIndex, ValueOrder};
use crate::protocol::plan::predicate::Prepared;
use crate::protocol::plan::{PageEnd, Scan};

#[derive(Clone, Copy)]
pub(super) struct Ordered<'a> {
    pub of: PartScan<'a>,
    pub by: &'a ValueOrder,
    pub index: &'a Arc<PropertyIndex>,
}

/// Whether the database has the index of an order for this table, in the form that includes keys.
pub(super) async fn has_index(
    by: &ValueOrder,
    store: &PgStore,
    table_id: TableId,
) -> Result<bool, StatementError> {
    let Some(index) = by.index.as_ref().filter(|index| index.table_no == table_id.table_no) else {
        return Ok(false);
    };
    let columns = ordered_columns(table_id.spread);
    let mut lease = store.nodes.acquire().await?;
    has_columns(&mut lease, index.index_no, columns, &store.narrowing).await
}

impl<'a> Ordered<'a> {
    /// The order of a scan; `None` for the order of keys.
    pub(super) fn of(of: PartScan<'a>) -> Option<Self> {
        let by = of.scan.by.as_deref()?;
        Some(Self { of, by, index: by.index.as_ref()? })
    }

    pub(super) fn position(self, entry: Option<IndexValue>, key: Key) -> IndexPosition {
        IndexPosition { index_no: self.index.index_no, entry, key }
    }

    /// Reads a page; `None` if the table is gone.
    pub(super) async fn read(self, mut page: StreamedPage<'_>) -> Result<Option<PageEnd>, StatementError> {
        let PartScan { store, turn, part, .. } = self.of;
        let parts = if store.nodes.is_distributed() {
            self.of_buckets(&mut page).await?
        } else {
            vec![Box::pin(self.read_part(None)).await?]
        };
        // If the parts are buckets, the table may have been deleted after the first rows were read.
        let is_sure = parts.len() == 1 && parts.iter().all(|part| part.has_seen_rows);
        if !is_sure && !exists(&mut store.nodes.acquire_for(turn.lock_wait).await?, part.table_id).await? {
            return Ok(None);
        }
        self.hand_out(parts, &mut page);
        Ok(Some(page.into_end()))
    }

    /// Reads each bucket within its share of the page's time and bytes.
    async fn of_buckets(self, page: &mut StreamedPage<'_>) -> Result<Vec<PartRows>, StatementError> {
        let keys = self.of.scan.by_keys();
        let points = self.of.of_part(&keys, None).narrowed_before(page).await?;
        let spans = points.as_ref().unwrap_or(&keys.spans);
        let buckets: Vec<_> = spans_of_buckets(self.of.part.table_id, spans).collect();
        let (time, bytes) = (page.time_for_each(buckets.len()), page.bytes_for_each(buckets.len()));
        let share = Scan { time, bytes, ..self.of.scan.clone() };
        let of_bucket = |(bucket, spans)| {
            let ordered = Ordered { of: self.of.of_part(&share, Some(bucket)), ..self };
            ordered.read_part(points.is_some().then_some(spans))
        };
        let reads: Vec<_> = buckets.into_iter().map(of_bucket).collect();
        // All reads run to their end, because cancelling one would cost its session.
        let reads: Vec<_> = stream::iter(reads).buffered(AT_ONCE).collect().await;
        reads.into_iter().collect()
    }

    /// Emits the rows of all parts in order until one part must be read further.
    fn hand_out(self, parts: Vec<PartRows>, page: &mut StreamedPage<'_>) {
        parts.iter().for_each(|part| page.count_examined(part.end.examined));
        page.narrow_by(parts.iter().find_map(|part| part.end.narrowed_by));
        let ends: Vec<IndexPosition> =
            parts.iter().filter_map(|part| part.end.next_in_index.clone()).collect();
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
            if !page.add((&row.entity).into()) {
                page.end_at_position(Some(self.position(row.entry, row.entity.key)));
                return;
            }
        }
        page.end_at_position(end);
    }

    /// The order of the index. Keys compare by the prefix that the index stores first.
    fn compare(self, a: (&Option<IndexValue>, &Key), b: (&Option<IndexValue>, &Key)) -> Ordering {
        let keys = |key: &Key| {
            let (pk, rk) = (short_key(&key.partition).to_owned(), short_key(&key.row).to_owned());
            (pk, rk, key.clone())
        };
        let entries = a.0.partial_cmp(b.0).unwrap_or(Ordering::Equal);
        let ascending = entries.then_with(|| keys(a.1).cmp(&keys(b.1)));
        if self.of.scan.order == PageOrder::Ascending { ascending } else { ascending.reverse() }
    }
}

impl Evaluated for OrderedRow {
    fn bytes(&self) -> usize {
        self.entity.bytes()
    }

    fn matches(&self, filter: &Prepared<'_>) -> Result<bool, StatementError> {
        Evaluated::matches(&self.entity, filter)
    }
}

/// Decodes the number of a row in its window.
pub(super) fn number(row: &PgRow, with_properties: bool) -> Result<usize, sqlx::Error> {
    let number: i64 = row.try_get_unchecked(if with_properties { 5 } else { 4 })?;
    usize::try_from(number).map_err(|error| sqlx::Error::Decode(error.into()))
}
