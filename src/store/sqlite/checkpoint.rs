//! Carries the log over into the database file, beside the thread that writes.
//!
//! Left to itself, SQLite lets the commit that finds the log long do it, and every
//! write waits meanwhile. Here a thread of its own does nearly all of it while
//! commits go on. Only the last part, which makes the log begin anew, is done
//! between two commits.

use std::cell::Cell;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{SyncSender, sync_channel};
use std::time::{Duration, Instant};

use rusqlite::Connection;

use super::connection::{self, Location, OpenError, SqliteOptions};
use super::fault;

/// When what is done, in pages of the log.
#[derive(Debug, Clone, Copy)]
struct Pace {
    /// Pages that are carried over at once. A page that was written several times
    /// since the last step is carried over once.
    step: i32,
    /// Pages from which on the log shall begin anew.
    limit: i32,
    /// Pages that may be left to be carried over between two commits.
    rest: i32,
}

/// 16, 64 and 1 MiB.
const PACE: Pace = Pace { step: 4 * 1024, limit: 16 * 1024, rest: 256 };
/// The longest that commits stay in the log alone while others follow. What is in
/// the file is read through the memory map, which is quicker.
const PERIOD: Duration = Duration::from_secs(1);
/// How long the last commits do, when no others follow.
pub const QUIET: Duration = Duration::from_millis(250);
/// How long the end of a program waits for others that use the file.
const PATIENCE: Duration = Duration::from_secs(1);
/// Steps that may be taken to come down to the rest.
const LAST_STEPS: u8 = 4;

thread_local! {
    /// Pages in the log after the last commit of this thread; 0 if that has changed nothing.
    static LOGGED: Cell<i32> = const { Cell::new(0) };
}

/// What the thread that writes knows of the log.
pub struct Checkpoints {
    assistant: Option<Assistant>,
    pace: Pace,
    /// Pages in the log after the last commit.
    logged: i32,
    /// Pages that the thread has carried over, or is about to.
    carried: i32,
    /// Pages from which on the log shall begin anew.
    limit: i32,
    /// Steps since the log has reached its limit.
    last_steps: u8,
    /// When the thread was last told to carry over.
    woken: Instant,
}

/// The thread that carries over. It ends when this is dropped.
struct Assistant {
    wake: SyncSender<()>,
    busy: Arc<AtomicBool>,
}

impl Checkpoints {
    /// Takes checkpoints over from SQLite, for commits of `writer`.
    ///
    /// # Errors
    /// What SQLite says about one more connection, or the system about one more thread.
    pub fn start(options: &SqliteOptions, writer: &Connection) -> Result<Self, OpenError> {
        Self::with_pace(PACE, options, writer)
    }

    fn with_pace(pace: Pace, options: &SqliteOptions, writer: &Connection) -> Result<Self, OpenError> {
        let assistant = match options.location {
            Location::Memory => None,
            Location::File(_) => {
                writer.wal_hook(Some(|_, pages| {
                    LOGGED.set(pages);
                    Ok(())
                }));
                Some(Assistant::start(connection::connect(options)?)?)
            }
        };
        Ok(Self {
            assistant,
            pace,
            logged: 0,
            carried: 0,
            limit: pace.limit,
            last_steps: 0,
            woken: Instant::now(),
        })
    }

    /// To be called after each commit of the thread that writes.
    pub fn committed(&mut self, writer: &Connection) {
        let Some(assistant) = &self.assistant else { return };
        let logged = LOGGED.take();
        if logged == 0 {
            return;
        }
        // Every commit makes the log longer, unless the log began anew with it.
        if logged <= self.logged {
            (self.carried, self.limit, self.last_steps) = (0, self.pace.limit, 0);
        }
        self.logged = logged;
        if assistant.is_busy() {
            return;
        }
        let left = logged - self.carried;
        if logged < self.limit {
            if left >= self.pace.step || self.woken.elapsed() > PERIOD {
                self.wake();
            }
        } else if left > self.pace.rest && self.last_steps < LAST_STEPS {
            // Each of these steps is shorter than the one before it.
            self.last_steps += 1;
            self.wake();
        } else {
            // A reader of an older state may keep this from being all. Then it is
            // tried again when the log has grown by as much.
            carry_over(writer);
            (self.carried, self.limit, self.last_steps) = (logged, logged + self.pace.limit, 0);
        }
    }

    /// Whether [`Checkpoints::quiet`] wants to be called after a while without commits.
    pub const fn has_rest(&self) -> bool {
        self.assistant.is_some() && self.carried < self.logged
    }

    /// To be called when no commit has come for [`QUIET`].
    pub fn quiet(&mut self) {
        if self.assistant.as_ref().is_some_and(|assistant| !assistant.is_busy()) {
            self.wake();
        }
    }

    fn wake(&mut self) {
        self.carried = self.logged;
        self.woken = Instant::now();
        if let Some(assistant) = &self.assistant {
            assistant.wake();
        }
    }
}

impl Assistant {
    fn start(db: Connection) -> Result<Self, OpenError> {
        let (wake, woken) = sync_channel(1);
        let busy = Arc::new(AtomicBool::new(false));
        let done = Arc::clone(&busy);
        std::thread::Builder::new().name("sqlite-log".into()).spawn(move || {
            while woken.recv().is_ok() {
                carry_over(&db);
                done.store(false, Ordering::Release);
            }
        })?;
        Ok(Self { wake, busy })
    }

    fn is_busy(&self) -> bool {
        self.busy.load(Ordering::Acquire)
    }

    fn wake(&self) {
        self.busy.store(true, Ordering::Release);
        // Never full: nobody else sends, and only while it is not busy.
        let _ = self.wake.try_send(());
    }
}

/// Carries everything over and empties the log, unless somebody uses the file for
/// longer than a second.
pub fn carry_over_all(db: &Connection) -> rusqlite::Result<()> {
    db.busy_timeout(PATIENCE)?;
    db.query_row("PRAGMA wal_checkpoint(TRUNCATE)", [], |_| Ok(()))
}

/// Carries over what no reader of an older state still needs, and waits for
/// nobody. What is left stays in the log, where it is as safe.
fn carry_over(db: &Connection) {
    if let Err(error) = db.query_row("PRAGMA wal_checkpoint(PASSIVE)", [], |_| Ok(())) {
        fault(&error);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const PACE: Pace = Pace { step: 20, limit: 60, rest: 2 };

    struct Bed {
        folder: tempfile::TempDir,
        writer: Connection,
        checkpoints: Checkpoints,
    }

    impl Bed {
        fn new() -> Self {
            let folder = tempfile::tempdir().unwrap();
            let options = SqliteOptions::new(Location::File(folder.path().join("a.db")));
            let writer = connection::open(&options).unwrap();
            let checkpoints = Checkpoints::with_pace(PACE, &options, &writer).unwrap();
            Self { folder, writer, checkpoints }
        }

        /// Commits a row of about one page and lets the thread finish; the pages in the log after that.
        fn commit(&mut self, n: i64) -> i32 {
            let row = "INSERT INTO tables (table_no, account, name_lower, name, spread, created)
                       VALUES (?1, 'a', ?1, ?2, 1, 1)";
            self.writer.execute(row, rusqlite::params![n, "x".repeat(3000)]).unwrap();
            self.checkpoints.committed(&self.writer);
            self.wait();
            self.checkpoints.logged
        }

        fn wait(&self) {
            while self.checkpoints.assistant.as_ref().unwrap().is_busy() {
                std::thread::sleep(Duration::from_millis(1));
            }
        }

        fn count(&self) -> i64 {
            self.writer.query_row("SELECT count(*) FROM tables", [], |row| row.get(0)).unwrap()
        }

        fn reader(&self) -> Connection {
            let reader = Connection::open(self.folder.path().join("a.db")).unwrap();
            reader.execute_batch("BEGIN; SELECT count(*) FROM tables").unwrap();
            reader
        }
    }

    #[test]
    fn the_log_begins_anew_again_and_again() {
        let mut bed = Bed::new();
        let logged: Vec<i32> = (0..200).map(|n| bed.commit(n)).collect();
        let anew = logged.windows(2).filter(|pair| pair[1] < pair[0]).count();
        assert!(anew >= 5, "{anew} times: {logged:?}");
        assert!(logged.iter().all(|pages| *pages < 2 * PACE.limit), "{logged:?}");
        assert_eq!(bed.count(), 200);
    }

    #[test]
    fn a_reader_of_an_old_state_is_waited_for_by_nobody_and_loses_nothing() {
        let mut bed = Bed::new();
        bed.commit(0);
        let reader = bed.reader();
        let logged: Vec<i32> = (1..200).map(|n| bed.commit(n)).collect();
        assert!(logged.windows(2).all(|pair| pair[0] < pair[1]), "{logged:?}");
        let seen: i64 = reader.query_row("SELECT count(*) FROM tables", [], |row| row.get(0)).unwrap();
        assert_eq!((seen, bed.count()), (1, 200));
        drop(reader);
        let logged: Vec<i32> = (200..400).map(|n| bed.commit(n)).collect();
        assert!(logged.windows(2).any(|pair| pair[1] < pair[0]), "{logged:?}");
        assert_eq!(bed.count(), 400);
    }

    #[test]
    fn what_is_left_goes_over_when_no_commits_follow() {
        let mut bed = Bed::new();
        assert!(!bed.checkpoints.has_rest());
        bed.commit(0);
        assert!(bed.checkpoints.has_rest());
        bed.checkpoints.quiet();
        bed.wait();
        assert!(!bed.checkpoints.has_rest());
        let (logged, carried) = bed
            .writer
            .query_row("PRAGMA wal_checkpoint(PASSIVE)", [], |row| {
                Ok((row.get::<_, i32>(1)?, row.get::<_, i32>(2)?))
            })
            .unwrap();
        assert_eq!(carried, logged);
        // So the next commit begins the log anew.
        assert!(bed.commit(1) <= logged);
    }

    #[test]
    fn without_a_file_there_is_nothing_to_do() {
        let options = SqliteOptions::new(Location::Memory);
        let writer = connection::open(&options).unwrap();
        let mut checkpoints = Checkpoints::start(&options, &writer).unwrap();
        assert!(checkpoints.assistant.is_none());
        checkpoints.committed(&writer);
    }
}
