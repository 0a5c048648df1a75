//! Copies that are resumed when the target has lost what they had written.

use super::copying::{Served, batch_rows, connection_string, copy, equal, start};
use super::cosmos_proxy::{COSMOS, as_cosmos};
use super::*;
use crate::support::postgres::text;

/// A source with a table of three pages, and one without entities.
fn source() -> Served {
    let source = Served::new(Site::sqlite());
    let client = source.client();
    client.create_table("Empty").expect(201);
    client.create_table("Orders").expect(201);
    batch_rows(&Table::new(&client, "Orders"), "a", 3000);
    source
}

/// Kills a copy in its last page.
fn interrupted(here: &Site, from: &str, to: &str, is_last_page: impl Fn() -> bool) {
    let slow = ["--state", "s", "--concurrency", "1", "--rate-limit", "100"];
    let mut child = start(here, from, to, &slow);
    until("two pages", is_last_page);
    child.kill().expect("it runs");
    child.wait().expect("it ended");
    assert!(here.folder.join("s").exists());
}

/// Demands that the copy is not resumed, for a reason with this word.
#[track_caller]
fn refused(source: &Served, to: &str, word: &str) {
    let arguments = ["copy", &source.connection_string(), to, "--state", "s"];
    source.site.ends(&arguments, 2, &[word, "state is in s: begin again with --restart"]);
}

/// How far the marks in a database are.
fn marked(target: &Site) -> String {
    let select = "SELECT coalesce(max(rk), '') FROM copy_marks";
    match target.url.strip_prefix("sqlite://") {
        Some(file) => {
            let read = |db: rusqlite::Connection| db.query_row(select, [], |row| row.get(0));
            // It is busy at times.
            rusqlite::Connection::open(file).and_then(read).unwrap_or_default()
        }
        None => text(&target.url, select),
    }
}

/// Removes the state of a copy.
fn forget(here: &Site) {
    for name in ["s", "s-wal", "s-shm"] {
        let _ = std::fs::remove_file(here.folder.join(name));
    }
}

#[test]
fn a_copy_is_not_resumed_in_a_database_that_lacks_what_it_had_written() {
    let source = source();
    for target in Site::both() {
        target.json(&["migrate"]);
        let (here, from, to) = (&source.site, source.connection_string(), target.url.as_str());
        interrupted(here, &from, to, || marked(&target).as_str() >= "001999");
        let state = ["s", "s-wal"].map(|name| std::fs::read(here.folder.join(name)).expect("a state"));
        // As in a backup of an earlier time.
        target.execute("UPDATE copy_marks SET rk = '0' || rk");
        refused(&source, to, "backup");
        target.execute("UPDATE copy_marks SET rk = substr(rk, 2); UPDATE tables SET account = 'hidden'");
        refused(&source, to, "was deleted from TO");
        target.execute(&format!("UPDATE tables SET account = '{}'", source.account.name));
        // One table has no entities yet.
        let told = "rowhouse: continues the copy that was interrupted; the state is in s";
        here.ends(&["copy", &from, to, "--state", "s"], 0, &[told, "3000 entities"]);
        equal(here, &from, to, &["--timestamps"]);
        // As in a backup that was made before the copy had begun to write.
        for (name, bytes) in ["s", "s-wal"].into_iter().zip(state) {
            std::fs::write(here.folder.join(name), bytes).expect("a state");
        }
        refused(&source, to, "backup");
        forget(here);
    }
}

#[test]
fn a_copy_of_a_place_without_an_order_is_not_resumed_in_a_backup_of_an_earlier_time() {
    let source = source();
    let here = &source.site;
    as_cosmos(source.server.address(), || {
        let from = connection_string(COSMOS, &source.account);
        let target = Site::postgres();
        target.json(&["migrate"]);
        let to = target.url.as_str();
        interrupted(here, &from, to, || marked(&target).as_str() >= "00000000000000000001");
        let resume = ["copy", &from, to, "--state", "s"];
        // Before all pages: the copy may have been killed before its state had the last one.
        target.execute("UPDATE copy_marks SET rk = ' ' || rk");
        here.ends(&resume, 2, &["backup", "begin again with --restart"]);
        target.execute("UPDATE copy_marks SET rk = substr(rk, 2)");
        here.ends(&resume, 0, &["2 tables copied", "0 rejected"]);
        equal(here, &source.connection_string(), to, &[]);
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
    interrupted(here, &from, &to, || is_there("001999"));
    client.request("DELETE", "/Tables('Orders')").send().expect(204);
    refused(&source, &to, "Orders was deleted from TO");
    client.request("GET", "/Orders()").unchecked().send().expect(404);
    client.create_table("Orders").expect(201);
    refused(&source, &to, "Orders of TO was emptied");
    let restart = ["--state", "s", "--restart"];
    assert_eq!(copy(here, &from, &to, &restart)["copied"], 3000);
    equal(here, &from, &to, &[]);
    here.ends(&[&["copy", &from, &to][..], &restart].concat(), 2, &["--restart: there is no state in s"]);
}

#[test]
fn a_complete_dump_is_continued_only_by_its_own_copy_and_never_discarded() {
    let here = Site::sqlite();
    let entity = |row: u32| format!("{{\"PartitionKey\":\"a\",\"RowKey\":\"{row}\",\"N\":1}}");
    here.write("People.json", format!("[{}]", (1..=1500).map(entity).collect::<Vec<_>>().join(",")));
    let (again, folder) = (["copy", "People.json", "dump:out"], here.folder.join("out"));
    let mut begun = start(&here, "People.json", "dump:out", &["--rate-limit", "100"]);
    let part = folder.join("People/000001-0001.ndjson.zst");
    until("a page", || std::fs::metadata(&part).is_ok_and(|part| part.len() > 0));
    begun.kill().expect("it runs");
    begun.wait().expect("it ended");
    let state = ["copy.state", "copy.state-wal"].map(|name| folder.join(name));
    let kept = state.each_ref().map(|path| std::fs::read(path).expect("a state"));
    here.ends(&again, 0, &["continues the copy"]);
    // As if the command had been killed before it removed the state.
    let killed = || {
        state.iter().zip(&kept).for_each(|(path, bytes)| std::fs::write(path, bytes).expect("a file"));
    };
    killed();
    here.ends(&again, 0, &["is complete already"]);
    assert!(!state[0].exists());
    // Without its state nothing is continued, and nothing of a complete dump is ever discarded.
    here.ends(&again, 2, &["complete dump"]);
    here.ends(&[&again[..], &["--restart"]].concat(), 2, &["no state"]);
    killed();
    here.ends(
        &[&again[..], &["--type", "N=Int64"]].concat(),
        2,
        &["a different --format, --table or --type"],
    );
    here.ends(&[&again[..], &["--type", "N=Int64", "--restart"]].concat(), 2, &["complete dump"]);
    here.write("People.json", "[]");
    here.ends(&again, 2, &["a different content of FROM", "--restart"]);
    assert_eq!(here.json(&["count", "dump:out"])["entities"], 1500);
}

#[test]
fn a_copy_that_reaches_nobody_leaves_no_state() {
    let here = Site::sqlite();
    here.write("People.json", "[{\"PartitionKey\":\"a\",\"RowKey\":\"1\"}]");
    let nobody = "AccountName=a;AccountKey=AA==;TableEndpoint=http://127.0.0.1:1/a";
    let output = here.ends(&["copy", "People.json", nobody, "--state", "s"], 1, &[]);
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(!said.contains("continues") && !here.folder.join("s").exists(), "{said}");
}
