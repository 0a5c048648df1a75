//! Checkpoints copy the write-ahead log (WAL) into the database file in a separate thread.
//!
//! By default, SQLite checkpoints in the commit that exceeds the log's limit, and every write waits. Here a separate
//! thread copies nearly all pages while commits continue. Only the last part, which restarts the log, runs between
//! two commits.

use std::cell::Cell;
use std::sync::mpsc::{Receiver, RecvTimeoutError, SyncSender, TryRecvError, sync_channel};
use std::time::{Duration, Instant};

use rusqlite::Connection;

use crate::sqlite::connections::open;
use crate::sqlite::connections::options::{Location, OpenError, SqliteOptions};
use crate::sqlite::fault::fault;

/// Checkpoint thresholds, in pages of the log.
#[derive(Debug, Clone, Copy)]
struct Pace {
    /// Pages of one checkpoint step. A step copies a page once, even if several commits have written it since the
    /// last step.
    step: i32,
    /// Log size that triggers a restart.
    limit: i32,
    /// Maximum pages for the part between two commits.
    last_pages: i32,
    /// Log size at which commits wait for the checkpoint thread. This bounds the log if the thread gets no processor
    /// time.
    max_pages: i32,
}

/// 32, 128, 1 and 512 MiB. During a restart of the log, all clients wait until the file is synced, 20 to 30 ms on one
/// disk. That affects fewer than one request in a hundred. A larger log would cost disk space and a longer recovery.
const PACE: Pace = Pace { step: 8 * 1024, limit: 32 * 1024, last_pages: 256, max_pages: 128 * 1024 };
/// Interval between checkpoints under load. Reads of checkpointed pages use the memory map, which is faster.
const PERIOD: Duration = Duration::from_secs(1);
/// A checkpoint begins after this time without commits.
pub(crate) const QUIET: Duration = Duration::from_millis(250);
/// Timeout for a commit that waits for the checkpoint thread, and for a shutdown that waits for other users of the
/// file.
const LOCK_TIMEOUT: Duration = Duration::from_secs(1);
/// Maximum steps to reduce the log below `last_pages`.
const LAST_STEPS: u8 = 4;

thread_local! {
    /// Pages in the log after this thread's last commit; 0 if the commit changed nothing.
    static LOGGED: Cell<i32> = const { Cell::new(0) };
}

/// The writer thread's state of the log.
pub(crate) struct Checkpoints {
    thread: Option<CheckpointThread>,
    pace: Pace,
    /// Pages in the log after the last commit.
    logged: i32,
    /// Pages that the checkpoint thread has copied or is copying.
    checkpointed: i32,
    /// Log size that triggers a restart.
    limit: i32,
    /// Steps since the log reached its limit.
    last_steps: u8,
    woken: Instant,
}

impl Checkpoints {
    /// Replaces SQLite's automatic checkpoints for the commits of `writer`.
    pub(crate) fn start(options: &SqliteOptions, writer: &Connection) -> Result<Self, OpenError> {
        Self::with_pace(PACE, options, writer)
    }

    fn with_pace(pace: Pace, options: &SqliteOptions, writer: &Connection) -> Result<Self, OpenError> {
        let thread = match options.location {
            Location::Memory => None,
            Location::File(_) => {
                writer.wal_hook(Some(|_, pages| {
                    LOGGED.set(pages);
                    Ok(())
                }));
                let db = open::connect(options)?;
                Some(CheckpointThread::start(move || checkpoint(&db))?)
            }
        };
        Ok(Self {
            thread,
            pace,
            logged: 0,
            checkpointed: 0,
            limit: pace.limit,
            last_steps: 0,
            woken: Instant::now(),
        })
    }

    /// Must be called after each commit of the writer thread.
    pub(crate) fn committed(&mut self, writer: &Connection) {
        let Some(thread) = &mut self.thread else { return };
        let logged = LOGGED.take();
        if logged == 0 {
            return;
        }
        // Every commit lengthens the log, unless it restarts the log.
        if logged <= self.logged {
            (self.checkpointed, self.limit, self.last_steps) = (0, self.pace.limit, 0);
        }
        self.logged = logged;
        if logged >= self.pace.max_pages {
            thread.wait(LOCK_TIMEOUT);
        }
        if thread.is_busy() {
            return;
        }
        let left = logged - self.checkpointed;
        if logged < self.limit {
            if left >= self.pace.step || self.woken.elapsed() > PERIOD {
                self.wake();
            }
        } else if left > self.pace.last_pages && self.last_steps < LAST_STEPS {
            // Each of these steps is shorter than the previous one.
            self.last_steps += 1;
            self.wake();
        } else {
            // A reader of an older state may prevent a complete checkpoint. The next attempt follows after the log
            // has grown by the same amount again.
            checkpoint(writer);
            (self.checkpointed, self.limit, self.last_steps) = (logged, logged + self.pace.limit, 0);
        }
    }

    /// Whether [`Checkpoints::quiet`] must be called after a while without commits.
    pub(crate) const fn has_unfinished(&self) -> bool {
        self.thread.is_some() && self.checkpointed < self.logged
    }

    /// Must be called after [`QUIET`] without commits.
    pub(crate) fn quiet(&mut self) {
        if self.thread.as_mut().is_some_and(|thread| !thread.is_busy()) {
            self.wake();
        }
    }

    fn wake(&mut self) {
        self.checkpointed = self.logged;
        self.woken = Instant::now();
        if let Some(thread) = &mut self.thread {
            thread.wake();
        }
    }
}

/// Checkpoints everything and truncates the log, unless another user keeps the file busy for more than a second.
pub(crate) fn truncate_log(db: &Connection) -> rusqlite::Result<()> {
    db.busy_timeout(LOCK_TIMEOUT)?;
    db.query_row("PRAGMA wal_checkpoint(TRUNCATE)", [], |_| Ok(()))
}

/// Runs a passive checkpoint, which stops at pages that readers need. The remaining pages are equally safe in the
/// log.
fn checkpoint(db: &Connection) {
    if let Err(error) = db.query_row("PRAGMA wal_checkpoint(PASSIVE)", [], |_| Ok(())) {
        fault(&error);
    }
}

/// The handle of a thread with the lowest priority that runs a task on each wake-up. Dropping the handle ends the
/// thread.
struct CheckpointThread {
    wake: SyncSender<()>,
    done: Receiver<()>,
    is_busy: bool,
}

impl CheckpointThread {
    /// Starts the thread, which runs `work` once per [`CheckpointThread::wake`].
    fn start(mut work: impl FnMut() + Send + 'static) -> std::io::Result<Self> {
        let (wake, woken) = sync_channel(1);
        let (report, done) = sync_channel(1);
        std::thread::Builder::new().name("sqlite-log".into()).spawn(move || {
            lower_priority();
            while woken.recv().is_ok() {
                work();
                // The channel has room, because the previous message was received before this task began.
                let _ = report.try_send(());
            }
        })?;
        Ok(Self { wake, done, is_busy: false })
    }

    fn is_busy(&mut self) -> bool {
        if self.is_busy {
            self.is_busy = matches!(self.done.try_recv(), Err(TryRecvError::Empty));
        }
        self.is_busy
    }

    /// Waits until the thread is idle, at most for this long.
    fn wait(&mut self, limit: Duration) {
        if self.is_busy {
            self.is_busy = matches!(self.done.recv_timeout(limit), Err(RecvTimeoutError::Timeout));
        }
    }

    /// Wakes the thread, which must be idle.
    fn wake(&mut self) {
        // The channel has room, because this is the only sender. If the thread has ended, it stays idle.
        self.is_busy = self.wake.try_send(()).is_ok();
    }
}

/// Sets the calling thread to the lowest priority (nice 19) on Linux. If the system refuses, the priority stays
/// unchanged. On other systems, a priority applies to the whole process.
fn lower_priority() {
    #[cfg(target_os = "linux")]
    if let Err(error) = rustix::process::setpriority_process(Some(rustix::thread::gettid()), 19) {
        tracing::debug!(%error, "the checkpoint thread keeps its priority");
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::sync::atomic::{AtomicBool, Ordering};

    use super::*;

    const PACE: Pace = Pace { step: 20, limit: 60, last_pages: 2, max_pages: 240 };

    struct LogFixture {
        folder: tempfile::TempDir,
        writer: Connection,
        checkpoints: Checkpoints,
    }

    impl LogFixture {
        fn new() -> Self {
            let folder = tempfile::tempdir().unwrap();
            let options = SqliteOptions::new(Location::File(folder.path().join("a.db")));
            let writer = open::open(&options).unwrap();
            // Truncation makes the log independent of the schema's size.
            truncate_log(&writer).unwrap();
            let checkpoints = Checkpoints::with_pace(PACE, &options, &writer).unwrap();
            Self { folder, writer, checkpoints }
        }

        /// Commits a row of about one page, waits for the thread, and returns the number of pages in the log.
        fn commit(&mut self, n: i64) -> i32 {
            self.write(n);
            self.wait();
            self.checkpoints.logged
        }

        fn write(&mut self, n: i64) {
            let row = "INSERT INTO tables (table_no, account, name_lower, name, spread, created)
                       VALUES (?1, 'a', ?1, ?2, 1, 1)";
            self.writer.execute(row, rusqlite::params![n, "x".repeat(3000)]).unwrap();
            self.checkpoints.committed(&self.writer);
        }

        fn wait(&mut self) {
            self.checkpoints.thread.as_mut().unwrap().wait(Duration::from_secs(60));
        }

        /// Returns a connection that holds a snapshot of the current state.
        fn reader(&self) -> Connection {
            let reader = Connection::open(self.folder.path().join("a.db")).unwrap();
            reader.execute_batch("BEGIN; SELECT count(*) FROM tables").unwrap();
            reader
        }

        fn count(&self) -> i64 {
            self.writer.query_row("SELECT count(*) FROM tables", [], |row| row.get(0)).unwrap()
        }
    }

    #[test]
    fn the_log_begins_anew_again_and_again() {
        let mut log = LogFixture::new();
        let logged: Vec<i32> = (0..200).map(|n| log.commit(n)).collect();
        let anew = logged.windows(2).filter(|pair| pair[1] < pair[0]).count();
        assert!(anew >= 5, "{anew} times: {logged:?}");
        assert!(logged.iter().all(|pages| *pages < 2 * PACE.limit), "{logged:?}");
        assert_eq!(log.count(), 200);
    }

    #[test]
    fn a_reader_of_an_old_state_is_waited_for_by_nobody_and_loses_nothing() {
        let mut log = LogFixture::new();
        log.commit(0);
        let reader = log.reader();
        let logged: Vec<i32> = (1..200).map(|n| log.commit(n)).collect();
        assert!(logged.windows(2).all(|pair| pair[0] < pair[1]), "{logged:?}");
        let seen: i64 = reader.query_row("SELECT count(*) FROM tables", [], |row| row.get(0)).unwrap();
        assert_eq!((seen, log.count()), (1, 200));
        drop(reader);
        let logged: Vec<i32> = (200..400).map(|n| log.commit(n)).collect();
        assert!(logged.windows(2).any(|pair| pair[1] < pair[0]), "{logged:?}");
        assert_eq!(log.count(), 400);
    }

    #[test]
    fn what_is_left_is_checkpointed_when_no_commits_follow() {
        let mut log = LogFixture::new();
        assert!(!log.checkpoints.has_unfinished());
        // The first rows split pages, so the test writes several.
        for n in 0..4 {
            log.commit(n);
        }
        assert!(log.checkpoints.has_unfinished());
        log.checkpoints.quiet();
        log.wait();
        assert!(!log.checkpoints.has_unfinished());
        let (logged, checkpointed) = log
            .writer
            .query_row("PRAGMA wal_checkpoint(PASSIVE)", [], |row| {
                Ok((row.get::<_, i32>(1)?, row.get::<_, i32>(2)?))
            })
            .unwrap();
        assert_eq!(checkpointed, logged);
        // The next commit therefore restarts the log.
        assert!(log.commit(4) <= logged);
    }

    #[test]
    fn commits_wait_once_the_log_is_much_too_long() {
        let mut log = LogFixture::new();
        let (release, released) = sync_channel::<()>(1);
        let is_done = Arc::new(AtomicBool::new(false));
        let done = Arc::clone(&is_done);
        let stuck = CheckpointThread::start(move || {
            let _ = released.recv();
            done.store(true, Ordering::SeqCst);
        });
        log.checkpoints.thread = Some(stuck.unwrap());
        let mut n = 0;
        while log.checkpoints.logged < PACE.max_pages - 5 {
            log.write(n);
            n += 1;
        }
        assert!(!is_done.load(Ordering::SeqCst), "none of them has waited");
        let later = std::thread::spawn(move || {
            std::thread::sleep(Duration::from_millis(50));
            release.send(())
        });
        while log.checkpoints.logged < PACE.max_pages {
            log.write(n);
            n += 1;
        }
        assert!(is_done.load(Ordering::SeqCst));
        later.join().unwrap().unwrap();
    }

    #[test]
    fn without_a_file_there_is_nothing_to_do() {
        let options = SqliteOptions::new(Location::Memory);
        let writer = open::open(&options).unwrap();
        let mut checkpoints = Checkpoints::start(&options, &writer).unwrap();
        assert!(checkpoints.thread.is_none());
        checkpoints.committed(&writer);
    }

    #[cfg(target_os = "linux")]
    fn nice() -> String {
        let stat = std::fs::read_to_string("/proc/thread-self/stat").unwrap();
        let (_, after_name) = stat.rsplit_once(") ").unwrap();
        after_name.split(' ').nth(16).unwrap().to_owned()
    }

    #[cfg(target_os = "linux")]
    #[test]
    fn only_the_calling_thread_gets_the_lowest_priority() {
        let before = nice();
        let other = std::thread::spawn(|| {
            lower_priority();
            nice()
        });
        assert_eq!((other.join().unwrap().as_str(), nice()), ("19", before));
    }
}
