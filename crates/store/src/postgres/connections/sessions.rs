//! Idle sessions of one database, and the queue for them.
//!
//! All pools of a database share its connection limit. A pool first uses its own idle sessions, then opens one. If the
//! database refuses more connections, the pool takes an idle session of any pool, or waits in the first-come,
//! first-served queue that all pools share. One waiter at a time tries to open a session, with backoff.

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use sqlx::{Connection, PgConnection};
use tokio::runtime;
use tokio::sync::oneshot;
use tokio::time::{Instant, timeout};

use crate::observe::metrics;
use crate::observe::metrics::CountedConnection;
use crate::postgres::connections::hosts::ChosenHost;
use crate::postgres::connections::placement::Placement;

/// Initial backoff after a refused connection. The backoff doubles after each further refusal.
const FIRST_PAUSE: Duration = Duration::from_millis(25);
const LONGEST_PAUSE: Duration = Duration::from_millis(250);
/// Number of idle sessions that are kept regardless of their idle time.
const KEPT: usize = 2;
const CLOSING: Duration = Duration::from_secs(1);

/// Closes a session within [`CLOSING`]. The server notices the end of the connection in any case.
pub(crate) async fn close(connection: PgConnection) {
    let _ = timeout(CLOSING, connection.close()).await;
}

/// Lock timeout of a session's statements.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum LockWait {
    /// A brief timeout: other requests need the connection.
    Short,
    /// A third of the statement timeout.
    Long,
}

pub(crate) struct Session {
    pub connection: PgConnection,
    pub host: ChosenHost,
    /// Process ID of the session's backend.
    pub pid: i32,
    /// The runtime that opened the connection.
    pub home: runtime::Id,
    pub lock_wait: LockWait,
    /// The placement at the time the session was opened.
    pub placement: Placement,
    /// Time at which the session must be closed, even if it is in constant use.
    pub expires: Instant,
    /// Number of connections lost before the session's last statement.
    pub losses: u64,
    pub idle_since: Instant,
    /// The pool that last used the session.
    pub owner: Owner,
    /// The reference count of this token is the number of sessions.
    pub _alive: Arc<()>,
    pub _open: CountedConnection,
}

#[derive(Clone, Copy)]
pub(crate) struct Owner {
    pub id: u64,
    pub metrics: &'static metrics::PoolMetrics,
}

#[derive(Default)]
pub(crate) struct Sessions {
    alive: Arc<()>,
    /// The reference count of this token is the number of callers that wait for a slot of their pool.
    slot_waiters: Arc<()>,
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    idle: Vec<Session>,
    waiting: VecDeque<oneshot::Sender<Session>>,
    owners: u64,
    /// Time of the next attempt; set while the database refuses connections.
    retry_at: Option<Instant>,
    pause: Duration,
    is_opening: bool,
    /// Whether the last attempt failed while there was no session to wait for.
    is_away: bool,
}

impl Sessions {
    pub(crate) fn new_owner(&self) -> u64 {
        let mut state = self.state.lock();
        state.owners += 1;
        state.owners
    }

    /// Returns the token that a new session holds.
    pub(crate) fn count_one(&self) -> Arc<()> {
        Arc::clone(&self.alive)
    }

    /// Whether there is any session, idle or in use.
    pub(crate) fn is_any_alive(&self) -> bool {
        Arc::strong_count(&self.alive) > 1
    }

    /// Returns the token that a caller holds while it waits for a slot.
    pub(crate) fn wait_for_slot(&self) -> Arc<()> {
        Arc::clone(&self.slot_waiters)
    }

    /// Whether other requests wait for a session.
    pub(crate) fn is_awaited(&self) -> bool {
        Arc::strong_count(&self.slot_waiters) > 1
            || self.state.lock().waiting.iter().any(|waiting| !waiting.is_closed())
    }

    /// Takes an idle session of this pool that belongs to this runtime, or to any runtime if the pool has at least
    /// `limit` idle sessions. Sessions with the given lock timeout are preferred.
    pub(crate) fn take(
        &self,
        owner: u64,
        home: runtime::Id,
        wait: Option<LockWait>,
        limit: usize,
    ) -> Option<Session> {
        let mut state = self.state.lock();
        let own = || state.idle.iter().enumerate().filter(|(_, session)| session.owner.id == owner);
        let near = || own().filter(|(_, session)| session.home == home);
        let fits = |session: &Session| wait.is_none_or(|wait| session.lock_wait == wait);
        let chosen = near().rfind(|(_, session)| fits(session)).or_else(|| near().next_back());
        let chosen = chosen.or_else(|| (own().count() >= limit).then(|| own().next_back()).flatten());
        let at = chosen?.0;
        Some(state.remove(at))
    }

    /// Passes a session to the first waiter, or keeps it as idle.
    pub(crate) fn give(&self, mut session: Session) {
        let mut state = self.state.lock();
        if Instant::now() >= session.expires {
            state.retry_at = state.retry_at.map(|_| Instant::now());
            return;
        }
        while let Some(first) = state.waiting.pop_front() {
            match first.send(session) {
                Ok(()) => return,
                Err(back) => session = back,
            }
        }
        session.owner.metrics.idle.add(1);
        state.idle.push(session);
    }

    /// Joins the queue. If a session is idle, the wait ends immediately.
    pub(crate) fn wait(&self) -> Waiter<'_> {
        let (sender, receiver) = oneshot::channel();
        let mut state = self.state.lock();
        match state.idle.len().checked_sub(1) {
            Some(last) => {
                let session = state.remove(last);
                drop(sender.send(session));
            }
            None => {
                state.waiting.retain(|waiting| !waiting.is_closed());
                state.waiting.push_back(sender);
            }
        }
        Waiter { sessions: self, receiver }
    }

    /// Whether a session may be opened: the queue is empty, and the last attempt succeeded.
    pub(crate) fn may_open(&self) -> bool {
        let mut state = self.state.lock();
        state.waiting.retain(|waiting| !waiting.is_closed());
        state.retry_at.is_none() && state.waiting.is_empty()
    }

    /// Time at which a waiter should check whether to open a session.
    pub(crate) fn retry_at(&self) -> Instant {
        let state = self.state.lock();
        let now = Instant::now();
        match state.retry_at {
            _ if state.is_opening => now + FIRST_PAUSE,
            Some(at) => at,
            None => now,
        }
    }

    /// Whether there is no session to wait for before the next connection attempt.
    pub(crate) fn is_away(&self) -> bool {
        let state = self.state.lock();
        state.is_away && state.retry_at.is_some_and(|at| Instant::now() < at)
    }

    /// Returns permission to open a session; `None` during the backoff, or if another caller has the permission.
    pub(crate) fn try_opening_permit(&self) -> Option<OpeningPermit<'_>> {
        let mut state = self.state.lock();
        if state.is_opening || state.retry_at.is_some_and(|at| Instant::now() < at) {
            return None;
        }
        state.is_opening = true;
        Some(OpeningPermit { sessions: self })
    }

    pub(crate) fn opened(&self) {
        let mut state = self.state.lock();
        (state.retry_at, state.pause, state.is_away) = (None, Duration::ZERO, false);
    }

    /// Records a failed attempt; `is_away` means that there is also no session to wait for.
    pub(crate) fn refused(&self, is_away: bool) {
        let mut state = self.state.lock();
        state.is_away = is_away;
        if state.retry_at.is_none_or(|at| at <= Instant::now()) {
            state.pause = (state.pause * 2).clamp(FIRST_PAUSE, LONGEST_PAUSE);
            state.retry_at = Some(Instant::now() + state.pause);
        }
    }

    /// Closes the idle sessions for which `is_gone` holds.
    pub(crate) fn clear(&self, is_gone: impl Fn(&Session) -> bool) {
        let mut state = self.state.lock();
        let gone: Vec<_> = state.idle.extract_if(.., |session| is_gone(session)).collect();
        drop(state);
        gone.iter().for_each(|session| session.owner.metrics.idle.add(-1));
    }

    /// Closes expired sessions, and sessions that were idle for `limit` except the last few.
    pub(crate) async fn close_unused(&self, limit: Duration) {
        for session in self.unused(limit) {
            close(session.connection).await;
        }
    }

    fn unused(&self, limit: Duration) -> Vec<Session> {
        let mut state = self.state.lock();
        let now = Instant::now();
        let mut may_close = state.idle.len().saturating_sub(KEPT);
        let unused = state.idle.extract_if(.., |session| {
            let is_unused = now.duration_since(session.idle_since) >= limit && may_close > 0;
            may_close -= usize::from(is_unused);
            is_unused || now >= session.expires
        });
        let unused: Vec<_> = unused.collect();
        unused.iter().for_each(|session| session.owner.metrics.idle.add(-1));
        unused
    }
}

impl State {
    fn remove(&mut self, at: usize) -> Session {
        let session = self.idle.remove(at);
        session.owner.metrics.idle.add(-1);
        session
    }
}

/// Permission to open a session while the database may refuse it.
pub(crate) struct OpeningPermit<'s> {
    sessions: &'s Sessions,
}

impl Drop for OpeningPermit<'_> {
    fn drop(&mut self) {
        self.sessions.state.lock().is_opening = false;
    }
}

/// A position in the session queue.
pub(crate) struct Waiter<'s> {
    sessions: &'s Sessions,
    receiver: oneshot::Receiver<Session>,
}

impl Waiter<'_> {
    pub(crate) async fn until(&mut self, end: Instant) -> Option<Session> {
        tokio::time::timeout_at(end, &mut self.receiver).await.ok()?.ok()
    }
}

impl Drop for Waiter<'_> {
    fn drop(&mut self) {
        self.receiver.close();
        if let Ok(session) = self.receiver.try_recv() {
            self.sessions.give(session);
        }
    }
}
