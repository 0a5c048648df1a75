//! `rowhouse backup`.

use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use serde_json::json;

use super::*;

fn row(number: usize) -> String {
    format!("{number:06}")
}

/// Names of the folder's files that begin like this.
fn files(folder: &Path, prefix: &str) -> Vec<String> {
    let names = std::fs::read_dir(folder).expect("a folder").flatten().map(|file| file.file_name());
    names.filter_map(|name| name.into_string().ok()).filter(|name| name.starts_with(prefix)).collect()
}

/// A database with so many entities.
fn filled(entities: u32) -> Site {
    let site = Site::sqlite();
    site.json(&["migrate"]);
    let rows = format!(
        "WITH RECURSIVE n(i) AS (VALUES (1) UNION ALL SELECT i + 1 FROM n WHERE i < {entities})
         INSERT INTO entities SELECT 1, 'p', i, 0, '{{}}' FROM n"
    );
    site.execute(&rows);
    site
}

#[test]
fn a_backup_beside_writes_holds_all_that_was_acknowledged_before() {
    let site = Site::sqlite();
    let (_server, client) = site.served(&[]);
    let table = client.table();
    let (acknowledged, over) = (AtomicUsize::new(0), AtomicBool::new(false));
    let copies = std::thread::scope(|scope| {
        scope.spawn(|| {
            while !over.load(Ordering::Relaxed) {
                let number = acknowledged.load(Ordering::Relaxed);
                table.seed(with_keys("p", &row(number), json!({ "A": "x".repeat(1000) })));
                acknowledged.store(number + 1, Ordering::Relaxed);
            }
        });
        let copies = ["one.db", "two.db", "three.db"].map(|name| {
            until("a write", || acknowledged.load(Ordering::Relaxed) >= 50);
            let before = acknowledged.load(Ordering::Relaxed);
            (name, before, site.json(&["backup", name]))
        });
        over.store(true, Ordering::Relaxed);
        copies
    });
    for (name, before, printed) in copies {
        let file = site.folder.join(name);
        assert_eq!(printed["bytes"].as_u64(), file.metadata().ok().map(|found| found.len()), "{printed}");
        assert_eq!((&printed["tables"], &printed["file"]), (&json!(1), &json!(name)));
        assert!(printed["entities"].as_u64().is_some_and(|entities| entities >= before as u64), "{printed}");
        let url = format!("sqlite://{}", file.display());
        let copy = Site { folder: fresh_folder(), url };
        let (_server, client) = copy.served(&[]);
        let table = Table::new(&client, &table.name);
        for number in 0..before {
            table.get("p", &row(number)).expect(200);
        }
        table.seed(with_keys("q", "new", json!({})));
    }
    assert!(!files(&site.folder, "").iter().any(|name| name.contains("partial")));
}

#[test]
fn a_backup_replaces_nothing_and_copies_only_what_is_there() {
    let site = Site::sqlite();
    site.fails(&["backup", "copy.db"], &["no file", "tables.db"]);
    site.json(&["migrate"]);
    site.write("copy.db", "precious");
    site.fails(&["backup", "copy.db"], &["copy.db", "exists"]);
    site.fails(&["backup", "tables.db"], &["tables.db", "exists"]);
    assert_eq!(site.read("copy.db"), "precious");
    site.fails(&["backup", "none/copy.db"], &["none/copy.db"]);
    site.fails(&["backup", "copy2.db", "--database-url", "sqlite::memory:"], &["memory"]);
    let other = Site::sqlite();
    other.execute("CREATE TABLE a (b)");
    site.fails(
        &["backup", "copy2.db", "--database-url", &other.url],
        &["tables.db", "not a Rowhouse database"],
    );
    assert_eq!(files(&site.folder, "copy"), ["copy.db"]);
    site.ends(&["backup", "copy2.db"], 0, &["copy2.db is a backup of sqlite://"]);
    // PostgreSQL has tools of its own for that.
    let postgres = ["backup", "copy3.db", "--database-url", "postgres://somebody@localhost/rowhouse"];
    site.fails(&postgres, &["pg_dump", "base backups"]);
    assert!(!site.folder.join("copy3.db").exists());
}

#[cfg(target_os = "linux")]
#[test]
fn a_backup_that_finds_no_space_leaves_nothing() {
    let site = filled(50_000);
    let arguments = ["backup", "copy.db", "--database-url", &site.url];
    let output = without_room(&site.folder, 1000, &arguments).output().expect("a shell");
    failed(&output, &["cannot copy"]);
    assert_eq!(files(&site.folder, "copy"), Vec::<String>::new());
}

#[test]
fn a_backup_that_is_told_to_stop_leaves_nothing() {
    let site = filled(200_000);
    for signal in ["INT", "TERM"] {
        let child = Command::new(env!("CARGO_BIN_EXE_rowhouse"))
            .args(["backup", "copy.db", "--database-url", &site.url])
            .current_dir(&site.folder)
            .stderr(Stdio::piped())
            .spawn()
            .expect("the binary runs");
        until("the copy", || !files(&site.folder, "copy").is_empty());
        let sent = Command::new("kill").args(["-s", signal, &child.id().to_string()]).status();
        let output = child.wait_with_output().expect("an end");
        let left = files(&site.folder, "copy");
        if output.status.success() {
            // Done before it was told.
            assert_eq!(left, ["copy.db"], "{sent:?}");
            std::fs::remove_file(site.folder.join("copy.db")).expect("the copy can go");
        } else {
            failed(&output, &["stopped", "no backup"]);
            assert_eq!(left, Vec::<String>::new());
        }
    }
}
