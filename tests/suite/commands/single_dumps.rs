//! Dumps in one file.

use std::io::Read as _;
use std::process::Child;

use serde_json::json;
use sha2::{Digest as _, Sha256};

use super::copying::{Served, batch_rows, copy, equal, put_settings, seed, start, status_of};
use super::moving::scattered;
use super::*;

const FILE: &str = "whole.ndjson.zst";

/// The lines of a dump, with their ends.
fn lines(site: &Site, file: &str) -> Vec<String> {
    let mut text = String::new();
    let file = std::fs::File::open(site.folder.join(file)).expect("a file");
    zstd::stream::read::Decoder::new(file).expect("zstd").read_to_string(&mut text).expect("text");
    text.split_inclusive('\n').map(str::to_owned).collect()
}

fn parsed(line: &str) -> Value {
    serde_json::from_str(line).expect("JSON")
}

/// What the last line tells.
fn list(lines: &[String]) -> Value {
    parsed(lines.last().expect("a last line"))["rowhouse-dump-end"].clone()
}

#[test]
fn one_file_holds_all_that_a_folder_does() {
    for [from_site, to_site] in [[Site::sqlite(), Site::postgres()], [Site::postgres(), Site::sqlite()]] {
        let source = Served::new(from_site);
        let client = source.client();
        let table = client.table();
        seed(&client, &table);
        let other = client.table();
        batch_rows(&client, &other, "o", 120);
        client.create_table("Emptytable").expect(201);
        put_settings(&client, &table);
        let (here, from) = (&source.site, source.connection_string());
        assert_eq!(copy(here, &from, FILE, &[])["copied"], 2660);
        assert!(!here.folder.join(format!("{FILE}.partial")).exists());
        equal(here, &from, FILE, &["--timestamps"]);
        let output = here.run(&["copy", &from, "dump:verified.ndjson.zst", "--verify"]);
        assert!(output.status.success() && output.stdout.ends_with(b"\nequal\n"), "{output:?}");
        check_lines(&lines(here, FILE), &table.name);
        // The way back, with Timestamps, policies and properties.
        let to_account = ["--to-account", source.account.name.as_str()];
        assert_eq!(copy(here, FILE, &to_site.url, &to_account)["copied"], 2660);
        equal(here, FILE, &to_site.url, &[&to_account[..], &["--timestamps"]].concat());
        let from_account = ["--from-account", source.account.name.as_str()];
        copy(here, &to_site.url, "dump:again.ndjson.zst", &from_account);
        let [first, again] = [FILE, "again.ndjson.zst"].map(|file| list(&lines(here, file)));
        assert_eq!((&first["tables"], &first["properties"]), (&again["tables"], &again["properties"]));
        // One table, under another name; a part of it; and a folder from a file.
        let rename = format!("{}=Restored", other.name);
        let done = copy(
            here,
            FILE,
            &to_site.url,
            &[&to_account[..], &["--include", &other.name, "--rename", &rename]].concat(),
        );
        assert_eq!(done["copied"], 120);
        let done = copy(here, FILE, "dump:part", &["--include", &other.name, "--filter", "N lt 20"]);
        assert_eq!(done["copied"], 20);
        copy(here, FILE, "dump:folder", &[]);
        equal(here, FILE, "dump:folder", &["--timestamps"]);
        assert_eq!(here.json(&["count", FILE])["entities"], 2660);
    }
}

/// Checks the lines of a dump as a script would, without Rowhouse.
fn check_lines(lines: &[String], table: &str) {
    assert_eq!(parsed(&lines[0])["rowhouse-dump"]["version"], 1);
    let (last, before) = lines.split_last().expect("lines");
    let list = &parsed(last)["rowhouse-dump-end"];
    let digest: String = Sha256::digest(before.concat()).iter().map(|byte| format!("{byte:02x}")).collect();
    assert_eq!(list["sha256"], digest);
    let tables = list["tables"].as_array().expect("a list");
    assert_eq!(tables.len(), 3);
    for listed in tables {
        let is_of = |line: &&String| parsed(line)["odata.type"] == listed["name"];
        let entities = before[1..].iter().filter(is_of).count();
        assert_eq!(listed["entities"], entities, "{listed}");
        // A table without policies says so, for a restore that clears them.
        let policies = listed["policies"].as_str().expect("a list of policies");
        assert_eq!(policies != "[]", listed["name"] == table, "{listed}");
    }
    assert!(list["properties"].as_str().is_some_and(|text| text.contains("http://a.example")), "{list}");
    assert!(before[1..].iter().all(|line| parsed(line)["RowKey"].is_string()));
}

#[test]
fn a_large_table_is_read_in_several_pieces() {
    let source = Served::new(Site::sqlite());
    let client = source.client();
    let table = client.table();
    let text =
        |row: usize| (0..500).map(|n| format!("{:016x}", scattered(500 * row + n))).collect::<String>();
    for start in (0..2500).step_by(100) {
        let mut batch = Batch::new();
        for row in start..start + 100 {
            batch = batch.insert(&table, &with_keys("a", &format!("{row:06}"), json!({ "S": text(row) })));
        }
        batch.commit(&client);
    }
    let (here, from) = (&source.site, source.connection_string());
    copy(here, &from, FILE, &["--concurrency", "4"]);
    assert!(std::fs::metadata(here.folder.join(FILE)).expect("a file").len() > 9 << 20);
    let keys: Vec<String> =
        lines(here, FILE)[1..2501].iter().map(|line| parsed(line)["RowKey"].to_string()).collect();
    assert!(keys.is_sorted());
    let found = equal(here, FILE, &from, &["--concurrency", "4"]);
    assert_eq!(found["tables"][&table.name]["equal"], 2500, "{found}");
    copy(here, FILE, "dump:folder", &["--concurrency", "4"]);
    equal(here, &from, "dump:folder", &[]);
}

#[test]
fn what_is_not_whole_and_unaltered_is_refused_before_anything_is_written() {
    let source = Served::new(Site::sqlite());
    let client = source.client();
    let table = client.table();
    batch_rows(&client, &table, "a", 1300);
    let (here, from) = (&source.site, source.connection_string());
    copy(here, &from, FILE, &[]);
    let whole = std::fs::read(here.folder.join(FILE)).expect("a file");
    let text = lines(here, FILE);
    let frame = |text: &str| zstd::bulk::compress(text.as_bytes(), 1).expect("zstd");
    let page = |lines: &[String]| frame(&lines.concat());
    let (begin, entities, end) = (frame(&text[0]), &text[1..text.len() - 1], frame(&text[text.len() - 1]));
    let altered = entities.concat().replacen("\"N\":7,", "\"N\":8,", 1).replacen("\"N\":7}", "\"N\":8}", 1);
    let mut flipped = whole.clone();
    flipped[whole.len() / 2] ^= 1;
    let cases = [
        ("half", whole[..whole.len() / 2].to_vec(), "incomplete"),
        ("nearly whole", whole[..whole.len() - 1].to_vec(), "incomplete"),
        ("no last line", [begin.clone(), page(entities)].concat(), "last line is missing"),
        ("a byte", flipped, "damaged"),
        ("a value", [begin.clone(), frame(&altered), end.clone()].concat(), "SHA-256"),
        ("a line less", [begin.clone(), page(&entities[1..]), end.clone()].concat(), "SHA-256"),
        ("something behind", [whole.clone(), page(&entities[..1])].concat(), "follows"),
        ("rubbish behind", [whole.clone(), b"rubbish".to_vec()].concat(), "follows"),
        ("another program", frame(&text.concat()), "another program"),
        ("a later form", frame(&text[0].replace("\"version\":1", "\"version\":2")), "version"),
    ];
    let target = Site::sqlite();
    for (what, bytes, word) in cases {
        std::fs::write(here.folder.join("bad.ndjson.zst"), bytes).expect("a file");
        println!("{what}");
        status_of(here, &["copy", "bad.ndjson.zst", &target.url], 1, &["bad.ndjson.zst", word]);
        status_of(here, &["verify", &from, "dump:bad.ndjson.zst"], 1, &["bad.ndjson.zst", word]);
        assert!(!target.folder.join("tables.db").exists(), "{what}");
    }
    // Frames of other sizes are no harm.
    let other = [begin, page(&entities[..10]), page(&entities[10..]), end].concat();
    std::fs::write(here.folder.join("other.ndjson.zst"), other).expect("a file");
    equal(here, &from, "other.ndjson.zst", &[]);
    status_of(here, &["copy", "none.ndjson.zst", &target.url], 1, &["none.ndjson.zst"]);
    status_of(here, &["copy", &from, FILE], 2, &[FILE, "exists already"]);
    status_of(here, &["copy", &from, "new.ndjson.zst", "--resume"], 2, &["--resume", "begin again"]);
    assert_eq!(std::fs::read(here.folder.join(FILE)).expect("a file"), whole);
}

/// What a copy has left behind that was killed: more than the copies of this test write.
const LEFT_BEHIND: usize = 1 << 20;

/// Waits until a copy has begun its file.
fn begun(site: &Site, child: &mut Child) {
    let partial = site.folder.join(format!("{FILE}.partial"));
    soon("the file", || {
        std::fs::metadata(&partial).is_ok_and(|file| (1..LEFT_BEHIND as u64).contains(&file.len()))
    });
    assert!(child.try_wait().expect("a process").is_none());
}

#[test]
fn an_interrupted_copy_leaves_no_file_that_looks_whole() {
    let source = Served::new(Site::sqlite());
    let client = source.client();
    let table = client.table();
    batch_rows(&client, &table, "a", 3000);
    let (here, from) = (&source.site, source.connection_string());
    let slow = ["--rate-limit", "50"];
    let partial = here.folder.join(format!("{FILE}.partial"));
    let mut child = start(here, &from, FILE, &slow);
    begun(here, &mut child);
    // One copy at a time.
    status_of(here, &["copy", &from, FILE], 2, &["another copy"]);
    child.kill().expect("a process");
    child.wait().expect("its end");
    assert!(partial.exists() && !here.folder.join(FILE).exists());
    // A signal removes what there is, also from before.
    std::fs::write(&partial, vec![1; LEFT_BEHIND]).expect("a file");
    let mut child = start(here, &from, FILE, &slow);
    begun(here, &mut child);
    let pid = child.id().to_string();
    assert!(std::process::Command::new("kill").args(["-INT", &pid]).status().expect("kill").success());
    assert_eq!(child.wait().expect("its end").code(), Some(130));
    assert!(!partial.exists() && !here.folder.join(FILE).exists());
    // A full disk too.
    let limited = "trap '' XFSZ; ulimit -f 8; exec \"$@\"";
    let mut command = std::process::Command::new("sh");
    command.args(["-c", limited, "sh", env!("CARGO_BIN_EXE_rowhouse"), "copy", &from, FILE]);
    let output = command.current_dir(&here.folder).output().expect("a shell");
    assert_eq!(output.status.code(), Some(1), "{output:?}");
    assert!(String::from_utf8_lossy(&output.stderr).contains("begin again"), "{output:?}");
    assert!(!partial.exists() && !here.folder.join(FILE).exists());
    assert_eq!(copy(here, &from, FILE, &[])["copied"], 3000);
    equal(here, &from, FILE, &[]);
    assert!(
        !std::fs::read_dir(&here.folder)
            .expect("a folder")
            .flatten()
            .any(|file| { file.file_name().to_string_lossy().ends_with(".state") })
    );
}
