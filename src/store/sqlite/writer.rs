//! The one thread that writes. It commits everything that is waiting in one
//! transaction: one sync of the disk for many requests.

use std::sync::mpsc::{Receiver, RecvTimeoutError, SyncSender, TrySendError, sync_channel};
use std::time::Duration;

use rusqlite::Connection;
use tokio::sync::oneshot;

use super::checkpoint::{Checkpoints, QUIET};
use super::connection::{OpenError, SqliteOptions};
use super::fault;
use super::readers::{SharedConnection, lock};
use crate::metrics::METRICS;
use crate::store::{Failure, Fault, StoreResult};

/// Writes that may wait; more are refused as busy.
const QUEUE: usize = 8192;
/// Writes that share a commit at most.
const GROUP: usize = 256;

/// Hands writes to the writer thread, which ends when the last handle is gone.
pub struct Writer {
    queue: SyncSender<Box<dyn Job>>,
    timeout: Duration,
}

/// A write and the way to answer it. It either changes nothing or everything
/// that it stands for, and can be run again after a roll-back.
trait Job: Send {
    fn run(&mut self, db: &Connection) -> rusqlite::Result<()>;
    /// Answers with what the last run found, or with why it is not durable.
    fn answer(self: Box<Self>, durable: Result<(), Failure>);
}

struct Request<T, W> {
    work: W,
    outcome: Option<StoreResult<T>>,
    reply: oneshot::Sender<StoreResult<T>>,
}

impl<T, W> Job for Request<T, W>
where
    T: Send,
    W: FnMut(&Connection) -> rusqlite::Result<StoreResult<T>> + Send,
{
    fn run(&mut self, db: &Connection) -> rusqlite::Result<()> {
        self.outcome = Some((self.work)(db)?);
        Ok(())
    }

    fn answer(self: Box<Self>, durable: Result<(), Failure>) {
        let outcome = match (durable, self.outcome) {
            (Err(failure), _) => Err(failure),
            (Ok(()), Some(outcome)) => outcome,
            (Ok(()), None) => Err(Fault::Other.into()),
        };
        // A requester that has gone away is no concern of ours.
        let _ = self.reply.send(outcome);
    }
}

impl Writer {
    /// Starts the thread on its connection.
    pub fn start(connection: SharedConnection, options: &SqliteOptions) -> Result<Self, OpenError> {
        let (queue, waiting) = sync_channel(QUEUE);
        let checkpoints = Checkpoints::start(options, &lock(&connection))?;
        std::thread::Builder::new()
            .name("sqlite-writer".into())
            .spawn(move || serve(&connection, checkpoints, &waiting))?;
        Ok(Self { queue, timeout: options.timeout })
    }

    /// Runs a write and returns once it is durable. `work` may be run again
    /// after a roll-back, and must write nothing when it refuses.
    pub async fn submit<T: Send + 'static>(
        &self,
        work: impl FnMut(&Connection) -> rusqlite::Result<StoreResult<T>> + Send + 'static,
    ) -> StoreResult<T> {
        let (reply, answer) = oneshot::channel();
        let job = Box::new(Request { work, outcome: None, reply });
        self.queue.try_send(job).map_err(|error| match error {
            TrySendError::Full(_) => Fault::Busy,
            TrySendError::Disconnected(_) => Fault::Unavailable,
        })?;
        match tokio::time::timeout(self.timeout, answer).await {
            Ok(Ok(outcome)) => outcome,
            Ok(Err(_)) => Err(Fault::Timeout.into()),
            Err(_) => Err(Fault::Timeout.into()),
        }
    }
}

fn serve(connection: &SharedConnection, mut checkpoints: Checkpoints, waiting: &Receiver<Box<dyn Job>>) {
    while let Some(first) = next(&mut checkpoints, waiting) {
        let mut group = vec![first];
        group.extend(waiting.try_iter().take(GROUP - 1));
        METRICS.sqlite_rounds.add(group.len() as u64);
        let db = lock(connection);
        commit(&db, group);
        checkpoints.committed(&db);
    }
}

/// The next write; `None` when nobody can send any more.
fn next(checkpoints: &mut Checkpoints, waiting: &Receiver<Box<dyn Job>>) -> Option<Box<dyn Job>> {
    while checkpoints.has_rest() {
        match waiting.recv_timeout(QUIET) {
            Err(RecvTimeoutError::Timeout) => checkpoints.quiet(),
            outcome => return outcome.ok(),
        }
    }
    waiting.recv().ok()
}

/// Commits a group; if that fails, each of its jobs alone, so that one bad row
/// fails only its own request.
fn commit(db: &Connection, mut group: Vec<Box<dyn Job>>) {
    match run(db, &mut group) {
        Ok(()) => group.into_iter().for_each(|job| job.answer(Ok(()))),
        Err(error) if group.len() == 1 => {
            let failure = fault(&error);
            group.into_iter().for_each(|job| job.answer(Err(failure.clone())));
        }
        Err(error) => {
            tracing::warn!(%error, writes = group.len(), "a group of writes failed; trying one by one");
            group.into_iter().for_each(|job| commit(db, vec![job]));
        }
    }
}

fn run(db: &Connection, group: &mut [Box<dyn Job>]) -> rusqlite::Result<()> {
    let transaction = Transaction::begin(db)?;
    for job in group {
        job.run(db)?;
    }
    transaction.commit()
}

/// A transaction that is rolled back unless it is committed. Unlike rusqlite's
/// own, it prepares its statements once.
struct Transaction<'c>(&'c Connection);

impl<'c> Transaction<'c> {
    fn begin(db: &'c Connection) -> rusqlite::Result<Self> {
        db.prepare_cached("BEGIN IMMEDIATE")?.execute([])?;
        Ok(Self(db))
    }

    fn commit(self) -> rusqlite::Result<()> {
        self.0.prepare_cached("COMMIT")?.execute([]).map(|_| ())
    }
}

impl Drop for Transaction<'_> {
    fn drop(&mut self) {
        // Ended by the commit, or by SQLite itself, as it does where the disk is full.
        if self.0.is_autocommit() {
            return;
        }
        let ended = self.0.prepare_cached("ROLLBACK").and_then(|mut end| end.execute([]));
        if let Err(error) = ended {
            tracing::error!(%error, "a transaction could not be rolled back");
        }
    }
}
