//! Servers use the nodes that the catalogue of the cluster has, whatever the settings list.

use serde_json::json;

use super::line::Line;
use super::outages::answer;
use super::sharded::{distributed, is_there, on_node, port};
use super::site::Site;
use crate::support::nodes::{Nodes, as_superuser};
use crate::support::postgres::{execute, text};
use crate::support::*;

/// Sessions of servers on a node. Those of other nodes have another name.
fn sessions(url: &str) -> usize {
    let count = "SELECT count(*)::text FROM pg_stat_activity \
         WHERE application_name = 'rowhouse' AND datname = current_database()";
    text(&as_superuser(url), count).parse().expect("a number")
}

/// Reads and writes until something holds of the sessions on a node; no request may fail.
fn work_until(site: &Site, tables: &[&Table], url: &str, what: &str, holds: fn(usize) -> bool) {
    let mut line = Line::new(&site.address);
    let mut numbers = 0..;
    until(what, || {
        let row = numbers.next().map(|n: u32| n.to_string()).expect("a number");
        for table in tables {
            let written = answer(&mut line, &table.on("PUT", "insert0", &row).json(&json!({})));
            assert_eq!(written.status, 204, "{what}: {written:?}");
            let read = answer(&mut line, &table.on("GET", "insert0", "first"));
            assert_eq!(read.status, 200, "{what}: {read:?}");
        }
        holds(sessions(url))
    });
}

fn as_admin(nodes: &Nodes, function: &str, worker: &str, more: &str) {
    let call = format!("SELECT {function}('127.0.0.1', {}{more})", port(worker));
    execute(&as_superuser(&nodes.coordinator), &call);
}

#[test]
fn nodes_that_are_added_and_removed_are_used_and_left_without_a_restart() {
    let Some((_cluster, nodes)) = is_there(distributed()) else { return };
    // Once as a node that no URL leads to, and once as one that the settings list.
    for urls in [nodes.coordinator.clone(), format!("{},{}", nodes.workers[1], nodes.workers[0])] {
        let site = Site::start(&urls, &["--migrate-url", &nodes.coordinator]);
        let client = site.client();
        let [stays, goes] = [0, 1].map(|n: usize| on_node(&client, &nodes, &nodes.workers[n]));
        let tables = [&stays, &goes];
        let worker = &nodes.workers[1];
        work_until(&site, &tables, worker, "a node of the catalogue", |sessions| sessions > 0);
        work_until(&site, &tables, &nodes.workers[0], "another one", |sessions| sessions > 0);
        as_admin(&nodes, "citus_drain_node", worker, ", 'block_writes'");
        as_admin(&nodes, "citus_remove_node", worker, "");
        work_until(&site, &tables, worker, "a node that was removed", |sessions| sessions == 0);
        as_admin(&nodes, "citus_add_node", worker, "");
        execute(
            &nodes.coordinator,
            "SELECT rebalance_table_shards('entities', shard_transfer_mode := 'block_writes')",
        );
        let more = on_node(&client, &nodes, worker);
        work_until(&site, &[&more], worker, "a node that was added", |sessions| sessions > 0);
    }
}

#[test]
fn a_node_that_is_not_where_it_is_said_to_be_is_reached_through_others() {
    let Some((_cluster, nodes)) = is_there(distributed()) else { return };
    // Nothing listens there, so it is as if the catalogue had names that servers cannot reach.
    let elsewhere = format!("127.0.0.1:{}=127.0.0.1:1", port(&nodes.workers[1]));
    let site = Site::start(&nodes.coordinator, &["--cluster-hosts", &elsewhere]);
    let client = site.client();
    let [reached, passed] = [0, 1].map(|n: usize| on_node(&client, &nodes, &nodes.workers[n]));
    work_until(&site, &[&reached, &passed], &nodes.workers[0], "where it is said to be", |n| n > 0);
    work_until(&site, &[&passed], &nodes.workers[1], "elsewhere", |n| n == 0);
}
