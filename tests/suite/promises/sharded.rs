//! What is promised of one database holds where Citus spreads it over several: nothing acknowledged
//! is lost when a node dies, freezes, or gives shards to another; and what one node suffers is felt by
//! its own buckets alone.
//!
//! Where there is no Citus, a database that is partitioned by hash stands in and is killed as a
//! whole.

use std::sync::atomic::AtomicBool;
use std::time::Duration;

use serde_json::json;

use super::cluster::Cluster;
use super::crash::{Told, insert_on_and_on, verify_inserts};
use super::line::Line;
use super::outages::{answer, is_busy, until_well};
use super::site::{End, Site};
use crate::support::citus::CATALOGUES;
use crate::support::client::Client;
use crate::support::nodes::{Nodes, PrivateCluster};
use crate::support::postgres::{execute, fresh_database, partition_entities, text};
use crate::support::proxy::{Proxy, Traffic};
use crate::support::*;

/// Tables, each with a writer of its own.
const TABLES: usize = 8;
const SPREADS: [&str; 2] = ["1", "8"];

/// What became of the writes of one table.
struct Written {
    outcomes: Vec<Told>,
    /// The node that holds them.
    port: String,
}

impl Written {
    fn failures(&self) -> usize {
        self.outcomes.iter().filter(|told| !matches!(told, Told::Done(_))).count()
    }
}

/// The port of the node that holds the rows that a writer has stored.
fn port_of(coordinator: &str, table: &str, writer: usize) -> String {
    let bucket = text(
        coordinator,
        &format!(
            "SELECT min(e.bucket)::text FROM entities AS e JOIN tables AS t ON t.table_no = e.bucket >> 16 \
             WHERE t.name = '{table}' AND e.pk = 'insert{writer}'"
        ),
    );
    let place = format!(
        "SELECT nodeport::text FROM citus_shards \
         WHERE shardid = get_shard_id_for_distribution_column('entities', {bucket}::bigint)"
    );
    text(coordinator, &place)
}

/// Lets every table be written to while something happens, and demands that nothing is lost.
fn storm(name: &str, site: &Site, meanwhile: impl FnOnce()) -> Vec<(String, Vec<Told>)> {
    let client = site.client();
    let tables: Vec<Table> = (0..TABLES).map(|_| client.table()).collect();
    for (n, table) in tables.iter().enumerate() {
        // The first insert may need other nodes as well, to make the bucket known.
        let partition = format!("insert{n}");
        table.seed(with_keys(&partition, "first", json!({})));
        table.delete(&partition, "first", Some("*")).expect(204);
    }
    let over = AtomicBool::new(false);
    let written: Vec<Vec<Told>> = std::thread::scope(|scope| {
        let over = &over;
        let end = End(over);
        let writers: Vec<_> = tables
            .iter()
            .enumerate()
            .map(|(n, table)| scope.spawn(move || insert_on_and_on(&site.address, table, over, n)))
            .collect();
        work_for(Duration::from_millis(500));
        meanwhile();
        work_for(Duration::from_millis(500));
        drop(end);
        let done: Vec<_> = writers.into_iter().map(|writer| writer.join()).collect();
        done.into_iter().map(|done| done.unwrap_or_else(|_| panic!("{name}: {}", site.log()))).collect()
    });
    let count = |wanted: fn(&Told) -> bool| written.iter().flatten().filter(|told| wanted(told)).count();
    println!(
        "{name}: {} acknowledged, {} refused, {} unknown",
        count(|told| matches!(told, Told::Done(_))),
        count(|told| *told == Told::NotDone),
        count(|told| *told == Told::Unknown)
    );
    for (n, (table, outcomes)) in tables.iter().zip(&written).enumerate() {
        verify_inserts(table, n, outcomes);
    }
    tables.iter().map(|table| table.name.clone()).zip(written).collect()
}

fn placed(nodes: &Nodes, written: Vec<(String, Vec<Told>)>) -> Vec<Written> {
    let place = |(n, (table, outcomes)): (usize, (String, Vec<Told>))| Written {
        port: port_of(&nodes.coordinator, &table, n),
        outcomes,
    };
    written.into_iter().enumerate().map(place).collect()
}

/// A cluster of our own with a distributed database; `None` where there is no Citus.
pub fn distributed() -> Option<(PrivateCluster, Nodes)> {
    let cluster = PrivateCluster::start()?;
    let nodes = Nodes::of(cluster.url());
    nodes.distribute();
    Some((cluster, nodes))
}

pub fn is_there<T>(found: Option<T>) -> Option<T> {
    if found.is_none() {
        println!("there is no Citus here: see a_database_that_is_partitioned_by_hash_stands_in");
    }
    found
}

/// Demands that only the buckets of one node have felt what it suffered.
fn only_felt_by(port: &str, written: &[Written]) {
    let (struck, healthy): (Vec<_>, Vec<_>) = written.iter().partition(|table| table.port == port);
    assert!(!struck.is_empty() && !healthy.is_empty(), "all tables are on one node");
    for table in &healthy {
        assert_eq!(table.failures(), 0, "a write to a healthy node failed");
    }
    println!("  failed writes of the node: {}", struck.iter().map(|table| table.failures()).sum::<usize>());
}

/// The port of a node's URL.
pub fn port(url: &str) -> &str {
    let rest = url.rsplit_once(':').map_or(url, |(_, rest)| rest);
    rest.split('/').next().unwrap_or(rest)
}

#[test]
fn a_worker_that_dies_or_freezes_is_felt_by_its_own_buckets_alone() {
    let Some((mut cluster, nodes)) = is_there(distributed()) else { return };
    type Order = fn(&mut PrivateCluster, usize);
    let faults: [(&str, usize, Order, Order); 2] = [
        ("dies", 1, PrivateCluster::kill, PrivateCluster::start_again),
        ("freezes", 2, PrivateCluster::freeze, PrivateCluster::thaw),
    ];
    for (what, worker, leave, come_back) in faults {
        for spread in SPREADS {
            let site = Site::start(&nodes.coordinator, &["--table-spread", spread]);
            let written = storm(&format!("a worker {what}, spread {spread}"), &site, || {
                leave(&mut cluster, worker);
                work_for(Duration::from_secs(3));
                come_back(&mut cluster, worker);
                work_for(Duration::from_secs(1));
            });
            only_felt_by(port(&nodes.workers[worker - 1]), &placed(&nodes, written));
        }
    }
}

#[test]
fn writers_through_a_worker_do_not_need_the_coordinator() {
    let Some((mut cluster, nodes)) = is_there(distributed()) else { return };
    for spread in SPREADS {
        let options = ["--table-spread", spread, "--migrate-url", &nodes.coordinator];
        let mut site = Site::start(&nodes.workers[0], &options);
        let written = storm(&format!("the coordinator dies, spread {spread}"), &site, || {
            cluster.kill(0);
            work_for(Duration::from_secs(2));
        });
        let failed: usize = written
            .iter()
            .flat_map(|(_, outcomes)| outcomes)
            .filter(|told| !matches!(told, Told::Done(_)))
            .count();
        assert_eq!(failed, 0, "a write needed the coordinator");
        // Its schema is current, so it needs nobody to start either.
        site.kill_and_start();
        cluster.start_again(0);
    }
}

#[test]
fn shards_move_under_writers() {
    let Some((_cluster, nodes)) = is_there(distributed()) else { return };
    for spread in SPREADS {
        let site = Site::start(&nodes.coordinator, &["--table-spread", spread]);
        let [from, to] = [0, 1].map(|n: usize| port(&nodes.workers[n]));
        let written = storm(&format!("shards move, spread {spread}"), &site, || {
            let shards = format!(
                "SELECT string_agg(shardid::text, ' ') FROM (SELECT shardid FROM citus_shards \
                 WHERE table_name = 'entities'::regclass AND nodeport = {from} ORDER BY shardid LIMIT 4) AS few"
            );
            for shard in text(&nodes.coordinator, &shards).split(' ') {
                let arguments = format!("{shard}, '127.0.0.1', {from}, '127.0.0.1', {to}, 'force_logical'");
                execute(&nodes.coordinator, &format!("SELECT citus_move_shard_placement({arguments})"));
            }
            execute(&nodes.coordinator, "SELECT rebalance_table_shards('entities')");
        });
        let refused =
            written.iter().flat_map(|(_, outcomes)| outcomes).filter(|told| **told == Told::NotDone);
        assert_eq!(refused.count(), 0, "a write was refused");
    }
}

/// As after a change of pg_hba.conf, or of a password: nothing is sent to the node.
#[test]
fn writes_to_a_node_that_refuses_the_role_are_not_done() {
    let Some((mut cluster, nodes)) = is_there(distributed()) else { return };
    let site = Site::start(&nodes.workers[0], &["--migrate-url", &nodes.coordinator]);
    let client = site.client();
    let table = on_node(&client, &nodes, &nodes.workers[1]);
    let mut line = Line::new(&site.address);
    cluster.refuse(2);
    for n in 0..20 {
        let entity = with_keys("insert0", &format!("refused{n}"), json!({}));
        let raw = answer(&mut line, &table.inserting(&entity));
        // A session between the nodes that was ended may be found out by the first.
        let unknown = n == 0 && String::from_utf8_lossy(&raw.body).contains("OperationTimedOut");
        assert!(is_busy(&raw) || unknown, "{n}: {raw:?}");
    }
    cluster.admit(2);
    until_well(&mut line, &table.on("PUT", "insert0", "there").json(&json!({})));
}

/// A table whose partition `insert0` is on this node.
pub fn on_node<'c>(client: &'c Client, nodes: &Nodes, url: &str) -> Table<'c> {
    loop {
        let table = client.table();
        table.seed(with_keys("insert0", "first", json!({})));
        if port_of(&nodes.coordinator, &table.name, 0) == port(url) {
            return table;
        }
    }
}

/// After a promotion, the old server comes back at a listed address, and follows the new one.
#[test]
fn a_worker_that_is_a_standby_gets_no_statement() {
    let Some((mut cluster, nodes)) = is_there(distributed()) else { return };
    let urls = nodes.workers.join(",");
    let site = Site::start(&urls, &["--migrate-url", &nodes.coordinator]);
    let client = site.client();
    let [healthy, struck] = [0, 1].map(|n: usize| on_node(&client, &nodes, &nodes.workers[n]));
    let mut line = Line::new(&site.address);
    cluster.demote(2);
    for n in 0..40 {
        let read = answer(&mut line, &struck.on("GET", "insert0", "first"));
        // The other worker may read there by the connections between nodes, as the catalogue says.
        assert!(read.status == 200 || is_busy(&read), "{n}: {read:?}");
        let entity = with_keys("insert0", &format!("row{n}"), json!({}));
        let done = answer(&mut line, &healthy.inserting(&entity));
        let unknown = String::from_utf8_lossy(&done.body).contains("OperationTimedOut");
        assert!(done.status == 201 || n == 0 && (unknown || is_busy(&done)), "{n}: {done:?}");
    }
    // Those that the server opens are closed at once; the other node's have another name.
    let held = "SELECT count(*)::text FROM pg_stat_activity \
         WHERE application_name = 'rowhouse' AND datname = current_database()";
    until("the end of the sessions with the standby", || text(&nodes.workers[1], held) == "0");
}

/// A stand-in of its own, as the server of this number.
fn stand_in(number: i32) -> String {
    let url = fresh_database();
    partition_entities(&url);
    execute(&url, CATALOGUES);
    execute(&url, &format!("UPDATE pg_dist_local_group SET groupid = {number}"));
    url
}

fn rows_of(url: &str, table: &str) -> usize {
    let count = format!(
        "SELECT count(*)::text FROM entities AS e JOIN tables AS t ON t.table_no = e.bucket >> 16 \
         WHERE t.name = '{table}'"
    );
    text(url, &count).parse().expect("a number")
}

/// Two databases stand in for two servers, so that rows show where a statement went.
#[test]
fn the_owner_of_buckets_gets_their_statements_again_when_it_is_back() {
    let [owner, other] = [1, 2].map(stand_in);
    let proxy = Proxy::to(&owner);
    let site = Site::start(&format!("{},{other}", proxy.url(&owner)), &["--migrate-url", &owner]);
    let client = site.client();
    let mut line = Line::new(&site.address);
    let write = |line: &mut Line, table: &Table, row: usize| {
        answer(line, &table.on("PUT", "p", &format!("{row}")).json(&json!({})))
    };
    let table = loop {
        let table = client.table();
        // Where there is one cluster, both servers have the row of the table.
        let row =
            text(&owner, &format!("SELECT row(t.*)::text FROM tables AS t WHERE name = '{}'", table.name));
        execute(
            &other,
            &format!("INSERT INTO tables SELECT (r).* FROM (SELECT '{row}'::tables AS r) AS one"),
        );
        until_well(&mut line, &table.on("PUT", "p", "first").json(&json!({})));
        if rows_of(&owner, &table.name) == 1 {
            break table;
        }
    };
    let mut until_at = |url: &str, what: &str| {
        let before = rows_of(url, &table.name);
        let mut rows = before * 1000..;
        until(what, || {
            write(&mut line, &table, rows.next().expect("a row"));
            rows_of(url, &table.name) > before
        });
    };
    proxy.let_pass(Traffic::Blocked);
    until_at(&other, "the owner is away");
    proxy.let_pass(Traffic::Free);
    until_at(&owner, "the owner is back");
}

#[test]
fn a_database_that_is_partitioned_by_hash_stands_in() {
    if PrivateCluster::start().is_some() {
        return println!("there is Citus here, so nothing needs to stand in for it");
    }
    println!("there is no Citus here: a database that is partitioned by hash stands in");
    for spread in SPREADS {
        let mut cluster = Cluster::start();
        partition_entities(cluster.url());
        let site = Site::start(cluster.url(), &["--table-spread", spread]);
        storm(&format!("a partitioned database dies, spread {spread}"), &site, || {
            cluster.kill();
            cluster.start_again();
            work_for(Duration::from_secs(1));
        });
    }
}
