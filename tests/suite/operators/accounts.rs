//! `/accounts` of the admin listener, and what servers make of it.

use sqlx::{Connection as _, Executor as _, PgConnection};

use super::*;
use crate::commands::{MASTER, OTHER_MASTER, Site, account_of, soon, status};
use crate::support::client::Account;
use crate::support::postgres::{LOCK_WAITERS, text};

pub const ADMIN: [&str; 4] = ["--admin-listen", "127.0.0.1:0", "--admin-token", TOKEN];

pub fn call(admin: &Wire, verb: &str, path: &str, body: &str) -> Raw {
    let host = admin.address();
    let head = format!("{verb} {path} HTTP/1.1\r\nHost: {host}\r\nAuthorization: Bearer {TOKEN}\r\n");
    admin.exchange(verb, format!("{head}Content-Length: {}\r\n\r\n{body}", body.len()).as_bytes())
}

fn post(admin: &Wire, path: &str, body: &Value) -> Raw {
    call(admin, "POST", path, &body.to_string())
}

#[track_caller]
pub fn done(raw: &Raw, status: u16) -> Value {
    assert_eq!(raw.status, status, "{}", String::from_utf8_lossy(&raw.body));
    json_of(raw)
}

/// A server with the accounts of the database, its admin listener, and a second
/// server where the database takes one.
fn servers(site: &Site) -> (Process, Wire, Option<Process>) {
    let server = site.server(&ADMIN);
    let admin = admin_of(&server);
    let other = (!site.url.starts_with("sqlite")).then(|| site.server(&[]));
    (server, admin, other)
}

#[test]
fn accounts_are_added_disabled_rotated_and_removed_while_servers_run() {
    for site in Site::both() {
        let (server, admin, other) = servers(&site);
        let now = |account: &Account, key: usize, expected: u16| {
            assert_eq!(status(&server, account, key), expected, "at once");
            let follows = || other.iter().all(|other| status(other, account, key) == expected);
            soon("a change by the other server", follows);
        };
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
        [0, 1].into_iter().for_each(|key| now(&account, key, 200));
        let client = Client::path_style(server.address(), account.clone());
        client.table().insert(&with_keys("p", "r", json!({ "A": 1 }))).expect(201);

        let path = |verb: &str| format!("/accounts/myaccount{verb}");
        let disabled = done(&call(&admin, "POST", &path("/disable"), ""), 200);
        assert_eq!(disabled, json!({ "name": "myaccount", "disabled": true }));
        now(&account, 0, 403);
        client.request("GET", "/Tables").unchecked().send().turned_away(ACCOUNT_DISABLED);
        assert_eq!(done(&call(&admin, "GET", &path(""), ""), 200)["disabled"], true);
        assert_eq!(done(&call(&admin, "POST", &path("/enable"), "{}"), 200)["disabled"], false);
        now(&account, 0, 200);

        let old = account.clone();
        let rotated = done(&post(&admin, &path("/rotate"), &json!({ "slot": 1 })), 200);
        account.keys[0] = rotated["key"].as_str().expect("a key").into();
        assert_eq!((&rotated["name"], &rotated["slot"]), (&json!("myaccount"), &json!(1)));
        now(&account, 0, 200);
        now(&account, 1, 200);
        now(&old, 0, 403);
        let rotated = done(&post(&admin, &path("/rotate"), &json!({ "slot": 2 })), 200);
        account.keys[1] = rotated["key"].as_str().expect("a key").into();
        now(&account, 1, 200);
        now(&old, 1, 403);

        // As the commands print them, and they see the same.
        let listed = done(&call(&admin, "GET", "/accounts", ""), 200);
        assert_eq!(listed, site.json(&["account", "list"]));
        assert_eq!(done(&call(&admin, "GET", &path(""), ""), 200), listed[0]);
        assert_eq!(done(&call(&admin, "DELETE", &path(""), ""), 200), json!({ "removed": "myaccount" }));
        now(&account, 0, 404);
        for server in [Some(&server), other.as_ref()].into_iter().flatten() {
            for key in account.keys.iter().chain(&old.keys) {
                assert!(!server.log().contains(key.as_str()), "{}", server.log());
            }
        }
        let log = server.log();
        let audited = log.lines().find(|line| line.contains("DELETE /accounts/{name}")).unwrap_or(&log);
        assert!(audited.contains("subject=\"myaccount\"") && audited.contains("status=200"), "{audited}");
    }
}

#[test]
fn what_makes_no_sense_is_refused_and_changes_nothing() {
    for site in Site::both() {
        let given = account(1);
        let setting = given.setting();
        let server = site.server(&[&ADMIN[..], &["--accounts", &setting]].concat());
        let admin = admin_of(&server);
        let keys = account(2).keys;
        let added = json!({ "name": "myaccount", "keys": keys });
        assert_eq!(account_of(&done(&post(&admin, "/accounts", &added), 201)).keys, keys);
        refused(&post(&admin, "/accounts", &added), 409, "AccountExists");
        let before = site.json(&["account", "list"]);
        for body in [
            "",
            "{",
            "[]",
            "null",
            "{}",
            r#"{"name":1}"#,
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
        for slot in [json!(0), json!(3), json!("1"), json!(-1), json!(null)] {
            let raw = post(&admin, "/accounts/myaccount/rotate", &json!({ "slot": slot }));
            refused(&raw, 400, "BadRequest");
        }
        refused(&call(&admin, "POST", "/accounts/myaccount/rotate", ""), 400, "BadRequest");
        let more = json!({ "slot": 1, "name": "x" });
        refused(&post(&admin, "/accounts/myaccount/rotate", &more), 400, "BadRequest");
        for (verb, path) in [("POST", "/disable"), ("POST", "/enable"), ("DELETE", "")] {
            let raw = call(&admin, verb, &format!("/accounts/myaccount{path}"), r#"{"disabled":true}"#);
            refused(&raw, 400, "BadRequest");
        }
        refused(&call(&admin, "PUT", "/accounts/myaccount", ""), 405, "MethodNotAllowed");
        assert_eq!(site.json(&["account", "list"]), before);
        each(&admin, "nobody", 404, "AccountNotFound");
        each(&admin, "no%20body", 404, "AccountNotFound");
        each(&admin, &given.name, 409, "AccountOfSettings");
        let taken = json!({ "name": given.name });
        refused(&post(&admin, "/accounts", &taken), 409, "AccountOfSettings");
        assert_eq!(site.json(&["account", "list"]), before);
        assert_eq!(status(&server, &given, 0), 200);
    }
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
    for site in Site::both() {
        site.json(&["account", "add", "myaccount"]);
        let before = site.json(&["account", "list"]);
        let setting = account(1).setting();
        let arguments = ["serve", "--listen", "127.0.0.1:0", "--database-url", &site.url];
        let arguments = [&arguments[..], &ADMIN, &["--accounts", &setting]].concat();
        let server = Process::spawn(fresh_folder(), &arguments, &[]);
        let admin = admin_of(&server);
        each(&admin, "myaccount", 409, "NoMasterKey");
        refused(&call(&admin, "GET", "/accounts", ""), 409, "NoMasterKey");
        refused(&post(&admin, "/accounts", &json!({ "name": "another" })), 409, "NoMasterKey");
        assert_eq!(site.json(&["account", "list"]), before);
        drop(server);
        // Stored under another key while a server runs.
        let (server, admin, _) = servers(&site);
        site.json(&["account", "remove", "myaccount"]);
        let other = [("ROWHOUSE_MASTER_KEY", OTHER_MASTER)];
        assert!(site.run_with(&["account", "add", "myaccount"], &other).status.success());
        refused(&post(&admin, "/accounts", &json!({ "name": "another" })), 409, "OtherMasterKey");
        let rotate = json!({ "slot": 2 });
        refused(&post(&admin, "/accounts/myaccount/rotate", &rotate), 409, "OtherMasterKey");
        assert!(!server.log().contains(MASTER));
    }
}

#[test]
fn only_who_has_a_token_changes_accounts() {
    let site = Site::sqlite();
    site.json(&["account", "add", "myaccount"]);
    let server = site.server(&["--admin-listen", "127.0.0.1:0"]);
    let admin = admin_of(&server);
    assert_eq!(done(&get(&admin, "/accounts"), 200)[0]["name"], "myaccount");
    refused(&post(&admin, "/accounts", &json!({ "name": "another" })), 403, "TokenNeeded");
    refused(&post(&admin, "/accounts/myaccount/rotate", &json!({ "slot": 1 })), 403, "TokenNeeded");
    for (verb, path) in [("POST", "/disable"), ("POST", "/enable"), ("DELETE", "")] {
        refused(&call(&admin, verb, &format!("/accounts/myaccount{path}"), ""), 403, "TokenNeeded");
    }
    drop(server);
    let server = site.server(&ADMIN);
    refused(&ask(&admin_of(&server), "DELETE", "/accounts/myaccount", ""), 401, "Unauthorized");
    assert_eq!(site.json(&["account", "list"])[0]["disabled"], false);
}

#[test]
fn of_accounts_that_are_added_at_once_one_is_valid() {
    let site = Site::postgres();
    let (server, admin, _other) = servers(&site);
    let address = admin.address();
    let added: Vec<Raw> = std::thread::scope(|scope| {
        let add = || post(&Wire::new(address), "/accounts", &json!({ "name": "myaccount" }));
        let threads: Vec<_> = (0..8).map(|_| scope.spawn(add)).collect();
        threads.into_iter().map(|thread| thread.join().expect("a thread")).collect()
    });
    let (mine, others): (Vec<_>, Vec<_>) = added.iter().partition(|raw| raw.status == 201);
    assert_eq!(mine.len(), 1);
    others.iter().for_each(|raw| refused(raw, 409, "AccountExists"));
    assert_eq!(status(&server, &account_of(&json_of(mine[0])), 0), 200);
    assert_eq!(text(&site.url, "SELECT count(*)::text FROM accounts"), "1");
}

/// A rotated key is shown once: whoever waits for it must get it.
#[tokio::test(flavor = "multi_thread")]
async fn a_change_in_progress_is_answered_when_the_server_stops() {
    let site = Site::postgres();
    let (server, admin, _other) = servers(&site);
    done(&post(&admin, "/accounts", &json!({ "name": "myaccount" })), 201);
    let mut holder = PgConnection::connect(&site.url).await.expect("a session");
    holder.execute("BEGIN; SELECT * FROM accounts FOR UPDATE").await.expect("a lock");
    let rotation = tokio::task::spawn_blocking({
        let admin = Wire::new(admin.address());
        move || post(&admin, "/accounts/myaccount/rotate", &json!({ "slot": 1 }))
    });
    soon("the change waits", || tokio::task::block_in_place(|| text(&site.url, LOCK_WAITERS)) == "1");
    server.signal("TERM");
    soon("the server stops", || server.log().contains("shutting down"));
    holder.execute("COMMIT").await.expect("the lock goes");
    let rotated = done(&rotation.await.expect("an answer"), 200);
    assert!(rotated["key"].is_string(), "{rotated}");
    assert_eq!(server.exit_status(Duration::from_secs(60)), Some(0), "{}", server.log());
    let log = server.log();
    let told =
        log.lines().find(|line| line.contains("/rotate")).unwrap_or_else(|| panic!("no line in {log}"));
    assert!(told.contains("audit") && told.contains("status=200"), "{told}");
}
