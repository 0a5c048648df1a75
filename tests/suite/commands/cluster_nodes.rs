//! `rowhouse cluster`.

use serde_json::json;

use super::*;
use crate::support::nodes::{Nodes, as_superuser};
use crate::support::postgres::text;
use crate::support::server::account;

fn run(site: &Site, url: &str, arguments: &[&str]) -> Output {
    site.run_with(&[&["cluster"], arguments, &["--database-url", url]].concat(), &[])
}

fn done(output: &Output) -> Value {
    assert!(output.status.success(), "{output:?}");
    serde_json::from_slice(&output.stdout).unwrap_or_else(|error| panic!("{error}: {output:?}"))
}

/// `host:port` of a URL.
fn address(url: &str) -> &str {
    let authority = url.split_once("://").expect("a URL").1.split('/').next().expect("a host");
    authority.rsplit_once('@').map_or(authority, |(_, address)| address)
}

fn node<'s>(status: &'s Value, address: &str) -> &'s Value {
    let nodes = status["nodes"].as_array().expect("nodes");
    nodes.iter().find(|node| node["address"] == address).unwrap_or_else(|| panic!("{address} in {status}"))
}

#[test]
fn what_is_no_cluster_has_no_nodes() {
    let wrong = |site: &Site, arguments: &[&str], word: &str| {
        let output = site.run(arguments);
        assert_eq!(output.status.code(), Some(2), "{output:?}");
        assert!(String::from_utf8_lossy(&output.stderr).contains(word), "{word} in {output:?}");
    };
    wrong(&Site::sqlite(), &["cluster", "status"], "SQLite is no cluster");
    let site = Site::postgres();
    site.fails(&["cluster", "status"], &["no extension citus"]);
    site.fails(&["cluster", "rebalance"], &["no extension citus"]);
    for address in ["worker", "worker:", ":5432", "worker:0", "worker:65536", "a b:1"] {
        wrong(&site, &["cluster", "add", address], "HOST:PORT");
    }
    wrong(&site, &["cluster", "restore-point", ""], "1 to 63 bytes");
    wrong(&site, &["cluster", "restore-point", &"n".repeat(64)], "1 to 63 bytes");
}

#[test]
fn a_node_is_drained_removed_and_added_while_clients_read() {
    let Some(nodes) = Nodes::fresh() else { return };
    let site = Site { folder: fresh_folder(), url: nodes.coordinator.clone() };
    site.json(&["migrate"]);
    // Few shards, since each move takes seconds.
    done(&site.run(&["distribute", "--shards", "4", "--json"]));
    let server = site.server(&["--accounts", &account(1).setting()]);
    let client = Client::path_style(server.address(), account(1));
    let table = client.table();
    for n in 0..40 {
        table.seed(with_keys("p", &n.to_string(), json!({ "N": n })));
    }
    let (owner, superuser) = (nodes.coordinator.as_str(), as_superuser(&nodes.coordinator));
    let (kept, leaving) = (address(&nodes.workers[0]), address(&nodes.workers[1]));
    let status = |url: &str| done(&run(&site, url, &["status", "--json"]));

    let before = status(owner);
    assert_eq!(node(&before, address(owner))["role"], "coordinator");
    let shards = |status: &Value, address: &str| node(status, address)["shards"].as_i64().expect("a number");
    let all = shards(&before, kept) + shards(&before, leaving);
    assert!(shards(&before, kept) > 0 && shards(&before, leaving) > 0, "{before}");
    assert_eq!(status(&nodes.workers[0])["nodes"].as_array().map(Vec::len), Some(3), "by a worker too");

    failed(&run(&site, &nodes.workers[0], &["rebalance"]), &["this is a worker", "--migrate-url"]);
    failed(&run(&site, owner, &["drain", "elsewhere:5432"]), &["no active node elsewhere:5432"]);
    failed(&run(&site, &superuser, &["remove", leaving]), &["shards are on", "cluster drain"]);
    // What an ordinary role may not do is said in the words of a superuser.
    let (host, port) = leaving.rsplit_once(':').expect("a port");
    failed(
        &run(&site, owner, &["restore-point", "it's"]),
        &["only a superuser", "SELECT citus_create_restore_point('it''s');"],
    );
    failed(&run(&site, owner, &["remove", leaving]), &["shards are on"]);

    let drained = run(&site, &superuser, &["drain", leaving, "--json"]);
    assert!(done(&drained)["moves"].as_i64().expect("a number") > 0, "{drained:?}");
    assert!(String::from_utf8_lossy(&drained.stderr).contains("moves are done"), "{drained:?}");
    let after = status(owner);
    assert_eq!((shards(&after, kept), shards(&after, leaving)), (all, 0), "{after}");
    assert_eq!(node(&after, leaving)["holdsShards"], false);
    assert_eq!(done(&run(&site, &superuser, &["drain", leaving, "--json"]))["changed"], false);
    failed(&run(&site, &superuser, &["drain", kept]), &["no other node may hold the shards"]);
    assert_eq!(table.count(), 40);

    failed(
        &run(&site, owner, &["remove", leaving]),
        &["only a superuser", &format!("SELECT citus_remove_node('{host}', {port});")],
    );
    assert_eq!(done(&run(&site, &superuser, &["remove", leaving, "--json"]))["changed"], true);
    assert_eq!(status(owner)["nodes"].as_array().map(Vec::len), Some(2));
    assert_eq!(done(&run(&site, &superuser, &["add", leaving, "--json"]))["changed"], true);
    assert_eq!(done(&run(&site, &superuser, &["add", leaving, "--json"]))["changed"], false);
    assert!(done(&run(&site, owner, &["rebalance", "--json"]))["moves"].as_i64().expect("a number") > 0);
    let again = status(owner);
    assert!(shards(&again, leaving) > 0 && shards(&again, kept) + shards(&again, leaving) == all, "{again}");
    assert_eq!(done(&run(&site, owner, &["rebalance", "--json"]))["changed"], false);
    assert_eq!(table.count(), 40);

    let point = done(&run(&site, &superuser, &["restore-point", "before", "--json"]));
    assert!(point["position"].as_str().expect("a position").contains('/'), "{point}");
    assert_eq!(text(owner, "SELECT count(*)::text FROM entities"), "40");
}
