//! `rowhouse account …`, and what servers make of it.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde_json::json;

use super::*;
use crate::support::postgres::{execute, text};
use crate::support::server::account;

#[test]
fn accounts_are_added_listed_rotated_disabled_and_removed() {
    for site in Site::both() {
        site.json(&["migrate"]);
        assert_eq!(site.json(&["account", "list"]), json!([]));
        let added = site.json(&["account", "add", "myaccount"]);
        let keys = account_of(&added).keys;
        assert_eq!(keys.each_ref().map(|key| STANDARD.decode(key).expect("base64").len()), [64, 64]);
        assert_ne!(keys[0], keys[1]);
        let expected = format!(
            "DefaultEndpointsProtocol=http;AccountName=myaccount;AccountKey={};\
             TableEndpoint=http://127.0.0.1:10002/myaccount;",
            keys[0]
        );
        assert_eq!(added["connectionString"], expected);
        site.fails(&["account", "add", "myaccount"], &["myaccount", "already"]);
        site.fails(&["account", "add", "My"], &["\"My\"", "3 to 24"]);
        let before = site.json(&["account", "list"]);
        assert_eq!((&before[0]["name"], &before[0]["disabled"]), (&json!("myaccount"), &json!(false)));
        let rotated = site.json(&["account", "rotate", "myaccount", "--key", "2"]);
        assert_ne!(rotated["key"], added["keys"][1]);
        assert_eq!(rotated["slot"], 2);
        let after = site.json(&["account", "list"]);
        assert_eq!(after[0]["rotated"][0], before[0]["rotated"][0]);
        assert_ne!(after[0]["rotated"][1], before[0]["rotated"][1]);
        assert_eq!(site.json(&["account", "disable", "myaccount"])["disabled"], true);
        assert_eq!(site.json(&["account", "list"])[0]["disabled"], true);
        assert_eq!(site.json(&["account", "enable", "myaccount"])["disabled"], false);
        let listed = String::from_utf8(site.run(&["account", "list"]).stdout).expect("text");
        assert!(listed.starts_with("myaccount ") && !listed.contains('='), "{listed}");
        assert_eq!(site.json(&["account", "remove", "myaccount"])["removed"], "myaccount");
        for command in ["remove", "disable", "enable"] {
            site.fails(&["account", command, "myaccount"], &["no account myaccount"]);
        }
        site.fails(&["account", "rotate", "myaccount", "--key", "1"], &["no account myaccount"]);
        site.fails(&["account", "rotate", "myaccount", "--key", "3"], &["--key"]);
    }
}

#[test]
fn only_adding_makes_a_database() {
    let site = Site::sqlite();
    for command in [
        &["list"][..],
        &["rotate", "myaccount", "--key", "1"],
        &["disable", "myaccount"],
        &["enable", "myaccount"],
        &["remove", "myaccount"],
        &["reseal"],
        &["limit", "myaccount", "--requests-per-second", "5"],
        &["queries", "myaccount", "service"],
    ] {
        site.fails(&[&["account"], command].concat(), &["there is no file", "tables.db", "rowhouse migrate"]);
    }
    let sas = ["sas", "account", "--permissions", "r", "--expiry", "1h", "--account", "myaccount"];
    site.fails(&sas, &["there is no file"]);
    site.fails(
        &["account", "add", "myaccount", "--database-url", "sqlite::memory:"],
        &["--database-url", "memory"],
    );
    assert!(std::fs::read_dir(&site.folder).expect("a folder").next().is_none(), "nothing was made");
    site.json(&["account", "add", "myaccount"]);
    assert_eq!(site.json(&["account", "list"])[0]["name"], "myaccount");
}

/// Two replicas on PostgreSQL; SQLite has but one server.
fn replicas(site: &Site) -> Vec<Process> {
    (0..if site.is_sqlite() { 1 } else { 2 }).map(|_| site.server(&[])).collect()
}

#[test]
fn a_disabled_account_is_refused() {
    for site in Site::both() {
        let mut account = account_of(&site.json(&["account", "add", "myaccount"]));
        let servers = replicas(&site);
        let all = |what: &str, account: &Account, key: usize, expected: u16| {
            until(what, || servers.iter().all(|server| status(server, account, key) == expected));
        };
        all("an account", &account, 0, 200);
        let later = account_of(&site.json(&["account", "add", "later"]));
        all("an account that was added", &later, 1, 200);
        let old = account.clone();
        let rotated = site.json(&["account", "rotate", "myaccount", "--key", "1"]);
        account.keys[0] = rotated["key"].as_str().expect("a key").into();
        all("the new key", &account, 0, 200);
        all("the end of the old key", &old, 0, 403);
        all("the other key", &account, 1, 200);
        site.json(&["account", "disable", "later"]);
        all("a disabled account", &later, 0, 403);
        for server in &servers {
            let client = Client::path_style(server.address(), later.clone());
            client.request("GET", "/Tables").unchecked().send().turned_away(ACCOUNT_DISABLED);
            let bearer = client.bearing(&Sas::account("sco", "rwdlau").query(&later));
            bearer
                .request("GET", "/Tables")
                .auth(Auth::None)
                .unchecked()
                .send()
                .turned_away(ACCOUNT_DISABLED);
        }
        site.json(&["account", "enable", "later"]);
        all("an account that is enabled again", &later, 0, 200);
        site.json(&["account", "remove", "later"]);
        all("an account that was removed", &later, 0, 404);
        all("the one that stayed", &account, 0, 200);
        for server in &servers {
            for key in account.keys.iter().chain(&old.keys).chain(&later.keys) {
                assert!(!server.log().contains(key.as_str()), "{}", server.log());
            }
        }
    }
}

#[test]
fn accounts_of_the_settings_win_over_those_of_the_database() {
    let site = Site::sqlite();
    let given = account(1);
    let stored = account_of(&site.json(&["account", "add", &given.name]));
    let server = site.server(&["--accounts", &given.setting()]);
    assert_eq!((status(&server, &given, 0), status(&server, &stored, 0)), (200, 403));
    site.json(&["account", "disable", &given.name]);
    let other = account_of(&site.json(&["account", "add", "another"]));
    until("another account", || status(&server, &other, 0) == 200);
    assert_eq!(status(&server, &given, 0), 200);
}

/// A server without a master key, and with account 1.
fn keyless(site: &Site) -> Process {
    let setting = account(1).setting();
    let arguments = ["serve", "--listen", "127.0.0.1:0", "--database-url", &site.url, "--accounts", &setting];
    Process::spawn(fresh_folder(), &arguments, &[])
}

#[test]
fn without_a_master_key_the_accounts_of_the_database_are_neither_served_nor_read() {
    let site = Site::postgres();
    let stored = account_of(&site.json(&["account", "add", "myaccount"]));
    assert_eq!(status(&keyless(&site), &stored, 0), 404);
    execute(&site.url, "DROP TABLE accounts");
    assert_eq!(status(&keyless(&site), &account(1), 0), 200);
    not_started(&site.run(&["serve", "--listen", "127.0.0.1:0"]), &["accounts"]);
}

#[test]
fn while_the_accounts_cannot_be_read_those_that_are_known_stay() {
    let site = Site::postgres();
    let account = account_of(&site.json(&["account", "add", "myaccount"]));
    let server = site.server(&[]);
    execute(&site.url, "ALTER TABLE account_changes RENAME TO hidden");
    until("the lost table", || server.log().contains("the known ones stay in use"));
    assert_eq!(status(&server, &account, 0), 200);
    execute(&site.url, "ALTER TABLE hidden RENAME TO account_changes");
    site.json(&["account", "disable", "myaccount"]);
    until("the disabled account", || status(&server, &account, 0) == 403);
}

#[test]
fn of_keys_that_were_rotated_at_once_one_is_valid() {
    let site = Site::postgres();
    site.json(&["account", "add", "myaccount"]);
    let printed: Vec<String> = std::thread::scope(|scope| {
        let rotate = || site.run(&["account", "rotate", "myaccount", "--key", "1", "--json"]);
        let threads: Vec<_> = (0..4).map(|_| scope.spawn(rotate)).collect();
        let outputs = threads.into_iter().map(|thread| thread.join().expect("a thread"));
        let keys = outputs.map(|output| printed(&output)["key"].as_str().expect("a key").to_owned());
        keys.collect()
    });
    let server = site.server(&[]);
    let valid = printed.iter().filter(|key| {
        let account = Account { name: "myaccount".into(), keys: [(*key).clone(), (*key).clone()] };
        status(&server, &account, 0) == 200
    });
    assert_eq!(valid.count(), 1);
}

#[test]
fn another_master_key_is_refused_by_servers_and_commands() {
    for site in Site::both() {
        site.json(&["account", "add", "myaccount"]);
        let serve = ["serve", "--listen", "127.0.0.1:0"];
        let add = ["account", "add", "another"];
        let rotate = ["account", "rotate", "myaccount", "--key", "1"];
        for arguments in [&serve[..], &add, &rotate] {
            let other = [("ROWHOUSE_MASTER_KEY", OTHER_MASTER)];
            not_started(&site.run_with(arguments, &other), &["open the keys", "in the database"]);
        }
        for (variables, words) in [
            (&[][..], ["--master-key", "required"]),
            (&[("ROWHOUSE_MASTER_KEY", "AAAA")], ["--master-key", "32 bytes"]),
            (&[("ROWHOUSE_MASTER_KEY_FILE", "nowhere")], ["--master-key-file nowhere", ""]),
        ] {
            failed(&site.run_with(&add, variables), &words);
            failed(&site.run_with(&rotate, variables), &words);
        }
    }
}

#[test]
fn keys_and_the_master_key_may_stand_in_files() {
    let site = Site::sqlite();
    site.write("master.key", format!("{MASTER}\n"));
    let added = site.run_with(&["account", "add", "abc", "--json", "--master-key-file", "master.key"], &[]);
    let added = account_of(&printed(&added));
    // Keys that clients have already can be kept.
    let given = account(1);
    site.write("keys", given.keys.join("\n"));
    let kept = site.json(&["account", "add", &given.name, "--keys-file", "keys"]);
    assert_eq!(account_of(&kept).keys, given.keys);
    site.write("keys", &given.keys[0]);
    site.fails(&["account", "add", "another", "--keys-file", "keys"], &["--keys-file", "two keys"]);
    let server = site.server(&[]);
    let statuses =
        [(&added, 0), (&given, 0), (&given, 1)].map(|(account, key)| status(&server, account, key));
    assert_eq!(statuses, [200; 3]);
    // With a master key there is no development account.
    assert!(!server.announced.join("\n").contains("devstoreaccount1"), "{:?}", server.announced);
    assert_eq!(status(&server, &crate::process::development(), 0), 404);
}

#[test]
fn no_key_is_at_rest_in_the_file() {
    let site = Site::sqlite();
    let account = account_of(&site.json(&["account", "add", "myaccount"]));
    let rotated = site.json(&["account", "rotate", "myaccount", "--key", "1"]);
    assert!(holds(&site.folder, b"myaccount"), "the search finds what is there");
    for key in account.keys.iter().map(String::as_str).chain(rotated["key"].as_str()) {
        assert!(!holds(&site.folder, key.as_bytes()));
        let bytes = STANDARD.decode(key).expect("base64");
        assert!(!holds(&site.folder, &bytes[..16]), "not even a part");
    }
}

#[test]
fn no_key_is_at_rest_in_postgres_and_moved_ones_are_noticed() {
    let site = Site::postgres();
    let account = account_of(&site.json(&["account", "add", "myaccount"]));
    let row = text(&site.url, "SELECT encode(key1, 'hex') || encode(key2, 'hex') FROM accounts");
    // A byte of form, a nonce of 24, a key of 64 and a tag of 16, twice.
    assert_eq!(row.len(), 2 * 2 * (1 + 24 + 64 + 16));
    for key in &account.keys {
        let hex: String = STANDARD.decode(key).expect("base64").iter().map(|b| format!("{b:02x}")).collect();
        assert!(!row.contains(&hex[..16]));
    }
    // Who can write to the database must not be able to pass keys around.
    site.json(&["account", "add", "another"]);
    let stolen = "(SELECT key1 FROM accounts WHERE name = 'another')";
    execute(&site.url, &format!("UPDATE accounts SET key1 = {stolen} WHERE name = 'myaccount'"));
    not_started(&site.run(&["serve", "--listen", "127.0.0.1:0"]), &["--master-key", "myaccount"]);
}

/// A key that nobody has seen is lost.
#[test]
fn keys_that_cannot_be_printed_are_no_success() {
    let site = Site::sqlite();
    let full = std::fs::OpenOptions::new().write(true).open("/dev/full");
    // Only where there is such a device.
    let Ok(full) = full else { return };
    let output = std::process::Command::new(env!("CARGO_BIN_EXE_rowhouse"))
        .args(["account", "add", "newaccount"])
        .env_clear()
        .envs([("DATABASE_URL", site.url.as_str()), ("ROWHOUSE_MASTER_KEY", MASTER)])
        .current_dir(&site.folder)
        .stdout(full)
        .stderr(std::process::Stdio::piped())
        .spawn()
        .and_then(std::process::Child::wait_with_output);
    failed(&output.expect("the binary runs"), &["standard output"]);
}
