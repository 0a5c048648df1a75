//! `/accounts` of the admin listener, and what servers make of it.

use sqlx::{Connection as _, Executor as _, PgConnection};

use super::*;
use crate::commands::{MASTER, OTHER_MASTER, Site, account_of, status};
use crate::support::client::Account;
use crate::support::postgres::{LOCK_WAITERS, text};

pub const ADMIN: [&str; 4] = ["--admin-listen", "127.0.0.1:0", "--admin-token", TOKEN];

fn post(admin: &Wire, path: &str, body: &Value) -> Raw {
    call(admin, "POST", path, &body.to_string())
}

/// A server with the accounts of the database, and its admin listener.
fn server(site: &Site) -> (Process, Wire) {
    let server = site.server(&ADMIN);
    let admin = admin_of(&server);
    (server, admin)
}

#[test]
fn accounts_are_added_disabled_rotated_and_removed_while_servers_run() {
    let site = Site::postgres();
    let (server, admin) = server(&site);
    assert_eq!(done(&call(&admin, "GET", "/accounts", ""), 200), json!([]));
    let added = done(&post(&admin, "/accounts", &json!({ "name": "myaccount" })), 201);
    let mut account = account_of(&added);
    assert_eq!(added.as_object().map(|o| o.len()), Some(3), "{added}");
    let strings = added["connectionStrings"].as_array().expect("one for each key");
    for (string, key) in strings.iter().zip(&account.keys) {
        let endpoint = format!("TableEndpoint=http://{}/myaccount;", server.address());
        let string = string.as_str().expect("text");
        assert!(string.contains(key.as_str()) && string.ends_with(&endpoint), "{string}");
    }
    // Each change holds at once.
    let statuses = |account: &Account| [0, 1].map(|key| status(&server, account, key));
    assert_eq!(statuses(&account), [200, 200]);
    let path = |verb: &str| format!("/accounts/myaccount{verb}");
    let disabled = done(&call(&admin, "POST", &path("/disable"), ""), 200);
    assert_eq!(disabled, json!({ "name": "myaccount", "disabled": true }));
    assert_eq!(statuses(&account), [403, 403]);
    assert_eq!(done(&call(&admin, "GET", &path(""), ""), 200)["disabled"], true);
    assert_eq!(done(&call(&admin, "POST", &path("/enable"), "{}"), 200)["disabled"], false);
    let old = account.clone();
    for slot in [1, 2] {
        let rotated = done(&post(&admin, &path("/rotate"), &json!({ "slot": slot })), 200);
        assert_eq!((&rotated["name"], &rotated["slot"]), (&json!("myaccount"), &json!(slot)));
        account.keys[slot - 1] = rotated["key"].as_str().expect("a key").into();
        assert_eq!(statuses(&account), [200, 200]);
    }
    assert_eq!(statuses(&old), [403, 403]);
    // As the commands print them, and they see the same.
    let listed = done(&call(&admin, "GET", "/accounts", ""), 200);
    assert_eq!(listed, site.json(&["account", "list"]));
    assert_eq!(done(&call(&admin, "GET", &path(""), ""), 200), listed[0]);
    assert_eq!(done(&call(&admin, "DELETE", &path(""), ""), 200), json!({ "removed": "myaccount" }));
    assert_eq!(statuses(&account), [404, 404]);
    assert!(account.keys.iter().chain(&old.keys).all(|key| !server.log().contains(key.as_str())));
    audits(&server, "DELETE /accounts/{name}", "200", "myaccount");
}

#[test]
fn what_makes_no_sense_is_refused_and_changes_nothing() {
    let site = Site::sqlite();
    let given = account(1);
    let server = site.server(&[&ADMIN[..], &["--accounts", &given.setting()]].concat());
    let admin = admin_of(&server);
    let keys = account(2).keys;
    let added = json!({ "name": "myaccount", "keys": keys });
    assert_eq!(account_of(&done(&post(&admin, "/accounts", &added), 201)).keys, keys);
    refused(&post(&admin, "/accounts", &added), 409, "AccountExists");
    let before = site.json(&["account", "list"]);
    for body in [
        "",
        "null",
        r#"{"name":"abc","name":"abc"}"#,
        r#"{"name":"abc","key":"AAAA"}"#,
        r#"{"name":"abc","keys":["AAAA"]}"#,
        r#"{"name":"abc","keys":["AAAA","%"]}"#,
        r#"{"name":"abc"} x"#,
    ] {
        refused(&call(&admin, "POST", "/accounts", body), 400, "BadRequest");
    }
    for name in ["", "ab", "ABC", "a-b-c", "é23", &"a".repeat(25)] {
        refused(&post(&admin, "/accounts", &json!({ "name": name })), 400, "InvalidAccountName");
    }
    for key in [String::new(), "A".repeat(4 * 1024)] {
        let body = json!({ "name": "abc", "keys": ["AAAA", key] });
        refused(&post(&admin, "/accounts", &body), 400, "InvalidKey");
    }
    let large = format!("{{\"name\":\"{}\"}}", "a".repeat(300 * 1024));
    refused(&call(&admin, "POST", "/accounts", &large), 413, "BodyTooLarge");
    let path_of = |path: &str| format!("/accounts/myaccount{path}");
    for body in ["", r#"{"slot":0}"#, r#"{"slot":3}"#, r#"{"slot":"1"}"#, r#"{"slot":1,"name":"x"}"#] {
        refused(&call(&admin, "POST", &path_of("/rotate"), body), 400, "BadRequest");
    }
    for (verb, path) in [("POST", "/disable"), ("POST", "/enable"), ("DELETE", "")] {
        refused(&call(&admin, verb, &path_of(path), r#"{"disabled":true}"#), 400, "BadRequest");
    }
    refused(&call(&admin, "PUT", &path_of(""), ""), 405, "MethodNotAllowed");
    each(&admin, "nobody", 404, "AccountNotFound");
    each(&admin, "no%20body", 404, "AccountNotFound");
    each(&admin, &given.name, 409, "AccountOfSettings");
    refused(&post(&admin, "/accounts", &json!({ "name": given.name })), 409, "AccountOfSettings");
    assert_eq!(site.json(&["account", "list"]), before);
    assert_eq!(status(&server, &given, 0), 200);
}

/// Everything that is asked of one account is refused alike.
#[track_caller]
fn each(admin: &Wire, name: &str, status: u16, code: &str) {
    let path = |verb: &str| format!("/accounts/{name}{verb}");
    refused(&call(admin, "GET", &path(""), ""), status, code);
    refused(&call(admin, "POST", &path("/disable"), ""), status, code);
    refused(&call(admin, "POST", &path("/enable"), ""), status, code);
    refused(&post(admin, &path("/rotate"), &json!({ "slot": 1 })), status, code);
    refused(&call(admin, "DELETE", &path(""), ""), status, code);
}

#[test]
fn without_a_master_key_and_with_another_nothing_is_changed() {
    let site = Site::sqlite();
    site.json(&["account", "add", "myaccount"]);
    let before = site.json(&["account", "list"]);
    let setting = account(1).setting();
    let arguments = ["serve", "--listen", "127.0.0.1:0", "--database-url", &site.url, "--accounts", &setting];
    let keyless = Process::spawn(fresh_folder(), &[&arguments[..], &ADMIN].concat(), &[]);
    let admin = admin_of(&keyless);
    each(&admin, "myaccount", 409, "NoMasterKey");
    refused(&call(&admin, "GET", "/accounts", ""), 409, "NoMasterKey");
    refused(&post(&admin, "/accounts", &json!({ "name": "another" })), 409, "NoMasterKey");
    assert_eq!(site.json(&["account", "list"]), before);
    drop(keyless);
    // Stored under another key while a server runs.
    let (server, admin) = server(&site);
    site.json(&["account", "remove", "myaccount"]);
    let other = [("ROWHOUSE_MASTER_KEY", OTHER_MASTER)];
    assert!(site.run_with(&["account", "add", "myaccount"], &other).status.success());
    refused(&post(&admin, "/accounts", &json!({ "name": "another" })), 409, "OtherMasterKey");
    refused(&post(&admin, "/accounts/myaccount/rotate", &json!({ "slot": 2 })), 409, "OtherMasterKey");
    assert!(!server.log().contains(MASTER));
}

#[test]
fn only_who_has_a_token_changes_accounts() {
    let site = Site::sqlite();
    site.json(&["account", "add", "myaccount"]);
    let server = site.server(&["--admin-listen", "127.0.0.1:0"]);
    let admin = admin_of(&server);
    assert_eq!(done(&get(&admin, "/accounts"), 200)[0]["name"], "myaccount");
    refused(&post(&admin, "/accounts", &json!({ "name": "another" })), 401, "Unauthorized");
    for (verb, path) in [("POST", "/rotate"), ("POST", "/disable"), ("POST", "/enable"), ("DELETE", "")] {
        refused(&call(&admin, verb, &format!("/accounts/myaccount{path}"), ""), 401, "Unauthorized");
    }
    drop(server);
    let server = site.server(&ADMIN);
    refused(&ask(&admin_of(&server), "DELETE", "/accounts/myaccount", ""), 401, "Unauthorized");
    assert_eq!(site.json(&["account", "list"])[0]["disabled"], false);
}

/// A rotated key is shown once: whoever waits for it must get it.
#[tokio::test(flavor = "multi_thread")]
async fn a_change_in_progress_is_answered_when_the_server_stops() {
    let site = Site::postgres();
    let (server, admin) = server(&site);
    done(&post(&admin, "/accounts", &json!({ "name": "myaccount" })), 201);
    let mut holder = PgConnection::connect(&site.url).await.expect("a session");
    holder.execute("BEGIN; SELECT * FROM accounts FOR UPDATE").await.expect("a lock");
    let rotation = tokio::task::spawn_blocking({
        let admin = Wire::new(admin.address());
        move || post(&admin, "/accounts/myaccount/rotate", &json!({ "slot": 1 }))
    });
    until("the change waits", || tokio::task::block_in_place(|| text(&site.url, LOCK_WAITERS)) == "1");
    server.signal("TERM");
    until("the server stops", || server.log().contains("shutting down"));
    holder.execute("COMMIT").await.expect("the lock goes");
    let rotated = done(&rotation.await.expect("an answer"), 200);
    assert!(rotated["key"].is_string(), "{rotated}");
    server.ends_well();
    let log = server.log();
    let told =
        log.lines().find(|line| line.contains("/rotate")).unwrap_or_else(|| panic!("no line in {log}"));
    assert!(told.contains("audit") && told.contains("status=200"), "{told}");
}
