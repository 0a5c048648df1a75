//! Servers whose clocks differ: a version is newer than the one it replaces, even
//! where another server's clock made that, and clients hear of the one that is stored.

use rusqlite::Connection;
use serde_json::json;
use tempfile::TempDir;

use super::site::Site;
use crate::support::postgres::{execute, fresh_database};
use crate::support::*;

/// Makes everything that is stored one by a server whose clock is an hour ahead.
const AN_HOUR_AHEAD: &str = "UPDATE entities SET modified = modified + 36000000000";

fn a_clock_behind(url: &str, sql: impl FnOnce(&str)) {
    let site = Site::start(url, &[]);
    let client = site.client();
    let t = client.table();
    t.seed_rows("p", ["1", "2", "3"]);
    sql(AN_HOUR_AHEAD);
    let etag = |row: &str| t.get("p", row).need("ETag").to_owned();
    let ahead = [etag("1"), etag("2")];
    let body = json!({ "A": 1 });
    let answer = Batch::new()
        .write("PUT", &t, ("p", "1"), &body, Some("*"))
        .write("MERGE", &t, ("p", "2"), &body, Some(&ahead[1]))
        .delete(&t, "p", "3", "*")
        .insert(&t, &with_keys("p", "4", json!({})))
        .insert_echo(&t, &with_keys("p", "5", json!({})))
        .write("MERGE", &t, ("p", "6"), &body, None)
        .commit(&client);
    let told = |at: usize| answer.parts[at].need("ETag");
    for (at, row) in [(0, "1"), (1, "2"), (3, "4"), (4, "5"), (5, "6")] {
        assert_eq!(told(at), etag(row), "row {row}");
    }
    let is_new = told(0) != ahead[0] && told(1) != ahead[1];
    assert!(is_new, "a version that has gone names none again");
    assert!(*told(3) < *ahead[0], "{ahead:?}");
    assert_eq!(t.count(), 5);
}

#[test]
fn in_postgres() {
    let url = fresh_database();
    a_clock_behind(&url, |text| execute(&url, text));
}

#[test]
fn in_a_file() {
    let folder = TempDir::new().expect("a temporary folder");
    let file = folder.path().join("clocks.db");
    a_clock_behind(&format!("sqlite://{}", file.display()), |text| {
        let database = Connection::open(&file).expect("the file opens");
        database.execute(text, []).expect("rows change");
    });
}
