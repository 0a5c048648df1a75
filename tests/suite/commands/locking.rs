//! One server to a SQLite file.

use super::*;
use crate::support::server::account;

fn serve(site: &Site) -> Output {
    let accounts = account(1).setting();
    site.run(&["serve", "--listen", "127.0.0.1:0", "--accounts", &accounts])
}

#[test]
fn a_second_server_does_not_start_and_commands_go_on() {
    let site = Site::sqlite();
    let server = site.server(&["--accounts", &account(1).setting()]);
    not_started(&serve(&site), &["another server", "tables.db", "tables.db.lock"]);
    assert_eq!(status(&server, &account(1), 0), 200);
    assert_eq!(site.json(&["account", "add", "another"])["name"], "another");
    assert_eq!(site.json(&["check"])["ok"], true);
    assert_eq!(site.json(&["migrate"])["schema"], migrations());
    assert!(site.json(&["backup", "copy.db"])["bytes"].as_u64().is_some_and(|bytes| bytes > 0));
}

#[test]
fn a_database_with_a_second_name_is_not_opened() {
    let site = Site::sqlite();
    site.json(&["migrate"]);
    std::fs::hard_link(site.folder.join("tables.db"), site.folder.join("other.db")).expect("a link");
    not_started(&serve(&site), &["tables.db", "2 names (hard links)"]);
    std::fs::remove_file(site.folder.join("other.db")).expect("it can go");
    assert_eq!(site.json(&["migrate"])["schema"], migrations());
}

#[test]
fn a_server_that_was_killed_holds_no_lock() {
    let site = Site::sqlite();
    for _ in 0..2 {
        let server = site.server(&["--accounts", &account(1).setting()]);
        let folder = server.kill();
        std::fs::remove_dir_all(folder).expect("the folder can go");
        assert!(site.folder.join("tables.db.lock").exists());
    }
}

#[test]
fn where_nothing_can_be_locked_a_server_warns_and_serves() {
    let site = Site::sqlite();
    std::fs::create_dir(site.folder.join("tables.db.lock")).expect("a folder in the place of the lock");
    let server = site.server(&["--accounts", &account(1).setting()]);
    assert!(server.log().contains("cannot lock"), "{}", server.log());
    assert_eq!(status(&server, &account(1), 0), 200);
}
