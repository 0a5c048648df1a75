//! Copies over a distance: how many requests there are at once.

use std::sync::{Arc, Condvar, Mutex};

use serde_json::json;

use super::copying::{Served, connection_string, copy, equal};
use super::*;
use crate::support::scripted::{exchange, first_line, scripted};

/// How many requests of one kind are there.
#[derive(Default)]
struct Present {
    now: usize,
    most: usize,
    is_alone: bool,
}

/// Counts the requests of one kind that are there at once.
#[derive(Default)]
struct Watched {
    present: Mutex<Present>,
    came: Condvar,
}

impl Watched {
    /// Waits until a request is one of `together`.
    fn enter(&self, together: usize) {
        let mut present = self.present.lock().expect("a lock");
        present.now += 1;
        present.most = present.most.max(present.now);
        self.came.notify_all();
        let is_alone = |present: &mut Present| present.most < together && !present.is_alone;
        let waited = self.came.wait_timeout_while(present, Duration::from_secs(30), is_alone);
        let (mut present, timeout) = waited.expect("a lock");
        // A client that sends one after the other need not wait again.
        present.is_alone |= timeout.timed_out();
    }

    fn most(&self) -> usize {
        self.present.lock().expect("a lock").most
    }
}

/// A place before a server, which watches the requests whose first line is of one kind.
fn watching(target: &Served, is_watched: fn(&str) -> bool) -> (Arc<Watched>, String) {
    let watched = Arc::new(Watched::default());
    let (own, server) = (watched.clone(), target.server.address().to_owned());
    let address = scripted(move |request| {
        let is_watched = is_watched(&first_line(request));
        if is_watched {
            own.enter(4);
        }
        let answer = exchange(&server, request).ok();
        if is_watched {
            own.present.lock().expect("a lock").now -= 1;
        }
        answer
    });
    (watched, connection_string(&address, &target.account))
}

#[test]
fn tables_are_created_and_their_policies_compared_at_once() {
    let source = Served::new(Site::sqlite());
    let client = source.client();
    for number in 0..12 {
        let table = client.table();
        table.seed(with_keys("p", "r", json!({ "N": number })));
    }
    let target = Served::new(Site::sqlite());
    let from = source.connection_string();
    let (created, to) = watching(&target, |line| line.starts_with("POST") && line.contains("/Tables"));
    assert_eq!(copy(&source.site, &from, &to, &["--concurrency", "4"])["copied"], 12);
    assert_eq!(created.most(), 4, "as many as `--concurrency` allows");
    let (read, to) = watching(&target, |line| line.contains("comp=acl"));
    equal(&source.site, &from, &to, &["--concurrency", "4"]);
    assert_eq!(read.most(), 4);
    // They exist by now, so nothing is asked about each but its policies.
    let (others, to) = watching(&target, |line| line.contains("/Tables") && line.starts_with("POST"));
    assert_eq!(copy(&source.site, &from, &to, &["--concurrency", "4"])["unchanged"], 12);
    assert_eq!(others.most(), 0);
}

#[test]
fn partitions_of_a_page_are_written_at_once() {
    let source = Served::new(Site::sqlite());
    let client = source.client();
    let table = client.table();
    for partition in 0..60 {
        table.seed(with_keys(&format!("p{partition:03}"), "only", json!({ "N": partition })));
    }
    let target = Served::new(Site::sqlite());
    let (watched, to) = watching(&target, |line| line.starts_with("PUT") && line.contains("PartitionKey="));
    let from = source.connection_string();
    let done = copy(&source.site, &from, &to, &["--concurrency", "4", "--mode", "replace", "--yes"]);
    assert_eq!(done["copied"], 60, "{done}");
    assert_eq!(watched.most(), 4, "as many as `--concurrency` allows");
    equal(&source.site, &from, &target.connection_string(), &[]);
}
