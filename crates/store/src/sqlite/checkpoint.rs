//! Checkpoints: copies the write-ahead log (WAL) into the database file, beside the thread that
//! writes.
//!
//! By default, SQLite checkpoints in the commit that finds the log too long, and every write waits.
//! Here a separate thread does nearly all of it while commits continue. Only the last part, which
//! restarts the log, runs between two commits.

use std::cell::Cell;
use std::sync::mpsc::{Receiver, RecvTimeoutError, SyncSender, TryRecvError, sync_channel};
use std::time::{Duration, Instant};

use rusqlite::Connection;

use crate::sqlite::connections::open;
use crate::sqlite::connections::options::{Location, OpenError, SqliteOptions};
use crate::sqlite::fault::fault;

/// The thresholds of checkpoints, in pages of the log.
#[derive(Debug, Clone, Copy)]
struct Pace {
    /// Pages of one checkpoint step. A page that was written several times since the last step is
    /// copied once.
    step: i32,
    /// Pages of the log at which it is restarted.
    limit: i32,
    /// Maximum pages that are left for the part between two commits.
    last_pages: i32,
    /// Pages of the log at which commits wait for the checkpoint thread. If that gets no processor
    /// time, the log must not grow for ever.
    max_pages: i32,
}

/// 32, 128, 1 and 512 MiB. When the log is restarted, all clients wait until the file is synced, 20 to
/// 30 ms on one disk. That is rare enough to affect fewer than one request in a hundred. A larger
/// log would cost disk space and a longer recovery.
const PACE: Pace = Pace { step: 8 * 1024, limit: 32 * 1024, last_pages: 256, max_pages: 128 * 1024 };
/// Under load, a checkpoint begins this long after the last one. Reads of checkpointed pages use the
/// memory map, which is faster.
const PERIOD: Duration = Duration::from_secs(1);
/// A checkpoint begins after this time without commits.
pub(crate) const QUIET: Duration = Duration::from_millis(250);
/// Timeout of a commit's wait for the checkpoint thread, and of shutdown's wait for other users of the
/// file.
const LOCK_TIMEOUT: Duration = Duration::from_secs(1);
/// Maximum steps to get the log below `last_pages`.
const LAST_STEPS: u8 = 4;

thread_local! {
    /// Pages in the log after the last commit of this thread; 0 if it changed nothing.
    static LOGGED: Cell<i32> = const { Cell::new(0) };
}

/// The writer thread's state of the log.
pub(crate) struct Checkpoints {
    thread: Option<CheckpointThread>,
    pace: Pace,
    /// Pages in the log after the last commit.
    logged: i32,
    /// Pages that the checkpoint thread has copied, or is copying.
    checkpointed: i32,
    /// Pages at which the log is restarted.
    limit: i32,
    /// Steps since the log has reached its limit.
    last_steps: u8,
    /// When the thread was last woken.
    woken: Instant,
}

impl Checkpoints {
    /// Takes over checkpoints from SQLite, for the commits of `writer`.
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
        // Every commit makes the log longer, unless the log was restarted.
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
            // Each of these steps is shorter than the one before.
            self.last_steps += 1;
            self.wake();
        } else {
            // A reader of an older state may prevent a complete checkpoint. It is then retried after the log has
            // grown by as much again.
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

/// Checkpoints everything and truncates the log, unless another user keeps the file busy for more
/// than a second.
pub(crate) fn truncate_log(db: &Connection) -> rusqlite::Result<()> {
    db.busy_timeout(LOCK_TIMEOUT)?;
    db.query_row("PRAGMA wal_checkpoint(TRUNCATE)", [], |_| Ok(()))
}

/// Checkpoints without waiting (passive), as far as no reader needs older pages. What is left stays in the
/// log, where it is just as safe.
fn checkpoint(db: &Connection) {
    if let Err(error) = db.query_row("PRAGMA wal_checkpoint(PASSIVE)", [], |_| Ok(())) {
        fault(&error);
    }
}

/// The handle of a thread of the lowest priority that repeats one task whenever it is woken. It ends when this is
/// dropped.
struct CheckpointThread {
    wake: SyncSender<()>,
    done: Receiver<()>,
    is_busy: bool,
}

impl CheckpointThread {
    /// Starts the thread; it runs `work` once for each [`CheckpointThread::wake`].
    fn start(mut work: impl FnMut() + Send + 'static) -> std::io::Result<Self> {
        let (wake, woken) = sync_channel(1);
        let (report, done) = sync_channel(1);
        std::thread::Builder::new().name("sqlite-log".into()).spawn(move || {
            lower_priority();
            while woken.recv().is_ok() {
                work();
                // Never full: the previous message was received before this work began.
                let _ = report.try_send(());
            }
        })?;
        Ok(Self { wake, done, is_busy: false })
    }

    /// Whether the last task is still running.
    fn is_busy(&mut self) -> bool {
        if self.is_busy {
            self.is_busy = matches!(self.done.try_recv(), Err(TryRecvError::Empty));
        }
        self.is_busy
    }

    /// Waits until it is not busy, at most for this long.
    fn wait(&mut self, limit: Duration) {
        if self.is_busy {
            self.is_busy = matches!(self.done.recv_timeout(limit), Err(RecvTimeoutError::Timeout));
        }
    }

    /// Wakes the thread. Must be called only while it is not busy.
    fn wake(&mut self) {
        // Never full: this is the only sender. If the thread has ended, it stays idle.
        self.is_busy = self.wake.try_send(()).is_ok();
    }
}

/// Gives the calling thread the lowest priority (nice 19), on Linux. A system that refuses it
/// leaves the priority as it is. On other systems a priority belongs to the whole process.
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
            // The log starts empty, however large the schema is.
            truncate_log(&writer).unwrap();
            let checkpoints = Checkpoints::with_pace(PACE, &options, &writer).unwrap();
            Self { folder, writer, checkpoints }
        }

        /// Commits a row of about one page and lets the thread finish; the pages in the log after that.
        fn commit(&mut self, n: i64) -> i32 {
            self.write(n);
            self.wait();
            self.checkpoints.logged
        }

        /// Commits a row of about one page.
        fn write(&mut self, n: i64) {
            let row = "INSERT INTO tables (table_no, account, name_lower, name, spread, created)
                       VALUES (?1, 'a', ?1, ?2, 1, 1)";
            self.writer.execute(row, rusqlite::params![n, "x".repeat(3000)]).unwrap();
            self.checkpoints.committed(&self.writer);
        }

        fn wait(&mut self) {
            self.checkpoints.thread.as_mut().unwrap().wait(Duration::from_secs(60));
        }

        /// A connection that holds a snapshot of the current state while it lives.
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
        // Several, since the first ones split pages.
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
        // So the next commit begins the log anew.
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
