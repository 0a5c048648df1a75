//! `rowhouse expire`, and the servers that delete what has expired.

use rowhouse_protocol::model::Ticks;
use serde_json::json;
use sqlx::{Connection as _, Executor as _, PgConnection};

use super::*;
use crate::operators::{admin_of, call, done, json_of, metric, refused};
use crate::support::clock::JumpingClock;
use crate::support::http::Wire;
use crate::support::postgres::{LOCK_WAITERS, text};
use crate::support::server::account;
use crate::support::sign::http_date;

const ADMIN: [&str; 4] = ["--admin-listen", "127.0.0.1:0", "--admin-token", crate::operators::TOKEN];

/// A server with an admin listener and an account.
fn served(site: &Site, more: &[&str]) -> (Process, Wire, Client) {
    let (server, client) = site.served(&[&ADMIN[..], more].concat());
    let admin = admin_of(&server);
    (server, admin, client)
}

fn set(site: &Site, table: &str, rule: &[&str]) -> Value {
    site.json(&[&["expire", "set", table, "--account", "acct0001"], rule].concat())
}

fn rules(site: &Site) -> Vec<Value> {
    site.json(&["expire", "list"]).as_array().expect("rules").clone()
}

/// A time some seconds from now, as a property.
fn at(seconds: i64) -> String {
    let at = chrono::Utc::now() + chrono::TimeDelta::seconds(seconds);
    at.format("%Y-%m-%dT%H:%M:%S%.6fZ").to_string()
}

fn dated(row: &str, value: Value, edm_type: Option<&str>) -> Value {
    let mut entity = json!({ "PartitionKey": "p", "RowKey": row, "Expires": value });
    if let Some(edm_type) = edm_type {
        entity["Expires@odata.type"] = edm_type.into();
    }
    entity
}

/// Sites with what a server on each takes: the last spreads its tables.
fn sites() -> [(Site, &'static [&'static str]); 3] {
    let [sqlite, postgres] = Site::both();
    [(sqlite, &[]), (postgres, &[]), (Site::postgres(), &["--table-spread", "16"])]
}

#[test]
fn entities_expire_at_the_date_that_they_carry_or_by_their_age() {
    for (site, more) in sites() {
        let (_server, admin, client) = served(&site, more);
        let (t, untouched) = (client.table(), client.table());
        let date = Some("Edm.DateTime");
        for table in [&t, &untouched] {
            table.seed(dated("past", json!(at(-3600)), date));
            table.seed(dated("soon", json!(at(4)), date));
            table.seed(dated("future", json!(at(3600)), date));
            table.seed(dated("text", json!(at(-3600)), None));
            table.seed(dated("long", json!("5"), Some("Edm.Int64")));
        }
        // An index finds them.
        let indexed = client.table();
        for n in 0..30 {
            let expires = at(if n % 3 == 0 { -60 } else { 3600 });
            let expires = json!({ "Expires@odata.type": date, "Expires": expires });
            indexed.seed(with_keys(&format!("p{n:02}"), "r", expires));
        }
        indexed.seed(with_keys("none", "r", json!({})));
        for property in ["Expires", "Timestamp"] {
            site.json(&["index", "create", &indexed.name, property, "--account", "acct0001", "--yes"]);
        }
        // In other partitions, which a spread table has in other buckets.
        for n in 0..40 {
            let expires = json!({ "Expires@odata.type": date, "Expires": at(-n) });
            t.seed(with_keys(&format!("q{n}"), "r", expires));
        }
        let made = set(&site, &t.name, &["--at", "Expires", "--every", "1s"]);
        let shown = (&made["at"], &made["plus"], &made["every"]);
        assert_eq!(shown, (&json!("Expires"), &json!("0s"), &json!("1s")));
        until("what has expired", || t.count() == 3);
        assert_eq!(row_keys(&t.matches("PartitionKey ge ''")), "future,long,text");
        until("the end of a pass", || rules(&site)[0]["sweptUntil"].is_string());
        assert_eq!(rules(&site)[0]["expired"], 42);
        until("the metrics", || {
            metric(&admin, "rowhouse_expired_entities_total") == 42.0
                && metric(&admin, "rowhouse_expiry_tables") == 1.0
                && metric(&admin, "rowhouse_expiry_lag_seconds") < 60.0
        });
        set(&site, &indexed.name, &["--at", "Expires", "--every", "1s"]);
        until("what has expired, by the index", || indexed.count() == 21);
        for table in [&t, &indexed] {
            set(&site, &table.name, &["--after", "1s", "--every", "1s"]);
        }
        until("the others, by their age", || t.count() == 0 && indexed.count() == 0);
        // Both indexes were read: the database counts with a delay.
        until("the uses", || {
            let indexes = json_of(&call(&admin, "GET", "/indexes", ""));
            indexes.as_array().expect("a list").iter().all(|index| index["uses"].as_u64() > Some(0))
        });
        assert_eq!(untouched.count(), 5, "tables without a rule are left alone");
        let mistake = ["expire", "set", &t.name, "--after", "soon", "--account", "acct0001"];
        site.fails(&mistake, &["soon", "30d"]);
        for table in [&t, &indexed] {
            site.json(&["expire", "clear", &table.name, "--account", "acct0001"]);
        }
        assert_eq!(rules(&site), Vec::<Value>::new());
        site.fails(&["expire", "clear", &t.name, "--account", "acct0001"], &[&t.name]);
    }
}

#[test]
fn a_sweep_goes_on_after_its_server_has_ended() {
    for (site, more) in sites() {
        let (first, _, client) = served(&site, more);
        let t = client.table();
        let past = json!({ "Expires@odata.type": "Edm.DateTime", "Expires": at(-9) });
        for partition in (0..30).map(|number| format!("p{number}")) {
            t.seed_many((0..100).map(|row| with_keys(&partition, &row.to_string(), past.clone())));
        }
        // A second server beside the first, where the database takes one.
        let second = (!site.is_sqlite()).then(|| served(&site, more));
        set(&site, &t.name, &["--at", "Expires", "--every", "1s"]);
        until("the first step", || rules(&site)[0]["expired"].as_u64().is_some_and(|expired| expired > 0));
        drop(first);
        let (_other, _, client) = second.unwrap_or_else(|| served(&site, more));
        let t = Table::new(&client, &t.name);
        until("the rest", || t.count() == 0);
        assert!(rules(&site)[0]["expired"].as_u64().is_some_and(|expired| expired <= 3000));
    }
}

#[test]
fn what_a_clock_ahead_has_stored_delays_nothing() {
    for site in Site::both() {
        let (server, _, client) = served(&site, &[]);
        let t = client.table();
        set(&site, &t.name, &["--at", "Expires", "--every", "1s"]);
        until("the end of a pass", || rules(&site)[0]["sweptUntil"].is_string());
        drop(server);
        site.execute("UPDATE expiry SET due = due + 36000000000, clean = clean + 36000000000");
        if !site.is_sqlite() {
            site.execute("UPDATE upkeep_lease SET holder = holder + 1, until = until + 36000000000");
        }
        assert_eq!(rules(&site)[0]["behindSeconds"].as_u64().map(|behind| behind < 3600), Some(true));
        let (_server, _, client) = served(&site, &[]);
        let t = Table::new(&client, &t.name);
        t.seed(dated("past", json!(at(-3600)), Some("Edm.DateTime")));
        until("what has expired", || t.count() == 0);
        until("a pass by the right clock", || {
            rules(&site)[0]["sweptUntil"].as_str().is_some_and(|until| *until < *at(1))
        });
    }
}

#[test]
fn a_server_whose_clock_was_ahead_expires_nothing_early() {
    for site in Site::both() {
        let Some(clock) = JumpingClock::new(&site.folder) else { return };
        let setting = account(1).setting();
        let arguments =
            ["serve", "--listen", "127.0.0.1:0", "--database-url", &site.url, "--accounts", &setting];
        let server = Process::spawn(fresh_folder(), &arguments, &clock.variables());
        let client = server.client();
        let t = client.table();
        let date = Some("Edm.DateTime");
        t.seed(with_keys("p", "before", json!({})));
        clock.set(3600);
        // It takes requests of this time alone.
        let written = t.on("PUT", "p", "ahead").json(&json!({})).date(Some(http_date(3600))).send();
        let version = timestamp_of(written.expect(204).need("ETag"));
        assert!(version > at(3000), "{version}");
        clock.set(0);
        t.seed(dated("past", json!(at(-3600)), date));
        t.seed(dated("future", json!(at(1800)), date));
        set(&site, &t.name, &["--at", "Expires", "--every", "1s"]);
        until("what has expired", || rules(&site)[0]["expired"] == 1);
        until("the end of a pass", || rules(&site)[0]["sweptUntil"].is_string());
        assert_eq!(row_keys(&t.matches("PartitionKey ge ''")), "ahead,before,future");
        // Entities that are written after it have correct Timestamps, and expire by them; one that has a version of its
        // hour takes the next.
        assert!(timestamp_of(&t.seed(with_keys("p", "after", json!({})))) < at(600));
        let again = t.on("MERGE", "p", "ahead").json(&json!({})).send();
        let [again, version] = [timestamp_of(again.expect(204).need("ETag")), version]
            .map(|time| Ticks::parse(&time).expect("a time"));
        assert!(again > version, "{again:?} {version:?}");
        set(&site, &t.name, &["--after", "1s", "--every", "1s"]);
        until("those that it did not write", || row_keys(&t.matches("PartitionKey ge ''")) == "ahead");
    }
}

#[test]
fn a_rule_goes_into_backups_but_not_into_copies() {
    let site = Site::sqlite();
    let (server, _, client) = served(&site, &[]);
    set(&site, &client.table().name, &["--after", "30d"]);
    let backup = site.folder.join("backup.db");
    let backup = backup.to_str().expect("a path");
    site.json(&["backup", backup]);
    let url = format!("sqlite://{backup}");
    let listed = printed(&site.run_with(&["expire", "list", "--json"], &[("DATABASE_URL", &url)]));
    assert_eq!(listed[0]["after"], "30d");
    drop(server);
    let target = Site::sqlite();
    let from = format!("{}#acct0001", site.url);
    let copied = target.run(&["copy", &from, &target.url, "--progress", "json"]);
    assert!(copied.status.success(), "{copied:?}");
    assert_eq!(rules(&target), Vec::<Value>::new());
}

#[test]
fn the_admin_listener_does_the_same() {
    let site = Site::sqlite();
    let (_server, admin, client) = served(&site, &[]);
    let t = client.table();
    let path = format!("/accounts/acct0001/tables/{}/expiry", t.name);
    let put = |body: Value| call(&admin, "PUT", &path, &body.to_string());
    let made = done(&put(json!({ "at": "Expires", "plus": "90m", "every": "1h" })), 200);
    let shown = (&made["table"], &made["plus"], &made["every"]);
    assert_eq!(shown, (&json!(t.name), &json!("90m"), &json!("1h")));
    let listed = done(&call(&admin, "GET", "/expiry?account=acct0001", ""), 200);
    assert_eq!((&listed[0]["at"], &listed[0]["after"]), (&json!("Expires"), &Value::Null));
    assert_eq!(listed[0]["set"], site.json(&["expire", "list"])[0]["set"]);
    refused(&put(json!({ "after": "x" })), 400, "BadRequest");
    refused(&put(json!({ "after": "1d", "unknown": 1 })), 400, "BadRequest");
    refused(&call(&admin, "GET", "/expiry?account=nobody", ""), 404, "AccountNotFound");
    let nowhere = "/accounts/acct0001/tables/Nowhere/expiry";
    refused(&call(&admin, "PUT", nowhere, r#"{"after":"1d"}"#), 404, "TableNotFound");
    done(&call(&admin, "DELETE", &path, ""), 200);
    refused(&call(&admin, "DELETE", &path, ""), 404, "NotSet");
    assert_eq!(done(&call(&admin, "GET", "/expiry", ""), 200), json!([]));
}

/// A respread that gives a table another number, and has not committed yet.
struct HeldRenumbering<'a> {
    url: &'a str,
    session: PgConnection,
}

impl<'a> HeldRenumbering<'a> {
    async fn begin(url: &'a str) -> Self {
        let mut session = PgConnection::connect(url).await.expect("a connection");
        let renumber =
            "BEGIN; UPDATE tables SET table_no = table_no + 1; UPDATE expiry SET table_no = table_no + 1";
        session.execute(renumber).await.expect("a change");
        Self { url, session }
    }

    /// Commits once somebody waits for it, or does not wait any more.
    async fn commit_when_waited_for(mut self, is_done: impl Fn() -> bool) {
        until_async("somebody who waits", async || is_done() || text(self.url, LOCK_WAITERS) != "0").await;
        self.session.execute("COMMIT").await.expect("a commit");
    }
}

/// Runs a command while a respread gives the table another number.
fn while_renumbered(site: &Site, words: &[&str]) -> Value {
    std::thread::scope(|scope| {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime");
        let held = runtime.block_on(HeldRenumbering::begin(&site.url));
        let command = scope.spawn(|| site.json(words));
        runtime.block_on(held.commit_when_waited_for(|| command.is_finished()));
        command.join().expect("it succeeds")
    })
}

#[test]
fn a_rule_is_set_and_cleared_of_the_number_that_a_respread_has_just_given_the_table() {
    let site = Site::postgres();
    let (server, _, client) = served(&site, &[]);
    let name = client.table().name;
    drop(server);
    let of_table = ["--account", "acct0001"];
    let words = |rule: &[&'static str]| [&["expire", "set", &name], &of_table[..], rule].concat();
    let orphans = "SELECT count(*)::text FROM expiry WHERE table_no NOT IN (SELECT table_no FROM tables)";
    for after in ["30d", "60d"] {
        let set = while_renumbered(&site, &words(&["--after", after]));
        assert_eq!(set["after"], after, "{set}");
        assert_eq!(rules(&site)[0]["after"], after);
        assert_eq!(text(&site.url, orphans), "0");
    }
    while_renumbered(&site, &[&["expire", "clear", &name], &of_table[..]].concat());
    assert_eq!(rules(&site), Vec::<Value>::new());
    assert_eq!(text(&site.url, "SELECT count(*)::text FROM expiry"), "0");
}
