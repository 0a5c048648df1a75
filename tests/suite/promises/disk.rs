//! A disk that is full, files that cannot be written and files that are none.

use std::process::Command;
use std::time::Duration;

use serde_json::json;

use crate::support::postgres::as_ordinary_user;
use crate::support::server::{Process, account, fresh_folder};
use crate::support::*;

/// Bytes of properties of one entity.
const LARGE: usize = 30_000;

fn entity(row: &str) -> serde_json::Value {
    with_keys("p", row, json!({ "A": "x".repeat(LARGE), "N": row }))
}

/// Bounds the size of each file that a server writes, in bytes; past it a write
/// fails, as on a disk that is full.
#[cfg(target_os = "linux")]
fn bound(server: &Process, bytes: &str) {
    let pid = server.pid.to_string();
    let status =
        Command::new("prlimit").args(["--pid", &pid, &format!("--fsize={bytes}:unlimited")]).status();
    assert!(status.is_ok_and(|status| status.success()), "prlimit, of util-linux, failed");
}

#[cfg(target_os = "linux")]
#[test]
fn a_full_disk_is_told_and_survived() {
    let accounts = account(1).setting();
    let arguments = ["serve", "--listen", "127.0.0.1:0", "--accounts", &accounts];
    let server = Process::spawn(
        fresh_folder(),
        &[&arguments[..], &["--database-url", "sqlite://data.db"]].concat(),
        &[],
    );
    let client = server.client();
    let table = client.table();
    for turn in 0..3 {
        table.insert(&entity(&format!("before{turn}"))).expect(201);
        bound(&server, "1500000");
        let mut stored = Vec::new();
        let refused = (0..200).find_map(|n| {
            let row = format!("row{turn}x{n:03}");
            let answer = table.insert(&entity(&row));
            if answer.status == 201 {
                stored.push(row);
                return None;
            }
            Some((row, answer))
        });
        let (row, answer) = refused.expect("the bound is met");
        let answer = answer.expect_error_code(503, "ServerBusy");
        assert!(answer.header("Retry-After").is_some(), "{answer}");
        let batch = Batch::new().insert(&table, &entity("b1")).insert(&table, &entity("b2"));
        assert!(post_text(&client, batch).contains("ServerBusy"));
        // What was acknowledged is there, what was refused is not.
        assert_eq!((table.get("p", &row).status, table.get("p", "b1").status), (404, 404));
        for row in stored.iter().step_by(7) {
            assert_eq!(table.entity("p", row)["N"], row.as_str());
        }
        bound(&server, "unlimited");
        table.insert(&entity(&row)).expect(201);
        table.delete("p", &row, Some("*")).expect(204);
    }
    assert!(!server.log().contains("panicked"), "{}", server.log());
    let folder = server.kill();
    let db = rusqlite::Connection::open(folder.join("data.db")).expect("the database opens");
    let sound: String = db.query_row("PRAGMA integrity_check", [], |row| row.get(0)).expect("a check");
    assert_eq!(sound, "ok");
    std::fs::remove_dir_all(folder).expect("the folder is ours");
}

fn post_text(client: &Client, batch: Batch) -> String {
    String::from_utf8_lossy(&crate::support::batch::post(client, batch.body()).send().body).into_owned()
}

/// What a start says that fails.
fn start(command: &mut Command, path: &std::path::Path) -> String {
    let url = format!("sqlite://{}", path.display());
    let limit = Duration::from_secs(30).as_secs().to_string();
    let output = command
        .args(["timeout", &limit, env!("CARGO_BIN_EXE_rowhouse"), "serve", "--listen", "127.0.0.1:0"])
        .args(["--database-url", &url])
        .env_clear()
        .env("PATH", std::env::var_os("PATH").unwrap_or_default())
        .output()
        .expect("the server starts");
    assert_eq!(output.status.code(), Some(1), "{output:?}");
    String::from_utf8_lossy(&output.stderr).into_owned()
}

#[test]
fn a_file_that_is_no_database_is_named_and_left_alone() {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("notes.txt");
    let text = "These are notes and no database. ".repeat(200);
    std::fs::write(&path, &text).expect("a file");
    let said = start(&mut Command::new("env"), &path);
    assert!(said.contains("notes.txt") && said.contains("not a database"), "{said}");
    assert!(!said.contains("panicked"), "{said}");
    assert_eq!(std::fs::read_to_string(&path).expect("the file"), text);
}

#[cfg(unix)]
#[test]
fn a_database_that_can_only_be_read_is_refused_at_the_start() {
    use std::os::unix::fs::PermissionsExt;
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("data.db");
    std::fs::set_permissions(folder.path(), PermissionsExt::from_mode(0o777)).expect("ours");
    let made = Command::new(env!("CARGO_BIN_EXE_rowhouse"))
        .args(["migrate", "--database-url", &format!("sqlite://{}", path.display())])
        .status();
    assert!(made.is_ok_and(|status| status.success()));
    std::fs::set_permissions(&path, PermissionsExt::from_mode(0o444)).expect("ours");
    let said = start(&mut as_ordinary_user(), &path);
    assert!(said.contains("data.db is read-only"), "{said}");
}

#[cfg(unix)]
#[test]
fn a_folder_of_somebody_else_is_named_with_who_may_not_write_and_what_to_do() {
    use std::os::unix::fs::PermissionsExt;
    let folder = tempfile::tempdir().expect("a folder");
    std::fs::set_permissions(folder.path(), PermissionsExt::from_mode(0o755)).expect("ours");
    let inner = folder.path().join("data");
    std::fs::create_dir(&inner).expect("ours");
    std::fs::set_permissions(&inner, PermissionsExt::from_mode(0o555)).expect("ours");
    let user = as_ordinary_user().args(["id", "-u"]).output().expect("id runs").stdout;
    let user = String::from_utf8_lossy(&user).trim().to_owned();
    let database = inner.join("data.db");
    let said = start(&mut as_ordinary_user(), &database);
    let shown = inner.display();
    for word in [
        format!("{}", database.display()),
        format!("uid {user} "),
        format!("the folder {shown}, which belongs to uid"),
        "with mode 555".into(),
        format!("let uid {user} write there"),
    ] {
        assert!(said.contains(&word), "{word:?} in {said}");
    }
    assert_eq!(said.lines().last().map(|line| line.contains(&format!("uid {user}"))), Some(true), "{said}");
    let missing = start(&mut as_ordinary_user(), &inner.join("none/data.db"));
    assert!(missing.contains(&format!("there is no folder {shown}/none")), "{missing}");
}

#[cfg(unix)]
#[test]
fn a_folder_that_azurites_flag_names_and_that_cannot_be_made_is_named_so_too() {
    use std::os::unix::fs::PermissionsExt;
    let folder = tempfile::tempdir().expect("a folder");
    let program = folder.path().join("azurite");
    std::os::unix::fs::symlink(env!("CARGO_BIN_EXE_rowhouse"), &program).expect("a link can be made");
    std::fs::set_permissions(folder.path(), PermissionsExt::from_mode(0o555)).expect("ours");
    let location = folder.path().join("data/tables");
    let output = as_ordinary_user().arg("timeout").arg("30").arg(&program).arg("-l").arg(&location).output();
    let said = String::from_utf8_lossy(&output.expect("the binary runs").stderr).into_owned();
    for word in ["cannot make the folder", "tables: uid ", "which belongs to uid", "write there"] {
        assert!(said.contains(word), "{word:?} in {said}");
    }
}
