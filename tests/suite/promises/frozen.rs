//! A node of a cluster that is frozen: its processes are there, its connections stay open, and nothing
//! answers. Statements through other nodes wait for it too.

use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use serde_json::{Value, json};

use super::crash::storm_on;
use super::line::Line;
use super::outages::{answer, is_busy, is_refused, until_well};
use super::sharded::{distributed, is_there, on_node, port};
use super::site::{End, Site};
use crate::operators::{get, json_of, metrics, sample};
use crate::support::nodes::{Nodes, as_superuser};
use crate::support::postgres::{execute, text};
use crate::support::*;

/// Few, so that those that wait for the frozen node are missed by the others.
const CONNECTIONS: usize = 4;
const BEFORE: Duration = Duration::from_secs(2);
const FROZEN: Duration = Duration::from_secs(15);

fn metric(site: &Site, name: &str) -> f64 {
    sample(&metrics(&site.admin()), name)
}

/// Waits until a metric has a value.
fn until_metric(site: &Site, name: &str, wanted: f64) {
    until(name, || metric(site, name) == wanted);
}

fn owned((role, answers): (&str, bool)) -> (String, bool) {
    (role.to_owned(), answers)
}

/// What operators are shown of the nodes: the role of each, and whether it answers.
fn nodes_of(site: &Site) -> Vec<(String, bool)> {
    let raw = get(&site.admin(), "/cluster");
    assert_eq!(raw.status, 200, "{raw:?}");
    let cluster = json_of(&raw);
    let node = |node: &Value| {
        (node["role"].as_str().expect("a role").to_owned(), node["answers"].as_bool().expect("it is said"))
    };
    cluster["nodes"].as_array().expect("nodes").iter().map(node).collect()
}

/// Reads and writes both tables by turns on a few connections; returns how often the healthy one was answered.
fn traffic(site: &Site, healthy: &Table, struck: &Table, time: Duration, is_frozen: &AtomicBool) -> usize {
    let (over, answered) = (AtomicBool::new(false), AtomicUsize::new(0));
    std::thread::scope(|scope| {
        for connection in 0..CONNECTIONS {
            let (over, answered) = (&over, &answered);
            scope.spawn(move || {
                let mut line = Line::new(&site.address);
                let row = format!("row{connection}");
                while !over.load(Ordering::Relaxed) {
                    for method in ["GET", "PUT"] {
                        let ask = |line: &mut Line, table: &Table| match method {
                            "GET" => answer(line, &table.on("GET", "insert0", "first")),
                            _ => answer(line, &table.on("PUT", "insert0", &row).json(&json!({}))),
                        };
                        let raw = ask(&mut line, healthy);
                        assert!(raw.status < 300, "{method}: {raw:?} {}", site.log());
                        answered.fetch_add(1, Ordering::Relaxed);
                        let raw = ask(&mut line, struck);
                        let may_fail = is_frozen.load(Ordering::Relaxed) && is_refused(&raw);
                        assert!(raw.status < 300 || may_fail, "{method}: {raw:?}");
                    }
                }
            });
        }
        let end = End(&over);
        work_for(time);
        drop(end);
    });
    answered.into_inner()
}

#[test]
fn what_a_frozen_node_has_is_refused_at_once_until_it_answers() {
    let Some((mut cluster, nodes)) = is_there(distributed()) else { return };
    let site = Site::start(&nodes.coordinator, &["--admin-listen", "127.0.0.1:0"]);
    let client = site.client();
    let [healthy, struck] = [0, 1].map(|n: usize| on_node(&client, &nodes, &nodes.workers[n]));
    let is_frozen = AtomicBool::new(false);
    let begun = Instant::now();
    let before = traffic(&site, &healthy, &struck, BEFORE, &is_frozen) as f64 / begun.elapsed().as_secs_f64();
    is_frozen.store(true, Ordering::Relaxed);
    cluster.freeze(2);
    let begun = Instant::now();
    let frozen = traffic(&site, &healthy, &struck, FROZEN, &is_frozen) as f64 / begun.elapsed().as_secs_f64();
    println!("answers of the healthy node a second: {before:.0}, with the other one frozen {frozen:.0}");
    until_metric(&site, "rowhouse_circuit_breakers_open", 1.0);
    assert!(metric(&site, "rowhouse_circuit_breaker_refusals_total") > 0.0);
    assert_eq!(nodes_of(&site), [("coordinator", true), ("worker", true), ("worker", false)].map(owned));
    let mut line = Line::new(&site.address);
    for n in 0..10 {
        let raw = answer(&mut line, &struck.on("GET", "insert0", "first"));
        assert!(is_busy(&raw), "{n}: {raw:?}");
    }
    cluster.thaw(2);
    until_well(&mut line, &struck.on("GET", "insert0", "first"));
    until_metric(&site, "rowhouse_circuit_breakers_open", 0.0);
    assert!(nodes_of(&site).iter().all(|(_, answers)| *answers));
    is_frozen.store(false, Ordering::Relaxed);
    traffic(&site, &healthy, &struck, BEFORE, &is_frozen);
    until_metric(&site, "rowhouse_substituted_lanes", 0.0);
}

/// Gives the standby the place of the frozen node in the coordinator's catalogue, as Patroni does: the frozen
/// one becomes its secondary.
fn take_over(nodes: &Nodes, struck: &str, standby: u16) {
    let coordinator = as_superuser(&nodes.coordinator);
    let id = |port: &str| {
        text(&coordinator, &format!("SELECT nodeid::text FROM pg_dist_node WHERE nodeport = {port}"))
    };
    let (primary, secondary) = (id(struck), id(&standby.to_string()));
    execute(
        &coordinator,
        &format!(
            "SELECT citus_update_node({secondary}, 'nowhere', 1), \
             citus_update_node({primary}, '127.0.0.1', {standby}, true, 100), \
             citus_update_node({secondary}, '127.0.0.1', {struck})"
        ),
    );
}

/// While it hangs, Citus does not sync its catalogue: the copies of the workers name the frozen node still.
#[test]
fn the_standby_of_a_frozen_node_is_used_before_the_workers_know_of_it() {
    let Some((mut cluster, nodes)) = is_there(distributed()) else { return };
    let struck = port(&nodes.workers[1]);
    let standby = cluster.shadow(2);
    let add = format!("SELECT citus_add_secondary_node('127.0.0.1', {standby}, '127.0.0.1', {struck})");
    execute(&as_superuser(&nodes.coordinator), &add);
    let options = ["--migrate-url", &nodes.coordinator, "--admin-listen", "127.0.0.1:0"];
    let mut site = Site::start(&nodes.workers.join(","), &options);
    let other = Site::start(&nodes.coordinator, &options);
    let signer = site.client();
    let table = on_node(&signer, &nodes, &nodes.workers[1]);
    let write = table.on("PUT", "taken", "over").json(&json!({}));
    let addresses = [site.address.clone(), other.address.clone()];
    for site in [&site, &other] {
        until("the map of buckets", || metric(site, "rowhouse_bucket_map_timestamp_seconds") > 0.0);
    }
    storm_on(Table::new(&signer, table.name.clone()), &mut site, std::slice::from_ref(&other), |site| {
        work_for(Duration::from_secs(1));
        // What the coordinator passed on would hang there with locks that the catalogue needs.
        let both = [&*site, &other];
        both.iter().for_each(|site| until_metric(site, "rowhouse_substituted_lanes", 0.0));
        cluster.freeze(2);
        both.iter().for_each(|site| until_metric(site, "rowhouse_circuit_breakers_open", 1.0));
        cluster.promote(3);
        take_over(&nodes, struck, standby);
        let begun = Instant::now();
        for address in &addresses {
            until_well(&mut Line::new(address), &write);
            println!("written to the standby after {:?}", begun.elapsed());
        }
        let copy = "SELECT string_agg(nodeport::text, ' ') FROM pg_dist_node WHERE noderole = 'primary'";
        assert!(text(&nodes.workers[0], copy).contains(struck), "the copies are not old");
        work_for(Duration::from_secs(2));
        // It has not been fenced, and reads what it has.
        cluster.thaw(2);
        work_for(Duration::from_secs(5));
    });
}
