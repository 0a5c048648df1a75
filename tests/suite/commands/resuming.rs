//! Copies that are resumed when the target has lost what they had written.

use super::copying::{Served, batch_rows, connection_string, copy, equal, start, status_of};
use super::cosmos_proxy::{COSMOS, as_cosmos};
use super::*;
use crate::support::postgres::{execute, text};

/// A source with a table of three pages, and one without entities.
fn source() -> Served {
    let source = Served::new(Site::sqlite());
    let client = source.client();
    client.create_table("Empty").expect(201);
    client.create_table("Orders").expect(201);
    batch_rows(&client, &Table::new(&client, "Orders"), "a", 3000);
    source
}

/// Kills a copy in its last page.
fn interrupted(source: &Served, to: &str, is_last_page: impl Fn() -> bool) {
    let more = ["--state", "s", "--concurrency", "1", "--rate-limit", "100"];
    let mut child = start(&source.site, &source.connection_string(), to, &more);
    until("two pages", is_last_page);
    child.kill().expect("it runs");
    child.wait().expect("it ended");
    assert!(source.site.folder.join("s").exists());
}

/// Demands that the copy is not resumed, for a reason with this word.
#[track_caller]
fn refused(source: &Served, to: &str, word: &str) {
    let arguments = ["copy", &source.connection_string(), to, "--state", "s", "--resume"];
    status_of(&source.site, &arguments, 2, &[word, "remove s, and start the copy again"]);
}

/// Changes a database that no server has open.
fn change(url: &str, script: &str) {
    match url.strip_prefix("sqlite://") {
        Some(file) => {
            rusqlite::Connection::open(file).and_then(|db| db.execute_batch(script)).expect("a change")
        }
        None => execute(url, script),
    }
}

/// How far the marks in a database are.
fn marked(url: &str) -> String {
    let select = "SELECT coalesce(max(rk), '') FROM copy_marks";
    match url.strip_prefix("sqlite://") {
        Some(file) => {
            let read = |db: rusqlite::Connection| db.query_row(select, [], |row| row.get(0));
            // It is busy at times.
            rusqlite::Connection::open(file).and_then(read).unwrap_or_default()
        }
        None => text(url, select),
    }
}

#[test]
fn a_copy_is_not_resumed_in_a_database_that_lacks_what_it_had_written() {
    let source = source();
    for target in Site::both() {
        target.json(&["migrate"]);
        let (here, from, to) = (&source.site, source.connection_string(), target.url.as_str());
        interrupted(&source, to, || marked(to).as_str() >= "001999");
        let state = ["s", "s-wal"].map(|name| std::fs::read(here.folder.join(name)).expect("a state"));
        // As in a backup of an earlier time.
        change(to, "UPDATE copy_marks SET rk = '0' || rk");
        refused(&source, to, "backup");
        change(to, "UPDATE copy_marks SET rk = substr(rk, 2); UPDATE tables SET account = 'hidden'");
        refused(&source, to, "was deleted from TO");
        change(to, &format!("UPDATE tables SET account = '{}'", source.account.name));
        // One table has no entities yet.
        assert_eq!(copy(here, &from, to, &["--state", "s", "--resume"])["copied"], 3000);
        equal(here, &from, to, &["--timestamps"]);
        // As in a backup that was made before the copy had begun to write.
        for (name, bytes) in ["s", "s-wal"].into_iter().zip(state) {
            std::fs::write(here.folder.join(name), bytes).expect("a state");
        }
        refused(&source, to, "backup");
        for name in ["s", "s-wal", "s-shm"] {
            let _ = std::fs::remove_file(here.folder.join(name));
        }
    }
}

#[test]
fn a_copy_of_a_place_without_an_order_is_not_resumed_in_a_backup_of_an_earlier_time() {
    let source = source();
    let here = &source.site;
    as_cosmos(source.server.address(), || {
        let from = connection_string(COSMOS, &source.account);
        for target in Site::both() {
            target.json(&["migrate"]);
            let to = target.url.as_str();
            let more = ["--state", "s", "--concurrency", "1", "--rate-limit", "100"];
            let to_account = ["--to-account", &source.account.name];
            let mut child = start(here, &from, to, &[&more[..], &to_account].concat());
            until("two pages", || marked(to).as_str() >= "00000000000000000001");
            child.kill().expect("it runs");
            child.wait().expect("it ended");
            let resume = [&["copy", &from, to, "--state", "s", "--resume"][..], &to_account].concat();
            change(to, "UPDATE copy_marks SET rk = '0' || rk");
            status_of(here, &resume, 2, &["backup", "remove s, and start the copy again"]);
            change(to, "UPDATE copy_marks SET rk = substr(rk, 2)");
            status_of(here, &resume, 0, &["2 tables copied", "0 rejected"]);
            equal(here, &source.connection_string(), to, &to_account);
        }
    });
}

#[test]
fn a_copy_is_not_resumed_on_a_server_whose_table_was_deleted() {
    let (source, target) = (source(), Served::new(Site::sqlite()));
    let (here, from, to) = (&source.site, source.connection_string(), target.connection_string());
    let client = target.client();
    let is_there = |row: &str| {
        let path = format!("/Orders(PartitionKey='a',RowKey='{row}')");
        client.request("GET", &path).unchecked().send().status == 200
    };
    interrupted(&source, &to, || is_there("001999"));
    client.request("DELETE", "/Tables('Orders')").send().expect(204);
    refused(&source, &to, "Orders was deleted from TO");
    client.request("GET", "/Orders()").unchecked().send().expect(404);
    client.create_table("Orders").expect(201);
    refused(&source, &to, "Orders of TO was emptied");
    for name in ["s", "s-wal", "s-shm"] {
        let _ = std::fs::remove_file(here.folder.join(name));
    }
    assert_eq!(copy(here, &from, &to, &["--state", "s"])["copied"], 3000);
    equal(here, &from, &to, &[]);
}

#[test]
fn a_complete_dump_of_another_copy_is_not_taken_for_that_of_this_one() {
    let here = Site::sqlite();
    for (file, row) in [("People.json", "1"), ("Others.json", "2")] {
        let entity = format!("[{{\"PartitionKey\":\"a\",\"RowKey\":\"{row}\",\"N\":1}}]");
        std::fs::write(here.folder.join(file), entity).expect("a file");
    }
    copy(&here, "People.json", "dump:out", &[]);
    let again = ["copy", "People.json", "dump:out", "--resume"];
    status_of(&here, &again, 0, &["is complete"]);
    let words = ["complete dump of another copy"];
    status_of(&here, &["copy", "Others.json", "dump:out", "--table", "People", "--resume"], 2, &words);
    status_of(&here, &[&again[..], &["--type", "N=Int64"]].concat(), 2, &words);
    std::fs::write(here.folder.join("People.json"), "[]").expect("a file");
    status_of(&here, &again, 2, &words);
}

#[test]
fn a_copy_that_reaches_nobody_leaves_no_state() {
    let here = Site::sqlite();
    std::fs::write(here.folder.join("People.json"), "[{\"PartitionKey\":\"a\",\"RowKey\":\"1\"}]")
        .expect("a file");
    let nobody = "AccountName=a;AccountKey=AA==;TableEndpoint=http://127.0.0.1:1/a";
    let output = here.run(&["copy", "People.json", nobody, "--state", "s"]);
    assert_eq!(output.status.code(), Some(1), "{output:?}");
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(!said.contains("--resume") && !here.folder.join("s").exists(), "{said}");
}
