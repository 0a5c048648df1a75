//! The last hour of this server, with one point per ten seconds.

use std::collections::{HashMap, HashSet, VecDeque};
use std::time::{Duration, Instant};

use parking_lot::Mutex;
use schemars::JsonSchema;
use serde::Serialize;

use crate::observe::metrics::METRICS;
use crate::observe::metrics::requests::RequestTotals;
use crate::operator::durations::Time;
use crate::protocol::model::Ticks;
use crate::store::TableSize;

/// Time between two points.
pub(super) const STEP: Duration = Duration::from_secs(10);
/// Maximum number of points, which cover one hour.
const MAX_POINTS: usize = 360;
/// Maximum number of tables with a history of sizes. A new table replaces the one that was measured longest
/// ago.
const MAX_TABLES: usize = 100;

/// The state of the server over time. Only tables whose sizes operators have requested have a history,
/// because measuring a table is too expensive to do unasked.
pub(crate) struct History {
    requests: Mutex<RequestHistory>,
    sizes: Mutex<HashMap<(String, String), TableHistory>>,
}

struct RequestHistory {
    last: RequestTotals,
    points: VecDeque<HistoryPoint>,
}

#[derive(Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
#[schemars(inline)]
pub(super) struct HistoryReport {
    seconds_per_point: u64,
    /// At most 360.
    points: Vec<HistoryPoint>,
    /// At most 100.
    tables: Vec<TableSizes>,
}

/// The size of a table over time.
#[derive(Serialize, JsonSchema)]
struct TableSizes {
    account: String,
    table: String,
    /// At most 360.
    points: Vec<SizePoint>,
}

/// The requests of one step.
#[derive(Debug, Clone, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
struct HistoryPoint {
    /// The end of the step.
    time: Time,
    requests: u64,
    errors: ErrorClasses,
    /// Milliseconds; null without requests.
    p50: Option<f64>,
    p99: Option<f64>,
    /// Mean time that a request waited for the database.
    store_milliseconds: Option<f64>,
}

/// The numbers of requests with an error.
#[derive(Debug, Clone, Copy, Serialize, JsonSchema)]
#[schemars(inline)]
struct ErrorClasses {
    client: u64,
    server: u64,
}

struct TableHistory {
    measured: Instant,
    points: VecDeque<SizePoint>,
}

#[derive(Debug, Clone, Serialize, JsonSchema)]
struct SizePoint {
    time: Time,
    entities: u64,
    bytes: u64,
    complete: bool,
}

impl History {
    /// Returns a history that begins now.
    pub(crate) fn new() -> Self {
        let requests = RequestHistory { last: METRICS.requests.totals(), points: VecDeque::new() };
        Self { requests: Mutex::new(requests), sizes: Mutex::default() }
    }

    /// Records the size of a table, unless it was recorded moments ago.
    pub(crate) fn measured(&self, account: &str, table: &str, size: TableSize) {
        let mut sizes = self.sizes.lock();
        let key = (account.to_owned(), table.to_owned());
        if !sizes.contains_key(&key) && sizes.len() >= MAX_TABLES {
            let oldest = sizes.iter().min_by_key(|(_, table)| table.measured).map(|(key, _)| key.clone());
            oldest.and_then(|key| sizes.remove(&key));
        }
        let now = Instant::now();
        let table =
            sizes.entry(key).or_insert_with(|| TableHistory { measured: now, points: VecDeque::new() });
        if !table.points.is_empty() && now.duration_since(table.measured) < STEP {
            return;
        }
        table.measured = now;
        let TableSize { entities, bytes, complete } = size;
        let time = Time(Ticks::now());
        push(&mut table.points, SizePoint { time, entities, bytes, complete });
    }

    /// Forgets the deleted tables of an account between `from` and `to` (`None` for the end). `names` are all existing
    /// tables in this range. Names are in lower case.
    pub(crate) fn listed(&self, account: &str, from: &str, to: Option<&str>, names: &HashSet<String>) {
        self.sizes.lock().retain(|(owner, table), _| {
            let table = table.to_ascii_lowercase();
            let is_between = table.as_str() >= from && to.is_none_or(|to| table.as_str() < to);
            owner != account || !is_between || names.contains(&table)
        });
    }

    /// Ends a step and adds its point.
    pub(super) fn step(&self, totals: RequestTotals) {
        let mut requests = self.requests.lock();
        let point = point(&requests.last, &totals);
        push(&mut requests.points, point);
        requests.last = totals;
    }

    /// Returns all points, the oldest first.
    pub(super) fn report(&self) -> HistoryReport {
        let points = self.requests.lock().points.iter().cloned().collect();
        let sizes = self.sizes.lock();
        let mut tables: Vec<_> = sizes.iter().collect();
        tables.sort_unstable_by_key(|(key, _)| *key);
        let tables = tables.into_iter().map(|((account, table), history)| {
            let points = history.points.iter().cloned().collect();
            TableSizes { account: account.clone(), table: table.clone(), points }
        });
        HistoryReport { seconds_per_point: STEP.as_secs(), points, tables: tables.collect() }
    }
}

fn push<T>(points: &mut VecDeque<T>, point: T) {
    if points.len() == MAX_POINTS {
        points.pop_front();
    }
    points.push_back(point);
}

fn point(before: &RequestTotals, now: &RequestTotals) -> HistoryPoint {
    let durations = now.durations.since(&before.durations);
    let requests = durations.count();
    let milliseconds = |micros: f64| micros / 1000.0;
    let database = now.database.saturating_sub(before.database) as f64;
    HistoryPoint {
        time: Time(Ticks::now()),
        requests,
        errors: ErrorClasses {
            client: now.client_errors.saturating_sub(before.client_errors),
            server: now.server_errors.saturating_sub(before.server_errors),
        },
        p50: durations.quantile(0.5).map(milliseconds),
        p99: durations.quantile(0.99).map(milliseconds),
        store_milliseconds: (requests > 0).then(|| milliseconds(database / requests as f64)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::observe::metrics::Ending;
    use crate::observe::metrics::requests::Requests;
    use crate::protocol::request::OperationLabel;

    static REQUESTS: Requests = Requests::new();

    fn answer(micros: u64, status: u16, refusal: Option<crate::error::Code>) {
        let ending = Ending {
            operation: OperationLabel::GetEntity,
            status,
            refusal,
            duration: Duration::from_micros(micros),
            database: Duration::from_micros(micros / 2),
            received: 0,
            sent: 0,
            slow: false,
        };
        REQUESTS.begin().end(&ending);
    }

    #[test]
    fn a_point_has_what_happened_since_the_last_one() {
        let before = REQUESTS.totals();
        let empty = point(&before, &before);
        assert_eq!((empty.requests, empty.p50, empty.store_milliseconds), (0, None, None));
        (0..98).for_each(|_| answer(2_000, 200, None));
        answer(400_000, 404, Some(crate::error::Code::ResourceNotFound));
        answer(400_000, 503, Some(crate::error::Code::ServerBusy));
        let found = point(&before, &REQUESTS.totals());
        assert_eq!((found.requests, found.errors.client, found.errors.server), (100, 1, 1));
        assert!(found.p50.is_some_and(|value| (1.0..=2.5).contains(&value)), "{found:?}");
        assert!(found.p99.is_some_and(|value| (250.0..=500.0).contains(&value)), "{found:?}");
        assert!(found.store_milliseconds.is_some_and(|value| (4.9..5.0).contains(&value)), "{found:?}");
    }

    #[test]
    fn a_table_that_a_list_lacks_is_forgotten() {
        let history = History::new();
        let size = TableSize { entities: 1, bytes: 2, complete: true };
        for (account, table) in [("acct", "Apples"), ("acct", "Pears"), ("acct", "Plums"), ("other", "Pears")]
        {
            history.measured(account, table, size);
        }
        history.listed("acct", "b", Some("plums"), &HashSet::new());
        history.listed("acct", "plums", None, &HashSet::from(["plums".to_owned()]));
        let mut left: Vec<_> = history.sizes.lock().keys().cloned().collect();
        left.sort_unstable();
        let expected = [("acct", "Apples"), ("acct", "Plums"), ("other", "Pears")];
        assert_eq!(left, expected.map(|(account, table)| (account.to_owned(), table.to_owned())));
    }

    #[test]
    fn a_history_has_an_hour_and_so_many_tables_at_most() {
        let history = History::new();
        (0..MAX_POINTS + 5).for_each(|_| history.step(METRICS.requests.totals()));
        assert_eq!(history.requests.lock().points.len(), MAX_POINTS);
        let size = TableSize { entities: 1, bytes: 2, complete: true };
        (0..MAX_TABLES + 5).for_each(|at| history.measured("acct", &format!("t{at}"), size));
        history.measured("acct", "t104", size);
        let sizes = history.sizes.lock();
        assert_eq!(sizes.len(), MAX_TABLES);
        assert!(!sizes.contains_key(&("acct".into(), "t0".into())));
        assert_eq!(sizes[&("acct".into(), "t104".into())].points.len(), 1);
    }
}
