//! `rowhouse follow`, while applications write to the source and when they move to the target.

use std::io::{BufRead as _, BufReader, Lines};
use std::process::{Child, ChildStdout, Command, Stdio};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};

use serde_json::json;

use super::copying::{Served, acl_path, batch_rows, connection_string, equal, put, seed, settings};
use super::faulty_proxy::FaultyProxy;
use super::*;
use crate::promises::site::End;
use crate::support::sas::{Sas, time};
use crate::support::wait::until;

/// A follower with a round each second.
struct Follower {
    child: Child,
    rounds: Lines<BufReader<ChildStdout>>,
    said: Arc<Mutex<String>>,
}

/// Number of reports to wait for one with a property.
const MAX_REPORTS: usize = 300;

impl Follower {
    fn start(site: &Site, from: &str, to: &str, more: &[&str]) -> Self {
        let mut command = Command::new(env!("CARGO_BIN_EXE_rowhouse"));
        command.args(["follow", from, to, "--json", "--interval", "1"]).args(more);
        let command = command.current_dir(&site.folder).env("ROWHOUSE_MASTER_KEY", MASTER);
        let mut child = command
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .expect("it runs");
        let rounds = BufReader::new(child.stdout.take().expect("its output")).lines();
        let (said, errors) =
            (Arc::new(Mutex::new(String::new())), child.stderr.take().expect("its messages"));
        let heard = said.clone();
        std::thread::spawn(move || {
            for line in BufReader::new(errors).lines().map_while(Result::ok) {
                *heard.lock().expect("text") += &format!("{line}\n");
            }
        });
        Self { child, rounds, said }
    }

    fn said(&self) -> String {
        self.said.lock().expect("text").clone()
    }

    /// Waits for the next report with this property. Rounds take at least a second each.
    #[track_caller]
    fn wait(&mut self, mut has: impl FnMut(&Value) -> bool) -> Value {
        for _ in 0..MAX_REPORTS {
            let Some(line) = self.rounds.next() else { panic!("the follower has ended: {}", self.said()) };
            let report = serde_json::from_str(&line.expect("text")).expect("JSON");
            if has(&report) {
                return report;
            }
        }
        panic!("{MAX_REPORTS} reports lack the property: {}", self.said())
    }

    /// Asks for the last round; returns the exit status and the proof.
    fn finish(mut self) -> (Option<i32>, Value) {
        signal(&self.child, "USR1");
        let mut proof = Value::Null;
        for line in self.rounds.by_ref() {
            proof = serde_json::from_str(&line.expect("text")).expect("JSON");
        }
        (self.child.wait().expect("its end").code(), proof)
    }

    fn kill(mut self) {
        self.child.kill().expect("a process");
        self.child.wait().expect("its end");
    }
}

fn is_round(report: &Value) -> bool {
    report["report"] == "follow"
}

fn acl(id: &str) -> String {
    format!(
        "<?xml version=\"1.0\" encoding=\"utf-8\"?><SignedIdentifiers><SignedIdentifier><Id>{id}</Id><AccessPolicy>\
         <Expiry>2040-01-01T00:00:00.0000000Z</Expiry><Permission>r</Permission></AccessPolicy></SignedIdentifier>\
         </SignedIdentifiers>"
    )
}

fn upsert(table: &Table<'_>, partition: &str, row: &str, properties: Value) {
    let entity = with_keys(partition, row, properties);
    table.replace(partition, row, &entity, None).expect(204);
}

/// Writes to a table until it is stopped: inserts, replaces and deletes.
fn write_until(table: &Table<'_>, is_over: &AtomicBool, written: &AtomicUsize) {
    for number in 0.. {
        if is_over.load(Ordering::Relaxed) {
            return;
        }
        let key = format!("{:05}", number % 400);
        upsert(table, "live", &key, json!({ "N": number }));
        if number % 7 == 3 {
            table.delete("live", &key, Some("*")).expect(204);
        }
        written.fetch_add(1, Ordering::Relaxed);
    }
}

#[test]
fn tables_entities_and_policies_follow_while_others_write() {
    for site in Site::both() {
        let source = Served::new(site);
        let client = source.client();
        let [kept, dropped, live] = [client.table(), client.table(), client.table()];
        seed(&kept);
        batch_rows(&dropped, "a", 10);
        put(&client, &acl_path(&kept.name), &acl("first"));
        let target = Served::new(Site::sqlite());
        let there = target.client();
        let (from, to) = (source.connection_string(), target.connection_string());
        let (is_over, written) = (AtomicBool::new(false), AtomicUsize::new(0));
        std::thread::scope(|scope| {
            let _end = End(&is_over);
            scope.spawn(|| write_until(&live, &is_over, &written));
            let mut follower = Follower::start(&source.site, &from, &to, &["--metrics", "follow.prom"]);
            follower.wait(is_round);
            // Tables and policies change, and a table without writes loses an entity.
            kept.delete("many", "000007", Some("*")).expect(204);
            put(&client, &acl_path(&kept.name), &acl("second"));
            client.delete_table(&dropped.name).expect(204);
            let made = client.table();
            batch_rows(&made, "a", 1200);
            put(&client, &acl_path(&made.name), &acl("made"));
            // A round may begin between two of these changes, so several rounds may report them.
            let mut sums = [0; 3];
            let round = follower.wait(|report| {
                let counted = [(&made, "written"), (&kept, "deleted"), (&live, "written")];
                for (sum, (table, outcome)) in sums.iter_mut().zip(counted) {
                    *sum += report["tables"][&table.name][outcome].as_u64().unwrap_or(0);
                }
                sums[..2] == [1200, 1] && sums[2] > 0
            });
            assert!(round["tables"][&dropped.name].is_null(), "{round}");
            is_over.store(true, Ordering::Relaxed);
            let (status, proof) = follower.finish();
            assert_eq!((status, &proof["equal"]), (Some(0), &json!(true)), "{proof}");
            there.request("GET", &format!("/{}()", dropped.name)).send().expect(404);
            assert!(settings(&there, &acl_path(&made.name)).contains("made"));
        });
        let metrics = source.site.read("follow.prom");
        for name in [
            "rounds_total",
            "lag_seconds",
            "table_lag_seconds{table=",
            "entities_total{outcome=\"deleted\"} ",
        ] {
            assert!(metrics.contains(&format!("rowhouse_follow_{name}")), "{metrics}");
        }
        equal(&source.site, &from, &to, &[]);
    }
}

/// The commands of the first example of docs/how-to/migrate.md.
fn documented_commands() -> String {
    let page = include_str!(concat!(env!("CARGO_MANIFEST_DIR"), "/docs/how-to/migrate.md"));
    let example = page.split("```sh\n").nth(1).and_then(|rest| rest.split("```").next()).expect("an example");
    let commands = example.lines().filter(|line| !line.starts_with("export "));
    let commands: Vec<&str> = commands.skip_while(|line| line.is_empty()).collect();
    assert_eq!(commands.iter().filter(|line| !line.starts_with('#')).count(), 5, "{commands:?}");
    commands.join("\n")
}

#[test]
fn the_documented_move_loses_nothing_and_can_be_undone() {
    let source = Served::new(Site::postgres());
    let client = source.client();
    let [kept, live] = [client.table(), client.table()];
    batch_rows(&kept, "a", 300);
    put(&client, &acl_path(&kept.name), &acl("kept"));
    let target = Served::new(Site::sqlite());
    let (from, to) = (source.connection_string(), target.connection_string());
    // The script waits at the comment about stopping all writers, and ends with the way back.
    let stop =
        "touch writers-may-stop; until [ -e writers-have-stopped ]; do sleep 0.1; done; date +%s%N > stopped";
    let script = documented_commands()
        .replace("follow env:AZURE env:ROWHOUSE &", "follow env:AZURE env:ROWHOUSE --interval 1 > rounds &")
        .replace("# Stop all writers of AZURE", &format!("until [ -s rounds ]; do sleep 0.1; done; {stop} #"))
        .replace("# Start the applications", "date +%s%N > finished #")
        .replace("env:AZURE --yes", "env:AZURE --yes --finish");
    let (is_over, written) = (AtomicBool::new(false), AtomicUsize::new(0));
    let output = std::thread::scope(|scope| {
        let writer = scope.spawn(|| write_until(&live, &is_over, &written));
        let mut command = bash(&source.site.folder, &script);
        let script = command.env("AZURE", &from).env("ROWHOUSE", &to).stdin(Stdio::null());
        let script = script.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().expect("bash runs");
        until("a round", || source.site.folder.join("writers-may-stop").exists());
        is_over.store(true, Ordering::Relaxed);
        writer.join().expect("it writes");
        source.site.write("writers-have-stopped", "");
        script.wait_with_output().expect("its end")
    });
    assert!(output.status.success(), "{output:?}");
    assert!(written.load(Ordering::Relaxed) > 5);
    let time = |file: &str| source.site.read(file).trim().parse::<u64>().expect("nanoseconds");
    println!("the outage: {:?}", Duration::from_nanos(time("finished") - time("stopped")));
    assert!(source.site.read("rounds").ends_with("\nequal\n"), "{}", source.site.read("rounds"));
    let printed = String::from_utf8_lossy(&output.stdout);
    assert_eq!(printed.matches("\nequal\n").count(), 2, "verify and the way back: {printed}");
    equal(&source.site, &from, &to, &[]);
}

#[test]
fn a_killed_follower_continues_and_proves_what_it_has_missed() {
    let source = Served::new(Site::sqlite());
    let client = source.client();
    let table = client.table();
    batch_rows(&table, "a", 1500);
    let target = Served::new(Site::postgres());
    let (from, to) = (source.connection_string(), target.connection_string());
    let mut follower = Follower::start(&source.site, &from, &to, &[]);
    follower.wait(is_round);
    follower.kill();
    table.delete("a", "000003", Some("*")).expect(204);
    upsert(&table, "a", "000004", json!({ "N": "changed" }));
    // Another program has changed the target.
    upsert(&Table::new(&target.client(), &table.name), "b", "extra", json!({}));
    let finish = ["follow", &from, &to, "--finish", "--json"];
    let output = source.site.ends(&finish, 0, &[]);
    let proof: Value = serde_json::from_slice(&output.stdout).expect("JSON");
    assert_eq!((&proof["written"], &proof["deleted"]), (&json!(1), &json!(2)), "{proof}");
    equal(&source.site, &from, &to, &[]);
    // Applications may have moved since, so that a second run could delete their entities.
    source.site.ends(&finish, 2, &["an earlier run has proved", "--yes"]);
    let again = source.site.ends(&[&finish[..], &["--yes"]].concat(), 0, &[]);
    let again: Value = serde_json::from_slice(&again.stdout).expect("JSON");
    assert_eq!((&again["written"], &again["deleted"]), (&json!(0), &json!(0)), "{again}");
}

#[test]
fn a_target_gets_back_what_others_have_deleted_there() {
    let source = Served::new(Site::sqlite());
    let client = source.client();
    let [kept, emptied] = [client.table(), client.table()];
    for table in [&kept, &emptied] {
        batch_rows(table, "a", 30);
    }
    let target = Served::new(Site::sqlite());
    let (from, to, there) = (source.connection_string(), target.connection_string(), target.client());
    let mut follower = Follower::start(&source.site, &from, &to, &[]);
    // The second round ends after all entities were found in the target.
    follower.wait(is_round);
    follower.wait(is_round);
    Table::new(&there, &kept.name).delete("a", "000001", Some("*")).expect(204);
    there.delete_table(&emptied.name).expect(204);
    follower.wait(|report| report["tables"][&emptied.name]["written"] == 30);
    let (status, proof) = follower.finish();
    assert_eq!((status, &proof["equal"]), (Some(0), &json!(true)), "{proof}");
    equal(&source.site, &from, &to, &[]);
}

#[test]
fn a_database_is_followed_with_its_timestamps() {
    for site in Site::both() {
        let source = Served::new(site);
        let client = source.client();
        let table = client.table();
        batch_rows(&table, "a", 30);
        let target = Site::postgres();
        let account = &source.account.name;
        let [from, to] = [&source.site, &target].map(|site| format!("{}#{account}", site.url));
        let finish = || source.site.ends(&["follow", &from, &to, "--finish", "--yes"], 0, &["equal"]);
        finish();
        upsert(&table, "a", "000001", json!({ "N": 1 }));
        table.delete("a", "000002", Some("*")).expect(204);
        finish();
        equal(&source.site, &from, &to, &["--timestamps"]);
    }
}

#[test]
fn throttled_lost_and_cut_answers_delay_a_follower_and_do_not_mislead_it() {
    let source = Served::new(Site::sqlite());
    let client = source.client();
    let table = client.table();
    seed(&table);
    let target = Served::new(Site::sqlite());
    let proxies = [&source, &target].map(|served| FaultyProxy::before(served.server.address(), "following"));
    let from = connection_string(&proxies[0].address, &source.account);
    let to = connection_string(&proxies[1].address, &target.account);
    let mut follower = Follower::start(&source.site, &from, &to, &[]);
    follower.wait(is_round);
    table.delete("many", "000100", Some("*")).expect(204);
    upsert(&table, "many", "000101", json!({ "N": "changed" }));
    follower.wait(is_round);
    let (status, proof) = follower.finish();
    assert_eq!(status, Some(0), "{proof}");
    equal(&source.site, &source.connection_string(), &target.connection_string(), &[]);
}

#[test]
fn a_signature_that_expires_is_named_and_can_be_renewed() {
    let source = Served::new(Site::sqlite());
    let client = source.client();
    let table = client.table();
    batch_rows(&table, "a", 20);
    let target = Served::new(Site::sqlite());
    let (name, address) = (&source.account.name, source.server.address());
    let sign = |seconds: i64| {
        let expiry = time(seconds);
        let token = Sas::account("sco", "rl").set("se", &expiry).query(&source.account);
        let place =
            format!("AccountName={name};SharedAccessSignature={token};TableEndpoint=http://{address}/{name}");
        source.site.write("from.txt", place);
        expiry
    };
    let expiry = sign(6);
    let mut follower = Follower::start(&source.site, "file:from.txt", &target.connection_string(), &[]);
    follower.wait(is_round);
    let failure = follower.wait(|report| report["report"] == "followFailure");
    let reason = failure["error"].as_str().expect("a reason");
    assert!(reason.contains("the signature of FROM is valid until") && reason.contains(&expiry), "{reason}");
    sign(3600);
    upsert(&table, "b", "new", json!({}));
    follower.wait(|report| report["tables"][&table.name]["written"] == 1);
    // A SAS cannot read policies, so they are not proved to be equal.
    let (status, proof) = follower.finish();
    assert_eq!((status, &proof["equal"]), (Some(4), &json!(false)), "{proof}");
    assert_eq!(proof["differing"], json!([]));
    assert!(!proof["notCompared"].as_array().expect("a list").is_empty(), "{proof}");
}

#[test]
fn places_that_cannot_be_followed_are_refused() {
    let target = Served::new(Site::sqlite());
    let (site, to) = (&target.site, target.connection_string());
    std::fs::create_dir(site.folder.join("old")).expect("a folder");
    let cosmos = "AccountName=a;AccountKey=AA==;TableEndpoint=https://a.table.cosmos.azure.com";
    let secondary = to.replace("TableEndpoint=http://127.0.0.1", "TableEndpoint=http://a-secondary.example");
    for (from, words) in [
        ("dump:old", "FROM is a file or dump"),
        ("old", "FROM is a file or dump"),
        (cosmos, "FROM is Cosmos DB"),
        (&secondary, "FROM is a secondary region"),
        (to.as_str(), "FROM and TO are the same"),
    ] {
        site.ends(&["follow", from, &to], 2, &[words]);
    }
    let other = Served::new(Site::sqlite());
    let from = other.connection_string();
    site.ends(&["follow", &from, &to], 2, &["FROM has no table to follow"]);
    site.ends(&["follow", &from, &to, "--restart"], 2, &["--restart: there is no state"]);
    let wrong = from.replace(&other.account.keys[0], &target.account.keys[0]);
    if wrong != from {
        site.ends(&["follow", &wrong, &to], 1, &["FROM", "AuthenticationFailed"]);
    }
}

#[test]
fn entities_of_the_target_are_deleted_only_after_a_question() {
    let source = Served::new(Site::sqlite());
    let client = source.client();
    let table = client.table();
    batch_rows(&table, "a", 3);
    let target = Served::new(Site::sqlite());
    let there = target.client();
    there.create_table(&table.name).expect(201);
    upsert(&Table::new(&there, &table.name), "b", "old", json!({}));
    let (from, to) = (source.connection_string(), target.connection_string());
    let asked = format!("TO has entities in {} (1)", table.name);
    source.site.ends(&["follow", &from, &to, "--finish"], 2, &[&asked, "--yes"]);
    source.site.ends(&["follow", &from, &to, "--finish", "--yes"], 0, &["1 deleted", "equal"]);
    equal(&source.site, &from, &to, &[]);
}
