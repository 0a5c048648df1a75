//! Metrics of requests.

use std::time::{Duration, Instant};

use super::cells::{Counter, Histogram, HistogramCounts, MetricReading, SHARDS, metrics, shard};
use rowhouse_protocol::error::Code;
use rowhouse_protocol::request::{OperationLabel, Scheme};

/// Bucket bounds for durations, in microseconds.
pub(crate) const DURATIONS: [u64; 16] = [
    250, 500, 1_000, 2_500, 5_000, 10_000, 25_000, 50_000, 100_000, 250_000, 500_000, 1_000_000, 2_500_000,
    5_000_000, 10_000_000, 30_000_000,
];
/// Statuses of requests that succeeded; 0 means any other status.
const STATUSES: [u16; 6] = [200, 201, 202, 204, 304, 0];
const OUTCOMES: usize = STATUSES.len() + Code::COUNT;

metrics! {
    /// The counters of one thread or a few threads.
    #[repr(align(128))]
    struct Shard {
        outcomes: [[Counter; OUTCOMES]; OperationLabel::COUNT] =
            [const { [const { Counter::new() }; OUTCOMES] }; OperationLabel::COUNT],
        durations: [Histogram<{ DURATIONS.len() }>; OperationLabel::COUNT] =
            [const { Histogram::new(&DURATIONS) }; OperationLabel::COUNT],
        /// Microseconds that requests waited for the database.
        database: [Counter; OperationLabel::COUNT] = [const { Counter::new() }; OperationLabel::COUNT],
        begun: Counter = Counter::new(),
        ended: Counter = Counter::new(),
    } {
        abandoned: Counter, "rowhouse_requests_abandoned",
            "Requests whose client went away first.";
        slow: Counter, "rowhouse_requests_slow",
            "Requests that exceeded the threshold for slow requests.";
        received: Counter, "rowhouse_received_bytes",
            "Bytes of bodies received.";
        sent: Counter, "rowhouse_sent_bytes",
            "Bytes of bodies sent.";
        pages: Counter, "rowhouse_pages_returned",
            "Pages of entities read for clients.";
        entities: Counter, "rowhouse_entities_returned",
            "Entities read for clients, in pages and singly.";
    }
}

pub struct Requests {
    shards: [Shard; SHARDS],
    /// Requests that were not authorized, by scheme and error.
    refused: [[Counter; Code::COUNT]; Scheme::COUNT],
}

/// How a request ended.
#[derive(Debug, Clone, Copy)]
pub struct Ending {
    pub operation: OperationLabel,
    /// For a refused batch, the status of its inner response.
    pub status: u16,
    /// The error, if the request was refused; for a batch, the error of its operations.
    pub refusal: Option<Code>,
    /// The time from the head of the request to its answer, and the part of that time spent waiting for the database.
    pub duration: Duration,
    pub database: Duration,
    /// Bytes of the request body and of the response body.
    pub received: u64,
    pub sent: u64,
    pub slow: bool,
}

/// The totals of all operations since the start.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RequestTotals {
    /// Durations in microseconds.
    pub durations: HistogramCounts<{ DURATIONS.len() }>,
    /// Microseconds that requests waited for the database.
    pub database: u64,
    /// Requests that were refused with a status below 500, and requests that failed with a status of 5xx.
    pub client_errors: u64,
    pub server_errors: u64,
}

/// A request in flight. If it is dropped without an ending, it counts as abandoned: the client went
/// away.
pub struct RequestInFlight<'m> {
    requests: &'m Requests,
    begun: Instant,
    ended: bool,
}

impl Requests {
    pub const fn new() -> Self {
        Self {
            shards: [const { Shard::new() }; SHARDS],
            refused: [const { [const { Counter::new() }; Code::COUNT] }; Scheme::COUNT],
        }
    }

    fn mine(&self) -> &Shard {
        &self.shards[shard()]
    }

    pub fn begin(&self) -> RequestInFlight<'_> {
        self.mine().begun.one();
        RequestInFlight { requests: self, begun: Instant::now(), ended: false }
    }

    /// Counts a request that was not authorized.
    pub fn authentication_failed(&self, scheme: Scheme, code: Code) {
        self.refused[scheme as usize][code as usize].one();
    }

    /// Counts a page that was read for a client.
    pub fn page(&self, entities: usize) {
        let mine = self.mine();
        mine.pages.one();
        mine.entities.add(entities as u64);
    }

    /// Counts a single entity that was read for a client.
    pub fn entity(&self) {
        self.mine().entities.one();
    }

    fn sum(&self, which: impl Fn(&Shard) -> &Counter) -> u64 {
        self.shards.iter().map(|shard| which(shard).get()).sum()
    }

    pub(crate) fn in_flight(&self) -> u64 {
        // The ended requests are summed first, so that the difference is never negative.
        let ended = self.sum(|s| &s.ended);
        self.sum(|s| &s.begun).saturating_sub(ended)
    }

    /// Reads the counters that do not depend on the operation.
    pub(crate) fn read(&self) -> Vec<MetricReading> {
        let mut sums = self.shards[0].read();
        for shard in &self.shards[1..] {
            sums.iter_mut().zip(shard.read()).for_each(|(sum, more)| sum.value += more.value);
        }
        sums
    }

    /// Returns the non-zero numbers of requests by status and error.
    pub(crate) fn outcomes(&self, operation: OperationLabel) -> Vec<(u16, Option<Code>, u64)> {
        let count = |outcome: usize| self.sum(|s| &s.outcomes[operation as usize][outcome]);
        let succeeded = STATUSES.iter().enumerate().map(|(at, status)| (*status, None, count(at)));
        let refused = Code::ALL
            .iter()
            .map(|code| (code.facts().status, Some(*code), count(STATUSES.len() + *code as usize)));
        succeeded.chain(refused).filter(|(.., count)| *count > 0).collect()
    }

    /// Returns the durations of requests, in microseconds.
    pub(crate) fn durations(&self, operation: OperationLabel) -> HistogramCounts<{ DURATIONS.len() }> {
        let mut shards = self.shards.iter().map(|s| s.durations[operation as usize].read());
        let mut sum = Histogram::new(&DURATIONS).read();
        shards.by_ref().for_each(|spread| sum.merge(&spread));
        sum
    }

    /// Microseconds that requests waited for the database.
    pub(crate) fn database(&self, operation: OperationLabel) -> u64 {
        self.sum(|s| &s.database[operation as usize])
    }

    /// Returns the sums over all operations.
    pub fn totals(&self) -> RequestTotals {
        let durations = Histogram::new(&DURATIONS).read();
        let mut totals = RequestTotals { durations, database: 0, client_errors: 0, server_errors: 0 };
        for operation in OperationLabel::ALL {
            let durations = self.durations(operation);
            if durations.count() == 0 {
                continue;
            }
            totals.durations.merge(&durations);
            totals.database += self.database(operation);
            for (status, code, count) in self.outcomes(operation) {
                match code {
                    Some(_) if status >= 500 => totals.server_errors += count,
                    Some(_) => totals.client_errors += count,
                    None => {}
                }
            }
        }
        totals
    }

    /// Returns the non-zero numbers of requests that were not authorized, by error.
    pub(crate) fn refused(&self, scheme: Scheme) -> Vec<(Code, u64)> {
        let counts =
            Code::ALL.iter().map(|code| (*code, self.refused[scheme as usize][*code as usize].get()));
        counts.filter(|(_, count)| *count > 0).collect()
    }
}

impl Default for Requests {
    fn default() -> Self {
        Self::new()
    }
}

impl RequestInFlight<'_> {
    pub fn elapsed(&self) -> Duration {
        self.begun.elapsed()
    }

    pub fn end(mut self, ending: &Ending) {
        self.ended = true;
        let shard = self.requests.mine();
        let operation = ending.operation as usize;
        let outcome = match ending.refusal {
            Some(code) => STATUSES.len() + code as usize,
            None => STATUSES.iter().position(|status| *status == ending.status).unwrap_or(STATUSES.len() - 1),
        };
        shard.outcomes[operation][outcome].one();
        shard.durations[operation].add(micros(ending.duration));
        shard.database[operation].add(micros(ending.database));
        shard.received.add(ending.received);
        shard.sent.add(ending.sent);
        if ending.slow {
            shard.slow.one();
        }
    }
}

impl Drop for RequestInFlight<'_> {
    fn drop(&mut self) {
        let shard = self.requests.mine();
        shard.ended.one();
        if !self.ended {
            shard.abandoned.one();
        }
    }
}

fn micros(duration: Duration) -> u64 {
    u64::try_from(duration.as_micros()).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    static REQUESTS: Requests = Requests::new();

    fn ending(operation: OperationLabel, duration: Duration, status: u16, refusal: Option<Code>) -> Ending {
        let database = Duration::from_micros(7);
        Ending { operation, status, refusal, duration, database, received: 10, sent: 20, slow: false }
    }

    #[test]
    fn requests_are_counted_by_what_they_were_and_how_they_ended() {
        let begun = [REQUESTS.begin(), REQUESTS.begin(), REQUESTS.begin(), REQUESTS.begin()];
        assert_eq!(REQUESTS.in_flight(), 4);
        let [fine, refused, batch, abandoned] = begun;
        let minute = Duration::from_secs(60);
        fine.end(&ending(OperationLabel::GetEntity, Duration::from_micros(300), 200, None));
        refused.end(&ending(OperationLabel::GetEntity, minute, 404, Some(Code::ResourceNotFound)));
        batch.end(&ending(OperationLabel::QueryBatch, Duration::ZERO, 299, None));
        drop(abandoned);
        let outcomes = REQUESTS.outcomes(OperationLabel::GetEntity);
        assert_eq!(outcomes, [(200, None, 1), (404, Some(Code::ResourceNotFound), 1)]);
        assert_eq!(REQUESTS.outcomes(OperationLabel::QueryBatch), [(0, None, 1)]);
        let durations = REQUESTS.durations(OperationLabel::GetEntity);
        assert_eq!((durations.within[1], durations.beyond, durations.count()), (1, 1, 2));
        assert_eq!((REQUESTS.in_flight(), REQUESTS.database(OperationLabel::GetEntity)), (0, 14));
        let values: Vec<f64> = REQUESTS.read().iter().map(|reading| reading.value).collect();
        assert_eq!(values, [1.0, 0.0, 30.0, 60.0, 0.0, 0.0]);
    }
}
