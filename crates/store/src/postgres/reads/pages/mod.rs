//! One page of a query: one snapshot, except where Citus distributes entities, and bounded in rows,
//! bytes and time.
//!
//! A range without a residual filter is one statement. With one, the range is read in windows of rows,
//! so that a scan with few matches still returns in time, with the key that it reached: see [`walk`].

mod merge;
mod ordered;
mod ordered_part;
mod ordered_rows;
mod reading;
mod streamed;
mod walk;

use std::borrow::Cow;

use crate::contract::indexes::MISSING_ORDER;
use crate::error::{Code, Error};
use crate::postgres::PgStore;
use crate::postgres::connections::sessions::LockWait;
use crate::postgres::fault::StatementError;
use crate::postgres::reads::filter;
use crate::postgres::reads::turn::ScanTurn;
use crate::postgres::retry::Attempt;
use crate::postgres::state::table_ids::{TableId, TablePart};
use crate::protocol::plan::{PageEnd, Scan};
use crate::scan_limit::ScanLimit;
use crate::{Collect, StoreResult};
use ordered_rows::Ordered;
use reading::Reading;
use streamed::StreamedPage;

/// The read of one page.
pub(crate) struct Query<'a> {
    scan: &'a Scan,
    into: &'a mut dyn Collect,
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
        let limit = limit_of(self.scan, store);
        let mut turn = ScanTurn::new(limit, self.scan.time);
        let mut scan = Cow::Borrowed(self.scan);
        loop {
            self.into.restart();
            let page = StreamedPage::new(&scan, self.into);
            match read(&scan, store, table_id, page, &turn).await {
                // The whole table is locked, and this session may not wait for locks.
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

/// The permits for a page: of what this server evaluates, or of what PostgreSQL does.
fn limit_of<'s>(scan: &Scan, store: &'s PgStore) -> &'s ScanLimit {
    let is_pushed = scan.residual.as_ref().is_none_or(filter::is_pushable);
    if is_pushed { &store.pushed_scan_limit } else { &store.scan_limit }
}

/// The refusal of an order whose index cannot be used.
fn missing_index() -> Error {
    Error::from(Code::NotImplemented).with_reason(MISSING_ORDER)
}

/// Reads a page: all buckets in one snapshot or, where they are distributed, each by itself;
/// `None` if the table is gone.
async fn read(
    scan: &Scan,
    store: &PgStore,
    table_id: TableId,
    mut page: StreamedPage<'_>,
    turn: &ScanTurn<'_>,
) -> Result<Option<PageEnd>, StatementError> {
    if let Some(ordered) = Ordered::of(scan) {
        return Box::pin(ordered.read(store, table_id, page, turn)).await;
    }
    if store.nodes.is_distributed() {
        let spans = Reading::of(scan).narrowed_before(store, table_id, turn, &mut page.end).await?;
        let narrowed = spans.map(|spans| Scan { spans, ..scan.clone() });
        let scan = narrowed.as_ref().unwrap_or(scan);
        return Box::pin(merge::read(scan, store, table_id, page, turn)).await;
    }
    let part = TablePart { table_id, bucket: None };
    Reading::of(scan).of_part(store, part, page, turn).await
}
