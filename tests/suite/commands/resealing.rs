//! `rowhouse account reseal`: another master key, while servers run.

use serde_json::json;

use super::*;

const THIRD_MASTER: &str = "QUJDREVGR0hJSktMTU5PUFFSU1RVVldYWVphYmNkZWY=";

/// The new key, and the one of before.
fn both<'a>(new: &'a str, old: &'a str) -> [(&'a str, &'a str); 2] {
    [("ROWHOUSE_MASTER_KEY", new), ("ROWHOUSE_OLD_MASTER_KEY", old)]
}

fn command(site: &Site, arguments: &[&str], keys: &[(&str, &str)]) -> Value {
    printed(&site.run_with(&[&["account"], arguments, &["--json"]].concat(), keys))
}

fn server(site: &Site, keys: &[(&str, &str)]) -> Process {
    let arguments = ["serve", "--listen", "127.0.0.1:0", "--database-url", &site.url];
    Process::spawn(fresh_folder(), &arguments, keys)
}

/// The statuses that an account's two keys get.
fn statuses(server: &Process, account: &Account) -> [u16; 2] {
    [0, 1].map(|key| status(server, account, key))
}

#[test]
fn where_one_key_does_not_open_nothing_is_changed() {
    for site in Site::both() {
        let one = account_of(&site.json(&["account", "add", "one"]));
        let mixed = both(THIRD_MASTER, MASTER);
        let two = account_of(&command(&site, &["add", "two"], &mixed));
        for keys in [both(OTHER_MASTER, MASTER), both(OTHER_MASTER, THIRD_MASTER)] {
            failed(&site.run_with(&["account", "reseal"], &keys), &["--old-master-key", "neither"]);
        }
        failed(&site.run(&["account", "reseal"]), &["two", "neither"]);
        let server = server(&site, &mixed);
        assert_eq!([&one, &two].map(|account| statuses(&server, account)), [[200, 200]; 2]);
        drop(server);
        assert_eq!(command(&site, &["reseal"], &mixed), json!({ "resealed": 1 }));
    }
}

#[test]
fn servers_go_on_while_the_master_key_is_replaced() {
    for site in Site::both() {
        let mut account = account_of(&site.json(&["account", "add", "myaccount"]));
        let other = account_of(&site.json(&["account", "add", "another"]));
        let (old, new) = ([("ROWHOUSE_MASTER_KEY", MASTER)], [("ROWHOUSE_MASTER_KEY", OTHER_MASTER)]);
        let both = both(OTHER_MASTER, MASTER);
        // On PostgreSQL one is forgotten, and one has been restarted with both keys.
        let forgotten = server(&site, &old);
        let restarted = (!site.url.starts_with("sqlite")).then(|| server(&site, &both));
        let all = || [Some(&forgotten), restarted.as_ref()].into_iter().flatten();
        all().for_each(|server| assert_eq!(statuses(server, &account), [200, 200]));
        let before = site.json(&["account", "list"]);
        for (keys, resealed) in [(&both[..], 2), (&both, 0), (&new, 0)] {
            assert_eq!(command(&site, &["reseal"], keys), json!({ "resealed": resealed }));
        }
        assert_eq!(site.json(&["account", "list"]), before);
        until("the new master key", || forgotten.log().contains("does not open a key"));
        for server in all() {
            assert_eq!([statuses(server, &account), statuses(server, &other)], [[200, 200]; 2]);
        }
        if let Some(restarted) = &restarted {
            assert!(!restarted.log().contains("does not open"), "{}", restarted.log());
        }
        // What ends, ends everywhere, also where the new key is not known.
        let replaced = account.clone();
        let rotated = command(&site, &["rotate", "myaccount", "--key", "1"], &new);
        account.keys[0] = rotated["key"].as_str().expect("a key").into();
        until("the end of a key", || all().all(|server| status(server, &replaced, 0) == 403));
        assert_eq!(statuses(&forgotten, &account), [403, 200]);
        command(&site, &["disable", "another"], &new);
        until("a disabled account", || all().all(|server| statuses(server, &other) == [403, 403]));
        command(&site, &["enable", "another"], &new);
        until("an enabled account", || all().all(|server| statuses(server, &other) == [200, 200]));
        command(&site, &["remove", "another"], &new);
        let namesake = account_of(&command(&site, &["add", "another"], &new));
        until("another account", || all().all(|server| status(server, &other, 0) != 200));
        until("an account that is not known", || statuses(&forgotten, &namesake) == [403, 403]);
        if let Some(restarted) = &restarted {
            until("a new key", || statuses(restarted, &account) == [200, 200]);
            until("a new account", || statuses(restarted, &namesake) == [200, 200]);
        }
        drop(forgotten);
        not_started(&site.run(&["serve", "--listen", "127.0.0.1:0"]), &["--master-key"]);
        let server = server(&site, &new);
        assert_eq!([statuses(&server, &account), statuses(&server, &namesake)], [[200, 200]; 2]);
    }
}

#[test]
fn an_old_master_key_stands_beside_a_new_one() {
    let site = Site::sqlite();
    site.json(&["account", "add", "one"]);
    let alone = [("ROWHOUSE_OLD_MASTER_KEY", MASTER)];
    failed(&site.run_with(&["account", "reseal"], &alone), &["--old-master-key", "--master-key"]);
    failed(&site.run_with(&["account", "reseal"], &both(MASTER, "AAAA")), &["--old-master-key: must be 32"]);
    site.write("old.key", MASTER);
    let file = [("ROWHOUSE_MASTER_KEY", OTHER_MASTER), ("ROWHOUSE_OLD_MASTER_KEY_FILE", "old.key")];
    assert_eq!(command(&site, &["reseal"], &file), json!({ "resealed": 1 }));
}

#[test]
fn accounts_that_are_added_meanwhile_are_not_lost() {
    let site = Site::postgres();
    let keys = both(OTHER_MASTER, MASTER);
    (0..5).for_each(|at| drop(site.json(&["account", "add", &format!("before{at}")])));
    std::thread::scope(|scope| {
        let add = |at: usize| command(&site, &["add", &format!("during{at}")], &keys);
        let adding: Vec<_> = (0..3).map(|at| scope.spawn(move || add(at))).collect();
        let resealing: Vec<_> = (0..3).map(|_| scope.spawn(|| command(&site, &["reseal"], &keys))).collect();
        adding.into_iter().chain(resealing).for_each(|thread| drop(thread.join().expect("it succeeds")));
    });
    assert_eq!(command(&site, &["reseal"], &[("ROWHOUSE_MASTER_KEY", OTHER_MASTER)])["resealed"], 0);
    assert_eq!(site.json(&["account", "list"]).as_array().map(Vec::len), Some(8));
}
