//! Copies from standard input and to standard output.

use std::io::Write as _;
use std::process::Stdio;

use serde_json::json;

use super::*;

/// Starts a command whose streams are pipes.
fn start(site: &Site, arguments: &[&str]) -> Child {
    let mut command = Command::new(env!("CARGO_BIN_EXE_rowhouse"));
    command.args(arguments).current_dir(&site.folder).env("TMPDIR", &site.folder);
    command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
    command.spawn().expect("the binary runs")
}

/// Runs a command with this text on standard input.
fn fed(site: &Site, arguments: &[&str], text: &[u8]) -> Output {
    let mut child = start(site, arguments);
    child.stdin.take().expect("a pipe").write_all(text).expect("it reads");
    child.wait_with_output().expect("its end")
}

/// Writes a file with entities of the table People, in key order.
fn people(site: &Site, rows: usize) {
    let entity = |row| json!({ "PartitionKey": "p", "RowKey": format!("{row:06}"), "N": row }).to_string();
    site.write("People.json", (0..rows).map(|row| entity(row) + "\n").collect::<String>());
}

#[test]
fn entities_go_through_pipes_and_stay_equal() {
    let site = Site::sqlite();
    people(&site, 1200);
    let written = site.run(&["copy", "People.json", "-"]);
    assert!(written.status.success(), "{written:?}");
    let said = String::from_utf8_lossy(&written.stderr);
    assert!(
        said.contains("People.json -> -\n") && said.contains("1200 entities of 1 tables copied"),
        "{said}"
    );
    let lines: Vec<Value> = written
        .stdout
        .split(|byte| *byte == b'\n')
        .filter(|line| !line.is_empty())
        .map(|line| serde_json::from_slice(line).expect("JSON"))
        .collect();
    assert_eq!((lines.len(), &lines[7]["N"]), (1200, &json!(7)));
    let copying = ["copy", "-", "sqlite://to.db", "--table", "People", "--json"];
    let copied = fed(&site, &copying, &written.stdout);
    let summary: Value = serde_json::from_slice(&copied.stdout).expect("JSON");
    assert_eq!((&summary["copied"], &summary["from"]), (&json!(1200), &json!("-")));
    let verified = fed(&site, &["verify", "-", "sqlite://to.db", "--table", "People"], &written.stdout);
    assert!(verified.status.success(), "{verified:?}");
    // Neither copy has left a state.
    let names = std::fs::read_dir(&site.folder).expect("a folder").flatten().map(|entry| entry.file_name());
    let left = names.filter(|name| name.to_string_lossy().starts_with("rowhouse-"));
    assert_eq!(left.count(), 0);
}

#[test]
fn what_pipes_cannot_do_is_refused() {
    let site = Site::sqlite();
    people(&site, 3);
    site.write("both/People.json", site.read("People.json"));
    site.write("both/Cities.json", site.read("People.json"));
    for (arguments, words) in [
        (&["copy", "both", "-"][..], &["takes the entities of one table", "2 are selected", "--include"][..]),
        (&["copy", "People.json", "-", "--mirror", "--yes"], &["--mirror: TO begins empty"]),
        (&["copy", "People.json", "-", "--verify"], &["--verify: standard output"]),
        (&["copy", "People.json", "-", "--restart"], &["--restart", "has no state"]),
        (
            &["copy", "-", "dump:x", "--table", "People", "--since", "2020-01-01"],
            &["--since: standard input"],
        ),
        (&["copy", "-", "-"], &["same"]),
        (&["delete-where", "-", "People", "N eq 1"], &["standard output can only be written"]),
    ] {
        site.ends(arguments, 2, words);
    }
    site.ends(&["copy", "both", "-", "--include", "Cities"], 0, &["3 entities of 1 tables copied"]);
    let unnamed = fed(&site, &["count", "-"], b"[]");
    assert_eq!(unnamed.status.code(), Some(2), "{unnamed:?}");
    let said = String::from_utf8_lossy(&unnamed.stderr);
    assert!(said.contains("standard input: ") && said.contains("--table"), "{said}");
}

#[test]
fn a_closed_pipe_and_a_signal_end_a_copy() {
    let site = Site::sqlite();
    people(&site, 3);
    let mut child = start(&site, &["copy", "People.json", "-"]);
    drop(child.stdout.take());
    let output = child.wait_with_output().expect("its end");
    assert_eq!(output.status.code(), Some(1), "{output:?}");
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(said.contains("TO: standard output: ") && !said.contains("panicked"), "{said}");
    // While standard input stays open, nothing is copied yet.
    let mut child = start(&site, &["copy", "-", "sqlite://to.db", "--table", "People"]);
    let _open = child.stdin.take();
    let is_spooled = |entry: std::fs::DirEntry| entry.path().join("standard input").exists();
    until("standard input is read", || {
        std::fs::read_dir(&site.folder).expect("a folder").flatten().any(is_spooled)
    });
    signal(&child, "INT");
    let output = child.wait_with_output().expect("its end");
    assert_eq!(output.status.code(), Some(130), "{output:?}");
    assert!(!site.folder.join("to.db").exists());
}
