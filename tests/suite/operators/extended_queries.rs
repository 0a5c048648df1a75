//! Which accounts have extended queries.

use super::accounts::ADMIN;
use super::*;
use crate::commands::Site;
use crate::support::batch::{BatchAnswer, post, query_batch};

/// Whether a server answers extended queries of an account, if it serves the account.
fn is_extended(admin: &Wire, name: &str) -> Option<bool> {
    let found = call(admin, "GET", &format!("/accounts/{name}/queries"), "");
    (found.status == 200).then(|| {
        let found = json_of(&found);
        assert_eq!(found["name"], name);
        found["extended"].as_bool().expect("a choice")
    })
}

/// A table with entities whose `Name` begins in two ways.
fn filled(client: &Client) -> Table<'_> {
    let table = client.table();
    for name in ["Ada", "Adele", "Bob"] {
        table.insert(&with_keys("p", name, json!({ "Name": name }))).expect(201);
    }
    table
}

/// How many entities a client of an account gets by a prefix; `None` if it is answered as by the service.
fn by_prefix(table: &Table<'_>) -> Option<usize> {
    let answer = table.query("?$filter=startswith(Name,'Ad')");
    match answer.status {
        501 => {
            answer.refused(NOT_IMPLEMENTED);
            None
        }
        _ => Some(rows(answer.expect(200).json()).len()),
    }
}

fn put(admin: &Wire, name: &str, body: &str) -> Raw {
    call(admin, "PUT", &format!("/accounts/{name}/queries"), body)
}

/// The settings of accounts 1 and 2.
fn two_accounts() -> String {
    [account(1).setting(), account(2).setting()].join(";")
}

#[test]
fn an_operator_chooses_for_an_account_while_servers_run() {
    let site = Site::postgres();
    let (setting, [one, two]) = (two_accounts(), [account(1).name, account(2).name]);
    let start = || site.server(&[&ADMIN[..], &["--accounts", &setting, "--extended-queries", &two]].concat());
    let server = start();
    let admin = admin_of(&server);
    let now = |name: &str, expected: bool| {
        until("the choice", || is_extended(&admin, name) == Some(expected));
    };
    // Off by default, and on by the setting. A command wins over it.
    now(&one, false);
    now(&two, true);
    let chosen = site.json(&["account", "queries", &one, "extended"]);
    assert_eq!(chosen, json!({ "name": one, "extended": true }));
    assert_eq!(site.json(&["account", "queries", &two, "service"])["extended"], false);
    now(&one, true);
    now(&two, false);
    // By an operator, at once, and for an account of the database.
    site.json(&["account", "add", "myaccount"]);
    now("myaccount", false);
    let answer = done(&put(&admin, "myaccount", r#"{"extended":true}"#), 200);
    assert_eq!(answer, json!({ "name": "myaccount", "extended": true }));
    assert_eq!(is_extended(&admin, "myaccount"), Some(true), "at once");
    let listed = site.json(&["account", "list"]);
    assert_eq!(listed[0]["extendedQueries"], true);
    assert_eq!(listed, done(&call(&admin, "GET", "/accounts", ""), 200));
    site.ends(&["account", "list"], 0, &[", extended queries"]);
    let session = done(&call(&admin, "GET", "/console/api/session", ""), 200);
    let shown = [0, 1, 2].map(|at: usize| session["accounts"][at]["extendedQueries"].clone());
    assert_eq!(shown, [true, false, true]);
    audits(&server, "PUT /accounts/{name}/queries", "200", "myaccount");
    // A limit is another choice, and the choices outlive the server.
    site.json(&["account", "limit", "myaccount", "--requests-per-second", "1000"]);
    drop(server);
    let server = start();
    let admin = admin_of(&server);
    let after = [&one, &two, "myaccount"].map(|name| is_extended(&admin, name));
    assert_eq!(after, [Some(true), Some(false), Some(true)]);
    done(&put(&admin, "myaccount", r#"{"extended":false}"#), 200);
    assert_eq!(is_extended(&admin, "myaccount"), Some(false));
}

#[test]
fn clients_use_extended_queries_while_their_account_has_them() {
    let site = Site::postgres();
    let setting = two_accounts();
    let [server, other] = [(); 2].map(|()| site.server(&["--accounts", &setting, "--explain-errors"]));
    let clients = [&server, &other].map(Process::client);
    let here = filled(&clients[0]);
    let everywhere = clients.each_ref().map(|client| Table::new(client, here.name.as_str()));
    let neighbour = Client::path_style(server.address(), account(2));
    let secondary = clients[0].secondary();
    let batch = || {
        let url = format!("{}?$filter=startswith(Name,%27Ad%27)", clients[0].url(&here.set()));
        BatchAnswer::of(post(&clients[0], query_batch(&url)).send()).parts[0].status
    };
    let reasons = || server.log().matches("rowhouse account queries ACCOUNT extended").count();
    // Off: answered as by the service, and the log says how to turn them on.
    assert_eq!((by_prefix(&here), reasons()), (None, 1));
    assert_eq!((batch(), reasons()), (501, 2));
    here.query("?$orderby=RowKey").refused(NOT_IMPLEMENTED);
    assert_eq!(reasons(), 3);
    here.query("?$filter=year(Name)+eq+1").refused(NOT_IMPLEMENTED);
    assert_eq!(reasons(), 3, "they have no such function");
    // On, on every server, also in batches, of tables and on the secondary; for this account alone.
    let name = account(1).name;
    site.json(&["account", "queries", &name, "extended"]);
    until("extended queries", || everywhere.iter().all(|table| by_prefix(table) == Some(2)));
    assert_eq!(batch(), 200);
    assert_eq!(by_prefix(&Table::new(&secondary, here.name.as_str())), Some(2));
    here.query("?$orderby=PartitionKey+desc,RowKey+desc").expect(200);
    clients[0].get("/Tables?$filter=startswith(TableName,'x')").expect(200);
    assert_eq!(by_prefix(&filled(&neighbour)), None);
    // Off again.
    site.json(&["account", "queries", &name, "service"]);
    until("the end", || everywhere.iter().all(|table| by_prefix(table).is_none()));
}

#[test]
fn what_is_no_choice_changes_nothing() {
    let site = Site::sqlite();
    let setting = account(1).setting();
    let server = site.server(&[&ADMIN[..], &["--accounts", &setting]].concat());
    let (admin, name) = (admin_of(&server), account(1).name);
    for body in ["", "{}", r#"{"extended":null}"#, r#"{"extended":1}"#, r#"{"extended":true,"more":1}"#] {
        refused(&put(&admin, &name, body), 400, "BadRequest");
    }
    refused(&put(&admin, "nobody", r#"{"extended":true}"#), 404, "AccountNotFound");
    refused(&call(&admin, "GET", "/accounts/nobody/queries", ""), 404, "AccountNotFound");
    site.fails(&["account", "queries", "No", "extended"], &["3 to 24"]);
    site.fails(&["account", "queries", &name], &["QUERIES"]);
    site.fails(&["account", "queries", &name, "other"], &["other", "QUERIES"]);
    assert_eq!(is_extended(&admin, &name), Some(false));
}
