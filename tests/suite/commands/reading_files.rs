//! Files while they are read into temporary ones.

use std::io::Write as _;
use std::process::{Child, Command, Stdio};

use super::*;

/// A copy that reads a file for some seconds.
struct Reading {
    child: Child,
    temporary: PathBuf,
    /// Folders that were there before it.
    former: Vec<PathBuf>,
}

/// Writes a file that takes a while to read.
pub fn write_large(site: &Site) {
    let file = std::fs::File::create(site.folder.join("People.json")).expect("a file");
    let mut file = std::io::BufWriter::new(file);
    for row in 0..1_000_000 {
        writeln!(file, "{{\"PartitionKey\":\"a\",\"RowKey\":\"{row:08}\",\"N\":{row}}}").expect("a line");
    }
}

impl Reading {
    fn start(site: &Site) -> Self {
        let temporary = site.folder.join("tmp");
        std::fs::create_dir_all(&temporary).expect("a folder");
        let former = std::fs::read_dir(&temporary).expect("a folder").flatten();
        let former = former.map(|folder| folder.path()).collect();
        // Under nohup, the tests ignore this signal, and their children would, too.
        let mut command = Command::new("env");
        command.args(["--default-signal=HUP", env!("CARGO_BIN_EXE_rowhouse")]);
        command.args(["copy", "People.json", "dump:out"]);
        command
            .current_dir(&site.folder)
            .env("TMPDIR", &temporary)
            .stdout(Stdio::piped())
            .stderr(Stdio::piped());
        Self { child: command.spawn().expect("the binary runs"), temporary, former }
    }

    /// Waits until it has read something.
    fn begun(&self) {
        until("a temporary database", || {
            let folders = std::fs::read_dir(&self.temporary).expect("a folder").flatten();
            let mut folders = folders.map(|folder| folder.path());
            folders.any(|folder| !self.former.contains(&folder) && folder.join("staged.db").is_file())
        });
    }

    fn left(&self) -> usize {
        std::fs::read_dir(&self.temporary).expect("a folder").count()
    }
}

#[test]
fn signals_end_the_reading_of_a_file_and_what_a_killed_copy_has_left_is_removed() {
    let site = Site::sqlite();
    write_large(&site);
    for name in ["INT", "TERM", "HUP"] {
        let reading = Reading::start(&site);
        reading.begun();
        signal(&reading.child, name);
        let temporary = reading.temporary.clone();
        let output = reading.child.wait_with_output().expect("its end");
        assert_eq!(output.status.code(), Some(130), "{output:?}");
        assert_eq!(std::fs::read_dir(temporary).expect("a folder").count(), 0);
        assert!(!site.folder.join("out/manifest.json").exists());
    }
    let mut killed = Reading::start(&site);
    killed.begun();
    killed.child.kill().expect("a signal");
    killed.child.wait().expect("its end");
    assert_eq!(killed.left(), 1);
    // What another one still uses stays.
    let mut used = Reading::start(&site);
    used.begun();
    // It keeps its folder until it is killed.
    signal(&used.child, "STOP");
    let before = used.left();
    site.write("Small.json", "[]");
    let temporary = used.temporary.display().to_string();
    let small = site.run_with(&["copy", "Small.json", "dump:small"], &[("TMPDIR", &temporary)]);
    let after = used.left();
    used.child.kill().expect("a signal");
    used.child.wait().expect("its end");
    assert!(small.status.success(), "{small:?}");
    assert_eq!((before, after), (1, 1));
}

#[test]
fn a_file_of_something_else_than_entities_is_refused_before_it_fills_the_disk() {
    let site = Site::sqlite();
    let endless = "x".repeat(33 << 20);
    for (file, content, told) in [
        ("People.json", format!("[{}1]", "1,".repeat(100_000)), "are no entities"),
        ("Cities.json", "{}\n".repeat(100_000), "are no entities"),
        (
            "Endless.json",
            format!("[{{\"PartitionKey\":\"a\",\"RowKey\":\"1\",\"S\":\"{endless}\"}}]"),
            "more than 33554432 bytes",
        ),
        ("Endless.csv", format!("PartitionKey,RowKey,S\na,1,\"{endless}\"\n"), "more than 33554432 bytes"),
    ] {
        site.write(file, content);
        site.ends(&["copy", file, "dump:out", "--state", "s"], 1, &[told]);
        assert!(!site.folder.join("s.rejects.jsonl").exists(), "{file}");
    }
}

#[test]
fn a_place_for_temporary_files_without_room_is_named() {
    let site = Site::sqlite();
    write_large(&site);
    std::fs::create_dir(site.folder.join("tmp")).expect("a folder");
    let mut command = without_room(&site.folder, 1000, &["copy", "People.json", "dump:out"]);
    let output = command.env("TMPDIR", "tmp").output().expect("a shell");
    failed(&output, &["temporary files in tmp: "]);
    assert_eq!(std::fs::read_dir(site.folder.join("tmp")).expect("a folder").count(), 0);
}
