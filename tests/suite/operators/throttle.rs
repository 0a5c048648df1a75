//! What one account may ask for.

use std::cell::RefCell;

use super::accounts::ADMIN;
use super::*;
use crate::commands::{Site, account_of, status};

const OVER: Refusal = (503, "ServerBusy", "Operations per second is over the account limit.");

/// What a client is answered that asks right after it was let in, which leaves
/// nothing of an allowance of one request a second.
fn too_soon(client: &Client, ask: impl Fn() -> Answer) -> Answer {
    until_some("a fast server", || {
        let begun = Instant::now();
        let let_in = client.get("/Tables").status == 200;
        let answer = ask();
        (let_in && begun.elapsed() < Duration::from_secs(1)).then_some(answer)
    })
}

#[test]
fn an_account_that_asks_too_much_is_refused_and_no_other() {
    let site = Site { folder: fresh_folder(), url: "sqlite::memory:".into() };
    let setting = [1, 2, 3].map(|number| account(number).setting()).join(";");
    let limited = ["--admin-listen", "127.0.0.1:0", "--max-requests-per-second", "1"];
    let server = site.server(&[&limited[..], &["--accounts", &setting]].concat());
    let admin = admin_of(&server);
    let [one, two, three] = [1, 2, 3].map(|number| Client::path_style(server.address(), account(number)));
    let refused = too_soon(&one, || one.get("/Tables"));
    assert_eq!(refused.header("retry-after"), Some("1"));
    refused.refused(OVER);
    two.get("/Tables").expect(200);
    // Neither strangers nor browsers that ask what they may send.
    for _ in 0..10 {
        let wrong = Auth::Header(format!("SharedKey {}:AAAA", three.account.name));
        three.request("GET", "/Tables").auth(wrong).unchecked().send().expect(403);
        three.request("OPTIONS", "/Tables").auth(Auth::None).unchecked().send();
    }
    three.get("/Tables").expect(200);
    // Nothing of what is refused is done, by key or by signature.
    let name = RefCell::new(String::new());
    too_soon(&one, || {
        name.replace(fresh_name());
        one.create_table(&name.borrow())
    })
    .refused(OVER);
    let token = Sas::account("sco", "rwdlau").query(&one.account);
    too_soon(&one, || one.bearing(&token).get("/Tables")).refused(OVER);
    // Who comes when told to is answered.
    let listed = until_some("an answer", || Some(one.get("/Tables")).filter(|answer| answer.status == 200));
    assert!(!listed.expect_json().to_string().contains(name.borrow().as_str()));
    let text = metrics(&admin);
    assert!(sample(&text, "rowhouse_requests_throttled_total") >= 3.0);
    let labels = "operation=\"Unknown\",status=\"503\",error=\"ServerBusy\"";
    assert!(sample(&text, &format!("rowhouse_requests_total{{{labels}}}")) >= 3.0);
}

#[test]
fn an_account_is_limited_by_command_and_by_operators_while_servers_run() {
    let site = Site::postgres();
    let setting = [1, 2].map(|number| account(number).setting()).join(";");
    let server = site.server(&[&ADMIN[..], &["--accounts", &setting]].concat());
    let admin = admin_of(&server);
    let [one, two] = [1, 2].map(|number| Client::path_style(server.address(), account(number)));
    let is_limited =
        |client: &Client| (0..20).any(|_| client.request("GET", "/Tables").unchecked().send().status == 503);
    assert!(!is_limited(&one) && !is_limited(&two));

    // By command, which servers follow. Of the settings, too.
    let name = one.account.name.as_str();
    let limited = site.json(&["account", "limit", name, "--requests-per-second", "1"]);
    assert_eq!(limited, json!({ "name": name, "requestsPerSecond": 1 }));
    until("the limit", || is_limited(&one));
    too_soon(&one, || one.get("/Tables")).refused(OVER);
    assert!(!is_limited(&two), "another account is not limited");
    let path = format!("/accounts/{name}/limits");
    assert_eq!(done(&call(&admin, "GET", &path, ""), 200), limited);
    assert_eq!(site.json(&["account", "limit", name, "--none"])["requestsPerSecond"], Value::Null);
    until("the end of the limit", || !is_limited(&one));

    // By an operator, at once, and for an account of the database.
    let added = account_of(&site.json(&["account", "add", "myaccount"]));
    let three = Client::path_style(server.address(), added.clone());
    until("the account", || status(&server, &added, 0) == 200);
    let put = |name: &str, body: &str| call(&admin, "PUT", &format!("/accounts/{name}/limits"), body);
    let answer = done(&put("myaccount", r#"{"requestsPerSecond":1}"#), 200);
    assert_eq!(answer, json!({ "name": "myaccount", "requestsPerSecond": 1 }));
    assert!(is_limited(&three));
    assert_eq!(site.json(&["account", "list"])[0]["requestsPerSecond"], 1);
    site.ends(&["account", "list"], 0, &["at most 1 requests a second"]);
    done(&put("myaccount", r#"{"requestsPerSecond":null}"#), 200);
    assert!(!is_limited(&three));

    // What is no limit changes nothing.
    for body in ["", "{}", r#"{"requestsPerSecond":"1"}"#, r#"{"requestsPerSecond":1,"more":1}"#, "[]"] {
        refused(&put("myaccount", body), 400, "BadRequest");
    }
    for limit in ["0", "1000001", "4294967295"] {
        refused(&put("myaccount", &format!(r#"{{"requestsPerSecond":{limit}}}"#)), 400, "InvalidLimit");
    }
    refused(&put("nobody", r#"{"requestsPerSecond":1}"#), 404, "AccountNotFound");
    refused(&call(&admin, "GET", "/accounts/nobody/limits", ""), 404, "AccountNotFound");
    site.fails(&["account", "limit", "No", "--requests-per-second", "1"], &["3 to 24"]);
    site.fails(&["account", "limit", name], &["--requests-per-second"]);
    site.fails(&["account", "limit", name, "--requests-per-second", "0"], &["0"]);
    site.fails(&["account", "limit", name, "--requests-per-second", "1", "--none"], &["--none"]);
    assert!(!is_limited(&three));
}
