//! A database that is there but does not answer, or late: nobody hangs, nobody is
//! told what is not known, and it is over when its cause is.

use std::time::{Duration, Instant};

use serde_json::json;

use super::cluster::Cluster;
use super::line::Line;
use super::outages::{all_kinds, answer, is_busy, until_well};
use super::site::Site;
use crate::operators::get;
use crate::support::client::Request;
use crate::support::http::Raw;
use crate::support::postgres::{fresh_database, text};
use crate::support::proxy::{Proxy, Traffic};
use crate::support::*;

/// The wait for a connection is 5 seconds, which a request meets twice at most,
/// and machines are slow. A request that hangs would end after 30.
const PATIENCE: Duration = Duration::from_secs(18);
/// Sessions of the server: two for the one thread, the probe, and its pool.
const MAX_CONNECTIONS: &str = "4";
const MAX_SESSIONS: u32 = 7;

fn ready(site: &Site) -> u16 {
    get(&site.admin(), "/readyz").status
}

fn is_unknown(raw: &Raw) -> bool {
    matches!(raw.status, 500 | 202) && String::from_utf8_lossy(&raw.body).contains("OperationTimedOut")
}

/// Asks everything at once, each on a connection of its own.
fn ask_all(site: &Site, table: &Table) -> Vec<(&'static str, Raw, Duration)> {
    std::thread::scope(|scope| {
        let ask = |(name, request)| {
            scope.spawn(move || {
                let begun = Instant::now();
                let raw = answer(&mut Line::new(&site.address), &request);
                (name, raw, begun.elapsed())
            })
        };
        let asked: Vec<_> = all_kinds(table, 30).into_iter().map(ask).collect();
        asked.into_iter().map(|thread| thread.join().expect("an answer")).collect()
    })
}

fn sessions(database: &str, which: &str) -> u32 {
    let mine = "datname = current_database() AND pid <> pg_backend_pid() AND application_name = 'rowhouse'";
    let count = format!("SELECT count(*)::text FROM pg_stat_activity WHERE {mine} AND {which}");
    text(database, &count).parse().expect("a number")
}

#[test]
fn a_silent_database_is_busy_until_it_answers() {
    let database = fresh_database();
    let proxy = Proxy::to(&database);
    let options = ["--workers", "1", "--max-connections", MAX_CONNECTIONS, "--admin-listen", "127.0.0.1:0"];
    let site = Site::start(&proxy.url(&database), &options);
    let client = site.client();
    let table = client.table();
    table.seed_one(json!({ "A": 1 }));
    // What was answered just before may be gone by the time a statement is sent.
    let reads = ["get", "query", "tables", "policies", "properties"];
    for _ in 0..2 {
        let _ = (table.get("p", "r"), table.count(), ready(&site));
        proxy.let_pass(Traffic::Blocked);
        for round in 0..3 {
            for (name, raw, took) in ask_all(&site, &table) {
                println!("round {round}: {name} was answered {} after {took:?}", raw.status);
                assert!(took < PATIENCE, "{name}, round {round}: {took:?}");
                let may_be_done = round == 0 && !reads.contains(&name) && is_unknown(&raw);
                assert!(is_busy(&raw) || may_be_done, "{name}, round {round}: {raw:?}");
            }
            assert_eq!(ready(&site), 503, "round {round}");
        }
        proxy.let_pass(Traffic::Free);
        let begun = Instant::now();
        let mut line = Line::new(&site.address);
        // Whatever was sent into the silence may arrive now, the drop included.
        let any = client.request("GET", "/Tables");
        until_well(&mut line, &any);
        println!("recovered after {:?}", begun.elapsed());
        // The probe of readiness may meet a session of its own that was opened into the silence.
        until("the server is ready", || ready(&site) == 200);
        let count = sessions(&database, "true");
        assert!(count <= MAX_SESSIONS + 5, "{count} sessions pile up");
        until("given up sessions go", || sessions(&database, "true") <= MAX_SESSIONS);
        until("given up statements end", || sessions(&database, "state <> 'idle'") == 0);
        if table.get("p", "r").status == 404 {
            client.request("POST", "/Tables").json(&json!({ "TableName": table.name })).send();
            let _ = table.insert(&with_keys("p", "r", json!({ "A": 1 })));
        }
    }
    assert!(!site.log().contains("panicked"), "{}", site.log());
}

#[test]
fn a_slow_database_is_waited_for() {
    let database = fresh_database();
    let proxy = Proxy::to(&database);
    let site = Site::start(&proxy.url(&database), &["--workers", "1"]);
    let client = site.client();
    let table = client.table();
    table.seed_one(json!({ "A": 1 }));
    let mut line = Line::new(&site.address);
    let insert = |row: &str| table.inserting(&with_keys("p", row, json!({ "A": 2 })));
    let replace = table.on("PUT", "p", "r").json(&json!({ "A": 3 })).if_match(Some("*"));
    let mut ask = |request: &Request, status| {
        let begun = Instant::now();
        let raw = answer(&mut line, request);
        assert_eq!(raw.status, status, "{raw:?}");
        println!("answered {} after {:?}", raw.status, begun.elapsed());
        raw
    };
    // Connections are there, and statements known.
    ask(&insert("s"), 201);
    ask(&replace, 204);
    ask(&table.on("GET", "p", "s"), 200);
    proxy.let_pass(Traffic::Slow(Duration::from_secs(2)));
    ask(&insert("t"), 201);
    ask(&replace, 204);
    assert_eq!(ask(&table.on("GET", "p", "t"), 200).json()["A"], 2);
    // A page comes over another connection, which was there before, and over which
    // CORS rules are read meanwhile: nobody waits that long for them.
    pace(Duration::from_secs(5));
    ask(&table.client.request("GET", &format!("/{}()", table.name)), 200);
    proxy.let_pass(Traffic::Free);
    assert_eq!((table.count(), table.properties()), (3, json!({ "A": 3 })));
}

#[test]
fn the_first_writes_after_a_restart_are_done() {
    let mut cluster = Cluster::start();
    let site = Site::start(cluster.url(), &["--workers", "2"]);
    let client = site.client();
    let table = client.table();
    table.seed_one(json!({ "A": 0 }));
    let mut lines: Vec<Line> = (0..6).map(|_| Line::new(&site.address)).collect();
    for turn in 1..3 {
        for crash in [false, true] {
            for line in &mut lines {
                let replace = table.on("PUT", "p", "r").json(&json!({ "A": turn }));
                assert_eq!(answer(line, &replace).status, 204);
            }
            if crash {
                cluster.kill()
            } else {
                cluster.stop()
            }
            cluster.start_again();
            // A connection that was used just now is not asked whether it is there,
            // and a small database may be back within that moment.
            pace(Duration::from_millis(250));
            for (n, line) in lines.iter_mut().enumerate() {
                let row = format!("{turn}{crash}{n}");
                let raw = answer(line, &table.inserting(&with_keys("p", &row, json!({}))));
                assert_eq!(raw.status, 201, "line {n} after restart {turn}: {raw:?}");
                let group = Batch::new().write("PUT", &table, ("p", "r"), &json!({ "A": turn }), None);
                let raw = answer(line, &crate::support::batch::post(&client, group.body()));
                assert!(String::from_utf8_lossy(&raw.body).contains("HTTP/1.1 204"), "{raw:?}");
            }
        }
    }
}
