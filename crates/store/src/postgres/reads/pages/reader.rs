//! Reads a part of a table window by window.
//!
//! Rows may have a megabyte each, so the first window is small, and the size of the next ones depends on
//! the time that it took. Every page makes progress: a statement that is cut off ends the page at the place
//! that it reached, or is repeated with fewer rows.

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

/// Rows of the first window that PostgreSQL evaluates.
pub(super) const FIRST: usize = 256;
/// Rows of the first window that is evaluated here: the database sends all of them, however large.
pub(super) const FIRST_LOCAL: usize = 4;
/// Factor between the sizes of two windows.
pub(super) const GROWTH: usize = 8;
/// Factor by which the number of rows is reduced after a window was cut off.
const RETREAT: usize = 16;
/// A row that takes longer is not small.
const SMALL_ROW: Duration = Duration::from_micros(8);

/// What a page reads of one part of a table, and with what.
#[derive(Clone, Copy)]
pub(super) struct PartScan<'a> {
    pub store: &'a PgStore,
    pub turn: &'a ScanTurn<'a>,
    pub scan: &'a Scan,
    pub residual: Residual<'a>,
    pub part: TablePart,
    /// The timeout of a statement, if it is shorter than the general one.
    pub limit: Option<Duration>,
}

impl<'a> PartScan<'a> {
    /// Rows of the first window.
    pub(super) const fn first_window(&self) -> usize {
        if self.residual.is_local() { FIRST_LOCAL } else { FIRST }
    }

    /// The scan of a part.
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

/// How large windows become, and how fast.
pub(super) struct WindowPace {
    /// Maximum rows of a window.
    pub largest: usize,
    /// A window that took less time is followed by a larger one, …
    pub quick: Duration,
    /// … one that took more by a smaller one.
    pub slow: Duration,
}

/// The size of the next window.
pub(super) struct Window {
    pace: WindowPace,
    pub rows: usize,
    /// Maximum rows of a window that is held, by the size of the last ones.
    pub fitting: usize,
    /// Whether rows of the last window were small.
    pub has_small_rows: bool,
    /// Matches of the last window.
    pub matched: usize,
}

impl Window {
    fn adapt(&mut self, took: Duration, is_awaited: bool) {
        self.has_small_rows = took < SMALL_ROW * u32::try_from(self.rows).unwrap_or(u32::MAX);
        let WindowPace { largest, quick, slow } = self.pace;
        // While others wait, a window takes no longer than a turn.
        let (quick, slow) = if is_awaited { (TURN / GROWTH as u32, TURN) } else { (quick, slow) };
        if took < quick {
            self.rows = (self.rows * GROWTH).min(largest).min(self.fitting);
        } else if took > slow {
            self.rows = (self.rows / GROWTH).max(1);
        }
    }
}

/// A place in the order of a page, from which windows are read.
pub(super) trait Cursor: Send {
    /// The place that the rows of the page go to.
    type Rows: ?Sized + Send;
    /// Whether the first window has only the time that the page has left.
    const IS_TIMED_AT_ONCE: bool;

    /// Opens the snapshot of the page, with a timeout for its statements.
    fn begin(
        &self,
        lease: &mut Lease,
        limit: Option<Duration>,
    ) -> impl Future<Output = Result<(), StatementError>> + Send;

    /// Reads a window, and moves behind it; `false` at the end. The page may end before.
    fn window(
        &mut self,
        window: &mut Window,
        lease: &mut Lease,
        page: &mut OpenPage<'_, Self::Rows>,
    ) -> impl Future<Output = Result<bool, StatementError>> + Send;

    /// Ends the page at this place.
    fn end(&self, page: &mut OpenPage<'_, Self::Rows>);

    /// Ends the page at the place that a window has reached before it was cut off, if that is progress.
    fn end_cut_off(&self, page: &mut OpenPage<'_, Self::Rows>, mark: Mark, has_advanced: bool);

    /// Forgets the rows of a window that was cut off; `false` if fewer rows would not take less time.
    fn retreat(&self, page: &mut OpenPage<'_, Self::Rows>, mark: Mark) -> bool;
}

/// Reads a page window by window.
pub(super) struct PageReader<'a, C> {
    scan: PartScan<'a>,
    pub cursor: C,
    window: Window,
    /// Timeout of a statement; `None`: the general one.
    limit: Option<Duration>,
    /// Whether a window has been completed.
    has_advanced: bool,
    /// Rows of all windows so far.
    examined: u64,
}

impl<'a, C: Cursor> PageReader<'a, C> {
    pub(super) fn new(scan: PartScan<'a>, cursor: C, rows: usize, pace: WindowPace) -> Self {
        let window = Window { fitting: pace.largest, pace, rows, has_small_rows: false, matched: FIRST };
        Self { limit: scan.limit, scan, cursor, window, has_advanced: false, examined: 0 }
    }

    /// Opens the snapshot that all windows read. A window of a single row has the general timeout.
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

    /// Whether the page may have another window. One that is evaluated here needs its permit only then.
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

    /// After a statement that took too long, ends the page at the place that it reached, or reduces the
    /// number of rows.
    async fn cut_off(
        &mut self,
        lease: &mut Lease,
        page: &mut OpenPage<'_, C::Rows>,
        mark: Mark,
    ) -> Result<(), StatementError> {
        // If the page was full, only what it did not need took too long.
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
