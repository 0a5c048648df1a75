//! Finds the keys that can match a filter, if indexes or partitions leave few of them.

use std::ops::ControlFlow;

use sqlx::postgres::PgRow;

use super::page::{OpenPage, stream};
use super::reader::PartScan;
use crate::Fault;
use crate::contract::indexes::{MAX_ENTRIES, choices_of, filter_number};
use crate::postgres::connections::lease::Lease;
use crate::postgres::fault::StatementError;
use crate::postgres::reads::narrow::look_up;
use crate::postgres::reads::sources;
use crate::postgres::rows::key;
use crate::postgres::state::table_ids::TablePart;
use crate::protocol::model::PageOrder;
use crate::protocol::plan::index::IndexChoice;
use crate::protocol::plan::span::points_within;
use crate::protocol::plan::{Projection, Span};

impl PartScan<'_> {
    /// Like [`PartScan::narrowed`], for a page without a snapshot that merges buckets.
    pub(super) async fn narrowed_before<R: ?Sized + Send>(
        self,
        page: &mut OpenPage<'_, R>,
    ) -> Result<Option<Vec<Span>>, StatementError> {
        if self.scan.indexed.is_empty() {
            return Ok(None);
        }
        let mut lease = self.acquire().await?;
        let spans = self.narrowed(&mut lease, page).await?;
        lease.end_snapshot().await;
        Ok(spans)
    }

    /// Looks up the keys of matches in indexes, in the snapshot of the page. `None` if no index helps; the page is
    /// then read in the order of keys.
    pub(super) async fn narrowed<R: ?Sized + Send>(
        self,
        lease: &mut Lease,
        page: &mut OpenPage<'_, R>,
    ) -> Result<Option<Vec<Span>>, StatementError> {
        if self.scan.indexed.is_empty() {
            return Ok(None);
        }
        let (table_id, memory) = (self.part.table_id, &self.store.narrowing);
        let filter = filter_number(table_id.table_no, self.scan);
        let is_dense = |(_, choice): (usize, &IndexChoice)| memory.bounds.has(choice);
        if memory.dense.has(filter) || choices_of(self.scan, table_id.table_no).all(is_dense) {
            return Ok(None);
        }
        let dense = &memory.dense;
        if !lease.is_in_transaction() {
            lease.begin_snapshot(self.limit).await?;
        }
        let best = match look_up(lease, table_id, self.scan, memory).await {
            // The database has just lost the index.
            Err(StatementError::Fault(Fault::Timeout)) => {
                lease.roll_back().await;
                dense.put(filter);
                return Ok(None);
            }
            best => best?,
        };
        page.count_examined(best.entries);
        let is_dense = best.is_dense();
        let named = best.into_named();
        page.narrow_by(named.as_ref().map(|named| named.choice));
        if is_dense {
            dense.put(filter);
        }
        Ok(named.map(|named| points_within(named.keys, &self.scan.spans, self.scan.order)))
    }

    /// Reads the keys of the filter's partitions, if they are few.
    pub(super) async fn keys_of_partitions<R: ?Sized + Send>(
        self,
        lease: &mut Lease,
        page: &mut OpenPage<'_, R>,
    ) -> Result<Option<Vec<Span>>, StatementError> {
        let TablePart { table_id, bucket } = self.part;
        let (filter, dense) = (filter_number(table_id.table_no, self.scan), &self.store.narrowing.dense);
        if dense.has(filter) {
            return Ok(None);
        }
        let mut keys = Vec::new();
        let is_here =
            |span: &&Span| bucket.is_none() || span.partition().map(|pk| table_id.bucket(pk)) == bucket;
        for span in self.scan.spans.iter().filter(is_here) {
            // Half of the time is reserved for the index order, which can resume from a position.
            if page.time_left() <= self.scan.time / 2 {
                dense.put(filter);
                return Ok(None);
            }
            let limit = MAX_ENTRIES + 1 - keys.len();
            let source = sources::range(self.part, span, limit, Projection::SystemOnly)?;
            let mut visit = |row: &PgRow| {
                keys.push(Span::point(key(row)?));
                Ok(ControlFlow::Continue(()))
            };
            match stream(lease, source, PageOrder::Ascending, &mut visit).await {
                Err(StatementError::Fault(Fault::Timeout)) => {
                    lease.roll_back().await;
                    dense.put(filter);
                    return Ok(None);
                }
                read => _ = read?,
            }
            if keys.len() > MAX_ENTRIES {
                dense.put(filter);
                return Ok(None);
            }
        }
        page.count_examined(keys.len() as u64);
        Ok(Some(keys))
    }
}
