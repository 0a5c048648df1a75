//! Reads a part of a table window by window.
//!
//! Rows may have a megabyte each, so the first window is small, and its duration determines the size of the next
//! windows. Every page makes progress: a statement that is cut off ends the page at the position that it reached, or
//! is repeated with fewer rows.

use std::time::{Duration, Instant};

use super::page::{Mark, OpenPage, Residual};
use crate::Fault;
use crate::postgres::PgStore;
use crate::postgres::connections::lease::Lease;
use crate::postgres::fault::StatementError;
use crate::postgres::reads::turn::ScanTurn;
use crate::postgres::state::table_ids::TablePart;
use crate::protocol::plan::Scan;
use crate::scan_limit::TURN;

/// Rows of the first window if PostgreSQL evaluates the filter.
pub(super) const FIRST: usize = 256;
/// Rows of the first window if Rowhouse evaluates the filter. PostgreSQL then sends all rows, however large.
pub(super) const FIRST_LOCAL: usize = 4;
/// Maximum ratio of a window's size to the size of the previous window.
pub(super) const GROWTH: usize = 8;
/// Factor by which a cut-off window reduces the number of rows.
const RETREAT: usize = 16;
/// Maximum time per row for small rows.
const SMALL_ROW: Duration = Duration::from_micros(8);

/// The scan of one part of a table and its resources.
#[derive(Clone, Copy)]
pub(super) struct PartScan<'a> {
    pub store: &'a PgStore,
    pub turn: &'a ScanTurn<'a>,
    pub scan: &'a Scan,
    pub residual: Residual<'a>,
    pub part: TablePart,
    /// Timeout of a statement, if shorter than the general timeout.
    pub limit: Option<Duration>,
}

impl<'a> PartScan<'a> {
    pub(super) const fn first_window(&self) -> usize {
        if self.residual.is_local() { FIRST_LOCAL } else { FIRST }
    }

    pub(super) fn of_part(self, scan: &'a Scan, bucket: Option<i64>) -> Self {
        let is_walk = scan.by.is_some() || !self.residual.is_none();
        let limit = Some(scan.time).filter(|time| is_walk && *time < self.store.operation_timeout);
        Self { scan, limit, part: TablePart { bucket, ..self.part }, ..self }
    }

    pub(super) async fn acquire(&self) -> Result<Lease, StatementError> {
        match self.part.bucket {
            Some(bucket) => self.store.nodes.acquire_at(bucket, self.turn.lock_wait).await,
            None => self.store.nodes.acquire_for(self.turn.lock_wait).await,
        }
    }
}

/// Limits on the size and the growth of windows.
pub(super) struct WindowPace {
    pub largest: usize,
    /// A larger window follows a window that took less time.
    pub quick: Duration,
    /// A smaller window follows a window that took more time.
    pub slow: Duration,
}

pub(super) struct Window {
    pace: WindowPace,
    pub rows: usize,
    /// Maximum rows of a buffered window, by the size of the last rows.
    pub fitting: usize,
    pub has_small_rows: bool,
    pub matched: usize,
}

impl Window {
    fn adapt(&mut self, took: Duration, is_awaited: bool) {
        self.has_small_rows = took < SMALL_ROW * u32::try_from(self.rows).unwrap_or(u32::MAX);
        let WindowPace { largest, quick, slow } = self.pace;
        // While other reads wait, a window takes no longer than a turn.
        let (quick, slow) = if is_awaited { (TURN / GROWTH as u32, TURN) } else { (quick, slow) };
        if took < quick {
            self.rows = (self.rows * GROWTH).min(largest).min(self.fitting);
        } else if took > slow {
            self.rows = (self.rows / GROWTH).max(1);
        }
    }
}

/// A cursor that reads a page in windows.
pub(super) trait Cursor: Send {
    /// The destination of the page's rows.
    type Rows: ?Sized + Send;
    /// Whether the first window is limited to the page's remaining time.
    const IS_TIMED_AT_ONCE: bool;

    /// Opens the snapshot of the page and sets a timeout for its statements.
    fn begin(
        &self,
        lease: &mut Lease,
        limit: Option<Duration>,
    ) -> impl Future<Output = Result<(), StatementError>> + Send;

    /// Reads a window and advances past it; `false` at the end. The page may end earlier.
    fn window(
        &mut self,
        window: &mut Window,
        lease: &mut Lease,
        page: &mut OpenPage<'_, Self::Rows>,
    ) -> impl Future<Output = Result<bool, StatementError>> + Send;

    /// Ends the page at the cursor's position.
    fn end(&self, page: &mut OpenPage<'_, Self::Rows>);

    /// Ends the page at the position that a cut-off window reached, if that is progress.
    fn end_cut_off(&self, page: &mut OpenPage<'_, Self::Rows>, mark: Mark, has_advanced: bool);

    /// Forgets the rows of a cut-off window; `false` if fewer rows would not take less time.
    fn retreat(&self, page: &mut OpenPage<'_, Self::Rows>, mark: Mark) -> bool;
}

pub(super) struct PageReader<'a, C> {
    scan: PartScan<'a>,
    pub cursor: C,
    window: Window,
    /// Timeout of a statement; `None` for the general timeout.
    limit: Option<Duration>,
    has_advanced: bool,
    examined: u64,
}

impl<'a, C: Cursor> PageReader<'a, C> {
    pub(super) fn new(scan: PartScan<'a>, cursor: C, rows: usize, pace: WindowPace) -> Self {
        let window = Window { fitting: pace.largest, pace, rows, has_small_rows: false, matched: FIRST };
        Self { limit: scan.limit, scan, cursor, window, has_advanced: false, examined: 0 }
    }

    /// Opens the snapshot for all windows. A window of a single row has the general timeout.
    pub(super) async fn begin(&self, lease: &mut Lease) -> Result<(), StatementError> {
        self.cursor.begin(lease, self.limit.filter(|_| self.window.rows > 1)).await
    }

    /// Reads windows until the page or the cursor ends.
    pub(super) async fn read(
        &mut self,
        lease: &mut Lease,
        page: &mut OpenPage<'_, C::Rows>,
    ) -> Result<(), StatementError> {
        loop {
            let (started, examined, mark) = (Instant::now(), page.examined(), page.begin_window());
            let has_more = match self.timely_window(lease, page).await {
                Err(StatementError::Fault(Fault::Timeout)) => {
                    self.cut_off(lease, page, mark).await?;
                    if page.has_ended() {
                        return Ok(());
                    }
                    continue;
                }
                has_more => has_more?,
            };
            self.has_advanced = true;
            self.examined += page.examined() - examined;
            if !has_more || page.has_ended() {
                return Ok(());
            }
            let turn = self.scan.turn;
            if page.is_full() || page.is_out_of_time() || turn.is_over(Some(lease)) || !self.may_go_on()? {
                self.cursor.end(page);
                return Ok(());
            }
            self.window.adapt(started.elapsed(), turn.is_permit_awaited());
        }
    }

    /// Whether the page may have another window. Local evaluation needs its permit only at this point.
    pub(super) fn may_go_on(&self) -> Result<bool, StatementError> {
        Ok(self.scan.residual.is_local() || self.scan.turn.may_examine_more(self.examined)?)
    }

    /// Reads one window within the page's time.
    async fn timely_window(
        &mut self,
        lease: &mut Lease,
        page: &mut OpenPage<'_, C::Rows>,
    ) -> Result<bool, StatementError> {
        let left = page.time_left();
        let is_timed = self.window.rows > 1 && (C::IS_TIMED_AT_ONCE || self.has_advanced);
        if let Some(limit) = self.limit.filter(|_| is_timed)
            && left < limit / 8 * 7
        {
            self.limit = Some(left);
            lease.limit_statements(left).await?;
        }
        self.cursor.window(&mut self.window, lease, page).await
    }

    /// After a timeout, ends the page at the position that it reached, or reduces the number of rows.
    async fn cut_off(
        &mut self,
        lease: &mut Lease,
        page: &mut OpenPage<'_, C::Rows>,
        mark: Mark,
    ) -> Result<(), StatementError> {
        // On a full page, only surplus rows took too long.
        if !page.has_ended() {
            self.cursor.end_cut_off(page, mark, self.has_advanced);
        }
        if page.has_ended() {
            lease.roll_back().await;
            return Ok(());
        }
        if self.window.rows <= 1 || !self.cursor.retreat(page, mark) {
            return Err(Fault::Timeout.into());
        }
        lease.roll_back().await;
        self.window.rows = (self.window.rows / RETREAT).max(1);
        self.begin(lease).await
    }
}
