//! Requests that share round trips (design: adaptive coalescing).
//!
//! A lane is one connection with a queue. Whatever waits when the connection is
//! free is done as one statement; a request that finds it free is done at once,
//! alone. Each thread that works on the store has a lane of its own, so that no
//! request pays for waking another thread.

use std::collections::VecDeque;
use std::sync::{Mutex, PoisonError};

use thread_local::ThreadLocal;
use tokio::sync::mpsc::error::TrySendError;
use tokio::sync::{mpsc, oneshot};

use crate::metrics;
use crate::store::Fault;
use crate::store::postgres::connections::connector::Connector;
use crate::store::postgres::connections::lease::Lease;
use crate::store::postgres::connections::pool::Pool;
use crate::store::postgres::connections::sessions::LockWait;
use crate::store::postgres::fault::{Effect, Trouble};

/// Requests that may wait in one lane; more are refused as busy.
const MAX_WAITING: usize = 4096;
/// As many are looked at for a round, the others wait behind them.
const QUEUE: usize = MAX_WAITING / 2;

/// What the requests of a lane have in common.
pub(crate) trait Shared: Send + Sync + 'static {
    type Request: Send + 'static;
    type Reply: Send + 'static;
    /// What a lost connection means for them.
    const EFFECT: Effect;

    /// Turns of the thread, of which each has brought more requests, before a round
    /// begins. A round of few costs nearly as much as one of many, the more so where
    /// it commits; but while many turns pass, the database waits.
    const TURNS: usize;

    /// How long its statements wait for locked rows, if they lock any.
    const LOCK_WAIT: Option<LockWait>;

    /// Where its connections and its rounds are counted.
    fn metrics() -> (&'static metrics::PoolMetrics, &'static metrics::Rounds);

    /// Takes from the front of the queue what one statement can do, at least
    /// one request of a queue that is not empty.
    fn round(waiting: &mut LaneQueue<Self>) -> Vec<Job<Self>>;

    /// Runs a round. Every job must get an answer.
    fn run(lease: Lease<'_>, round: Vec<Job<Self>>) -> impl Future<Output = ()> + Send;
}

/// A request and the way to answer it.
pub(crate) struct Job<S: Shared + ?Sized> {
    pub request: S::Request,
    reply: oneshot::Sender<Result<S::Reply, Trouble>>,
}

/// Jobs in the order in which they came.
pub(crate) type LaneQueue<S> = VecDeque<Job<S>>;

impl<S: Shared + ?Sized> Job<S> {
    /// Answers the request with what `outcome` makes of it. A requester that has gone away is
    /// ignored.
    pub(crate) fn answer_with(self, outcome: impl FnOnce(S::Request) -> Result<S::Reply, Trouble>) {
        let _ = self.reply.send(outcome(self.request));
    }

    /// Answers the request.
    pub(crate) fn answer(self, outcome: Result<S::Reply, Trouble>) {
        self.answer_with(|_| outcome);
    }
}

type Queue<S> = mpsc::Sender<Job<S>>;

/// One lane for each thread, made when the thread first needs it.
pub(crate) struct Lanes<S: Shared> {
    queues: ThreadLocal<Mutex<Option<Queue<S>>>>,
    connector: Connector,
}

impl<S: Shared> Lanes<S> {
    /// No lanes yet; `connector` opens the one connection of each.
    pub(crate) fn new(connector: Connector) -> Self {
        Self { queues: ThreadLocal::new(), connector }
    }

    /// Hands a request to this thread's lane and waits for its answer.
    ///
    /// # Errors
    /// [`Fault::Busy`] where too many wait already, and whatever became of the
    /// statement.
    pub(crate) async fn submit(&self, request: S::Request) -> Result<S::Reply, Trouble> {
        let (reply, answer) = oneshot::channel();
        self.enqueue(Job { request, reply })?;
        answer.await.unwrap_or_else(|_| {
            Err(Trouble::Fault(match S::EFFECT {
                Effect::Undone => Fault::Unavailable,
                Effect::Unknown => Fault::Timeout,
            }))
        })
    }

    fn enqueue(&self, job: Job<S>) -> Result<(), Trouble> {
        let mut queue = self.queues.get_or_default().lock().unwrap_or_else(PoisonError::into_inner);
        let job = match queue.as_ref().map(|open| open.try_reserve()) {
            Some(Ok(place)) => {
                place.send(job);
                return Ok(());
            }
            Some(Err(TrySendError::Full(()))) => return Err(Fault::Busy.into()),
            // None yet, or it died, or it went with the runtime that it ran on.
            Some(Err(TrySendError::Closed(()))) | None => job,
        };
        let (sender, receiver) = mpsc::channel(QUEUE);
        sender.try_send(job).map_err(|_| Fault::Busy)?;
        tokio::spawn(serve(Pool::new(self.connector.clone(), 1, S::metrics().0), receiver));
        *queue = Some(sender);
        Ok(())
    }
}

/// Takes in what is ready by now, so that no such request misses the round; then,
/// for [`Shared::TURNS`] at most, what one more turn of the thread brings.
async fn gather<S: Shared>(queue: &mut mpsc::Receiver<Job<S>>, waiting: &mut LaneQueue<S>) {
    for _ in 0..S::TURNS {
        let before = waiting.len();
        tokio::task::yield_now().await;
        while waiting.len() < QUEUE
            && let Ok(job) = queue.try_recv()
        {
            waiting.push_back(job);
        }
        if waiting.len() == before {
            break;
        }
    }
}
/// Works until the last sender is gone.
async fn serve<S: Shared>(pool: Pool, mut queue: mpsc::Receiver<Job<S>>) {
    let mut waiting = LaneQueue::<S>::new();
    while let Some(first) = queue.recv().await {
        waiting.push_back(first);
        while !waiting.is_empty() {
            let lease = pool.acquire_for(S::LOCK_WAIT).await;
            gather(&mut queue, &mut waiting).await;
            waiting.retain(|job| !job.reply.is_closed());
            match lease {
                Ok(lease) if !waiting.is_empty() => {
                    let round = S::round(&mut waiting);
                    S::metrics().1.add(round.len() as u64);
                    S::run(lease, round).await;
                }
                Ok(_) => {}
                Err(trouble) => waiting.drain(..).for_each(|job| job.answer(Err(trouble))),
            }
        }
    }
}
