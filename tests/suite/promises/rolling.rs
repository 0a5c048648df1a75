//! A rolling restart of two replicas under load loses no request of a client
//! that tries again as the SDKs do.

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use serde_json::{Value, json};

use super::chance::Chance;
use super::line::{Address, Fate, Line};
use super::site::{End, Site};
use crate::support::client::Request;
use crate::support::http::Raw;
use crate::support::postgres::fresh_database;
use crate::support::*;

/// Tries before a client gives up, with a pause between two.
const TRIES: usize = 100;
const PAUSE: Duration = Duration::from_millis(50);
const CLIENTS: usize = 6;
/// A client of a balancer: it asks one replica, and the other when that fails.
struct Balanced {
    lines: [Line; 2],
    next: usize,
    retries: usize,
}

impl Balanced {
    fn new(addresses: &[Address; 2], first: usize) -> Self {
        Self { lines: [Line::new(&addresses[0]), Line::new(&addresses[1])], next: first, retries: 0 }
    }

    /// The answer, and whether an attempt before it may have been done.
    fn ask(&mut self, request: &Request) -> (Raw, bool) {
        let mut in_doubt = false;
        for _ in 0..TRIES {
            self.next = 1 - self.next;
            match self.lines[self.next].ask(request) {
                Fate::Answered(raw) if raw.status < 500 => return (raw, in_doubt),
                Fate::Answered(raw) => in_doubt |= raw.status == 500,
                Fate::Lost => in_doubt = true,
                Fate::Unsent => {}
            }
            self.retries += 1;
            pace(PAUSE);
        }
        panic!("a request failed {TRIES} times");
    }
}

/// Inserts, as one who takes a conflict after a lost answer for success.
fn insert(balanced: &mut Balanced, table: &Table, entity: &Value) {
    let (raw, in_doubt) = balanced.ask(&table.inserting(entity).header("Prefer", "return-no-content"));
    assert!(raw.status == 204 || raw.status == 409 && in_doubt, "{raw:?}");
}

/// Counts up under the ETag; after a lost answer, looks whether it was heard.
fn count(balanced: &mut Balanced, table: &Table, name: &str) {
    let (found, _) = balanced.ask(&table.on("GET", "counter", name));
    let (number, etag) = (found.json()["N"].as_u64().expect("a number"), found.header("ETag"));
    let body = json!({ "N": number + 1 });
    let (raw, in_doubt) = balanced.ask(&table.on("PUT", "counter", name).json(&body).if_match(etag));
    assert!(raw.status == 204 || raw.status == 412 && in_doubt, "{raw:?}");
}

/// Works until told to stop; how many rounds, and how often it tried again.
fn work(table: &Table, addresses: &[Address; 2], client: usize, over: &AtomicBool) -> (usize, usize) {
    let mut balanced = Balanced::new(addresses, client % 2);
    let name = client.to_string();
    insert(&mut balanced, table, &with_keys("counter", &name, json!({ "N": 0 })));
    let mut rounds = 0;
    while !over.load(Ordering::Relaxed) {
        insert(&mut balanced, table, &with_keys(&format!("p{client}"), &format!("{rounds:05}"), json!({})));
        count(&mut balanced, table, &name);
        rounds += 1;
    }
    (rounds, balanced.retries)
}

#[test]
fn a_rolling_restart_under_load_loses_nothing() {
    let mut chance = Chance::of("rolling restart");
    let url = fresh_database();
    let mut sites = [Site::start(&url, &[]), Site::start(&url, &[])];
    let client = sites[0].client();
    let table = client.table();
    let over = AtomicBool::new(false);
    let done: Vec<(usize, usize)> = std::thread::scope(|scope| {
        let (table, over) = (&table, &over);
        let end = End(over);
        let addresses = [0, 1].map(|n: usize| sites[n].address.clone());
        let clients: Vec<_> = (0..CLIENTS)
            .map(|n| {
                let addresses = addresses.clone();
                scope.spawn(move || work(table, &addresses, n, over))
            })
            .collect();
        for turn in 0..4 {
            work_for(Duration::from_millis(200 + chance.below(300)));
            sites[turn % 2].restart();
        }
        drop(end);
        clients.into_iter().map(|client| client.join().expect("a client")).collect()
    });
    let now = sites[0].client();
    let there = Table::new(&now, table.name.clone());
    for (client, (rounds, _)) in done.iter().enumerate() {
        assert!(*rounds > 0, "client {client} did nothing");
        let counter = there.entity("counter", &client.to_string());
        assert_eq!(counter["N"], *rounds, "client {client}");
        let last = there.get(&format!("p{client}"), &format!("{:05}", rounds - 1));
        last.expect(200);
        assert_eq!(inserted(&there, client), *rounds, "client {client}");
    }
    println!("rounds and retries of each client: {done:?}");
}

/// How many entities a client has, over all pages.
fn inserted(table: &Table, client: usize) -> usize {
    let filter = escape(&format!("PartitionKey eq 'p{client}'"));
    let (mut count, mut next) = (0, String::new());
    loop {
        let answer = table.client.get(&format!("/{}()?$filter={filter}{next}", table.name)).expect(200);
        count += rows(answer.json()).len();
        let key = |which: &str| answer.header(&format!("x-ms-continuation-Next{which}"));
        let (Some(pk), Some(rk)) = (key("PartitionKey"), key("RowKey")) else { return count };
        next = format!("&NextPartitionKey={}&NextRowKey={}", escape(pk), escape(rk));
    }
}
