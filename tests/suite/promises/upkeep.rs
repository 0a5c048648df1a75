//! While a node of a cluster is away, expiry, counts and purges go on for the tables whose nodes answer.

use std::process::Command;

use serde_json::{Value, json};

use super::sharded::{is_there, on_node};
use super::site::Site;
use crate::support::nodes::{Nodes, PrivateCluster};
use crate::support::postgres::{execute, text};
use crate::support::*;

/// So many that the purge of a table is under way for several seconds.
const MANY: usize = 3000;

/// Runs a command of operators on the database; returns what it prints as JSON.
fn command(nodes: &Nodes, arguments: &[&str]) -> Value {
    let url = ["--database-url", &nodes.coordinator, "--json"];
    let mut program = Command::new(env!("CARGO_BIN_EXE_rowhouse"));
    let output = program.args([arguments, &url].concat()).output().expect("it runs");
    assert!(output.status.success(), "{arguments:?}: {output:?}");
    serde_json::from_slice(&output.stdout).expect("JSON")
}

fn number(nodes: &Nodes, query: &str) -> i64 {
    text(&nodes.coordinator, query).parse().expect("a number")
}

fn table_no(nodes: &Nodes, table: &Table) -> i64 {
    number(nodes, &format!("SELECT table_no::text FROM tables WHERE name = '{}'", table.name))
}

/// Entities of a table with one bucket.
fn rows(nodes: &Nodes, table_no: i64) -> i64 {
    number(nodes, &format!("SELECT count(*)::text FROM entities WHERE bucket = {}", table_no << 16))
}

fn expired(row: &str) -> Value {
    let then = "2020-01-01T00:00:00Z";
    with_keys("insert0", row, json!({ "Expires@odata.type": "Edm.DateTime", "Expires": then }))
}

/// How many entities of a table have expired, as operators see it.
fn counted(nodes: &Nodes, table: &Table) -> u64 {
    let rules = command(nodes, &["expire", "list"]);
    let of = rules.as_array().expect("rules").iter().find(|rule| rule["table"] == table.name.as_str());
    of.expect("a rule")["expired"].as_u64().expect("a number")
}

fn goes_on(
    cluster: &mut PrivateCluster,
    leave: fn(&mut PrivateCluster, usize),
    come_back: fn(&mut PrivateCluster, usize),
) {
    let nodes = Nodes::of(cluster.url());
    nodes.distribute();
    let site = Site::start(&nodes.coordinator, &["--table-spread", "1"]);
    let client = site.client();
    let [swept, doomed] = [0, 1].map(|_| on_node(&client, &nodes, &nodes.workers[0]));
    let [struck, doomed_there] = [0, 1].map(|_| on_node(&client, &nodes, &nodes.workers[1]));
    for table in [&struck, &swept] {
        let rule = ["--account", "acct0001", "--at", "Expires", "--every", "1s"];
        command(&nodes, &[&["expire", "set", &table.name], &rule[..]].concat());
    }
    let [there, gone] = [&doomed_there, &doomed].map(|table| table_no(&nodes, table));
    for bucket in [there, gone].map(|table_no| table_no << 16) {
        let fill = format!(
            "INSERT INTO entities SELECT {bucket}, 'p', n::text, 0, '{{}}' FROM generate_series(1, {MANY}) AS n"
        );
        execute(&nodes.coordinator, &fill);
    }
    for table in [&doomed_there, &doomed] {
        client.delete_table(&table.name).expect(204);
    }
    leave(cluster, 2);
    assert!(rows(&nodes, gone) > 0, "the purge had not ended");
    for n in 0..3 {
        swept.insert(&expired(&format!("expired{n}"))).expect(201);
        until("what expired while the node was away", || swept.count() == 1);
    }
    until("the purge of a table", || rows(&nodes, gone) == 0);
    come_back(cluster, 2);
    until("the node that is back", || matches!(struck.insert(&expired("late")).status, 201 | 409));
    until("the sweep of the node that is back", || struck.count() == 1);
    until("the purge of the node that is back", || rows(&nodes, there) == 0);
    until("what was not recorded meanwhile", || counted(&nodes, &swept) >= 3);
}

#[test]
fn upkeep_goes_on_for_tables_whose_nodes_answer() {
    let Some(mut cluster) = is_there(PrivateCluster::start()) else { return };
    goes_on(&mut cluster, PrivateCluster::kill, PrivateCluster::start_again);
    goes_on(&mut cluster, PrivateCluster::freeze, PrivateCluster::thaw);
}
