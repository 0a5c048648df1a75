//! What is promised of a table holds while its spread is changed: nothing acknowledged is lost, entities
//! are linearizable, transactions atomic, whenever the command dies.

use std::process::{Child, Command, Output, Stdio};
use std::sync::atomic::AtomicBool;
use std::time::Duration;

use serde_json::{Value, json};

use super::crash::{Told, insert_on_and_on, verify_inserts};
use super::histories::hold_while_respread;
use super::sharded::port;
use super::site::{End, Site};
use crate::commands::indexing::HeldTransaction;
use crate::support::nodes::distributed;
use crate::support::postgres::{execute, fresh_database, migrate, partition_entities, text, try_execute};
use crate::support::*;

/// Writers of the table.
const WRITERS: usize = 4;
/// Entities that are there before.
const SEEDED: usize = 3000;

/// The command with these arguments after the table's name.
fn command(url: &str, table: &str, more: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_rowhouse"));
    command.args(["table", "respread", table, "--account", &server::account(1).name, "--database-url", url]);
    command.args(more);
    command
}

fn run(url: &str, table: &str, more: &[&str]) -> Output {
    command(url, table, more).output().expect("it runs")
}

/// Runs another command for the account.
fn rowhouse(url: &str, words: &[&str]) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_rowhouse"));
    command.args(words).args(["--account", &server::account(1).name, "--database-url", url]);
    command.output().expect("it runs")
}

/// What it prints if it succeeds.
fn printed(url: &str, words: &[&str]) -> String {
    let output = rowhouse(url, words);
    assert!(output.status.success(), "{words:?}: {output:?}");
    String::from_utf8_lossy(&output.stdout).into_owned()
}

fn respread(url: &str, table: &str, spread: &str) {
    let output = run(url, table, &[spread]);
    assert!(output.status.success(), "{output:?}");
    let stored = text(url, &format!("SELECT spread::text FROM tables WHERE name = '{table}'"));
    assert_eq!(stored, spread);
}

/// Why the command failed.
fn refused(url: &str, table: &str, more: &[&str], status: i32) -> String {
    let output = run(url, table, more);
    assert_eq!(output.status.code(), Some(status), "{output:?}");
    String::from_utf8_lossy(&output.stderr).into_owned()
}

/// What `rowhouse check` finds.
fn checked(url: &str) -> String {
    let check = Command::new(env!("CARGO_BIN_EXE_rowhouse")).args(["check", "--database-url", url]).output();
    String::from_utf8_lossy(&check.expect("it runs").stdout).into_owned()
}

/// A database whose entities are partitioned by the hash of the bucket.
fn partitioned() -> String {
    let url = fresh_database();
    migrate(&url);
    partition_entities(&url);
    url
}

/// Databases of every kind that is there.
fn databases() -> Vec<(&'static str, String)> {
    let citus = distributed().map(|nodes| ("Citus", nodes.coordinator));
    [("plain", fresh_database()), ("partitioned", partitioned())].into_iter().chain(citus).collect()
}

fn seed(table: &Table, count: usize) {
    for first in (0..count).step_by(100) {
        let partition = format!("seed{}", first / 100 % 7);
        let batch = (first..first + 100).fold(Batch::new(), |batch, n| {
            batch.write("PUT", table, (&partition, &format!("{n:06}")), &json!({ "N": n }), None)
        });
        batch.commit(table.client);
    }
}

/// The bucket rows, changes and records that a respread leaves for a table that is not being respread.
fn leaves_nothing(url: &str) {
    assert_eq!(text(url, "SELECT count(*)::text FROM respreads"), "0");
    let wrong = "SELECT count(*)::text FROM buckets AS b JOIN tables AS t ON t.table_no = b.bucket >> 16 \
                 WHERE b.table_no IS NOT NULL";
    assert_eq!(text(url, wrong), "0", "a bucket admits only a former number");
    assert_eq!(text(url, "SELECT count(*)::text FROM respread_changes"), "0");
}

#[test]
fn histories_hold_while_the_spread_changes() {
    for (kind, url) in databases() {
        let sites: Vec<Site> = (0..2).map(|_| Site::start(&url, &["--workers", "1"])).collect();
        hold_while_respread(&format!("respread on {kind}"), &sites, |table| {
            for spread in ["8", "3", "1"] {
                respread(&url, table, spread);
            }
        });
        leaves_nothing(&url);
    }
}

#[test]
fn nothing_is_lost_whenever_the_command_dies() {
    for (kind, url) in databases() {
        let site = Site::start(&url, &[]);
        let client = site.client();
        let table = client.table();
        seed(&table, SEEDED);
        let over = AtomicBool::new(false);
        let written: Vec<Vec<Told>> = std::thread::scope(|scope| {
            let end = End(&over);
            let (table, over, site) = (&table, &over, &site);
            let writers: Vec<_> = (0..WRITERS)
                .map(|n| scope.spawn(move || insert_on_and_on(&site.address, table, over, n)))
                .collect();
            for delay in [30, 80, 150, 250, 400] {
                let mut begun = command(&url, &table.name, &["8"]);
                let mut begun = begun.stdout(Stdio::null()).stderr(Stdio::null()).spawn().expect("it runs");
                work_for(Duration::from_millis(delay));
                begun.kill().expect("a signal");
                begun.wait().expect("it ends");
            }
            respread(&url, &table.name, "8");
            work_for(Duration::from_millis(200));
            drop(end);
            writers.into_iter().map(|writer| writer.join().expect("a writer")).collect()
        });
        for (n, outcomes) in written.iter().enumerate() {
            assert!(outcomes.iter().all(|told| matches!(told, Told::Done(_))), "{kind}: a write failed");
            verify_inserts(&table, n, outcomes);
        }
        let seeded = "SELECT count(*)::text FROM entities AS e JOIN tables AS t ON t.table_no = e.bucket >> 16 \
                      WHERE e.pk LIKE 'seed%'";
        assert_eq!(text(&url, seeded), SEEDED.to_string());
        leaves_nothing(&url);
    }
}

#[test]
fn descending_pages_leave_nothing_out_while_the_spread_changes() {
    const SEEDS: &str = "$orderby=PartitionKey%20desc,RowKey%20desc&$filter=startswith(PartitionKey,'seed')";
    for (kind, url) in databases() {
        let site = Site::start(&url, &["--extended-queries", &server::account(1).name]);
        let client = site.client();
        let table = client.table();
        seed(&table, SEEDED);
        let mut expected = keys_of(&table.pages("").concat());
        expected.reverse();
        // The spread changes between the pages.
        let (mut found, mut token) = (Vec::new(), String::new());
        for spread in ["8", "3", "1"] {
            let page = table.query(&format!("?{SEEDS}&$top=700{token}"));
            token = next_page(&page).expect("there is more");
            found.extend(keys_of(&rows(page.expect_json())));
            respread(&url, &table.name, spread);
        }
        let last = table.query(&format!("?{SEEDS}{token}"));
        assert_eq!(next_page(&last), None, "{kind}");
        found.extend(keys_of(&rows(last.expect_json())));
        assert!(found == expected, "{kind}: {found:?}");
        // It changes while pages are read and entities written.
        let over = AtomicBool::new(false);
        std::thread::scope(|scope| {
            let end = End(&over);
            scope.spawn(|| insert_on_and_on(&site.address, &table, &over, 0));
            let changes = scope.spawn(|| ["8", "3", "1"].map(|spread| respread(&url, &table.name, spread)));
            while !changes.is_finished() {
                let found = keys_of(&table.pages(&format!("{SEEDS}&$top=300")).concat());
                assert!(found == expected, "{kind}: {found:?}");
            }
            drop(end);
            changes.join().expect("the spread changed");
        });
        leaves_nothing(&url);
    }
}

#[test]
fn a_respread_that_is_given_up_leaves_the_table_as_it_was() {
    for (_, url) in databases() {
        let site = Site::start(&url, &["--table-spread", "2"]);
        let client = site.client();
        let table = client.table();
        seed(&table, 1000);
        hold_in_the_middle(&url, &table.name);
        table.seed(with_keys("meanwhile", "1", json!({ "V": 1 })));
        until("the finding", || checked(&url).contains(&format!("/{} is being changed", table.name)));
        let told = refused(&url, &table.name, &["4"], 1);
        assert!(told.contains("already being respread to 8 buckets"), "{told}");
        assert!(run(&url, &table.name, &["--cancel"]).status.success());
        assert!(refused(&url, &table.name, &["--cancel"], 1).contains("is not being respread"));
        assert!(!checked(&url).contains("is being changed"));
        table.seed(with_keys("after", "1", json!({ "V": 1 })));
        assert_eq!(table.get("meanwhile", "1").expect(200).json()["V"], 1);
        assert_eq!(text(&url, "SELECT spread::text FROM tables"), "2");
        leaves_nothing(&url);
        // It can be begun anew, beside what is left of the first.
        respread(&url, &table.name, "8");
        for partition in ["meanwhile", "after"] {
            assert_eq!(table.get(partition, "1").expect(200).json()["V"], 1);
        }
    }
}

/// Begins a respread to 8 that dies before it has copied anything. It waits for whoever may be writing.
pub fn hold_in_the_middle(url: &str, table: &str) {
    let held = HeldTransaction::after(url, "LOCK TABLE entities IN ROW EXCLUSIVE MODE");
    until("the lock", || text(url, &locks("entities", "RowExclusiveLock")) != "0");
    let mut begun = command(url, table, &["8"]);
    let mut begun = begun.stdout(Stdio::null()).stderr(Stdio::null()).spawn().expect("it runs");
    until("the respread", || text(url, "SELECT count(*)::text FROM respreads") == "1");
    assert!(begun.try_wait().expect("it can be asked").is_none(), "it did not wait for a writer");
    begun.kill().expect("a signal");
    begun.wait().expect("it ends");
    drop(held);
}

/// The end of a respread does not come to all nodes at once. Here the coordinator has it and the workers do
/// not, as between the two halves of a commit.
#[test]
fn nothing_is_written_to_former_buckets_through_a_node_that_knows_the_new_ones() {
    let Some(nodes) = distributed() else { return };
    // Servers cannot reach the workers, so all statements go through the coordinator.
    let elsewhere = nodes.workers.iter().map(|url| format!("127.0.0.1:{}=127.0.0.1:1", port(url)));
    let elsewhere = elsewhere.collect::<Vec<_>>().join(",");
    let sites = [(); 4].map(|()| Site::start(&nodes.coordinator, &["--cluster-hosts", &elsewhere]));
    let clients = sites.each_ref().map(Site::client);
    let table = clients[0].table();
    for row in ["known", "1", "2"] {
        table.seed(with_keys("p", row, json!({ "V": 1 })));
    }
    hold_in_the_middle(&nodes.coordinator, &table.name);
    let tables = clients.each_ref().map(|client| Table::new(client, &table.name));
    for table in &tables {
        table.merge("p", "known", &json!({ "V": 1 }), None).expect(204);
    }
    let rows =
        "SELECT string_agg(rk || ' ' || (properties->>'V'), ', ' ORDER BY rk) FROM entities WHERE pk = 'p'";
    assert_eq!(text(&nodes.coordinator, rows), "1 1, 2 1, known 1");
    let here = "SELECT shard_name::text FROM citus_shards WHERE table_name = 'tables'::regclass LIMIT 1";
    let here = text(&nodes.coordinator, here);
    let target = text(&nodes.coordinator, "SELECT target_no::text FROM respreads");
    execute(
        &nodes.coordinator,
        &format!(
            "SET citus.enable_manual_changes_to_shards = on; UPDATE {here} SET table_no = {target}, spread = 8"
        ),
    );
    let [replacing, merging, deleting, together] = &tables;
    let entity = json!({ "V": 2 });
    let statuses: Vec<u16> = std::thread::scope(|scope| {
        let writes = [
            scope.spawn(|| replacing.replace("p", "1", &entity, Some("*")).status),
            scope.spawn(|| merging.merge("p", "1", &entity, Some("*")).status),
            scope.spawn(|| deleting.delete("p", "2", Some("*")).status),
            scope.spawn(|| {
                let batch = Batch::new().write("PUT", together, ("p", "1"), &entity, Some("*"));
                batch.delete(together, "p", "2", "*").send(together.client).parts[0].status
            }),
        ];
        writes.into_iter().map(|write| write.join().expect("an answer")).collect()
    });
    assert_eq!(text(&nodes.coordinator, rows), "1 1, 2 1, known 1");
    assert!(statuses.iter().all(|status| *status >= 400), "{statuses:?}");
}

/// A change of the state that is prepared on a node is not known there until it is committed.
#[test]
fn writers_that_begin_while_a_change_is_prepared_are_waited_for() {
    let Some(nodes) = distributed() else { return };
    let (site, worker) = (Site::start(&nodes.coordinator, &[]), &nodes.workers[0]);
    let client = site.client();
    let table = client.table();
    table.seed(with_keys("p", "1", json!({})));
    let gid = format!("citus_{}", fresh_name());
    execute(worker, &format!("BEGIN; SELECT 1; PREPARE TRANSACTION '{gid}'"));
    let mut begun = begin(&nodes.coordinator, &table.name);
    let asks = "SELECT count(*)::text FROM pg_stat_activity WHERE query LIKE '%pg_prepared_xacts%' \
                AND datname = current_database() AND pid <> pg_backend_pid()";
    until("the question", || text(worker, asks) != "0");
    let number = text(&nodes.coordinator, "SELECT table_no::text FROM tables");
    // Once the entities are copied, the table gets another number. Then this divides by zero.
    let writes = format!(
        "BEGIN; LOCK TABLE entities IN ROW EXCLUSIVE MODE; SELECT pg_sleep(2); \
         SELECT 1 / count(*) FROM tables WHERE table_no = {number}; COMMIT"
    );
    std::thread::scope(|scope| {
        let writer = scope.spawn(|| try_execute(worker, &writes));
        until("the lock", || text(worker, &locks("entities", "RowExclusiveLock")) != "0");
        execute(worker, &format!("COMMIT PREPARED '{gid}'"));
        writer.join().expect("it ends").expect("the writer was waited for");
    });
    assert!(begun.wait().expect("it ends").success());
    leaves_nothing(&nodes.coordinator);
}

/// What a transaction that is prepared has written to a node cannot be copied yet.
#[test]
fn the_last_step_does_not_pass_over_what_is_prepared() {
    let Some(nodes) = distributed() else { return };
    let gid = format!("citus_{}", fresh_name());
    let (site, worker) = (Site::start(&nodes.coordinator, &[]), &nodes.workers[0]);
    let client = site.client();
    let table = client.table();
    table.seed(with_keys("p", "1", json!({})));
    // Only the last step waits for this lock.
    let holds = format!(
        "BEGIN; LOCK TABLE respread_changes IN SHARE UPDATE EXCLUSIVE MODE; \
         DO $$ BEGIN WHILE NOT EXISTS (SELECT FROM pg_prepared_xacts WHERE gid = '{gid}') \
         LOOP PERFORM pg_sleep(0.01); END LOOP; END $$; COMMIT"
    );
    std::thread::scope(|scope| {
        scope.spawn(|| execute(worker, &holds));
        until("the lock", || text(worker, &locks("respread_changes", "ShareUpdateExclusiveLock")) != "0");
        let mut begun = begin(&nodes.coordinator, &table.name);
        let stops = "SELECT count(*)::text FROM pg_locks WHERE relation = 'respread_changes'::regclass \
                     AND mode = 'ShareLock'";
        // It takes the locks of one node after the other.
        let everywhere = || nodes.workers.iter().chain([&nodes.coordinator]);
        until("the last step", || everywhere().any(|url| text(url, stops) != "0"));
        let number = || text(&nodes.coordinator, "SELECT table_no::text FROM tables");
        let before = number();
        execute(worker, &format!("BEGIN; SELECT 1; PREPARE TRANSACTION '{gid}'"));
        until("another number", || number() != before);
        let spread = text(&nodes.coordinator, "SELECT spread::text FROM tables");
        execute(worker, &format!("COMMIT PREPARED '{gid}'"));
        assert_eq!(spread, "-1", "the table has its new buckets already");
        assert!(begun.wait().expect("it ends").success());
    });
    leaves_nothing(&nodes.coordinator);
}

/// Writers wait behind the last step while it waits on their node for another transaction.
#[test]
fn the_last_step_gives_up_soon_on_every_node() {
    let Some(nodes) = distributed() else { return };
    let (site, worker) = (Site::start(&nodes.coordinator, &[]), &nodes.workers[0]);
    let client = site.client();
    let table = client.table();
    table.seed(with_keys("p", "1", json!({})));
    // On this node alone, and only the last step waits for it.
    let holds = "SET LOCAL citus.enable_ddl_propagation = off; \
                 LOCK TABLE respread_changes IN SHARE UPDATE EXCLUSIVE MODE";
    let held = HeldTransaction::after(worker, holds);
    until("the lock", || text(worker, &locks("respread_changes", "ShareUpdateExclusiveLock")) != "0");
    let mut begun = begin(&nodes.coordinator, &table.name);
    let waits = "SELECT count(*)::text FROM pg_locks WHERE relation = 'respread_changes'::regclass \
                 AND mode = 'ShareLock' AND NOT granted";
    until("the last step", || text(worker, waits) != "0");
    // Less than a statement of the last step may take, or a lock on a worker.
    let writes = "SET lock_timeout = '4s'; DELETE FROM respread_changes WHERE bucket = 0";
    let written = try_execute(worker, writes);
    drop(held);
    assert!(begun.wait().expect("it ends").success());
    written.expect("a writer waited for a whole attempt");
    leaves_nothing(&nodes.coordinator);
}

/// Begins a respread over eight buckets, whose output nobody reads.
fn begin(url: &str, table: &str) -> Child {
    command(url, table, &["8"]).stdout(Stdio::null()).spawn().expect("it runs")
}

/// Asks how many transactions hold a lock.
fn locks(relation: &str, mode: &str) -> String {
    format!(
        "SELECT count(*)::text FROM pg_locks WHERE relation = '{relation}'::regclass AND mode = '{mode}' AND granted"
    )
}

#[test]
fn a_table_that_is_deleted_meanwhile_leaves_nothing() {
    for (_, url) in databases() {
        let site = Site::start(&url, &[]);
        let client = site.client();
        let table = client.table();
        seed(&table, 300);
        hold_in_the_middle(&url, &table.name);
        // A part of the copy is there.
        let target = text(&url, "SELECT (target_no << 16)::text FROM respreads");
        execute(&url, &format!("INSERT INTO entities VALUES ({target}, 'p', 'r', 1, '{{}}')"));
        client.request("DELETE", &format!("/Tables('{}')", table.name)).send().expect(204);
        assert!(refused(&url, &table.name, &["8"], 1).contains("there is no table"));
        // The server purges both layouts.
        until("the purge", || text(&url, "SELECT count(*)::text FROM entities") == "0");
        assert_eq!(text(&url, "SELECT count(*)::text FROM doomed"), "2");
        leaves_nothing(&url);
        client.create_table(&table.name).expect(201);
        assert_eq!(table.count(), 0);
    }
}

/// What was begun is kept with the table, so the command goes on with it.
#[test]
fn a_table_that_is_deleted_meanwhile_and_comes_back_can_go_on() {
    for (kind, url) in databases() {
        let site = Site::start(&url, &["--table-spread", "2", "--keep-deleted", "1d"]);
        let client = site.client();
        let table = client.table();
        seed(&table, 300);
        hold_in_the_middle(&url, &table.name);
        table.seed(with_keys("during", "1", json!({ "V": 1 })));
        client.delete_table(&table.name).expect(204);
        assert!(refused(&url, &table.name, &["8"], 1).contains("there is no table"));
        printed(&url, &["table", "undelete", &table.name]);
        table.seed(with_keys("after", "1", json!({ "V": 1 })));
        assert_eq!(table.count(), 302, "{kind}");
        until("the finding", || checked(&url).contains(&format!("/{} is being changed", table.name)));
        respread(&url, &table.name, "8");
        assert_eq!(table.count(), 302, "{kind}");
        leaves_nothing(&url);
        // If it is purged, both layouts are.
        respread(&url, &table.name, "2");
        hold_in_the_middle(&url, &table.name);
        client.delete_table(&table.name).expect(204);
        printed(&url, &["table", "purge", &table.name, "--yes"]);
        until("the purge", || text(&url, "SELECT count(*)::text FROM entities") == "0");
        leaves_nothing(&url);
    }
}

#[test]
fn what_cannot_follow_is_refused_and_what_can_follows() {
    let (url, account) = (fresh_database(), server::account(1).name);
    let site = Site::start(&url, &["--extended-queries", &account]);
    let client = site.client();
    let table = client.table();
    table.seed(with_keys("p", "1", json!({ "V": 1 })));
    let name = table.name.as_str();
    printed(&url, &["index", "create", name, "V"]);
    assert!(refused(&url, name, &["8"], 1).contains("property index"));
    printed(&url, &["index", "drop", name, "V"]);
    execute(&url, &printed(&url, &["view", "sql", name]));
    assert!(refused(&url, name, &["8"], 1).contains(&format!("SQL view {account}.")));
    execute(&url, &format!("DROP VIEW {account}.\"{name}\""));
    printed(&url, &["expire", "set", name, "--after", "1000d"]);
    hold_in_the_middle(&url, name);
    for late in [["index", "create", name, "V"], ["view", "sql", name, "--json"]] {
        let output = rowhouse(&url, &late);
        let told = String::from_utf8_lossy(&output.stderr);
        assert!(told.contains("`rowhouse table respread` is done"), "{told}");
    }
    assert!(printed(&url, &["expire", "list"]).contains(name), "the rule stays");
    let done: Value = serde_json::from_slice(&run(&url, name, &["8", "--json"]).stdout).expect("JSON");
    assert_eq!((&done["changed"], &done["copied"], &done["compared"]), (&json!(true), &json!(1), &json!(1)));
    let done: Value = serde_json::from_slice(&run(&url, name, &["8", "--json"]).stdout).expect("JSON");
    assert_eq!(done["changed"], false);
    assert!(printed(&url, &["expire", "list"]).contains(name), "the rule has followed");
    printed(&url, &["index", "create", name, "V"]);
    until("the index is known", || table.query("?$orderby=V%20desc").status == 200);
    assert_eq!(table.pages("$orderby=V%20desc").concat().len(), 1);
}

#[test]
fn wrong_arguments_have_an_exit_status_of_their_own() {
    let url = fresh_database();
    let _site = Site::start(&url, &[]);
    assert!(refused(&url, "Nope", &["8"], 1).contains("there is no table Nope"));
    assert!(refused(&url, "Nope", &["65"], 2).contains("65 is not in 1..=64"));
    assert!(refused(&url, "no", &["8"], 2).contains("not valid"));
    refused(&url, "Nope", &[], 2);
    assert!(refused("sqlite://none.db", "Nope", &["8"], 2).contains("SQLite keeps each table in one bucket"));
}
