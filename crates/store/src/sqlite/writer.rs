//! The writer thread. Its group commit puts all waiting writes into one transaction, so that many requests share one
//! disk sync.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::mpsc::{Receiver, RecvTimeoutError, SyncSender, sync_channel};
use std::sync::{Arc, Weak};
use std::time::Duration;

use parking_lot::Mutex;
use rusqlite::Connection;
use tokio::sync::oneshot;

use crate::observe::metrics::METRICS;
use crate::sqlite::checkpoint::{Checkpoints, QUIET};
use crate::sqlite::connections::options::{OpenError, SqliteOptions};
use crate::sqlite::connections::pool::{SharedConnection, Transaction};
use crate::sqlite::fault::{fault, unknown_commit};
use crate::{Failure, Fault, StoreResult};

/// Maximum writes that wait. Further writes are refused as busy.
const QUEUE: usize = 8192;
/// Maximum writes of a group commit.
const GROUP: usize = 256;

/// Sends writes to the writer thread, which ends when the last handle is dropped.
pub(crate) struct Writer {
    queue: SyncSender<Box<dyn WriteJob>>,
    timeout: Duration,
}

/// A write and the channel for its answer. A job is atomic, and can run again after a rollback. Its work
/// is dropped when the requester goes away, so that no write runs after its client has received a timeout, or keeps
/// the client's data in memory.
trait WriteJob: Send {
    fn run(&mut self, db: &mut Connection) -> rusqlite::Result<()>;
    /// Answers with the result of the last run, or with the reason why it is not durable.
    fn answer(self: Box<Self>, durable: Result<(), Failure>);
}

struct Work<W> {
    run: W,
    begun: bool,
}

struct WriteRequest<T, W> {
    /// The work, which the requester owns.
    work: Weak<Mutex<Option<Work<W>>>>,
    outcome: Option<StoreResult<T>>,
    reply: oneshot::Sender<StoreResult<T>>,
}

impl<T, W> WriteJob for WriteRequest<T, W>
where
    T: Send,
    W: FnMut(&mut Connection) -> rusqlite::Result<StoreResult<T>> + Send,
{
    fn run(&mut self, db: &mut Connection) -> rusqlite::Result<()> {
        let Some(work) = self.work.upgrade() else { return Ok(()) };
        let mut work = work.lock();
        if let Some(work) = work.as_mut() {
            work.begun = true;
            self.outcome = Some((work.run)(db)?);
        }
        Ok(())
    }

    fn answer(self: Box<Self>, durable: Result<(), Failure>) {
        let outcome = match (durable, self.outcome) {
            (Err(failure), _) => Err(failure),
            (Ok(()), Some(outcome)) => outcome,
            (Ok(()), None) => Err(Fault::Other.into()),
        };
        // The requester may have gone away.
        let _ = self.reply.send(outcome);
    }
}

impl Writer {
    /// Starts the thread on the writer's connection.
    pub(crate) fn start(connection: SharedConnection, options: &SqliteOptions) -> Result<Self, OpenError> {
        let (queue, waiting) = sync_channel(QUEUE);
        let checkpoints = Checkpoints::start(options, &connection.lock())?;
        std::thread::Builder::new()
            .name("sqlite-writer".into())
            .spawn(move || serve(&connection, checkpoints, &waiting))?;
        Ok(Self { queue, timeout: options.timeout })
    }

    /// Returns the writer of a read-only database, which refuses writes.
    pub(crate) fn refusing(options: &SqliteOptions) -> Self {
        Self { queue: sync_channel(0).0, timeout: options.timeout }
    }

    /// Runs a write and returns once it is durable. `work` may run again after a rollback, and must write nothing if
    /// it refuses.
    pub(crate) async fn submit<T: Send + 'static>(
        &self,
        run: impl FnMut(&mut Connection) -> rusqlite::Result<StoreResult<T>> + Send + 'static,
    ) -> StoreResult<T> {
        self.submit_within(self.timeout, run).await
    }

    /// Like [`Writer::submit`], with a different timeout.
    pub(crate) async fn submit_within<T: Send + 'static>(
        &self,
        limit: Duration,
        run: impl FnMut(&mut Connection) -> rusqlite::Result<StoreResult<T>> + Send + 'static,
    ) -> StoreResult<T> {
        let (reply, answer) = oneshot::channel();
        let work = Arc::new(Mutex::new(Some(Work { run, begun: false })));
        let job = Box::new(WriteRequest { work: Arc::downgrade(&work), outcome: None, reply });
        self.queue.try_send(job).map_err(|_| Fault::NotBegun)?;
        match tokio::time::timeout(limit, answer).await {
            Ok(Ok(outcome @ (Ok(_) | Err(Failure::Refused(_))))) => outcome,
            // The write timed out in the queue, or before it got the write lock.
            _ if withdraw(&work) => Err(Fault::NotBegun.into()),
            Ok(Ok(failed)) => failed,
            Ok(Err(_)) | Err(_) => Err(Fault::Timeout.into()),
        }
    }
}

/// Cancels a write that has not begun; `false` if it has begun.
fn withdraw<W>(work: &Mutex<Option<Work<W>>>) -> bool {
    // The lock's holder runs the write, or is about to.
    let Some(mut work) = work.try_lock() else { return false };
    let waits = work.as_ref().is_some_and(|work| !work.begun);
    if waits {
        *work = None;
    }
    waits
}

fn serve(connection: &SharedConnection, mut checkpoints: Checkpoints, waiting: &Receiver<Box<dyn WriteJob>>) {
    while let Some(first) = next(&mut checkpoints, waiting) {
        let mut group = vec![first];
        group.extend(waiting.try_iter().take(GROUP - 1));
        METRICS.sqlite_rounds.add(group.len() as u64);
        let mut db = connection.lock();
        // The group's requesters receive an unknown outcome. Later writes need the thread.
        if catch_unwind(AssertUnwindSafe(|| commit(&mut db, group))).is_err() {
            tracing::error!("a group of writes panicked");
        }
        checkpoints.committed(&db);
    }
}

/// Returns the next write; `None` after all senders are dropped.
fn next(checkpoints: &mut Checkpoints, waiting: &Receiver<Box<dyn WriteJob>>) -> Option<Box<dyn WriteJob>> {
    while checkpoints.has_unfinished() {
        match waiting.recv_timeout(QUIET) {
            Err(RecvTimeoutError::Timeout) => checkpoints.quiet(),
            outcome => return outcome.ok(),
        }
    }
    waiting.recv().ok()
}

/// The reason why a group is not committed.
#[derive(Debug)]
enum GroupFailure {
    RolledBack(rusqlite::Error),
    /// COMMIT failed, but the group may be durable.
    Unknown(Failure),
}

fn commit(db: &mut Connection, mut group: Vec<Box<dyn WriteJob>>) {
    let outcome = run(db, &mut group);
    answer(db, group, outcome);
}

/// Answers the jobs of a group. After a rollback, each job first commits alone, so that a bad row fails only its own
/// request.
fn answer(db: &mut Connection, group: Vec<Box<dyn WriteJob>>, outcome: Result<(), GroupFailure>) {
    let durable = match outcome {
        Ok(()) => Ok(()),
        Err(GroupFailure::Unknown(failure)) => Err(failure),
        Err(GroupFailure::RolledBack(error)) if group.len() == 1 => Err(fault(&error)),
        Err(GroupFailure::RolledBack(error)) => {
            tracing::warn!(%error, writes = group.len(), "a group of writes failed; trying one by one");
            return group.into_iter().for_each(|job| commit(db, vec![job]));
        }
    };
    group.into_iter().for_each(|job| job.answer(durable.clone()));
}

fn run(db: &mut Connection, group: &mut [Box<dyn WriteJob>]) -> Result<(), GroupFailure> {
    let mut transaction = Transaction::of_writes(db).map_err(GroupFailure::RolledBack)?;
    for job in group {
        job.run(&mut transaction).map_err(GroupFailure::RolledBack)?;
    }
    transaction.commit().map_err(|error| match unknown_commit(&error) {
        Some(failure) => GroupFailure::Unknown(failure),
        None => GroupFailure::RolledBack(error),
    })
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

    use futures_util::FutureExt as _;

    use super::*;
    use crate::sqlite::Location;
    use crate::sqlite::connections::open::open;

    fn bed() -> (Writer, SharedConnection) {
        let options = SqliteOptions::new(Location::Memory);
        let connection = Arc::new(Mutex::new(open(&options).unwrap()));
        (Writer::start(Arc::clone(&connection), &options).unwrap(), connection)
    }

    #[tokio::test]
    async fn of_a_write_that_nobody_waits_for_nothing_is_held_or_done() {
        let (writer, connection) = bed();
        let (sent, done) = (Arc::new(()), Arc::new(AtomicBool::new(false)));
        {
            let _busy = connection.lock();
            let (held, doing) = (Arc::clone(&sent), Arc::clone(&done));
            let work = move |_: &mut Connection| {
                doing.store(Arc::strong_count(&held) > 0, Ordering::SeqCst);
                Ok(Ok(()))
            };
            assert!(writer.submit(work).now_or_never().is_none(), "it has to wait");
            assert_eq!(Arc::strong_count(&sent), 1);
        }
        writer.submit(|_| Ok(Ok(()))).await.unwrap();
        assert!(!done.load(Ordering::SeqCst));
    }

    fn impatient() -> (Writer, SharedConnection) {
        let (writer, connection) = bed();
        (Writer { timeout: Duration::from_millis(20), ..writer }, connection)
    }

    #[tokio::test]
    async fn a_write_that_waited_in_vain_was_not_begun_and_is_never_done() {
        let (writer, _connection) = impatient();
        let (begun, go_on) = (sync_channel(1), sync_channel(1));
        let blocking = move |_: &mut Connection| {
            let _ = (begun.0.send(()), go_on.1.recv());
            Ok(Ok(()))
        };
        let mut waiting = Box::pin(writer.submit(blocking));
        assert!((&mut waiting).now_or_never().is_none(), "it has to wait");
        begun.1.recv().unwrap();
        let done = Arc::new(AtomicBool::new(false));
        let doing = Arc::clone(&done);
        let waited = writer.submit(move |_| {
            doing.store(true, Ordering::SeqCst);
            Ok(Ok(()))
        });
        assert_eq!(waited.await, Err(Fault::NotBegun.into()));
        assert_eq!(waiting.await, Err(Fault::Timeout.into()), "of what was begun the outcome is unknown");
        go_on.0.send(()).unwrap();
        while writer.submit(|_| Ok(Ok(()))).await.is_err() {}
        assert!(!done.load(Ordering::SeqCst));
    }

    struct Counted {
        runs: Arc<AtomicUsize>,
        answers: SyncSender<Result<(), Failure>>,
    }

    impl WriteJob for Counted {
        fn run(&mut self, _: &mut Connection) -> rusqlite::Result<()> {
            self.runs.fetch_add(1, Ordering::SeqCst);
            Ok(())
        }

        fn answer(self: Box<Self>, durable: Result<(), Failure>) {
            self.answers.send(durable).unwrap();
        }
    }

    #[test]
    fn writes_whose_commit_may_be_durable_are_not_done_again() {
        let mut db = open(&SqliteOptions::new(Location::Memory)).unwrap();
        let interrupted = || {
            let code = rusqlite::ffi::Error::new(rusqlite::ffi::SQLITE_INTERRUPT);
            GroupFailure::RolledBack(rusqlite::Error::SqliteFailure(code, None))
        };
        let unknown: Failure = Fault::Timeout.into();
        for (failure, each, times) in
            [(GroupFailure::Unknown(unknown.clone()), Err(unknown), 0), (interrupted(), Ok(()), 2)]
        {
            let (runs, (answers, answered)) = (Arc::default(), sync_channel(2));
            let job = || -> Box<dyn WriteJob> {
                Box::new(Counted { runs: Arc::clone(&runs), answers: answers.clone() })
            };
            answer(&mut db, vec![job(), job()], Err(failure));
            assert_eq!(answered.try_iter().collect::<Vec<_>>(), [each.clone(), each]);
            assert_eq!(runs.load(Ordering::SeqCst), times);
        }
    }

    #[tokio::test]
    async fn a_panic_costs_the_writes_of_its_group_and_none_after_them() {
        let (writer, connection) = bed();
        let broken = writer.submit::<()>(|db| {
            db.execute_batch("CREATE TABLE half (a)")?;
            panic!("a mistake of ours");
        });
        assert!(matches!(broken.await, Err(Failure::Fault(Fault::Timeout))));
        writer.submit(|_| Ok(Ok(()))).await.unwrap();
        let half = "SELECT count(*) FROM sqlite_schema WHERE name = 'half'";
        let tables: i64 = connection.lock().query_row(half, [], |row| row.get(0)).unwrap();
        assert_eq!(tables, 0, "rolled back");
    }
}
