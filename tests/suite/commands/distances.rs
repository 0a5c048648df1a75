//! Copies over a distance: how many requests there are at once.

use std::sync::{Arc, Condvar, Mutex};

use serde_json::json;

use super::copying::{Served, connection_string, copy, equal};
use super::*;
use crate::support::scripted::{exchange, first_line, scripted};

/// How many writes are there.
#[derive(Default)]
struct Present {
    now: usize,
    most: usize,
    is_alone: bool,
}

/// Counts the writes that are there at once.
#[derive(Default)]
struct Watched {
    present: Mutex<Present>,
    came: Condvar,
}

impl Watched {
    /// Waits until a write is one of `together`.
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
    let watched = Arc::new(Watched::default());
    let (own, server) = (watched.clone(), target.server.address().to_owned());
    let address = scripted(move |request| {
        let line = first_line(request);
        let is_write = line.starts_with("PUT") && line.contains("PartitionKey=");
        if is_write {
            own.enter(4);
        }
        let answer = exchange(&server, request).ok();
        if is_write {
            own.present.lock().expect("a lock").now -= 1;
        }
        answer
    });
    let (from, to) = (source.connection_string(), connection_string(&address, &target.account));
    let done = copy(&source.site, &from, &to, &["--concurrency", "4", "--mode", "replace", "--yes"]);
    assert_eq!(done["copied"], 60, "{done}");
    assert_eq!(watched.present.lock().expect("a lock").most, 4, "as many as `--concurrency` allows");
    equal(&source.site, &from, &target.connection_string(), &[]);
}
