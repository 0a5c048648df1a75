//! One page of a query, bounded in rows, bytes and time. A page is one snapshot, except with Citus.
//!
//! A range without a residual filter is one statement. With a filter, [`reader`] reads the range in windows of rows,
//! so that a scan with few matches still returns in time, with the key that it reached.

mod by_index;
mod by_key;
mod merge;
mod narrowing;
mod ordered;
mod page;
mod reader;

use std::borrow::Cow;

use crate::contract::indexes::MISSING_ORDER;
use crate::error::{Code, Error};
use crate::postgres::PgStore;
use crate::postgres::connections::sessions::LockWait;
use crate::postgres::fault::StatementError;
use crate::postgres::reads::turn::ScanTurn;
use crate::postgres::state::table_ids::{TableId, TablePart};
use crate::protocol::plan::{PageEnd, Scan};
use crate::{Collect, StoreResult};
use ordered::{Ordered, has_index};
use page::{Residual, StreamedPage};
use reader::PartScan;

impl PgStore {
    /// Reads the page that `scan` describes and passes its entities to `into`; `None` if the table is gone.
    pub(crate) async fn read_page(
        &self,
        table_id: TableId,
        scan: &Scan,
        into: &mut (dyn Collect + 'static),
    ) -> StoreResult<Option<PageEnd>> {
        if let Some(by) = &scan.by
            && !has_index(by, self, table_id).await?
        {
            return Err(Error::from(Code::NotImplemented).with_reason(MISSING_ORDER).into());
        }
        let residual = Residual::of(scan);
        // Filters that Rowhouse evaluates and filters that PostgreSQL evaluates have separate permits.
        let limit = if residual.is_local() { &self.scan_limit } else { &self.pushed_scan_limit };
        let mut turn = ScanTurn::new(limit, scan.time);
        let mut scan = Cow::Borrowed(scan);
        let part = TablePart { table_id, bucket: None };
        loop {
            into.restart();
            let of = PartScan { store: self, turn: &turn, scan: &scan, residual, part, limit: None };
            match read(of.of_part(&scan, None), StreamedPage::new(&scan, into)).await {
                // Another session has locked the whole table, and this session may not wait for locks.
                Err(StatementError::Held) if turn.lock_wait.is_none() => {
                    turn = ScanTurn::new(limit, scan.time);
                    turn.lock_wait = Some(LockWait::Long);
                }
                Err(StatementError::NeedsPermit) => {
                    turn.wait_for_permit().await?;
                    scan.to_mut().time = turn.time_left();
                }
                read => return Ok(read?),
            }
        }
    }
}

/// Reads a page: all buckets in one snapshot or, if they are distributed, each in its own; `None` if the table is
/// gone.
async fn read(of: PartScan<'_>, mut page: StreamedPage<'_>) -> Result<Option<PageEnd>, StatementError> {
    if let Some(ordered) = Ordered::of(of) {
        return Box::pin(ordered.read(page)).await;
    }
    if of.store.nodes.is_distributed() {
        let spans = of.narrowed_before(&mut page).await?;
        let narrowed = spans.map(|spans| Scan { spans, ..of.scan.clone() });
        return Box::pin(merge::read(of.of_part(narrowed.as_ref().unwrap_or(of.scan), None), page)).await;
    }
    of.read(page).await
}
