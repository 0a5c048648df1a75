//! `rowhouse copy --all-accounts`.

use serde_json::json;

use super::copying::{batch_rows, connection_string, copy};
use super::*;

#[test]
fn all_accounts_are_copied_with_their_keys_and_tables() {
    for (from, to) in Site::both().into_iter().zip([Site::postgres(), Site::sqlite()]) {
        let accounts = ["abc", "def"].map(|name| account_of(&from.json(&["account", "add", name])));
        from.json(&["account", "queries", "abc", "extended"]);
        from.json(&["account", "add", "empty"]);
        let server = from.server(&[]);
        for account in &accounts {
            let client = Client::path_style(server.address(), account.clone());
            client.create_table("People").expect(201);
            batch_rows(&Table::new(&client, "People"), &account.name, 50);
        }
        let http = connection_string(server.address(), &accounts[0]);
        drop(server);
        let words = ["--all-accounts", "must be databases"];
        from.ends(&["copy", &from.url, &http, "--all-accounts"], 2, &words);
        for places in [[&format!("{}#abc", from.url), &to.url], [&from.url, &format!("{}#abc", to.url)]] {
            from.ends(&["copy", places[0], places[1], "--all-accounts"], 2, &["leave #abc out"]);
        }
        let copying = ["copy", &from.url, &to.url, "--all-accounts"];
        from.ends(&[&copying[..], &["--dry-run"]].concat(), 0, &["50  in 1 tables would be copied"]);
        from.ends(&[&copying[..], &["--verify"]].concat(), 0, &["3 accounts copied", "#abc -> ", "#def\n"]);
        let listed = to.json(&["account", "list"]);
        assert_eq!((listed.as_array().map(Vec::len), &listed[0]["extendedQueries"]), (Some(3), &json!(true)));
        let server = to.server(&[]);
        for account in &accounts {
            let client = Client::path_style(server.address(), account.clone());
            let table = Table::new(&client, "People");
            assert_eq!(table.count(), 50);
            if account.name == "abc" {
                table.merge("abc", "000001", &json!({ "N": -1 }), Some("*")).expect(204);
            }
        }
        drop(server);
        // The worst end counts, and the other account is copied all the same.
        let output = from.ends(&[&copying[..], &["--json"]].concat(), 3, &[]);
        let text = String::from_utf8(output.stdout).expect("UTF-8");
        let ends = serde_json::Deserializer::from_str(&text).into_iter::<Value>();
        let ends =
            ends.map(|end| end.expect("JSON")).map(|end| (end["unchanged"].clone(), end["rejected"].clone()));
        assert_eq!(ends.collect::<Vec<_>>(), [(json!(49), json!(1)), (json!(50), json!(0))]);
    }
}

#[test]
fn accounts_are_copied_only_if_the_master_key_opens_those_of_both_places() {
    for (from, to) in Site::both().into_iter().zip([Site::postgres(), Site::sqlite()]) {
        from.json(&["account", "add", "mine"]);
        to.json(&["account", "add", "theirs"]);
        let other = [("ROWHOUSE_MASTER_KEY", OTHER_MASTER)];
        let accounts = ["copy", &from.url, &to.url, "--all-accounts"];
        for (key, word) in [(&[][..], "--master-key"), (&other, "FROM")] {
            let output = from.run_with(&accounts, key);
            assert_eq!(output.status.code(), Some(2), "{output:?}");
            assert!(String::from_utf8_lossy(&output.stderr).contains(word), "{output:?}");
        }
        // One that was stored under another master key, on either side.
        let foreign = Site::sqlite();
        printed(&foreign.run_with(&["account", "add", "foreign", "--json"], &other));
        for (from, to, word) in [(&foreign, &to, "FROM"), (&to, &foreign, "TO")] {
            let words = ["--all-accounts", word, "does not open the keys"];
            from.ends(&["copy", &from.url, &to.url, "--all-accounts"], 2, &words);
        }
        let listed = || to.json(&["account", "list"]).as_array().map(Vec::len);
        assert_eq!(listed(), Some(1));
        from.ends(&accounts, 0, &["1 accounts copied"]);
        assert_eq!(listed(), Some(2));
        drop(to.server(&[]));
    }
}

#[test]
fn accounts_of_the_target_keep_their_options() {
    for (from, to) in Site::both().into_iter().zip([Site::postgres(), Site::sqlite()]) {
        for (name, limits) in [("mine", ["7", ""]), ("shared", ["500", "5"]), ("unstored", ["9", "3"])] {
            for (site, limit) in [&from, &to].into_iter().zip(limits) {
                if name != "unstored" && !limit.is_empty() {
                    site.json(&["account", "add", name]);
                }
                if !limit.is_empty() {
                    site.json(&["account", "limit", name, "--requests-per-second", limit]);
                }
            }
            from.json(&["account", "queries", name, "extended"]);
        }
        for (site, row) in [(&from, "1"), (&to, "2")] {
            site.write("People.json", format!("[{{\"PartitionKey\":\"p\",\"RowKey\":\"{row}\"}}]"));
            copy(site, "People.json", &site.url, &[]);
        }
        let options = |name: &str| {
            let listed = to.json(&["account", "list"]);
            let found = listed.as_array().expect("a list").iter().find(|account| account["name"] == name);
            let of =
                |account: &Value| ["requestsPerSecond", "extendedQueries"].map(|name| account[name].clone());
            found.map(of)
        };
        let arguments = ["copy", &from.url, &to.url, "--all-accounts", "--mode", "replace", "--mirror"];
        from.ends(&[&arguments[..], &["--dry-run"]].concat(), 0, &[]);
        assert_eq!(options("mine"), None);
        // The tables of each account are asked about; accounts are only added.
        from.ends(&arguments, 2, &["1 accounts copied", "account devstoreaccount1: ", "--yes"]);
        let limited = [&arguments[..], &["--yes", "--max-delete", "0"]].concat();
        from.ends(&limited, 2, &["--max-delete"]);
        from.ends(&[&arguments[..], &["--yes"]].concat(), 0, &["0 accounts copied", "1 extra entities"]);
        assert_eq!(options("mine"), Some([json!(7), json!(true)]));
        let [limit, queries] = options("shared").expect("an account");
        assert!(limit == 5 && queries != true, "{limit} {queries}");
        // Of an account of the settings, too, what is chosen there stays.
        to.json(&["account", "add", "unstored"]);
        assert_eq!(options("unstored"), Some([json!(3), json!(true)]));
    }
}
