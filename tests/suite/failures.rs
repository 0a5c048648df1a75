//! What clients are told when the database does not do its part (protocol §2.3,
//! §14.3).

use std::time::Duration;

use serde_json::json;
use sqlx::{Connection, Executor, PgConnection};

use crate::support::postgres::{execute, fresh_database, server_url};
use crate::support::server::{Process, account, fresh_folder};
use crate::support::*;

fn server(url: &str) -> Process {
    server_with(url, &[])
}

fn server_with(url: &str, more: &[&str]) -> Process {
    let accounts = account(1).setting();
    let arguments =
        ["serve", "--listen", "127.0.0.1:0", "--database-url", url, "--accounts", accounts.as_str()];
    Process::spawn(fresh_folder(), &[&arguments[..], more].concat(), &[])
}

fn client(server: &Process) -> Client {
    Client::path_style(server.address(), account(1))
}

#[test]
fn a_row_that_nobody_can_have_written_is_an_internal_error() {
    let url = fresh_database();
    let server = server(&url);
    let client = client(&server);
    let t = client.table();
    t.seed_one(json!({ "Secret": 1 }));
    for broken in ["[]", "5", "{\"A\":{\"B\":1}}"] {
        execute(&url, &format!("UPDATE entities SET properties = '{broken}'"));
        for answer in [t.get("p", "r"), t.query("")] {
            answer.refused(INTERNAL);
        }
    }
    execute(&url, "UPDATE entities SET properties = '{\"A\":1}'");
    assert_eq!(t.properties(), json!({ "A": 1 }));
}

#[tokio::test]
async fn a_write_that_takes_longer_than_the_client_allows_is_timed_out() {
    let url = fresh_database();
    let server = server(&url);
    let client = client(&server);
    let t = client.table();
    t.seed_one(json!({ "A": 1 }));
    let mut other = PgConnection::connect(&url).await.expect("a session");
    other.execute("BEGIN; SELECT * FROM entities FOR UPDATE").await.expect("a lock");
    let write = |rest: &str| {
        let path = format!("{}?timeout={rest}", t.path("p", "r"));
        client.request("PUT", &path).json(&json!({ "A": 2 })).send()
    };
    write("1").refused(TIMED_OUT);
    t.get("p", "r").expect(200);
    other.execute("ROLLBACK").await.expect("the lock goes");
    write("20").expect(204);
    assert_eq!(t.properties(), json!({ "A": 2 }));
}

/// Has a change set that waits for a held row take a server's only connection for what
/// is not a point read or a single write, and looks on.
async fn while_no_connection_is_free(url: &str, server: &Process, t: &Table<'_>, look: impl FnOnce()) {
    let mut other = PgConnection::connect(url).await.expect("a session");
    other.execute("BEGIN; SELECT * FROM entities FOR UPDATE").await.expect("a lock");
    std::thread::scope(|scope| {
        scope.spawn(|| {
            let client = client(server);
            let t = Table::new(&client, t.name.clone());
            let body = json!({ "A": 2 });
            Batch::new().write("PUT", &t, ("p", "r"), &body, None).commit(&client);
        });
        look();
        tokio::task::block_in_place(|| {
            tokio::runtime::Handle::current().block_on(other.execute("ROLLBACK")).expect("the lock goes");
        });
    });
}

/// The server has one connection for what is not a point read or a single write.
#[tokio::test(flavor = "multi_thread")]
async fn pages_see_what_they_may_while_no_connection_is_free() {
    let url = fresh_database();
    let server = server_with(&url, &["--max-connections", "1"]);
    let client = client(&server);
    let t = client.table();
    t.seed_one(json!({ "A": 1 }));
    let rules = "<StorageServiceProperties><Cors><CorsRule><AllowedMethods>GET</AllowedMethods>\
                 <AllowedOrigins>*</AllowedOrigins><AllowedHeaders/><ExposedHeaders/>\
                 <MaxAgeInSeconds>1</MaxAgeInSeconds></CorsRule></Cors></StorageServiceProperties>";
    let set = client.request("PUT", "/?restype=service&comp=properties");
    set.header("Accept", "application/xml").body(rules.to_owned()).send().expect(202);
    let allowed = || {
        let answer = t.on("GET", "p", "r").header("Origin", "http://a.example").send().expect(200);
        answer.header("Access-Control-Allow-Origin").map(str::to_owned)
    };
    assert_eq!(allowed().as_deref(), Some("*"));
    while_no_connection_is_free(&url, &server, &t, || {
        // Until the rules are old, and then some.
        for _ in 0..14 {
            std::thread::sleep(Duration::from_millis(500));
            assert_eq!(allowed().as_deref(), Some("*"));
        }
    })
    .await;
    assert_eq!(t.properties(), json!({ "A": 2 }));
}

/// A write that was done is not called a failure because the rules for its answer
/// cannot be had.
#[tokio::test(flavor = "multi_thread")]
async fn a_page_s_write_succeeds_though_no_cors_rules_can_be_read() {
    let url = fresh_database();
    let server = server_with(&url, &["--max-connections", "1"]);
    let client = client(&server);
    let t = client.table();
    t.seed_one(json!({ "A": 1 }));
    while_no_connection_is_free(&url, &server, &t, || {
        std::thread::sleep(Duration::from_millis(500));
        for row in ["a", "b"] {
            let insert = client.request("POST", &format!("/{}?timeout=1", t.name));
            let insert = insert.header("Origin", "http://a.example").json(&with_keys("p", row, json!({})));
            insert.send().expect(201);
        }
    })
    .await;
    assert_eq!(t.count(), 3);
}

#[test]
fn a_database_that_is_away_makes_the_server_busy() {
    let url = fresh_database();
    let name = url.split('?').next().and_then(|url| url.rsplit('/').next()).expect("a name").to_owned();
    let server = server(&url);
    let client = client(&server);
    let t = client.table();
    t.seed_one(json!({ "A": 1 }));
    let allow = |allowed: bool| {
        execute(server_url(), &format!("ALTER DATABASE {name} ALLOW_CONNECTIONS {allowed}"));
    };
    allow(false);
    let cut = format!("SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE datname = '{name}'");
    execute(server_url(), &cut);
    let batch = || Batch::new().insert(&t, &with_keys("p", "b", json!({})));
    let answers = [t.get("p", "r"), t.query(""), t.insert(&with_keys("p", "s", json!({})))];
    for (at, answer) in answers.into_iter().enumerate() {
        // A write on a connection that was cut may have been done.
        if at < 2 || answer.status == 503 {
            assert_eq!(answer.need("Retry-After"), "1", "{answer}");
            answer.refused(BUSY);
        } else {
            answer.refused(TIMED_OUT);
        }
    }
    let failed = batch().send(&client);
    failed.refused(0, BUSY);
    allow(true);
    std::thread::sleep(Duration::from_millis(100));
    assert_eq!(t.properties(), json!({ "A": 1 }));
    batch().commit(&client);
}
