//! An acknowledged write survives `kill -9` of the server and of the database,
//! and no half transaction is ever seen.
//!
//! `ROWHOUSE_TEST_KILLS` says how often something is killed (5 unless told).

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::time::Duration;

use serde_json::json;

use super::chance::Chance;
use super::cluster::Cluster;
use super::line::{Address, Fate, Line};
use super::site::{End, Site};
use crate::support::batch::post;
use crate::support::*;

/// Operations of one entity group transaction.
const GROUP: usize = 100;
const WRITERS: usize = 3;

fn kills() -> usize {
    std::env::var("ROWHOUSE_TEST_KILLS").map_or(5, |text| text.parse().expect("a number of kills"))
}

/// What the writers and the reader share.
struct Field<'a> {
    /// Those of the servers, which clients share out among themselves.
    addresses: Vec<Address>,
    table: Table<'a>,
    over: AtomicBool,
    /// The highest number of the counter that was acknowledged.
    counted: AtomicU64,
    /// The last value of each writer's group that was acknowledged.
    groups: [AtomicUsize; WRITERS],
}

impl Field<'_> {
    fn address(&self, client: usize) -> &Address {
        &self.addresses[client % self.addresses.len()]
    }

    fn goes_on(&self) -> bool {
        !self.over.load(Ordering::Relaxed)
    }
}

/// What one write was told.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Told {
    Done(String),
    /// A definite no: nothing was done.
    NotDone,
    Unknown,
}

/// What became of a write; a success has `status`, and anything that a client
/// cannot expect ends the test.
fn told(fate: Fate, status: u16) -> Told {
    match fate {
        Fate::Unsent => {
            // Nobody is there for a while.
            pace(Duration::from_millis(5));
            Told::NotDone
        }
        Fate::Lost => Told::Unknown,
        Fate::Answered(raw) if raw.status == status => {
            Told::Done(raw.header("ETag").unwrap_or_default().to_owned())
        }
        Fate::Answered(raw) if raw.status == 500 => {
            assert!(String::from_utf8_lossy(&raw.body).contains("OperationTimedOut"), "{raw:?}");
            Told::Unknown
        }
        Fate::Answered(raw) if matches!(raw.status, 412 | 503) => Told::NotDone,
        Fate::Answered(raw) => panic!("{raw:?}"),
    }
}

/// Inserts entities of a partition of the writer's, each once, until told to stop; returns what was
/// told of each. Every second one is merged into a row that is not there.
pub fn insert_on_and_on(address: &Address, table: &Table, over: &AtomicBool, writer: usize) -> Vec<Told> {
    let mut line = Line::new(address);
    let mut outcomes = Vec::new();
    while !over.load(Ordering::Relaxed) {
        let row = format!("{:06}", outcomes.len());
        let entity = with_keys(&format!("insert{writer}"), &row, json!({ "N": outcomes.len() }));
        let request = if outcomes.len() % 2 == 0 {
            table.inserting(&entity).header("Prefer", "return-no-content")
        } else {
            table.on("MERGE", &format!("insert{writer}"), &row).json(&json!({ "N": outcomes.len() }))
        };
        outcomes.push(told(line.ask(&request), 204));
    }
    outcomes
}

/// What a counter's user knows at the end.
#[derive(Default)]
struct Counted {
    done: u64,
    unknown: u64,
    /// The ETag that was given for each number.
    etags: BTreeMap<u64, String>,
}

/// Counts one shared entity up under its ETag. It is never found older than what was acknowledged before.
fn count_on_and_on(field: &Field, writer: usize) -> Counted {
    let mut line = Line::new(field.address(writer));
    let mut counted = Counted::default();
    let mine = format!("W{writer}");
    while field.goes_on() {
        let acknowledged = field.counted.load(Ordering::SeqCst);
        let Fate::Answered(found) = line.ask(&field.table.on("GET", "counter", "r")) else { continue };
        if found.status != 200 {
            assert!(matches!(found.status, 500 | 503), "{found:?}");
            continue;
        }
        let entity = found.json();
        let total = entity["N"].as_u64().unwrap_or(0) + 1;
        assert!(total > acknowledged, "{} was found after {acknowledged} was acknowledged", total - 1);
        let own = entity[&mine].as_u64().unwrap_or(0) + 1;
        let change = json!({ "N": total, mine.as_str(): own });
        let request = field.table.on("MERGE", "counter", "r").json(&change).if_match(found.header("ETag"));
        match told(line.ask(&request), 204) {
            Told::Done(etag) => {
                counted.done += 1;
                field.counted.fetch_max(total, Ordering::SeqCst);
                counted.etags.insert(total, etag);
            }
            Told::Unknown => counted.unknown += 1,
            Told::NotDone => {}
        }
    }
    counted
}

/// Writes one partition again and again in one transaction, and a new one each
/// time; returns what was told of each.
fn transact_on_and_on(field: &Field, writer: usize) -> Vec<Told> {
    let mut line = Line::new(field.address(writer));
    let mut outcomes = Vec::new();
    while field.goes_on() {
        let value = outcomes.len();
        let keys: Vec<String> = (0..GROUP).map(|row| format!("{row:03}")).collect();
        let [old, new] = ["group", "fresh"].map(|kind| format!("{kind}{writer}"));
        let upserts = keys.iter().fold(Batch::new(), |batch, row| {
            batch.write("PUT", &field.table, (&old, row), &json!({ "V": value }), None)
        });
        let outcome = told_of_group(line.ask(&post(field.table.client, upserts.body())));
        if matches!(outcome, Told::Done(_)) {
            field.groups[writer].store(value + 1, Ordering::SeqCst);
        }
        outcomes.push(outcome);
        let inserts = keys.iter().fold(Batch::new(), |batch, row| {
            batch.insert(&field.table, &with_keys(&format!("{new}-{value}"), row, json!({ "V": value })))
        });
        outcomes.push(told_of_group(line.ask(&post(field.table.client, inserts.body()))));
    }
    outcomes
}

fn told_of_group(fate: Fate) -> Told {
    let Fate::Answered(raw) = &fate else { return told(fate, 202) };
    if raw.status != 202 {
        return told(fate, 202);
    }
    let text = String::from_utf8_lossy(&raw.body);
    if text.contains("HTTP/1.1 503 ") {
        return Told::NotDone;
    }
    if text.contains("HTTP/1.1 500 ") {
        assert!(text.contains("OperationTimedOut"), "{text}");
        return Told::Unknown;
    }
    assert_eq!(text.matches("HTTP/1.1 204 ").count(), GROUP, "{text}");
    let last = text.rsplit_once("ETag: ").and_then(|(_, rest)| rest.split("\r\n").next());
    Told::Done(last.unwrap_or_else(|| panic!("no ETag in {text}")).to_owned())
}

/// Looks at the groups while everything dies: each page must show one value, and
/// none that is older than what was acknowledged before.
fn watch(field: &Field, address: &Address) -> usize {
    let mut line = Line::new(address);
    let mut seen = 0;
    while field.goes_on() {
        for writer in 0..WRITERS {
            let acknowledged = field.groups[writer].load(Ordering::SeqCst);
            let filter = escape(&format!("PartitionKey eq 'group{writer}'"));
            let request =
                field.table.client.request("GET", &format!("/{}()?$filter={filter}", field.table.name));
            let Fate::Answered(raw) = line.ask(&request) else { continue };
            if raw.status != 200 {
                assert!(matches!(raw.status, 500 | 503), "{raw:?}");
                continue;
            }
            let values: Vec<u64> =
                rows(raw.json()).iter().map(|row| row["V"].as_u64().unwrap_or(0)).collect();
            is_whole(&values, acknowledged);
            seen += values.len() / GROUP;
        }
    }
    seen
}

#[track_caller]
fn is_whole(values: &[u64], acknowledged: usize) {
    assert!(values.is_empty() && acknowledged == 0 || values.len() == GROUP, "half a group: {values:?}");
    assert!(values.iter().all(|value| *value == values[0]), "a torn group: {values:?}");
    let found = values.first().map_or(0, |value| value + 1);
    assert!(found as usize >= acknowledged, "{found} was found after {acknowledged} was acknowledged");
}

/// Has clients write and read while there are faults; then starts the server again, and compares.
pub fn storm(site: &mut Site, faults: impl FnOnce(&mut Site)) {
    let signer = site.client();
    storm_on(signer.table(), site, &[], faults);
}

/// The same, on a table and by other servers as well.
pub fn storm_on(table: Table, site: &mut Site, others: &[Site], faults: impl FnOnce(&mut Site)) {
    table.seed(with_keys("counter", "r", json!({ "N": 0 })));
    let field = Field {
        addresses: [&*site].into_iter().chain(others).map(|site| site.address.clone()).collect(),
        table,
        over: AtomicBool::new(false),
        counted: AtomicU64::new(0),
        groups: [const { AtomicUsize::new(0) }; WRITERS],
    };
    std::thread::scope(|scope| {
        let field = &field;
        let end = End(&field.over);
        let inserters: Vec<_> = (0..WRITERS)
            .map(|w| scope.spawn(move || insert_on_and_on(field.address(w), &field.table, &field.over, w)))
            .collect();
        let counters: Vec<_> = (0..WRITERS).map(|w| scope.spawn(move || count_on_and_on(field, w))).collect();
        let groups: Vec<_> =
            (0..WRITERS).map(|w| scope.spawn(move || transact_on_and_on(field, w))).collect();
        let watch = |address| scope.spawn(move || watch(field, address));
        let watchers: Vec<_> = field.addresses.iter().map(watch).collect();
        faults(site);
        drop(end);
        site.kill_and_start();
        let client = site.client();
        let there = Table::new(&client, field.table.name.clone());
        let inserted: Vec<_> = inserters.into_iter().map(|t| t.join().expect("inserter")).collect();
        let counted: Vec<_> = counters.into_iter().map(|t| t.join().expect("counter")).collect();
        let grouped: Vec<_> = groups.into_iter().map(|t| t.join().expect("transactor")).collect();
        let seen: usize = watchers.into_iter().map(|t| t.join().expect("watcher")).sum();
        println!("{seen} whole groups seen");
        for (writer, outcomes) in inserted.iter().enumerate() {
            verify_inserts(&there, writer, outcomes);
        }
        verify_counter(&there, &counted);
        for (writer, outcomes) in grouped.iter().enumerate() {
            verify_groups(&there, writer, outcomes);
        }
    });
}

fn kill_and_kill(name: &str, mut cluster: Option<Cluster>) {
    let mut chance = Chance::of(name);
    let url = cluster.as_ref().map_or("sqlite://data.db", Cluster::url).to_owned();
    let mut killed = BTreeMap::<&str, usize>::new();
    storm(&mut Site::start(&url, &[]), |site| {
        for kill in 0..kills() {
            work_for(Duration::from_millis(300 + chance.below(900)));
            // Each kind at least once, if there are enough kills.
            let kind = if kill < 3 { kill as u64 } else { chance.below(3) };
            *killed.entry(strike(kind, site, cluster.as_mut())).or_default() += 1;
        }
        work_for(Duration::from_millis(500));
    });
    println!("{name}: killed {killed:?}");
}

/// Kills something, and starts it again after a while.
fn strike(kind: u64, site: &mut Site, cluster: Option<&mut Cluster>) -> &'static str {
    match (kind, cluster) {
        (1, Some(cluster)) => {
            cluster.kill();
            cluster.start_again();
            "database"
        }
        (2, Some(cluster)) => {
            cluster.kill();
            cluster.start_again();
            site.kill_and_start();
            "both"
        }
        _ => {
            site.kill_and_start();
            "server"
        }
    }
}

/// All entities of a partition, with their ETags.
fn everything(table: &Table, partition: &str) -> BTreeMap<String, (String, serde_json::Value)> {
    let filter = escape(&format!("PartitionKey eq '{partition}'"));
    let text = |row: &serde_json::Value, name: &str| row[name].as_str().unwrap_or_default().to_owned();
    let found = table.pages(&format!("$filter={filter}")).concat().into_iter();
    found.map(|row| (text(&row, "RowKey"), (text(&row, "odata.etag"), row))).collect()
}

/// Demands that what was acknowledged is there, and that what was refused is not.
pub fn verify_inserts(table: &Table, writer: usize, outcomes: &[Told]) {
    let found = everything(table, &format!("insert{writer}"));
    let mut acknowledged = 0;
    for (n, outcome) in outcomes.iter().enumerate() {
        let there = found.get(&format!("{n:06}"));
        match (outcome, there) {
            (Told::Done(etag), Some((stored, row))) => {
                assert_eq!(etag, stored, "insert {n} of writer {writer}");
                assert_eq!(row["N"], n);
                acknowledged += 1;
            }
            (Told::Done(_), None) => panic!("writer {writer}: acknowledged insert {n} is gone"),
            (Told::NotDone, Some(_)) => panic!("writer {writer}: insert {n} was refused but is there"),
            (Told::NotDone, None) | (Told::Unknown, _) => {}
        }
    }
    assert!(found.len() <= outcomes.len());
    assert!(acknowledged > 0, "writer {writer} did nothing");
    println!("writer {writer}: {acknowledged} of {} inserts acknowledged", outcomes.len());
}

fn verify_counter(table: &Table, counted: &[Counted]) {
    let found = everything(table, "counter");
    let (etag, entity) = &found["r"];
    let total = entity["N"].as_u64().expect("a number");
    let mut sum = 0;
    for (writer, counted) in counted.iter().enumerate() {
        let own = entity[format!("W{writer}")].as_u64().unwrap_or(0);
        let possible = counted.done..=counted.done + counted.unknown;
        assert!(possible.contains(&own), "writer {writer}: {own} of {possible:?} increments");
        sum += own;
        if let Some(acknowledged) = counted.etags.get(&total) {
            assert_eq!(etag, acknowledged, "the last increment has another version");
        }
    }
    assert_eq!(sum, total, "increments were lost");
    println!("counter: {total}");
}

fn verify_groups(table: &Table, writer: usize, outcomes: &[Told]) {
    let found = everything(table, &format!("group{writer}"));
    let values: Vec<u64> = found.values().filter_map(|(_, row)| row["V"].as_u64()).collect();
    let upserts: Vec<(usize, &Told)> = outcomes.iter().enumerate().step_by(2).collect();
    let last = upserts.iter().rev().find(|(_, told)| matches!(told, Told::Done(_)));
    is_whole(&values, last.map_or(0, |(value, _)| value + 1));
    if let Some((value, Told::Done(etag))) = last
        && values.first() == Some(&(*value as u64))
    {
        let stored = found.values().next_back().map(|(etag, _)| etag);
        assert_eq!(stored, Some(etag), "the last group has another version");
    }
    let found_is_refused = values.first().and_then(|v| outcomes.get(*v as usize)) == Some(&Told::NotDone);
    assert!(!found_is_refused, "writer {writer}: a refused group is there");
    for (n, outcome) in outcomes.iter().enumerate().skip(1).step_by(2) {
        let rows = everything(table, &format!("fresh{writer}-{}", n - 1)).len();
        match outcome {
            Told::Done(_) => assert_eq!(rows, GROUP, "group {n} of writer {writer}"),
            Told::NotDone => assert_eq!(rows, 0, "refused group {n} of writer {writer}"),
            Told::Unknown => assert!(rows == 0 || rows == GROUP, "half of group {n} of writer {writer}"),
        }
    }
}

#[test]
fn acknowledged_writes_survive_kills_on_sqlite() {
    kill_and_kill("crash on SQLite", None);
}

#[test]
fn acknowledged_writes_survive_kills_on_postgres() {
    kill_and_kill("crash on PostgreSQL", Some(Cluster::start()));
}
