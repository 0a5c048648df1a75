//! `rowhouse distribute`, and what `migrate` and `check` know of a cluster.

use std::io::{BufRead as _, BufReader};
use std::process::{Command, Stdio};

use serde_json::json;

use super::*;
use crate::support::nodes::{Nodes, as_superuser, local_bytes};
use crate::support::postgres::{OpenSession, execute, text};
use crate::support::server::account;

/// Runs a command against one of the nodes.
fn on(site: &Site, url: &str, arguments: &[&str]) -> Output {
    site.run_with(&[arguments, &["--database-url", url]].concat(), &[])
}

fn distributed(output: &Output) -> Value {
    assert!(output.status.success(), "{output:?}");
    serde_json::from_slice(&output.stdout).unwrap_or_else(|error| panic!("{error}: {output:?}"))
}

fn all_findings(site: &Site, url: &str, more: &[&str]) -> Vec<Value> {
    let setting = account(1).setting();
    let output = on(site, url, &[&["check", "--json", "--accounts", &setting], more].concat());
    let told: Value = serde_json::from_slice(&output.stdout).expect("findings");
    told["checks"].as_array().expect("findings").clone()
}

/// The findings of a check that are not fine, by name.
fn findings(site: &Site, url: &str, more: &[&str]) -> Vec<(String, Value)> {
    let checks = all_findings(site, url, more).into_iter();
    let bad = checks.filter(|f| f["ok"] == false || f["warning"] == true);
    bad.map(|f| (f["name"].as_str().expect("a name").to_owned(), f)).collect()
}

/// The port of a node's URL.
fn port(url: &str) -> &str {
    url.rsplit_once(':').and_then(|(_, rest)| rest.split('/').next()).expect("a port")
}

fn seed(table: &Table, numbers: std::ops::Range<i32>) {
    for n in numbers {
        table.seed(with_keys("p", &n.to_string(), json!({ "N": n })));
    }
}

#[test]
fn what_is_no_cluster_is_not_distributed() {
    Site::sqlite().fails(&["distribute"], &["SQLite cannot be distributed"]);
    let site = Site::postgres();
    site.fails(&["distribute"], &["no extension citus", "CREATE EXTENSION citus"]);
    site.json(&["migrate"]);
    site.fails(&["distribute", "--dry-run"], &["no extension citus"]);
    site.fails(&["distribute", "--shards", "0"], &["--shards"]);
}

#[test]
fn a_cluster_is_distributed_once_and_migrated_by_its_coordinator() {
    let Some(nodes) = Nodes::fresh() else { return };
    let site = Site { folder: fresh_folder(), url: nodes.coordinator.clone() };
    let worker = nodes.workers[0].as_str();
    // Before the first migration.
    site.fails(&["distribute"], &["the schema is missing", "rowhouse migrate"]);
    failed(&on(&site, worker, &["migrate"]), &["is a worker of a Citus cluster", "--migrate-url"]);
    site.json(&["migrate"]);
    failed(&on(&site, worker, &["distribute"]), &["this is a worker", "--migrate-url"]);
    let warned = findings(&site, &nodes.coordinator, &[]);
    assert!(warned.iter().any(|(name, f)| name == "cluster" && f["ok"] == true), "{warned:?}");

    let (server, client) = site.served(&[]);
    let table = client.table();
    seed(&table, 0..50);

    // What it would do, and that it does it.
    let name = account(1).name;
    let of = ["--account", name.as_str()];
    let printed = site.json(&[&["view", "sql", &table.name][..], &of].concat());
    execute(&nodes.coordinator, printed["sql"].as_str().expect("statements"));
    site.json(&[&["index", "create", &table.name, "N"][..], &of].concat());
    let would = distributed(&site.run(&["distribute", "--dry-run", "--json", "--shards", "16"]));
    let steps = would["steps"].as_array().expect("steps").clone();
    assert!(steps[0].as_str().expect("text").contains(&format!("the schema {name}")), "{would}");
    assert!(steps[1].as_str().expect("text").contains("no statistics"), "{would}");
    // What is connected has to be stopped, whatever its role, and whichever node it uses.
    failed(&site.run(&["distribute"]), &["the coordinator: ", "stop them", "start the servers when"]);
    drop(server);
    let session = OpenSession::of(&as_superuser(worker));
    failed(&site.run(&["distribute"]), &[&format!("(127.0.0.1:{}: 1)", port(worker))]);
    drop(session);
    assert_eq!(text(&nodes.coordinator, "SELECT count(*)::text FROM pg_dist_partition"), "0");
    let did = distributed(&site.run(&["distribute", "--json", "--shards", "16"]));
    assert_eq!(did["steps"], would["steps"]);
    assert_eq!(
        text(
            &nodes.coordinator,
            "SELECT count(*)::text FROM pg_dist_shard WHERE logicalrelid = 'entities'::regclass"
        ),
        "16"
    );
    assert_eq!(
        distributed(&site.run(&["distribute", "--json"]))["steps"],
        json!([]),
        "there is nothing left to do"
    );
    for name in ["entities", "tables", "_sqlx_migrations"] {
        assert_eq!(local_bytes(&nodes.coordinator, name), 0, "{name}");
    }
    // Nodes hide shards from their catalogue, but not by name.
    let shard = "SELECT min(shardid)::text FROM citus_shards AS s JOIN pg_dist_node AS n USING (nodeport) \
         WHERE s.table_name = 'entities'::regclass AND n.groupid = 1";
    let shard = text(&nodes.coordinator, shard);
    let targets = format!(
        "SELECT string_agg(attstattarget::text, ',') FROM pg_attribute \
         WHERE attrelid = 'entities_{shard}'::regclass AND attname IN ('bucket', 'pk', 'rk')"
    );
    assert_eq!(text(worker, &targets), "0,0,0");
    assert_eq!(text(worker, "SELECT setting FROM pg_settings WHERE name = 'lock_timeout'"), "10000");

    // What servers stored before is there, through each node.
    let (_server, client) = site.served(&[]);
    seed(&Table::new(&client, table.name.clone()), 50..60);
    let by_worker = Site { folder: fresh_folder(), url: worker.to_owned() };
    let other = by_worker.server(&["--accounts", &account(1).setting()]);
    let there = Client::path_style(other.address(), account(1));
    let table = Table::new(&there, table.name.clone());
    assert_eq!(rows(table.query("").json()).len(), 60);
    assert!(findings(&site, &nodes.coordinator, &[]).is_empty());
    assert!(findings(&site, worker, &[]).is_empty());
    let listed = all_findings(&site, &nodes.coordinator, &[]);
    for placed in ["coordinator, 0 shards", "worker, 8 shards"] {
        assert!(listed.iter().any(|found| found["found"].to_string().contains(placed)), "{listed:?}");
    }

    // What only the coordinator defines, a worker has it do, if it is told where.
    let view = format!("SELECT count(*)::text FROM {}.\"{}\"", account(1).name, table.name);
    assert_eq!(text(worker, &view), "60");
    // The statements name the buckets, wherever they are printed.
    let reprinted =
        distributed(&on(&site, worker, &[&["view", "sql", &table.name, "--json"][..], &of].concat()));
    assert_eq!(printed["columns"][0]["types"], "Edm.Int32 in 50");
    assert_eq!(reprinted["columns"][0]["types"], "Edm.Int32 in 60");
    execute(&nodes.coordinator, reprinted["sql"].as_str().expect("statements"));
    assert_eq!(text(worker, &view), "60");
    let through = [&of[..], &["--migrate-url", nodes.coordinator.as_str()]].concat();
    // Its bytes are those of the shards.
    let listed = distributed(&on(&site, worker, &["index", "list", "--json"]));
    assert!(listed[0]["bytes"].as_u64().expect("bytes") > 0, "{listed}");
    let output = on(&site, worker, &[&["index", "drop", &table.name, "N"][..], &through[..]].concat());
    assert!(output.status.success(), "{output:?}");
}

/// Calls `distribute`, and kills it when the second of its steps begins. Returns whether there was one.
fn killed_after_a_step(site: &Site) -> bool {
    let mut command = Command::new(env!("CARGO_BIN_EXE_rowhouse"));
    command.args(["distribute", "--shards", "4", "--database-url", &site.url]).current_dir(&site.folder);
    let mut child = command.stdout(Stdio::null()).stderr(Stdio::piped()).spawn().expect("it starts");
    let steps = BufReader::new(child.stderr.take().expect("a pipe")).lines();
    let is_killed = steps.map(|step| step.expect("a step")).nth(1).is_some();
    if is_killed {
        child.kill().expect("it can be killed");
    }
    let status = child.wait().expect("it ends");
    assert_ne!(status.success(), is_killed, "{status}");
    is_killed
}

/// An ordinary role repeats the command until nothing is left to do.
#[test]
fn a_distribution_that_is_killed_after_each_step_is_completed_by_the_same_command() {
    let Some(nodes) = Nodes::fresh() else { return };
    let site = Site { folder: fresh_folder(), url: nodes.coordinator.clone() };
    site.json(&["migrate"]);
    let (server, client) = site.served(&[]);
    let table = client.table();
    seed(&table, 0..50);
    drop(server);
    let left = || {
        let would = distributed(&site.run(&["distribute", "--dry-run", "--json"]));
        would["steps"].as_array().expect("steps").len()
    };
    let whole = left();
    let (mut before, mut kills, mut is_incomplete) = (whole, 0, 0);
    while killed_after_a_step(&site) {
        kills += 1;
        let after = left();
        assert!(after < before, "{after} steps of {before} are left after kill {kills}");
        before = after;
        assert_eq!(text(&nodes.coordinator, "SELECT count(*)::text FROM entities"), "50", "kill {kills}");
        let placed = "SELECT (count(*) > 0 AND bool_and(logicalrelid <> 'entities'::regclass))::text \
             FROM pg_dist_partition";
        if text(&nodes.coordinator, placed) == "true" {
            is_incomplete += 1;
            let told = findings(&site, &nodes.coordinator, &[]);
            assert!(told.iter().any(|(name, f)| name == "cluster" && f["ok"] == false), "{told:?}");
        }
    }
    assert!(
        kills > whole / 3 && is_incomplete > 0,
        "{kills} kills, {is_incomplete} of them too early for servers"
    );
    assert_eq!(left(), 0);
    assert!(findings(&site, &nodes.coordinator, &[]).is_empty());
    for name in ["entities", "tables", "_sqlx_migrations"] {
        assert_eq!(local_bytes(&nodes.coordinator, name), 0, "{name}");
    }
    let (_server, client) = site.served(&[]);
    let table = Table::new(&client, table.name.clone());
    seed(&table, 50..60);
    assert_eq!(table.count(), 60);
}

#[test]
fn a_node_that_was_removed_is_told() {
    let Some(nodes) = Nodes::fresh() else { return };
    let site = Site { folder: fresh_folder(), url: nodes.coordinator.clone() };
    let worker = nodes.workers[1].as_str();
    let told = findings(&site, worker, &[]);
    let (_, schema) = told.iter().find(|(name, _)| name == "schema").expect("a finding");
    assert!(schema["found"].to_string().contains("a worker of a Citus cluster"), "{schema}");
    assert!(schema["advice"].to_string().contains("through the coordinator"), "{schema}");
    site.json(&["migrate"]);
    distributed(&site.run(&["distribute", "--json"]));
    assert!(findings(&site, worker, &[]).is_empty());
    // Migrations do not answer, but the schema is current.
    let away = findings(&site, worker, &["--migrate-url", "postgres://nobody@127.0.0.1:1/none"]);
    let (_, schema) = away.iter().find(|(name, _)| name == "schema").expect("a finding");
    assert!(schema["ok"] == true && schema["advice"].to_string().contains("see that it is up"), "{schema}");
    let port = port(worker);
    for change in ["citus_drain_node", "citus_remove_node"] {
        execute(&as_superuser(&nodes.coordinator), &format!("SELECT {change}('127.0.0.1', {port})"));
    }
    let told = findings(&site, worker, &[]);
    assert!(told.iter().any(|(name, finding)| name == "membership" && finding["ok"] == false), "{told:?}");
    assert!(findings(&site, &nodes.coordinator, &[]).is_empty());
}

#[test]
fn a_table_that_a_migration_adds_is_distributed_by_it() {
    let Some(nodes) = Nodes::fresh() else { return };
    let site = Site { folder: fresh_folder(), url: nodes.coordinator.clone() };
    site.json(&["migrate"]);
    distributed(&site.run(&["distribute", "--json"]));
    // As if the last migration had only just added it.
    execute(&nodes.coordinator, "SELECT undistribute_table('doomed')");
    let told = findings(&site, &nodes.coordinator, &[]);
    assert!(
        told.iter().any(|(name, f)| name == "cluster" && f["found"].to_string().contains("doomed")),
        "{told:?}"
    );
    site.json(&["migrate"]);
    assert!(findings(&site, &nodes.coordinator, &[]).is_empty());
    // Through a worker, nothing is to be done.
    let there = Site { folder: fresh_folder(), url: nodes.workers[0].clone() };
    there.json(&["migrate"]);
}
