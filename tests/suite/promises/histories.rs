//! Each entity is linearizable, an ETag names one version, a transaction is
//! atomic to every page: histories of many clients, recorded over HTTP and
//! compared with one entity that does one thing at a time.

use std::collections::{BTreeMap, HashMap};
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use serde_json::{Value, json};

use super::chance::Chance;
use super::entity::{Call, Condition, Content, Entity, Reply, Request};
use super::line::{Address, Fate, Line};
use super::linear::{Access, Register, Span, check};
use super::site::Site;
use crate::support::batch::post;
use crate::support::http::Raw;
use crate::support::postgres::fresh_database;
use crate::support::*;

const CLIENTS: usize = 16;
const KEYS: u64 = 4;
const CALLS: usize = 70;
/// Rows that a transaction writes.
const ROWS: usize = 10;

/// What all clients of a run share.
struct Field<'a> {
    table: Table<'a>,
    addresses: Vec<Address>,
    began: Instant,
    /// Gives every write a value of its own.
    values: AtomicU64,
    /// Between two calls of a client.
    pause: Duration,
}

impl<'a> Field<'a> {
    fn new(client: &'a Client, sites: &[Site]) -> Self {
        let addresses = sites.iter().map(|site| site.address.clone()).collect();
        Self {
            table: client.table(),
            addresses,
            began: Instant::now(),
            values: AtomicU64::new(1),
            pause: Duration::ZERO,
        }
    }

    fn value(&self) -> u64 {
        self.values.fetch_add(1, Ordering::Relaxed)
    }

    fn now(&self) -> u64 {
        self.began.elapsed().as_nanos() as u64
    }

    fn line(&self, client: usize) -> Line {
        Line::new(&self.addresses[client % self.addresses.len()])
    }

    /// Runs `work` for each client and gathers what they recorded.
    fn record<C: Send>(
        &self,
        chance: &Chance,
        meanwhile: impl FnOnce(),
        work: impl Fn(usize, Chance) -> Vec<C> + Sync,
    ) -> Vec<C> {
        std::thread::scope(|scope| {
            let work = &work;
            let clients: Vec<_> = (0..CLIENTS)
                .map(|client| {
                    let chance = chance.fork(client);
                    scope.spawn(move || work(client, chance))
                })
                .collect();
            meanwhile();
            clients.into_iter().flat_map(|client| client.join().expect("a client")).collect()
        })
    }
}

/// A random request, under the ETag that this client saw last if it has one.
fn choose(chance: &mut Chance, field: &Field, seen: Option<&String>) -> Request {
    let when = match seen {
        Some(etag) if chance.below(4) > 0 => Condition::Version(etag.clone()),
        _ => Condition::Any,
    };
    match chance.below(20) {
        0..7 => Request::Get,
        7..10 => Request::Insert { a: field.value() },
        10..14 => Request::Replace { a: field.value(), when },
        14..17 => Request::Merge { b: field.value(), when },
        17..18 => Request::Upsert { a: field.value() },
        _ => Request::Delete { when },
    }
}

fn ask(line: &mut Line, table: &Table, row: &str, request: &Request) -> Reply {
    let on = |verb: &str, body: Value, when: Option<&Condition>| {
        let etag = when.map(|when| match when {
            Condition::Any => "*",
            Condition::Version(etag) => etag,
        });
        table.on(verb, "p", row).json(&body).if_match(etag)
    };
    let request = match request {
        Request::Get => table.on("GET", "p", row),
        Request::Insert { a } => {
            table.inserting(&with_keys("p", row, json!({ "A": a }))).header("Prefer", "return-no-content")
        }
        Request::Replace { a, when } => on("PUT", json!({ "A": a }), Some(when)),
        Request::Merge { b, when } => on("MERGE", json!({ "B": b }), Some(when)),
        Request::Upsert { a } => on("PUT", json!({ "A": a }), None),
        Request::Delete { when } => {
            let etag = if let Condition::Version(etag) = when { etag } else { "*" };
            table.on("DELETE", "p", row).if_match(Some(etag))
        }
    };
    loop {
        match line.ask(&request) {
            Fate::Answered(raw) => return reply(&raw),
            Fate::Lost => return Reply::Unknown,
            Fate::Unsent => pace(Duration::from_millis(5)),
        }
    }
}

fn reply(raw: &Raw) -> Reply {
    let etag = || raw.header("ETag").map(str::to_owned);
    match raw.status {
        200 => {
            let entity = raw.json();
            Reply::Found(Content { etag: etag(), a: entity["A"].as_u64(), b: entity["B"].as_u64() })
        }
        204 => Reply::Written(etag()),
        404 => Reply::Missing,
        409 => Reply::Exists,
        412 => Reply::Differs,
        _ => panic!("{raw:?}"),
    }
}

/// One client's calls, each with its row.
fn live(field: &Field, client: usize, mut chance: Chance) -> Vec<(String, Span<Call>)> {
    let mut line = field.line(client);
    let mut seen: HashMap<String, String> = HashMap::new();
    let mut calls = Vec::new();
    for _ in 0..CALLS {
        pace(field.pause);
        let row = chance.below(KEYS).to_string();
        let request = choose(&mut chance, field, seen.get(&row));
        let start = field.now();
        let reply = ask(&mut line, &field.table, &row, &request);
        let end = (reply != Reply::Unknown).then(|| field.now());
        match &reply {
            Reply::Found(Content { etag: Some(etag), .. }) | Reply::Written(Some(etag)) => {
                seen.insert(row.clone(), etag.clone());
            }
            _ => {}
        }
        // A read without an answer says nothing.
        if reply != Reply::Unknown || request != Request::Get {
            calls.push((row, Span { start, end, call: Call { request, reply } }));
        }
    }
    calls
}

/// An ETag is given once, and whoever reads it finds the same content.
fn one_etag_one_version(row: &str, history: &[Span<Call>]) {
    let mut given: HashMap<&str, &Request> = HashMap::new();
    let mut contents: HashMap<&str, (Option<u64>, Option<u64>)> = HashMap::new();
    for Span { call, .. } in history {
        match &call.reply {
            Reply::Written(Some(etag)) => {
                let other = given.insert(etag, &call.request);
                assert_eq!(other, None, "{etag} of {row} was given to {:?} too", call.request);
            }
            Reply::Found(Content { etag, a, b }) => {
                let etag = etag.as_deref().expect("a read has an ETag");
                let known = *contents.entry(etag).or_insert((*a, *b));
                assert_eq!(known, (*a, *b), "{etag} of {row} names two versions");
            }
            _ => {}
        }
    }
}

fn entities_are_linearizable(name: &str, mut sites: Vec<Site>) {
    let signer = sites[0].client();
    for round in 0..3 {
        let field = Field::new(&signer, &sites);
        let meanwhile = || {
            // Whose answers never came may have been heard all the same.
            if round == 1
                && let Some(site) = sites.get_mut(1)
            {
                work_for(Duration::from_millis(150));
                site.kill_and_start();
            }
        };
        check_entities(name, round, &field, meanwhile);
    }
}

/// Records what clients do meanwhile, and demands that each entity is linearizable.
fn check_entities(name: &str, round: usize, field: &Field, meanwhile: impl FnOnce()) {
    let chance = Chance::of(name).fork(round);
    let calls = field.record(&chance, meanwhile, |client, chance| live(field, client, chance));
    let mut histories: BTreeMap<String, Vec<Span<Call>>> = BTreeMap::new();
    for (row, span) in calls {
        histories.entry(row).or_default().push(span);
    }
    let unknown = histories.values().flatten().filter(|span| span.end.is_none()).count();
    println!("{name}: {unknown} outcomes unknown");
    for (row, mut history) in histories {
        history.sort_by_key(|span| span.start);
        one_etag_one_version(&row, &history);
        if let Err(order) = check::<Entity>(None, &history) {
            let stuck: Vec<_> = (0..history.len()).filter(|at| !order.contains(at)).take(20).collect();
            let stuck: Vec<_> = stuck.iter().map(|at| &history[*at]).collect();
            let last: Vec<_> = order.iter().rev().take(5).map(|at| &history[*at]).collect();
            panic!("row {row} is not linearizable; after {last:#?} nothing explains {stuck:#?}");
        }
    }
}

/// One client's reads and writes of all rows of a partition as one value.
fn rewrite(field: &Field, client: usize, mut chance: Chance) -> Vec<Span<Access>> {
    let mut line = field.line(client);
    let mut calls = Vec::new();
    for _ in 0..CALLS / 2 {
        pace(field.pause);
        let value = field.value();
        let start = field.now();
        let call = match chance.below(3) {
            0 => set_all(&mut line, &field.table, &mut chance, value).map(Access::Set),
            1 => read_all(&mut line, &field.table, "").map(Access::Found),
            // Two pages are two snapshots, but each of them is one.
            _ => read_all(&mut line, &field.table, "&$top=4").map(Access::Found),
        };
        // Refused for being busy, so that nothing was done.
        if let Some(call) = call {
            calls.push(Span { start, end: Some(field.now()), call });
        }
    }
    calls
}

/// Writes all rows in one transaction, in any order; `None` if it is refused.
fn set_all(line: &mut Line, table: &Table, chance: &mut Chance, value: u64) -> Option<u64> {
    let verb = if chance.below(2) == 0 { "PUT" } else { "MERGE" };
    let mut keys: Vec<usize> = (0..ROWS).collect();
    keys.sort_by_key(|_| chance.next());
    let batch = keys.iter().fold(Batch::new(), |batch, row| {
        batch.write(verb, table, ("p", &row.to_string()), &json!({ "V": value }), Some("*"))
    });
    let Fate::Answered(raw) = line.ask(&post(table.client, batch.body())) else { panic!("no answer") };
    assert_eq!(raw.status, 202, "{raw:?}");
    let text = String::from_utf8_lossy(&raw.body);
    if text.contains("HTTP/1.1 503 ") {
        return None;
    }
    assert_eq!(text.matches("HTTP/1.1 204 ").count(), ROWS, "{text}");
    Some(value)
}

/// Reads a page, which must show one value.
fn read_all(line: &mut Line, table: &Table, options: &str) -> Option<u64> {
    let path = format!("/{}()?$filter={}{options}", table.name, escape("PartitionKey eq 'p'"));
    let Fate::Answered(raw) = line.ask(&table.client.request("GET", &path)) else { panic!("no answer") };
    assert_eq!(raw.status, 200, "{raw:?}");
    let values: Vec<Option<u64>> = rows(raw.json()).iter().map(|row| row["V"].as_u64()).collect();
    assert_eq!(values.len(), if options.is_empty() { ROWS } else { 4 });
    assert!(values.iter().all(|value| *value == values[0]), "a page of two moments: {values:?}");
    values[0]
}

fn transactions_are_atomic(name: &str, sites: &[Site]) {
    let signer = sites[0].client();
    check_transactions(name, &Field::new(&signer, sites), || {});
}

/// Records what clients do meanwhile, and demands that every page shows a transaction whole.
fn check_transactions(name: &str, field: &Field, meanwhile: impl FnOnce()) {
    let chance = Chance::of(name);
    for row in 0..ROWS {
        field.table.seed(with_keys("p", &row.to_string(), json!({ "V": 0 })));
    }
    let history = field.record(&chance, meanwhile, |client, chance| rewrite(field, client, chance));
    let sets = history.iter().filter(|span| matches!(span.call, Access::Set(_))).count();
    println!("{name}: {sets} transactions among {} calls", history.len());
    assert!(check::<Register>(0, &history).is_ok(), "pages and transactions have no common order");
}

/// Between two calls of a client, so that the calls of a run take longer than what happens meanwhile.
const PAUSE: Duration = Duration::from_millis(25);

/// Runs both checks through these servers of one database while the spread of the table changes again
/// and again.
pub fn hold_while_respread(name: &str, sites: &[Site], respread: impl Fn(&str)) {
    let signer = sites[0].client();
    let field = || Field { pause: PAUSE, ..Field::new(&signer, sites) };
    let entities = field();
    check_entities(name, 0, &entities, || respread(&entities.table.name));
    let transactions = field();
    check_transactions(name, &transactions, || respread(&transactions.table.name));
}

fn on_sqlite() -> Vec<Site> {
    vec![Site::start("sqlite://data.db", &["--workers", "2"])]
}

/// Two servers of one database. With one worker each, requests of eight clients
/// meet in its lanes and share statements.
fn on_postgres() -> Vec<Site> {
    let url = fresh_database();
    (0..2).map(|_| Site::start(&url, &["--workers", "1"])).collect()
}

#[test]
fn entities_are_linearizable_on_sqlite() {
    entities_are_linearizable("histories on SQLite", on_sqlite());
}

#[test]
fn entities_are_linearizable_through_two_servers_on_postgres() {
    entities_are_linearizable("histories on PostgreSQL", on_postgres());
}

#[test]
fn transactions_are_atomic_on_sqlite() {
    transactions_are_atomic("transactions on SQLite", &on_sqlite());
}

#[test]
fn transactions_are_atomic_through_two_servers_on_postgres() {
    transactions_are_atomic("transactions on PostgreSQL", &on_postgres());
}
