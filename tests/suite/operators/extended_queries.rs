//! Which accounts have extended queries.

use super::accounts::{ADMIN, call, done};
use super::*;
use crate::commands::{Site, soon};
use crate::support::client::Account;

/// Whether a server answers extended queries of an account, if it serves the account.
fn is_extended(admin: &Wire, name: &str) -> Option<bool> {
    let found = call(admin, "GET", &format!("/accounts/{name}/queries"), "");
    (found.status == 200).then(|| {
        let found = json_of(&found);
        assert_eq!(found["name"], name);
        found["extended"].as_bool().expect("a choice")
    })
}

fn put(admin: &Wire, name: &str, body: &str) -> Raw {
    call(admin, "PUT", &format!("/accounts/{name}/queries"), body)
}

#[test]
fn an_operator_chooses_for_an_account_while_servers_run() {
    for site in Site::both() {
        let accounts: Vec<Account> = (1..=2).map(account).collect();
        let setting: Vec<String> = accounts.iter().map(Account::setting).collect();
        let setting = setting.join(";");
        let [one, two] = [0, 1].map(|at| accounts[at].name.as_str());
        let given = ["--accounts", &setting, "--extended-queries", two];
        let start = || site.server(&[&ADMIN[..], &given].concat());
        let server = start();
        let other = (!site.url.starts_with("sqlite")).then(start);
        let admins: Vec<Wire> = [Some(&server), other.as_ref()].into_iter().flatten().map(admin_of).collect();
        let now = |name: &str, expected: bool| {
            soon("the choice", || admins.iter().all(|admin| is_extended(admin, name) == Some(expected)));
        };

        // Off by default, and on by the setting.
        now(one, false);
        now(two, true);

        // By command, which servers follow, and which wins over the setting.
        let chosen = site.json(&["account", "queries", one, "extended"]);
        assert_eq!(chosen, json!({ "name": one, "extended": true }));
        assert_eq!(site.json(&["account", "queries", two, "service"])["extended"], false);
        now(one, true);
        now(two, false);

        // By an operator, at once, and for an account of the database.
        site.json(&["account", "add", "myaccount"]);
        now("myaccount", false);
        let answer = done(&put(&admins[0], "myaccount", r#"{"extended":true}"#), 200);
        assert_eq!(answer, json!({ "name": "myaccount", "extended": true }));
        assert_eq!(is_extended(&admins[0], "myaccount"), Some(true), "at once");
        now("myaccount", true);
        let listed = site.json(&["account", "list"]);
        assert_eq!(listed[0]["extendedQueries"], true);
        assert_eq!(listed, done(&call(&admins[0], "GET", "/accounts", ""), 200));
        assert_eq!(listed[0], done(&call(&admins[0], "GET", "/accounts/myaccount", ""), 200));
        let text = String::from_utf8(site.run(&["account", "list"]).stdout).expect("text");
        assert!(text.trim_end().ends_with(", extended queries"), "{text}");
        let session = done(&call(&admins[0], "GET", "/console/api/session", ""), 200);
        let shown: Vec<(&Value, &Value)> = session["accounts"]
            .as_array()
            .expect("accounts")
            .iter()
            .map(|account| (&account["name"], &account["extendedQueries"]))
            .collect();
        let expected =
            [(json!(one), json!(true)), (json!(two), json!(false)), (json!("myaccount"), json!(true))];
        assert_eq!(shown, expected.each_ref().map(|(name, extended)| (name, extended)));

        // A limit is another choice.
        site.json(&["account", "limit", "myaccount", "--requests-per-second", "1000"]);
        site.json(&["account", "limit", two, "--requests-per-second", "1000"]);
        now("myaccount", true);
        now(two, false);
        let log = server.log();
        let audited = log.lines().find(|line| line.contains("PUT /accounts/{name}/queries")).unwrap_or(&log);
        assert!(audited.contains("subject=\"myaccount\"") && audited.contains("status=200"), "{audited}");

        // It outlives the servers.
        drop((server, other));
        let server = start();
        let admin = admin_of(&server);
        let after = [one, two, "myaccount"].map(|name| is_extended(&admin, name));
        assert_eq!(after, [Some(true), Some(false), Some(true)]);
        done(&put(&admin, "myaccount", r#"{"extended":false}"#), 200);
        assert_eq!(is_extended(&admin, "myaccount"), Some(false));
    }
}

#[test]
fn what_is_no_choice_changes_nothing() {
    for site in Site::both() {
        let setting = account(1).setting();
        let server = site.server(&[&ADMIN[..], &["--accounts", &setting]].concat());
        let (admin, name) = (admin_of(&server), account(1).name);
        for body in [
            "",
            "{}",
            "[]",
            r#"{"extended":null}"#,
            r#"{"extended":"true"}"#,
            r#"{"extended":1}"#,
            r#"{"extended":true,"more":1}"#,
        ] {
            refused(&put(&admin, &name, body), 400, "BadRequest");
        }
        refused(&put(&admin, "nobody", r#"{"extended":true}"#), 404, "AccountNotFound");
        refused(&call(&admin, "GET", "/accounts/nobody/queries", ""), 404, "AccountNotFound");
        site.fails(&["account", "queries", "No", "extended"], &["3 to 24"]);
        site.fails(&["account", "queries", &name], &["QUERIES"]);
        site.fails(&["account", "queries", &name, "other"], &["other", "QUERIES"]);
        assert_eq!(is_extended(&admin, &name), Some(false));
    }
}

#[test]
fn only_accounts_of_the_settings_can_be_named_there() {
    let site = Site::sqlite();
    let setting = account(1).setting();
    let words = ["serve", "--listen", "127.0.0.1:0", "--accounts", &setting];
    let output = site.run_with(&words, &[("ROWHOUSE_EXTENDED_QUERIES", "acct0001,nobody")]);
    crate::commands::not_started(&output, &["--extended-queries \"nobody\"", "rowhouse account queries"]);
}
