//! Copies over a distance: how many requests there are, and how many at once.

use std::sync::{Arc, Condvar, Mutex};

use serde_json::json;

use super::copying::{Served, batch_rows, connection_string, copy, equal};
use super::*;
use crate::support::scripted::{exchange, first_line, scripted};

/// How many writes are there.
#[derive(Default)]
struct Present {
    now: usize,
    most: usize,
    is_alone: bool,
}

/// A proxy that keeps the first line of each request, and counts the writes that are there at once.
#[derive(Default)]
struct Watched {
    lines: Mutex<Vec<String>>,
    present: Mutex<Present>,
    came: Condvar,
}

impl Watched {
    /// A write waits until it is one of `together`.
    fn before(server: &str, together: usize) -> (String, Arc<Self>) {
        let (watched, server) = (Arc::new(Self::default()), server.to_owned());
        let own = watched.clone();
        let address = scripted(move |request| {
            let line = first_line(request);
            let is_write = line.starts_with("PUT") && line.contains("PartitionKey=");
            own.lines.lock().expect("a lock").push(line);
            if is_write {
                own.enter(together);
            }
            let answer = exchange(&server, request).ok();
            if is_write {
                own.present.lock().expect("a lock").now -= 1;
            }
            answer
        });
        (address, watched)
    }

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

    fn tops(&self) -> Vec<String> {
        let lines = self.lines.lock().expect("a lock");
        let top = |line: &String| {
            let rest = line.split_once("$top=")?.1;
            Some(rest.split(['&', ' ']).next()?.to_owned()).filter(|_| !line.contains("$select"))
        };
        lines.iter().filter_map(top).collect()
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
    let (address, watched) = Watched::before(target.server.address(), 4);
    let to = connection_string(&address, &target.account);
    let done = copy(
        &source.site,
        &source.connection_string(),
        &to,
        &["--concurrency", "4", "--mode", "replace", "--yes"],
    );
    assert_eq!(done["copied"], 60, "{done}");
    assert_eq!(watched.present.lock().expect("a lock").most, 4, "as many as `--concurrency` allows");
    equal(&source.site, &source.connection_string(), &target.connection_string(), &[]);
}

#[test]
fn pages_are_as_long_as_their_entities_are_small() {
    let source = Served::new(Site::sqlite());
    let client = source.client();
    let (small, large) = (client.table(), client.table());
    batch_rows(&client, &small, "p", 2600);
    let text = "x".repeat(3000);
    for start in (0..1200).step_by(100) {
        let mut batch = Batch::new();
        for row in start..start + 100 {
            batch = batch.insert(&large, &with_keys("p", &format!("{row:06}"), json!({ "S": text })));
        }
        batch.commit(&client);
    }
    for (table, expected) in
        [(&small, &["500", "1000", "1000", "1000"][..]), (&large, &["500", "500", "500"])]
    {
        let (address, watched) = Watched::before(source.server.address(), 1);
        let from = connection_string(&address, &source.account);
        let dump = format!("dump:{}", fresh_folder().display());
        copy(&source.site, &from, &dump, &["--concurrency", "1", "--include", &table.name]);
        assert_eq!(watched.tops(), expected, "{:?}", watched.lines.lock());
    }
}
