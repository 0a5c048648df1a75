//! The latest requests, for operators who watch the server. They are kept in a ring of fixed size, in which a
//! new request replaces the oldest. Adding a request takes one uncontended lock. It allocates nothing once
//! the ring is full of texts of similar length.
//!
//! Like the log, the ring contains no secrets, signatures or entity content. A reason may contain entity keys.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use parking_lot::Mutex;

use crate::observe::metrics::Ending;
use crate::protocol::model::Ticks;

/// Maximum number of requests in the ring.
pub(crate) const MAX_RECENT: usize = 1024;
/// Maximum length of a reason in bytes.
pub(crate) const MAX_REASON: usize = 1024;

/// A completed request.
#[derive(Debug, Clone)]
pub(crate) struct RecentRequest {
    /// The requests are numbered from 1.
    pub id: u64,
    /// When the request was answered.
    pub at: Ticks,
    pub ending: Ending,
    /// Whether the request came over the admin listener, as those of the console do.
    pub is_of_operator: bool,
    pub account: String,
    pub table: String,
    pub request_id: String,
    /// The exact reason of an error, if it contains more than the error code.
    pub reason: String,
}

/// The latest [`MAX_RECENT`] requests. Until an operator watches, only refused or slow requests are added, so that
/// the others cost nothing.
pub(crate) struct RecentRequests {
    is_watched: AtomicBool,
    /// The id of the latest request, or 0.
    last_id: AtomicU64,
    /// A request's place is its id modulo [`MAX_RECENT`].
    places: Box<[Mutex<Option<RecentRequest>>]>,
}

impl RecentRequests {
    /// Returns an empty ring.
    pub(crate) fn new() -> Self {
        let places = (0..MAX_RECENT).map(|_| Mutex::new(None)).collect();
        Self { is_watched: AtomicBool::new(false), last_id: AtomicU64::new(0), places }
    }

    /// Adds all requests from now on, not only refused and slow ones.
    pub(crate) fn watch(&self) {
        self.is_watched.store(true, Ordering::Relaxed);
    }

    /// Returns whether a request with this outcome should be added.
    pub(crate) fn should_add(&self, status: u16, is_slow: bool) -> bool {
        status >= 400 || is_slow || self.is_watched.load(Ordering::Relaxed)
    }

    /// Adds a request with these texts: account, table, request id and reason.
    pub(crate) fn add(&self, ending: Ending, is_of_operator: bool, texts: [&str; 4]) {
        let id = self.last_id.fetch_add(1, Ordering::Relaxed) + 1;
        let Some(place) = self.place(id) else { return };
        let mut place = place.lock();
        // A delayed thread must not overwrite a newer request.
        if place.as_ref().is_some_and(|newer| newer.id > id) {
            return;
        }
        // The new texts reuse the memory of the older ones.
        let older = place.take().map(|older| [older.account, older.table, older.request_id, older.reason]);
        let mut reused = older.unwrap_or_default();
        for (own, new) in reused.iter_mut().zip(texts) {
            own.clear();
            own.push_str(new);
        }
        let [account, table, request_id, reason] = reused;
        let at = Ticks::now();
        *place = Some(RecentRequest { id, at, ending, is_of_operator, account, table, request_id, reason });
    }

    /// Returns the id of the newest request, whose addition may be in progress, or 0 if there is none.
    pub(crate) fn newest_id(&self) -> u64 {
        self.last_id.load(Ordering::Relaxed)
    }

    /// Returns up to `limit` requests in the order of their ids: the first ones after `after`, or the latest
    /// ones if `after` is `None`. Requests that are no longer kept are left out.
    pub(crate) fn read(&self, after: Option<u64>, limit: usize) -> Vec<RecentRequest> {
        let last = self.newest_id();
        let replaced = last.saturating_sub(MAX_RECENT as u64);
        let after = after.map_or(last.saturating_sub(limit as u64), |after| after.min(last)).max(replaced);
        let mut found = Vec::new();
        for id in after + 1..=last {
            if found.len() == limit {
                break;
            }
            let Some(place) = self.place(id) else { break };
            let place = place.lock();
            match &*place {
                Some(request) if request.id == id => found.push(request.clone()),
                // A newer request has replaced it.
                Some(request) if request.id > id => {}
                // The request is being written. The next read will find it.
                _ => break,
            }
        }
        found
    }

    fn place(&self, id: u64) -> Option<&Mutex<Option<RecentRequest>>> {
        self.places.get((id % MAX_RECENT as u64) as usize)
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::protocol::request::OperationLabel;

    fn add(ring: &RecentRequests, table: &str) {
        let ending = Ending {
            operation: OperationLabel::GetEntity,
            status: 200,
            refusal: None,
            duration: Duration::from_millis(2),
            database: Duration::from_millis(1),
            received: 0,
            sent: 0,
            slow: false,
        };
        ring.add(ending, false, ["acct", table, "id", ""]);
    }

    fn ids(found: &[RecentRequest]) -> Vec<u64> {
        found.iter().map(|request| request.id).collect()
    }

    #[test]
    fn until_an_operator_watches_only_refused_and_slow_requests_are_added() {
        let ring = RecentRequests::new();
        let wanted =
            || [(200, false), (404, false), (200, true)].map(|(status, slow)| ring.should_add(status, slow));
        assert_eq!(wanted(), [false, true, true]);
        ring.watch();
        assert_eq!(wanted(), [true; 3]);
    }

    #[test]
    fn reading_continues_after_the_last_id() {
        let ring = RecentRequests::new();
        assert!(ring.read(None, 10).is_empty() && ring.read(Some(7), 10).is_empty());
        ["a", "b", "c"].iter().for_each(|table| add(&ring, table));
        assert_eq!(ids(&ring.read(None, 2)), [2, 3]);
        assert_eq!(ids(&ring.read(Some(0), 2)), [1, 2]);
        assert_eq!(ids(&ring.read(Some(2), 10)), [3]);
        assert_eq!(ids(&ring.read(Some(3), 10)), [0; 0]);
        assert_eq!(ids(&ring.read(Some(u64::MAX), 10)), [0; 0]);
        assert_eq!(ring.read(Some(2), 1)[0].table, "c");
    }

    #[test]
    fn the_ring_keeps_only_the_latest_requests() {
        let ring = RecentRequests::new();
        let many = 3 * MAX_RECENT as u64 + 7;
        for at in 0..many {
            add(&ring, if at == many - 1 { "last" } else { "a-longer-name" });
        }
        let found = ring.read(Some(0), usize::MAX);
        assert_eq!(ids(&found), (many - MAX_RECENT as u64 + 1..=many).collect::<Vec<_>>());
        assert_eq!(found.last().unwrap().table, "last");
    }

    #[test]
    fn threads_that_add_at_once_lose_nothing() {
        let ring = RecentRequests::new();
        let each = MAX_RECENT / 4;
        std::thread::scope(|scope| {
            for _ in 0..4 {
                scope.spawn(|| (0..each).for_each(|_| add(&ring, "t")));
            }
        });
        assert_eq!(ids(&ring.read(Some(0), usize::MAX)), (1..=MAX_RECENT as u64).collect::<Vec<_>>());
    }
}
